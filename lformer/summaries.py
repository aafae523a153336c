"""Summary features of series: count, mean, last, least, greatest and slope of each channel, from flat arrays."""

from __future__ import annotations

import numpy as np

from lformer.panel import Array

KINDS = ("count", "mean", "last", "min", "max", "slope")


def summarise(owner: Array, values: Array, observed: Array | None, times: Array, series: int) -> Array:
    """Compute summary features of each channel of each series.

    Args:
        owner: (N,) the series of each row; sorted, so that the rows of a series are together.
        values: (N, C); only used where observed.
        observed: (N, C) bool; None if everything was.
        times: (N,), not decreasing along a series.
        series: n, the number of series; some may have no row.

    Returns:
        (n, C, 6) float64, in the order of `KINDS`. If a channel is never observed in a series, its features are NaN
        except for the count; so is the slope, that of the least-squares line, if all observations are at the same time.

    Example:
        >>> rows = np.array([[1.0], [np.nan], [9.0]])
        >>> summarise(np.zeros(3, int), rows, ~np.isnan(rows), np.array([0.0, 1.0, 4.0]), 1).tolist()
        [[[2.0, 5.0, 9.0, 1.0, 9.0, 2.0]]]
    """
    found = np.full((series, values.shape[1], len(KINDS)), np.nan)
    for c in range(values.shape[1]):  # one at a time to save memory: most entries of a clinical table are empty
        seen = slice(None) if observed is None else np.flatnonzero(observed[:, c])
        found[:, c] = _channel(owner[seen], values[seen, c].astype(np.float64), times[seen], series)
    return found


def _channel(owner: Array, x: Array, t: Array, series: int) -> Array:
    """(n, 6) from the observations of one channel: their series, values and times, all (M,)."""
    found = np.full((series, len(KINDS)), np.nan)
    count = np.bincount(owner, minlength=series)
    found[:, 0] = count
    some = count > 0
    if not len(x):
        return found
    ends = np.cumsum(count)[some]
    starts = ends - count[some]
    t = t - np.repeat(t[starts], count[some])  # equal times then become exactly 0, and so does their spread
    per = np.maximum(count, 1)
    mean, middle = np.bincount(owner, x, series) / per, np.bincount(owner, t, series) / per
    found[some, 1] = mean[some]
    found[some, 2] = x[ends - 1]
    found[some, 3], found[some, 4] = np.minimum.reduceat(x, starts), np.maximum.reduceat(x, starts)
    away = t - middle[owner]
    spread = np.bincount(owner, away**2, series)
    rises = np.bincount(owner, away * (x - mean[owner]), series)
    moved = spread > 0
    found[moved, 5] = rises[moved] / spread[moved]
    return found
