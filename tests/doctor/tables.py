"""Clean tables, ways to spoil them, and what a report found: shared by the tests of the doctor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from lformer.doctor import Report

NAN = float("nan")
LONG = {"id": "who", "time": "t", "channel": "what", "value": "x"}
WIDE = {"id": "who", "time": "t"}

Table = pd.DataFrame
Change = Callable[[Table], Any]


def long_table(seed: int = 0) -> Table:
    """Twelve series of 9 to 20 uneven stamps, three channels seen at some of them, one missing value, sorted."""
    rng = np.random.default_rng(seed)
    parts = []
    for i in range(12):
        times = np.cumsum(rng.uniform(0.2, 2.0, 9 + i)).round(3)
        for c, name in enumerate(("k", "na", "ph")):
            seen = rng.random(len(times)) < 0.8 - 0.2 * c
            seen[:2] = True
            parts.append(
                pd.DataFrame({"who": f"p{i:02d}", "t": times[seen], "what": name, "x": rng.normal(c, 1, seen.sum())})
            )
    table = pd.concat(parts).sort_values(["who", "t", "what"], ignore_index=True)
    table.loc[5, "x"] = NAN
    return table


def wide_table(seed: int = 0) -> Table:
    """The same with a column per channel."""
    wide = long_table(seed).pivot(index=["who", "t"], columns="what", values="x").reset_index()
    wide.columns.name = None
    return wide


def changed(table: Table, *changes: Change) -> Table:
    """A copy of a table after some changes; a change that returns a table replaces it."""
    table = table.copy()
    for change in changes:
        result = change(table)
        table = result if isinstance(result, Table) else table
    return table


def put(rows: Any, column: str, value: Any) -> Change:
    """Write a value to some rows of a column."""

    def change(table: Table) -> None:
        if isinstance(value, str) or value is None:
            table[column] = table[column].astype(object)
        table.loc[rows, column] = value

    return change


def to(column: str, convert: Callable[[pd.Series[Any]], Any]) -> Change:
    """Convert a column."""

    def change(table: Table) -> None:
        table[column] = convert(table[column])

    return change


def again(rows: list[int], shift: float = 0.0) -> Change:
    """Append rows once more, their values shifted."""

    def change(table: Table) -> Table:
        more = table.loc[rows].assign(x=lambda t: t["x"] + shift)
        return pd.concat([table, more], ignore_index=True)

    return change


def more(**columns: Any) -> Change:
    """Append one row or several."""
    return lambda table: pd.concat([table, pd.DataFrame(columns)], ignore_index=True)


def calendar(t: pd.Series[Any]) -> pd.Series[Any]:
    """Hours as stamps of whole seconds."""
    return pd.Timestamp("2021-03-01") + pd.to_timedelta((t * 3600).round(), unit="s")


def millis(t: pd.Series[Any]) -> pd.Series[Any]:
    """Whole numbers."""
    return (1000 * t).round().astype(int)


def iso(t: pd.Series[Any], zone: str = "") -> pd.Series[Any]:
    return calendar(t).dt.strftime("%Y-%m-%dT%H:%M:%S") + zone


def epoch(t: pd.Series[Any]) -> pd.Series[Any]:
    return (1.7e9 + (3600 * t).round()).astype(np.float64)


def titles(report: Report) -> list[str]:
    return [finding.title for finding in report.findings]


def finding_of(report: Report, title: str) -> Any:
    """The one finding of that title."""
    (found,) = (f for f in report.findings if f.title == title)
    assert found.advice
    return found
