"""A folder of records to a page in a file."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from lformer.bench.explorer.gather import gather
from lformer.bench.explorer.page import page
from lformer.bench.records import read_all
from lformer.sealed import write_text


def write(records: Path, out: Path) -> Path:
    """Write the page of all records under a folder; one that is there is replaced.

    Args:
        records: such as results/bench.
        out: a name that ends with .html.

    Returns:
        `out`.
    """
    if out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"--out must end with .html; got {out}.")
    if out.is_dir():
        raise ValueError(f"--out must be a file; {out} is a folder.")
    found = read_all(records)
    if not found:
        raise ValueError(f"no records in {records.absolute()}, so no page: run a cell first, or name their folder.")
    base = quote(Path(os.path.relpath(records.absolute(), out.absolute().parent)).as_posix()) + "/"
    write_text(out, page(gather(found), base=base))
    return out
