"""States of many series side by side: select rows of them, write rows back, and enlarge them.

A state is a named tuple of tensors, of further such tuples and of None; the first axis of every tensor indexes series,
so one traversal of the tuple works for all models, including ensembles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor


def each(change: Callable[..., Tensor], state: Any, *others: Any) -> Any:
    """Apply `change` to every tensor of a state, together with those of `others`, states of the same structure."""
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
    """Copy the rows `index` (B,) of every tensor."""
    return each(lambda tensor: tensor.index_select(0, index), state)


def put(state: Any, index: Tensor, rows: Any) -> None:
    """Write `rows`, a state of B series, to the rows `index` (B,) of every tensor."""
    for tensor, new in zip(leaves(state), leaves(rows), strict=True):
        tensor.index_copy_(0, index, new)


def first(state: Any, count: int) -> Any:
    """The first rows of every tensor, without copying."""
    return each(lambda tensor: tensor[:count], state)


def room(state: Any, count: int) -> Any:
    """A state enlarged to `count` rows, of which the existing ones are kept; the others are uninitialised."""

    def enlarged(tensor: Tensor) -> Tensor:
        new = tensor.new_empty(count, *tensor.shape[1:])
        new[: len(tensor)] = tensor
        return new

    return each(enlarged, state)
