"""A summary of a panel for notebooks: key figures, and a picture of the channels of the first series over time.

Everything is in one piece of HTML without scripts or style sheets. Text and axes use the colour of the surrounding
text; the single accent colour works on light and dark backgrounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from lformer.arrays import Array
from lformer.panel.axis import Tick, duration, figure, number_ticks, share_of, stamp_ticks
from lformer.panel.calendar import as_numbers
from lformer.panel.core import Panel
from lformer.panel.stamps import one_of, stamps
from lformer.panel.zones import wall_clock

LANES = 6  # maximum number of channels in the picture
LOOK = 200_000  # number of rows from which the typical interval is computed
COLUMNS = 360  # bins along the axis: of more observations, only the lowest and highest of each bin are drawn
DOTS = 120  # up to this many observations are drawn as dots
PLOT, MARGIN, LANE, GAP, TOP = 350.0, 64.0, 34.0, 14.0, 8.0  # width of plot and right margin; heights
LETTERS, LETTER = 16, 6.4  # maximum letters of a name, and approximate width of each
COLOUR = "#3584c8"
CELL = "text-align:left;padding:1px 10px 1px 0"
SOFT = 'fill="currentColor" fill-opacity="0.65"'


def as_html(panel: Panel) -> str:
    """The HTML that a notebook shows for a panel."""
    rows = "".join(
        f'<tr style="background:none"><th style="{CELL};font-weight:normal;opacity:0.65">{clean(name)}</th>'
        f'<td style="{CELL}">{clean(what)}</td></tr>'
        for name, what in facts(panel)
    )
    table = f'<table style="border-collapse:collapse;font-size:inherit;margin:4px 0 0">{rows}</table>'
    return (
        '<div style="display:flex;flex-wrap:wrap;gap:8px 20px;align-items:flex-start;font-size:13px;line-height:1.5">'
        f"<div><b>Panel</b>{table}</div>"
        f"{_first_series(panel)}</div>"
    )


def facts(panel: Panel) -> list[tuple[str, str]]:
    """Summary of all series, as pairs of name and text."""
    rows = int(panel.lengths.sum())
    found = [("series", f"{len(panel):,}"), ("rows", f"{rows:,}"), ("channels", f"{panel.values.shape[-1]:,}")]
    if len(panel) > 1:
        low, middle, high = (f"{x:,.4g}" for x in np.quantile(panel.lengths, [0, 0.5, 1]))
        found.insert(2, ("rows per series", low if low == high else f"{low} to {high}, median {middle}"))
    if rows:
        found.append(("observed", f"{100 * panel.share_observed():.3g} %"))
        found += _spans(panel)
    if panel.static is not None:
        found.append(("covariates", f"{len(panel.static.columns):,}"))
    return found


def _spans(panel: Panel) -> list[tuple[str, str]]:
    """First and last time, and the typical interval between two rows."""
    filled = panel[panel.lengths > 0]
    begins, ends = (
        stamps(filled.times[filled.first + row], filled.origin, panel.unit) for row in (0, filled.lengths - 1)
    )
    rows = filled.rows()[:LOOK]
    owner = np.repeat(np.arange(len(filled)), filled.lengths)[:LOOK]
    gaps = np.diff(filled.times[rows])[np.diff(owner) == 0]
    gaps = gaps[gaps > 0]
    dated = panel.origin.dtype.kind == "M"
    first, last = (wall_clock(np.array([x]), panel.zone)[0] if dated else x for x in (begins.min(), ends.max()))
    found = [("from", _spelled(first, panel.unit)), ("to", _spelled(last, panel.unit))]
    found += [("time zone", panel.zone)] if panel.zone else []
    if len(gaps):
        typical = float(np.median(gaps))
        is_clock = panel.origin.dtype.kind in "mM"
        found.append(("typical interval", duration(typical * _seconds(panel.unit)) if is_clock else
                      f"{figure(typical)} {panel.unit}".strip()))  # fmt: skip
    return found


def _seconds(unit: str) -> float:
    return float(one_of(unit) / np.timedelta64(1, "ns")) * 1e-9


def _spelled(stamp: Any, unit: str) -> str:
    """A date to the second, or a number with its unit."""
    kind = np.asarray(stamp).dtype.kind
    if kind == "M":
        return str(np.asarray(stamp).astype("datetime64[s]")).replace("T", " ").removesuffix(" 00:00:00")
    if kind == "m":
        return duration(float(as_numbers(np.asarray(stamp), unit)) * _seconds(unit))
    return f"{figure(float(stamp))} {unit}".strip()


# -- the picture


def _first_series(panel: Panel) -> str:
    """The first series that has rows, one lane per channel; empty if there is none."""
    filled = np.flatnonzero(panel.lengths > 0)
    if not len(filled):
        return ""
    i = int(filled[0])
    clock, values = panel[i]
    names: Sequence[str] = panel.channels
    if values.ndim > 2:  # frames: only their times can be drawn
        values, names = np.zeros((len(values), 1)), [f"{' × '.join(map(str, values.shape[1:]))} each"]
    lanes = min(len(names), LANES)
    left = 14 + LETTER * max((len(short(name, LETTERS)) for name in names[:lanes]), default=0)
    ticks = stamp_ticks(clock, panel.zone) if clock.dtype.kind == "M" else number_ticks(as_numbers(clock, panel.unit))
    x = left + PLOT * share_of(clock)
    bottom = TOP + lanes * (LANE + GAP)
    about = panel.zone if clock.dtype.kind == "M" else f"time in {panel.unit}" if panel.unit else "time"
    parts = [_axis(ticks, left, bottom, about or "")]
    bare = panel.values.ndim > 2
    parts += [_lane(names[c], left, x, values[:, c], TOP + c * (LANE + GAP), bare) for c in range(lanes)]
    name, rows = str(panel.ids[i]), int(panel.lengths[i])
    title = f"first series: {short(name, 30)}, {rows:,} row{'' if rows == 1 else 's'}"
    title += f"; {lanes} of {len(names):,} channels" if lanes < len(names) else ""
    width, height = left + PLOT + MARGIN, bottom + (34 if about else 18)
    return (
        f'<div style="max-width:100%"><span style="opacity:0.65">{clean(title)}</span><svg '
        f'xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} '
        f'{height:.0f}" role="img" aria-label="{clean(title)}" font-size="11" style="display:block;'
        f'max-width:100%;height:auto;margin-top:4px">{"".join(parts)}</svg></div>'
    )


def _axis(ticks: list[Tick], left: float, bottom: float, about: str) -> str:
    """Grid lines and tick labels, and the axis label."""
    parts = []
    for share, label in ticks:
        x = left + PLOT * share
        parts.append(
            f'<path d="M{x:.1f} {TOP:g}V{bottom:g}" stroke="currentColor" stroke-opacity="0.16"/>'
            f'<text x="{x:.1f}" y="{bottom + 12:g}" text-anchor="middle" {SOFT}>{clean(label)}</text>'
        )
    middle = left + PLOT / 2
    return (
        "".join(parts) + f'<text x="{middle:.1f}" y="{bottom + 28:g}" text-anchor="middle" {SOFT}>{clean(about)}</text>'
    )


def _lane(name: str, left: float, x: Array, values: Array, top: float, bare: bool) -> str:
    """One channel: its name, its observations, and the lowest and highest value."""
    middle, base, right = top + LANE / 2, top + LANE, left + PLOT
    parts = [
        f'<text x="{left - 10:.1f}" y="{middle + 4:g}" text-anchor="end" fill="currentColor">'
        f"{clean(short(name, LETTERS))}<title>{clean(name)}</title></text>"
        f'<path d="M{left:.1f} {base + GAP / 2:g}h{PLOT:g}" stroke="currentColor" stroke-opacity="0.16"/>'
    ]
    seen = np.isfinite(values)
    x, values = x[seen], values[seen].astype(np.float64)
    if not len(values):
        return "".join(parts) + f'<text x="{left + 6:.1f}" y="{middle + 4:g}" {SOFT}>not observed</text>'
    low, high = float(values.min()), float(values.max())
    y = np.full(len(values), middle) if low == high else base - LANE * _share(values, low, high)
    parts.append(_curve(x, y))
    labels = [] if bare else [(middle, low)] if low == high else [(top + 3, high), (base - 3, low)]
    parts += [
        f'<text x="{right + 8:.1f}" y="{at + 4:g}" font-size="10" {SOFT}>{figure(one)}</text>' for at, one in labels
    ]
    return "".join(parts)


def _share(values: Array, low: float, high: float) -> Array:
    """Position of values between two others, from 0 to 1, without overflow."""
    half = high / 2 - low / 2
    return (values / 2 - low / 2) / half


def _curve(x: Array, y: Array) -> str:
    """A line through the observations, with a dot at each if they are few."""
    dots = ""
    if len(x) <= DOTS:
        path = "".join(f"M{a:.1f} {b:.1f}h0" for a, b in zip(x, y, strict=True))
        dots = f'<path d="{path}" stroke="{COLOUR}" stroke-width="4" stroke-linecap="round" fill="none"/>'
    elif len(x) > 2 * COLUMNS:
        x, y = _thinned(x, y)
    line = "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))
    width = "1" if dots else "1.2"
    return f'<path d="{line}" stroke="{COLOUR}" stroke-width="{width}" stroke-linejoin="round" fill="none"/>{dots}'


def _thinned(x: Array, y: Array) -> tuple[Array, Array]:
    """The lowest and the highest value of each bin of the axis, which draw the same line as all values."""
    place = np.minimum((COLUMNS * (x - x[0]) / max(x[-1] - x[0], 1e-9)).astype(np.int64), COLUMNS - 1)
    begins = np.flatnonzero(np.concatenate([[True], place[1:] != place[:-1]]))
    both = np.column_stack([np.minimum.reduceat(y, begins), np.maximum.reduceat(y, begins)])
    return np.repeat(x[begins], 2), both.ravel()


def clean(text: object) -> str:
    """Text escaped for HTML, without control characters."""
    return escape("".join(c if c.isprintable() else "·" for c in str(text)))


def short(text: str, letters: int) -> str:
    """The text, truncated if it is too long."""
    return text if len(text) <= letters else text[: letters - 1] + "…"
