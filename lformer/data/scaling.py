"""Scaling of values by statistics of some series: a shift and a factor per channel."""

from __future__ import annotations

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
    weight = _weight(panel, series)
    values = panel.values.astype(np.float64)
    rows = tuple(range(values.ndim - 1))
    total = np.maximum(np.broadcast_to(weight, values.shape).sum(axis=rows), 1)
    mean = (weight * values).sum(axis=rows) / total
    deviation = np.sqrt((weight * np.square(values - mean)).sum(axis=rows) / total)
    low, high = _bounds(panel, weight)  # of a constant, the rounding of its mean would count as deviation
    return mean, np.where((high > low) & (deviation > 0), deviation, 1.0)


def minmax(panel: Panel, series: Array) -> tuple[Array, Array]:
    """Least value and range of each channel over the observed values of some series; a range of 0 counts as 1."""
    low, high = _bounds(panel, _weight(panel, series))
    return low, np.where(high > low, high - low, 1.0)


def apply(panel: Panel, shift: Array, scale: Array) -> Panel:
    """The panel with `(values - shift) / scale` in float32, computed in float64; unobserved values stay 0."""
    values = ((panel.values.astype(np.float64) - shift) / scale).astype(np.float32)
    if panel.observed is not None:
        values[~panel.observed] = 0
    return panel.with_values(values)


def _weight(panel: Panel, series: Array) -> Array:
    """(N, *C) how often each observed value occurs among some series; (N, 1, ...) if everything was observed."""
    ends = np.zeros(len(panel.times) + 1, np.int64)
    np.add.at(ends, panel.first[series], 1)
    np.add.at(ends, panel.first[series] + panel.lengths[series], -1)
    count = ends.cumsum()[:-1].reshape(-1, *(1,) * (panel.values.ndim - 1))
    return count if panel.observed is None else count * panel.observed


def _bounds(panel: Panel, weight: Array) -> tuple[Array, Array]:
    """(C,) least and greatest value of each channel where the weight is not 0; 0 and 0 if there is none."""
    values, seen = panel.values.astype(np.float64), np.broadcast_to(weight > 0, panel.values.shape)
    rows = tuple(range(values.ndim - 1))
    low = values.min(axis=rows, where=seen, initial=np.inf)
    high = values.max(axis=rows, where=seen, initial=-np.inf)
    return np.where(low <= high, low, 0.0), np.where(low <= high, high, 0.0)
