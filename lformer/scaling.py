"""Scaling of values by statistics of some series: a shift and a factor per channel, and bounds for extreme values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from lformer.panel import Array, Panel

Kind = Literal["standard", "minmax", "robust"]
TAIL = 0.005  # share of the values at either end that the robust scale of a channel ignores
FAR = 20.0  # distance from the median, in spreads, beyond which a value is ignored as a mark or an error
OFTEN = 0.3  # if one value, such as 0 for rain, has at least this share, the spread is that of the other values


@dataclass(frozen=True, eq=False)
class Scale:
    """How values are standardised: `(clip(values, low, high) - shift) / scale`, per channel.

    Attributes:
        shift, scale: (C,) subtracted, then divided by.
        low, high: (C,) bounds at which values are clipped; infinite if there are none.
    """

    shift: Array
    scale: Array
    low: Array
    high: Array

    def apply(self, panel: Panel) -> Panel:
        """The panel with scaled values in float32, computed in float64; unobserved values stay 0."""
        values = np.empty(panel.values.shape, np.float32)
        for c in range(values.shape[-1]):
            column = np.clip(_column(panel, c), self.low[c], self.high[c])
            values[..., c] = (column - self.shift[c]) / self.scale[c]
        if panel.observed is not None:
            values[~panel.observed] = 0
        return panel.with_values(values)


def fit(panel: Panel, series: Array, kind: Kind) -> Scale:
    """Fit the scale of each channel to the observed values of some series.

    Args:
        panel: the series, in their own units.
        series: (n,) positions of the series to use: the training series.
        kind: "standard" by mean and standard deviation; "minmax" to [0, 1]; "robust" by mean and standard deviation
            without the tails, with bounds one deviation beyond them, for data with artefacts. Values far from the
            median, such as -9999 for a missing value, are removed first: up to a fifth of them has little effect.

    A row counts once for every series it belongs to, so overlapping windows have the same weight as in training. A
    channel that never changes, or was never observed, has scale 1.
    """
    if kind == "robust":
        return _robust(panel[series].compact())
    shift, scale = (_standard if kind == "standard" else _minmax)(panel, series)
    return Scale(shift, scale, np.full(len(shift), -np.inf), np.full(len(shift), np.inf))


def scaled(panel: Panel, train: Array, kind: str) -> Panel:
    """The panel scaled by its training series; unchanged for "none", and for "published", when the data set does it."""
    if kind in ("none", "published"):
        return panel
    if kind not in get_args(Kind):
        raise ValueError(f"scaling must be published, none, standard, minmax or robust; got {kind!r}.")
    return fit(panel, train, kind).apply(panel)  # type: ignore[arg-type]


def _standard(panel: Panel, series: Array) -> tuple[Array, Array]:
    """Mean (C,) and standard deviation (C,)."""
    mean, deviation = np.zeros(panel.values.shape[-1]), np.ones(panel.values.shape[-1])
    for c, values, weight in _channels(panel, series):
        total = max(weight.sum(), 1)
        mean[c] = (weight * values).sum() / total
        spread = np.sqrt((weight * np.square(values - mean[c])).sum() / total)
        low, high = _bounds(values, weight)
        if high > low and spread > 0:  # for a constant, rounding of the mean would look like a deviation
            deviation[c] = spread
    return mean, deviation


def _minmax(panel: Panel, series: Array) -> tuple[Array, Array]:
    """Minimum (C,) and range (C,)."""
    low, reach = np.zeros(panel.values.shape[-1]), np.ones(panel.values.shape[-1])
    for c, values, weight in _channels(panel, series):
        low[c], high = _bounds(values, weight)
        reach[c] = high - low[c] if high > low[c] else 1.0
    return low, reach


def _robust(panel: Panel) -> Scale:
    """From all series of a compact panel."""
    observed = np.ones(panel.values.shape, bool) if panel.observed is None else panel.observed
    columns = [_without_tails(_column(panel, c)[observed[..., c]]) for c in range(panel.values.shape[-1])]
    return Scale(*np.transpose(columns))


def _without_tails(values: Array) -> tuple[float, float, float, float]:
    """Shift, scale, low and high of one channel."""
    if not len(values):
        return 0.0, 1.0, -np.inf, np.inf
    values = _near(values)
    low, high = np.quantile(values, [TAIL, 1 - TAIL])
    inner = np.clip(values, low, high)
    deviation = float(inner.std()) if high > low else 0.0
    if deviation == 0:  # all values except the tails are equal
        deviation = float(values.std()) if values.max() > values.min() else 1.0
    return float(inner.mean()), deviation, float(low) - deviation, float(high) + deviation


def _near(values: Array) -> Array:
    """The values within `FAR` spreads of the median; all if more than a quarter would be removed.

    The spread is that of the middle half, which is robust against marks for missing values in up to a fifth of the
    entries.
    """
    ordered = np.sort(values)
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    counts = np.diff(starts, append=len(values))
    most = int(counts.argmax())
    others = ordered
    if counts[most] > OFTEN * len(values) and len(counts) > 1:
        others = np.delete(ordered, slice(starts[most], starts[most] + counts[most]))
    low, high = np.quantile(others, [0.25, 0.75])
    spread = (high - low) / 1.349  # the deviation of a normal distribution with these quartiles
    near = values[np.abs(values - np.median(values)) <= FAR * spread]
    return near if len(near) >= 0.75 * len(values) else values


def _column(panel: Panel, channel: int) -> Array:
    """(N, ...) float64, one channel in its own units."""
    values = panel.values[..., channel].astype(np.float64)
    return values if panel.scale == 1.0 else values * panel.scale


def _channels(panel: Panel, series: Array) -> Iterator[tuple[int, Array, Array]]:
    """Number, values (N, ...) in float64 and weights of each channel, one at a time to save memory.

    A weight is the number of the given series in which an observed value occurs.
    """
    ends = np.zeros(len(panel.times) + 1, np.int64)
    np.add.at(ends, panel.first[series], 1)
    np.add.at(ends, panel.first[series] + panel.lengths[series], -1)
    count = ends.cumsum()[:-1].reshape(-1, *(1,) * (panel.values.ndim - 2))
    for c in range(panel.values.shape[-1]):
        values = _column(panel, c)
        observed = np.True_ if panel.observed is None else panel.observed[..., c]
        yield c, values, np.broadcast_to(count * observed, values.shape)


def _bounds(values: Array, weight: Array) -> tuple[float, float]:
    """Minimum and maximum where the weight is not 0; 0 and 0 if there is none."""
    seen = weight > 0
    if not seen.any():
        return 0.0, 0.0
    return float(values.min(where=seen, initial=np.inf)), float(values.max(where=seen, initial=-np.inf))
