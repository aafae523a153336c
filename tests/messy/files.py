"""Files as people have them: each is spoilt in one way, or only looks as if it were."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

Row = dict[str, Any]
COLUMNS = ("who", "when", "lab", "x", "state")
LONG = ("--id", "who", "--time", "when", "--channel", "lab", "--value", "x", "--target", "state")
WIDE = ("--id", "who", "--time", "when", "--target", "state")


class Messy(NamedTuple):
    """A file and what becomes of it.

    Attributes:
        name: of the file.
        about: what is the matter with it.
        content: of the file.
        code: with which the commands end: 0, 1 if the data are wrong, 2 if the request is.
        says: parts of what they say.
        cure: options with which the file works, after an error; none if it takes an editor.
        options: where things stand in it.
    """

    name: str
    about: str
    content: bytes
    code: int
    says: tuple[str, ...]
    cure: tuple[str, ...] = ()
    options: tuple[str, ...] = LONG


def rows() -> list[Row]:
    """Eight patients with uneven visits and asynchronous labs; one result is missing."""
    rng = np.random.default_rng(0)
    made = []
    for i in range(8):
        begin = pd.Timestamp("2024-01-20") + pd.Timedelta(days=3 * i)
        for n, hours in enumerate(np.cumsum(rng.uniform(2, 40, 3 + i % 3))):
            stamp = begin + pd.Timedelta(minutes=int(60 * hours))
            lab, level = ("k", 4.2) if n % 2 else ("na", 140.0)
            made.append({"who": f"p{i}", "when": stamp.isoformat(), "lab": lab, "x": round(level + rng.normal(), 2),
                         "state": "ill" if i % 2 else "well"})  # fmt: skip
    made[5]["x"] = ""
    return made


def text(made: Sequence[Row], sep: str = ",", columns: Sequence[str] = COLUMNS, quoted: bool = False) -> str:
    """As a program would write them."""
    mark = '"' if quoted else ""
    lines = [sep.join(columns)]
    lines += [sep.join(f"{mark}{row[name]}{mark}" for name in columns) for row in made]
    return "\n".join(lines) + "\n"


def changed(change: Callable[[int, Row], Row | None], **how: Any) -> bytes:
    """The file with a change of every row, which gets its position."""
    made = [row | (change(i, row) or {}) for i, row in enumerate(rows())]
    return text(made, **how).encode()


def comma(x: Any) -> str:
    return str(x).replace(".", ",")


def stamped(form: str) -> bytes:
    return changed(lambda _, row: {"when": pd.Timestamp(row["when"]).strftime(form)})


def numbered(count: Callable[[pd.Timestamp], Any]) -> bytes:
    return changed(lambda _, row: {"when": count(pd.Timestamp(row["when"]))})


def wide() -> bytes:
    table = pd.DataFrame(rows()).replace({"x": {"": None}})
    out = table.pivot(index=["who", "when", "state"], columns="lab", values="x").reset_index()
    return out.to_csv(index=False).encode()


def parquet() -> bytes:
    table = pd.DataFrame(rows()).replace({"x": {"": None}}).astype({"x": float})
    table["who"] = table["who"].str[1:].astype(int)
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False)
    return buffer.getvalue()


def twice(made: list[Row]) -> list[Row]:
    return [*made, {**made[3], "x": 9.9}]


def shuffled() -> bytes:
    made = rows()
    return text([made[i] for i in np.random.default_rng(1).permutation(len(made))]).encode()


PLAIN = text(rows())
LINES = PLAIN.splitlines()
EXCEL_ZERO = pd.Timestamp("1899-12-30")
ZONED = ("Z", "", "+02:00")
SAME_IDS = ("7", "07", "007", "8", "9", "10", "11", "12")

MESSY: tuple[Messy, ...] = (
    Messy("decimal-comma.csv", "Decimal commas in quotation marks",
          changed(lambda _, r: {"x": comma(r["x"])}, quoted=True), 1,
          ("Column 'x' has", "row 2 holds '", "--decimal ,"), ("--decimal", ",")),
    Messy("semicolons.csv", "Semicolons between cells, decimal commas",
          changed(lambda _, r: {"x": comma(r["x"])}, sep=";"), 1,
          ("'who;when;lab;x;state'", "--sep ';'", "--decimal ,"), ("--sep", ";", "--decimal", ",")),
    Messy("semicolons-only.csv", "Semicolons between cells", text(rows(), sep=";").encode(), 1,
          ("has no column 'who'", "--sep ';'"), ("--sep", ";")),
    Messy("loose-comma.csv", "Decimal commas without quotation marks", changed(lambda _, r: {"x": comma(r["x"])}), 1,
          ("row 2 has 6 cells, but there are 5 names", "--sep")),
    Messy("tabs.tsv", "Tabs between cells, and called .tsv",
          text(rows(), sep="\t").encode(), 0, ("Training would work",)),
    Messy("tabs.csv", "Tabs between cells, but called .csv", text(rows(), sep="\t").encode(), 1,
          ("has no column 'who'", "call the file .tsv"), ("--sep", "\\t")),
    Messy("bom.csv", "A byte order mark before the first name", b"\xef\xbb\xbf" + PLAIN.encode(), 0, ("8 series",)),
    Messy("latin-1.csv", "Names in Latin-1", PLAIN.replace(",na,", ",natrémie,").encode("latin-1"), 1,
          ("is not written in utf-8", "byte 0xe9", "--encoding latin-1"), ("--encoding", "latin-1")),
    Messy("utf-16.csv", "UTF-16, as some spreadsheets export", PLAIN.encode("utf-16"), 1,
          ("is not written in utf-8", "--encoding utf-16"), ("--encoding", "utf-16")),
    Messy("mixed-zones.csv", "Stamps with different offsets, and without",
          changed(lambda i, r: {"when": r["when"] + ZONED[i % 3]}), 1,
          ("Mixed time zones", "Column 'when'", "such as row 2", "--time-zone"), ("--time-zone", "Europe/Berlin")),
    Messy("same-header.csv", "Two columns of one name",
          text(rows(), columns=("who", "when", "lab", "x", "x", "state")).encode(),
          1, ("several columns called 'x' in its first line", "Rename")),
    Messy("blank-lines.csv", "Blank lines, and lines of commas",
          ("\n" + LINES[0] + "\n\n" + "\n\n".join(LINES[1:]) + "\n,,,,\n\n").encode(),
          0, ("Training would work",)),
    Messy("zeros.csv", "Ids with leading zeros: 000, 001, ...", changed(lambda _, r: {"who": "00" + r["who"][1:]}), 0,
          ("8 series",)),
    Messy("same-numbers.csv", "Ids 7, 07 and 007", changed(lambda _, r: {"who": SAME_IDS[int(r["who"][1:])]}), 0,
          ("8 series", "Ids that are the same number", "'7', '07', '007'", "--id-type int")),
    Messy("unsorted.csv", "Rows in any order", shuffled(), 0, ("Stamps out of order", "rows are sorted")),
    Messy("duplicates.csv", "The same id, time and lab twice", text(twice(rows())).encode(), 1,
          ("Duplicates", "row 5, id p1, time 2024-01-2", "channel na", "--on-duplicate mean"),
          ("--on-duplicate", "mean")),
    Messy("integer-dates.csv", "Dates written as 20240131",
          changed(lambda i, _: {"when": (pd.Timestamp("2024-01-20") + pd.Timedelta(days=2 * i)).strftime("%Y%m%d")}), 0,
          ("Dates written as numbers", "--time-format %Y%m%d"), ("--time-format", "%Y%m%d")),
    Messy("german-dates.csv", "Dates written as 31.01.2024 18:30", stamped("%d.%m.%Y %H:%M"), 1,
          ("Unreadable time stamps", "column 'when'", "row 2 holds", '--time-format "%d.%m.%Y %H:%M"'),
          ("--time-format", "%d.%m.%Y %H:%M")),
    Messy("slashes.csv", "Dates written as 01/31/2024", stamped("%m/%d/%Y %H:%M"), 1,
          ("Unreadable time stamps", "row 2 holds", '--time-format "%m/%d/%Y %H:%M"'),
          ("--time-format", "%m/%d/%Y %H:%M")),
    Messy("excel.csv", "Day numbers of a spreadsheet", numbered(lambda t: (t - EXCEL_ZERO) / pd.Timedelta("1D")), 0,
          ("day numbers of a spreadsheet", "--time-format excel"), ("--time-format", "excel")),
    Messy("epoch-ms.csv", "Milliseconds since 1970", numbered(lambda t: int(t.timestamp() * 1000)), 0,
          ("Unix time in ms", "--time-format unix-ms"), ("--time-format", "unix-ms")),
    Messy("durations.csv", "Durations such as 5 days 02:30:00", numbered(lambda t: t - pd.Timestamp("2024-01-01")), 1,
          ("row 2 holds", "They seem to be durations", "--time-format duration"), ("--time-format", "duration")),
    Messy("no-time.csv", "An unreadable stamp among good ones",
          changed(lambda i, _: {"when": "soon"} if i == 4 else None), 1,
          ("Unreadable time stamps", "row 6 holds 'soon'", "Correct or drop them")),
    Messy("units.csv", "Units in the cells: 4.2 mmol/l",
          changed(lambda _, r: {"x": f"{r['x']} mmol/l" if r["x"] else ""}), 1,
          ("Values that are no numbers", "Column 'x'", "row 2 holds", "without its unit")),
    Messy("thousands.csv", "Thousands in groups: 1,234.5",
          changed(lambda i, r: {"x": f"{1000 + i:,}.5"}, quoted=True), 1,
          ("Column 'x'", "row 2 holds '1,000.5'", "--thousands ,"), ("--thousands", ",")),
    Messy("empty.csv", "An empty file", b"", 1, ("empty.csv is empty", "names of the columns")),
    Messy("header-only.csv", "A first line and no other", (LINES[0] + "\n").encode(), 1, ("header-only.csv", "no row")),
    Messy("one-row.csv", "A single row",
          "\n".join(LINES[:2]).encode(), 1, ("one-row.csv", "A single series", "no id but p0", "--id")),
    Messy("one-series.csv", "A single series", changed(lambda _, r: {"who": "p0", "state": "ill"}), 1,
          ("one-series.csv", "A single series", "no id but p0 in the 31 rows", "--id")),
    Messy("three-series.csv", "Three series", "\n".join(LINES[:13]).encode(), 1,
          ("three-series.csv: at least 4 series are needed", "the table has 3", "--id who")),
    Messy("no-target.csv", "An id without a target",
          changed(lambda _, r: {"state": "" if r["who"] == "p3" else r["state"]}), 1,
          ("every id needs a target", "no-target.csv", "'p3'")),
    Messy("text-values.csv", "Text among the values", changed(lambda i, _: {"x": "pending"} if i == 3 else None), 1,
          ("Column 'x'", "row 5 holds 'pending'", "--missing-text pending"), ("--missing-text", "pending")),
    Messy("wide.csv", "A column for each lab, read as if it had one of labs", wide(), 2,
          ("wide.csv has no column 'lab'", "it has 'who', 'when', 'state', 'k', 'na'", "without --channel"), ()),
    Messy("long.csv", "A column of labs, read as if each had its own", PLAIN.encode(), 1,
          ("Column 'lab'", "row 2 holds 'na'", "--channel lab --value x"), ("--channel", "lab", "--value", "x"), WIDE),
    Messy("lost-column.csv", "No column of the name that was given", PLAIN.replace("when", "Time").encode(), 2,
          ("lost-column.csv has no column 'when'", "it has 'who', 'Time'")),
    Messy("quotes.csv", "Everything in quotation marks",
          text(rows(), quoted=True).encode(), 0, ("Training would work",)),
    Messy("open-quote.csv", "A quotation mark that is never closed", PLAIN.replace(",na,", ',"na,', 1).encode(), 1,
          ("open-quote.csv, row 2", "never closed")),
    Messy("trailing.csv", "A comma at the end of every line", (",\n".join(LINES) + ",\n").encode(), 0, ("2 channels",)),
    Messy("na-channel.csv", "Labs called NA and null",
          PLAIN.replace(",na,", ",NA,").replace(",k,", ",null,").encode(), 0,
          ("2 channels", "NA", "null")),
    Messy("infinite.csv", "Infinity among the values", changed(lambda i, _: {"x": "inf"} if i == 3 else None), 1,
          ("Infinite values", "Column 'x'", "row 5 holds inf", "--missing-text"), ("--missing-text", "inf")),
    Messy("sentinels.csv", "-9999 for missing values",
          changed(lambda i, _: {"lab": "na", "x": -9999 if i % 6 == 0 else 138 + i / 10}), 0,
          ("Marks for missing values", "-9999", "--missing-values -9999"), ("--missing-values", "-9999")),
    Messy("lines.jsonl", "An object of JSON on each line",
          "\n".join(json.dumps(r | {"x": r["x"] or None}) for r in rows()).encode(), 0, ("8 series",)),
    Messy("broken.jsonl", "A line that is no object of JSON",
          b'{"who": "p0"}\n{"who": \n', 1, ("broken.jsonl, row 2",)),
    Messy("whole.parquet", "Whole numbers as ids, in Parquet", parquet(), 0, ("8 series",)),
)  # fmt: skip
