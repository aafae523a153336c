"""Ids of a file, as text or whole numbers, and matching the ids of two files."""

from __future__ import annotations

from typing import Any, Literal

import pandas as pd

from lformer.arrays import shown
from lformer.doctor.dates import is_text

WHOLE = r"\s*[+-]?\d+\s*"


def read_ids(column: pd.Series[Any], id_type: Literal["text", "int"], place: str) -> pd.Series[Any]:
    """Ids in the form in which they are compared: text as written, numbers as numbers if the file format has types.

    Whole numbers that a file stores as floats, because some are missing, become integers again.

    Args:
        column: the column as read from the file.
        id_type: "int" reads text as whole numbers.
        place: name of the column in errors.
    """
    if pd.api.types.is_float_dtype(column.dtype) and bool((column.dropna() % 1 == 0).all()):
        return column.astype("Int64") if column.isna().any() else column.astype("int64")
    if id_type == "int" and not pd.api.types.is_integer_dtype(column.dtype):
        return _whole(column, place)
    if pd.api.types.is_object_dtype(column.dtype) and pd.api.types.infer_dtype(column, skipna=True) != "string":
        return column.astype(str).where(column.notna(), None)  # for a file that has both 1 and "1"
    return column


def _whole(column: pd.Series[Any], place: str) -> pd.Series[Any]:
    text = column.astype("string")
    strange = text.notna() & ~text.str.fullmatch(WHOLE).fillna(False)
    if strange.any():
        row = column.index[int(strange.argmax())]
        raise ValueError(
            f"{place}: --id-type int needs whole numbers; row {row} holds {shown(column[strange].iloc[0])}. Leave the "
            "option out to read ids as text."
        )
    return text.str.strip().astype("Int64") if text.isna().any() else text.str.strip().astype("int64")


def ids_like(column: pd.Series[Any], known: Any, place: str, other: str) -> pd.Series[Any]:
    """Ids of one file, converted to the type of those of another: 7 and "7" are the same, 7 and "007" are not.

    Args:
        column: the ids to convert.
        known: the ids to compare with, of the file `other`.
        place: name of the column in errors.
        other: name of the other file in errors.
    """
    numbers, wanted = (pd.api.types.is_numeric_dtype(one.dtype) for one in (column, pd.Series(known)))
    if numbers and not wanted:
        return column.astype("string").astype(object)
    if wanted and not numbers and is_text(column):
        text = column.astype("string")
        plain = text.str.fullmatch(r"0|-?[1-9]\d*").fillna(True)
        if not plain.all():
            row = column.index[int((~plain).argmax())]
            raise ValueError(
                f"{place}: row {row} holds the text {shown(column[~plain].iloc[0])}, but the ids of {other} are "
                f"numbers, such as {known[0]}. --id-type int reads text as whole numbers."
            )
        return text.astype("Int64") if text.isna().any() else text.astype("int64")
    return column
