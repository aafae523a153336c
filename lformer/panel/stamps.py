"""Time stamps of any kind to float64 since the first of a series, and back.

Differences are taken before anything is rounded: calendar stamps and whole numbers exactly, in 64-bit integers. float64
then holds them to the nanosecond over 104 days, to the microsecond over 285 years.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

UNITS = {"ns": "ns", "us": "us", "ms": "ms", "s": "s", "min": "m", "h": "h", "D": "D"}  # ours: numpy's


def as_stamps(values: Any, name: str) -> Array:
    """float64, int64, datetime64 (UTC) or timedelta64 from whatever holds them.

    Args:
        values: list, array, pandas Series or Index.
        name: what to call them in an error.
    """
    array = np.asarray(_in_utc(values))
    if array.dtype.kind not in "fiumM":
        example = repr(array.ravel()[0]) if array.size else "nothing"
        raise TypeError(
            f"{name} must be numbers, datetime64 or timedelta64; got {array.dtype}, such as {example}. Convert text "
            f"with pandas.to_datetime(...) or pandas.to_numeric(...), stamps of several time zones with "
            f"pandas.to_datetime(..., utc=True)."
        )
    if array.dtype.kind in "mM":
        return _of_fixed_unit(array, name)
    if array.dtype.kind == "f":
        return array.astype(np.float64, copy=False)
    if array.size and array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name} must be below 2**63; got {array.max()}. Subtract the first one from all.")
    return array.astype(np.int64, copy=False)  # narrow ones would overflow when subtracted


def _in_utc(values: Any) -> Any:
    """The same instants without a time zone, if they have one: the instant is what counts."""
    dtype = getattr(values, "dtype", None)
    zone = getattr(dtype, "tz", None) or getattr(getattr(dtype, "pyarrow_dtype", None), "tz", None)
    if zone is None:
        return values
    if hasattr(values, "dt"):  # a pandas Series
        return values.dt.tz_convert("UTC").dt.tz_localize(None)
    return values.tz_convert("UTC").tz_localize(None)


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


def choose_unit(kind: str, unit: str | None) -> str:
    """The unit of a panel's times: calendar stamps must have one, numbers may have a label."""
    if kind not in "mM":
        return unit or ""
    unit = unit or "s"
    if unit not in UNITS:
        raise ValueError(f"unit must be one of {', '.join(UNITS)} for calendar stamps; got {unit!r}.")
    return unit


def elapsed(clock: Array, origin: Array, unit: str) -> Array:
    """float64 from `origin` to `clock`, both of one kind, in the unit."""
    difference = clock - origin  # exact for integers and calendar stamps
    if difference.dtype.kind != "f" and bool(((difference < difference.dtype.type(0)) != (clock < origin)).any()):
        raise ValueError("the times of a series span more than 64-bit numbers can hold.")
    if difference.dtype.kind == "m":
        return difference / np.timedelta64(1, UNITS[unit])  # type: ignore[call-overload]
    return difference.astype(np.float64)


def stamps(times: Array, origin: Any, unit: str) -> Array:
    """Back to the stamps the user gave: `origin` plus `times`."""
    origin = np.asarray(origin)
    if origin.dtype.kind in "mM":  # rounded to the user's own unit, which is all that was ever there
        own, count = np.datetime_data(origin.dtype)
        tick = np.timedelta64(count, own)  # type: ignore[call-overload]
        ticks = np.rint(times * (np.timedelta64(1, UNITS[unit]) / tick))  # type: ignore[call-overload]
        return origin + ticks.astype(np.int64) * tick
    if origin.dtype.kind == "i":
        return origin + np.rint(times).astype(np.int64)
    return origin + times
