"""The one trainer: `fit(model, task, splits, config)`, on PyTorch Lightning.

A model is anything that maps an `IrregularBatch` to answers. All randomness of a run is a function of the seed, the
epoch and the step: a run on one CPU repeats to the last digit, and one that was interrupted ends where it would have.
"""

from __future__ import annotations

import logging
import math
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.utilities.exceptions import SIGTERMException
from torch import Tensor, nn

from lformer.batch import IrregularBatch, median_interval
from lformer.cuda_graphs import CapturedStep, RecordingError, capture_step, pad_to_bucket, recording
from lformer.data import Splits
from lformer.evaluate import evaluate
from lformer.ops.checks import skip_value_checks
from lformer.ops.precision import tf32
from lformer.progress import TrainingBar
from lformer.tasks import Task

History = list[dict[str, float]]
Report = Callable[[dict[str, float]], None]
LAUNCH_BOUND = (
    2**19
)  # rows of a batch; with more the GPU takes longer than its kernels to launch, and graphs gain nothing


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How to train. The defaults are the paper's where it says anything.

    Attributes:
        epochs: at most so many.
        batch_size: series per step.
        lr: of Adam, betas 0.9 and 0.999.
        weight_decay: of Adam (decoupled if not 0); the paper has none.
        schedule: "constant" (paper) or "cosine" down to 0 over all epochs.
        warmup: share of all steps over which the rate first rises to `lr`.
        clip: largest gradient norm; None does not clip.
        patience: epochs without a better validation metric before stopping; None never stops early.
        time_limit: seconds after which the run stops with `TimeLimitError`; None has no limit.
        accelerator, devices, nodes: passed to Lightning.
        precision: "tf32" is float32 whose products on a GPU round their operands to TF32, as the fused kernels want it
            (on a CPU nothing is rounded); "32-true" never rounds; "bf16-mixed" and "64-true" as Lightning has them.
        replay: on one GPU, record the steps of a model that allows it (`LFormer` does), and replay them: one launch
            instead of one for every kernel. Batches are padded a little more, to few shapes, which changes no answer.
        log: "none", "csv" or "tensorboard", under the folder of the run.
    """

    epochs: int = 100
    batch_size: int = 64
    lr: float = 1e-3
    weight_decay: float = 0.0
    schedule: Literal["constant", "cosine"] = "constant"
    warmup: float = 0.0
    clip: float | None = None
    patience: int | None = 20
    time_limit: float | None = None
    accelerator: str = "auto"
    devices: int | str = 1
    nodes: int = 1
    precision: Literal["tf32", "32-true", "bf16-mixed", "64-true"] = "tf32"
    replay: bool = True
    log: Literal["none", "csv", "tensorboard"] = "none"


@dataclass
class Result:
    """What a run gave. The model holds the weights of its best validation epoch."""

    metrics: dict[str, float]  # of the test part
    validation: dict[str, float]  # of the validation part, same weights
    best_epoch: int
    epochs: int
    seconds: float  # of this process; a run that was resumed took longer in all
    history: History = field(repr=False)


class TimeLimitError(RuntimeError):
    """The run took longer than it was given."""


class DivergedError(FloatingPointError):
    """The loss is no longer a number. `history` holds the epochs before; their checkpoints stay."""

    def __init__(self, message: str, history: History) -> None:
        super().__init__(message)
        self.history = history


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
    seed: int = 0,
    folder: str | Path | None = None,
    progress: bool = True,
    report: Report | None = None,
) -> Result:
    """Train a model, keep its best validation epoch, and test it once.

    Args:
        model: maps a batch to answers; trained in place.
        task: loss, metrics, and the one that selects.
        splits: the data.
        config: how.
        seed: of whatever the model itself draws, such as dropout.
        folder: where the checkpoints go. If it holds those of an interrupted run of the same thing, that run is
            continued. A temporary folder if None.
        progress: show a bar with the loss.
        report: told of every epoch: its number, the training loss and the validation metrics.

    Returns:
        Metrics of the test and validation part, the history and the time taken.
    """
    began = time.perf_counter()
    if isinstance(first := getattr(model, "first_interval", None), Tensor):
        first.fill_(median_interval(list(splits.train.batches(config.batch_size))))
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(folder) if folder is not None else Path(scratch)
        module = _Training(model, task, splits, config, seed, began, report)
        last = home / "last.ckpt"
        history = _earlier(last, module) if last.is_file() else []
        with rounding(config):
            if not finished(history, task, config):
                _train(module, home, last if history else None, progress)
                history = module.history
            best = _load(home / "best.ckpt")
            module.load_state_dict(best["state_dict"])
            with module.where_it_was_trained():
                metrics = evaluate(model, task, splits.test, config.batch_size)
                validation = evaluate(model, task, splits.validation, config.batch_size)
    return Result(
        metrics=metrics,
        validation=validation,
        best_epoch=int(best["epoch"]),
        epochs=len(history),
        seconds=time.perf_counter() - began,
        history=history,
    )


def rounding(config: TrainConfig) -> AbstractContextManager[None]:
    """Inside, products are rounded as `config.precision` says; a run on a CPU leaves the setting alone."""
    on_gpu = config.accelerator != "cpu" and torch.cuda.is_available()
    return tf32() if on_gpu and config.precision == "tf32" else nullcontext()


def _train(module: _Training, home: Path, resume: Path | None, progress: bool) -> None:
    task, config = module.task, module.config
    best = ModelCheckpoint(
        home, "best", monitor=task.monitor, mode=task.direction, save_weights_only=True, enable_version_counter=False
    )
    last = ModelCheckpoint(home, "last", save_on_train_epoch_end=True, enable_version_counter=False)
    callbacks: list[pl.Callback] = [best, last]
    if progress:
        callbacks.append(TrainingBar(module.splits.name, lambda: _latest(module)))
    with _quiet():
        trainer = pl.Trainer(
            max_epochs=config.epochs,
            accelerator=config.accelerator,
            devices=config.devices,
            num_nodes=config.nodes,
            precision="32-true" if config.precision == "tf32" else config.precision,
            gradient_clip_val=config.clip,
            callbacks=callbacks,
            logger=_logger(config, home),
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            default_root_dir=home,
        )
        try:
            with torch.random.fork_rng():
                trainer.fit(module, ckpt_path=resume, weights_only=True)
        except SIGTERMException:  # Lightning would leave with code 0, as if all were done
            raise SystemExit(128 + signal.SIGTERM) from None
    if trainer.interrupted:
        raise KeyboardInterrupt


def finished(history: History, task: Task, config: TrainConfig) -> bool:
    """Whether a run with this history is over: all epochs done, or none better than the best for too long."""
    if len(history) >= config.epochs:
        return True
    return (
        config.patience is not None
        and bool(history)
        and len(history) - 1 - best_epoch(history, task) >= config.patience
    )


def best_epoch(history: History, task: Task) -> int:
    """The first epoch that no other beats."""
    best = 0
    for epoch, row in enumerate(history):
        if task.better(row[task.monitor], history[best][task.monitor]):
            best = epoch
    return best


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

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        splits: Splits[Any],
        config: TrainConfig,
        seed: int,
        began: float,
        report: Report | None,
    ) -> None:
        super().__init__()
        self.report = report
        self.model, self.task, self.splits, self.config, self.seed = model, task, splits, config, seed
        self.history: History = []
        self._deadline = None if config.time_limit is None else began + config.time_limit
        self._losses: list[Tensor] = []
        self._trained_on: torch.device | None = None
        self._steps: CapturedStep | None = None

    def on_train_start(self) -> None:
        self._trained_on = self.device
        if self.config.replay and getattr(self.model, "recordable", False) and self.trainer.world_size == 1:
            self._steps = capture_step(self.model, self._loss)

    def on_train_end(self) -> None:
        self._steps = None  # with it go the graphs, which hold memory of the GPU

    @contextmanager
    def where_it_was_trained(self) -> Iterator[None]:
        """Inside, the model is on the device of its training; Lightning brings it back to the CPU at the end."""
        before = next(self.model.parameters()).device
        self.model.to(self._trained_on or before)
        try:
            yield
        finally:
            self.model.to(before)

    def train_dataloader(self) -> _Epoch:
        return _Epoch(self)

    def val_dataloader(self) -> list[int]:
        return [0]  # the whole part at once, in validation_step: metrics are not means over batches

    def training_step(self, batch: IrregularBatch, step: int) -> Tensor:
        if self._deadline is not None and time.perf_counter() > self._deadline:
            raise TimeLimitError(f"stopped after {self.config.time_limit:g} s, in epoch {self.current_epoch}.")
        _seed(hash((self.seed, self.current_epoch, step)) % 2**63, self.device)
        loss = self._replayed(batch)
        if loss is None:
            with skip_value_checks():  # the batch was checked when it was made, and the loss is watched
                loss = self._loss(self.model, batch.to(self.device))
        if not math.isfinite(value := loss.item()):
            raise DivergedError(self._exploded(value, batch, step), list(self.history))
        self._losses.append(loss.detach())
        return loss

    def backward(self, loss: Tensor) -> None:
        """Lightning calls this after it has taken the gradients away; a replayed step has them already."""
        if loss.requires_grad:
            loss.backward()
        elif self._steps is not None:
            self._steps.place_gradients()

    def _loss(self, model: nn.Module, batch: IrregularBatch) -> Tensor:
        return self.task.loss(self.task.predict(model, batch), batch)

    def _replayed(self, batch: IrregularBatch) -> Tensor | None:
        """The loss of a step by graph, or None where an ordinary step is to be taken."""
        worth = batch.times.numel() <= LAUNCH_BOUND and recording.can_replay(batch, self.device)
        if self._steps is None or not worth:
            return None
        try:
            return self._steps(pad_to_bucket(batch, self.task.answer))
        except RecordingError as error:
            warnings.warn(f"steps are not replayed: {error}", stacklevel=2)
            self._steps = None
            return None

    def validation_step(self, batch: int, step: int) -> None:
        values = evaluate(self.model, self.task, self.splits.validation, self.config.batch_size)
        self.log_dict(values, batch_size=1)
        loss = float(torch.stack(self._losses).mean()) if self._losses else math.nan
        self.log("loss", loss, batch_size=1)
        self._losses = []
        self.history.append({"epoch": self.current_epoch, "loss": loss, **values})
        if self.report is not None:
            self.report(self.history[-1])

    def on_validation_end(self) -> None:
        self.trainer.should_stop = self.trainer.should_stop or finished(self.history, self.task, self.config)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["history"], checkpoint["run"] = list(self.history), self.identity()

    def identity(self) -> str:
        """What makes two runs the same: data, task, seed, settings and the shape of the model."""
        settings = {k: v for k, v in asdict(self.config).items() if k not in ("time_limit", "log")}
        shapes = [(name, tuple(p.shape)) for name, p in self.model.named_parameters()]
        sizes = tuple(len(part) for part in (self.splits.train, self.splits.validation, self.splits.test))
        return repr((self.splits.name, sizes, self.task.name, self.seed, settings, shapes))

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.history = list(checkpoint["history"])

    def configure_optimizers(self) -> Any:
        config = self.config
        scaled = "mixed" in config.precision and config.clip is not None  # here Lightning cannot clip for a fused Adam
        fused = self.device.type in ("cpu", "cuda") and not scaled
        kind = torch.optim.AdamW if config.weight_decay else torch.optim.Adam
        adam = kind(self.model.parameters(), lr=config.lr, weight_decay=config.weight_decay, fused=fused)
        total = config.epochs * len(self.train_dataloader())
        share = torch.optim.lr_scheduler.LambdaLR(adam, lambda step: rate_share(step, total, config))
        return {"optimizer": adam, "lr_scheduler": {"scheduler": share, "interval": "step"}}

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        return batch  # the step moves it, or copies it straight into the buffers of its graph

    def _exploded(self, value: float, batch: IrregularBatch, step: int) -> str:
        where = "" if batch.index is None else f" (series {batch.index[:8].tolist()}, ...)"
        largest = _largest(self.model, batch.to(self.device))
        return (
            f"the loss became {value} at epoch {self.current_epoch}, step {step}{where}; {largest}. "
            f"Lower the learning rate ({self.config.lr:g}), or clip gradients with TrainConfig(clip=...)."
        )


def _seed(seed: int, device: torch.device) -> None:
    """`torch.manual_seed` for the CPU and this device alone: for all there are it takes as long as a small step."""
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)


class _Epoch:
    """The training batches of the current epoch, drawn anew whenever it is iterated."""

    def __init__(self, module: _Training) -> None:
        self.module = module

    def __len__(self) -> int:
        return cast(int, self.module.splits.train.training_steps(self.module.config.batch_size))

    def __iter__(self) -> Iterator[IrregularBatch]:
        # From the steps done, not from Lightning's epoch: a resumed run asks for batches before it has counted on.
        epoch = self.module.trainer.global_step // len(self)
        part = self.module.splits.train
        return cast(Iterator[IrregularBatch], part.training_batches(self.module.config.batch_size, epoch))


def _latest(module: _Training) -> str:
    name = module.task.monitor
    return f"val {name} {module.history[-1][name]:.3g}" if module.history else ""


def _largest(model: nn.Module, batch: IrregularBatch) -> str:
    """Which layer gives the largest number on a batch, or the first one that is not finite."""
    found: list[tuple[float, str]] = []

    def watch(name: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if isinstance(output, Tensor) and output.is_floating_point() and output.numel():
                found.append((float(output.detach().abs().max()), name))

        return hook

    refused = ""
    handles = [module.register_forward_hook(watch(name or "the model")) for name, module in model.named_modules()]
    try:
        with torch.no_grad():
            model(batch)
    except (ValueError, ArithmeticError) as error:
        refused = f"; then a layer refuses: {error}"
    finally:
        for handle in handles:
            handle.remove()
    wild = [name for size, name in found if not math.isfinite(size)]
    if wild:
        return f"the first activation that is not finite comes out of {wild[0]}{refused}"
    size, name = max(found, default=(math.nan, "no layer"))
    return f"the largest activation is {size:.3g}, out of {name}{refused}"


def _earlier(last: Path, module: _Training) -> History:
    """The history of the run that left a checkpoint, which must be this one."""
    saved = _load(last)
    if saved["run"] != module.identity():
        raise ValueError(
            f"{last} is of another run: other data, task, seed, settings or model. Choose another folder, or delete it."
        )
    return cast(History, saved["history"])


def _load(path: Path) -> dict[str, Any]:
    return cast(dict[str, Any], torch.load(path, weights_only=True, map_location="cpu"))


def _logger(config: TrainConfig, home: Path) -> Any:
    if config.log == "csv":
        return pl.loggers.CSVLogger(home, name="log")
    if config.log == "tensorboard":
        try:
            return pl.loggers.TensorBoardLogger(home, name="log")
        except ModuleNotFoundError as error:
            raise ImportError('log="tensorboard" needs TensorBoard: pip install "lformer[logs]".') from error
    return False


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
