"""Convert time stamps of any kind to float64 since the first one of a series, and back.

Differences are taken before rounding: for dates, durations and integers exactly, in 64-bit integers. float64 then
represents them to the nanosecond over 104 days, to the microsecond over 285 years.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import numpy as np

from lformer.arrays import Array, any_array, shown

LONGEST = float(np.finfo(np.float32).max) / 2  # longest span of a series, so that time differences fit into float32
COARSE = 0.05  # rounding of a narrow type that is tolerated, as a share of the median gap
UNITS = {"ns": "ns", "us": "us", "ms": "ms", "s": "s", "min": "m", "h": "h", "D": "D"}  # ours: numpy's


def as_stamps(values: Any, name: str) -> Array:
    """Time stamps of any type as float64, int64, datetime64 (UTC) or timedelta64.

    Args:
        values: list, array, pandas Series or Index.
        name: how to refer to them in errors.
    """
    array = _dates(any_array(_in_utc(values), name))
    if array.dtype.kind not in "fiumM":
        example = shown(array.ravel()[0]) if array.size else "nothing"
        raise TypeError(
            f"{name} must be numbers, datetime64 or timedelta64; got {array.dtype}, such as {example}. "
            f"{_how_to_convert(array)}"
        )
    if array.dtype.kind in "mM":
        return _of_fixed_unit(array, name)
    if array.dtype.kind == "f":
        return array.astype(np.float64, copy=False)
    if array.size and array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name} must be below 2**63; got {array.max()}. Subtract the first one from all.")
    return array.astype(np.int64, copy=False)  # narrow ones would overflow when subtracted


def _dates(array: Array) -> Array:
    """datetime64 at midnight for dates without a time of day, which pandas stores as objects; else unchanged."""
    if array.dtype.kind != "O" or not array.size:
        return array
    if any(type(one) is not date and one is not None for one in array.ravel().tolist()):
        return array
    return array.astype("datetime64[D]").astype("datetime64[s]")


def stored_zone(values: Any) -> Any:
    """The time zone of an array, an Index or a column of any library; None if it has none."""
    dtype = getattr(values, "dtype", None)
    for one in (dtype, getattr(dtype, "pyarrow_dtype", None), getattr(values, "type", None)):  # the last of pyarrow
        zone = getattr(one, "tz", None) or getattr(one, "time_zone", None)  # as polars calls it
        if zone is not None:
            return zone
    return None


def _in_utc(values: Any) -> Any:
    """The same instants in UTC, without a time zone, if they have one."""
    if stored_zone(values) is None:
        return values
    if hasattr(values, "iloc"):  # a pandas Series
        return values.dt.tz_convert("UTC").dt.tz_localize(None)
    return values.tz_convert("UTC").tz_localize(None) if hasattr(values, "tz_convert") else values  # others are in UTC


def _how_to_convert(array: Array) -> str:
    """Advice for objects or text; dates in different time zones are objects in numpy."""
    zones: dict[str, Any] = {}
    for one in array.ravel().tolist():
        moment = one if isinstance(one, datetime) else _read_date(one)
        if moment is not None:
            zones.setdefault(str(moment.tzinfo or "no time zone"), one)
        if len(zones) > 1:
            mixed = " and ".join(f"{one} ({zone})" for zone, one in zones.items())
            return f"They mix {mixed}: convert stamps of several time zones with pandas.to_datetime(..., utc=True)."
    return "Convert text with pandas.to_datetime(...) or pandas.to_numeric(...)."


def _read_date(text: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except (ValueError, TypeError):
        return None


def stored_dtype(values: Any) -> Any:
    """The original dtype of the time stamps, in numpy or pandas."""
    dtype = getattr(values, "dtype", None)
    return dtype if hasattr(dtype, "kind") else np.asarray(values).dtype


def require_fine(stored: Any, clock: Array, owner: Array, name: str) -> None:
    """Raise for time stamps that a narrow floating-point type has rounded to a grid about as coarse as their gaps.

    Args:
        stored: their original dtype, from `stored_dtype`.
        clock, owner: (N,) time stamps, and the series of each.
        name: how to refer to them in errors.
    """
    if getattr(stored, "kind", "") != "f" or stored.itemsize >= 8:
        return
    clock, owner = clock[np.isfinite(clock)], owner[np.isfinite(clock)]
    if len(clock) < 2:
        return
    order = np.lexsort([clock, owner])
    gaps = np.diff(clock[order])[np.diff(owner[order]) == 0]
    gaps = gaps[gaps > 0]
    step = float(np.spacing(np.abs(clock).max().astype(stored)))
    if len(gaps) and step > COARSE * float(np.median(gaps)):
        raise ValueError(
            f"{name} are {stored} up to {np.abs(clock).max():g}, where the next number is {step:g} away; with gaps of "
            f"about {np.median(gaps):g} they have been rounded, and their intervals are wrong. Read them again from "
            "the source as float64, int64 or datetime64; what was rounded away cannot be recovered. If the intervals "
            "are to be as they are, convert to float64."
        )


def _of_fixed_unit(array: Array, name: str) -> Array:
    """Dates in months or years as days; durations in them are refused, because they have no fixed length."""
    unit, _ = np.datetime_data(array.dtype)
    if array.dtype.kind == "M" and unit in ("Y", "M"):
        return array.astype("datetime64[D]")
    if unit in ("Y", "M", "generic"):
        raise TypeError(f"{name} must have a unit of fixed length, such as timedelta64[s]; got {array.dtype}.")
    return array


def missing(array: Array) -> Array:
    """Where a time stamp is NaN, NaT or infinite."""
    return ~np.isfinite(array)


def too_long(times: Array, first: Array, lengths: Array) -> int | None:
    """The first series whose span overflows differences in float32; its rows are `first` to `first + lengths`."""
    filled = np.flatnonzero(lengths > 0)
    last = first[filled] + lengths[filled] - 1
    with np.errstate(over="ignore"):
        bad = ~(times[last] - times[first[filled]] <= LONGEST)
    return int(filled[np.argmax(bad)]) if bad.any() else None


def choose_unit(kind: str, unit: str | None) -> str:
    """The unit of a panel's times: dates and durations need one, for numbers it is an optional label."""
    if unit is not None and not isinstance(unit, str):
        raise TypeError(f"unit must be a text, such as 'h'; got {shown(unit)}.")
    if kind not in "mM":
        return unit or ""
    unit = unit or "s"
    if unit not in UNITS:
        raise ValueError(f"unit must be one of {', '.join(UNITS)} for calendar stamps; got {unit!r}.")
    return unit


