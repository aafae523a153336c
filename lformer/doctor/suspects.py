"""Detect numbers that are marks for missing values, and time stamps that are dates written as numbers.

A number is taken as a mark if it repeats, lies at an end of its channel and leaves a gap to all other values that is
wider than their own range on that side, both in their own unit and as logarithms, because skewed channels have extreme
values that are real. All thresholds are in this file; they are set so that ordinary data, whether rounded, skewed,
counts or mostly 0, raise no suspicion.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lformer.arrays import Array

REPEATS = 3  # least number of times that a mark occurs
ENDS = 6  # number of different values at either end that are checked
ENOUGH = 20  # least number of values besides the marks, and of different ones in a channel that is no code or count
APART, LOG_APART = 3.0, 1.5  # gap to the others, in their robust deviations; as logarithms
CODE_APART = 0.5  # share of the gap as logarithms that is enough for a code
LEVELS_APART = 5.0  # gap from a code to the others of a channel of few levels, relative to their size
LONE_APART = 3.0  # gap from the only negative numbers to the others, relative to the distance between neighbours there
LONE_OFTEN = 2.0  # or how much more frequent it is than any of its neighbours
OFTEN = 2.0  # how much more frequent a mark that is no code is than its neighbours usually are
MOST = 0.25  # largest share of a mark that could well be a value, such as 0
MOST_OF_CODE = 0.9  # largest share of a mark that could hardly be a value, such as -9999
HUGE = 1e9  # from this size on, a repeated number is a code
CODES = {99.0, 999.0, 9999.0, 99999.0, 999999.0, 9999999.0, 32767.0, 32768.0, 65535.0}  # of either sign
LONE_CODES = {-1.0, -9.0, -77.0, -88.0, -99.0}  # in channels that are never negative otherwise


class Mark(NamedTuple):
    """A number that seems to stand for missing values, and how often it occurs."""

    value: float
    times: int


class Counted(NamedTuple):
    """The different values (k,), sorted, and how often each occurs."""

    values: Array
    times: Array


def find_marks(values: Array) -> list[Mark]:
    """The marks among (n,) finite values of one channel, most frequent first.

    Example:
        >>> find_marks(np.append(np.linspace(60, 100, 50), [-9999.0] * 4))
        [Mark(value=-9999.0, times=4)]
    """
    if len(values) < ENOUGH + REPEATS:
        return []
    distinct, times = np.unique(values, return_counts=True)
    distinct = distinct.astype(np.float64)
    found: list[Mark] = []
    for _ in range(3):  # marks at one end may hide those at the other
        fresh = [*_at_the_low_end(distinct, times), *_mirrored(_at_the_low_end(-distinct[::-1], times[::-1]))]
        if not fresh:
            break
        found += fresh
        kept = ~np.isin(distinct, [mark.value for mark in fresh])
        distinct, times = distinct[kept], times[kept]
    return sorted(found, key=lambda mark: -mark.times)


def _mirrored(marks: Iterator[Mark]) -> Iterator[Mark]:
    return (Mark(0.0 - mark.value, mark.times) for mark in marks)  # and no -0


def _at_the_low_end(distinct: Array, times: Array) -> Iterator[Mark]:
    """Marks below all others, or among a few stray values there."""
    often = np.flatnonzero(times[:ENDS] >= REPEATS)
    if not len(often):
        return
    total = int(times.sum())
    for beyond in range(min(ENDS, len(distinct) - 1), int(often[0]), -1):
        low, others = Counted(distinct[:beyond], times[:beyond]), Counted(distinct[beyond:], times[beyond:])
        if others.times.sum() < ENOUGH or not _stand_apart(low, others):
            continue
        usual = float(np.median(others.times[:ENDS]))
        for mark in map(Mark, low.values.tolist(), low.times.tolist()):
            code = is_code(mark.value)
            least, most = (0.0, MOST_OF_CODE) if code else (OFTEN * usual, MOST)
            if max(REPEATS, least) <= mark.times <= most * total:
                yield mark
        return


def is_code(value: float) -> bool:
    """Whether a number is one that people write for missing values and seldom measure."""
    return abs(value) in CODES or abs(value) >= HUGE


def _stand_apart(low: Counted, others: Counted) -> bool:
    """Whether the values `low` do not belong to the distribution of the values above them."""
    smallest, codes = float(others.values[0]), all(map(is_code, low.values.tolist()))
    gap = smallest - float(low.values[-1])
    if len(others.values) < ENOUGH:  # levels, a count, a switch
        size = max(float(others.values[-1]) - smallest, float(np.abs(others.values).max()))
        return len(others.values) > 1 and codes and gap >= LEVELS_APART * size
    if smallest >= 0 and all(value in LONE_CODES for value in low.values.tolist()):
        usual = (float(others.values[10]) - smallest) / 10
        return gap >= LONE_APART * usual or low.times.max() >= LONE_OFTEN * others.times[:ENDS].max()
    return _isolated(low, others, APART, 1.0) and _isolated(
        *_logarithms(low, others), LOG_APART, CODE_APART if codes else 1.0
    )


def _isolated(low: Counted, others: Counted, spreads: float, share: float) -> bool:
    """Whether the gap is at least a share of the others' deviation times `spreads`, and of their reach on this side."""
    smallest = others.values[0]
    q1, median, q3 = _quartiles(others)
    spread = (q3 - q1) / 1.349 if q3 > q1 else (others.values[-1] - smallest) / 4  # as of a normal distribution
    return bool(smallest - low.values[-1] >= share * max(spreads * spread, median - smallest))


