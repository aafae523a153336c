"""The charts of a report, except those of records, and the numbers that they show."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from lformer.doctor.words import number, percent, readable, span
from lformer.drawing import bar, line, short, svg, text, ticks
from lformer.explain.fading import head_name
from lformer.panel import Array
from lformer.report.frame import HALF, HIGH, Frame, around, dot, label

if TYPE_CHECKING:
    import pandas as pd

BINS = 10  # of probabilities
POINTS = 700  # drawn in a scatter plot
BARS = 20  # channels drawn
UNITS = {"d": "days", "h": "hours", "min": "minutes", "s": "seconds"}


class Chart(NamedTuple):
    """A chart as a picture, and the same numbers as a table."""

    picture: str
    header: list[str]
    rows: list[list[str]]


def curve(history: list[dict[str, float]], column: str, name: str, level: tuple[str, float] | None, low: bool) -> Chart:
    """One number per epoch for each member, with the best epoch marked, and a line for the score of a baseline.

    Args:
        history: member, epoch and the column, for every epoch.
        column: the column to plot.
        name: name of the column on the page.
        level: name and score of a baseline, if there is one to compare with.
        low: whether lower is better.
    """
    members = sorted({row.get("member", 0) for row in history})
    values = [row[column] for row in history] + ([] if level is None else [level[1]])
    low_y, high_y = around(min(values), _not_wild(values))
    last = max(row["epoch"] for row in history) + 1
    frame = Frame(x_low=1, x_high=max(last, 2), y_low=low_y, y_high=high_y)
    parts = frame.axes("epoch", whole=True)
    best = (min if low else max)(history, key=lambda row: row[column])
    for k, member in enumerate(members):
        mine = [row for row in history if row.get("member", 0) == member]
        ys = np.clip([row[column] for row in mine], low_y, high_y)
        parts.append(frame.path([row["epoch"] + 1 for row in mine], ys, f"curve c{k % 6}"))
    if level is not None:
        y = frame.y(min(level[1], high_y))
        above = y > frame.top + 24
        parts += [
            line(frame.left, y, frame.right, y, "mark"),
            text(frame.right, y - 6 if above else y + 15, f"{level[0]} {number(level[1])}", "small", "end"),
        ]
    tip = f"best: {number(best[column])} in epoch {int(best['epoch']) + 1}"
    parts.append(dot(frame.x(best["epoch"] + 1), frame.y(best[column]), 4.5, "best", tip))
    several = len(members) > 1
    rows = [
        ([str(int(row["member"]) + 1)] if several else []) + [str(int(row["epoch"]) + 1), number(row[column])]
        for row in history
    ]
    words = f"{name} by epoch; {tip}" + ("" if level is None else f"; {level[0]}: {number(level[1])}")
    return Chart(svg(HALF, HIGH, words, parts), [*(["member"] if several else []), "epoch", name], rows)


def _not_wild(values: list[float]) -> float:
    """The largest value, or a smaller one if a few at the start dwarf all others."""
    most = float(np.quantile(values, 0.95)) + 0.5 * float(np.ptp(np.quantile(values, [0.05, 0.95])))
    return max(min(max(values), most), values[-1])


def reliability(probability: Array, happened: Array) -> Chart:
    """Reliability diagram of predicted probabilities (N,) and whether the event happened (N,) bool.

    Bins hold about the same number of predictions; whiskers are Wilson's 95 % interval.
    """
    edges = np.unique(np.quantile(probability, np.linspace(0, 1, BINS + 1)))
    place = np.clip(np.searchsorted(edges, probability, side="right") - 1, 0, max(len(edges) - 2, 0))
    frame = Frame()
    parts = [*frame.axes("predicted probability"), frame.path([0, 1], [0, 1], "mark")]
    rows, xs, ys = [], [], []
    for k in range(max(len(edges) - 1, 1)):
        mine = place == k
        if not mine.any():
            continue
        n, said, share = int(mine.sum()), float(probability[mine].mean()), float(happened[mine].mean())
        low, high = wilson(share, n)
        tip = f"predicted {percent(said)}, observed {percent(share)} of {n:,}"
        parts += [
            line(frame.x(said), frame.y(low), frame.x(said), frame.y(high), "whisker"),
            dot(frame.x(said), frame.y(share), 4.5, "point", tip),
        ]
        xs.append(said)
        ys.append(share)
        rows.append([percent(said), percent(share), f"{percent(low)} to {percent(high)}", f"{n:,}"])
    parts.append(frame.path(xs, ys, "curve c0"))
    header = ["predicted", "observed", "95 % interval", "predictions"]
    return Chart(svg(HALF, HIGH, "Observed frequency by predicted probability, in bins", parts), header, rows)


def wilson(share: float, n: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's confidence interval for a share of n.

    Example:
        >>> [round(x, 3) for x in wilson(0.5, 10)]
        [0.237, 0.763]
    """
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    reach = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(middle - reach, 0.0), min(middle + reach, 1.0)


