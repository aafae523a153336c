"""Fourth study: a training step of every trained model of the registry, at one length, beside LFormer's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from lformer.bench import peers
from lformer.bench.speed import machine, tables
from lformer.bench.speed.cells import REPLAY, STEP, Cell
from lformer.bench.speed.files import write
from lformer.bench.speed.sweep import SpeedConfig, built, cheapest_first
from lformer.bench.speed.throughput import parameters
from lformer.bench.speed.timing import Budget
from lformer.ops.precision import tf32

QUICK: dict[str, Any] = {"length": 512, "budget": Budget(3, 0.1), "deadline": 60.0}
HALF_A_SECOND = Budget(20, 0.5)
SHORTEST = 16  # rows that say something of longer series


class Limits(NamedTuple):
    """Seconds: of a call that is begun at all, and after which no further one is."""

    call: float
    run: float


LIMITS = {"cpu": Limits(15.0, 600.0), "cuda": Limits(4.0, 110.0)}


@dataclass(frozen=True, kw_only=True)
class EveryConfig:
    """What to measure."""

    device: Literal["cpu", "cuda"] = "cpu"
    length: int = 4096
    batch: int = 8
    limit: float | None = None  # seconds that one step may be expected to take, else out of time; `LIMITS` if None
    deadline: float | None = None  # seconds after which no further cell is begun; likewise
    budget: Budget = HALF_A_SECOND
    folder: Path = Path("runs/speed")

    def __post_init__(self) -> None:
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("there is no CUDA device here; without --device the CPU is measured.")

    def limits(self) -> Limits:
        """Those that hold."""
        call, run = LIMITS[self.device]
        return Limits(call if self.limit is None else self.limit, run if self.deadline is None else self.deadline)

    def probes(self) -> tuple[int, ...]:
        """Short lengths to judge the one asked for by; several, since growth from one alone counts as quadratic."""
        short = {max(SHORTEST, self.length // part) for part in (256, 64, 16)}
        return tuple(n for n in sorted(short) if n < self.length)

    def sweep(self) -> SpeedConfig:
        """Steps as they are and, on a GPU, as CUDA graphs; a few short lengths tell which of them can be afforded."""
        return SpeedConfig(
            lengths=(self.length,), batches=(self.batch,), models=("lformer", *peers.trained()), device=self.device,
            works=(STEP, REPLAY) if self.device == "cuda" else (STEP,), budget=self.budget, limit=self.limits().call,
            deadline=self.limits().run,
            probes=self.probes(),
        )  # fmt: skip


def path(config: EveryConfig) -> Path:
    """Of the record."""
    return config.folder / f"models-{config.device}.json"


def run(config: EveryConfig, progress: Callable[[Cell], None] = lambda cell: None) -> dict[str, Any]:
    """Measure; the record is written after every cell."""
    asked = config.sweep()
    record: dict[str, Any] = {
        "machine": machine.prepared(config.device),
        "setting": {
            "width": peers.WIDTH, "depth": peers.DEPTH, "features": peers.FEATURES, "batch": config.batch,
            "length": config.length, "sizes": peers.SIZES, "limit": asked.limit, "deadline": asked.deadline,
        },
        "parameters": {name: parameters(built(name, "cpu")) for name in asked.models},
        "cells": [],
        "probes": [],
    }  # fmt: skip
    with tf32() if config.device == "cuda" else nullcontext():
        for cell in cheapest_first(asked):
            record["cells" if cell.length == config.length else "probes"].append(asdict(cell))
            write(record, path(config))
            progress(cell)
    return record


def table(record: dict[str, Any]) -> tables.Rows:
    """One row per model, fastest step first: parameters, time, ratio to LFormer, peak memory; replayed steps."""
    cells = [Cell(**cell) for cell in record["cells"]]
    steps, replayed = ({c.model: c for c in cells if c.work == work} for work in (STEP, REPLAY))
    rows = [["model", "parameters", STEP, "ratio", "peak memory", *((REPLAY, "ratio") if replayed else ())]]
    for name in sorted(steps, key=lambda name: (steps[name].seconds is None, steps[name].seconds or 0.0)):
        size, peak = record["parameters"][name], steps[name].peak_bytes
        rows.append([
            name, "" if size is None else f"{size:,}", *_entry(steps[name], steps.get("lformer")),
            "" if peak is None else f"{peak / 2**20:,.0f} MiB",
            *(_entry(replayed.get(name), replayed.get("lformer")) if replayed else ()),
        ])  # fmt: skip
    return rows


def words(record: dict[str, Any]) -> str:
    """What the table is of, and which limits it was made within."""
    setting = record["setting"]
    notes = {tables.short(cell["note"]) for cell in record["cells"]}
    parts = [
        f"{tables.machine_words(record['machine'])}: batch {setting['batch']}, {setting['length']:,} rows of "
        f"{setting['features']} features; {tables.size_words(setting)}.",
        f"OOT: a step was expected to take more than {setting['limit']:g} s." if "OOT" in notes else "",
        f"Not reached: not begun within {setting['deadline']:g} s." if "not reached" in notes else "",
    ]
    return " ".join(part for part in parts if part)


def _entry(cell: Cell | None, ours: Cell | None) -> list[str]:
    """Time and ratio, or why there is none."""
    if cell is None:
        return ["", ""]
    if cell.seconds is None:
        return [tables.short(cell.note), ""]
    base = None if ours is None else ours.seconds
    return [f"{tables.ms(cell.seconds)} ms", f"{cell.seconds / base:.1f}×" if base else ""]
