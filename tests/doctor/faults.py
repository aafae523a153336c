"""A spoilt table for every finding of the doctor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from doctor.tables import (
    LONG,
    NAN,
    WIDE,
    Table,
    again,
    calendar,
    changed,
    epoch,
    iso,
    long_table,
    millis,
    more,
    put,
    to,
    wide_table,
)


def sentinel(table: Table) -> None:
    table.loc[table.index[table["what"] == "k"][[3, 40]], "x"] = -999.0


def marks(table: Table) -> None:
    table.loc[table.index[table["what"] == "k"][:5], "x"] = -9999.0


def never(table: Table) -> None:
    table["spo2"] = NAN


CLEAN, BROAD = long_table(), wide_table()

FINDINGS: list[tuple[str, str, Table, dict[str, Any], list[str]]] = [
    # title, level, table, columns, what the finding must name
    ("Missing columns", "error", CLEAN, {**LONG, "time": "when"}, ["'when'", "'who'"]),
    ("Missing columns", "error", BROAD, {**WIDE, "value": ["na", "cl"]}, ["'cl'"]),
    ("No column of values", "error", CLEAN, {**LONG, "value": None}, ["'what'"]),
    ("No column of values", "error", BROAD[["who", "t"]], WIDE, ["'who'"]),
    ("Columns with the same name", "error", changed(BROAD, lambda t: t.rename(columns={"k": "na"})), WIDE, ["na"]),
    ("Empty table", "error", CLEAN.iloc[:0], LONG, []),
    ("Nothing was observed", "error", changed(CLEAN, put(slice(None), "x", NAN)), LONG, ["All values"]),
    ("Missing ids", "error", changed(CLEAN, put([7, 9], "who", None)), LONG, ["2 rows", "row 7", "row 9"]),
    ("Missing channel names", "error", changed(CLEAN, put(4, "what", None)), LONG, ["1 row ", "row 4"]),
    ("Missing time stamps", "error", changed(CLEAN, put([3], "t", NAN)), LONG, ["1 row ", "row 3", "id p00"]),
    ("Missing time stamps", "error", changed(CLEAN, put([3], "t", np.inf)), LONG, ["row 3"]),
    ("Missing time stamps", "error", changed(CLEAN, to("t", calendar), put([8], "t", pd.NaT)), LONG, ["row 8"]),
    ("Missing time stamps", "error", changed(CLEAN, to("t", iso), put([8], "t", None)), LONG, ["1 row ", "row 8"]),
    ("Time stamps are text", "error", changed(CLEAN, to("t", iso)), LONG, ["'t'", "'2021-03-01T"]),
    ("Time stamps are text", "error", changed(CLEAN, to("t", lambda t: t.astype(str))), LONG, ["'t'"]),
    (
        "Unreadable time stamps", "error", changed(CLEAN, to("t", iso), put([2, 6], "t", "yesterday")), LONG,
        ["2 stamps", "row 2 holds 'yesterday'", "row 6"],
    ),
    (
        "Unreadable time stamps", "error", changed(CLEAN, to("t", lambda t: t.astype(str)),
        put([11], "t", "1,5")), LONG, ["1 stamp ", "as a number", "row 11 holds '1,5'"],
    ),
    (
        "Mixed time zones", "error", changed(CLEAN, to("t", lambda t: iso(t, "+01:00")),
        put([5], "t", "2021-03-01T03:00:00+02:00")), LONG, ["+01:00 in", "+02:00 in 1 row, such as row 5"],
    ),
    (
        "Mixed time zones", "error", changed(CLEAN, to("t", lambda t: iso(t, "Z")),
        put([5], "t", "2021-03-01T03:00:00")), LONG, ["none in 1 row, such as row 5"],
    ),
    (
        "Values that are no numbers", "error", changed(CLEAN, put([6, 10], "x", "pos")), LONG,
        ["2 values", "row 6 holds 'pos'", "row 10"],
    ),
    ("Values that are no numbers", "error", changed(BROAD, put([6], "na", "<130")), WIDE, ["'na'", "row 6", "<130"]),
    ("Infinite values", "error", changed(CLEAN, put([6], "x", -np.inf)), LONG, ["row 6 holds -inf"]),
    ("Infinite values", "error", changed(BROAD, put([6], "k", 1e39)), WIDE, ["'k'", "row 6 holds 1e+39"]),
    ("Duplicates", "error", changed(CLEAN, again([0, 20, 30])), LONG, ["3 (id", "in 3 of them", "id p00", "(2 values"]),
    ("Duplicates", "error", changed(CLEAN, again([0, 20], 0.5)), LONG, ["in 0 of them", "in 2 they differ"]),
    (
        "Duplicates", "error", changed(BROAD, lambda t: pd.concat([t, t.iloc[[4]]], ignore_index=True)), WIDE,
        ["id p00", "channel"],
    ),
    ("Stamps too large", "error", changed(CLEAN, to("t", lambda t: 2**63 + millis(t).astype("u8"))), LONG, ["2**63"]),
    (
        "Stamps too far apart", "error", changed(CLEAN, to("t", millis),
        more(who=["p03", "p03"], t=[-(2**62) - 2**61, 2**62 + 2**61], what=["k", "k"], x=[0.1, 0.2])), LONG, ["id p03"],
    ),
    ("Stamps too far apart", "error", changed(CLEAN, put([0], "t", -1e39)), LONG, ["id p00"]),
    ("Stamps out of order", "info", CLEAN.iloc[::-1], LONG, ["in 12 series", "sorts"]),
    (
        "Rows with the same id and time", "info",
        changed(BROAD, more(who=["p02"], t=[BROAD.query("who == 'p02'")["t"].iloc[3]], k=[NAN])), WIDE,
        ["2 rows share 1 stamp", "id p02"],
    ),
    ("Stamps in float32", "warning", changed(CLEAN, to("t", lambda t: epoch(t).astype(np.float32))), LONG, ["128"]),
    (
        "Stamps in float32", "warning", changed(CLEAN, to("t", lambda t: (738000 + t).astype(np.float32))), LONG,
        ["0.0625"],
    ),
    ("Stamps in float32", "warning", changed(CLEAN, to("t", lambda t: epoch(t).astype("Float32"))), LONG, ["128"]),
    (
        "Stamps rounded to float32", "warning",
        changed(CLEAN, to("t", lambda t: epoch(t).astype(np.float32).astype(np.float64))), LONG, ["128 s"],
    ),
    (
        "Stamps rounded to float32", "warning", changed(CLEAN,
        to("t", lambda t: pd.to_datetime(epoch(t).astype(np.float32).astype(np.int64), unit="s"))), LONG, ["128 s"],
    ),
    ("Stamps look like Unix time in s", "info", changed(CLEAN, to("t", epoch)), LONG, ["2023-11-14"]),
    (
        "Stamps look like Unix time in ms", "info",
        changed(CLEAN, to("t", lambda t: (1000 * epoch(t)).astype(np.int64))), LONG, ["2023-11-14"],
    ),
    ("Stamps look like Unix time in us", "info", changed(CLEAN, to("t", lambda t: 1e6 * epoch(t))), LONG, ["2023"]),
    (
        "Stamps look like Unix time in ns", "info",
        changed(CLEAN, to("t", lambda t: 10**9 * epoch(t).astype(np.int64))), LONG, ["2023-11-14"],
    ),
    (
        "Huge gaps", "warning", changed(CLEAN, more(who=["p04"], t=[5000.0], what=["na"], x=[1.0])), LONG,
        ["1 gap in 1 series", "series p04", "and 5000"],
    ),
    (
        "Stamps that differ only by rounding", "warning",
        changed(CLEAN, more(who=["p01"], t=[CLEAN.query("who == 'p01'")["t"].iloc[6] + 1e-13], what=["zn"],
        x=[1.0])), LONG, ["1 pair", "series p01"],
    ),
    (
        "Series with a single row", "warning", changed(CLEAN, more(who=["q"], t=[0.7], what=["na"], x=[1.0])), LONG,
        ["1 series of 13", ": q."],
    ),
    (
        "Series without a value", "warning",
        changed(CLEAN, more(who=["q", "q"], t=[0.7, 1.9], what=["na", "k"], x=[NAN, NAN])), LONG, ["1 series", "q."],
    ),
    (
        "A few very long series", "info", changed(CLEAN, more(who="q", t=np.arange(500) ** 1.01, what="na",
        x=np.arange(500) % 7 / 7)), LONG, ["longest, q, has 500 rows"],
    ),
    (
        "Much padding in random batches", "info", changed(CLEAN, more(who="q", t=np.arange(500) ** 1.01, what="na",
        x=np.arange(500) % 7 / 7)), LONG, ["batches of 64"],
    ),
    ("Channels never observed", "warning", changed(BROAD, never), WIDE, ["1 channel ", "spo2"]),
    (
        "Channels almost never observed", "warning", changed(CLEAN, put([12], "what", "troponin")), LONG,
        ["troponin (1 value)"],
    ),
    ("Constant channels", "warning", changed(BROAD, put(slice(None), "ph", 7.4)), WIDE, ["ph (always 7.4)"]),
    (
        "Channels on very different scales", "warning", changed(BROAD, to("ph", lambda x: 1e6 * x)), WIDE,
        ["Channel ph", "na one of 0.856"],
    ),
    (
        "Marks for missing values", "warning", changed(CLEAN, marks), LONG,
        ["1 channel ", "k: -9999 in 5 rows", "missing_values=-9999"],
    ),
    (
        "Channels that are copies", "warning", changed(BROAD, lambda t: t.assign(copy=t["na"])), WIDE,
        ["1 pair", "na and copy"],
    ),
    (
        "Dates written as numbers", "warning", changed(BROAD, to("t", lambda t: pd.Series(
        (np.datetime64("2024-01-20") + t.astype(int).to_numpy().astype("timedelta64[D]")), t.index
        ).dt.strftime("%Y%m%d").astype(int)), lambda t: t.drop_duplicates(["who", "t"])), WIDE,
        ["20240131 to 20240201", "interval of 70", "%Y%m%d"],
    ),
    ("Extreme outliers", "warning", changed(CLEAN, sentinel), LONG, ["2 values in 1 channel", "k is -999 in 2 rows"]),
    ("Extreme outliers", "warning", changed(BROAD, put([17], "na", 400.0)), WIDE, ["na is 400 in row 17, id p"]),
]  # fmt: skip
