"""Every method of the bench by name: the estimators' defaults, and what a user would try instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from lformer.baselines.linear_models import logistic
from lformer.baselines.minirocket import minirocket
from lformer.baselines.tabular import Kind as Asked
from lformer.bench.defaults import options, rivals, rules
from lformer.bench.defaults.gaussian import GaussianProcess
from lformer.bench.defaults.measures import Answers
from lformer.bench.defaults.ours import Defaults
from lformer.bench.defaults.problem import CLASSES, NUMBERS, VALUES, Kind, Problem
from lformer.bench.defaults.rivals import OnGrid, OnRows, OnSummaries, Simple
from lformer.bench.defaults.rules import ByChannel, Rule

OURS = "lformer"
MOST_WARPED = 2e10  # cells of all warping tables of nearest neighbours: some minutes
MOST_CUBED = 3e7  # rows³ over all processes: some minutes


class Method(Protocol):
    """What is compared: it learns from the training part of a problem, and answers for its test part."""

    def fit(self, problem: Problem) -> None:
        """Learn; the truth is not there."""
        ...

    def answer(self, problem: Problem) -> Answers:
        """Answer for the test series."""
        ...


Make = Callable[[Kind, int, str], Method]


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

    make: Make
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


# -- how they are made, for a kind of problem, with a seed and a device


def _asked(kind: Kind) -> Asked:
    return "classes" if kind in CLASSES else "numbers"


def _ours(kind: Kind, seed: int, device: str) -> Method:
    return Defaults(seed, device)


def _minirocket(kind: Kind, seed: int, device: str) -> Method:
    return OnGrid(minirocket(_asked(kind), seed), flat=False)


def _dtw(kind: Kind, seed: int, device: str) -> Method:
    return rivals.dtw()


def _boosting(kind: Kind, seed: int, device: str) -> Method:
    return OnRows(rivals.trees(seed)) if kind == "rows" else Simple("boosting", random_state=seed)


def _forest(kind: Kind, seed: int, device: str) -> Method:
    model = rivals.forest(_asked(kind), seed)
    return OnGrid(model, flat=True) if kind in ("series", "numbers") else OnRows(model)


def _logistic(kind: Kind, seed: int, device: str) -> Method:
    model = logistic()
    return OnSummaries(model) if kind == "series" else OnRows(model)


def _simple(name: str) -> Make:
    return lambda kind, seed, device: Simple(name)


def _gaussian(kind: Kind, seed: int, device: str) -> Method:
    return GaussianProcess(seed)


def _rule(make: Callable[[Problem], Rule]) -> Make:
    return lambda kind, seed, device: ByChannel(make)


def _plain(rule: Rule) -> Make:
    return _rule(lambda problem: rule)


METHODS: dict[str, Entry] = {
    OURS: Entry(_ours, (*CLASSES, *NUMBERS, *VALUES), random=True, on_device=True),
    "minirocket": Entry(_minirocket, ("series", "numbers"), random=True, compiled=True),
    "dtw": Entry(_dtw, ("series",), compiled=True, why_not=_slow_warping),
    "boosting": Entry(_boosting, (*CLASSES, *NUMBERS), random=True),
    "random-forest": Entry(_forest, (*CLASSES, *NUMBERS), random=True),
    "logistic": Entry(_logistic, CLASSES),
    "ridge": Entry(_simple("ridge"), NUMBERS),
    "constant": Entry(_simple("constant"), NUMBERS),
    "last-value": Entry(_plain(rules.last_value), VALUES),
    "series-mean": Entry(_plain(rules.mean_so_far), VALUES),
    "seasonal": Entry(_rule(rules.make_seasonal), VALUES, why_not=_no_season),
    "weekday-mean": Entry(_rule(rules.make_weekday_mean), ("forecast",), why_not=_no_week),
    "linear-interpolation": Entry(_plain(rules.line), ("interpolate",)),
    "gaussian-process": Entry(_gaussian, VALUES, random=True, why_not=_slow_processes),
}


def _changed(given: Mapping[str, Any]) -> Make:
    return lambda kind, seed, device: Defaults(seed, device, given)


# The defaults with one option changed. They run where they are named, not with all the others.
CHANGED: dict[str, Entry] = {
    options.method_name(name): Entry(_changed(option.given), option.kinds, random=True, on_device=True)
    for name, option in options.OPTIONS.items()
}


def named(name: str) -> Entry:
    """A method by name, or an error that lists them."""
    known = METHODS | CHANGED
    if name not in known:
        raise ValueError(f"unknown method {name!r}; there are {', '.join(known)}.")
    return known[name]
