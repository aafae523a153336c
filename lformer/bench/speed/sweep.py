"""First study: time and memory of forward and training step against length."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from torch import nn

from lformer.batch import IrregularBatch
from lformer.bench import peers
from lformer.bench.speed.cells import REPLAY, STEP, WORKS, Cell, Work
from lformer.bench.speed.timing import NOT_RECORDED, ONE_SECOND, Budget, Measured, attempt, call, why
from lformer.nn.rows import fit_clock

TIME_OVER = "not reached"  # the run was out of time before this cell's turn
PROBE = Budget(3, 0.1)  # of a length that is there to judge longer ones by
RECORDING = 5  # steps before a graph is replayed: an ordinary one, three to warm up, and the recording
PATIENCE = 1.0  # seconds; a call that is expected to take longer is warm after one


@dataclass(frozen=True, kw_only=True)
class SpeedConfig:
    """What to measure. The defaults are those of a CPU."""

    lengths: tuple[int, ...] = (512, 1024, 2048, 4096, 8192, 16384)
    batches: tuple[int, ...] = (1, 8, 32)
    models: tuple[str, ...] = ("lformer", "lformer-causal", "gru", "transformer")
    works: tuple[Work, ...] = WORKS
    probes: tuple[int, ...] = ()  # shorter lengths, in order, to judge those by; for `cheapest_first`
    limit: float = 20.0  # seconds that one call may be expected to take; beyond it the cell is marked out of time
    memory: float = 12.0  # GiB likewise, out of memory
    deadline: float = math.inf  # seconds after which no further cell is begun
    device: Literal["cpu", "cuda"] = "cpu"
    budget: Budget = ONE_SECOND
    allocator: Literal["keep", "system"] = "keep"
    folder: Path = Path("runs/speed")

    QUICK: ClassVar[dict[str, Any]] = {"lengths": (512, 1024, 2048), "batches": (8,), "budget": Budget(10, 0.2)}

    def __post_init__(self) -> None:
        unknown = set(self.models) - set(peers.available(self.device))
        if unknown:
            raise ValueError(
                f"cannot measure {', '.join(sorted(unknown))}; there are {', '.join(peers.available(self.device))}. "
                "mambapy comes with: pip install mambapy; mamba-ssm and simple-gla need a GPU and the packages "
                "mamba-ssm and flash-linear-attention."
            )
        if not self.lengths or not self.batches or min(self.lengths + self.batches) < 1:
            raise ValueError("lengths and batches must be whole numbers from 1 up.")


def sweep(config: SpeedConfig) -> Iterator[Cell]:
    """Every cell, shortest first. The models take turns at each length, so that a busy machine slows all of them."""
    stop = time.monotonic() + config.deadline
    models = {name: built(name, config.device) for name in config.models}
    for batch in config.batches:
        before: dict[tuple[str, Work], list[Cell]] = {}
        for length in config.lengths:
            data = peers.random_batch(batch, length, config.device)
            for work in config.works:
                for name, model in models.items():
                    history = before.setdefault((name, work), [])
                    note = TIME_OVER if time.monotonic() > stop else hopeless(history, length, config)
                    found = note or _measured(model, data, work, config)
                    history.append(_cell(name, work, batch, length, found))
                    yield history[-1]


History = dict[tuple[str, Work], list[Cell]]  # of each model and work, from short to long


def cheapest_first(config: SpeedConfig) -> Iterator[Cell]:
    """Every cell, each model and work from short to long, and next always the one that is expected to be done soonest.

    A slow model waits until the others have been measured, so that a deadline costs the longest calls alone. A step is
    replayed where the model says that it may be, as by the trainer.
    """
    stop = time.monotonic() + config.deadline
    models = {name: built(name, config.device) for name in config.models}
    for batch in config.batches:
        history: History = {(name, work): [] for work in config.works for name in models}
        data: dict[int, IrregularBatch] = {}
        while waiting := [key for key in history if _next_length(key, history, config)]:
            name, work = min(waiting, key=lambda key: _cost(key, history, config))
            model, length = models[name], _next_length((name, work), history, config)
            found: Measured | str = _given_up(model, (name, work), history, length, config)
            if not found and time.monotonic() > stop:
                found = TIME_OVER
            if not found:
                if length not in data:
                    data[length] = peers.random_batch(batch, length, config.device)
                budget = config.budget if length in config.lengths else PROBE
                if expected(history[name, work], length) > PATIENCE:
                    budget = budget._replace(warm_up=1)  # kernels are there from shorter series
                found = _measured(model, data[length], work, replace(config, budget=budget))
            history[name, work].append(_cell(name, work, batch, length, found))
            yield history[name, work][-1]


def _next_length(key: tuple[str, Work], history: History, config: SpeedConfig) -> int:
    """0 if all are done. What a recording costs is judged by the step itself, so it needs no probes."""
    lengths = config.lengths if key[1] == REPLAY else config.probes + config.lengths
    done = len(history[key])
    return lengths[done] if done < len(lengths) else 0


def _cost(key: tuple[str, Work], history: History, config: SpeedConfig) -> float:
    """Seconds of the next call, or of the next recording; 0 where nothing is known."""
    (name, work), length = key, _next_length(key, history, config)
    if work == REPLAY:
        return RECORDING * expected(_steps(name, history), length)
    return expected(history[key], length)


def _steps(name: str, history: History) -> list[Cell]:
    return history.get((name, STEP), [])


def _given_up(model: nn.Module | str, key: tuple[str, Work], history: History, length: int, config: SpeedConfig) -> str:
    """Why a cell is not begun."""
    name, work = key
    if work == REPLAY and not getattr(model, "recordable", False):
        return NOT_RECORDED
    return hopeless(_steps(name, history) if work == REPLAY else history[key], length, config)


def _cell(name: str, work: Work, batch: int, length: int, found: Measured | str) -> Cell:
    if isinstance(found, str):
        return Cell(name, work, batch, length, None, None, found)
    return Cell(name, work, batch, length, found.seconds, None if work == REPLAY else found.peak_bytes)


def _measured(model: nn.Module | str, data: IrregularBatch, work: Work, config: SpeedConfig) -> Measured | str:
    if isinstance(model, str):
        return model
    fit_clock(model, [data])  # as the trainer does: how far a solver has to go depends on it
    return attempt(call(model, data, work), config.device, config.budget)


def built(name: str, device: str) -> nn.Module | str:
    """A model on its device, or why there is none: a package may be there and not work."""
    try:
        return peers.build(name).to(device)
    except Exception as error:
        return why(error)


def hopeless(history: Sequence[Cell], length: int, config: SpeedConfig) -> str:
    """Why a cell is not worth starting, judged from the shorter ones."""
    if history and history[-1].note in ("OOM", "OOT", NOT_RECORDED):
        return history[-1].note
    if expected(history, length) > config.limit:
        return "OOT"
    return "OOM" if expected_bytes(history, length) > config.memory * 2**30 else ""


def expected(history: Sequence[Cell], length: int) -> float:
    """Seconds of a call, if time grows as it did before; 0 if nothing is known, quadratic growth from one length alone.

    Linearly at least: what is flat on a GPU is so while the series is too short to fill it.
    """
    return _grown([(c.length, c.seconds) for c in history if c.seconds], length, unknown=2.0)


def expected_bytes(history: Sequence[Cell], length: int) -> float:
    """Likewise peak memory; linear growth from one length alone."""
    return _grown([(c.length, c.peak_bytes) for c in history if c.peak_bytes], length, unknown=1.0)


def _grown(points: Sequence[tuple[int, float]], length: int, unknown: float) -> float:
    """(length, value), ... -> the value at another length."""
    if not points:
        return 0.0
    longest, value = points[-1]
    power = unknown
    shorter, before = points[-2] if len(points) > 1 else points[-1]
    if shorter != longest:
        power = max(1.0, math.log(value / before) / math.log(longest / shorter))
    return value * (length / longest) ** power
