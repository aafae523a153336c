"""Random numbers that depend on the series alone, not on the batch or the process that draws them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lformer.arrays import Array

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # the step of SplitMix64 (Steele, Lea and Flood 2014)


class OwnNumbers:
    """Random numbers in [0, 1) as a function of a key, the number of a series and the position within it.

    A sequential generator would give a series different numbers in another batch. These numbers are the same in any
    batch, so series can be distributed over processes, each of which draws only for its own.

    Args:
        place: integers that identify the occasion, such as a seed and an epoch.
        series: (n,) integers that identify the series.

    Example:
        >>> one, both = OwnNumbers([0, 7], np.array([5])), OwnNumbers([0, 7], np.array([3, 5]))
        >>> bool(one.of_series(2)[0, 1] == both.of_series(2)[1, 1])
        True
    """

    def __init__(self, place: Sequence[int], series: Array) -> None:
        key = np.random.SeedSequence(list(place)).generate_state(1, np.uint64)
        self._series = _mixed(_mixed(np.asarray(series).astype(np.uint64) * GOLDEN) + key)
        self._drawn = 0

    def of_series(self, *sides: int) -> Array:
        """(n, *sides) float32; new ones on every call."""
        return _spread(self._stream(), sides)

    def of_rows(self, lengths: Array, *sides: int) -> Array:
        """(N, *sides) float32 for each row of all series, one series after another; new ones on every call."""
        begin = np.cumsum(lengths) - lengths
        row = np.arange(int(lengths.sum())) - np.repeat(begin, lengths)
        with np.errstate(over="ignore"):
            state = np.repeat(self._stream(), lengths) + row.astype(np.uint64) * GOLDEN
        return _spread(_mixed(state), sides)

    def _stream(self) -> Array:
        """(n,) states at the start of this call."""
        self._drawn += 1
        with np.errstate(over="ignore"):
            return _mixed(self._series + np.uint64(self._drawn) * GOLDEN)


def _spread(state: Array, sides: tuple[int, ...]) -> Array:
    """(k,) states -> (k, *sides) numbers."""
    count = np.arange(int(np.prod(sides, dtype=np.int64)), dtype=np.uint64)
    with np.errstate(over="ignore"):
        bits = _mixed(state[:, None] + count * GOLDEN)
    return ((bits >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)).reshape(len(state), *sides)


def _mixed(state: Array) -> Array:
    """The final mixing of SplitMix64: every bit of the state affects every bit of the result."""
    with np.errstate(over="ignore"):
        state = state + GOLDEN
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
