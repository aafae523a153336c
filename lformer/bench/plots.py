"""Figures, as pure functions of numbers. Needs the extra `plots`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from lformer.bench.speed import Cell

INK, SEEN, FIRST, SECOND = "#3b3b3b", "#d1495b", "#00798c", "#edae49"


def require_matplotlib() -> Any:
    """pyplot without a window, or an error that says what to install."""
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError("figures need matplotlib; install it with: pip install 'lformer[plots]'") from error
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def spiral_figure(path: Path, truth: Tensor, prediction: Tensor, observed: list[Tensor], half: int, title: str) -> None:
    """Reconstructed spirals in a row of panels.

    Args:
        path: where the PNG goes.
        truth: (N, P, 2) clean curves.
        prediction: (N, P, 2).
        observed: N tensors (points, 2) of noisy observations.
        half: where extrapolation begins.
        title: above all panels.
    """
    plt = require_matplotlib()
    columns = min(3, len(truth))
    rows = -(-len(truth) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(3.6 * columns, 3.5 * rows + 0.7), squeeze=False, layout="constrained"
    )
    for axis, clean, curve, points in zip(axes.flat, truth, prediction, observed, strict=False):
        axis.plot(*clean.T, color=INK, linewidth=4.5, alpha=0.22, solid_capstyle="round", label="truth")
        axis.plot(*curve[: half + 1].T, color=FIRST, linewidth=1.6, label="reconstruction, observed half")
        axis.plot(*curve[half:].T, color=SECOND, linewidth=1.6, label="reconstruction, unseen half")
        axis.scatter(*points.T, s=16, color=SEEN, zorder=3, linewidths=0, label=f"{len(points)} noisy observations")
        axis.set_aspect("equal", adjustable="datalim")
        axis.set_xticks([])
        axis.set_yticks([])
        for side in axis.spines.values():
            side.set_color("#dddddd")
    for axis in list(axes.flat)[len(truth) :]:
        axis.axis("off")
    figure.suptitle(title)
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def speed_figure(path: Path, cells: Sequence[Cell], batch: int) -> None:
    """Time and memory against length at one batch size, both axes logarithmic."""
    plt = require_matplotlib()
    panels: list[tuple[str, str, str, float]] = [
        ("forward", "seconds", "forward, ms", 1e3),
        ("training step", "seconds", "training step, ms", 1e3),
        ("training step", "peak_bytes", "training step, peak MiB", 2.0**-20),
    ]
    figure, axes = plt.subplots(1, len(panels), figsize=(4.4 * len(panels), 4.2), layout="constrained")
    for axis, (work, value, label, unit) in zip(axes, panels, strict=True):
        chosen = [c for c in cells if c.work == work and c.batch == batch and c.seconds is not None]
        for model in dict.fromkeys(c.model for c in chosen):
            own = [c for c in chosen if c.model == model]
            ours = model.startswith("lformer")
            axis.plot(
                [c.length for c in own], [unit * getattr(c, value) for c in own], marker="o", markersize=4,
                linewidth=2.4 if ours else 1.2, linestyle="--" if model.endswith("causal") else "-", label=model,
            )  # fmt: skip
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xlabel("length")
        axis.set_title(label)
        axis.grid(alpha=0.25)
    axes[0].legend(frameon=False)
    figure.suptitle(f"batch {batch}")
    figure.savefig(path, dpi=130)
    plt.close(figure)
