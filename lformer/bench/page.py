"""A page of the documentation with the tables of all records between its marks."""

from __future__ import annotations

from collections.abc import Iterable

from lformer.bench.layout import MARKDOWN
from lformer.bench.records import Record
from lformer.bench.tables import result_tables

BEGIN, END = "<!-- tables -->", "<!-- /tables -->"


def filled(text: str, records: Iterable[Record]) -> str:
    """The page with the tables of these records."""
    before, found, rest = text.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not (found and closed):
        raise ValueError(f"a page needs the marks {BEGIN} and {END}, in this order, around the tables.")
    body = "\n".join([f"{MARKDOWN.legend}\n", *(table.markdown(legend=False) for table in result_tables(records))])
    return f"{before}{BEGIN}\n\n{body}\n{END}{after}"
