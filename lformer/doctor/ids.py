"""Ids of a file: text as it is written, or whole numbers; and ids of two files that belong together."""

from __future__ import annotations

from typing import Any, Literal

import pandas as pd

from lformer.arrays import shown
from lformer.doctor.dates import is_text

WHOLE = r"\s*[+-]?\d+\s*"


def read_ids(column: pd.Series[Any], id_type: Literal["text", "int"], place: str) -> pd.Series[Any]:
    """Ids as they are to be compared: text stays as it is written, and so do numbers of a file that knows types.

    Whole numbers that a file holds as floating ones, because some were missing, are whole again.

    Args:
        column: as it was read.
        id_type: "int" reads text as whole numbers.
        place: what to call the column in an error.
    """
    if pd.api.types.is_float_dtype(column.dtype) and bool((column.dropna() % 1 == 0).all()):
        return column.astype("Int64") if column.isna().any() else column.astype("int64")
    if id_type == "int" and not pd.api.types.is_integer_dtype(column.dtype):
        return _whole(column, place)
    if pd.api.types.is_object_dtype(column.dtype) and pd.api.types.infer_dtype(column, skipna=True) != "string":
        return column.astype(str).where(column.notna(), None)  # of a file whose ids are 1 here and "1" there
    return column


def _whole(column: pd.Series[Any], place: str) -> pd.Series[Any]:
    text = column.astype("string")
    strange = text.notna() & ~text.str.fullmatch(WHOLE).fillna(False)
    if strange.any():
        row = column.index[int(strange.argmax())]
        raise ValueError(
            f"{place}: --id-type int needs whole numbers; row {row} holds {shown(column[strange].iloc[0])}. Leave the "
            "option out to take ids as text."
        )
    return text.str.strip().astype("Int64") if text.isna().any() else text.str.strip().astype("int64")


def ids_like(column: pd.Series[Any], known: Any, place: str, other: str) -> pd.Series[Any]:
    """Ids of one file in the type of those of another: 7 and "7" are the same, 7 and "007" are not.

    Args:
        column: ids to compare.
        known: what they are compared with, of the file `other`.
        place: what to call the column in an error.
        other: what to call the other one.
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
