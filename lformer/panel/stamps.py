"""Time stamps of any kind to float64 since the first of a series, and back.

Differences are taken before anything is rounded: calendar stamps and whole numbers exactly, in 64-bit integers. float64
then holds them to the nanosecond over 104 days, to the microsecond over 285 years.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import numpy as np

from lformer.arrays import Array, any_array, shown

LONGEST = float(np.finfo(np.float32).max) / 2  # span of a series: the difference of any two times fits into float32
COARSE = 0.05  # as a share of the median gap: what a narrow type may have rounded away
UNITS = {"ns": "ns", "us": "us", "ms": "ms", "s": "s", "min": "m", "h": "h", "D": "D"}  # ours: numpy's


def as_stamps(values: Any, name: str) -> Array:
    """float64, int64, datetime64 (UTC) or timedelta64 from whatever holds them.

    Args:
        values: list, array, pandas Series or Index.
        name: what to call them in an error.
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
    """Dates without a time of day, which pandas holds as objects, as datetime64 at midnight; else as it is."""
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
    """The same instants without a time zone, if they have one: the instant is what counts."""
    if stored_zone(values) is None:
        return values
    if hasattr(values, "iloc"):  # a pandas Series
        return values.dt.tz_convert("UTC").dt.tz_localize(None)
    return values.tz_convert("UTC").tz_localize(None) if hasattr(values, "tz_convert") else values  # others are in UTC


def _how_to_convert(array: Array) -> str:
    """What to do with objects or text; dates that do not share a time zone are objects to numpy."""
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
    """The dtype in which stamps were handed over, of numpy or pandas."""
    dtype = getattr(values, "dtype", None)
    return dtype if hasattr(dtype, "kind") else np.asarray(values).dtype


def require_fine(stored: Any, clock: Array, owner: Array, name: str) -> None:
    """Refuse stamps that a narrow floating type has rounded to a grid about as coarse as their gaps.

    Args:
        stored: the dtype they came in, as `stored_dtype` tells it.
        clock, owner: (N,) the stamps, and whose each is.
        name: what to call them.
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
    """Months and years as days: they differ in length, so nothing can be measured in them."""
    unit, _ = np.datetime_data(array.dtype)
    if array.dtype.kind == "M" and unit in ("Y", "M"):
        return array.astype("datetime64[D]")
    if unit in ("Y", "M", "generic"):
        raise TypeError(f"{name} must have a unit of fixed length, such as timedelta64[s]; got {array.dtype}.")
    return array


def missing(array: Array) -> Array:
    """Where a stamp is NaN, NaT or infinite."""
    return ~np.isfinite(array)


def too_long(times: Array, first: Array, lengths: Array) -> int | None:
    """The first series that spans more than differences in float32 can hold; rows `first` to `first + lengths` each."""
    filled = np.flatnonzero(lengths > 0)
    last = first[filled] + lengths[filled] - 1
    with np.errstate(over="ignore"):
        bad = ~(times[last] - times[first[filled]] <= LONGEST)
    return int(filled[np.argmax(bad)]) if bad.any() else None


def choose_unit(kind: str, unit: str | None) -> str:
    """The unit of a panel's times: calendar stamps must have one, numbers may have a label."""
    if unit is not None and not isinstance(unit, str):
        raise TypeError(f"unit must be a text, such as 'h'; got {shown(unit)}.")
    if kind not in "mM":
        return unit or ""
    unit = unit or "s"
    if unit not in UNITS:
        raise ValueError(f"unit must be one of {', '.join(UNITS)} for calendar stamps; got {unit!r}.")
    return unit


def one_of(unit: str) -> Any:
    """One of our units as numpy's timedelta64."""
    return np.timedelta64(1, UNITS[unit])  # type: ignore[call-overload]


def elapsed(clock: Array, origin: Array, unit: str) -> Array:
    """float64 from `origin` to `clock`, both of one kind, in the unit."""
    difference = clock - origin  # exact for integers and calendar stamps
    if difference.dtype.kind != "f" and bool(((difference < np.zeros((), difference.dtype)) != (clock < origin)).any()):
        raise ValueError("the times of a series span more than 64-bit numbers can hold.")
    if difference.dtype.kind == "m":
        return difference / one_of(unit)
    return difference.astype(np.float64)


def stamps(times: Array, origin: Any, unit: str) -> Array:
    """Back to the stamps the user gave: `origin` plus `times`."""
    origin = np.asarray(origin)
    if origin.dtype.kind in "mM":  # rounded to the user's own unit, which is all that was ever there
        own, count = np.datetime_data(origin.dtype)
        tick = np.timedelta64(count, own)  # type: ignore[call-overload]
        ticks = np.rint(times * (one_of(unit) / tick))
        return origin + ticks.astype(np.int64) * tick
    if origin.dtype.kind == "i":
        return origin + np.rint(times).astype(np.int64)
    return origin + times
