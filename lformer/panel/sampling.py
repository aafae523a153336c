"""Sample some series of a large panel, for statistics that do not need millions of rows."""

from __future__ import annotations

import math

import numpy as np

from lformer.arrays import Array
from lformer.panel.core import Panel

LARGE = 2**25  # values, observed or not; for larger panels, scales, clocks and baselines are fitted to a sample


def is_large(panel: Panel) -> bool:
    """Whether the series have too many values to compute anything from all of them at once."""
    return int(panel.lengths.sum()) * _width(panel) > LARGE


def sample(panel: Panel) -> Array:
    """Sorted positions of the series to use: all, or a fixed sample of a large panel, with at least two series.

    Example:
        >>> sample(Panel.from_list([([0.0, 0.4, 3.0], [[1.0], [2.0], [4.0]]), ([7.5], [[1.0]])])).tolist()
        [0, 1]
    """
    everyone = np.arange(len(panel))
    if not is_large(panel):
        return everyone
    order = np.random.default_rng(0).permutation(everyone)
    count = int(np.searchsorted(np.cumsum(panel.lengths[order]) * _width(panel), LARGE, side="right"))
    return np.sort(order[: max(count, 2)])


def some_of(panel: Panel) -> Panel:
    """The panel, or for a large one a sample of its series without the rows of the others."""
    return panel[sample(panel)].compact() if is_large(panel) else panel


def _width(panel: Panel) -> int:
    return math.prod(panel.values.shape[1:])
