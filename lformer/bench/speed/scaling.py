"""Fifth study: how far training steps go in length, of models that solve equations and of models that do not."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from lformer.bench import peers
from lformer.bench.speed import machine, tables
from lformer.bench.speed.cells import STEP, Cell, growth_exponent
from lformer.bench.speed.files import write
from lformer.bench.speed.sweep import SpeedConfig, cheapest_first
from lformer.bench.speed.timing import Budget
from lformer.ops.precision import tf32

SOLVERS = ("r-ode", "o-ode", "ncde", "contiformer")
MODELS = ("lformer", "mamba", "transformer", *SOLVERS)
SHORT = Budget(10, 0.3)
PROBES = (16, 32)  # rows by which the shortest series is judged: some models are slow from the start
TAIL = 8  # exponents are read off the last factor of this in length: short series on a GPU are all launches


@dataclass(frozen=True, kw_only=True)
class ScalingConfig:
    """What to measure; `on` has what suits a device."""

    device: Literal["cpu", "cuda"] = "cpu"
    models: tuple[str, ...] = ()  # those of `MODELS` that can run here if none are named
    lengths: tuple[int, ...] = tuple(2**n for n in range(6, 15))
    batch: int = 8
    limit: float = 10.0  # seconds that one step may be expected to take; beyond it is out of time
    memory: float = 12.0  # GiB likewise, out of memory
    deadline: float = 240.0  # seconds after which no further cell is begun
    budget: Budget = SHORT
    folder: Path = Path("runs/speed")

    @classmethod
    def on(cls, device: Literal["cpu", "cuda"], quick: bool = False, **given: Any) -> ScalingConfig:
        """On a GPU longer series in less time, and memory is not guessed, it runs out or it does not."""
        usual: dict[str, Any] = {"device": device}
        if device == "cuda":
            usual |= {"lengths": tuple(2**n for n in range(6, 18)), "limit": 4.0, "memory": math.inf, "deadline": 70.0}
        if quick:
            usual |= {"lengths": (64, 256, 1024), "limit": 1.0, "deadline": 20.0, "budget": Budget(3, 0.05)}
        return cls(**(usual | given))

    def __post_init__(self) -> None:
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("there is no CUDA device here; without --device the CPU is measured.")
        if not self.models:
            object.__setattr__(self, "models", peers.installed(MODELS, self.device))

    def sweep(self) -> SpeedConfig:
        """Training steps alone."""
        return SpeedConfig(
            lengths=tuple(sorted(set(self.lengths))), batches=(self.batch,), models=self.models, works=(STEP,),
            probes=tuple(n for n in PROBES if n < min(self.lengths)), device=self.device, limit=self.limit,
            memory=self.memory, deadline=self.deadline, budget=self.budget,
        )  # fmt: skip


def path(config: ScalingConfig) -> Path:
    """Of the record."""
    return config.folder / f"scaling-{config.device}.json"


def run(config: ScalingConfig, progress: Callable[[Cell], None] = lambda cell: None) -> dict[str, Any]:
    """Measure; the record is written after every cell."""
    asked = config.sweep()
    record: dict[str, Any] = {
        "machine": machine.prepared(config.device),
        "setting": {
            "width": peers.WIDTH, "depth": peers.DEPTH, "features": peers.FEATURES, "batch": config.batch,
            "sizes": peers.SIZES, "limit": config.limit, "deadline": config.deadline,
            "memory": None if math.isinf(config.memory) else config.memory,
        },
        "models": list(asked.models),
        "cells": [],
        "probes": [],
    }  # fmt: skip
    with tf32() if config.device == "cuda" else nullcontext():
        for cell in cheapest_first(asked):
            record["cells" if cell.length in asked.lengths else "probes"].append(asdict(cell))
            write(record, path(config))
            progress(cell)
    return record


def lines(record: dict[str, Any]) -> dict[str, list[Cell]]:
    """The cells of each model, from short to long."""
    found = [Cell(**cell) for cell in record["cells"]]
    own = {name: [c for c in found if c.model == name] for name in record["models"]}
    return {name: sorted(cells, key=lambda c: c.length) for name, cells in own.items() if cells}


def measured(cells: Sequence[Cell]) -> list[Cell]:
    """Those that have a time."""
    return [c for c in cells if c.seconds is not None]


def beyond(cells: Sequence[Cell]) -> str:
    """Why the line of a model ends before the longest length: OOT, OOM, not reached, failed; nothing if it does not."""
    done = measured(cells)
    longer = [c for c in cells if not done or c.length > done[-1].length]
    return tables.short(longer[0].note) if longer else ""


def tail(cells: Sequence[Cell]) -> list[Cell]:
    """The measured cells of the last factor `TAIL` in length."""
    done = measured(cells)
    return [c for c in done if TAIL * c.length >= done[-1].length]


def shared_length(found: dict[str, list[Cell]]) -> int:
    """The longest length at which every model that was measured at all was measured; 0 if there is none."""
    reached = [{c.length for c in measured(cells)} for cells in found.values()]
    return max(set.intersection(*(r for r in reached if r)), default=0) if any(reached) else 0


def table(record: dict[str, Any]) -> tables.Rows:
    """One row per model: time where all can be compared, the longest series and its step, exponents, what ended it."""
    found = lines(record)
    common = shared_length(found)
    times = {name: c.seconds for name, cells in found.items() for c in cells if c.length == common and c.seconds}
    rows = [[
        "model", f"step, {common:,} rows", "longest series", "step there", "time", "peak memory there", "memory",
        "beyond",
    ]]  # fmt: skip
    for name, cells in found.items():
        done = measured(cells)
        row = [name, *_compared(times.get(name), None if name == "lformer" else times.get("lformer"))]
        if done:
            last = done[-1]
            row += [f"{last.length:,} rows", f"{tables.ms(last.seconds or 0.0)} ms", _power(tail(cells), "seconds")]
            row += [f"{(last.peak_bytes or 0) / 2**20:,.0f} MiB", _power(tail(cells), "peak_bytes")]
        rows.append([*row, *[""] * (len(rows[0]) - 1 - len(row)), beyond(cells)])
    return rows


def words(record: dict[str, Any]) -> str:
    """What was measured, and what the record says of solvers: how far each model gets, and how slow it is."""
    setting = record["setting"]
    memory = "the memory of the device" if setting["memory"] is None else f"{setting['memory']:g} GiB"
    first = (
        f"{tables.machine_words(record['machine'])}: batch {setting['batch']}, {setting['features']} features; "
        f"{tables.size_words(setting)}. OOT: a step was expected to take more than {setting['limit']:g} s; OOM: more "
        f"than {memory}. Exponents are of the last factor of {TAIL} in length."
    )
    return f"{first}\n\n{statement(record)}"


def statement(record: dict[str, Any]) -> str:
    """The record in sentences."""
    found = lines(record)
    ends: dict[tuple[int, str], list[str]] = {}
    for name, cells in found.items():
        done = measured(cells)
        ends.setdefault((done[-1].length if done else 0, beyond(cells)), []).append(name)
    parts = [_end(names, length, why) for (length, why), names in sorted(ends.items(), key=lambda e: -e[0][0])]
    said = [f"Longest training step: {'; '.join(parts)}."]
    growths = [(name, growth_exponent(tail(cells))) for name, cells in found.items()]
    shown = [f"{name} {power:.2f}" for name, power in growths if not math.isnan(power)]
    if shown:
        said.append(f"Time grows with the power of length: {', '.join(shown)}.")
    common = shared_length(found)
    times = {name: c.seconds for name, cells in found.items() for c in cells if c.length == common and c.seconds}
    ratios = [f"{n} {_times(s / times['lformer'])}" for n, s in times.items() if n != "lformer" and "lformer" in times]
    if ratios:
        said.append(f"At {common:,} rows, in steps of lformer: {', '.join(ratios)}.")
    return " ".join(said)


def _end(names: Sequence[str], length: int, why: str) -> str:
    listed = ", ".join(names)
    if not length:
        return f"{listed} none ({why})"
    return f"{listed} {length:,} rows" + (f" (then {why})" if why else "")


def _compared(seconds: float | None, reference: float | None) -> list[str]:
    if seconds is None:
        return [""]
    return [f"{tables.ms(seconds)} ms" + (f" ({_times(seconds / reference)})" if reference else "")]


def _times(ratio: float) -> str:
    return f"{ratio:.1f}×" if ratio < 100 else f"{ratio:,.0f}×"


def _power(cells: Sequence[Cell], value: Literal["seconds", "peak_bytes"]) -> str:
    power = growth_exponent(cells, value)
    return "" if math.isnan(power) else f"∝ L^{power:.2f}"
