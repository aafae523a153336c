"""The batches of a part answered again and again by replay, as a validation does after every epoch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from torch import nn

from lformer.batch import IrregularBatch, Source
from lformer.cuda_graphs import recording
from lformer.cuda_graphs.recording import Recordings, fill
from lformer.cuda_graphs.turns import turns

T = TypeVar("T")


class CapturedAnswers(Generic[T]):
    """Called with a batch, or what becomes one: what `answer` makes of it, which holds until the next call.

    The second batch of a shape is recorded as long as there is room for a graph; others are answered in the ordinary
    way.

    Args:
        model: in evaluation mode whenever this is called. Its work must not depend on values.
        answer: from the model and a batch on its device to tensors.
        graphs: how many shapes are held.
    """

    def __init__(self, model: nn.Module, answer: Callable[[nn.Module, IrregularBatch], T], graphs: int = 64) -> None:
        self._model = model
        self._work = partial(_answer, model, answer)
        self._graphs: Recordings[T] = Recordings(model, self._work, graphs)

    def __call__(self, batch: Source) -> T:
        device = next(self._model.parameters()).device
        found = self._graphs.while_there_is_room(batch, device) if recording.can_replay(batch, device) else None
        if found is None:
            with turns.recording():
                return self._work(batch)
        fill(found.inputs, batch)
        found.replay()
        return found.output


def _answer(model: nn.Module, answer: Callable[[nn.Module, IrregularBatch], T], batch: Source) -> T:
    return answer(model, batch.to(next(model.parameters()).device))
