"""Truncated back-propagation through time: gradients of series that are longer than memory, piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from lformer.batch import IrregularBatch
from lformer.nn.lformer import LFormer
from lformer.nn.states import each
from lformer.tasks import Task


def check_pieces(model: nn.Module, task: Task, rows: int) -> None:
    """Raise if the model cannot continue from a state, or predicts elsewhere than at rows and ends of series."""
    if rows < 1:
        raise ValueError(f"piece_rows must be at least 1, or None; got {rows}.")
    if not isinstance(model, LFormer) or task.answer == "query":
        raise ValueError(
            f"piece_rows={rows} is for an LFormer that predicts per row or per series; got {type(model).__name__} with "
            f'answer="{task.answer}".'
        )
    model.init_state(1)  # raises for a model that reads ahead


def losses(model: LFormer, task: Task, batch: IrregularBatch, rows: int) -> Iterator[Tensor]:
    """Losses of the pieces of a batch, (), which sum to its loss; take the gradients of each before the next.

    Predictions are those for whole series, as each piece continues from the state after the previous one, but gradients
    stop at the start of a piece. A series is predicted in the piece in which it ends, so with predictions per series,
    earlier pieces only contribute through the state.

    Args:
        model: a causal model.
        task: defines the loss.
        batch: on the device of the model.
        rows: rows per piece.
    """
    length, whole, state = batch.times.shape[1], task.weight(batch).clamp(min=1), None
    for start in range(0, max(length, 1), rows):
        stop = min(start + rows, length)
        piece = batch.stretch(start, stop, task.answer)
        output, state = model(piece, state, return_state=True)
        state = each(Tensor.detach, state)
        if task.answer == "series":
            ends = (batch.lengths <= stop) & ((batch.lengths > start) | (start == 0))
            if not bool(ends.any()):
                continue
            output, piece = output[ends], piece[ends]
        yield task.loss(output, piece) * (task.weight(piece) / whole).to(output.dtype)


def gradients(
    model: LFormer,
    task: Task,
    batch: IrregularBatch,
    rows: int,
    inside: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Tensor:
    """The loss of a batch, (); its gradients, truncated between pieces, are added to those of the parameters.

    `inside` is the context in which losses are computed, but not their gradients.
    """
    total, found = torch.zeros((), device=batch.values.device), losses(model, task, batch, rows)
    while True:
        with inside():
            loss = next(found, None)
        if loss is None:
            return total
        loss.backward()
        total = total + loss.detach()
