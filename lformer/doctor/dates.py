"""Stamps of a file into numbers, dates or durations, as their form says."""

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

OFFSET = r"(Z|[+-]\d{2}:?\d{2})$"  # how a stamp of ISO 8601 ends if it knows its zone
EXCEL = "1899-12-30"  # day 0 of spreadsheets, which count a 29 February 1900


def read_stamps(column: pd.Series[Any], form: Form, place: str) -> pd.Series[Any]:
    """Stamps as their form says; text that cannot be read without a format stays text.

    Args:
        column: as it was read.
        form: its `time_format` and `time_zone` count.
        place: what to call the column in an error.
    """
    if getattr(column.dtype, "kind", "O") in "mM":  # of a file that knows types
        stamps = column
    elif form.time_format is None:
        stamps = _iso(column, form.time_zone, place) if is_text(column) else column
    else:
        stamps = _formatted(column, form.time_format, place)
    if form.time_zone is None or getattr(stamps.dtype, "kind", "O") != "M":
        return stamps
    return _in_zone(stamps, form.time_zone, place)


def is_text(column: pd.Series[Any]) -> bool:
    """Text, or Python objects of any kind."""
    return pd.api.types.is_object_dtype(column.dtype) or pd.api.types.is_string_dtype(column.dtype)


def _iso(column: pd.Series[Any], zone: str | None, place: str) -> pd.Series[Any]:
    """ISO 8601 text as dates, or the text if any of it cannot be read, or zones differ and none was chosen."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # older pandas only warns of mixed zones
            parsed = pd.to_datetime(column, format="ISO8601")
    except (ValueError, TypeError, Warning):
        return column if zone is None else _mixed(column, zone, place)
    return column if is_text(parsed) else parsed


def _mixed(column: pd.Series[Any], zone: str, place: str) -> pd.Series[Any]:
    """ISO 8601 text, some of it with an offset, as dates of one zone; the text if any of it cannot be read."""
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
    """Stamps of a given format; the first that does not have it are named."""
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
        raise ValueError(f"{place}: {counted(len(rows), 'stamp')} cannot be read by --time-format {form}: {where}.")
    return stamps


def _in_zone(stamps: pd.Series[Any], zone: str, place: str) -> pd.Series[Any]:
    """Dates on the wall of a zone, or converted to it."""
    if stored_zone(stamps) is not None:
        return stamps.dt.tz_convert(read_zone(zone))
    local = stamps.dt.tz_localize(read_zone(zone), ambiguous="NaT", nonexistent="NaT")
    if (lost := local.isna() & stamps.notna()).any():
        rows = stamps[lost]
        where = listed((f"row {row} holds {one}" for row, one in rows[:SHOWN].items()), len(rows))
        raise ValueError(
            f"{place}: {counted(len(rows), 'stamp')} happened twice or never in --time-zone {zone}, as its clocks "
            f"changed: {where}. Write those with their offset, such as +01:00."
        )
    return local
