"""One cell: recipe × seed → one record. Finished cells are skipped, interrupted ones go on where they were."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout
from torch import nn

import lformer
from lformer import data, tasks, train
from lformer.baselines import FittedAtOnce
from lformer.bench import records
from lformer.bench.models import build
from lformer.bench.recipes import recipe
from lformer.bench.records import Cell, Record, Trial
from lformer.devices import choose, device_of
from lformer.evaluate import evaluate
from lformer.nn import LFormer
from lformer.ops.checks import skip_value_checks
from lformer.train import Report, Result, checkpoint

LAST_STEP = 30.0  # seconds past the limit that a step which has begun may still take
Abandon = Callable[[Record], None]


class BusyError(RuntimeError):
    """Another process is at work on the cell."""


def run(
    cell: Cell,
    root: Path,
    *,
    time_limit: float | None = None,
    device: str = "auto",
    progress: bool = True,
    report: Report | None = None,
    log: str = "none",
    abandon: Abandon | None = None,
) -> Record:
    """Train, or fit at once, and test one cell, unless its record is there, and write the record.

    Args:
        cell: what.
        root: folder of the records; checkpoints lie beside a record until it is written.
        time_limit: seconds after which the cell counts as out of time, "OOT"; an interrupted cell goes on counting.
        device: "auto", "cpu" or "gpu", as in `TrainConfig`.
        progress: show a bar.
        report: called after every epoch.
        log: "none", "csv" or "tensorboard".
        abandon: the time is looked at between steps. Should a single one go on 30 seconds past
            the limit, this is called from another thread with the record, which is written by then, and has to end
            the process.

    Returns:
        The record. Its `status` is "done", or as in the paper "OOM" (out of memory), "OOT" (out of time) or "collapse"
        (the loss became infinite or not a number). The `metrics` of a `Trial` are those of the validation part.
    """
    with _held(cell, root):
        records.set_damaged_aside(cell, root)
        record = records.finished(cell, root)
        if record is None:
            changes = {"time_limit": time_limit, "device": device, "log": log}

            def give_up(record: Record) -> None:
                assert abandon is not None
                records.write(record, root)
                abandon(record)

            record = _run(cell, cell.folder(root), changes, progress, report, abandon and give_up)
            records.write(record, root)  # should this fail, the checkpoint is there, and the next run ends at once
        _clear(cell, root)
        return record


def clear(cell: Cell, root: Path) -> None:
    """Remove what a finished cell no longer needs, in case its process was killed before it could do so itself."""
    if cell.folder(root).exists() or _lock(cell, root).exists():
        with suppress(BusyError, OSError), _held(cell, root):
            _clear(cell, root)


@contextmanager
def _held(cell: Cell, root: Path) -> Iterator[None]:
    """Inside, no other process works on the cell."""
    lock = _lock(cell, root)
    lock.parent.mkdir(parents=True, exist_ok=True)
    held = FileLock(lock, timeout=0)
    try:
        held.acquire()
    except Timeout as error:
        raise BusyError(f"{cell}: another process is at work on it.") from error
    try:
        yield
    finally:
        held.release()


def _lock(cell: Cell, root: Path) -> Path:
    return cell.folder(root).with_suffix(".lock")


def _clear(cell: Cell, root: Path) -> None:
    """Remove checkpoints, half-written files and the lock, which this process holds, after the record was written."""
    path = cell.path(root)
    with suppress(OSError):
        checkpoint.discard(cell.folder(root))
        for part in path.parent.glob(f"{path.name}.*.part"):
            part.unlink(missing_ok=True)
        _lock(cell, root).unlink(missing_ok=True)


def _run(
    cell: Cell,
    folder: Path,
    changes: dict[str, Any],
    progress: bool,
    report: Report | None,
    abandon: Abandon | None,
) -> Record:
    began = time.perf_counter() - checkpoint.seconds_spent(folder)
    plan = recipe(cell.dataset, cell.task, model=cell.model, ablation=cell.ablation, variant=cell.variant)
    splits = data.load(
        cell.dataset, task=cell.task, seed=cell.seed, split=cell.split, scaling=cell.scaling, **plan.data
    )
    if isinstance(cell, Trial):
        plan = plan.changed(**cell.changes)
        splits = replace(splits, test=splits.validation)  # whoever chooses between trials must not see the test part
    task = tasks.for_splits(splits)
    training = replace(plan.train, **changes)
    if cell.epochs is not None:
        training = replace(training, epochs=min(cell.epochs, training.epochs))
    config = _with_seed(plan.config(splits.spec), cell.seed)
    with train.seeded(cell.seed):
        model = build(cell.model, config)
    at_once = isinstance(model, FittedAtOnce)
    record: Record = {
        "cell": records.cell_fields(cell),
        "status": "done",
        "metrics": {},
        "printed": dict(task.printed),
        "at_once": at_once,
        "smoke": cell.epochs is not None,
        "partial": splits.partial,
        "data": splits.fingerprint,
        "parameters": sum(p.numel() for p in model.parameters()),
        "config": {
            "model": asdict(config),
            "train": {} if at_once else asdict(training),
            "data": dict(plan.data),
        },
        "versions": versions(),
    }
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    try:
        if isinstance(model, FittedAtOnce):
            result = fit_at_once(model, task, splits)
        else:
            with _watched(record, folder, began, changes["time_limit"], abandon):
                result = _train(model, task, splits, training, cell.seed, folder, progress, report)
    except (torch.OutOfMemoryError, MemoryError) as error:
        record |= {"status": "OOM", "error": str(error)}
    except (train.TimeLimitError, train.DivergedError) as error:
        status = "OOT" if isinstance(error, train.TimeLimitError) else "collapse"
        record |= {"status": status, "error": str(error), "epochs": len(error.history), "history": error.history}
    else:
        if not at_once:
            model.to(choose(training.device))  # where it was trained; what is fitted at once works on the CPU
        with train.rounding(training):
            rate = throughput(model, task, splits.test, training.batch_size)
        record |= {
            "metrics": result.metrics, "validation": result.validation, "best_epoch": result.best_epoch,
            "epochs": result.epochs, "history": result.history, "series_per_second": rate,
        }  # fmt: skip
    return record | {"seconds": round(time.perf_counter() - began, 2), "peak_bytes": peak_bytes()}


def _with_seed(config: Any, seed: int) -> Any:
    """The configuration, with the seed of the cell if the model draws its random numbers from one of its own."""
    return replace(config, random_state=seed) if "random_state" in {field.name for field in fields(config)} else config


@contextmanager
def _watched(
    record: Record, folder: Path, began: float, limit: float | None, abandon: Abandon | None
) -> Iterator[None]:
    """Inside, a cell that is stuck in a step when it is out of time is abandoned."""
    if limit is None or abandon is None:
        yield
        return

    def out_of_time() -> None:
        done = checkpoint.newest(folder)
        history = [] if done is None else done["history"]
        error = f"stopped after {limit:g} s, in a step of epoch {len(history)} that did not end within {LAST_STEP:g} s."
        ended = {"status": "OOT", "error": error, "epochs": len(history), "history": history}
        abandon(record | ended | {"seconds": round(time.perf_counter() - began, 2), "peak_bytes": peak_bytes()})

    timer = threading.Timer(max(0.0, began + limit + LAST_STEP - time.perf_counter()), out_of_time)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _train(
    model: nn.Module,
    task: tasks.Task,
    splits: data.Splits[Any],
    training: train.TrainConfig,
    seed: int,
    folder: Path,
    progress: bool,
    report: Report | None,
) -> Result:
    """Train a network and, if its configuration has trees, blend in trees as `LFormerClassifier` does."""
    rounds = model.config.trees if isinstance(model, LFormer) else 0
    if isinstance(model, LFormer):
        model.set_trees(None)  # they are grown below; the network trains without them
    result = train.fit(model, task, splits, training, seed=seed, folder=folder, progress=progress, report=report)
    if not rounds:
        return result
    from lformer.estimators.tree_fitting import TreeFitter  # needs scikit-learn, which the speed benchmark does not

    assert isinstance(model, LFormer)
    trees = TreeFitter(model.cpu(), task, splits, seed, training.batch_size, choose(training.device), rounds)
    with train.rounding(training):
        validation = trees.mix()
        return replace(result, validation=validation, metrics=evaluate(model, task, splits.test, training.batch_size))


def fit_at_once(model: FittedAtOnce, task: tasks.Task, splits: data.Splits[Any]) -> Result:
    """Fit a model that needs no training, such as a naive forecast, and test it. It goes through no epoch."""
    began = time.perf_counter()
    model.fit(splits.train, task)
    validation, metrics = (evaluate(model, task, part) for part in (splits.validation, splits.test))
    return Result(metrics, validation, best_epoch=0, epochs=0, seconds=time.perf_counter() - began, history=[])


@torch.no_grad()
def throughput(model: nn.Module, task: tasks.Task, part: data.Part, batch_size: int, seconds: float = 0.5) -> float:
    """Series per second of inference over a part, its batches made beforehand; the best of as many rounds as fit in."""
    device = device_of(model)
    batches = [batch.to(device) for batch in part.batches(batch_size)]
    model.eval()
    best, began = 0.0, time.perf_counter()
    while not best or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        with skip_value_checks():
            for batch in batches:
                answer = task.predict(model, batch)
        float(answer.sum())  # waits for a GPU
        best = max(best, len(part) / (time.perf_counter() - start))
    return round(best, 2)


def peak_bytes() -> int:
    """Largest memory so far: of the GPU if there is one, else of this process."""
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def versions() -> dict[str, str]:
    """What the numbers were made with."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    return {
        "lformer": lformer.__version__,
        "commit": commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "machine": f"{device}, {platform.machine()}, {torch.get_num_threads()} threads",
    }


def commit() -> str:
    """The commit of the source tree this runs from, with a + if it was changed since; "" if nobody knows.

    On a machine that got a copy without history, or with an older one, `LFORMER_COMMIT` names it.
    """
    if named := os.environ.get("LFORMER_COMMIT"):
        return named
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(here), *arguments], capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        head = git("rev-parse", "--short=12", "HEAD")
        return head + ("+" if head and git("status", "--porcelain", "--untracked-files=no") else "")
    except OSError:
        return ""  # no git here
