"""One measurement of the study against length, and what is read off several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Work = Literal["forward", "training step", "replayed step"]
STEP: Work = "training step"
WORKS: tuple[Work, ...] = ("forward", STEP)
REPLAY: Work = "replayed step"  # a training step as a CUDA graph, which only a GPU has


@dataclass(frozen=True)
class Cell:
    """One measurement. `seconds` is None where the cell was not run, and `note` says why.

    `peak_bytes` is None too for a replayed step: its memory was taken when it was recorded, and is that of the step.
    """

    model: str
    work: Work
    batch: int
    length: int
    seconds: float | None
    peak_bytes: int | None
    note: str = ""


def growth_exponent(cells: Sequence[Cell], value: Literal["seconds", "peak_bytes"] = "seconds") -> float:
    """Slope of log time, or of log memory, over log length; 1 is linear."""
    points = [(math.log(c.length), math.log(getattr(c, value))) for c in cells if getattr(c, value)]
    if len(points) < 2:
        return math.nan
    x, y = np.array(points).T
    return float(np.polyfit(x, y, 1)[0])


def pick(cells: Sequence[Cell], **wanted: Any) -> list[Cell]:
    """The cells with these attributes."""
    return [c for c in cells if all(getattr(c, name) == value for name, value in wanted.items())]


def summary(cells: Sequence[Cell]) -> dict[str, float]:
    """The figures our goals are about: batch 8 where it was measured, ratios over lengths from 1,024 up."""
    batches, longest = {c.batch for c in cells}, max(c.length for c in cells)
    batch, shortest = 8 if 8 in batches else max(batches), min(1024, longest)
    found: dict[str, float] = {"batch": batch}
    for work in (work for work in (*WORKS, REPLAY) if any(c.work == work for c in cells)):
        own = {
            name: {c.length: c for c in pick(cells, work=work, batch=batch, model=name)}
            for name in dict.fromkeys(c.model for c in cells)
        }

        def ratios(upper: str, lower: str, value: str, own: dict[str, dict[int, Cell]] = own) -> list[float]:
            pairs = [(own[upper].get(n), c) for n, c in own[lower].items() if n >= shortest]
            measured = [(getattr(u, value), getattr(c, value)) for u, c in pairs if u and u.seconds and c.seconds]
            return [u / c for u, c in measured]

        ours = [name for name in ("lformer", "lformer-causal") if name in own]
        for name in ours:
            found[f"{work}: growth exponent of {name}"] = growth_exponent(list(own[name].values()))
        if len(ours) == 2:
            for value, label in (("seconds", "time"), ("peak_bytes", "memory"))[: 1 if work == REPLAY else 2]:
                worst = ratios("lformer-causal", "lformer", value)
                found[f"{work}: causal over non-causal, {label}, worst"] = max(worst, default=math.nan)
        for peer in sorted(own.keys() - set(ours)):
            for name in ours:
                found[f"{work}: {peer} over {name}, time, least"] = min(ratios(peer, name, "seconds"), default=math.nan)
    return found
