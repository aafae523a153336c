"""Split-conformal calibration on series that training has not seen, without an assumption on model or noise.

A score says how badly an answer missed. Of n calibration series, each with any number of answers, the threshold for
coverage c is the smallest s with

    sum over series i of  (share of the scores of series i that are at most s) / (n + 1)  ≥  c,

infinite if there is none. If a new series comes from where those came from, an answer for it, at a time drawn as one of
its times, then has a score of at most s with probability c at least, over all draws of calibration and new series
(Lee, Barber and Willett, "Distribution-free inference with hierarchical data", 2023). Answers of one series depend on
one another, so what counts is the number of series, not of answers: with one answer per series the threshold is that of
plain split conformal prediction, the score of rank ⌈c (n + 1)⌉. What is promised is an average over series and times.
It is not promised for each series, nor for all times of a series at once.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np

from lformer.panel import Array

GRID = 1000  # coverages for which thresholds are kept: 1/1000 to 999/1000
ENOUGH = (
    100  # series that let a bin of times have a threshold of its own; the part of a threshold that is rounded up is 1 %
)


class TooFewSeriesWarning(UserWarning):
    """Calibration series are too few for the coverage that was asked for, so some intervals are infinite."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Calibration:
    """Thresholds of scores, for outputs (or classes) and bins of time.

    Attributes:
        thresholds: (G, B, 999) for the coverages 0.001 to 0.999, rising, infinite where series are too few.
        counts: (G, B) calibration series behind each.
        edges: (B - 1,) where bins of the time ahead meet, rising.
        series: calibration series in all.
    """

    thresholds: Array
    counts: Array
    edges: Array
    series: int

    def at(self, coverage: float) -> Array:
        """(G, B) for a coverage; one between two thousandths counts as the larger."""
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
    """(999,) for the coverages 0.001 to 0.999, from (N,) scores and whose each is; NaN is no score.

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
    """From (N, G) scores, NaN where there is none, (N,) whose they are and how far ahead, and (B - 1,) edges of bins.

    In each group, bins with fewer series than `ENOUGH` are joined with their neighbours.
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
    """Neighbouring bins that have a threshold together, from near to far."""
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
    """Refuse a coverage that no threshold reaches; warn of those that do not.

    Args:
        found: (G, B) thresholds.
        counts: (G, B) series behind each.
        coverage: that was asked for.
        what: (G,) names.
        used: (G, B) bool, which of them are asked for.
    """
    lost = np.isinf(found) & used
    if not lost.any():
        return
    c = level_of(coverage) / GRID
    needed = math.ceil(round(c / (1 - c), 6))
    names = [f"{name} ({counts[g][lost[g]].min()})" for g, name in enumerate(what) if lost[g].any()]
    said = (
        f"coverage {coverage:g} needs at least {needed} calibration series with a value; there are fewer for "
        f"{', '.join(names[:5])}{', ...' if len(names) > 5 else ''}. Calibrate on more series, or ask for less."
    )
    if lost[used].all():
        raise ValueError(said)
    warnings.warn(f"{said} Their intervals are infinite.", TooFewSeriesWarning, stacklevel=4)
