"""What a call takes: median time after a warm-up and peak memory, on a CPU and on a GPU."""

from __future__ import annotations

import contextlib
import gc
import itertools
import statistics
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from lformer.batch import IrregularBatch
from lformer.bench.speed.cells import REPLAY, Work
from lformer.cuda_graphs import RecordingError, capture_step
from lformer.ops import checks

WARM_UP = 3  # calls on a GPU before any is timed: compiled kernels, libraries set up, memory reserved
SLOW = 0.1  # seconds; a call that takes longer is warm after two
NOT_RECORDED = "no graph"  # of what this model does
NO_MEMORY = ("out of memory", "not enough memory", "allocate memory")  # as GPU and CPU allocators say it


class Budget(NamedTuple):
    """How long to measure one cell: so many calls, or so many seconds if that is less."""

    repeats: int
    seconds: float
    warm_up: int = WARM_UP  # calls on a GPU before any is timed; on a CPU it is one


ONE_SECOND = Budget(25, 1.0)


class Measured(NamedTuple):
    seconds: float  # median
    peak_bytes: int  # beyond weights and input


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


def call(model: nn.Module, batch: IrregularBatch, work: Work) -> Callable[[], object]:
    """One forward pass without gradients, or forward, loss and backward; gradients are gone afterwards.

    A replayed step copies the batch into the buffers of its graph, as a loop of training does.

    On a GPU values are not looked at, as in training: every look would wait for all work before it.
    """
    values = checks.skip_value_checks if batch.values.is_cuda else contextlib.nullcontext

    def forward() -> None:
        with torch.no_grad(), values():
            model(batch)

    def training_step() -> None:
        with values():
            _loss(model, batch).backward()
        for parameter in model.parameters():
            parameter.grad = None

    model.train(work != "forward")
    if work == REPLAY:
        return partial(capture_step(model, _loss), batch)
    return forward if work == "forward" else training_step


def _loss(model: nn.Module, batch: IrregularBatch) -> Tensor:
    return cast(Tensor, model(batch)).square().mean()


def measure(run: Callable[[], object], device: str = "cpu", budget: Budget = ONE_SECOND) -> Measured:
    """Median seconds of a call after a warm-up, and its peak memory. A call that outlasts the budget is timed once."""
    return _on_gpu(run, budget) if device == "cuda" else _on_cpu(run, budget)


def attempt(run: Callable[[], object], device: str = "cpu", budget: Budget = ONE_SECOND) -> Measured | str:
    """`measure`, or why there is nothing to measure: one bad cell must not cost the others."""
    try:
        return measure(run, device, budget)
    except Exception as error:
        reason = why(error)
    gc.collect()  # after the except block, whose traceback holds the tensors
    if device == "cuda":
        torch.cuda.empty_cache()
    return reason


def why(error: Exception) -> str:
    """An error in a few words: OOM, no graph, or what it says first."""
    text = str(error)
    if isinstance(error, RecordingError):
        return NOT_RECORDED
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or any(words in text for words in NO_MEMORY):
        return "OOM"
    return f"failed: {type(error).__name__}: {text.splitlines()[0] if text else ''}"


def _on_cpu(run: Callable[[], object], budget: Budget) -> Measured:
    with LiveBytes() as memory:
        run()
    taken: list[float] = []
    for _ in range(budget.repeats):
        began = time.perf_counter()
        run()
        taken.append(time.perf_counter() - began)
        if sum(taken) >= (budget.seconds if len(taken) >= 3 else 4 * budget.seconds):
            break
    return Measured(statistics.median(taken), memory.peak)


def _on_gpu(run: Callable[[], object], budget: Budget) -> Measured:
    """Between events on the GPU; nothing waits between two calls, as in a loop of training or prediction."""
    once = _warm_up(run, budget.warm_up)
    count = 1 if once > budget.seconds else max(3, min(budget.repeats, int(budget.seconds / once)))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)]
    marks[0].record()
    for mark in marks[1:]:
        run()
        mark.record()
    torch.cuda.synchronize()
    taken = [1e-3 * a.elapsed_time(b) for a, b in itertools.pairwise(marks)]
    return Measured(statistics.median(taken), torch.cuda.max_memory_allocated() - before)


def _warm_up(run: Callable[[], object], calls: int) -> float:
    """Seconds of the last of so many calls, the GPU waited for."""
    taken = 0.0
    for n in range(calls):
        torch.cuda.synchronize()
        began = time.perf_counter()
        run()
        torch.cuda.synchronize()
        taken = time.perf_counter() - began
        if n and taken > SLOW:
            break
    return taken