def _quartiles(ordered: Counted) -> Array:
    below = np.cumsum(ordered.times)
    return ordered.values[np.searchsorted(below, np.array([0.25, 0.5, 0.75]) * below[-1])]


def _logarithms(low: Counted, others: Counted) -> tuple[Counted, Counted]:
    """Signed logarithms; linear near 0, that is, below the median size of the others."""
    order = np.argsort(np.abs(others.values))
    unit = _quartiles(Counted(np.abs(others.values)[order], others.times[order]))[1] or 1.0
    both = (Counted(np.sign(x) * np.log1p(np.abs(x) / unit), times) for x, times in (low, others))
    return next(both), next(both)


# -- dates written as numbers

FORMATS = {  # pattern of a date: the largest month, day, ..., second, and the format for pandas
    "YYYYMMDD": ((12, 31), "%Y%m%d"),
    "YYYYMM": ((12,), "%Y%m"),
    "YYMMDD": ((12, 31), "%y%m%d"),
    "YYMM": ((12,), "%y%m"),
    "YYYYMMDDHH": ((12, 31, 23), "%Y%m%d%H"),
    "YYYYMMDDHHMM": ((12, 31, 23, 59), "%Y%m%d%H%M"),
    "YYYYMMDDHHMMSS": ((12, 31, 23, 59, 59), "%Y%m%d%H%M%S"),
}
YEARS, SHORT_YEARS = (1900, 2100), (1, 99)
DATES = 8  # least number of different time stamps, which must all be dates
SHORT_DATES = 24  # the same for four digits, which many counts of days or hours also have


class Dates(NamedTuple):
    """The pattern of dates, their format for pandas, and two neighbours whose difference is not their interval."""

    written: str
    format: str
    before: int
    after: int


def find_dates(stamps: Array) -> Dates | None:
    """Find the date format of (N,) plain numbers from all series; None if they are not dates.

    Dates within a single month have the right intervals and are not reported.

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
        carried = np.flatnonzero(np.diff(distinct // 100))  # where a month ends, or a year if there are no days
        if len(carried) and len(distinct) >= (SHORT_DATES if written == "YYMM" else DATES):
            at = carried[np.argmin(np.diff(distinct)[carried])]
            return Dates(written, form, int(distinct[at]), int(distinct[at + 1]))
    return None


def _if_dates(stamps: Array, limits: tuple[int, ...]) -> Array:
    """The different time stamps, sorted, if all of them have a valid month, day, and so on; else empty."""
    whole = stamps.astype(np.int64)
    nothing: Array = whole[:0]
    if not np.array_equal(whole, stamps):
        return nothing
    rest = whole
    for place, limit in reversed(list(enumerate(limits))):
        rest, part = np.divmod(rest, 100)
        if part.max() > limit or (place < 2 and part.min() < 1):  # months and days start from 1
            return nothing
    return np.unique(whole)
