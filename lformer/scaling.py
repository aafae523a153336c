"""Scaling of values by statistics of some series: a shift and a factor per channel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from lformer.panel import Panel

Array = np.ndarray[Any, Any]


def standard(panel: Panel, series: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of each channel over the observed values of some series.

    A row counts once for every series it belongs to, so windows that overlap weigh as they do in training. A channel
    that never changes gets the deviation 1.

    Returns:
        shift (C,) and scale (C,), for `(values - shift) / scale`.
    """
    mean, deviation = np.zeros(panel.values.shape[-1]), np.ones(panel.values.shape[-1])
    for c, values, weight in _channels(panel, series):
        total = max(weight.sum(), 1)
        mean[c] = (weight * values).sum() / total
        spread = np.sqrt((weight * np.square(values - mean[c])).sum() / total)
        low, high = _bounds(values, weight)
        if high > low and spread > 0:  # of a constant, the rounding of its mean would count as deviation
            deviation[c] = spread
    return mean, deviation


def minmax(panel: Panel, series: Array) -> tuple[Array, Array]:
    """Least value and range of each channel over the observed values of some series; a range of 0 counts as 1."""
    low, reach = np.zeros(panel.values.shape[-1]), np.ones(panel.values.shape[-1])
    for c, values, weight in _channels(panel, series):
        low[c], high = _bounds(values, weight)
        reach[c] = high - low[c] if high > low[c] else 1.0
    return low, reach


def apply(panel: Panel, shift: Array, scale: Array) -> Panel:
    """The panel with `(values - shift) / scale` in float32, computed in float64; unobserved values stay 0."""
    values = np.empty(panel.values.shape, np.float32)
    for c in range(values.shape[-1]):
        values[..., c] = (panel.values[..., c].astype(np.float64) - shift[c]) / scale[c]
    if panel.observed is not None:
        values[~panel.observed] = 0
    return panel.with_values(values)


def _channels(panel: Panel, series: Array) -> Iterator[tuple[int, Array, Array]]:
    """Number, values (N, ...) in float64 and weights of each channel, one at a time to spare memory.

    A weight says how often an observed value occurs among some series.
    """
    ends = np.zeros(len(panel.times) + 1, np.int64)
    np.add.at(ends, panel.first[series], 1)
    np.add.at(ends, panel.first[series] + panel.lengths[series], -1)
    count = ends.cumsum()[:-1].reshape(-1, *(1,) * (panel.values.ndim - 2))
    for c in range(panel.values.shape[-1]):
        values = panel.values[..., c].astype(np.float64)
        observed = np.True_ if panel.observed is None else panel.observed[..., c]
        yield c, values, np.broadcast_to(count * observed, values.shape)


def _bounds(values: Array, weight: Array) -> tuple[float, float]:
    """Least and greatest value where the weight is not 0; 0 and 0 if there is none."""
    seen = weight > 0
    if not seen.any():
        return 0.0, 0.0
    return float(values.min(where=seen, initial=np.inf)), float(values.max(where=seen, initial=-np.inf))
