"""Checks of the input to a panel: names, counts, times, positions; errors say what came and what to do."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from numbers import Real
from typing import Any

import numpy as np

from lformer.arrays import CANNOT, STAMPS, Array, any_array, as_array, shown
from lformer.panel.stamps import LONGEST, as_stamps, missing


def whole_numbers(values: Any, name: str) -> Array:
    """(n,) int64; raises if anything would have to be rounded."""
    array = any_array(values, name)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"{name} must be whole numbers, one per series; got {array.dtype} of shape {array.shape}.")
    return array.astype(np.int64)


def spell(name: Any) -> str:
    """A name as the user wrote it, for error messages."""
    return shown(name.item() if isinstance(name, np.generic) else name)


def channel_names(channels: Iterable[Hashable] | None, count: int | None = None) -> list[str]:
    """Names of channels, which must be distinct; "0", "1", ... if None."""
    try:
        if isinstance(channels, str | bytes):
            raise TypeError
        labels = [str(c) for c in (range(count or 0) if channels is None else channels)]
    except CANNOT:
        raise TypeError(f"channels must be a list of names; got {shown(channels)}.") from None
    if count is not None and len(labels) != count:
        raise ValueError(f"values have {count} channels, but {len(labels)} names were given.")
    if len(set(labels)) < len(labels):
        twice = sorted({label for label in labels if labels.count(label) > 1})
        raise ValueError(f"channels must have different names; duplicates: {twice[:5]}.")
    return labels


def span_message(name: Any) -> str:
    """The error message for a series that `too_long` finds."""
    return (
        f"the times of series {spell(name)} span more than {LONGEST:.2g}, and intervals are kept in float32. Drop "
        "stamps that stand for missing ones, or use a larger unit of time."
    )


def float64_times(times: Any) -> Array:
    """(N,) times in float64; raises for integers that would be rounded."""
    given = as_array(times, "times", STAMPS)
    rounded = given.astype(np.float64, copy=False)
    if given.dtype.kind in "iu" and given.size and float(np.abs(rounded).max()) > 2**53:
        raise ValueError(
            f"times are kept in float64, which holds whole numbers up to 2**53; got {given.max()}. Subtract the first "
            "stamp of each series from its times, and give it as origin."
        )
    return rounded


def origins(origin: Any, n: int) -> Array:
    """(n,) time stamps of any kind; 0 if None."""
    if origin is None:
        return np.zeros(n)
    begins = as_stamps(origin, "origin")
    if begins.shape != (n,) or bool(missing(begins).any()):
        raise ValueError(f"origin must be {n} stamps, one per series; got shape {begins.shape}.")
    return begins


def finite_number(number: Any, name: str) -> float:
    try:
        if isinstance(number, Real) and math.isfinite(number):
            return float(number)
    except OverflowError:  # a whole number that is too large
        pass
    raise ValueError(f"{name} must be a finite number; got {shown(number)}.")


def positions(index: Any, n: int) -> Array:
    """Positions, or a boolean mask, as an array that indexes n series."""
    try:
        array = any_array(index, "which series to take")
    except ValueError:
        array = np.empty(0, object)
    if array.size == 0 and array.dtype.kind in "f":
        array = array.astype(np.int64)
    if array.dtype.kind not in "iub" or array.ndim != 1:
        raise TypeError(f"series are taken by position, slice or mask; got {array.dtype} of shape {array.shape}.")
    if array.dtype.kind == "b" and len(array) != n:
        raise IndexError(f"there are {n} series; got a mask of {len(array)}.")
    if array.dtype.kind != "b" and array.size and not -n <= int(array.min()) <= int(array.max()) < n:
        raise IndexError(f"there are {n} series; got positions from {array.min()} to {array.max()}.")
    return array
