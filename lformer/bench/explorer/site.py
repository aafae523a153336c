"""The explorer as a page of the documentation: a hook of MkDocs that makes it anew from the records at every build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

NAME = "explorer.html"
NOTHING = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"/><title>lformer · results</title></head><body>
<p>This copy has no records. Those of the published tables are in results/bench of the repository;
<code>lformer bench page</code> makes this page of them.</p></body></html>
"""


def on_files(files: Any, *, config: Any) -> Any:
    """Add the page to the files of the site, so that links to it are checked as all others are."""
    from mkdocs.structure.files import File

    root = Path(config.config_file_path).parent / "results" / "bench"
    files.append(File.generated(config, NAME, content=text(root)))
    return files


def text(root: Path) -> str:
    """The page of the records under a folder; a word of excuse where a source distribution came without them."""
    if not root.is_dir():
        return NOTHING
    from lformer.bench.explorer.gather import gather
    from lformer.bench.explorer.page import page
    from lformer.bench.records import read_all

    return page(gather(read_all(root)), back="results.html")