def cloud(told: Array, truth: Array, name: str) -> Chart:
    """Scatter plot of predicted against true values, (N,) each, with a line where both are equal."""
    low, high = around(float(min(told.min(), truth.min())), float(max(told.max(), truth.max())))
    frame = Frame(x_low=low, x_high=high, y_low=low, y_high=high)
    some = np.arange(len(told))
    if len(told) > POINTS:
        some = np.random.default_rng(0).permutation(len(told))[:POINTS]
    parts = [*frame.axes("true"), frame.path([low, high], [low, high], "mark")]
    parts += [dot(frame.x(truth[i]), frame.y(told[i]), 2.6, "cloud") for i in some]
    shares = np.quantile(told - truth, [0.05, 0.25, 0.5, 0.75, 0.95])
    rows = [[name, *(number(float(x)) for x in shares), number(float(np.sqrt(np.square(told - truth).mean())))]]
    header = [f"error of {name}", "5 %", "25 %", "median", "75 %", "95 %", "RMSE"]
    return Chart(svg(HALF, HIGH, f"{name}: predicted against true, {len(some):,} predictions", parts), header, rows)


def errors(told: Array, truth: Array, name: str) -> Chart:
    """Histogram of the prediction errors; the outermost bars contain the 1 % beyond them at either end."""
    error = told - truth
    low, high = (float(q) for q in np.quantile(error, [0.01, 0.99]))
    reach = max(abs(low), abs(high)) or 1.0
    counts, edges = np.histogram(np.clip(error, -reach, reach), bins=25, range=(-reach, reach))
    frame = Frame(x_low=-reach, x_high=reach, y_low=0, y_high=float(counts.max()) or 1.0)
    parts = frame.axes("predicted − true")
    for a, b, n in zip(edges[:-1], edges[1:], counts, strict=True):
        if n:
            tip = f"{number(float(a))} to {number(float(b))}: {n:,}"
            x, wide = frame.x(a), frame.x(b) - frame.x(a)
            parts.append(bar(x + 0.5, frame.y(n), max(wide - 1, 1), frame.bottom - frame.y(n), "fill", tip))
    parts.append(line(frame.x(0), frame.top, frame.x(0), frame.bottom, "mark"))
    rows = [
        [f"{number(float(a))} to {number(float(b))}", f"{n:,}"]
        for a, b, n in zip(edges[:-1], edges[1:], counts, strict=True)
    ]
    words = f"Histogram of the errors of {name}"
    return Chart(svg(HALF, HIGH, words, parts), ["predicted − true", "predictions"], rows)


