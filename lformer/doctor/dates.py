"""Time stamps of a file as numbers, dates or durations, according to its form."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd

from lformer.arrays import shown
from lformer.doctor.form import UNIX, Form
from lformer.doctor.words import SHOWN, counted, listed
from lformer.panel.stamps import as_stamps, stored_zone
from lformer.panel.zones import read_zone

OFFSET = r"(Z|[+-]\d{2}:?\d{2})$"  # the end of an ISO 8601 time stamp with an offset
EXCEL = "1899-12-30"  # day 0 of spreadsheets, which count a 29 February 1900


def read_stamps(column: pd.Series[Any], form: Form, place: str) -> pd.Series[Any]:
    """Read time stamps according to a form; text that cannot be read without a format stays text.

    Args:
        column: the column as read from the file.
        form: its `time_format` and `time_zone` are used.
        place: name of the column in errors.
    """
    if getattr(column.dtype, "kind", "O") in "mM":  # the file format has types
        stamps = column
    elif form.time_format is None:
        stamps = _iso(column, form.time_zone, place) if is_text(column) else column
    else:
        stamps = _formatted(column, form.time_format, place)
    if form.time_zone is None or getattr(stamps.dtype, "kind", "O") != "M":
        return stamps
    return _in_zone(stamps, form.time_zone, place)


def is_text(column: pd.Series[Any]) -> bool:
    """Whether a column holds text, or Python objects of any kind."""
    return pd.api.types.is_object_dtype(column.dtype) or pd.api.types.is_string_dtype(column.dtype)


def _iso(column: pd.Series[Any], zone: str | None, place: str) -> pd.Series[Any]:
    """ISO 8601 text as dates; stays text if any of it cannot be read, or if zones differ and none was chosen."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # older versions of pandas only warn about mixed zones
            parsed = pd.to_datetime(column, format="ISO8601")
    except (ValueError, TypeError, Warning):
        return column if zone is None else _mixed(column, zone, place)
    return column if is_text(parsed) else parsed


def _mixed(column: pd.Series[Any], zone: str, place: str) -> pd.Series[Any]:
    """ISO 8601 text, some of it with an offset, as dates in one zone; stays text if any of it cannot be read."""
    text = column.astype("string")
    aware = text.str.extract(OFFSET, expand=False).notna().to_numpy(bool)
    try:
        known = pd.to_datetime(text[aware], format="ISO8601", utc=True)
        local = pd.to_datetime(text[~aware], format="ISO8601")
    except (ValueError, TypeError):
        return column
    instants = np.empty(len(column), "datetime64[ns]")
    instants[aware] = as_stamps(known, place)
    instants[~aware] = as_stamps(_in_zone(local, zone, place), place)
    return pd.Series(pd.DatetimeIndex(instants, tz="UTC"), index=column.index, name=column.name)


def _formatted(column: pd.Series[Any], form: str, place: str) -> pd.Series[Any]:
    """Time stamps in a given format; an error names the first that do not have it."""
    stamps: pd.Series[Any]
    if form == "duration":
        stamps = pd.to_timedelta(column.astype("string"), errors="coerce")
    elif form == "excel" or form in UNIX:
        numbers = pd.to_numeric(column, errors="coerce")
        if form == "excel":
            stamps = pd.to_datetime(numbers, unit="D", origin=EXCEL, errors="coerce").dt.round("ms")
        else:
            stamps = pd.to_datetime(numbers, unit=UNIX[form], utc=True, errors="coerce")
    else:
        stamps = pd.to_datetime(column.astype("string"), format=form, errors="coerce")
    if (strange := stamps.isna() & column.notna()).any():
        rows = column[strange]
        where = listed((f"row {row} holds {shown(one)}" for row, one in rows[:SHOWN].items()), len(rows))
        raise ValueError(f"{place}: {counted(len(rows), 'stamp')} cannot be read with --time-format {form}: {where}.")
    return stamps


def _in_zone(stamps: pd.Series[Any], zone: str, place: str) -> pd.Series[Any]:
    """Dates taken as local time in a zone, or converted to it if they have a zone."""
    if stored_zone(stamps) is not None:
        return stamps.dt.tz_convert(read_zone(zone))
    local = stamps.dt.tz_localize(read_zone(zone), ambiguous="NaT", nonexistent="NaT")
    if (lost := local.isna() & stamps.notna()).any():
        rows = stamps[lost]
        where = listed((f"row {row} holds {one}" for row, one in rows[:SHOWN].items()), len(rows))
        raise ValueError(
            f"{place}: {counted(len(rows), 'time stamp')} occurred twice or never in --time-zone {zone}, because of a "
            f"clock change: {where}. Write them with their offset, such as +01:00."
        )
    return local
