"""States of many series side by side: some rows of them taken out, put back, and room made for more.

A state is a named tuple of tensors, of further such tuples and of None; the first axis of every tensor is that of the
series, so one walk over the tuple serves all models, ensembles included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor


def each(change: Callable[..., Tensor], state: Any, *others: Any) -> Any:
    """The state with every tensor changed; `others` are states of the same form, whose tensors are given beside it."""
    if state is None:
        return None
    if isinstance(state, Tensor):
        return change(state, *others)
    parts = [each(change, *several) for several in zip(state, *others, strict=True)]
    return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)


def leaves(state: Any) -> Iterator[Tensor]:
    """The tensors of a state, always in the same order."""
    if isinstance(state, Tensor):
        yield state
    elif state is not None:
        for part in state:
            yield from leaves(part)


def take(state: Any, index: Tensor) -> Any:
    """Copies of the rows `index` (B,) of every tensor."""
    return each(lambda tensor: tensor.index_select(0, index), state)


def put(state: Any, index: Tensor, rows: Any) -> None:
    """Write `rows`, a state of B series, over the rows `index` (B,) of every tensor."""
    for tensor, new in zip(leaves(state), leaves(rows), strict=True):
        tensor.index_copy_(0, index, new)


def first(state: Any, count: int) -> Any:
    """The first rows of every tensor; nothing is copied."""
    return each(lambda tensor: tensor[:count], state)


def room(state: Any, count: int) -> Any:
    """A state with `count` rows, of which those there are already stay; what the others hold means nothing."""

    def enlarged(tensor: Tensor) -> Tensor:
        new = tensor.new_empty(count, *tensor.shape[1:])
        new[: len(tensor)] = tensor
        return new

    return each(enlarged, state)
