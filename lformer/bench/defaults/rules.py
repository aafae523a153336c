"""Rivals that tell values without a model: rules for one channel of one series, from its observations so far."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lformer.bench.defaults.grid import channel_means, clocks
from lformer.bench.defaults.measures import Answers
from lformer.bench.defaults.problem import Problem
from lformer.panel import Array, Panel
from lformer.panel.stamps import one_of

WEEKS = 8  # that the mean of a weekday looks back
Rule = Callable[[Array, Array, Array], Array]  # times (L,), values (L,), asked (Q,) -> (Q,), NaN where it cannot say


class ByChannel:
    """A rule for each channel of each series; where it cannot say, the mean of the channel in training."""

    def __init__(self, make: Callable[[Problem], Rule]) -> None:
        self._make = make

    def fit(self, problem: Problem) -> None:
        """Learn the means of the channels, and the season if the rule has one."""
        self._rule, self._mean = self._make(problem), channel_means(problem.train)

    def answer(self, problem: Problem) -> Answers:
        """Values at the times asked for."""
        said = []
        for (times, values), asked in zip(clocks(problem.test), problem.asked, strict=True):
            found = np.empty((len(asked), values.shape[1]))
            for c in range(values.shape[1]):
                seen = ~np.isnan(values[:, c])
                told = self._rule(times[seen], values[seen, c].astype(np.float64), asked) if seen.any() else np.nan
                found[:, c] = np.where(np.isnan(told), self._mean[c], told)
            said.append(found)
        return Answers(said=said)


def last_value(times: Array, values: Array, asked: Array) -> Array:
    """The latest observation.

    Example:
        >>> last_value(np.array([0.0, 2.0]), np.array([5.0, 7.0]), np.array([-1.0, 1.0, 2.0])).tolist()
        [nan, 5.0, 7.0]
    """
    return np.concatenate([[np.nan], values])[np.searchsorted(times, asked, side="right")]


def mean_so_far(times: Array, values: Array, asked: Array) -> Array:
    """The mean of the observations so far."""
    means = np.cumsum(values) / np.arange(1, len(values) + 1)
    return last_value(times, means, asked)


def line(times: Array, values: Array, asked: Array) -> Array:
    """The straight line between the observations, the nearest of them outside."""
    return np.interp(asked, times, values)


def seasonal(season: float, near: float) -> Rule:
    """The observation of the same phase that is nearest in time; one that is `near` the phase counts as of it.

    Where none is that near, the nearest phase counts.

    Example:
        >>> times, values = np.array([0.0, 1.0, 2.0, 3.0]), np.array([5.0, 6.0, 8.0, 9.0])
        >>> seasonal(2.0, 0.1)(times, values, np.array([4.0, 5.0, 7.1])).tolist()
        [8.0, 9.0, 9.0]
    """

    def rule(times: Array, values: Array, asked: Array) -> Array:
        away = asked[:, None] - times  # (Q, L)
        phase = np.abs((away + season / 2) % season - season / 2)
        phase = np.where(phase <= near, near, np.maximum(phase, near))
        nearest = phase.min(axis=1, keepdims=True) + 1e-9 * season
        return values[np.where(phase <= nearest, np.abs(away), np.inf).argmin(axis=1)]

    return rule


def weekday_mean(week: float) -> Rule:
    """The mean of the same weekday over the last weeks that are known."""

    def rule(times: Array, values: Array, asked: Array) -> Array:
        away = asked[:, None] - times  # (Q, L)
        same = np.abs((away + week / 2) % week - week / 2) < week / 14
        counted = same & (times > times[-1] - WEEKS * week)
        known = counted.sum(axis=1)
        return np.where(known > 0, (counted * values).sum(axis=1) / np.maximum(known, 1), np.nan)

    return rule


# -- seasons


def season_of(problem: Problem) -> float | None:
    """The season that the set names, or that its calendar suggests: a week of days, a day of hours; None if neither."""
    if problem.season is not None:
        return problem.season
    panel = problem.train
    if panel.origin.dtype.kind != "M":
        return None
    day = np.timedelta64(1, "D") / one_of(panel.unit)
    gap = median_gap(panel)
    if np.isclose(gap, day, rtol=0.01):
        return float(7 * day)
    return float(day) if gap <= day / 4 else None


def median_gap(panel: Panel) -> float:
    """Between neighbouring rows of a series."""
    panel = panel.compact()
    owner = np.repeat(np.arange(len(panel)), panel.lengths)
    return float(np.median(np.diff(panel.times)[np.diff(owner) == 0]))


def make_seasonal(problem: Problem) -> Rule:
    """Seasonal naive for a problem with a season; half the usual gap is near enough."""
    season = season_of(problem)
    assert season is not None
    return seasonal(season, 0.5 * median_gap(problem.train))


def make_weekday_mean(problem: Problem) -> Rule:
    """The weekday mean for a problem whose season is a week."""
    season = season_of(problem)
    assert season is not None
    return weekday_mean(season)
