"""Convert tables with one observation per row to the flat fields of a panel."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lformer.arrays import CANNOT, NO_NUMBER, Array, as_floats, shown
from lformer.panel.checks import channel_names
from lformer.panel.core import OnDuplicate
from lformer.panel.missing import MissingValues, read_marks
from lformer.panel.rows import SHOWN, Fields, entries_of, lay_out, value_dtype, without_marks
from lformer.panel.stamps import as_stamps, require_fine, stored_dtype
from lformer.panel.tables import column_names, indexed, open_table, take_columns
from lformer.panel.zones import zone_of

NO_ROWS = "a panel needs at least one series; the table has no rows."


def read_long(
    table: Any,
    id: str,
    time: str,
    channel: str | None,
    value: str | Sequence[str] | None,
    channels: Sequence[str] | None,
    unit: str | None,
    static: Any,
    on_duplicate: OnDuplicate,
    missing_values: MissingValues,
    dtype: Any,
) -> Fields:
    """See `Panel.from_long`."""
    dtype = value_dtype(dtype)
    frame = open_table(table, "the table")
    check_names(id, time, channel, value)
    columns, named = columns_to_read(column_names(frame), id, time, channel, value)
    table = take_columns(frame, named)
    if not len(table):
        raise ValueError(NO_ROWS)
    owner, ids = coded(table[id], id, "a series")
    clock = as_stamps(table[time], f"column {time!r}")
    require_fine(stored_dtype(table[time]), clock, owner, f"the stamps of column {time!r}")
    entries: tuple[Array, Array, Array]
    if channel is None:
        place, names = places(columns, channels)
        row, code, found = entries_of(np.column_stack([numbers_in(table[c], c, dtype) for c in columns]))
        entries = row, place[code], found
    else:
        code, known = coded(table[channel], channel, "a channel")
        place, names = places(known, channels)
        code = place[code]
        numbers = numbers_in(table[columns[0]], columns[0], dtype)
        row = np.flatnonzero(~np.isnan(numbers))
        entries = row, code[row], numbers[row]
    entries = without_marks(entries, read_marks(missing_values, names, dtype))
    static = None if static is None else indexed(static, id, "static")
    fields = lay_out(np.asarray(ids), owner, clock, entries, names, unit, static, on_duplicate, dtype, table.index)
    return fields | {"zone": zone_of(table[time])}


def columns_to_read(
    known: Sequence[Hashable], id: str, time: str, channel: str | None, value: str | Sequence[str] | None
) -> tuple[Sequence[Any], list[Any]]:
    """The columns of the values, and all columns to read; raises if the table lacks one."""
    columns: Sequence[Any]
    if isinstance(value, str):
        columns = [value]
    elif channel is not None:
        raise ValueError("with a channel column, value must name the column of the values.")
    else:
        columns = [c for c in known if c not in (id, time)] if value is None else value
    named = [id, time, *([] if channel is None else [channel]), *columns]
    _columns_exist(known, named)
    if not columns:
        raise ValueError(f"no column holds values: the table has only {id!r} and {time!r}.")
    return columns, named


def check_names(id: Any, time: Any, channel: Any, value: Any) -> None:
    """Raise for what cannot be a column name, or a list of them."""
    for name, column in (("id", id), ("time", time), ("channel", channel)):
        if not _hashable(column):
            raise TypeError(f"{name} must be the name of a column; got {shown(column)}.")
    if not (value is None or isinstance(value, str) or _are_names(value)):
        raise TypeError(f"value must be the name of a column, or a list of names; got {shown(value)}.")


def _are_names(value: Any) -> bool:
    try:
        return isinstance(value, Iterable) and all(map(_hashable, value))
    except CANNOT:  # such as a tensor without an axis
        return False


def _hashable(name: Any) -> bool:
    try:
        hash(name)
    except CANNOT:
        return False
    return True


def _columns_exist(known: Sequence[Hashable], columns: Sequence[Hashable]) -> None:
    lost = [c for c in columns if c not in known]
    if lost:
        raise ValueError(f"no column {', '.join(map(shown, lost))}; the table has {', '.join(map(shown, known))}.")
    twice = [c for c in dict.fromkeys(columns) if known.count(c) > 1]
    if twice:
        raise ValueError(f"the table has more than one column {', '.join(map(repr, twice))}.")


def coded(column: pd.Series[Any], name: str, what: str, *, sort: bool = True) -> tuple[Array, Any]:
    """The position of each entry among the distinct entries, and these, sorted; none may be missing.

    Args:
        column: names.
        name: name of the column.
        what: what the names refer to.
        sort: whether to sort the distinct entries; else they are in order of appearance.
    """
    try:
        code, known = pd.factorize(column, sort=sort)
    except CANNOT as error:
        raise TypeError(f"column {name!r} must hold names that can be told apart and sorted: {error}.") from error
    if (code < 0).any():
        lost = column.index[int(np.argmax(code < 0))]
        raise ValueError(f"{name!r} must name {what} in every row; row {lost} has none.")
    return code, known


def places(known: Sequence[Hashable], channels: Sequence[str] | None) -> tuple[Array, list[str]]:
    """The position of each occurring channel among all channels, and their names."""
    names = channel_names(known if channels is None else channels)
    place = {name: i for i, name in enumerate(names)}
    strange = [c for c in known if str(c) not in place]
    if strange:
        raise ValueError(f"channels {strange[:SHOWN]} are not among the ones listed: {names}.")
    return np.asarray([place[str(c)] for c in known], np.int64), names


def numbers_in(column: pd.Series[Any], name: Hashable, dtype: Any) -> Array:
    """A column of values as numbers, NaN for missing ones; raises an error that names the first non-numeric entry."""
    if getattr(column.dtype, "kind", "O") in "mMc":
        raise ValueError(f"column {name!r} must hold numbers; it holds {column.dtype}. Convert it, or leave it out.")
    try:
        return as_floats(column, f"column {name!r}", dtype)
    except (ValueError, TypeError):
        at = next(i for i, one in enumerate(column) if number_of(one) is None)
        raise ValueError(
            f"column {name!r} must hold numbers; row {column.index[at]} holds {shown(column.iloc[at])}. Convert it, or "
            "write NaN."
        ) from None


def number_of(one: Any) -> float | None:
    """A single entry as a number, NaN if it is missing; None if it is not a number."""
    try:
        if pd.api.types.is_scalar(one) and pd.isna(one):
            return math.nan
        return None if isinstance(one, NO_NUMBER) else float(one)
    except CANNOT:
        return None
