"""Read tables of any library that narwhals supports: polars, pyarrow, DuckDB and others, converted to pandas columns.

Numbers and time stamps become arrays, which share memory with the table if its library allows it. Text keeps its Arrow
buffers if pyarrow is installed. Only the requested columns are read, so lazy frames and relations compute nothing else.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from importlib.util import find_spec
from typing import Any, TypeAlias, cast

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd

from lformer.arrays import shown

Frame: TypeAlias = pd.DataFrame | nw.DataFrame[Any] | nw.LazyFrame[Any]
KNOWN = "a DataFrame of pandas or polars, a pyarrow Table, a DuckDB relation, or another table that narwhals knows"
OUTSIZE = (nw.Int128, nw.UInt128)  # integer types that numpy does not have


def open_table(table: Any, name: str) -> Frame:
    """Open a table so that columns can be selected; raises a clear error for anything else.

    Args:
        table: of any library.
        name: how to refer to it in errors.
    """
    frame = table if isinstance(table, pd.DataFrame) else foreign(table)
    if frame is None:
        raise TypeError(f"{name} must be {KNOWN}; got {type(table).__name__}.")
    return frame


def column_names(frame: Frame) -> list[Hashable]:
    """Names of all its columns, in order."""
    return list(frame.collect_schema().names() if isinstance(frame, nw.LazyFrame) else frame.columns)


def take_columns(frame: Frame, columns: Sequence[Hashable]) -> pd.DataFrame:
    """At least these columns, all of which the table has; a pandas table is returned unchanged.

    Example:
        >>> import pyarrow as pa
        >>> frame = open_table(pa.table({"who": ["b", "a"], "age": [61, None]}), "table")
        >>> take_columns(frame, ["age"])["age"].tolist()
        [61, <NA>]
    """
    if isinstance(frame, pd.DataFrame):
        return frame
    chosen = frame.select(*dict.fromkeys(cast("Sequence[str]", columns)))
    if isinstance(chosen, nw.LazyFrame):
        _require_arrow(chosen)
        chosen = chosen.collect()
    if chosen.implementation.is_pandas_like():  # modin, cudf
        return chosen.to_pandas()
    return pd.DataFrame({name: _column(chosen[name]) for name in chosen.columns}, copy=False)


def _require_arrow(frame: nw.LazyFrame[Any]) -> None:
    """Relations and the like return rows through Arrow; polars does not need pyarrow."""
    if not frame.implementation.is_polars() and find_spec("pyarrow") is None:
        raise ImportError(f"reading a table of {frame.implementation} needs pyarrow: pip install 'lformer[data]'.")


def indexed(table: Any, id: str, name: str) -> pd.DataFrame:
    """A table with one row per series, indexed by id: pandas tables unchanged, others by the column of that name."""
    frame = open_table(table, name)
    if isinstance(frame, pd.DataFrame):
        return frame
    columns = column_names(frame)
    if id not in columns or len(columns) < 2:
        raise ValueError(
            f"{name} is aligned by id, so it needs a column {id!r} that names the series and at least one other; it "
            f"has {', '.join(map(shown, columns))}. Rename the column of the ids."
        )
    return take_columns(frame, columns).set_index(id)


def target_by_id(target: Any, name: str) -> Any:
    """A table of another library as a pandas Series or DataFrame indexed by its column "id"; else unchanged."""
    frame = foreign(target)
    if frame is None:
        return target
    table = indexed(frame, "id", name)
    holey = [c for c in table.columns if isinstance(table[c].array, pd.arrays.IntegerArray | pd.arrays.BooleanArray)]
    table = table.astype(dict.fromkeys(holey, np.float64))  # NaN rather than pandas' NA
    return table.iloc[:, 0] if len(table.columns) == 1 else table


def foreign(table: Any) -> nw.DataFrame[Any] | nw.LazyFrame[Any] | None:
    """A table as narwhals sees it; None if it is not a table."""
    try:
        return nw.from_native(table)
    except TypeError:
        pass
    if not hasattr(table, "__arrow_c_stream__") or isinstance(table, type):
        return None
    try:  # an Arrow stream, such as the reader that DuckDB's `arrow()` returns
        return nw.from_arrow(table, backend="pyarrow")
    except (TypeError, ValueError, ImportError):  # a column rather than a table
        return None


def _column(column: nw.Series[Any]) -> pd.Series[Any]:
    dtype = column.dtype
    if isinstance(dtype, nw.Datetime):
        return _dates(column, dtype.time_zone)
    if dtype.is_float() or isinstance(dtype, nw.Date | nw.Duration):
        return pd.Series(column.to_numpy(), copy=False)  # with NaN and NaT for missing entries
    if (dtype.is_integer() and not isinstance(dtype, OUTSIZE)) or isinstance(dtype, nw.Boolean):
        return _whole(column)
    if isinstance(dtype, nw.String | nw.Categorical | nw.Enum):
        return _text(column)
    return pd.Series(column.to_list(), dtype=object)  # decimals, lists, nothing but nulls, ...


def _dates(column: nw.Series[Any], zone: str | None) -> pd.Series[Any]:
    """Arrays from narwhals are in UTC."""
    stamps = pd.Series(column.to_numpy(), copy=False)
    if zone is None:
        return stamps
    try:
        return stamps.dt.tz_localize("UTC").dt.tz_convert(zone)
    except (ValueError, KeyError) as error:
        raise ValueError(f"column {column.name!r} is in the time zone {zone!r}, which is not known here.") from error


def _whole(column: nw.Series[Any]) -> pd.Series[Any]:
    """Integers and booleans; if some are missing, with a mask, so that none is rounded."""
    if not column.null_count():
        return pd.Series(column.to_numpy(), copy=False)
    missing = column.is_null().to_numpy()
    if isinstance(column.dtype, nw.Boolean):
        return pd.Series(pd.arrays.BooleanArray(column.fill_null(False).to_numpy().copy(), missing.copy()), copy=False)
    return pd.Series(pd.arrays.IntegerArray(column.fill_null(0).to_numpy(), missing), copy=False)


def _text(column: nw.Series[Any]) -> pd.Series[Any]:
    """Text, or categories in their order; polars' Categorical has no order, so its categories are sorted."""
    try:
        found = column.to_native().to_pandas()
    except ImportError:  # polars without pyarrow
        names = column.dtype.categories if isinstance(column.dtype, nw.Enum) else None
        found = pd.Series(column.to_list())
        return found if names is None else found.astype(pd.CategoricalDtype(names))
    if isinstance(column.dtype, nw.Categorical) and column.implementation.is_polars():
        return found.cat.reorder_categories(np.sort(found.cat.categories))
    return found
