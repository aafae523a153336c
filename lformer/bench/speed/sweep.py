"""First study: time and memory of forward and training step against length."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from torch import nn

from lformer.batch import IrregularBatch
from lformer.bench import peers
from lformer.bench.speed.cells import REPLAY, WORKS, Cell, Work, growth_exponent
from lformer.bench.speed.timing import ONE_SECOND, Budget, Measured, attempt, call, why

TIME_OVER = "not reached"  # the run was out of time before this cell's turn


@dataclass(frozen=True, kw_only=True)
class SpeedConfig:
    """What to measure. The defaults are those of a CPU."""

    lengths: tuple[int, ...] = (512, 1024, 2048, 4096, 8192, 16384)
    batches: tuple[int, ...] = (1, 8, 32)
    models: tuple[str, ...] = ("lformer", "lformer-causal", "gru", "transformer")
    works: tuple[Work, ...] = WORKS
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
                    seconds, peak, note = (None, None, found) if isinstance(found, str) else (*found, "")
                    peak = None if work == REPLAY else peak
                    history.append(Cell(name, work, batch, length, seconds, peak, note))
                    yield history[-1]


def _measured(model: nn.Module | str, data: IrregularBatch, work: Work, config: SpeedConfig) -> Measured | str:
    return model if isinstance(model, str) else attempt(call(model, data, work), config.device, config.budget)


def built(name: str, device: str) -> nn.Module | str:
    """A model on its device, or why there is none: a package may be there and not work."""
    try:
        return peers.build(name).to(device)
    except Exception as error:
        return why(error)


def hopeless(history: Sequence[Cell], length: int, config: SpeedConfig) -> str:
    """Why a cell is not worth starting, judged from the shorter ones: time is expected to grow as it did before.

    Linearly at least: what is flat on a GPU is so while the series is too short to fill it.
    """
    if history and history[-1].note in ("OOM", "OOT"):
        return history[-1].note
    measured = [c for c in history if c.seconds is not None]
    if not measured:
        return ""
    last = measured[-1]
    power = max(1.0, growth_exponent(measured[-2:])) if len(measured) > 1 else 2.0
    growth = length / last.length
    if (last.seconds or 0.0) * growth**power > config.limit:
        return "OOT"
    return "OOM" if (last.peak_bytes or 0) * growth > config.memory * 2**30 else ""
