"""A page of the documentation with the tables of all records between its marks."""

from __future__ import annotations

from collections.abc import Iterable

from lformer.bench.layout import MARKDOWN
from lformer.bench.marks import fill
from lformer.bench.records import Record
from lformer.bench.tables import result_tables


def filled(text: str, records: Iterable[Record]) -> str:
    """The page with the tables of these records."""
    body = "\n".join([f"{MARKDOWN.legend}\n", *(table.markdown(legend=False) for table in result_tables(records))])
    return fill(text, "tables", body.rstrip("\n"))
