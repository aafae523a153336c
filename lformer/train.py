"""The one trainer: `fit(model, task, splits, config)`, on PyTorch Lightning.

A model is anything that maps an `IrregularBatch` to predictions. All randomness of a run comes from the seed of the
model, given to `seeded`, and from the seed of the data, so a run on one CPU repeats to the last digit.
"""

from __future__ import annotations

import logging
import math
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn

from lformer.batch import IrregularBatch, median_interval
from lformer.data import Part, Splits
from lformer.tasks import Task


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How to train. The defaults are the paper's where it says anything.

    Attributes:
        epochs: at most so many.
        batch_size: series per step.
        lr: of Adam, betas 0.9 and 0.999, no weight decay.
        schedule: "constant" (paper) or "cosine" down to 0 over all epochs.
        warmup: share of all steps over which the rate first rises to `lr`.
        clip: largest gradient norm; None does not clip.
        patience: epochs without a better validation metric before stopping; None never stops early.
        accelerator, devices, precision: passed to Lightning.
    """

    epochs: int = 100
    batch_size: int = 64
    lr: float = 1e-3
    schedule: Literal["constant", "cosine"] = "constant"
    warmup: float = 0.0
    clip: float | None = None
    patience: int | None = 20
    accelerator: str = "auto"
    devices: int | str = 1
    precision: Literal["32-true", "bf16-mixed", "64-true"] = "32-true"


@dataclass
class Result:
    """What a run gave. The model holds the weights of its best validation epoch."""

    metrics: dict[str, float]  # of the test part
    validation: dict[str, float]  # of the validation part, same weights
    best_epoch: int
    epochs: int
    seconds: float
    history: list[dict[str, float]] = field(repr=False)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Build a model under a seed without touching the caller's random state."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def fit(
    model: nn.Module,
    task: Task,
    splits: Splits[Any],
    config: TrainConfig,
    *,
    folder: str | Path | None = None,
    progress: bool = True,
) -> Result:
    """Train a model, keep its best validation epoch, and test it once.

    Args:
        model: maps a batch to predictions of the shape of its targets; trained in place.
        task: loss, metrics, and the one that selects.
        splits: the data.
        config: how.
        folder: where the best checkpoint goes; a temporary folder if None.
        progress: show a bar with the loss.

    Returns:
        Metrics of the test and validation part, the history and the time taken.
    """
    began = time.perf_counter()
    if isinstance(first := getattr(model, "first_interval", None), Tensor):
        first.fill_(median_interval(list(splits.train.batches(config.batch_size))))
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(folder) if folder is not None else Path(scratch)
        module = _Training(model, task, splits, config)
        best = ModelCheckpoint(
            home,
            "best",
            monitor=task.monitor,
            mode=task.direction,
            save_weights_only=True,
            enable_version_counter=False,
        )
        callbacks: list[pl.Callback] = [best]
        if config.patience is not None:
            callbacks.append(EarlyStopping(task.monitor, patience=config.patience, mode=task.direction))
        if progress:
            callbacks.append(_Bar(splits.name))
        with _quiet():
            trainer = pl.Trainer(
                max_epochs=config.epochs,
                accelerator=config.accelerator,
                devices=config.devices,
                precision=config.precision,
                gradient_clip_val=config.clip,
                callbacks=callbacks,
                logger=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                num_sanity_val_steps=0,
                default_root_dir=home,
            )
            trainer.fit(module)
        if trainer.interrupted:
            raise KeyboardInterrupt
        saved = torch.load(best.best_model_path, weights_only=True, map_location="cpu")
        module.load_state_dict(saved["state_dict"])
    return Result(
        metrics=evaluate(model, task, splits.test, config.batch_size),
        validation=evaluate(model, task, splits.validation, config.batch_size),
        best_epoch=int(saved["epoch"]),
        epochs=len(module.history),
        seconds=time.perf_counter() - began,
        history=module.history,
    )


@torch.no_grad()
def predict(model: nn.Module, part: Part, batch_size: int = 64) -> tuple[Tensor, Tensor]:
    """Predictions and targets of a whole part, in order, on the CPU."""
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    pairs = [(model(b.to(device)).float().cpu(), _targets(b).cpu()) for b in part.batches(batch_size)]
    model.train(was_training)
    predictions, targets = zip(*pairs, strict=True)
    return torch.cat(predictions), torch.cat(targets)


def evaluate(model: nn.Module, task: Task, part: Part, batch_size: int = 64) -> dict[str, float]:
    """Every metric of the task over a whole part."""
    prediction, target = predict(model, part, batch_size)
    return {name: float(measure(prediction, target)) for name, measure in task.metrics.items()}


def rate_share(step: int, total: int, config: TrainConfig) -> float:
    """The learning rate of a step as a share of `config.lr`: rising in the warm-up, then level or a falling cosine."""
    warm = config.warmup * total
    if step < warm:
        return (step + 1) / (warm + 1)
    if config.schedule == "constant":
        return 1.0
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1.0, total - warm)))


class _Training(pl.LightningModule):
    """Model, task and data as Lightning wants them."""

    def __init__(self, model: nn.Module, task: Task, splits: Splits[Any], config: TrainConfig) -> None:
        super().__init__()
        self.model, self.task, self.splits, self.config = model, task, splits, config
        self.history: list[dict[str, float]] = []
        self._losses: list[Tensor] = []

    def train_dataloader(self) -> _Epoch:
        return _Epoch(self)

    def val_dataloader(self) -> list[int]:
        return [0]  # the whole part at once, in validation_step: metrics are not means over batches

    def training_step(self, batch: IrregularBatch, step: int) -> Tensor:
        loss = self.task.loss(self.model(batch), _targets(batch))
        if not math.isfinite(value := loss.item()):
            raise FloatingPointError(
                f"the loss became {value} at epoch {self.current_epoch}, step {step}. Lower the learning rate "
                f"({self.config.lr:g}), or clip gradients with TrainConfig(clip=...)."
            )
        self._losses.append(loss.detach())
        return loss

    def validation_step(self, batch: int, step: int) -> None:
        values = evaluate(self.model, self.task, self.splits.validation, self.config.batch_size)
        self.log_dict(values, batch_size=1)
        loss = float(torch.stack(self._losses).mean()) if self._losses else math.nan
        self._losses = []
        self.history.append({"epoch": self.current_epoch, "loss": loss, **values})

    def configure_optimizers(self) -> Any:
        adam = torch.optim.Adam(self.model.parameters(), lr=self.config.lr, fused=self.device.type in ("cpu", "cuda"))
        total = self.config.epochs * len(self.train_dataloader())
        share = torch.optim.lr_scheduler.LambdaLR(adam, lambda step: rate_share(step, total, self.config))
        return {"optimizer": adam, "lr_scheduler": {"scheduler": share, "interval": "step"}}

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        return batch.to(device) if isinstance(batch, IrregularBatch) else batch


class _Epoch:
    """The training batches of the current epoch, drawn anew whenever it is iterated."""

    def __init__(self, module: _Training) -> None:
        self.module = module

    def __len__(self) -> int:
        return cast(int, self.module.splits.train.training_steps(self.module.config.batch_size))

    def __iter__(self) -> Iterator[IrregularBatch]:
        part = self.module.splits.train
        return cast(
            Iterator[IrregularBatch], part.training_batches(self.module.config.batch_size, self.module.current_epoch)
        )


class _Bar(pl.Callback):
    """One line for the whole run: steps, loss, validation metric, time left."""

    def __init__(self, name: str) -> None:
        self.progress = Progress(
            TextColumn(f"[bold]{name}"),
            BarColumn(bar_width=16),
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("loss {task.fields[loss]:.2e}"),
            TextColumn("{task.fields[validation]}"),
            TimeRemainingColumn(elapsed_when_finished=True),
        )

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        total = int(trainer.estimated_stepping_batches)
        self.bar = self.progress.add_task("train", total=total, loss=math.nan, validation="")
        self.progress.start()

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.progress.update(self.bar, advance=1, loss=float(outputs["loss"]))

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        assert isinstance(module, _Training)
        name = module.task.monitor
        self.progress.update(self.bar, validation=f"val {name} {module.history[-1][name]:.3g}")

    def teardown(self, trainer: pl.Trainer, module: pl.LightningModule, stage: str) -> None:
        self.progress.stop()


def _targets(batch: IrregularBatch) -> Tensor:
    if batch.targets is None:
        raise ValueError("the batch has no targets; give them to IrregularBatch.build(..., targets=...).")
    return batch.targets


@contextmanager
def _quiet() -> Iterator[None]:
    """Lightning greets, advises and advertises on every start; users asked for a model."""
    talker = logging.getLogger("pytorch_lightning")
    level = talker.level
    talker.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="pytorch_lightning")
        try:
            yield
        finally:
            talker.setLevel(level)
