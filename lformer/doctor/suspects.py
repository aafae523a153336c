"""Questions to bare numbers: which values of a channel are marks for missing ones, and which stamps are dates?

A number is taken for a mark if it repeats, lies at an end of its channel and leaves a gap to all others that is wider
than they reach on that side, in their own unit and as logarithms: skewed channels have far values that are real. All
thresholds are here; they are set so that ordinary data, rounded, skewed, counted or mostly 0, raise no suspicion.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lformer.arrays import Array

REPEATS = 3  # times that a mark occurs at least
ENDS = 6  # different values at either end that are looked at
ENOUGH = 20  # values beside the marks, and different ones in a channel that is no code or count
APART = 3.0  # gap to the others, in their robust deviations
LEVELS_APART = 10.0  # gap to the others of a channel of few levels, in their size
LONE_APART = 3.0  # gap to the others of the only negative numbers, in the distance between neighbours there
MOST = 0.25  # share of a mark that could well be a value, such as 0
MOST_OF_CODE = 0.9  # share of one that hardly could, such as -9999
HUGE = 1e9  # size from which on a repeated number is a code
CODES = {99.0, 999.0, 9999.0, 99999.0, 999999.0, 9999999.0, 32767.0, 32768.0, 65535.0}  # of either sign
LONE_CODES = {-1.0, -9.0, -77.0, -88.0, -99.0}  # of a channel that is never negative otherwise


class Mark(NamedTuple):
    """A number that seems to stand for missing values, and how often it does."""

    value: float
    times: int


def find_marks(values: Array) -> list[Mark]:
    """The marks among (n,) finite values of one channel, most frequent first.

    Example:
        >>> find_marks(np.append(np.linspace(60, 100, 50), [-9999.0] * 4))
        [Mark(value=-9999.0, times=4)]
    """
    if len(values) < ENOUGH + REPEATS:
        return []
    distinct, count = np.unique(values, return_counts=True)
    distinct = distinct.astype(np.float64)
    found: list[Mark] = []
    for _ in range(3):  # marks at one end may hide those at the other
        fresh = [*_at_the_low_end(distinct, count), *_mirrored(_at_the_low_end(-distinct[::-1], count[::-1]))]
        if not fresh:
            break
        found += fresh
        kept = ~np.isin(distinct, [mark.value for mark in fresh])
        distinct, count = distinct[kept], count[kept]
    return sorted(found, key=lambda mark: -mark.times)


def _mirrored(marks: Iterator[Mark]) -> Iterator[Mark]:
    return (Mark(-mark.value, mark.times) for mark in marks)


def _at_the_low_end(distinct: Array, count: Array) -> Iterator[Mark]:
    """Marks below all others, or among a few stray values there."""
    often = np.flatnonzero(count[:ENDS] >= REPEATS)
    if not len(often):
        return
    total = int(count.sum())
    for beyond in range(min(ENDS, len(distinct) - 1), int(often[0]), -1):
        others, weight = distinct[beyond:], count[beyond:]
        if weight.sum() < ENOUGH or not _stand_apart(distinct[:beyond], others, weight):
            continue
        for value, n in zip(distinct[:beyond].tolist(), count[:beyond].tolist(), strict=True):
            if n >= REPEATS and n <= (MOST_OF_CODE if _is_code(value) else MOST) * total:
                yield Mark(value + 0.0, n)  # no -0
        return


def _is_code(value: float) -> bool:
    return abs(value) in CODES or abs(value) >= HUGE


def _stand_apart(low: Array, others: Array, weight: Array) -> bool:
    """Whether the different values `low` are no part of what lies above them."""
    gap = others[0] - low[-1]
    if len(others) < ENOUGH:  # a code, a count, a switch
        size = max(others[-1] - others[0], np.abs(others).max())
        return len(others) > 1 and all(map(_is_code, low.tolist())) and bool(gap >= LEVELS_APART * size)
    if others[0] >= 0 and all(value in LONE_CODES for value in low.tolist()):
        return bool(gap >= LONE_APART * (others[10] - others[0]) / 10)
    return _isolated(low, others, weight) and _isolated(*_logarithms(low, others, weight), weight)


def _isolated(low: Array, others: Array, weight: Array) -> bool:
    gap = others[0] - low[-1]
    q1, median, q3 = _quantiles(others, weight)
    spread = (q3 - q1) / 1.349 if q3 > q1 else (others[-1] - others[0]) / 4  # as of a normal distribution
    return bool(gap >= max(APART * spread, median - others[0]))


def _quantiles(ordered: Array, weight: Array) -> Array:
    """The quartiles of different numbers that occur so often."""
    below = np.cumsum(weight)
    return ordered[np.searchsorted(below, np.array([0.25, 0.5, 0.75]) * below[-1])]


def _logarithms(low: Array, others: Array, weight: Array) -> tuple[Array, Array]:
    """Of either sign, linear near 0."""
    order = np.argsort(np.abs(others))
    unit = _quantiles(np.abs(others)[order], weight[order])[1] or 1.0
    return (np.sign(low) * np.log1p(np.abs(low) / unit), np.sign(others) * np.log1p(np.abs(others) / unit))


# -- dates written as numbers

FORMATS = {  # how a date is written: the largest month, day, ..., second, and the format of pandas
    "YYYYMMDD": ((12, 31), "%Y%m%d"),
    "YYYYMM": ((12,), "%Y%m"),
    "YYMMDD": ((12, 31), "%y%m%d"),
    "YYMM": ((12,), "%y%m"),
    "YYYYMMDDHH": ((12, 31, 23), "%Y%m%d%H"),
    "YYYYMMDDHHMM": ((12, 31, 23, 59), "%Y%m%d%H%M"),
    "YYYYMMDDHHMMSS": ((12, 31, 23, 59, 59), "%Y%m%d%H%M%S"),
}
YEARS, SHORT_YEARS = (1900, 2100), (1, 99)
DATES = 8  # different stamps that must all be dates
SHORT_DATES = 24  # if they have four digits, as many a count of days or hours has


class Dates(NamedTuple):
    """How stamps are written, how pandas reads them, and two neighbours whose difference is no interval."""

    written: str
    format: str
    before: int
    after: int


def find_dates(stamps: Array) -> Dates | None:
    """The form of dates that (N,) plain numbers, of all series, have; None if they are no dates.

    Dates of a single month have the right intervals and are let be.

    Example:
        >>> find_dates(np.array([20240129, 20240130, 20240131, *range(20240201, 20240206)]))
        Dates(written='YYYYMMDD', format='%Y%m%d', before=20240131, after=20240201)
    """
    if not len(stamps) or stamps.dtype.kind not in "iuf":
        return None
    low, high = float(stamps.min()), float(stamps.max())
    for written, (limits, form) in FORMATS.items():
        first, last = YEARS if written.startswith("YYYY") else SHORT_YEARS
        if not first * 100 ** len(limits) <= low <= high < (last + 1) * 100 ** len(limits):
            continue
        distinct = _if_dates(stamps, limits)
        carried = np.flatnonzero(np.diff(distinct // 100))  # a month, or a year if there are no days, is over
        if len(carried) and len(distinct) >= (SHORT_DATES if written == "YYMM" else DATES):
            at = carried[np.argmin(np.diff(distinct)[carried])]
            return Dates(written, form, int(distinct[at]), int(distinct[at + 1]))
    return None


def _if_dates(stamps: Array, limits: tuple[int, ...]) -> Array:
    """The different stamps, sorted, if all of them have such a month, day, and so on; else none."""
    whole = stamps.astype(np.int64)
    nothing: Array = whole[:0]
    if not np.array_equal(whole, stamps):
        return nothing
    rest = whole
    for place, limit in reversed(list(enumerate(limits))):
        rest, part = np.divmod(rest, 100)
        if part.max() > limit or (place < 2 and part.min() < 1):  # there is no month or day 0
            return nothing
    return np.unique(whole)