def one_of(unit: str) -> Any:
    """One unit of time as numpy's timedelta64."""
    return np.timedelta64(1, UNITS[unit])  # type: ignore[call-overload]


def elapsed(clock: Array, origin: Array, unit: str) -> Array:
    """float64 time from `origin` to `clock`, both of one kind, in the unit."""
    difference = clock - origin  # exact for integers and calendar stamps
    if difference.dtype.kind != "f" and bool(((difference < np.zeros((), difference.dtype)) != (clock < origin)).any()):
        raise ValueError("the times of a series span more than 64-bit numbers can hold.")
    if difference.dtype.kind == "m":
        return difference / one_of(unit)
    return difference.astype(np.float64)


def stamps(times: Array, origin: Any, unit: str) -> Array:
    """Convert back to the time stamps that the user gave: `origin` plus `times`."""
    origin = np.asarray(origin)
    if origin.dtype.kind in "mM":  # rounded to the original resolution
        own, count = np.datetime_data(origin.dtype)
        tick = np.timedelta64(count, own)  # type: ignore[call-overload]
        ticks = np.rint(times * (one_of(unit) / tick))
        return origin + ticks.astype(np.int64) * tick
    if origin.dtype.kind == "i":
        return origin + np.rint(times).astype(np.int64)
    return origin + times
