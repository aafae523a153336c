"""How a table is written in a file: what the file itself does not say."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import Literal

from lformer.panel.zones import read_zone

UNIX = {f"unix-{unit}": unit for unit in ("s", "ms", "us", "ns")}  # time since 1970, which pandas reads by its unit
WORDS = ("duration", "excel", *UNIX)  # formats of stamps that have a name


@dataclass(frozen=True, kw_only=True)
class Form:
    """How a table is written; each is also an option of the commands that read tables.

    Attributes:
        sep: what separates two cells of a text file; None takes a comma, or a tab for .tsv.
        decimal: the decimal mark of numbers in text.
        thousands: what separates their thousands.
        encoding: of the text.
        time_format: of the stamps: as `strptime` has it, "duration", "excel" for the day numbers of spreadsheets, or
            "unix-s", "unix-ms", "unix-us", "unix-ns" for time since 1970. None takes numbers, and ISO 8601.
        time_zone: stamps without an offset are on the wall of this zone, those with one are converted to it.
        id_type: "text" leaves ids as they are written: 007 is not 7. "int" reads them as whole numbers.
        missing_text: cells that stand for a missing value, besides an empty cell, NA, NaN, null and the like.
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
                f'--time-format must be such as "%d.%m.%Y %H:%M", or one of {", ".join(WORDS)}; got '
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
        """Whether stamps are written after a pattern of `strptime`."""
        return self.time_format is not None and "%" in self.time_format


PLAIN = Form()
