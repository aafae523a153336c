"""Irregular series as arrays, for methods that need them: a regular grid of each series, or a row and its neighbours.

Between its observations a channel follows the straight line, before and after them it stays; one that was never
observed in a series is at its mean over the training series.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lformer.baselines.neighbourhood import along, beside
from lformer.bench.defaults.problem import Problem
from lformer.covariates import Covariates
from lformer.panel import Array, Panel

NEIGHBOURS = (-2, -1, 0, 1, 2)  # rows away from a row, of those that count among its features


@dataclass(frozen=True, eq=False)
class Grid:
    """What must be known of the training series.

    Attributes:
        steps, stretch: as in `Problem`.
        begin, end: of the common clock.
        mean: (C,) of the channels.
        covariates: how static covariates become numbers.
    """

    steps: int
    stretch: bool
    begin: float
    end: float
    mean: Array
    covariates: Covariates

    @classmethod
    def fit(cls, problem: Problem) -> Grid:
        """From the training part of a problem."""
        panel = problem.train.compact()
        return cls(
            problem.steps, problem.stretch, float(panel.times.min()), float(panel.times.max()), channel_means(panel),
            Covariates.fit(panel.static),
        )  # fmt: skip

    def cube(self, panel: Panel) -> Array:
        """(n, C, steps)"""
        found = np.empty((len(panel), len(self.mean), self.steps))
        for i, (times, values) in enumerate(clocks(panel)):
            begin, end = (times[0], times[-1]) if self.stretch and len(times) else (self.begin, self.end)
            found[i] = along(times, values, np.linspace(begin, end, self.steps), self.mean).T
        return found

    def flat(self, panel: Panel) -> Array:
        """(n, C · steps + S), the grid and the static covariates of each series."""
        cube = self.cube(panel).reshape(len(panel), -1)
        return np.concatenate([cube, self.covariates.encode(panel.static)], axis=1) if self.covariates.width else cube

    def rows(self, panel: Panel) -> Array:
        """(N, 5 C), all channels at each row and at those beside it."""
        return np.concatenate(
            [beside(along(times, values, times, self.mean), NEIGHBOURS) for times, values in clocks(panel)]
        )


def clocks(panel: Panel) -> list[tuple[Array, Array]]:
    """Of each series `times` (L,), as the panel has them, and values (L, C) with NaN."""
    runs = [slice(first, first + length) for first, length in zip(panel.first, panel.lengths, strict=True)]
    return [(panel.times[run], values) for run, (_, values) in zip(runs, panel, strict=True)]


def channel_means(panel: Panel) -> Array:
    """(C,) over all observations; 0 of a channel that has none."""
    panel = panel.compact()
    seen = np.ones(panel.values.shape, bool) if panel.observed is None else panel.observed
    total = np.where(seen, panel.values, 0).astype(np.float64).sum(axis=0)
    return total / np.maximum(seen.sum(axis=0), 1)
