"""The batches of a part answered again and again by replay, as a validation does after every epoch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from torch import Tensor, nn

from lformer.batch import IrregularBatch, Source
from lformer.cuda_graphs import recording
from lformer.cuda_graphs.recording import Recordings, fill

Answered: TypeAlias = tuple[IrregularBatch, Tensor]


class CapturedAnswers:
    """Called with a batch, or what becomes one: the batch on the device of the model, and the answer.

    Both hold until the next call. The second batch of a shape is recorded as long as there is room for a graph; others
    are answered in the ordinary way.

    Args:
        model: in evaluation mode whenever this is called. Its work must not depend on values.
        answer: from the model and a batch on its device to what is returned.
        graphs: how many shapes are held.
    """

    def __init__(
        self, model: nn.Module, answer: Callable[[nn.Module, IrregularBatch], Answered], graphs: int = 64
    ) -> None:
        self._model = model
        self._work = partial(_answer, model, answer)
        self._graphs = Recordings(model, self._work, graphs)

    def __call__(self, batch: Source) -> Answered:
        device = next(self._model.parameters()).device
        found = self._graphs.while_there_is_room(batch, device) if recording.can_replay(batch, device) else None
        if found is None:
            with recording.one_at_a_time:
                return self._work(batch)
        fill(found.inputs, batch)
        found.replay()
        return found.output


def _answer(model: nn.Module, answer: Callable[[nn.Module, IrregularBatch], Answered], batch: Source) -> Answered:
    return answer(model, batch.to(next(model.parameters()).device))