def losses(table: pd.DataFrame, column: str, what: str, like: pd.DataFrame | None = None) -> Chart:
    """Bar chart of importance, with its deviation over repeats; only the largest are drawn, the table has all.

    Args:
        table: the column of names, loss and deviation.
        column: name of the column of names.
        what: name of the losses, such as "decrease in AUC".
        like: another table that shares the axis of this one, so that the two can be compared.
    """
    both = [one.head(BARS).fillna({"deviation": 0.0}) for one in (table, like) if one is not None]
    shown = both[0]
    most = max(0.0, *(float((one["loss"] + one["deviation"]).max()) for one in both)) or 1e-9
    least = min(0.0, *(float((one["loss"] - one["deviation"]).min()) for one in both))
    lane, left, right = 24.0, 150.0, HALF - 64
    frame = Frame(left=left, right=right, x_low=least, x_high=most, top=6, bottom=10 + lane * len(shown))
    parts = []
    for v in ticks(least, most, 4):
        parts += [
            line(frame.x(v), 4, frame.x(v), frame.bottom, "grid"),
            text(frame.x(v), frame.bottom + 16, label(v), "small", "middle"),
        ]
    for i, row in enumerate(shown.to_dict("records")):
        y, name = 10 + lane * i, str(row[column])
        a, b = sorted((frame.x(0), frame.x(row["loss"])))
        spread = f" ± {number(row['deviation'])}" if row["deviation"] else ""
        words = f"{name}: {number(row['loss'])}{spread}"
        middle = y + 7
        parts += [
            text(left - 10, y + 11, short(name, 21), "", "end"),
            bar(a, y, max(b - a, 0.5), 14, "fill", words),
            text(right + 10, y + 11, f"{row['loss']:.3f}", "small"),
        ]
        if row["deviation"]:
            ends = (frame.x(row["loss"] - row["deviation"]), frame.x(row["loss"] + row["deviation"]))
            parts.append(line(ends[0], middle, ends[1], middle, "whisker"))
    parts.append(line(frame.x(0), 4, frame.x(0), frame.bottom, "axis"))
    parts.append(text((left + right) / 2, frame.bottom + 34, what, "small", "middle"))
    rows = [[str(r[column]), number(r["loss"]), number(r["deviation"])] for r in table.to_dict("records")]
    words = f"{what}, by {column}: " + "; ".join(f"{r[0]} {r[1]}" for r in rows[:5])
    return Chart(svg(HALF, frame.bottom + 42, words, parts), [column, what, "deviation"], rows)


def ranges(table: pd.DataFrame) -> Chart:
    """Half-lives: quartiles as a bar, the median as a dot, and an arrow if the upper quartile is not reached."""
    unit = table.attrs.get("unit", "")
    quartiles = table[["lower", "median", "upper"]].to_numpy(dtype=float)
    longest = float(quartiles[np.isfinite(quartiles)].max(initial=0.0)) or 1.0
    size, name = readable(longest, unit)
    lane, left = 24.0, 150.0
    frame = Frame(left=left, right=760, x_high=1.12 * longest / size, top=6, bottom=10 + lane * len(table))
    parts = []
    for v in ticks(0, frame.x_high, 6):
        parts += [
            line(frame.x(v), 4, frame.x(v), frame.bottom, "grid"),
            text(frame.x(v), frame.bottom + 16, label(v), "small", "middle"),
        ]
    rows = []
    for i, row in enumerate(table.to_dict("records")):
        low, middle, high = (float(q) / size for q in (row["lower"], row["median"], row["upper"]))
        y, words = 10 + lane * i, head_name(row)
        told = [_reached(row[q], unit) for q in ("lower", "median", "upper")]
        tip = f"{words}: median {told[1]}, quartiles {told[0]} and {told[2]}"
        parts.append(text(left - 10, y + 11, words, "", "end"))
        if math.isfinite(low):
            end = frame.x(min(high, frame.x_high))
            parts.append(bar(frame.x(low), y + 2, max(end - frame.x(low), 2), 10, "band", tip))
            if not math.isfinite(high):
                parts.append(f'<path d="M{end:.1f} {y + 2:.1f}l7 5l-7 5Z" class="arrow"/>')
            if math.isfinite(middle):
                parts.append(dot(frame.x(middle), y + 7, 4.5, "point", tip))
        else:
            parts.append(text(left + 6, y + 11, "not reached", "small"))
        parts.append(text(frame.right + 14, y + 11, f"{percent(row['not_reached'])} not reached", "small"))
        rows.append([words, *told, percent(row["not_reached"]), f"{row['observations']:,}"])
    across = f"half-life in {UNITS.get(name, name)}" if name else "half-life"
    parts.append(text((left + frame.right) / 2, frame.bottom + 34, across, "small", "middle"))
    header = ["head", "lower quartile", "median", "upper quartile", "not reached", "observations"]
    return Chart(svg(900, frame.bottom + 42, "Half-lives by layer and head", parts), header, rows)


def _reached(time: Any, unit: str) -> str:
    return span(float(time), unit) if math.isfinite(time) else "not reached"
