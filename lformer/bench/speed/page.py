"""docs/speed.md from the records: `python -m lformer.bench.speed.page`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from lformer.bench.layout import markdown
from lformer.bench.marks import fill
from lformer.bench.speed import every, figures, scaling, tables
from lformer.bench.speed.cells import WORKS, Cell

PAGE, RECORDS = Path("docs/speed.md"), Path("results/speed")
PICTURES = {"cpu": "speed.png", "cuda": "speed-gpu.png"}
SCALING_PICTURES = {"cpu": "speed-scaling-cpu.png", "cuda": "speed-scaling-gpu.png"}
StudyRecords = dict[str, dict[str, Any]]  # by device, those that there are
BATCH = 8  # of the tables of a CPU


def filled(
    text: str, cpu: dict[str, Any], cuda: dict[str, Any], models: StudyRecords | None = None,
    scales: StudyRecords | None = None,
) -> str:  # fmt: skip
    """The page with the tables of these records between its marks.

    Args:
        text: the page as it is.
        cpu, cuda: records of the studies against length.
        models: of every model; what is not there is not spoken of.
        scales: of the study of scaling, likewise.
    """
    cells = [Cell(**cell) for cell in cpu["cells"]]
    parts = [f"**{work}**\n\n{markdown(tables.table(cells, work, BATCH))}" for work in WORKS]
    parts.append(f"![Time and memory against length]({PICTURES['cpu']}#plot)")
    text = fill(text, "speed", "\n\n".join(parts))
    picture = f"![Time and memory against length on a GPU]({PICTURES['cuda']}#plot)"
    text = fill(text, "speed-gpu", f"{tables.highlights(cuda)}\n\n{picture}")
    text = fill(text, "speed-scaling", scaling_part(scales or {}))
    return fill(text, "speed-models", models_part(models or {}))


def models_part(records: StudyRecords) -> str:
    """The tables of every model."""
    return "\n\n".join(f"{every.words(record)}\n\n{markdown(every.table(record))}" for record in records.values())


def scaling_part(records: StudyRecords) -> str:
    """What the study of scaling says, its figures and tables."""
    parts = []
    for device, record in records.items():
        picture = f"![Time and memory of solvers against length]({SCALING_PICTURES[device]}#plot)"
        parts += [scaling.words(record), picture, markdown(scaling.table(record))]
    return "\n\n".join(parts)


def records_of(root: Path, study: Literal["models", "scaling"]) -> StudyRecords:
    """The records of a study under `root` that there are, that of a GPU first."""
    paths = {device: root / RECORDS / f"{study}-{device}.json" for device in ("cuda", "cpu")}
    return {device: json.loads(path.read_text()) for device, path in paths.items() if path.exists()}


def main(root: Path = Path()) -> None:
    """Fill the page under `root`, and draw its pictures."""
    cpu, cuda = (json.loads((root / RECORDS / f"{name}.json").read_text()) for name in ("cpu", "cuda"))
    models, scales = records_of(root, "models"), records_of(root, "scaling")
    page = root / PAGE
    figures.draw(page.parent / PICTURES["cpu"], [Cell(**cell) for cell in cpu["cells"]], BATCH)
    figures.draw_gpu(page.parent / PICTURES["cuda"], cuda)
    for device, record in scales.items():
        figures.draw_scaling(page.parent / SCALING_PICTURES[device], record)
    page.write_text(filled(page.read_text(), cpu, cuda, models, scales))


if __name__ == "__main__":
    main()
