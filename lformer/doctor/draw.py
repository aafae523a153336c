"""The figures of the report as SVG; colours come from the page, so they suit light and dark mode."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from lformer.doctor.records import Array
from lformer.doctor.report import Report
from lformer.doctor.sketch import CELLS, Sketch
from lformer.doctor.words import counted, number, percent, readable, span
from lformer.drawing import LETTER, bar, line, short, svg, text, ticks

SPANS = (
    1e-9, 1e-6, 1e-3, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 6 * 3600.0, 86400.0, 7 * 86400.0, 30 * 86400.0,
    365 * 86400.0, 3650 * 86400.0,
)  # fmt: skip
NAMES = {"d": "days", "h": "hours", "min": "minutes", "s": "seconds"}
BARS = 24  # channels in the figure


# -- timeline


def timeline(sketch: Sketch, unit: str) -> str:
    """When each channel of each series was observed."""
    left, right = 118.0, 700.0
    lane = max(18.0, 7 + 3 * len(sketch.legend))
    legend, top = _legend(sketch.legend, left, 760.0)
    bottom = top + lane * len(sketch.lanes)
    size, unit = readable(sketch.horizon, unit)
    parts = [legend]
    for t in ticks(0.0, sketch.horizon / size, 6):
        x = left + (right - left) * t * size / sketch.horizon
        parts += [line(x, top - 4, x, bottom, "grid"), text(x, bottom + 16, f"{t:,g}", "small", "middle")]
    since = f"{NAMES.get(unit, unit)} since the start of each series" if unit else "time since the start of each series"
    parts.append(text((left + right) / 2, bottom + 34, since, "small", "middle"))
    parts.append(text(right + 52, top - 8, "rows", "small", "end"))
    for i, series in enumerate(sketch.lanes):
        middle = top + lane * (i + 0.5)
        parts.append(text(left - 12, middle + 4, short(series.name, 15), "", "end"))
        parts.append(text(right + 52, middle + 4, f"{series.rows:,}", "small", "end"))
        if series.goes_on:
            parts.append(text(right + 3, middle + 4, "→", "small"))
        for k, cells in enumerate(series.cells):
            if len(cells):
                y = middle + _offset(k, len(sketch.legend), lane)
                parts.append(f'<path class="dot c{k}" d="{_dots(cells, left, (right - left) / CELLS, y)}"/>')
    return svg(760, bottom + 42, f"Observations of {len(sketch.lanes)} series over time", parts)


def _offset(colour: int, colours: int, lane: float) -> float:
    """Vertical offset of a channel in its lane, so that channels do not cover one another."""
    return 0.0 if colours == 1 else (lane - 7) * (colour / (colours - 1) - 0.5)


def _dots(places: Array, left: float, step: float, y: float) -> str:
    """A stroke for each run of neighbouring places; its round ends make a run of one a dot."""
    breaks = np.flatnonzero(np.diff(places) > 1)
    begins = places[np.append(0, breaks + 1)]
    ends = places[np.append(breaks, len(places) - 1)]
    return "".join(
        f"M{left + step * a:.1f} {y:.1f}h{max(step * (b - a), 0.01):.4g}" for a, b in zip(begins, ends, strict=True)
    )


def _legend(names: Sequence[str], left: float, right: float) -> tuple[str, float]:
    """Coloured dots with names, in as many lines as needed, and the vertical position below them."""
    parts, x, y = [], left, 12.0
    for k, name in enumerate(names):
        name = short(name, 22)
        width = 24 + LETTER * len(name)
        if x + width > right and x > left:
            x, y = left, y + 18
        parts += [f'<path class="dot key c{k}" d="M{x + 4:.1f} {y - 4:.1f}h0.01"/>', text(x + 12, y, name, "small")]
        x += width
    return "".join(parts), y + 28


# -- histograms


def gap_histogram(sketch: Sketch, figures: dict[str, float], unit: str) -> str:
    """Histogram of the gaps with logarithmic axes, so that a single huge gap is visible."""
    edges, counts = sketch.gaps
    if not len(edges):
        return ""
    left, right, top, bottom = 44.0, 372.0, 40.0, 190.0
    low, high = math.log10(edges[0]), math.log10(edges[-1])
    ceiling = max(math.log10(counts.max()), 0.5)

    def across(x: float) -> float:
        return left + (right - left) * (math.log10(x) - low) / (high - low)

    def up(n: float) -> float:
        return bottom - (bottom - top) * (math.log10(n) + 0.3) / (ceiling + 0.3)  # a count of 1 is still a bar

    parts = []
    for power in range(0, math.floor(ceiling + 1e-9) + 1, 1 + math.floor(ceiling / 5)):
        y = up(10.0**power)
        parts += [line(left, y, right, y, "grid"), text(left - 6, y + 4, number(10.0**power), "small", "end")]
    for a, b, n in zip(edges[:-1], edges[1:], counts, strict=True):
        if n:
            tip = f"{span(a, unit)} to {span(b, unit)}: {counted(int(n), 'gap')}"
            parts.append(bar(across(a) + 0.5, up(n), max(across(b) - across(a) - 1, 1), bottom - up(n), "fill", tip))
    parts.append(line(left, bottom, right, bottom, "axis"))
    last = -math.inf
    for t in _log_ticks(edges[0], edges[-1], unit):
        words, x = span(t, unit) if unit == "s" else f"{t:,g} {unit}".rstrip(), across(t)
        if x - last >= LETTER * len(words) + 10:
            parts += [line(x, bottom, x, bottom + 4, "axis"), text(x, bottom + 17, words, "small", "middle")]
            last = x
    for y, name, words in ((14.0, "gap_median", "median"), (30.0, "gap_p99", "99 %")):
        x = across(min(max(figures[name], edges[0]), edges[-1]))
        side, shift = ("start", 4) if x < (left + right) / 2 else ("end", -4)
        words = f"{words} {span(figures[name], unit)}"
        parts += [line(x, y - 9, x, bottom, "mark"), text(x + shift, y, words, "small", side)]
    return svg(384, 216, "Histogram of the gaps between neighbouring rows", parts)


def _log_ticks(low: float, high: float, unit: str) -> list[float]:
    """Ticks of a logarithmic axis: common time spans, powers of ten, or round numbers if the axis is short."""
    if unit == "s":
        found = [s for s in SPANS if low <= s <= high]
    else:
        found = [10.0**p for p in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]
    if len(found) >= 2:
        return found
    size, _ = readable(high, unit)
    return [t * size for t in ticks(low / size, high / size, 4) if t > 0]


def length_histogram(sketch: Sketch) -> str:
    """Histogram of the lengths of the series."""
    edges, counts = sketch.lengths
    left, right, top, bottom = 44.0, 372.0, 40.0, 190.0
    ceiling = float(counts.max())
    low, high = float(edges[0]), float(edges[-1])

    def across(x: float) -> float:
        return left + (right - left) * (x - low) / (high - low)

    def up(n: float) -> float:
        return bottom - (bottom - top) * n / ceiling

    parts = []
    for n in ticks(0, ceiling, 4):
        if n.is_integer():
            parts += [line(left, up(n), right, up(n), "grid"), text(left - 6, up(n) + 4, number(n), "small", "end")]
    for a, b, n in zip(edges[:-1], edges[1:], counts, strict=True):
        if n:
            rows = number(a + 0.5) if b - a == 1 else f"{number(a + 0.5)} to {number(b - 0.5)}"
            wide = across(b) - across(a)
            tip = f"{rows} rows: {counted(int(n), 'series')}"
            parts.append(bar(across(a) + 0.5, up(n), max(min(wide - 1, 60), 1), bottom - up(n), "fill", tip))
    parts.append(line(left, bottom, right, bottom, "axis"))
    for t in ticks(low, high, 5):
        if t.is_integer():
            x = across(t)
            parts += [line(x, bottom, x, bottom + 4, "axis"), text(x, bottom + 17, number(t), "small", "middle")]
    return svg(384, 216, "Histogram of the lengths of the series", parts)


def padding_bars(figures: dict[str, float]) -> str:
    """Share of rows and of padding in batches drawn at random and by length."""
    left, right = 150.0, 640.0
    parts = []
    for i, (name, words) in enumerate((("padding_random", "random batches"), ("padding_by_length", "similar length"))):
        y, waste = 8.0 + 28 * i, figures[name]
        middle = left + (right - left) * (1 - waste)
        parts += [
            text(left - 12, y + 13, words, "", "end"),
            bar(left, y, middle - left, 16, "fill", f"rows: {percent(1 - waste)}"),
            bar(middle, y, right - middle, 16, "rest", f"padding: {percent(waste)}"),
            text(right + 10, y + 13, f"{percent(waste)} padding", "small"),
        ]
    return svg(760, 64, "Share of padding in batches", parts)


# -- channels


def channel_bars(report: Report) -> str:
    """How often each channel was observed: bars with the share of rows, labelled with rates."""
    factor, per = report.rate_unit()
    chosen = report.channels.sort_values("missing", kind="stable").head(BARS)
    left, right, lane = 150.0, 560.0, 22.0
    bottom = 10 + lane * len(chosen)
    parts = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = left + (right - left) * share
        parts += [line(x, 4, x, bottom, "grid"), text(x, bottom + 15, percent(share), "small", "middle")]
    for i, row in enumerate(chosen.to_dict("records")):
        y, seen = 8 + lane * i, 1 - float(row["missing"])
        middle = left + (right - left) * seen
        name = str(row["channel"])
        parts += [
            text(left - 12, y + 11, short(name, 20), "", "end"),
            bar(left, y, middle - left, 14, "fill", f"{name}: observed in {percent(seen)} of the rows"),
            bar(middle, y, right - middle, 14, "rest", f"{name}: missing in {percent(1 - seen)} of the rows"),
            text(right + 10, y + 11, f"{percent(seen)}, {number(factor * float(row['rate']))} {per}", "small"),
        ]
    parts.append(text((left + right) / 2, bottom + 33, "rows in which the channel was observed", "small", "middle"))
    return svg(760, bottom + 40, "Share of rows in which each channel was observed", parts)
