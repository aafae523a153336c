"""Fourth study: a training step of every trained model of the registry, at one length, beside LFormer's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from lformer.allocator import keep_freed_pages
from lformer.bench import peers
from lformer.bench.speed import machine, tables
from lformer.bench.speed.cells import REPLAY, Cell, Work
from lformer.bench.speed.files import write
from lformer.bench.speed.sweep import SpeedConfig, built, sweep
from lformer.bench.speed.throughput import parameters
from lformer.bench.speed.timing import ONE_SECOND, Budget
from lformer.ops.precision import tf32

STEP: Work = "training step"
QUICK: dict[str, Any] = {"length": 512, "budget": Budget(3, 0.2)}


@dataclass(frozen=True, kw_only=True)
class EveryConfig:
    """What to measure."""

    device: Literal["cpu", "cuda"] = "cpu"
    length: int = 4096
    batch: int = 8
    budget: Budget = ONE_SECOND
    folder: Path = Path("runs/speed")

    def __post_init__(self) -> None:
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("there is no CUDA device here; without --device the CPU is measured.")

    def sweep(self) -> SpeedConfig:
        """Steps as they are and, on a GPU, as CUDA graphs."""
        return SpeedConfig(
            lengths=(self.length,), batches=(self.batch,), models=("lformer", *peers.trained()), device=self.device,
            works=(STEP, REPLAY) if self.device == "cuda" else (STEP,), budget=self.budget,
        )  # fmt: skip


def path(config: EveryConfig) -> Path:
    """Of the record."""
    return config.folder / f"models-{config.device}.json"


def run(config: EveryConfig, progress: Callable[[Cell], None] = lambda cell: None) -> dict[str, Any]:
    """Measure; the record is written after every cell."""
    kept = config.device == "cpu" and keep_freed_pages()
    asked = config.sweep()
    record: dict[str, Any] = {
        "machine": machine.described(config.device) | {"allocator": "freed pages kept" if kept else "system default"},
        "setting": {
            "width": peers.WIDTH, "depth": peers.DEPTH, "features": peers.FEATURES, "batch": config.batch,
            "length": config.length,
        },
        "parameters": {name: parameters(built(name, "cpu")) for name in asked.models},
        "cells": [],
    }  # fmt: skip
    with tf32() if config.device == "cuda" else nullcontext():
        for cell in sweep(asked):
            record["cells"].append(asdict(cell))
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
            name, "" if size is None else f"{size:,}", *_entry(steps[name], steps["lformer"]),
            "" if peak is None else f"{peak / 2**20:,.0f} MiB",
            *(_entry(replayed.get(name), replayed["lformer"]) if replayed else ()),
        ])  # fmt: skip
    return rows


def words(record: dict[str, Any]) -> str:
    """What the table is of."""
    found, setting = record["machine"], record["setting"]
    cores = "" if "device" in found else f", {found['threads']} threads"
    return (
        f"{found.get('device', found['cpu'])}{cores}, torch {found['torch']}: batch {setting['batch']}, "
        f"{setting['length']:,} rows of {setting['features']} features; width {setting['width']}, depth "
        f"{setting['depth']}, other sizes as each configuration has them."
    )


def _entry(cell: Cell | None, ours: Cell) -> list[str]:
    """Time and ratio, or why there is none."""
    if cell is None:
        return ["", ""]
    if cell.seconds is None:
        return [tables.short(cell.note), ""]
    return [f"{tables.ms(cell.seconds)} ms", f"{cell.seconds / ours.seconds:.1f}×" if ours.seconds else ""]
