"""The content of the figures, reduced to a few thousand numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from lformer.doctor.layout import Layout
from lformer.doctor.records import Array, Records

LANES = 20  # series in the timeline
CELLS = 320  # places along the timeline
COLOURS = 7  # channels with a colour of their own; the rest share one
BINS = 30
STRETCH = 4.0  # the timeline ends at this multiple of the median duration of its series


@dataclass(frozen=True, eq=False)
class Lane:
    """One series of the timeline: `cells[k]` are the places where a channel of colour `k` was observed."""

    name: str
    rows: int
    cells: tuple[Array, ...]
    goes_on: bool


@dataclass(frozen=True, eq=False)
class Sketch:
    """The figures as numbers.

    Attributes:
        lanes: some series, from short to long.
        legend: name of each colour.
        horizon: time at the right end of the timeline, since the start of each series.
        gaps: histogram with edges (b + 1,), evenly spaced in logarithm, and counts (b,); empty if there are no gaps.
        lengths: histogram with edges (b + 1,) and counts (b,).
    """

    lanes: tuple[Lane, ...]
    legend: tuple[str, ...]
    horizon: float
    gaps: tuple[Array, Array]
    lengths: tuple[Array, Array]


def sketch(records: Records, layout: Layout, channels: pd.DataFrame) -> Sketch | None:
    """The content of the figures; None if no record has both an id and a time stamp."""
    if not len(layout.source) or not np.isfinite(layout.times).all():
        return None
    rank = np.argsort(layout.lengths, kind="stable")
    rank = rank[layout.lengths[rank] > 0]
    chosen = rank[np.unique(np.linspace(0, len(rank) - 1, LANES).round().astype(int))]  # evenly, from short to long
    durations = layout.durations()[chosen]
    horizon = float(min(durations.max(), STRETCH * np.median(durations)) or durations.max()) or 1.0

    lane_of = np.full(len(records.ids), -1)
    lane_of[chosen] = np.arange(len(chosen))
    colour, legend = _colours(channels)
    taken = np.zeros((len(chosen), len(legend), CELLS + 1), bool)
    for c, channel in enumerate(records.channels):
        row = layout.row_of[channel.rows]
        row = row[row >= 0]
        row = row[lane_of[layout.owner[row]] >= 0]
        place = np.rint(layout.times[row] / horizon * CELLS)
        row, place = row[place <= CELLS], place[place <= CELLS].astype(int)
        taken[lane_of[layout.owner[row]], colour[c], place] = True
    lanes = tuple(
        Lane(
            name=str(records.ids[series]),
            rows=int(layout.lengths[series]),
            cells=tuple(np.flatnonzero(taken[i, k]) for k in range(len(legend))),
            goes_on=bool(durations[i] > horizon * (1 + 1e-9)),
        )
        for i, series in enumerate(chosen)
    )
    return Sketch(lanes, legend, horizon, _gap_histogram(layout.gaps), _length_histogram(layout.lengths))


def _colours(channels: pd.DataFrame) -> tuple[Array, tuple[str, ...]]:
    """(C,) the colour of each channel, the most observed channels first, and the name of each colour."""
    rank = np.argsort(-channels["observations"].to_numpy(dtype=np.int64), kind="stable")
    names = channels["channel"].tolist()
    colour = np.full(len(names), COLOURS)
    colour[rank[:COLOURS]] = np.arange(min(COLOURS, len(names)))
    legend = [names[i] for i in rank[:COLOURS]]
    rest = len(names) - len(legend)
    if rest == 1:
        legend.append(names[rank[-1]])
    elif rest:
        legend.append(f"{rest:,} others")
    return colour, tuple(legend)


def _gap_histogram(gaps: Array) -> tuple[Array, Array]:
    gaps = gaps[gaps > 0]
    if not len(gaps):
        return np.zeros(0), np.zeros(0, np.int64)
    low, high = float(gaps.min()), float(gaps.max())
    if high <= low * (1 + 1e-9):
        low, high = low / 1.5, high * 1.5
    edges = np.geomspace(low, high, BINS + 1)
    return edges, np.histogram(gaps, edges)[0]


def _length_histogram(lengths: Array) -> tuple[Array, Array]:
    """Histogram with bins of whole numbers, so that no bin is empty because of its width."""
    low, high = int(lengths.min()), int(lengths.max())
    width = max(1, -(-(high - low + 1) // BINS))
    edges = np.arange(low, high + width + 1, width) - 0.5
    return edges, np.histogram(lengths, edges)[0]
