"""Time and memory against length as a figure. Needs the extra `plots`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lformer.bench.plots import require_matplotlib
from lformer.bench.speed import anchors, tables
from lformer.bench.speed.cells import Cell

PANELS = (
    ("forward", "seconds", "forward, ms", 1e3),
    ("training step", "seconds", "training step, ms", 1e3),
    ("replayed step", "seconds", "the step as a CUDA graph, ms", 1e3),
    ("training step", "peak_bytes", "training step, peak MiB", 2.0**-20),
)


def draw(path: Path, cells: Sequence[Cell], batch: int) -> None:
    """At one batch size, both axes logarithmic."""
    plt = require_matplotlib()
    names = list(dict.fromkeys(c.model for c in cells if c.batch == batch))
    panels = [panel for panel in PANELS if any(c.work == panel[0] for c in cells)]
    figure, axes = plt.subplots(1, len(panels), figsize=(4.4 * len(panels), 4.6), layout="constrained")
    for axis, (work, value, label, unit) in zip(axes, panels, strict=True):
        for n, model in enumerate(names):
            own = [c for c in cells if (c.model, c.work, c.batch) == (model, work, batch) and c.seconds is not None]
            axis.plot(
                [c.length for c in own], [unit * getattr(c, value) for c in own], color=f"C{n % 10}", label=model,
                **_style(model),
            )  # fmt: skip
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xlabel("length")
        axis.set_title(label)
        axis.grid(alpha=0.25)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    figure.suptitle(f"batch {batch}")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def draw_gpu(path: Path, record: dict[str, Any]) -> None:
    """The study against length of a record from a GPU."""
    cells = tables.lengths_of(record)
    path.parent.mkdir(parents=True, exist_ok=True)
    draw(path, cells, cells[0].batch)


def _style(model: str) -> dict[str, Any]:
    """Ours thick, causal dashed, figures of another run as stars without a line."""
    if model.endswith(anchors.MARK):
        return {"marker": "*", "markersize": 9, "linestyle": "none"}
    wide = model in ("lformer", "lformer-causal")
    dashes = "--" if model.endswith("causal") else "-"
    return {"marker": "o", "markersize": 4, "linewidth": 2.4 if wide else 1.2, "linestyle": dashes}
