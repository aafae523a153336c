"""Differences between systems: over the seeds of one cell, and over cells.

Formulas are written out, and tests hold them against `scipy.stats`; SciPy gives the distributions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import product
from statistics import fmean, stdev
from typing import NamedTuple

from scipy.special import chdtrc, stdtr, stdtrit

LEVEL = 0.05
LEAST_SEEDS = 3  # in common, below which a paired test says nothing
EXACT = 16  # pairs up to which Wilcoxon's distribution is counted out; there are 2^n signs


def reach(values: Sequence[float], level: float = LEVEL) -> float:
    """Half the width of Student's interval for the mean; nan of a single value.

    Example:
        >>> round(reach([1.0, 2.0, 3.0]), 3)
        2.484
    """
    n = len(values)
    return float(stdtrit(n - 1, 1 - level / 2)) * stdev(values) / math.sqrt(n) if n > 1 else math.nan


class Paired(NamedTuple):
    """Two systems over their common seeds.

    Attributes:
        seeds: how many.
        difference, reach: mean and half of its 95 % interval, in the units of the values; above 0 the first is better.
        wins: seeds in which the first is better.
        t: p of the paired t-test, two-sided; None where all differences are the same, so that nothing can be said.
        wilcoxon: p of the signed-rank test, two-sided, exact; None where it is not counted out.
    """

    seeds: int
    difference: float
    reach: float
    wins: int
    t: float | None
    wilcoxon: float | None


def paired(ours: Sequence[float], theirs: Sequence[float], sign: int) -> Paired:
    """Compare values seed by seed; `sign` is 1 where a large value is good and -1 where a small one is."""
    gains = [sign * (a - b) for a, b in zip(ours, theirs, strict=True)]
    n = len(gains)
    if n < LEAST_SEEDS:
        raise ValueError(f"a paired test needs at least {LEAST_SEEDS} pairs; got {n}.")
    spread = stdev(gains)
    p = None
    if spread > 1e-12 * max(map(abs, [*ours, *theirs])):
        p = 2 * float(stdtr(n - 1, -abs(fmean(gains)) / (spread / math.sqrt(n))))
    return Paired(n, fmean(gains), reach(gains), sum(gain > 0 for gain in gains), p, signed_rank(gains))


def signed_rank(gains: Iterable[float]) -> float | None:
    """p of Wilcoxon's signed-rank test, two-sided, over all signs; zeros are left out. None if there are too many.

    Example:
        >>> signed_rank([0.3, 0.1, 0.4, 0.2, 0.5])  # the least that five pairs can give
        0.0625
    """
    known = [gain for gain in gains if gain != 0]
    if not 0 < len(known) <= EXACT:
        return None
    ranks = shared_ranks([abs(gain) for gain in known])
    total, positive = sum(ranks), sum(rank for rank, gain in zip(ranks, known, strict=True) if gain > 0)
    least = min(positive, total - positive)
    sums = [sum(r for r, s in zip(ranks, signs, strict=True) if s) for signs in product((0, 1), repeat=len(ranks))]
    return min(1.0, 2 * sum(s <= least + 1e-9 for s in sums) / len(sums))


def holm(ps: Sequence[float]) -> list[float]:
    """p values that allow for there being several, by Holm's steps.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    adjusted, most = [0.0] * len(ps), 0.0
    for place, index in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        most = max(most, min(1.0, (len(ps) - place) * ps[index]))
        adjusted[index] = most
    return adjusted


def shared_ranks(costs: Sequence[float]) -> list[float]:
    """1 for the smallest; equal ones share the mean of their places."""
    return [sum(c < cost for c in costs) + (list(costs).count(cost) + 1) / 2 for cost in costs]


class Friedman(NamedTuple):
    """Whether systems differ over cells: the statistic, corrected for ties, and its p by chi-square."""

    statistic: float
    p: float


def friedman(ranks: Sequence[Sequence[float]]) -> Friedman:
    """Ranks of k systems in n cells, (n, k), ties sharing theirs."""
    n, k = len(ranks), len(ranks[0])
    if n < 2 or k < 3:
        raise ValueError(f"Friedman's test needs at least 2 cells and 3 systems; got {n} and {k}.")
    sums = [sum(column) for column in zip(*ranks, strict=True)]
    ties = sum(t * (t * t - 1) for row in ranks for t in Counter(row).values())
    correction = 1 - ties / (n * k * (k * k - 1))
    if correction <= 0:  # all systems are equal in every cell
        return Friedman(0.0, 1.0)
    statistic = (12 / (n * k * (k + 1)) * sum(s * s for s in sums) - 3 * n * (k + 1)) / correction
    return Friedman(statistic, float(chdtrc(k - 1, statistic)))


def nemenyi(systems: int, cells: int, level: float = LEVEL) -> float:
    """How far mean ranks must lie apart to differ: q √(k (k + 1) / 6 n), q of the studentized range over √2.

    Example:
        >>> round(nemenyi(systems=5, cells=30), 3)
        1.114
    """
    from scipy.stats import studentized_range  # a second to import, and needed here alone

    q = float(studentized_range.ppf(1 - level, systems, math.inf)) / math.sqrt(2)
    return q * math.sqrt(systems * (systems + 1) / (6 * cells))
