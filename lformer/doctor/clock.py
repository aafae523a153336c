"""Time stamps of any type, including text, and why a panel would refuse them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from lformer.arrays import shown
from lformer.doctor.dates import OFFSET
from lformer.doctor.hints import about_stamps, text_of
from lformer.doctor.report import Finding
from lformer.doctor.words import SHOWN, counted, listed
from lformer.panel import Array
from lformer.panel.long import number_of
from lformer.panel.stamps import as_stamps, missing


def read_clock(column: pd.Series[Any], time: str) -> tuple[Array, list[Finding]]:
    """(R,) time stamps as a panel stores them, NaN or NaT where they are unreadable, and why it would refuse them."""
    try:
        return as_stamps(column, f"column {time!r}"), []
    except ValueError as error:
        advice = "Subtract the first time stamp from all of them, or use a larger unit."
        return column.to_numpy(np.float64, na_value=np.nan), [Finding("error", "Stamps too large", str(error), advice)]
    except TypeError:
        pass
    present = column.notna().to_numpy()
    read = (number_of(one) for one in column)
    numbers = np.array([np.nan if number is None else number for number in read])
    if (~np.isnan(numbers)).sum() >= 0.5 * present.sum():
        clock, kind, cure = numbers, "a number", f"table[{time!r}] = pandas.to_numeric(table[{time!r}])"
        zones: list[Finding] = []
    else:
        text = column.where(column.notna(), None).map(text_of)
        parsed = pd.to_datetime(text, format="ISO8601", errors="coerce", utc=True).dt.tz_localize(None)
        clock, kind, cure = parsed.to_numpy(), "an ISO 8601 stamp", f"pandas.to_datetime(table[{time!r}])"
        cure = f"table[{time!r}] = {cure}"
        zones = _zones(text[parsed.notna()], time)
    strange = np.flatnonzero(present & missing(clock))
    if len(strange):
        where = listed((f"row {column.index[r]} holds {shown(column.iloc[r])}" for r in strange[:SHOWN]), len(strange))
        return clock, [
            Finding(
                "error", "Unreadable time stamps",
                f"{counted(len(strange), 'stamp')} of column {time!r} cannot be read as {kind}: {where}.",
                "Correct or drop them. Time stamps that are not ISO 8601 need their format: "
                f'pandas.to_datetime(table[{time!r}], format="%d.%m.%Y %H:%M").',
                about_stamps(column.iloc[r] for r in strange),
            ),
            *zones,
        ]  # fmt: skip
    if zones:
        return clock, zones
    example = f", such as {column[present].iloc[0]!r}" if present.any() else ""
    return clock, [
        Finding(
            "error", "Time stamps are text",
            f"Column {time!r} has dtype {column.dtype}{example}; a panel takes numbers, datetime64 or timedelta64.",
            f"Convert it before training: {cure}.",
            about_stamps(column[present]),
        )
    ]  # fmt: skip


def _zones(text: pd.Series[Any], time: str) -> list[Finding]:
    """Mixed time zones among the readable time stamps."""
    zone = text.str.extract(OFFSET, expand=False).fillna("none").replace("Z", "+00:00")
    kinds = zone.value_counts()
    if len(kinds) < 2:
        return []
    shown = [
        f"{kind} in {counted(int(n), 'row')}, such as row {zone.index[(zone == kind).argmax()]} "
        f"({text[zone == kind].iloc[0]})"
        for kind, n in kinds[: SHOWN + 1].items()
    ]
    advice = f"Convert all of them to UTC: table[{time!r}] = pandas.to_datetime(table[{time!r}], utc=True)."
    if "none" in kinds:
        advice += " Time stamps without a zone are taken as UTC; if that is wrong, give them their zone first."
    return [
        Finding(
            "error",
            "Mixed time zones",
            f"Column {time!r} has zones {listed(shown, len(kinds))}.",
            advice,
            "Choose one clock for all with --time-zone, such as --time-zone Europe/Berlin: stamps with an offset are "
            "converted to it, those without are taken as local time there.",
        ),
    ]
