"""Numbers that stand for missing values, such as -9999: which ones, for each channel, and where they occur."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from lformer.arrays import Array, shown

MissingValues = float | Sequence[float] | Mapping[str, float | Sequence[float]] | None
Marks = list[tuple[Any, Array]]  # a number in the dtype of the values, and (C,) the channels in which it is a mark
WANTED = "missing_values must be a number, a list of numbers, or a mapping from channel to either"


def read_marks(missing_values: MissingValues, channels: Sequence[str], dtype: Any, *, some: bool = False) -> Marks:
    """The numbers that stand for missing values, for each channel.

    Args:
        missing_values: numbers for all channels, or by channel; None adds none, nor does NaN, which is always missing.
        channels: their names.
        dtype: dtype of the values, in which they are compared: 0.1 is rounded as in float32 values.
        some: whether to ignore channels in `missing_values` that do not exist; else they raise an error.
    """
    by_channel = missing_values if isinstance(missing_values, Mapping) else dict.fromkeys(channels, missing_values)
    named = {str(name): _numbers(numbers) for name, numbers in by_channel.items()}
    if (strange := [name for name in named if name not in channels]) and not some:
        raise ValueError(
            f"missing_values names channels {strange[:5]}, which are not among those of the series: "
            f"{', '.join(channels[:8])}{', ...' if len(channels) > 8 else ''}."
        )
    everywhere = dict.fromkeys(number for numbers in named.values() for number in numbers)
    with np.errstate(over="ignore"):  # a mark that overflows becomes infinite, like the values
        return [
            (np.float64(number).astype(dtype), np.array([number in named.get(name, ()) for name in channels]))
            for number in everywhere
        ]


def is_mark(values: Array, marks: Marks, channel: Array | None = None) -> Array:
    """Where values are marks: for (..., C) values, or for (N,) values with the `channel` of each."""
    found = np.zeros(values.shape, bool)
    for number, where in marks:
        found |= (values == number) & (where if channel is None else where[channel])
    return found


def check_missing_values(missing_values: Any) -> None:
    """Raise unless this is a valid `missing_values`."""
    several = missing_values.values() if isinstance(missing_values, Mapping) else [missing_values]
    for numbers in several:
        _numbers(numbers)


def _numbers(given: Any) -> list[float]:
    """The numbers in one entry, without NaN."""
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
