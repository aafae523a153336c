"""Guesses what unreadable cells are meant to be, and names the option that reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from shlex import quote
from typing import Any

import pandas as pd

from lformer.arrays import shown

LOOKED_AT = 1000  # cells
DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+(e[+-]?\d+)?", re.IGNORECASE)
DECIMAL_COMMA_THOUSANDS = re.compile(r"[+-]?\d{1,3}(\.\d{3})+(,\d+)?")
THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
SPACED_THOUSANDS = re.compile(r"[+-]?\d{1,3}([ \u00a0\u202f]\d{3})+([.,]\d+)?")
UNIT = re.compile(r"[+-]?\d+([.,]\d+)?\s*[^\W\d_%][^\d]*|[+-]?\d+([.,]\d+)?\s*[%°].*")
DURATION = re.compile(
    r"P(?=.)(\d+D)?(T.*)?|(\d+ days?,? )?\d{1,3}:\d{2}(:\d{2}(\.\d+)?)?|\d+(\.\d+)? ?(d|h|min|s|days?|hours?)"
)
DATES = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%d.%m.%y", "%d/%m/%y", "%m/%d/%y", "%Y/%m/%d",
         "%Y.%m.%d", "%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%d-%b-%Y", "%Y%m%d")  # fmt: skip
HOURS = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p", "T%H:%M", "T%H:%M:%S")


def about_numbers(cells: Iterable[Any]) -> str:
    """Advice on cells that should be numbers."""
    texts = _texts(cells)
    if _all(THOUSANDS, texts):
        one_group = all(text.count(",") == 1 and "." not in text for text in texts)
        return "Give --thousands , if commas group the digits" + (
            f", or --decimal , if {texts[0]} is {texts[0].replace(',', '.')}." if one_group else "."
        )
    if _all(DECIMAL_COMMA, texts):
        return "They have a decimal comma: give --decimal ,"
    if _all(DECIMAL_COMMA_THOUSANDS, texts) or _either((DECIMAL_COMMA, DECIMAL_COMMA_THOUSANDS), texts):
        return "They have a decimal comma and points between thousands: give --decimal , --thousands ."
    if _all(SPACED_THOUSANDS, texts):
        return "Give --thousands ' ' if spaces group the digits."
    if _all(UNIT, texts):
        return "Write the number without its unit, and the unit into the name of the channel."
    few = list(dict.fromkeys(texts))
    if texts and len(few) <= 3:
        words = " ".join(f"--missing-text {quote(text)}" for text in few)
        return f"If that stands for a missing value, give {words}; else correct the cells."
    return "Correct the cells, or give --missing-text for each text that stands for a missing value."


def about_stamps(cells: Iterable[Any]) -> str:
    """Advice on time stamps that are neither numbers nor ISO 8601."""
    texts = _texts(cells)
    if _all(DECIMAL_COMMA, texts):
        return "They have a decimal comma: give --decimal ,"
    if _all(DURATION, texts):
        return "They seem to be durations: give --time-format duration"
    if fitting := _formats(texts):
        shown = " or ".join(f'--time-format "{form}"' for form in fitting[:2])
        which = ", whichever comes first in your dates, day or month" if len(fitting) > 1 else ""
        return f"Give {shown}{which}."
    return 'Correct or drop them; a format other than ISO 8601 is named by --time-format, such as "%d.%m.%Y %H:%M".'


def _texts(cells: Iterable[Any]) -> list[str]:
    """The first cells as text."""
    return [text_of(one).strip() for one, _ in zip(cells, range(LOOKED_AT), strict=False)]


def text_of(one: Any) -> str:
    """A cell as text."""
    try:
        return str(one)
    except ValueError:  # of a whole number beyond 4,300 digits
        return shown(one)


def _all(pattern: re.Pattern[str], texts: Sequence[str]) -> bool:
    return bool(texts) and all(pattern.fullmatch(text) for text in texts)


def _either(patterns: Sequence[re.Pattern[str]], texts: Sequence[str]) -> bool:
    return bool(texts) and all(any(pattern.fullmatch(text) for pattern in patterns) for text in texts)


def _formats(texts: Sequence[str]) -> list[str]:
    """The date formats that fit all texts."""
    if not texts:
        return []
    first, column = pd.Series(texts[:1]), pd.Series(texts)
    forms = [date + hour for date in DATES for hour in HOURS]
    able = [form for form in forms if _reads(first, form)]
    return [form for form in able if _reads(column, form)]


def _reads(column: pd.Series[Any], form: str) -> bool:
    try:
        return bool(pd.to_datetime(column, format=form, errors="coerce").notna().all())
    except ValueError:
        return False
