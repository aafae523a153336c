"""PyTorch operators that ONNX lacks, expressed in operators that it has; linear in the length, or nearly.

cummax, cummin   in ceil(log2 L) rounds, which look 1, 2, 4, … positions back
searchsorted     sequence and queries are sorted together, and the rows before each query are counted
sort             stable
expm1            in float64, in which exp(x) - 1 keeps the digits that float32 would lose
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from onnxscript import INT64, script
from onnxscript import opset18 as op

DOUBLE, WHOLE = 11, 7  # type numbers of ONNX


@script()  # type: ignore[untyped-decorator, unused-ignore]
def _running_max(x: INT64[...]) -> INT64[...]:
    """(..., L) -> (..., L)"""
    length = op.Squeeze(op.Shape(x, start=-1))
    place = op.Range(0, length, 1)
    reach = op.Constant(value_int=1)
    more = reach < length
    while more:
        earlier = op.Gather(x, op.Max(place - reach, 0), axis=-1)
        x = op.Max(x, earlier)
        reach = reach + reach
        more = reach < length
    return x


def cummax(self: Any, dim: int) -> Any:
    """(..., L) -> (..., L), without the positions, which we do not use."""
    _require_last(self, dim)
    return _running_max(self), op.Identity(self)


def cummin(self: Any, dim: int) -> Any:
    """Like `cummax`."""
    _require_last(self, dim)
    return op.Neg(_running_max(op.Neg(self))), op.Identity(self)


def searchsorted(
    sorted_sequence: Any, self: Any, out_int32: bool = False, right: bool = False, side: Any = None, sorter: Any = None
) -> Any:
    """(B, L), (B, Q) -> (B, Q), number of entries that are not greater"""
    if not right or out_int32 or side is not None or sorter is not None:
        raise NotImplementedError("searchsorted is translated with right=True alone.")
    rows = op.Shape(sorted_sequence, start=-1)
    both = op.Concat(sorted_sequence, self, axis=-1)
    _, order = op.TopK(both, op.Shape(both, start=-1), axis=-1, largest=0, sorted=1)  # stable
    before = op.CumSum(op.Cast(op.Less(order, rows), to=WHOLE), op.Constant(value_int=-1))
    placed = op.ScatterElements(order, order, before, axis=-1)  # every position is written
    return op.Slice(placed, rows, op.Constant(value_ints=[2**62]), op.Constant(value_ints=[-1]))


def stable_sort(self: Any, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Any:
    """Sorted values and their original positions; ONNX guarantees that the order of equal values is preserved."""
    return op.TopK(self, op.Shape(self, start=dim, end=dim + 1 or None), axis=dim, largest=int(descending), sorted=1)


def expm1(self: Any) -> Any:
    """exp(x) - 1"""
    wide = op.Exp(op.Cast(self, to=DOUBLE))
    return op.CastLike(op.Sub(wide, op.CastLike(op.Constant(value_float=1.0), wide)), self)


def _require_last(x: Any, dim: int) -> None:
    if dim not in (-1, len(x.shape) - 1):
        raise NotImplementedError(f"a running maximum is translated along the last axis alone; got {dim}.")


def translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Translations for `torch.onnx.export`, in addition to its own."""
    aten = torch.ops.aten
    return {
        aten.cummax.default: cummax,
        aten.cummin.default: cummin,
        aten.searchsorted.Tensor: searchsorted,
        aten.sort.stable: stable_sort,
        aten.expm1.default: expm1,
    }
