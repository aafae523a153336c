"""From a file to a table."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import Any

import pandas as pd


def read_table(path: str | Path, *, time: str | None = None) -> pd.DataFrame:
    """A table from .csv, .csv.gz or .parquet.

    Args:
        path: of the file.
        time: a column to turn from ISO 8601 text into calendar stamps. It stays text if a stamp cannot be read or
            their time zones differ, and `examine` then says which.
    """
    path = Path(path)
    name = path.name.lower()
    if name.endswith((".csv", ".csv.gz")):
        try:
            table = pd.read_csv(path, low_memory=False)
        except pd.errors.EmptyDataError:
            raise ValueError(f"{path} is empty; expected a first line with the names of the columns.") from None
        except (pd.errors.ParserError, UnicodeDecodeError, EOFError) as error:
            raise ValueError(f"{path} cannot be read as comma-separated text: {str(error).strip()}") from error
    elif name.endswith(".parquet"):
        try:
            importlib.import_module("pyarrow")
        except ImportError:
            raise ImportError(f'{path} needs pyarrow to be read: pip install "lformer[data]"') from None
        table = pd.read_parquet(path, engine="pyarrow")
    else:
        raise ValueError(f"expected a file that ends with .csv, .csv.gz or .parquet; got {path}.")
    if time in table.columns and is_text(table[time]):
        table[time] = _calendar(table[time])
    return table


def is_text(column: pd.Series[Any]) -> bool:
    """Text, or Python objects of any kind."""
    return pd.api.types.is_object_dtype(column.dtype) or pd.api.types.is_string_dtype(column.dtype)


def _calendar(column: pd.Series[Any]) -> pd.Series[Any]:
    """ISO 8601 text as calendar stamps, or the text if any of it cannot be read or the zones differ."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # older pandas only warns of mixed zones
            parsed = pd.to_datetime(column, format="ISO8601")
    except (ValueError, TypeError, Warning):
        return column
    return column if is_text(parsed) else parsed
