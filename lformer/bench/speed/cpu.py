"""The study against length on a CPU: LFormer and its peers on one machine, in one run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from lformer.allocator import keep_freed_pages
from lformer.bench import peers
from lformer.bench.speed import machine
from lformer.bench.speed.cells import Cell, summary
from lformer.bench.speed.files import write
from lformer.bench.speed.sweep import SpeedConfig, sweep


def run(config: SpeedConfig, progress: Callable[[Cell], None] = lambda cell: None) -> dict[str, Any]:
    """Measure everything; `cpu.json` under `config.folder` is written after every cell, so a cut costs no figure."""
    kept = config.allocator == "keep" and keep_freed_pages()
    cells: list[Cell] = []
    record: dict[str, Any] = {}
    for cell in sweep(config):
        cells.append(cell)
        progress(cell)
        record = {
            "machine": machine.described("cpu") | {"allocator": "freed pages kept" if kept else "system default"},
            "setting": {"width": peers.WIDTH, "depth": peers.DEPTH, "heads": peers.HEADS, "features": peers.FEATURES},
            "summary": summary(cells),
            "cells": [asdict(cell) for cell in cells],
        }
        write(record, config.folder / "cpu.json")
    return record
