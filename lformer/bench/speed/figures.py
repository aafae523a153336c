"""Time and memory against length as a figure. Needs the extra `plots`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lformer.bench.plots import PALE, require_matplotlib
from lformer.bench.speed import anchors, scaling, tables
from lformer.bench.speed.cells import Cell

PANELS = (
    ("forward", "seconds", "forward, ms", 1e3),
    ("training step", "seconds", "training step, ms", 1e3),
    ("replayed step", "seconds", "the step as a CUDA graph, ms", 1e3),
    ("training step", "peak_bytes", "training step, peak MiB", 2.0**-20),
)
SCALING_PANELS = (("seconds", "time, ms", 1e3), ("peak_bytes", "peak memory, MiB", 2.0**-20))

LEADER = {"arrowstyle": "-", "alpha": 0.3, "linewidth": 0.8, "shrinkB": 6, "relpos": (0, 0.5)}  # name to line


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


def draw_scaling(path: Path, record: dict[str, Any]) -> None:
    """Time and memory of a training step, a line for each model; × where one ends early, and slopes to compare with."""
    plt = require_matplotlib()
    found = {name: scaling.measured(cells) for name, cells in scaling.lines(record).items()}
    ends = {name: scaling.beyond(cells) for name, cells in scaling.lines(record).items()}
    figure, axes = plt.subplots(1, 2, figsize=(13.2, 5.4), layout="constrained")
    for axis, (value, label, unit) in zip(axes, SCALING_PANELS, strict=True):
        drawn = {name: [(c.length, unit * getattr(c, value)) for c in own] for name, own in found.items() if own}
        for n, (name, points) in enumerate(drawn.items()):
            axis.plot(*zip(*points, strict=True), color=f"C{n % 10}", **_style(name) | _solver_style(name))
            if ends[name]:
                axis.plot(*points[-1], "x", color=f"C{n % 10}", markersize=11, markeredgewidth=2.2)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xlabel("length")
        axis.set_title(label)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
        if drawn:
            _slopes(axis, [point for points in drawn.values() for point in points])
            _name_ends(axis, {name: points[-1] for name, points in drawn.items()}, ends)
    figure.suptitle(f"training step, batch {record['setting']['batch']}, {tables.machine_words(record['machine'])}")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _solver_style(model: str) -> dict[str, Any]:
    """Models that solve equations are dashed."""
    return {"linestyle": "--"} if model in scaling.SOLVERS else {}


def _slopes(axis: Any, points: Sequence[tuple[int, float]]) -> None:
    """Pale lines of slope 1 and 2 from one place above the shortest series, where nothing is drawn."""
    short, low, high = min(x for x, _ in points), min(y for _, y in points), max(y for _, y in points)
    begin, stretch = 2.5 * max(y for x, y in points if x <= 4 * short), 6.0
    for power, text in ((1, "∝ L"), (2, "∝ L²")):
        end = (stretch * short, begin * stretch**power)
        axis.plot((short, end[0]), (begin, end[1]), color=PALE, linewidth=1.2, linestyle=":", zorder=0)
        axis.annotate(text, end, (4, 0), textcoords="offset points", fontsize=9, color=PALE, va="center")
    axis.set_ylim(low / 2, max(2 * high, 2 * begin * stretch**2))


def _name_ends(axis: Any, ends: dict[str, tuple[int, float]], why: dict[str, str]) -> None:
    """Names in a column on the right, each with what ended its line, joined to that end by a thin line."""
    left, right = axis.get_xlim()
    bottom, top = (math.log(y) for y in axis.get_ylim())
    heights = spread([(math.log(y) - bottom) / (top - bottom) for _, y in ends.values()], 0.055)
    axis.set_xlim(left, right * (right / left) ** 0.06)
    for n, ((name, xy), height) in enumerate(zip(ends.items(), heights, strict=True)):
        axis.annotate(
            name + (f", then {why[name]}" if why[name] else ""), xy, (1.01, height), textcoords="axes fraction",
            va="center", fontsize=9.5, color=f"C{n % 10}", weight="bold" if name == "lformer" else "normal",
            annotation_clip=False,
            arrowprops={"color": f"C{n % 10}", **LEADER},
        )  # fmt: skip


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Places between 0 and 1, moved as little as keeps them in order and `gap` apart: up, then down from the top.

    Example:
        >>> [round(place, 2) for place in spread([0.5, 0.48, 1.0], 0.1)]
        [0.58, 0.48, 1.0]
    """
    order = sorted(range(len(places)), key=lambda n: places[n])
    moved = list(places)
    for below, n in itertools.pairwise(order):
        moved[n] = max(moved[n], moved[below] + gap)
    for n, above in reversed(list(itertools.pairwise(order))):
        highest = min(moved[above], 1.0)
        moved[above], moved[n] = highest, min(moved[n], highest - gap)
    return moved
