"""Calendar features: the position of a date in the day, the week and the year, as sines and cosines.

    "hour"      hour of the day, with minutes: 3 harmonics
    "weekday"   3 harmonics of whole days, in which any pattern of seven days is linear
    "year"      day of the year, with hours: 2 harmonics

They are computed in the local time of a time zone, so that nine o'clock is nine o'clock in summer and in winter.

Time stamps that are numbers or durations have no calendar, but series often share a clock: hours since admission, or of
the day. The position of a row on it is encoded in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from lformer.arrays import Array, shown
from lformer.panel.core import Panel
from lformer.panel.stamps import one_of
from lformer.panel.zones import wall_clock

HARMONICS = {"hour": 3, "weekday": 3, "year": 2}
CLOCK_HARMONICS = 1  # of a shared clock, in addition to the time itself
FAR = 2.0  # positions outside a clock are clipped at this distance from its middle, in half-lengths
OUTER = 0.05  # share of the series that may begin before or end after a shared clock
COMMON = 0.5  # length of a typical series, as a share of a shared clock
DAYS = {"hour": 1.0, "weekday": 7.0, "year": 365.0}  # length of each period
Choice = Literal["auto", False] | tuple[str, ...]

_MICROSECOND = np.timedelta64(1, "us")
_DAY = np.timedelta64(1, "D")
_MONDAY = 3  # 1970 began on a Thursday


@dataclass(frozen=True)
class Calendar:
    """Calendar features: the periods and the time zone, or a shared clock; by default none.

    Example:
        >>> dates = np.array(["2024-01-01", "2024-01-08", "2024-01-09"], "datetime64[us]")  # a Monday is the first
        >>> found = Calendar(("weekday",)).of(dates)
        >>> found.shape, bool((found[0] == found[1]).all()), bool((found[1] == found[2]).all())
        ((3, 6), True, False)
    """

    periods: tuple[str, ...] = ()
    zone: str | None = None
    clock: tuple[float, float] | None = None  # start and length of a shared clock

    @property
    def width(self) -> int:
        """M, the number of features."""
        clock = 0 if self.clock is None else 1 + 2 * CLOCK_HARMONICS
        return 2 * sum(HARMONICS[name] for name in self.periods) + clock

    def of(self, stamps: Array, unit: str = "") -> Array:
        """(...,) datetime64 (in UTC if there is a time zone), or numbers or durations of a clock -> (..., M) float32"""
        if self.clock is not None:
            return self._on_clock(as_numbers(stamps, unit))
        return self._on_calendar(stamps)

    def _on_clock(self, moments: Array) -> Array:
        assert self.clock is not None
        begins, length = self.clock
        passed = (moments - begins) / length
        time = np.clip(2 * passed - 1, -FAR, FAR)[..., None]
        return np.concatenate([time, _waves(passed, CLOCK_HARMONICS)], axis=-1).astype(np.float32)

    def _on_calendar(self, dates: Array) -> Array:
        clock = wall_clock(dates.astype("datetime64[us]"), self.zone)
        parts = [_waves(_phase(name, clock), HARMONICS[name]) for name in self.periods]
        return np.concatenate([np.zeros((*clock.shape, 0)), *parts], axis=-1).astype(np.float32)

    def marks(self, panel: Panel, index: slice | Array, since: Array) -> Array:
        """(B, N, M) features of (B, N) times since the first row of each series."""
        if self.clock is not None:
            return self._on_clock(
                (as_numbers(panel.origin[index], panel.unit) + panel.first_times(index))[:, None] + since
            )
        ticks = np.rint((panel.first_times(index)[:, None] + since) * (one_of(panel.unit) / _MICROSECOND))
        return self.of(panel.origin[index].astype("datetime64[us]")[:, None] + ticks.astype(np.int64) * _MICROSECOND)


NO_CALENDAR = Calendar()


def choose(panel: Panel, calendar: Any) -> Calendar:
    """The calendar features of training series: those they support if "auto", none if False, or the named ones.

    A period is supported if dates differ within it and most series are longer than it.
    """
    dated = panel.origin.dtype.kind == "M"
    if calendar is False:
        return NO_CALENDAR
    if isinstance(calendar, str) and calendar == "auto":
        periods = tuple(name for name in HARMONICS if dated and _can_be_seen(panel, name))
        return Calendar(periods, panel.zone if periods else None)
    names = check_calendar(calendar)
    if names and not dated:
        kind = "durations" if panel.origin.dtype.kind == "m" else "numbers"
        raise ValueError(f"calendar={calendar!r} needs dates, but the times of X are {kind}. Use calendar=False.")
    return Calendar(names, panel.zone if names else None)


def as_numbers(stamps: Array, unit: str) -> Array:
    """(...,) durations in a unit of time; numbers are returned unchanged."""
    return (stamps / one_of(unit) if stamps.dtype.kind == "m" else stamps).astype(np.float64)


def choose_clock(panel: Panel, clock: Any) -> tuple[float, float] | None:
    """Start and length of the clock that training series share; None if there is none, or it is not wanted.

    Series share a clock if they begin at different times of it and most of them cover at least half of it. If all begin
    at the same time, the time since then carries the same information.
    """
    if clock is False or (clock == "auto" and panel.origin.dtype.kind == "M"):
        return None
    if panel.origin.dtype.kind == "M":
        raise ValueError("clock=True is for times that are numbers or durations; those of X are dates. See `calendar`.")
    filled = panel[panel.lengths > 0]
    if not len(filled):
        return None
    origin = as_numbers(filled.origin, panel.unit)
    begins, ends = (origin + filled.times[filled.first + row] for row in (0 * filled.lengths, filled.lengths - 1))
    first, last = float(np.quantile(begins, OUTER)), float(np.quantile(ends, 1 - OUTER))
    if not first < last:
        return None
    common = np.ptp(begins) > 0 and np.median(ends - begins) > COMMON * (last - first)
    return (first, last - first) if common or clock is True else None


def check_calendar(calendar: Any) -> tuple[str, ...]:
    """The named periods, in the order of `HARMONICS`; none for "auto" and False; raises a clear error otherwise."""
    if calendar is False or (isinstance(calendar, str) and calendar == "auto"):
        return ()
    known = ", ".join(map(repr, HARMONICS))
    if not isinstance(calendar, tuple | list):
        raise ValueError(f'calendar must be "auto", False or a tuple of names among {known}; got {shown(calendar)}.')
    for name in calendar:
        if not isinstance(name, str) or name not in HARMONICS:
            raise ValueError(f"calendar must name periods among {known}; got {shown(name)}.")
    return tuple(name for name in HARMONICS if name in calendar)


def _can_be_seen(panel: Panel, name: str) -> bool:
    """Whether most series are longer than the period, and their rows are not all at the same position in it."""
    filled = panel[panel.lengths > 0]
    if not len(filled):
        return False
    spans = filled.times[filled.first + filled.lengths - 1] - filled.first_times()
    if np.median(spans) * (one_of(panel.unit) / _DAY) <= DAYS[name]:
        return False
    owner = np.repeat(np.arange(len(filled)), filled.lengths)
    ticks = np.rint(filled.times[filled.rows()] * (one_of(panel.unit) / _MICROSECOND)).astype(np.int64)
    clock = wall_clock(filled.origin[owner].astype("datetime64[us]") + ticks * _MICROSECOND, panel.zone)
    return bool(np.ptp(_phase(name, clock)) > 0)


def _phase(name: str, clock: Array) -> Array:
    """(...,) datetime64[us] in local time -> (...,) float64, position in the period, from 0 to below 1."""
    day = clock.astype("datetime64[D]")
    if name == "weekday":
        return ((day.astype(np.int64) + _MONDAY) % 7) / 7
    passed = (clock - day) / _DAY
    if name == "hour":
        return passed
    year = clock.astype("datetime64[Y]")
    begins, ends = year.astype("datetime64[D]"), (year + 1).astype("datetime64[D]")
    return ((day - begins) / _DAY + passed) / ((ends - begins) / _DAY)


def _waves(phase: Array, harmonics: int) -> Array:
    """(...,) -> (..., 2 H), sine and cosine of each harmonic."""
    angle = 2 * np.pi * phase[..., None] * np.arange(1, harmonics + 1)
    return np.concatenate([np.sin(angle), np.cos(angle)], axis=-1)
