"""From a table to records of series, time, channel and value; whatever cannot be read becomes a finding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import Any

import numpy as np
import pandas as pd

from lformer.arrays import CANNOT, as_floats, shown
from lformer.doctor.clock import read_clock
from lformer.doctor.dates import is_text
from lformer.doctor.hints import about_numbers
from lformer.doctor.report import Finding
from lformer.doctor.words import SHOWN, counted, listed, stamp
from lformer.panel import MissingValues
from lformer.panel.long import number_of
from lformer.panel.missing import is_mark, read_marks
from lformer.panel.stamps import missing

Array = np.ndarray[Any, Any]

MANY = 20_000  # channels; a panel of more could hardly be stored
LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class Channel:
    """The observations of one channel: `rows` (k,) of the table, and finite `values` (k,) float64."""

    name: str
    rows: Array
    values: Array


@dataclass(frozen=True, eq=False)
class Records:
    """A table of R rows, read as far as possible.

    Attributes:
        labels: (R,) index labels of the rows.
        ids: (n,) ids of the series, in order of appearance.
        owner: (R,) the series of each row, -1 if it has none.
        clock: (R,) time stamps: numbers, datetime64 or timedelta64.
        lost: (R,) bool, True where there is no time stamp.
        stored: dtype of the time stamps in the table.
        channels: sorted by name if they come from a column of names, else in the order of the columns.
        wide: True if each channel has a column of its own.
    """

    labels: pd.Index
    ids: Array
    owner: Array
    clock: Array
    lost: Array
    stored: Any
    channels: tuple[Channel, ...]
    wide: bool

    def at(self, row: int, *, when: bool = True) -> str:
        """Description of a row for a message."""
        who = f", id {self.ids[self.owner[row]]}" if self.owner[row] >= 0 else ""
        time = f", time {stamp(self.clock[row])}" if when and not self.lost[row] else ""
        return f"row {self.labels[row]}{who}{time}"


def read_records(
    table: pd.DataFrame, id: str, time: str, channel: str | None, value: str | Sequence[str] | None
) -> tuple[Records | None, list[Finding]]:
    """The records of a table and what is wrong with them; None instead of records if there is nothing to check."""
    columns, findings = _columns(table, id, time, channel, value)
    if findings:
        return None, findings
    coded = [id] if channel is None else [id, channel]
    if unclear := [name for name in coded if not _works(pd.factorize, table[name])]:
        return None, _no_names(table, unclear[0])
    if odd := [name for name in (*coded, time, *columns) if not _works(pd.isna, table[name])]:
        return None, _signaling(odd[0])
    named: list[Finding] = []
    if channel is None:
        channels, strange = _wide(table, columns)
    else:
        code, names = pd.factorize(table[channel])
        if len(names) > MANY:
            return None, _too_many(len(names), channel)
        named = _nameless(code, channel, table.index)
        channels, strange = _long(table[columns[0]], columns[0], code, names)
    owner, ids = pd.factorize(table[id])
    clock, findings = read_clock(table[time], time)
    records = Records(
        labels=table.index, ids=np.asarray(ids), owner=owner, clock=clock, lost=missing(clock),
        stored=table[time].dtype, channels=tuple(channels), wide=channel is None,
    )  # fmt: skip
    return records, [*_no_id(records, id), *findings, *_no_stamp(records, table[time], time), *named, *strange]


def without_marks(records: Records, missing_values: MissingValues) -> Records:
    """The records without values that stand for missing ones; these are compared in float32, as in a panel."""
    marks = read_marks(missing_values, [channel.name for channel in records.channels], np.float32)
    if not marks:
        return records
    channels = []
    for c, channel in enumerate(records.channels):
        kept = ~is_mark(channel.values.astype(np.float32), marks, np.full(len(channel.values), c))
        channels.append(Channel(channel.name, channel.rows[kept], channel.values[kept]))
    return replace(records, channels=tuple(channels))


# -- columns


def _columns(
    table: pd.DataFrame, id: str, time: str, channel: str | None, value: str | Sequence[str] | None
) -> tuple[list[str], list[Finding]]:
    """The columns of values, and what is wrong with the columns that were named."""
    if channel is not None and not isinstance(value, str):
        return [], [
            Finding(
                "error", "No column of values",
                f"Column {channel!r} names the channels, so one column must hold the values; got {value!r}.",
                "Name it in value (--value), or leave channel out if each channel has a column of its own.",
            )
        ]  # fmt: skip
    chosen = [value] if isinstance(value, str) else value
    values = [c for c in table.columns if c not in (id, time)] if chosen is None else list(chosen)
    asked = list(dict.fromkeys([id, time, *([] if channel is None else [channel]), *values]))
    lost = [c for c in asked if c not in table.columns]
    if lost:
        return [], [
            Finding(
                "error", "Missing columns",
                f"No column {', '.join(map(repr, lost))}; the table has {', '.join(map(repr, table.columns))}.",
                "Use the column names of the table.",
            )
        ]  # fmt: skip
    twice = [c for c in asked if (table.columns == c).sum() > 1]
    if twice:
        return [], [
            Finding(
                "error", "Columns with the same name", f"Several columns are called {', '.join(map(repr, twice))}.",
                "Rename or drop all but one.",
            )
        ]  # fmt: skip
    if not values:
        return [], [
            Finding(
                "error", "No column of values", f"The table has no columns besides {id!r} and {time!r}.",
                "Add a column for each channel, or a column of channel names and one of values.",
            )
        ]  # fmt: skip
    if not len(table):
        return [], [
            Finding(
                "error", "Empty table", "The table has columns but no row.", "Check how it was written or filtered."
            )
        ]
    return values, []


def _works(look: Callable[[Any], Any], entries: Any) -> bool:
    """Whether a function accepts the entries: lists, for example, are unhashable, and a decimal sNaN raises."""
    try:
        look(entries)
    except CANNOT:
        return False
    return True


def _no_names(table: pd.DataFrame, name: str) -> list[Finding]:
    at = next((row for row, one in enumerate(table[name]) if not _works(hash, one)), 0)
    return [
        Finding(
            "error", "Names that cannot be compared",
            f"Column {name!r} must hold text or numbers; row {table.index[at]} holds {shown(table[name].iloc[at])}.",
            f"Convert it: table[{name!r}] = table[{name!r}].astype(str).",
            "Write text or numbers there.",
        )
    ]  # fmt: skip


def _signaling(name: str) -> list[Finding]:
    return [
        Finding(
            "error", "Signaling NaN",
            f"Column {name!r} holds a decimal sNaN, which raises an error wherever it is used.",
            "Write NaN where nothing was observed.",
        )
    ]  # fmt: skip


def _no_id(records: Records, id: str) -> list[Finding]:
    rows = np.flatnonzero(records.owner < 0)
    if not len(rows):
        return []
    return [
        Finding(
            "error", "Missing ids",
            f"{counted(len(rows), 'row')} without an id in column {id!r}: "
            f"{listed((records.at(r) for r in rows[:SHOWN]), len(rows))}.",
            "Fill them in or drop the rows. Note that CSV readers take ids such as NA or null as missing.",
            "Fill them in or drop the rows.",
        )
    ]  # fmt: skip


# -- time stamps


def _no_stamp(records: Records, column: pd.Series[Any], time: str) -> list[Finding]:
    """Rows without a time stamp; text that could not be read has a finding of its own."""
    absent = column.isna().to_numpy() if is_text(column) else records.lost
    rows = np.flatnonzero(absent)
    if not len(rows):
        return []
    return [
        Finding(
            "error", "Missing time stamps",
            f"{counted(len(rows), 'row')} without a finite time stamp in column {time!r}: "
            f"{listed((records.at(r) for r in rows[:SHOWN]), len(rows))}.",
            "Drop these rows: an observation without a time cannot be used.",
        )
    ]  # fmt: skip


# -- values


def _wide(table: pd.DataFrame, columns: Sequence[str]) -> tuple[list[Channel], list[Finding]]:
    channels, findings = [], []
    for name in columns:
        numbers, strange = _numbers(table[name], str(name))
        if strange and len(columns) > 1:
            layout = _other_layout(table, columns, name)
            strange = [
                replace(
                    f, advice=f"{f.advice} If the column is not a channel, leave it out of value (--value).",
                    option=f"{f.option} {layout}" if np.isfinite(numbers).any() else layout,
                )
                for f in strange
            ]  # fmt: skip
        findings += strange
        kept, wild = _finite(numbers)
        findings += _infinite(wild, numbers, table.index, str(name))
        channels.append(Channel(str(name), kept, numbers[kept]))
    return channels, findings


def _other_layout(table: pd.DataFrame, columns: Sequence[str], name: str) -> str:
    """Advice on a column that is not a channel: it may hold the channel names of another one, or be of no use."""
    others = [column for column in columns if pd.api.types.is_numeric_dtype(table[column])]
    if len(others) == 1 and table[name].nunique() < len(table):
        return f"If it says what was observed, give --channel {quote(name)} --value {quote(others[0])}."
    return "If it is not a channel, name the channels with --value."


def _long(column: pd.Series[Any], name: str, code: Array, names: pd.Index) -> tuple[list[Channel], list[Finding]]:
    numbers, findings = _numbers(column, name)
    kept, wild = _finite(numbers)
    findings += _infinite(wild, numbers, column.index, name)
    kept = kept[code[kept] >= 0]
    kept = kept[np.argsort(code[kept], kind="stable")]
    ends = np.cumsum(np.bincount(code[kept], minlength=len(names)))
    split = np.split(kept, ends[:-1]) if len(names) else []
    channels = [Channel(str(c), rows, numbers[rows]) for c, rows in zip(names, split, strict=True)]
    return sorted(channels, key=lambda c: c.name), findings


def _nameless(code: Array, channel: str, labels: pd.Index) -> list[Finding]:
    rows = np.flatnonzero(code < 0)
    if not len(rows):
        return []
    return [
        Finding(
            "error", "Missing channel names",
            f"{counted(len(rows), 'row')} without a name in column {channel!r}: "
            f"{listed((f'row {labels[r]}' for r in rows[:SHOWN]), len(rows))}.",
            "Fill them in or drop the rows.",
        )
    ]  # fmt: skip


def _too_many(count: int, channel: str) -> list[Finding]:
    return [
        Finding(
            "error", "Too many channels",
            f"Column {channel!r} holds {count:,} different names; a panel has a column for each.",
            "Check that this column really names the channels; if it does, leave out rare ones.",
        )
    ]  # fmt: skip


def _numbers(column: pd.Series[Any], name: str) -> tuple[Array, list[Finding]]:
    """(R,) float64, NaN where a value is missing or not a number, and a finding about the latter."""
    try:
        return as_floats(column, name, np.float64), []
    except (ValueError, TypeError):
        pass
    read = [number_of(one) for one in column]
    numbers = np.array([np.nan if number is None else number for number in read])
    strange = [row for row, number in enumerate(read) if number is None]
    where = listed((f"row {column.index[r]} holds {shown(column.iloc[r])}" for r in strange[:SHOWN]), len(strange))
    return numbers, [
        Finding(
            "error", "Values that are no numbers",
            f"Column {name!r} has {counted(len(strange), 'value')} that cannot be read as a number: {where}.",
            f'Convert them. pandas.to_numeric(table[{name!r}], errors="coerce") turns them into missing values.',
            about_numbers(column.iloc[r] for r in strange),
        )
    ]  # fmt: skip


def _finite(numbers: Array) -> tuple[Array, Array]:
    """Rows with values that float32 can hold, and rows with values that it cannot; NaN is in neither."""
    size = np.abs(numbers)
    return np.flatnonzero(size <= LARGEST), np.flatnonzero(size > LARGEST)


def _infinite_option(wild: Array) -> str:
    if np.isinf(wild).all():
        return "If they stand for missing values, give --missing-text for each way they are written, such as inf."
    return "Use a larger unit for values that are too large."


def _infinite(rows: Array, numbers: Array, labels: pd.Index, name: str) -> list[Finding]:
    if not len(rows):
        return []
    return [
        Finding(
            "error", "Infinite values",
            f"Column {name!r} has {counted(len(rows), 'value')} that float32 cannot hold: "
            f"{listed((f'row {labels[r]} holds {numbers[r]:g}' for r in rows[:SHOWN]), len(rows))}.",
            "Write NaN where nothing was observed, and use a larger unit for values that are too large.",
            _infinite_option(numbers[rows]),
        )
    ]  # fmt: skip
