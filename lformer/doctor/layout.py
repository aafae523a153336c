"""The layout of records in time: rows merged by time stamp, series, gaps, lengths, and the cost of padding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lformer.doctor.records import Array, Records
from lformer.panel.stamps import choose_unit, elapsed

Figures = dict[str, float]

POOL = 50  # batches sorted by length among themselves, as in training


@dataclass(frozen=True, eq=False)
class Layout:
    """Series as a panel would store them, with all channels of a time stamp in one of N rows.

    Attributes:
        row_of: (R,) the row that each record belongs to, -1 if it has no id or time stamp.
        source: (N,) one record of each row.
        owner: (N,) the series of each row, not decreasing.
        times: (N,) float64 since the first row of each series, in `unit`.
        lengths: (n,) number of rows of each series.
        gaps: intervals between neighbouring rows of a series.
        after: the row after each gap.
        unit: "s" for calendar stamps, else "".
    """

    row_of: Array
    source: Array
    owner: Array
    times: Array
    lengths: Array
    gaps: Array
    after: Array
    unit: str

    def durations(self) -> Array:
        """(n,) time from the first row of each series to its last; 0 if it has none."""
        ends = np.cumsum(self.lengths)
        last = self.times[np.maximum(ends - 1, 0)] if len(self.times) else np.zeros(len(ends))
        return np.where(self.lengths > 0, last, 0.0)


def lay_out(records: Records) -> Layout:
    """Sort the records that have an id and a time stamp, and merge those with the same time stamp."""
    kept = np.flatnonzero((records.owner >= 0) & ~records.lost)
    owner, clock = records.owner[kept], records.clock[kept]
    same = owner[1:] == owner[:-1]
    if not bool(((owner[1:] > owner[:-1]) | (same & (clock[1:] >= clock[:-1]))).all()):
        order = np.argsort(clock)
        order = order[by_number(owner[order])]
        kept, owner, clock = kept[order], owner[order], clock[order]
    fresh = np.ones(len(kept), bool)
    fresh[1:] = (owner[1:] != owner[:-1]) | (clock[1:] != clock[:-1])
    row_of = np.full(len(records.owner), -1)
    row_of[kept] = np.cumsum(fresh) - 1
    source, owner, clock = kept[fresh], owner[fresh], clock[fresh]
    lengths = np.bincount(owner, minlength=len(records.ids))
    unit = choose_unit(clock.dtype.kind, None)
    begins = (np.cumsum(lengths) - lengths)[lengths > 0]
    with np.errstate(over="ignore", invalid="ignore"):
        times = _since(clock, np.repeat(clock[begins], lengths[lengths > 0]), unit)
        after = 1 + np.flatnonzero(owner[1:] == owner[:-1])
        gaps = times[after] - times[after - 1]
    return Layout(row_of, source, owner, times, lengths, gaps, after, unit)


def by_number(small: Array) -> Array:
    """Stable order of non-negative integers; by far the fastest if they fit into 16 bits."""
    return np.argsort(small.astype(np.uint16) if small.max(initial=0) < 2**16 else small, kind="stable")


def distinct(numbers: Array) -> int:
    """The number of different values; much faster than finding the values themselves."""
    if not bool((numbers[1:] >= numbers[:-1]).all()):
        numbers = np.sort(numbers)
    return int((numbers[1:] != numbers[:-1]).sum()) + (len(numbers) > 0)


def _since(clock: Array, origin: Array, unit: str) -> Array:
    """float64 time from `origin` to `clock`, which is never earlier; infinite if it overflows 64-bit integers."""
    if clock.dtype.kind == "f":
        return elapsed(clock, origin, unit)
    wrapped = (clock - origin).astype(np.int64) < 0
    times = elapsed(np.where(wrapped, origin, clock), origin, unit)
    times[wrapped] = np.inf
    return times


def padding(lengths: Array, size: int) -> tuple[float, float]:
    """Share of padding in batches of `size` series drawn at random, and of similar length, as in training."""
    order = np.random.RandomState(0).permutation(len(lengths))
    pools = (order[start : start + POOL * size] for start in range(0, len(order), POOL * size))
    sorted_pools = [pool[np.argsort(lengths[pool], kind="stable")] for pool in pools]
    return _waste(lengths[order], size), _waste(lengths[np.concatenate([order[:0], *sorted_pools])], size)


def _waste(lengths: Array, size: int) -> float:
    """1 - valid / padded for consecutive batches."""
    if not len(lengths) or not lengths.any():
        return 0.0
    starts = np.arange(0, len(lengths), size)
    in_batch = np.diff(np.append(starts, len(lengths)))
    padded = (np.maximum.reduceat(lengths, starts) * in_batch).sum()
    return float(1 - lengths.sum() / padded)
