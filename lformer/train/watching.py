"""The losses of an epoch, looked at as they arrive: a GPU is never waited for after a step, only far behind one."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from lformer.batch import Source

AHEAD = 8  # steps that may be queued before the loss of the first of them is waited for

Explosion = Callable[[float, int, Source], Exception]  # of a loss that is not a number: it, its step and its batch


class _Sent(NamedTuple):
    """A loss on its way to the processor."""

    value: Tensor  # (), to be read once it has arrived
    arrived: Callable[[], bool]
    wait: Callable[[], object]
    batch: Source


class Losses:
    """Those of the steps of an epoch, in their order.

    Args:
        explosion: what is raised for the first that is not a number.
    """

    def __init__(self, explosion: Explosion) -> None:
        self.explosion = explosion
        self.latest = math.nan  # of those that have arrived
        self._seen: list[Tensor] = []
        self._waiting: deque[_Sent] = deque()

    def add(self, loss: Tensor, batch: Source) -> None:
        """Send off the loss of a step, (), which may be overwritten then; look at those that have arrived."""
        self._waiting.append(sent(loss, batch))
        while self._waiting and (len(self._waiting) > AHEAD or self._waiting[0].arrived()):
            self._look()

    def mean(self) -> float:
        """Over all steps, which are waited for; NaN if there are none."""
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
    """A loss on its way: from CUDA behind the work that is queued there, elsewhere it is here at once."""
    if loss.device.type != "cuda":
        return _Sent(loss, lambda: True, lambda: None, batch)
    value = loss.to("cpu", non_blocking=True)  # into pinned memory, which alone need not be waited for
    event = torch.cuda.current_stream(loss.device).record_event()
    return _Sent(value, event.query, event.synchronize, batch)
