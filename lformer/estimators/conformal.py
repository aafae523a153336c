"""Split conformal calibration on series not used in training, without assumptions about the model or the noise.

A score measures how far a prediction is from the truth. Given n calibration series, each with any number of
predictions, the threshold for coverage c is the smallest s with

    sum over series i of  (share of the scores of series i that are at most s) / (n + 1)  ≥  c,

or infinity if there is none. If a new series is drawn from the same distribution as the calibration series, a
prediction for it, at a randomly drawn one of its times, then has a score of at most s with probability at least c, over
all draws of the calibration series and the new one (Lee, Barber and Willett, "Distribution-free inference with
hierarchical data", 2023). Predictions for the same series depend on one another, so what counts is the number of
series, not of predictions. With one prediction per series, the threshold is that of ordinary split conformal
prediction, the score of rank ⌈c (n + 1)⌉. The guarantee is an average over series and times. It does not hold for each
series, nor for all times of a series at once.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np

from lformer.panel import Array

GRID = 1000  # thresholds are stored for the coverages 1/1000 to 999/1000
ENOUGH = (
    100  # series that a bin of times needs for a threshold of its own; rounding up then costs at most 1 % of coverage
)


class TooFewSeriesWarning(UserWarning):
    """There are too few calibration series for the requested coverage, so some intervals are infinite."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Calibration:
    """Thresholds of the scores, for each output (or class) and bin of time.

    Attributes:
        thresholds: (G, B, 999) for the coverages 0.001 to 0.999, rising, infinite where there are too few series.
        counts: (G, B) number of calibration series behind each.
        edges: (B - 1,) edges of the bins of the time ahead, rising.
        series: total number of calibration series.
    """

    thresholds: Array
    counts: Array
    edges: Array
    series: int

    def at(self, coverage: float) -> Array:
        """(G, B) thresholds for a coverage, which is rounded up to thousandths."""
        return self.thresholds[:, :, level_of(coverage) - 1]

    def bins(self, ahead: Array) -> Array:
        """(N,) the bin of each time ahead."""
        return np.searchsorted(self.edges, ahead, side="left")


def level_of(coverage: float) -> int:
    """The coverage in thousandths, rounded up.

    Example:
        >>> level_of(0.9), level_of(0.9001)
        (900, 901)
    """
    number = coverage if isinstance(coverage, int | float | np.number) and not isinstance(coverage, bool) else math.nan
    if not 0 < number <= (GRID - 1) / GRID:
        raise ValueError(f"coverage must be a number from 0.001 to 0.999; got {coverage!r}.")
    return max(1, math.ceil(round(float(number) * GRID, 6)))


def thresholds(scores: Array, owner: Array) -> Array:
    """(999,) thresholds for the coverages 0.001 to 0.999, from (N,) scores and the series of each; NaN is no score.

    Example:
        >>> found = thresholds(np.arange(1.0, 20.0), np.arange(19))  # 19 series with one score each
        >>> found[[499, 899, 949, 950]].tolist()
        [10.0, 18.0, 19.0, inf]
    """
    known = ~np.isnan(scores)
    scores, owner = scores[known], owner[known]
    names, place, count = np.unique(owner, return_inverse=True, return_counts=True)
    order = np.argsort(scores, kind="stable")
    reached = np.cumsum(1.0 / count[place[order]]) / (len(names) + 1)
    wanted = np.arange(1, GRID) / GRID
    rank = np.searchsorted(reached, wanted - 1e-9, side="left")  # sums of shares are rounded
    return np.concatenate([scores[order], [np.inf]])[rank]


def calibrated(scores: Array, owner: Array, ahead: Array, edges: Array) -> Calibration:
    """Thresholds from (N, G) scores, NaN where there is none.

    In each group, bins with fewer series than `ENOUGH` are merged with their neighbours.

    Args:
        scores: (N, G).
        owner: (N,) the series of each.
        ahead: (N,) time ahead of each.
        edges: (B - 1,) edges of the bins.
    """
    G, B = scores.shape[1], len(edges) + 1
    found, counts = np.full((G, B, GRID - 1), np.inf), np.zeros((G, B), np.int64)
    place = np.searchsorted(edges, ahead, side="left")
    for g in range(G):
        for some in _joined(~np.isnan(scores[:, g]), owner, place, B):
            mine = np.isin(place, some)
            found[g, some] = thresholds(scores[mine, g], owner[mine])
            counts[g, some] = len(np.unique(owner[mine & ~np.isnan(scores[:, g])]))
    return Calibration(thresholds=found, counts=counts, edges=edges, series=len(np.unique(owner)))


def _joined(known: Array, owner: Array, place: Array, bins: int) -> list[list[int]]:
    """Groups of neighbouring bins that share a threshold, from near to far."""
    groups: list[list[int]] = [[]]
    for b in range(bins):
        groups[-1].append(b)
        if len(np.unique(owner[known & np.isin(place, groups[-1])])) >= ENOUGH:
            groups.append([])
    rest = groups.pop()
    if groups:
        groups[-1] += rest
        return groups
    return [rest]


def require_enough(found: Array, counts: Array, coverage: float, what: list[str], used: Array) -> None:
    """Raise if no threshold reaches the coverage; warn if only some of them do.

    Args:
        found: (G, B) thresholds.
        counts: (G, B) number of series behind each.
        coverage: the requested coverage.
        what: (G,) names.
        used: (G, B) bool, which thresholds are needed.
    """
    lost = np.isinf(found) & used
    if not lost.any():
        return
    c = level_of(coverage) / GRID
    needed = math.ceil(round(c / (1 - c), 6))
    names = [f"{name} ({counts[g][lost[g]].min()})" for g, name in enumerate(what) if lost[g].any()]
    said = (
        f"coverage {coverage:g} needs at least {needed} calibration series with a value; there are fewer for "
        f"{', '.join(names[:5])}{', ...' if len(names) > 5 else ''}. Calibrate on more series, or lower the coverage."
    )
    if lost[used].all():
        raise ValueError(said)
    warnings.warn(f"{said} Their intervals are infinite.", TooFewSeriesWarning, stacklevel=4)
