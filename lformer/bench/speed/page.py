"""docs/speed.md from the records: `python -m lformer.bench.speed.page`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lformer.bench.layout import markdown
from lformer.bench.marks import fill
from lformer.bench.speed import every, figures, tables
from lformer.bench.speed.cells import WORKS, Cell

PAGE, RECORDS = Path("docs/speed.md"), Path("results/speed")
PICTURES = {"cpu": "speed.png", "cuda": "speed-gpu.png"}
BATCH = 8  # of the tables of a CPU
NOT_MEASURED = "There is no record of this yet."


def filled(text: str, cpu: dict[str, Any], cuda: dict[str, Any], models: Sequence[dict[str, Any]] = ()) -> str:
    """The page with the tables of these records between its marks; `models` are those of every model, by device."""
    cells = [Cell(**cell) for cell in cpu["cells"]]
    parts = [f"**{work}**\n\n{markdown(tables.table(cells, work, BATCH))}" for work in WORKS]
    parts.append(f"![Time and memory against length]({PICTURES['cpu']}#plot)")
    text = fill(text, "speed", "\n\n".join(parts))
    picture = f"![Time and memory against length on a GPU]({PICTURES['cuda']}#plot)"
    text = fill(text, "speed-gpu", f"{tables.highlights(cuda)}\n\n{picture}")
    return fill(text, "speed-models", models_part(models))


def models_part(records: Sequence[dict[str, Any]]) -> str:
    """The tables of every model."""
    shown = [f"{every.words(record)}\n\n{markdown(every.table(record))}" for record in records]
    return "\n\n".join(shown) or NOT_MEASURED


def records_of_models(root: Path) -> list[dict[str, Any]]:
    """The records of every model that there are, that of a CPU first."""
    paths = [root / RECORDS / f"models-{device}.json" for device in ("cpu", "cuda")]
    return [json.loads(path.read_text()) for path in paths if path.exists()]


def main(root: Path = Path()) -> None:
    """Fill the page under `root`, and draw its pictures."""
    cpu, cuda = (json.loads((root / RECORDS / f"{name}.json").read_text()) for name in ("cpu", "cuda"))
    page = root / PAGE
    figures.draw(page.parent / PICTURES["cpu"], [Cell(**cell) for cell in cpu["cells"]], BATCH)
    figures.draw_gpu(page.parent / PICTURES["cuda"], cuda)
    page.write_text(filled(page.read_text(), cpu, cuda, records_of_models(root)))


if __name__ == "__main__":
    main()
