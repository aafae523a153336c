"""Time and memory against length: LFormer and its peers on one machine, in one run.

Runs with torch and numpy alone: `python -m lformer.bench.speed`. The figure needs the extra `plots`.
"""

from __future__ import annotations

import json
import math
import platform
import statistics
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from lformer import __version__
from lformer.allocator import keep_freed_pages
from lformer.batch import IrregularBatch
from lformer.bench import peers

Work = Literal["forward", "training step"]
WORKS: tuple[Work, ...] = ("forward", "training step")


@dataclass(frozen=True, kw_only=True)
class SpeedConfig:
    """What to measure."""

    lengths: tuple[int, ...] = (512, 1024, 2048, 4096, 8192, 16384)
    batches: tuple[int, ...] = (1, 8, 32)
    models: tuple[str, ...] = ("lformer", "lformer-causal", "gru", "transformer")
    limit: float = 20.0  # seconds that one call may be expected to take; beyond it the cell is marked out of time
    memory: float = 12.0  # GiB likewise, out of memory
    allocator: Literal["keep", "system"] = "keep"
    folder: Path = Path("runs/speed")


@dataclass(frozen=True)
class Cell:
    """One measurement. `seconds` is None where the cell was not run, and `note` says why."""

    model: str
    work: Work
    batch: int
    length: int
    seconds: float | None
    peak_bytes: int | None
    note: str = ""


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of tensors alive at once, on any device: what a step needs beyond weights and input."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._see(tensor.untyped_storage())
        return result

    def _see(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key not in self.known:
            self.known.add(key)
            self.now += size
            self.peak = max(self.peak, self.now)
            weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.now -= size


def call(model: nn.Module, batch: IrregularBatch, work: Work) -> Callable[[], None]:
    """One forward pass without gradients, or forward, loss and backward."""

    def forward() -> None:
        with torch.no_grad():
            model(batch)

    def training_step() -> None:
        for parameter in model.parameters():
            parameter.grad = None
        model(batch).square().mean().backward()

    model.train(work == "training step")
    return forward if work == "forward" else training_step


def measure(run: Callable[[], None], seconds: float = 1.0) -> tuple[float, int]:
    """Median seconds of a call after a warm-up, and its peak of live bytes. A call of several seconds is timed once."""
    with LiveBytes() as memory:
        run()
    taken: list[float] = []
    for _ in range(25):
        began = time.perf_counter()
        run()
        taken.append(time.perf_counter() - began)
        if sum(taken) >= (seconds if len(taken) >= 3 else 4 * seconds):
            break
    return statistics.median(taken), memory.peak


def attempt(run: Callable[[], None]) -> tuple[float, int] | None:
    """`measure`, or None if the memory does not suffice."""
    try:
        return measure(run)
    except RuntimeError as error:  # torch.OutOfMemoryError on a GPU; the CPU allocator has no class of its own
        if "memory" not in str(error):
            raise
        return None


def sweep(config: SpeedConfig) -> Iterator[Cell]:
    """Every cell, shortest first. The models take turns at each length, so that a busy machine slows all of them."""
    models = {name: peers.PEERS[name]() for name in config.models}
    for batch in config.batches:
        before: dict[tuple[str, Work], list[Cell]] = {}
        for length in config.lengths:
            data = peers.random_batch(batch, length)
            for work in WORKS:
                for name, model in models.items():
                    history = before.setdefault((name, work), [])
                    note = _hopeless(history, length, config)
                    found = None if note else attempt(call(model, data, work))
                    seconds, peak = found or (None, None)
                    cell = Cell(name, work, batch, length, seconds, peak, note if found or note else "OOM")
                    history.append(cell)
                    yield cell


def _hopeless(history: Sequence[Cell], length: int, config: SpeedConfig) -> str:
    """Why a cell is not worth starting, judged from the shorter ones: time is expected to grow as it did before."""
    if not history:
        return ""
    last = history[-1]
    if last.seconds is None or last.peak_bytes is None:
        return last.note
    power = growth_exponent(history[-2:]) if len(history) > 1 else 2.0
    growth = length / last.length
    if last.seconds * growth**power > config.limit:
        return "OOT"
    return "OOM" if last.peak_bytes * growth > config.memory * 2**30 else ""


def growth_exponent(cells: Sequence[Cell]) -> float:
    """Slope of log time over log length; 1 is linear."""
    points = [(math.log(c.length), math.log(c.seconds)) for c in cells if c.seconds]
    if len(points) < 2:
        return math.nan
    x, y = np.array(points).T
    return float(np.polyfit(x, y, 1)[0])


def pick(cells: Sequence[Cell], **wanted: Any) -> list[Cell]:
    """The cells with these attributes."""
    return [c for c in cells if all(getattr(c, name) == value for name, value in wanted.items())]


def table(cells: Sequence[Cell], work: Work, batch: int) -> list[list[str]]:
    """One row per model: milliseconds at each length with the ratio to non-causal LFormer, exponent, peak memory."""
    chosen = pick(cells, work=work, batch=batch)
    lengths = sorted({c.length for c in chosen})
    base = {c.length: c.seconds for c in chosen if c.model == "lformer"}
    result = [["model", *(f"{n:,}" for n in lengths), "exponent", f"MiB at {lengths[-1]:,}"]]
    for model in dict.fromkeys(c.model for c in chosen):
        row, own = [model], {c.length: c for c in chosen if c.model == model}
        for n in lengths:
            seconds, reference = own[n].seconds, base.get(n)
            if seconds is None:
                row.append(own[n].note)
            else:
                ratio = f" ({seconds / reference:.1f}×)" if reference and model != "lformer" else ""
                row.append(f"{1e3 * seconds:.4g} ms{ratio}")
        peak = own[lengths[-1]].peak_bytes
        row += [f"{growth_exponent(list(own.values())):.2f}", "" if peak is None else f"{peak / 2**20:,.0f}"]
        result.append(row)
    return result


def summary(cells: Sequence[Cell]) -> dict[str, float]:
    """The figures our goals are about: batch 8 where it was measured, ratios over lengths from 1,024 up."""
    batches, longest = {c.batch for c in cells}, max(c.length for c in cells)
    batch, shortest = 8 if 8 in batches else max(batches), min(1024, longest)
    found: dict[str, float] = {"batch": batch}
    for work in WORKS:
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
            for value, label in (("seconds", "time"), ("peak_bytes", "memory")):
                worst = ratios("lformer-causal", "lformer", value)
                found[f"{work}: causal over non-causal, {label}, worst"] = max(worst, default=math.nan)
        for peer in own.keys() - set(ours):
            for name in ours:
                found[f"{work}: {peer} over {name}, time, least"] = min(ratios(peer, name, "seconds"), default=math.nan)
    return found


def run(config: SpeedConfig, progress: Callable[[Cell], None] = lambda cell: None) -> dict[str, Any]:
    """Measure everything; write `speed.json` and, with matplotlib, `speed.png` under `config.folder`."""
    unknown = set(config.models) - set(peers.available())
    if unknown:
        raise ValueError(
            f"cannot measure {', '.join(sorted(unknown))}; installed are {', '.join(peers.available())}. "
            "mambapy comes with: pip install mambapy"
        )
    if not config.lengths or not config.batches or min(config.lengths + config.batches) < 1:
        raise ValueError("lengths and batches must be whole numbers from 1 up.")
    kept = config.allocator == "keep" and keep_freed_pages()
    config.folder.mkdir(parents=True, exist_ok=True)
    cells: list[Cell] = []
    record: dict[str, Any] = {}
    for cell in sweep(config):
        cells.append(cell)
        progress(cell)
        record = {
            "machine": {
                "cpu": processor(),
                "threads": torch.get_num_threads(),
                "torch": torch.__version__,
                "python": platform.python_version(),
                "lformer": __version__,
                "allocator": "freed pages kept" if kept else "system default",
            },
            "setting": {"width": peers.WIDTH, "depth": peers.DEPTH, "heads": peers.HEADS, "features": peers.FEATURES},
            "summary": summary(cells),
            "cells": [asdict(cell) for cell in cells],
        }  # written after every cell: what was measured is kept if the run is cut short
        (config.folder / "speed.json").write_text(json.dumps(record, indent=1) + "\n")
    return record


def processor() -> str:
    """Model name of the CPU where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


if __name__ == "__main__":
    done = run(SpeedConfig(), progress=lambda c: print(c, file=sys.stderr, flush=True))
    print(json.dumps(done["summary"], indent=1))
