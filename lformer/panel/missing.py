"""Numbers that stand for missing values, such as -9999: which they are in each channel, and where they occur."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from lformer.arrays import Array, shown

MissingValues = float | Sequence[float] | Mapping[str, float | Sequence[float]] | None
Marks = list[tuple[Any, Array]]  # a number in the dtype of the values, and in which channels (C,) it is a mark
WANTED = "missing_values must be a number, a list of numbers, or a mapping from channel to either"


def read_marks(missing_values: MissingValues, channels: Sequence[str], dtype: Any, *, some: bool = False) -> Marks:
    """What counts as missing in each of some channels.

    Args:
        missing_values: of all channels, or by channel; None and NaN, which is always missing, add nothing.
        channels: their names.
        dtype: of the values, in which they are compared: 0.1 in float32 is what 0.1 becomes in float32.
        some: whether a channel that is named and not there is left out; else it is an error.
    """
    by_channel = missing_values if isinstance(missing_values, Mapping) else dict.fromkeys(channels, missing_values)
    named = {str(name): _numbers(numbers) for name, numbers in by_channel.items()}
    if (strange := [name for name in named if name not in channels]) and not some:
        raise ValueError(
            f"missing_values names channels {strange[:5]}, which are not among those of the series: "
            f"{', '.join(channels[:8])}{', ...' if len(channels) > 8 else ''}."
        )
    everywhere = dict.fromkeys(number for numbers in named.values() for number in numbers)
    with np.errstate(over="ignore"):  # what the dtype cannot hold is infinite there, and so is the mark
        return [
            (np.float64(number).astype(dtype), np.array([number in named.get(name, ()) for name in channels]))
            for number in everywhere
        ]


def is_mark(values: Array, marks: Marks, channel: Array | None = None) -> Array:
    """Where values are marks: of (..., C) values, or of (N,) values with the `channel` of each."""
    found = np.zeros(values.shape, bool)
    for number, where in marks:
        found |= (values == number) & (where if channel is None else where[channel])
    return found


def check_missing_values(missing_values: Any) -> None:
    """Refuse what cannot say which numbers stand for missing values."""
    several = missing_values.values() if isinstance(missing_values, Mapping) else [missing_values]
    for numbers in several:
        _numbers(numbers)


def _numbers(given: Any) -> list[float]:
    """The numbers in one entry; NaN is left out."""
    if given is None:
        return []
    numbers = given.tolist() if isinstance(given, np.ndarray) else given
    several = isinstance(numbers, Iterable) and not isinstance(numbers, str | bytes | Mapping)
    entries = list(numbers) if several else [numbers]
    return [number for one in entries if (number := _number(one, given)) == number]


def _number(one: Any, given: Any) -> float:
    try:
        if isinstance(one, Real | np.number) and not isinstance(one, bool | np.bool_ | np.complexfloating):
            return float(one)
    except OverflowError:  # a whole number beyond all floating ones
        pass
    raise TypeError(f"{WANTED}; got {shown(given)}.")
