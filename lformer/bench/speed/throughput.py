"""Second study: series per second of inference, eager and by replay of a CUDA graph."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from torch import nn

from lformer.batch import IrregularBatch
from lformer.bench import peers
from lformer.bench.speed.machine import DTYPES, Precision
from lformer.bench.speed.sweep import TIME_OVER, built
from lformer.bench.speed.timing import Budget, attempt, call, why
from lformer.cuda_graphs import capture
from lformer.nn.rows import fit_clock

Mode = Literal["eager", "graph", "replay"]  # graph: inputs copied into its buffers first; replay: they are there
MODES: tuple[Mode, ...] = ("eager", "graph", "replay")
NO_GRAPH = "no graphs"  # on this device


@dataclass(frozen=True)
class Rate:
    """One measurement. `seconds` is None where there is none, and `note` says why."""

    model: str
    precision: Precision
    mode: Mode
    batch: int
    length: int
    parameters: int | None
    seconds: float | None
    series_per_second: float | None
    note: str = ""


def throughput(
    models: Sequence[str], batch: int, length: int, device: str, budget: Budget, deadline: float = math.inf
) -> Iterator[Rate]:
    """Every model in every precision and mode; none is begun `deadline` seconds after the first."""
    stop = time.monotonic() + deadline
    data = peers.random_batch(batch, length, device)
    for name in models:
        for precision, dtype in DTYPES.items():
            model = built(name, device)
            if not isinstance(model, str):
                fit_clock(model, [data])
            # Weights and rows in this precision; times and intervals stay exact.
            rows = replace(data, values=data.values.to(dtype))
            for mode in MODES:
                if isinstance(model, str):
                    found: float | str = model
                elif time.monotonic() > stop:
                    found = TIME_OVER
                else:
                    found = _seconds(model.to(dtype).eval(), rows, mode, device, budget)
                seconds, note = (None, found) if isinstance(found, str) else (found, "")
                per_second = None if seconds is None else batch / seconds
                yield Rate(name, precision, mode, batch, length, parameters(model), seconds, per_second, note)


def _seconds(model: nn.Module, data: IrregularBatch, mode: Mode, device: str, budget: Budget) -> float | str:
    try:
        run = _call(model, data, mode)
    except Exception as error:  # not every model can be recorded
        return why(error)
    found = NO_GRAPH if run is None else attempt(run, device, budget)
    return found if isinstance(found, str) else found.seconds


def _call(model: nn.Module, data: IrregularBatch, mode: Mode) -> Callable[[], object] | None:
    """What is timed, or None where there are no graphs."""
    if mode == "eager":
        return call(model, data, "forward")
    fast = capture(model)
    fast(data)
    if not fast.captured(data):
        return None
    data = fast.inputs(data) if mode == "replay" else data
    return lambda: fast(data, copy=False)


def parameters(model: nn.Module | str) -> int | None:
    """How many; None of a model that could not be built."""
    return None if isinstance(model, str) else sum(p.numel() for p in model.parameters())
