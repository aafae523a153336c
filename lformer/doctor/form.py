"""The format of a table in a file, as far as the file does not describe it itself."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import Literal

from lformer.panel.zones import read_zone

UNIX = {f"unix-{unit}": unit for unit in ("s", "ms", "us", "ns")}  # time since 1970, by the unit's name in pandas
WORDS = ("duration", "excel", *UNIX)  # formats of time stamps that have a name


@dataclass(frozen=True, kw_only=True)
class Form:
    """The format of a table; each attribute is also an option of the commands that read tables.

    Attributes:
        sep: separator between the cells of a text file; None is a comma, or a tab for .tsv.
        decimal: decimal mark of numbers in text.
        thousands: thousands separator of numbers in text.
        encoding: encoding of the text.
        time_format: format of the time stamps: as for `strptime`, "duration", "excel" for the day numbers of
            spreadsheets, or "unix-s", "unix-ms", "unix-us", "unix-ns" for time since 1970. None reads numbers and
            ISO 8601.
        time_zone: time stamps without an offset are local time in this zone, those with one are converted to it.
        id_type: "text" keeps ids as written: 007 is not 7. "int" reads them as whole numbers.
        missing_text: texts that stand for a missing value, in addition to an empty cell, NA, NaN, null and the like.
    """

    sep: str | None = None
    decimal: str = "."
    thousands: str | None = None
    encoding: str = "utf-8"
    time_format: str | None = None
    time_zone: str | None = None
    id_type: Literal["text", "int"] = "text"
    missing_text: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, mark in (("sep", self.sep), ("decimal", self.decimal), ("thousands", self.thousands)):
            if mark is not None and len(mark) != 1:
                raise ValueError(f"--{name} must be a single character; got {mark!r}.")
        if self.decimal == self.thousands:
            raise ValueError(f"--decimal and --thousands must differ; both are {self.decimal!r}.")
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            raise ValueError(
                f"--encoding must be one that Python knows, such as latin-1; got {self.encoding!r}."
            ) from None
        if self.time_format is not None and self.time_format not in WORDS and "%" not in self.time_format:
            raise ValueError(
                f'--time-format must be a format such as "%d.%m.%Y %H:%M", or one of {", ".join(WORDS)}; got '
                f"{self.time_format!r}."
            )
        if self.time_zone is not None:
            try:
                read_zone(self.time_zone)
            except ValueError:
                raise ValueError(
                    f"--time-zone must be a time zone, such as Europe/Berlin or UTC; got {self.time_zone!r}."
                ) from None
        if self.id_type not in ("text", "int"):
            raise ValueError(f"--id-type must be text or int; got {self.id_type!r}.")

    @property
    def dated(self) -> bool:
        """Whether time stamps have a format of `strptime`."""
        return self.time_format is not None and "%" in self.time_format


PLAIN = Form()
