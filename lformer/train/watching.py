"""The losses of an epoch, checked as they arrive from the GPU: the CPU waits only when it is many steps ahead."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from lformer.batch import Source

AHEAD = 8  # number of steps that may be queued before waiting for the loss of the first

Explosion = Callable[[float, int, Source], Exception]  # from a loss that is not finite, its step and batch


class _Sent(NamedTuple):
    """A loss on its way to the CPU."""

    value: Tensor  # (), may be read once it has arrived
    arrived: Callable[[], bool]
    wait: Callable[[], object]
    batch: Source


class Losses:
    """The losses of the steps of an epoch, in order.

    Args:
        explosion: creates the error for the first loss that is not finite.
    """

    def __init__(self, explosion: Explosion) -> None:
        self.explosion = explosion
        self.latest = math.nan  # the latest that has arrived
        self._seen: list[Tensor] = []
        self._waiting: deque[_Sent] = deque()

    def add(self, loss: Tensor, batch: Source) -> None:
        """Send the loss of a step, (), which may be overwritten afterwards, and check those that have arrived."""
        self._waiting.append(sent(loss, batch))
        while self._waiting and (len(self._waiting) > AHEAD or self._waiting[0].arrived()):
            self._look()

    def mean(self) -> float:
        """Mean over all steps, which are waited for; NaN if there are none."""
        while self._waiting:
            self._look()
        return float(torch.stack(self._seen).mean()) if self._seen else math.nan

    def _look(self) -> None:
        first = self._waiting.popleft()
        first.wait()
        self.latest = first.value.item()
        if not math.isfinite(self.latest):
            raise self.explosion(self.latest, len(self._seen), first.batch)
        self._seen.append(first.value)


def sent(loss: Tensor, batch: Source) -> _Sent:
    """A loss on its way: from CUDA it arrives after the queued work, elsewhere it is there at once."""
    if loss.device.type != "cuda":
        return _Sent(loss, lambda: True, lambda: None, batch)
    value = loss.to("cpu", non_blocking=True)  # into pinned memory, the only kind that allows asynchronous copies
    event = torch.cuda.current_stream(loss.device).record_event()
    return _Sent(value, event.query, event.synchronize, batch)
