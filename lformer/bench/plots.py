"""Figures, as pure functions of numbers. Needs the extra `plots`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from lformer.bench.layout import WORDS

if TYPE_CHECKING:
    from lformer.bench.records import Record
    from lformer.train import History  # slow to import

INK, SEEN, FIRST, SECOND, PALE = "#3b3b3b", "#d1495b", "#00798c", "#edae49", "#9a9a9a"
PLACES = ((7, 0), (-7, 0), (0, 9), (0, -9), (7, 9), (-7, 9), (7, -9), (-7, -9))  # of a name, points from its dot


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


def dynamics_figure(path: Path, records_with: Sequence[Record], records_without: Sequence[Record]) -> None:
    """Training loss and validation metric against the epoch, with and without the normalisation of the gate.

    Args:
        path: where the PNG goes.
        records_with: runs of the full model, one per seed.
        records_without: runs of the ablation `no_normalisation`; none if it never got through an epoch.
    """
    kinds = [("with normalisation", FIRST, records_with), ("without normalisation", SEEN, records_without)]
    histories = [(label, color, [r["history"] for r in runs if r.get("history")]) for label, color, runs in kinds]
    rows = [row for _, _, runs in histories for history in runs for row in history]
    if not rows:
        raise ValueError("none of the records has a history, so there is nothing to draw.")
    metric = next(name for name in ("accuracy", "rmse", "mse", "mae") if name in rows[0])
    plt = require_matplotlib()
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.9), layout="constrained")
    for axis, name in zip(axes, ("loss", metric), strict=True):
        for label, color, runs in histories:
            _curves(axis, runs, name, label if runs else f"{label}: no epoch finished", color)
        if name != "accuracy" and all(row[name] > 0 for row in rows):
            axis.set_yscale("log")
            axis.yaxis.set_major_locator(plt.LogLocator(subs=(1, 2, 5)))
            axis.yaxis.set_major_formatter("{x:g}")
            axis.yaxis.set_minor_formatter(plt.NullFormatter())
        axis.set_xlabel("epoch")
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("training loss")
    axes[1].set_ylabel(f"validation {WORDS.get(metric, metric)}")
    axes[0].legend(frameon=False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _curves(axis: Any, histories: Sequence[History], name: str, label: str, color: str) -> None:
    """Every run as a thin line, and their mean as far as all of them go."""
    for history in histories:
        epochs, values = zip(*[(row["epoch"], row[name]) for row in history], strict=True)
        axis.plot(epochs, values, color=color, alpha=0.3, linewidth=0.9)
    together = list(zip(*histories, strict=False))
    means = [sum(row[name] for row in rows) / len(rows) for rows in together]
    axis.plot([rows[0]["epoch"] for rows in together], means, color=color, linewidth=2.2, label=label)


def pareto_figure(
    path: Path,
    points: Mapping[str, tuple[float, float]],
    metric: str = "accuracy (%)",
    better: Literal["max", "min"] = "max",
    title: str = "",
) -> None:
    """A metric against throughput, and the frontier: models that no other beats in both.

    Args:
        path: where the PNG goes.
        points: model -> (series per second, metric).
        metric: name and unit, for the axis.
        better: whether a large or a small value of the metric is good.
        title: above.
    """
    if not points:
        raise ValueError("no model has both a throughput and a metric, so there is nothing to draw.")
    plt = require_matplotlib()
    best = frontier(points, better)
    figure, axis = plt.subplots(figsize=(6.4, 4.6), layout="constrained")
    axis.plot(*zip(*[points[name] for name in best], strict=True), color=FIRST, linewidth=1.4, alpha=0.6, zorder=1)
    for name, (speed, value) in points.items():
        color = SEEN if name.startswith("lformer") else FIRST if name in best else PALE
        axis.scatter(speed, value, s=46, color=color, zorder=2, linewidths=0)
    axis.set_xscale("log")
    axis.margins(x=0.12, y=0.1)
    axis.set_xlabel("throughput, series per second")
    axis.set_ylabel(metric)
    axis.set_title(title)
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    _name_points(figure, axis, points)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def frontier(points: Mapping[str, tuple[float, float]], better: Literal["max", "min"] = "max") -> list[str]:
    """Names of the points that no faster point matches, from slow to fast.

    Example:
        >>> frontier({"slow": (1, 90), "good": (10, 95), "fast": (100, 80), "poor": (20, 70)})
        ['good', 'fast']
    """
    sign = 1 if better == "max" else -1
    found: list[str] = []
    for name, (_, value) in sorted(points.items(), key=lambda item: (-item[1][0], -sign * item[1][1])):
        if not found or sign * value > sign * points[found[-1]][1]:
            found.append(name)
    return found[::-1]


def _name_points(figure: Any, axis: Any, points: Mapping[str, tuple[float, float]]) -> None:
    """Write every name beside its dot, at the first place where it covers no other name and no dot."""
    figure.canvas.draw()  # settles where things are
    dots = [axis.transData.transform(xy) for xy in points.values()]
    boxes: list[Any] = []
    for name, xy in points.items():
        for place in PLACES:
            text = _write(axis, name, xy, place)
            box = text.get_window_extent()
            if not any(box.overlaps(b) for b in boxes) and not any(box.padded(3).contains(*dot) for dot in dots):
                break
            text.remove()
        else:
            box = _write(axis, name, xy, PLACES[0]).get_window_extent()
        boxes.append(box)


def _write(axis: Any, name: str, xy: tuple[float, float], place: tuple[int, int]) -> Any:
    """A name at some distance from its dot, LFormer's in bold."""
    from matplotlib.patheffects import withStroke

    side = "left" if place[0] > 0 else "right" if place[0] < 0 else "center"
    weight = "bold" if name.startswith("lformer") else "normal"
    halo = [withStroke(linewidth=2.5, foreground="white")]
    return axis.annotate(
        name, xy, place, textcoords="offset points", ha=side, va="center", fontsize=8.5, weight=weight, color=INK,
        path_effects=halo,
    )  # fmt: skip
