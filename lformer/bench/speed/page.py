"""docs/speed.md from the records: `python -m lformer.bench.speed.page`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lformer.bench.layout import markdown
from lformer.bench.marks import fill
from lformer.bench.speed import figures, tables
from lformer.bench.speed.cells import WORKS, Cell

PAGE, RECORDS = Path("docs/speed.md"), Path("results/speed")
PICTURES = {"cpu": "speed.png", "cuda": "speed-gpu.png"}
BATCH = 8  # of the tables of a CPU


def filled(text: str, cpu: dict[str, Any], cuda: dict[str, Any]) -> str:
    """The page with the tables of these records between its marks."""
    cells = [Cell(**cell) for cell in cpu["cells"]]
    parts = [f"**{work}**\n\n{markdown(tables.table(cells, work, BATCH))}" for work in WORKS]
    parts.append(f"![Time and memory against length]({PICTURES['cpu']})")
    text = fill(text, "speed", "\n\n".join(parts))
    picture = f"![Time and memory against length on a GPU]({PICTURES['cuda']})"
    return fill(text, "speed-gpu", f"{tables.highlights(cuda)}\n\n{picture}")


def main(root: Path = Path()) -> None:
    """Fill the page under `root`, and draw its pictures."""
    cpu, cuda = (json.loads((root / RECORDS / f"{name}.json").read_text()) for name in ("cpu", "cuda"))
    page = root / PAGE
    figures.draw(page.parent / PICTURES["cpu"], [Cell(**cell) for cell in cpu["cells"]], BATCH)
    figures.draw_gpu(page.parent / PICTURES["cuda"], cuda)
    page.write_text(filled(page.read_text(), cpu, cuda))


if __name__ == "__main__":
    main()
