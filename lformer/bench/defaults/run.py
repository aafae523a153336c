"""From names to records: cells in an order that loads each set once, run here or by several processes."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from lformer.bench.defaults import methods, records, sets
from lformer.bench.defaults.measures import measure
from lformer.bench.defaults.methods import METHODS, Entry
from lformer.bench.defaults.problem import Problem, fingerprint, validation_folds
from lformer.bench.defaults.records import Cell, PartName, Record
from lformer.bench.defaults.sets import DEFAULTS_SETS
from lformer.bench.run import versions
from lformer.data import MissingDataError
from lformer.devices import choose


@dataclass(frozen=True)
class Outcome:
    """Where a cell stands, and why.

    "running", "done", "skipped" (its record is there), "left out" (the method cannot answer, or not in good time),
    "not here" (data or a package are missing) or "failed".
    """

    cell: Cell
    status: str
    note: str = ""


def cells(
    names: Sequence[str] = (), method_names: Sequence[str] = (), seeds: Sequence[int] = (0,), *, folds: bool = False
) -> list[Cell]:
    """Every method on every set that it can answer, all if none are named; where no seed matters, only seed 0."""
    part: PartName = "folds" if folds else "test"
    made: list[Cell] = []
    for name in names or DEFAULTS_SETS:
        entry = sets.named(name)
        for seed in dict.fromkeys([*seeds, 0]):
            for method in method_names or METHODS:
                answers = methods.named(method)
                able, random = entry.kind in answers.kinds, answers.random or entry.redrawn
                if able and (seed in seeds if random else seed == 0):
                    made.append(Cell(set=name, method=method, part=part, seed=seed))
    if not made:
        raise ValueError(f"none of {', '.join(method_names)} can answer {', '.join(names)}.")
    return list(dict.fromkeys(made))


def run(cells: Sequence[Cell], root: Path, *, device: str = "auto", workers: int = 1) -> Generator[Outcome]:
    """Run what has no record yet, and yield how each cell ends.

    Whoever stops listening ends the worker processes; so does the end of this one, however it comes.
    """
    left = []
    for cell in cells:
        if records.finished(cell, root):
            yield Outcome(cell, "skipped", "its record is there")
        else:
            left.append(cell)
    if workers == 1:
        for cell in left:
            yield Outcome(cell, "running")
            yield run_cell(cell, root, device)
    elif left:
        yield from _side_by_side(left, root, device, workers)


def run_cell(cell: Cell, root: Path, device: str = "auto") -> Outcome:
    """Fit, answer, measure and write the record. What cannot be run here, or is too slow, is left out."""
    entry = methods.named(cell.method)
    try:
        problem = _problem(cell.set, cell.seed if sets.named(cell.set).redrawn else 0)
        if reason := entry.why_not(problem):
            return Outcome(cell, "left out", reason)
        record = assess(problem, cell, device)
    except (MissingDataError, ImportError) as error:
        return Outcome(cell, "not here", str(error))
    except Exception as error:  # whatever it was, the others go on and it is listed
        return Outcome(cell, "failed", f"{type(error).__name__}: {error}")
    records.write(cell, record, root)
    note = ", ".join(f"{name} {value:.4g} ± {record['errors'][name]:.2g}" for name, value in record["scores"].items())
    return Outcome(cell, "done", f"{note}, {record['fit_seconds'] + record['predict_seconds']:.1f} s")


@lru_cache(maxsize=1)
def _problem(name: str, seed: int) -> Problem:
    return DEFAULTS_SETS[name].make(seed)


def assess(problem: Problem, cell: Cell, device: str = "auto") -> Record:
    """The record of a method on a problem, or on the folds of its training part."""
    parts = [problem] if cell.part == "test" else validation_folds(problem)
    found = [_assess_part(part, cell, device) for part in parts]
    names = list(found[0]["scores"])
    return {
        "kind": problem.kind,
        "measure": problem.measures[0],
        "scores": {name: sum(one["scores"][name] for one in found) / len(found) for name in names},
        "errors": {name: math.hypot(*(one["errors"][name] for one in found)) / len(found) for name in names},
        "fit_seconds": round(sum(one["fit_seconds"] for one in found), 3),
        "predict_seconds": round(sum(one["predict_seconds"] for one in found), 3),
        "wall_seconds": round(sum(one["wall_seconds"] for one in found), 3),
        "n": {name: sum(one["n"][name] for one in found) for name in ("train", "test")},
        "parts": found,
        "data": fingerprint(problem),
        "versions": versions() | _rivals(),
    }


def _assess_part(problem: Problem, cell: Cell, device: str) -> Record:
    entry, blind = methods.named(cell.method), problem.blind
    if entry.compiled:
        few, first = _few(blind), entry.make(problem.kind, cell.seed, device)
        first.fit(few)
        first.answer(few)
    method, clock = entry.make(problem.kind, cell.seed, device), _clock(entry, device)
    wall, began = time.perf_counter(), clock()
    method.fit(blind)
    fitted = clock()
    answers = method.answer(blind)
    ended = clock()
    measured = measure(problem, answers)
    if problem.measures[0] not in measured:
        raise ValueError(f"{cell.method} does not say what {problem.measures[0]} needs.")
    return {
        "scores": {name: score for name, (score, _) in measured.items()},
        "errors": {name: error for name, (_, error) in measured.items()},
        "fit_seconds": round(fitted - began, 3),
        "predict_seconds": round(ended - fitted, 3),
        "wall_seconds": round(time.perf_counter() - wall, 3),
        "n": {"train": len(problem.train), "test": len(problem.test)},
        "notes": getattr(method, "notes", {}),
    }


def _clock(entry: Entry, device: str) -> Callable[[], float]:
    """Seconds of the CPU, which others on the machine cannot lengthen; by the clock where a GPU does the work."""
    return time.perf_counter if entry.on_device and choose(device).type != "cpu" else time.process_time


def _rivals() -> dict[str, str]:
    """Versions of the packages that rivals come from, as far as they are installed."""
    found = {}
    for name in ("scikit-learn", "aeon"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _few(problem: Problem) -> Problem:
    """A problem with two series of each class, or with four series and their numbers."""
    labels = np.asarray(problem.labels)
    if problem.kind == "series":
        chosen = np.concatenate([np.flatnonzero(labels == name)[:2] for name in np.unique(labels)])
    else:
        chosen = np.arange(4)
    return replace(problem, train=problem.train[chosen], labels=labels[chosen], test=problem.test[:2])


# -- several processes


def _side_by_side(cells: Sequence[Cell], root: Path, device: str, workers: int) -> Iterator[Outcome]:
    threads = max(1, (os.cpu_count() or 1) // workers)
    context = get_context("spawn")
    reader, writer = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(reader, threads))
    with closing(writer):  # first: workers that are still at it end when it is closed
        try:
            futures = {pool.submit(run_cell, cell, root, device): cell for cell in cells}
            for future in as_completed(futures):
                error = future.exception()
                yield future.result() if error is None else Outcome(futures[future], "failed", str(error))
            pool.shutdown()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _begin(alive: Connection, threads: int) -> None:
    """In a worker: take a share of the cores; end as soon as the other end of a pipe is closed, or its holder dead."""
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(threads)
    threadpool_limits(threads)

    def watch() -> None:
        with suppress(EOFError, OSError):
            alive.recv()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
