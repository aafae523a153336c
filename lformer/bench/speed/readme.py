"""The README's part on GPUs, from a record: `python -m lformer.bench.speed.readme results/speed/cuda.json`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from lformer.bench.speed import figures, tables

BEGIN, END = "<!-- speed-gpu -->", "<!-- /speed-gpu -->"
PICTURE = Path("docs/speed-gpu.png")


def filled(text: str, record: dict[str, Any]) -> str:
    """A README with the tables of this record between its marks."""
    before, found, rest = text.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not (found and closed):
        raise ValueError(f"the README needs the marks {BEGIN} and {END}, in this order, around the GPU's tables.")
    return f"{before}{BEGIN}\n\n{section(record)}\n\n{END}{after}"


def section(record: dict[str, Any]) -> str:
    return f"{tables.readme(record)}\n\n![Time and memory against length on a GPU]({PICTURE})"


def main(record: Path, root: Path = Path()) -> None:
    """Fill README.md under `root`, and draw its picture."""
    found = json.loads(record.read_text())
    figures.draw_gpu(root / PICTURE, found)
    (root / "README.md").write_text(filled((root / "README.md").read_text(), found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
