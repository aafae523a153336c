"""Ticks for a time axis, and durations in words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lformer.arrays import Array
from lformer.panel.zones import instants, wall_clock

Tick = tuple[float, str]  # position between the first and the last time, from 0 to 1, and label
ABOUT = 5  # approximate number of ticks
STEPS: tuple[tuple[str, tuple[int, ...]], ...] = (  # steps of calendar axes, from fine to coarse
    ("us", (1, 10, 100)), ("ms", (1, 10, 100)), ("s", (1, 5, 15, 30)), ("m", (1, 5, 15, 30)), ("h", (1, 3, 6, 12)),
    ("D", (1, 2, 5, 10)), ("M", (1, 3, 6)), ("Y", (1, 2, 5, 10, 20, 50, 100, 1000, 10_000)),
)  # fmt: skip
SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "D": 86400.0, "M": 2.6298e6, "Y": 3.15576e7}
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def share_of(moments: Array) -> Array:
    """(L,) relative positions of times between the first and the last, from 0 to 1; 0.5 if all are equal."""
    passed = (moments - moments[0]).astype(np.float64)
    return passed / passed[-1] if passed[-1] > 0 else np.full(len(moments), 0.5)


def number_ticks(moments: Array) -> list[Tick]:
    """Ticks at round numbers between the first and the last time.

    Example:
        >>> number_ticks(np.array([0.0, 17.5, 40.0]))
        [(0.0, '0'), (0.25, '10'), (0.5, '20'), (0.75, '30'), (1.0, '40')]
    """
    low, high = float(moments[0]), float(moments[-1])
    if not high > low:
        return [(0.5, figure(low))]
    raw = high / ABOUT - low / ABOUT
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(m * size for m in (1, 2, 5, 10) if m * size >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    digits = max(0, -math.floor(math.log10(step)))
    return [((k * step - low) / (high - low), _rounded(k * step, digits)) for k in range(first, last + 1)]


def stamp_ticks(moments: Array, zone: str | None) -> list[Tick]:
    """Ticks at round local times between the first and the last of some instants, with calendar labels.

    Example:
        >>> dates = np.array(["2024-02-28T18:00", "2024-03-03T18:00"], "datetime64[s]")
        >>> [label for _, label in stamp_ticks(dates, None)]
        ['29 Feb', '1 Mar', '2 Mar', '3 Mar']
    """
    ends = moments[[0, -1]].astype("datetime64[us]")
    first, last = wall_clock(ends, zone)
    if not ends[1] > ends[0]:
        return [(0.5, str(first.astype("datetime64[s]")).replace("T", " "))]
    unit, count = _step(float((ends[1] - ends[0]) / np.timedelta64(1, "s")))
    begin, end = (one.astype(f"M8[{unit}]").astype(np.int64) for one in (first, last))
    places = np.arange(begin, end + 1)
    if unit == "D" and count > 1:  # the first day of each month, and some other days
        day = _days_of_month(places)
        places = places[(day % count == 1) & (day < 30)]
    elif unit != "D":
        places = places[(places + (1970 if unit == "Y" else 0)) % count == 0]
    shown = places.astype(f"M8[{unit}]").astype("M8[us]")
    there = (instants(shown, zone) - ends[0]) / (ends[1] - ends[0])
    return [(float(at), _label(one, unit)) for at, one in zip(there, shown, strict=True) if 0 <= at <= 1]


def _step(seconds: float) -> tuple[str, int]:
    """The finest calendar step with at most about `ABOUT` ticks."""
    for unit, counts in STEPS:
        for count in counts:
            if seconds <= (ABOUT + 1) * count * SECONDS[unit]:
                return unit, count
    return STEPS[-1][0], STEPS[-1][1][-1]


def _days_of_month(days: Array) -> Array:
    dates = days.astype("M8[D]")
    return (dates - dates.astype("M8[M]").astype("M8[D]")).astype(np.int64) + 1


def _label(moment: Any, unit: str) -> str:
    """The label of a tick at a step of this unit; midnight is labelled by its date, 1 January by its year."""
    date, _, clock = str(moment).partition("T")
    year, month, day = date.rsplit("-", 2)
    if unit in ("Y", "M") or clock.startswith("00:00:00.000000"):
        if unit == "Y":
            return year
        return f"{MONTHS[int(month) - 1]} {year}" if unit == "M" else f"{int(day)} {MONTHS[int(month) - 1]}"
    digits = {"us": 15, "ms": 12, "s": 8}.get(unit, 5)
    return clock[:digits]


def duration(seconds: float) -> str:
    """A duration in a suitable unit.

    Example:
        >>> duration(600), duration(0.25), duration(129_600), duration(0)
        ('10 min', '250 ms', '1.5 days', '0 s')
    """
    size = abs(seconds)
    for unit, length in (("days", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if size >= length * (1 - 1e-9):
            amount = seconds / length
            return f"{figure(amount)} {'day' if unit == 'days' and figure(amount) == '1' else unit}"
    return f"{figure(seconds * 1e9)} ns" if seconds else "0 s"


def figure(value: float) -> str:
    """A number with few digits: 12,345 and 0.00123, but 1.2e+09."""
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        text = f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
        return text
    return f"{value:.3g}"


def _rounded(value: float, digits: int) -> str:
    return figure(value) if abs(value) >= 1e6 or digits > 6 else f"{value + 0.0:,.{digits}f}"
