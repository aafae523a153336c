"""The one trainer: `fit(model, task, splits, config)`, a plain loop from the first batch to the test.

A model is anything that maps an `IrregularBatch` to answers. All randomness of a run is a function of the seed, the
epoch and the step: a run on one CPU repeats to the last digit, and one that was interrupted ends where it would have.
Under `torchrun`, or with `devices=2`, every process trains on its share of each batch, and the step is that of one
process with all of it.
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
    """What a run gave. The model holds the weights of its best validation epoch."""

    metrics: dict[str, float]  # of the test part
    validation: dict[str, float]  # of the validation part, same weights
    best_epoch: int
    epochs: int
    seconds: float  # of all processes, if the run was interrupted and resumed
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
        model: maps a batch to answers; trained in place, on `config.device`, and brought back to where it was. After
            Ctrl-C it holds the weights of its best epoch so far.
        task: loss, metrics, and the one that selects.
        splits: the data.
        config: how.
        seed: of whatever the model itself draws, such as dropout.
        folder: where the checkpoint goes. If it holds that of an interrupted run of the same thing, that run is
            continued. Nothing is written if None.
        progress: show a bar with the loss, or one of your own.
        report: called after every epoch with its number, the training loss and the validation metrics.

    Returns:
        Metrics of the test and validation part, the history and the time taken; the same in every process.
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
                loss = losses.mean()  # all are looked at: nothing is kept of an epoch in which a run diverged

                # The figures of the first process count, so that no last digit can part them over when to stop.
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
                    write_log(history)  # first: a run that is killed between the two repeats the epoch
                    checkpoint.save(home, state)
                if report is not None and leads:
                    report(history[-1])

            step.clear()
            model.load_state_dict(best)
            measure.clear()
            validation = _validation(history, task, config)
            if validation is None:
                validation = evaluate(model, task, validating, config.batch_size, world)
            same = splits.test is splits.validation  # as those of estimators, which have no test part
            metrics = dict(validation) if same else evaluate(model, task, splits.test, config.batch_size, world)
    except KeyboardInterrupt:
        if best:
            step.clear()
            model.load_state_dict(best)
        raise
    except FloatingPointError as error:  # also of a solver whose steps have become too small for float32
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
    """Inside, products are rounded as `config.precision` says; a run on a CPU leaves the setting alone."""
    on_gpu = config.device != "cpu" and torch.cuda.is_available()
    return tf32() if on_gpu and config.precision == "tf32" else nullcontext()


def finished(history: History, task: Task, config: TrainConfig) -> bool:
    """Whether a run with this history is over: all epochs done, or none better than the best for too long."""
    if len(history) >= config.epochs:
        return True
    return (
        config.patience is not None
        and bool(history)
        and len(history) - 1 - best_epoch(history, task, config.earliest) >= config.patience
    )


def _validation(history: History, task: Task, config: TrainConfig) -> dict[str, float] | None:
    """The figures of the weights that are kept, as their epoch gave them; None if those were rounded to bfloat16."""
    row = history[best_epoch(history, task, config.earliest)]
    return None if config.precision == "bf16" else {name: row[name] for name in task.metrics}


def best_epoch(history: History, task: Task, earliest: int = 0) -> int:
    """The first epoch that no other beats; anything beats one whose metric is not a number.

    None before the `earliest` is chosen; as long as there are no others, the latest is.
    """
    best = max(0, min(earliest, len(history) - 1))
    for epoch, row in enumerate(history[best:], best):
        value, record = row[task.monitor], history[best][task.monitor]
        if task.better(value, record) or (math.isnan(record) and not math.isnan(value)):
            best = epoch
    return best


def _shares(part: Part | DealingPart, config: TrainConfig, passes: range, world: World) -> Iterator[Share[Source]]:
    """What this process has of the batches of some passes over the part, each with an order and, if any are dropped,
    observations of its own."""
    for number in passes:
        yield from training_shares(part, config.batch_size, number, config.drop_fraction, world.turn)


def _identity(model: nn.Module, task: Task, splits: Splits[Any], config: TrainConfig, seed: int) -> str:
    """What makes two runs the same: data, task, seed, settings and the shape of the model; not where they run."""
    settings = {k: v for k, v in asdict(config).items() if k not in ("time_limit", "log", "device", "devices")}
    shapes = [(name, tuple(p.shape)) for name, p in model.named_parameters()]
    sizes = tuple(len(part) for part in (splits.train, splits.validation, splits.test))
    return repr((splits.name, splits.fingerprint, sizes, task.name, seed, settings, shapes))


def _seed(draws: Draws, model: nn.Module, place: tuple[int, int, int], world: World) -> None:
    """What a step draws, as a function of its place: seed, epoch and step, and which of several processes this is."""
    drawn = hash(place if world.size == 1 else (*place, world.rank)) % 2**63
    draws.seed(drawn)
    if not _own_draws(model):
        # Not `torch.manual_seed`: for all devices there are it takes as long as a small step.
        torch.default_generator.manual_seed(drawn)
        if world.device.type != "cpu":
            torch.get_device_module(world.device).manual_seed(drawn)


def _own_draws(model: nn.Module) -> bool:
    """Whether a model never draws from the generators of the process; others are seeded for those that may."""
    return bool(getattr(model, "own_draws", False))


def _kept_random_state(model: nn.Module, device: torch.device) -> AbstractContextManager[None]:
    """Inside, drawing leaves the random state of the process alone; with a model that cannot touch it, so do we."""
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
    """Inside, SIGTERM ends the process as Ctrl-C does, so that files are closed, with exit code 143."""

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not ours:  # another thread may not, and a handler of the caller's stays
        yield
        return
    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
