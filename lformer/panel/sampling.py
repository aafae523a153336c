"""Some series in place of all, for what is learned of millions of rows as well from some of them."""

from __future__ import annotations

import math

import numpy as np

from lformer.arrays import Array
from lformer.panel.core import Panel

LARGE = 2**25  # values, observed or not; of a larger panel scales, clocks and simple rules are those of a sample


def is_large(panel: Panel) -> bool:
    """Whether its series have so many values that nothing may be computed from all of them at once."""
    return int(panel.lengths.sum()) * _width(panel) > LARGE


def sample(panel: Panel) -> Array:
    """Which series to look at, sorted: all, or of a large panel some, always the same, that are not; at least two.

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
    """The panel, or of a large one some of its series, without the rows of the others."""
    return panel[sample(panel)].compact() if is_large(panel) else panel


def _width(panel: Panel) -> int:
    return math.prod(panel.values.shape[1:])
