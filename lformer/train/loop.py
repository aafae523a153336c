"""The trainer: `fit(model, task, splits, config)`, a plain loop from the first batch to the final test.

A model is anything that maps an `IrregularBatch` to predictions. All random numbers of a run are a function of the
seed, the epoch and the step: on one CPU, a run is reproducible to the last digit, and an interrupted one gives the same
result when it is resumed.

With `torchrun` or `devices=2`, every process trains on its share of each batch, and the step is that of a single
process with the whole batch.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lformer.batch import Source
from lformer.devices import device_of
from lformer.draws import Draws, drawing_from
from lformer.evaluate import as_precise
from lformer.nn.rows import fit_clock
from lformer.ops.precision import tf32
from lformer.parts import DealingPart, Part, Share, Splits, sampled, training_shares
from lformer.tasks import Task
from lformer.train import checkpoint
from lformer.train.activations import largest_activation
from lformer.train.config import TrainConfig
from lformer.train.distributed import World, evaluate, join
from lformer.train.errors import DivergedError, History, TimeLimitError
from lformer.train.gradients import autocast
from lformer.train.logs import log_to
from lformer.train.measuring import Measuring
from lformer.train.placing import placed
from lformer.train.progress import NewBar, TrainingBar
from lformer.train.stepping import TrainingStep
from lformer.train.together import fit_together
from lformer.train.watching import Losses

Report = Callable[[dict[str, float]], None]


@dataclass
class Result:
    """The result of a run. The model holds the weights of its best validation epoch."""

    metrics: dict[str, float]  # on the test set
    validation: dict[str, float]  # on the validation set, with the same weights
    best_epoch: int
    epochs: int
    seconds: float  # total time, including that before an interruption
    history: History = field(repr=False)


def fit(
    model: nn.Module,
    task: Task,
    splits: Splits[Any],
    config: TrainConfig,
    *,
    seed: int = 0,
    folder: str | Path | None = None,
    progress: bool | NewBar = True,
    report: Report | None = None,
) -> Result:
    """Train a model, keep its best validation epoch, and test it once.

    Args:
        model: maps a batch to predictions; trained in place, on `config.device`, and then moved back to its device.
            After Ctrl-C it holds the weights of its best epoch so far.
        task: loss, metrics, and the metric that selects the epoch.
        splits: training, validation and test set.
        config: settings of the training.
        seed: seed for the random numbers of the model itself, such as dropout.
        folder: folder for checkpoints. If it contains the checkpoint of an interrupted run with the same data and
            settings, that run is resumed. None writes nothing.
        progress: whether to show a progress bar with the loss, or a progress bar of your own.
        report: called after every epoch with its number, the training loss and the validation metrics.

    Returns:
        Metrics on the test and validation sets, the history and the time taken; the same in every process.
    """
    began = time.perf_counter()
    if config.log != "none" and folder is None:
        raise ValueError(f"log={config.log!r} is written into the folder of the run: fit(..., folder=...).")
    new_bar = progress if callable(progress) else partial(TrainingBar, shown=progress)
    if config.devices != 1:
        with _exit_on_sigterm():
            told = fit_together(
                model, task, splits, config, seed=seed, folder=folder, bar=new_bar, report=report
            )  # fmt: skip
        return Result(**told)
    world = join(config.device)
    leads = world.rank == 0  # the process that writes, shows and reports
    home = Path(folder) if folder is not None and leads else None
    run, came_from = _identity(model, task, splits, config, seed), device_of(model)
    saved = world.by_first(lambda: checkpoint.load(home, run))
    began -= 0.0 if saved is None else saved["seconds"]

    if config.clock == "fitted":
        fit_clock(model, list(sampled(splits.train).batches(config.batch_size)))
    model.to(world.device, torch.float64 if config.precision == "float64" else None).train()
    history: History = []
    best: dict[str, Tensor] = {}  # weights of the best epoch so far, on the CPU
    passes = -(-config.epoch_steps // max(1, splits.train.training_steps(config.batch_size)))
    steps = passes * splits.train.training_steps(config.batch_size)
    if saved is not None:
        model.load_state_dict(saved["model"])
        history, best = saved["history"], saved["best"]
    step = TrainingStep(model, task, world, config, config.epochs * steps)
    averaged = step.update.averaged
    if saved is not None:
        step.update.load(saved["optimiser"], saved["average"])
    draws = Draws(world.device)
    measure = Measuring(model, task, world, replay=config.replay)
    training = placed(splits.train, world.device, config.drop_fraction)
    validating = placed(splits.validation, world.device)
    if not leads:
        new_bar = partial(TrainingBar, shown=False)
    bar = new_bar(splits.name, config.epochs * steps, len(history) * steps)
    log = log_to(home, config.log, len(history))

    try:
        with (
            _exit_on_sigterm(), rounding(config), drawing_from(draws), _kept_random_state(model, world.device),
            log as write_log, bar,
        ):  # fmt: skip
            while not finished(history, task, config):
                epoch = len(history)
                losses = Losses(partial(_explosion, model, config, history))
                numbers = range(epoch * passes, (epoch + 1) * passes)
                for n, share in enumerate(_shares(training, config, numbers, world)):
                    if config.time_limit is not None:
                        _check_time(began, config.time_limit, history, world)
                    _seed(draws, model, (seed, epoch, n), world)
                    losses.add(step(share, epoch * steps + n), share.batch)
                    bar.step(losses.latest)
                loss = losses.mean()  # checks all losses: an epoch in which the run diverged is not kept

                # The metrics of the first process count, so that rounding cannot make processes stop separately.
                world.share_buffers(model)
                with averaged.in_place():
                    with autocast(config.precision, world.device):
                        figures = evaluate(model, task, validating, config.batch_size, world, measure)
                    history.append(world.agreed({"epoch": epoch, "loss": loss, **figures}))
                    if best_epoch(history, task, config.earliest) == epoch:
                        best = {name: value.detach().to("cpu", copy=True) for name, value in model.state_dict().items()}
                bar.validated(task.monitor, history[-1][task.monitor])
                if home is not None:
                    state = checkpoint.Checkpoint(
                        run=run, epoch=epoch, seconds=time.perf_counter() - began, history=history,
                        model=model.state_dict(), best=best, average=averaged.state(),
                        optimiser=step.update.state(),
                    )  # fmt: skip
                    write_log(history)  # before the checkpoint: if killed in between, the epoch is repeated
                    checkpoint.save(home, state)
                if report is not None and leads:
                    report(history[-1])

            step.clear()
            model.load_state_dict(best)
            measure.clear()
            validation = _validation(history, task, config)
            if validation is None:
                validation = evaluate(model, task, validating, config.batch_size, world)
            same = splits.test is splits.validation  # as in estimators, which have no test set
            metrics = dict(validation) if same else evaluate(model, task, splits.test, config.batch_size, world)
    except KeyboardInterrupt:
        if best:
            step.clear()
            model.load_state_dict(best)
        raise
    except FloatingPointError as error:  # also raised by a solver whose steps underflow in float32
        if isinstance(error, DivergedError):
            raise
        raise DivergedError(f"{error} In epoch {len(history)}.", history) from error
    finally:
        measure.clear()
        model.to(came_from)
    seconds = time.perf_counter() - began
    chosen = best_epoch(history, task, config.earliest)
    return world.agreed(Result(metrics, validation, chosen, len(history), seconds, history))


def rounding(config: TrainConfig) -> AbstractContextManager[None]:
    """In this context, products are rounded according to `config.precision`; on a CPU the setting is left alone."""
    on_gpu = config.device != "cpu" and torch.cuda.is_available()
    return tf32() if on_gpu and config.precision == "tf32" else nullcontext()


def finished(history: History, task: Task, config: TrainConfig) -> bool:
    """Whether a run with this history is over: all epochs are done, or the patience is exhausted."""
    if len(history) >= config.epochs:
        return True
    return (
        config.patience is not None
        and bool(history)
        and len(history) - 1 - best_epoch(history, task, config.earliest) >= config.patience
    )


def _validation(history: History, task: Task, config: TrainConfig) -> dict[str, float] | None:
    """The metrics of the kept weights, from their epoch; None if those were computed in bfloat16."""
    row = history[best_epoch(history, task, config.earliest)]
    return None if config.precision == "bf16" else {name: row[name] for name in task.metrics}


def best_epoch(history: History, task: Task, earliest: int = 0) -> int:
    """The first epoch with the best validation metric; any number beats NaN.

    No epoch before `earliest` is selected; as long as there are only such epochs, it is the latest.
    """
    best = max(0, min(earliest, len(history) - 1))
    for epoch, row in enumerate(history[best:], best):
        value, record = row[task.monitor], history[best][task.monitor]
        if task.better(value, record) or (math.isnan(record) and not math.isnan(value)):
            best = epoch
    return best


def _shares(part: Part | DealingPart, config: TrainConfig, passes: range, world: World) -> Iterator[Share[Source]]:
    """This process's share of the batches of some passes over the training set.

    Each pass has its own order and, if observations are dropped, drops different ones.
    """
    for number in passes:
        yield from training_shares(part, config.batch_size, number, config.drop_fraction, world.turn)


def _identity(model: nn.Module, task: Task, splits: Splits[Any], config: TrainConfig, seed: int) -> str:
    """What identifies a run: data, task, seed, settings and the shape of the model, but not where it runs."""
    settings = {k: v for k, v in asdict(config).items() if k not in ("time_limit", "log", "device", "devices")}
    shapes = [(name, tuple(p.shape)) for name, p in model.named_parameters()]
    sizes = tuple(len(part) for part in (splits.train, splits.validation, splits.test))
    return repr((splits.name, splits.fingerprint, sizes, task.name, seed, settings, shapes))


def _seed(draws: Draws, model: nn.Module, place: tuple[int, int, int], world: World) -> None:
    """Seed the random numbers of a step, as a function of seed, epoch, step and rank."""
    drawn = hash(place if world.size == 1 else (*place, world.rank)) % 2**63
    draws.seed(drawn)
    if not _own_draws(model):
        # Not `torch.manual_seed`: seeding all devices takes as long as a small step.
        torch.default_generator.manual_seed(drawn)
        if world.device.type != "cpu":
            torch.get_device_module(world.device).manual_seed(drawn)


def _own_draws(model: nn.Module) -> bool:
    """Whether a model never uses the global random generators; if it may, these are seeded too."""
    return bool(getattr(model, "own_draws", False))


def _kept_random_state(model: nn.Module, device: torch.device) -> AbstractContextManager[None]:
    """In this context, the global random state is preserved, unless the model cannot change it anyway."""
    if _own_draws(model):
        return nullcontext()
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])


def _check_time(began: float, limit: float, history: History, world: World) -> None:
    if world.anywhere(time.perf_counter() - began > limit):
        raise TimeLimitError(f"stopped after {limit:g} s, in epoch {len(history)}.", history)


def _explosion(
    model: nn.Module, config: TrainConfig, history: History, loss: float, step: int, batch: Source
) -> DivergedError:
    where = "" if batch.index is None else f" (series {batch.index[:8].tolist()}, ...)"
    largest = largest_activation(model, as_precise(batch.to(device_of(model)), model))
    return DivergedError(
        f"the loss became {loss} at epoch {len(history)}, step {step}{where}; {largest}. "
        f"Lower the learning rate ({config.lr:g}), or clip gradients with TrainConfig(clip=...).",
        history,
    )


@contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """In this context, SIGTERM ends the process cleanly, like Ctrl-C, with exit code 143."""

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not ours:  # other threads may not set a handler, and a handler of the caller is kept
        yield
        return
    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
