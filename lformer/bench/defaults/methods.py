"""Every method of the bench by name: the estimators' defaults, and what a user would try instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from lformer.bench.defaults import classifiers, rules
from lformer.bench.defaults.classifiers import Boosting, Method, OnGrid, OnRows, OnSummaries
from lformer.bench.defaults.gaussian import GaussianProcess
from lformer.bench.defaults.ours import Defaults
from lformer.bench.defaults.problem import Kind, Problem
from lformer.bench.defaults.rules import ByChannel

OURS = "lformer"
MOST_WARPED = 2e10  # cells of all warping tables of nearest neighbours: some minutes
MOST_CUBED = 3e7  # rows³ over all processes: some minutes

CLASSES: tuple[Kind, ...] = ("series", "rows")
VALUES: tuple[Kind, ...] = ("forecast", "interpolate")


class Entry(NamedTuple):
    """A method of the bench.

    Attributes:
        make: for a kind of problem, with a seed and a device.
        kinds: of problem that it can answer.
        random: whether the seed matters; if not, it is run once.
        on_device: whether it runs on a GPU where there is one.
        compiled: whether its first call compiles it, which is not counted among its seconds.
        why_not: a reason not to run it on a problem, "" if there is none; it is a dash in the table then.
    """

    make: Callable[[Kind, int, str], Method]
    kinds: tuple[Kind, ...]
    random: bool = False
    on_device: bool = False
    compiled: bool = False
    why_not: Callable[[Problem], str] = lambda problem: ""


def _slow_warping(problem: Problem) -> str:
    cells = len(problem.train) * len(problem.test) * problem.steps**2 * len(problem.train.channels)
    return f"too slow: {cells:.0e} cells to warp" if cells > MOST_WARPED else ""


def _slow_processes(problem: Problem) -> str:
    cubes = float((problem.test.lengths.astype(np.float64) ** 3).sum()) * len(problem.test.channels)
    return f"too slow: {cubes:.0e} for all processes" if cubes > MOST_CUBED else ""


def _no_season(problem: Problem) -> str:
    return "" if rules.season_of(problem) else "no season is known"


def _no_week(problem: Problem) -> str:
    season = rules.season_of(problem)
    week = season is not None and problem.season is None and rules.median_gap(problem.train) * 7 == season
    return "" if week else "no weekdays"


METHODS: dict[str, Entry] = {
    OURS: Entry(lambda kind, seed, device: Defaults(seed, device), (*CLASSES, *VALUES), random=True, on_device=True),
    "minirocket": Entry(
        lambda kind, seed, device: classifiers.minirocket(seed), ("series",), random=True, compiled=True
    ),
    "dtw": Entry(lambda kind, seed, device: classifiers.dtw(), ("series",), compiled=True, why_not=_slow_warping),
    "boosting": Entry(
        lambda kind, seed, device: Boosting(seed) if kind == "series" else OnRows(classifiers.trees(seed)),
        CLASSES,
        random=True,
    ),
    "random-forest": Entry(
        lambda kind, seed, device: (
            OnGrid(classifiers.forest(seed), flat=True) if kind == "series" else OnRows(classifiers.forest(seed))
        ),
        CLASSES,
        random=True,
    ),
    "logistic": Entry(
        lambda kind, seed, device: (
            OnSummaries(classifiers.logistic()) if kind == "series" else OnRows(classifiers.logistic())
        ),
        CLASSES,
    ),
    "last-value": Entry(lambda kind, seed, device: ByChannel(lambda problem: rules.last_value), VALUES),
    "series-mean": Entry(lambda kind, seed, device: ByChannel(lambda problem: rules.mean_so_far), VALUES),
    "seasonal": Entry(lambda kind, seed, device: ByChannel(rules.make_seasonal), VALUES, why_not=_no_season),
    "weekday-mean": Entry(
        lambda kind, seed, device: ByChannel(rules.make_weekday_mean), ("forecast",), why_not=_no_week
    ),
    "linear-interpolation": Entry(lambda kind, seed, device: ByChannel(lambda problem: rules.line), ("interpolate",)),
    "gaussian-process": Entry(
        lambda kind, seed, device: GaussianProcess(seed), VALUES, random=True, why_not=_slow_processes
    ),
}


def named(name: str) -> Entry:
    """A method by name, or an error that lists them."""
    if name not in METHODS:
        raise ValueError(f"unknown method {name!r}; there are {', '.join(METHODS)}.")
    return METHODS[name]
