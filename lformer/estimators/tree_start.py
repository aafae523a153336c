"""The linear function of one feature that trees for numbers may start from; it extrapolates, and trees do not."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lformer.panel import Array

HALF = 0.5  # share of the variance that a linear start must explain
TINY = 1e-12  # relative variance of a column that is only rounding error


class Line(NamedTuple):
    """Level + slope · (column of a table - middle); just the level where the column is NaN."""

    level: float
    column: int
    slope: float
    middle: float

    def at(self, table: Array) -> Array:
        """(n, W) -> (n,)"""
        x = table[:, self.column]
        return np.asarray(self.level + self.slope * np.where(np.isfinite(x), x - self.middle, 0))


def best_line(table: Array, y: Array, weight: Array) -> Line:
    """The least-squares line through the best single column; the mean if none explains half of the variance.

    Example:
        >>> best_line(np.array([[5.0, 1.0], [4.0, 2.0], [5.0, np.nan]]), np.array([10.0, 20.0, 15.0]), np.ones(3))
        Line(level=15.0, column=1, slope=10.0, middle=1.5)
    """
    weight = weight / weight.sum()
    known = np.isfinite(table)
    part = weight @ known
    middle = (weight @ np.where(known, table, 0)) / np.where(part > 0, part, 1)
    level = float(weight @ y)
    x, rest = np.where(known, table - middle, 0), y - level
    spread, together = weight @ x**2, (weight * rest) @ x
    varies = spread > TINY * (1 + middle**2)
    slope = np.where(varies, together / np.where(varies, spread, 1), 0)
    explains = slope * together
    best = int(np.argmax(explains))
    if explains[best] < HALF * float(weight @ rest**2):
        return Line(level, 0, 0.0, 0.0)
    return Line(level, best, float(slope[best]), float(middle[best]))
