"""A problem: series to learn from, series to answer for, and the truth, which no method is shown."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from lformer.panel import Array, Panel, without_rows
from lformer.splitting import stratified_folds

Kind = Literal["series", "rows", "numbers", "row-numbers", "forecast", "interpolate"]
CLASSES: tuple[Kind, ...] = ("series", "rows")
NUMBERS: tuple[Kind, ...] = ("numbers", "row-numbers")
VALUES: tuple[Kind, ...] = ("forecast", "interpolate")


@dataclass(frozen=True, eq=False, kw_only=True)
class Problem:
    """What is asked of every method alike.

    Attributes:
        kind: the class of each "series" or of each of its "rows"; a number of each series, "numbers", or of each row,
            "row-numbers"; or values to "forecast" or to "interpolate".
        measures: names of `MEASURES`; the first one ranks.
        train: whole series.
        test: the series to answer for; of values, without the rows that are asked for.
        labels: classes or numbers of the training series: (n,), or of their rows, n of (L_i,); empty of values.
        truth: the same of the test series; of values, n of (Q_i, C), NaN where nothing was observed.
        groups: (n,) whose the training series are, where somebody has several; folds keep them together.
        test_groups: the same of the test series, which are then drawn together for the standard error.
        asked: of values, n of (Q_i,) times at which they are wanted, in the frame of `test.times`.
        hides: which rows of whole series are asked for, (N,) bool; it made `test`, and makes the folds.
        onwards: whether the test series are the training series, which go on.
        horizon: how far ahead a forecast is asked for, in the unit of the times; None if that differs.
        season: length of the known season in the unit of the times; None to ask the calendar.
        steps: points of the regular grid, for methods that need one.
        stretch: whether that grid runs from the first to the last row of each series, and not by the common clock.
        folds: into how many the training part is divided to validate.
    """

    kind: Kind
    measures: tuple[str, ...]
    train: Panel
    test: Panel
    labels: Array | list[Array] = field(default_factory=list)
    truth: Array | list[Array] = field(default_factory=list)
    groups: Array | None = None
    test_groups: Array | None = None
    asked: tuple[Array, ...] = ()
    hides: Callable[[Panel], Array] | None = None
    onwards: bool = False
    horizon: float | None = None
    season: float | None = None
    steps: int = 0
    stretch: bool = False
    folds: int = 5

    @property
    def blind(self) -> Problem:
        """The problem as a method gets it: without the truth."""
        return replace(self, truth=[])


def values_problem(train: Panel, whole: Panel, hides: Callable[[Panel], Array], **more: Any) -> Problem:
    """Ask for some rows of `whole` series; what is left of them is the test part."""
    return replace(
        Problem(train=train.compact(), test=train, hides=hides, **more), **_asking(whole.compact(), hides)
    )  # fmt: skip


def _asking(whole: Panel, hides: Callable[[Panel], Array]) -> dict[str, Any]:
    hidden = hides(whole)
    seen = np.ones(whole.values.shape, bool) if whole.observed is None else whole.observed
    values = np.where(seen, whole.values, np.nan)
    runs = [slice(first, first + length) for first, length in zip(whole.first, whole.lengths, strict=True)]
    return {
        "test": without_rows(whole, hidden),
        "asked": tuple(whole.times[run][hidden[run]] for run in runs),
        "truth": [values[run][hidden[run]] for run in runs],
    }


def last_rows(horizon: float) -> Callable[[Panel], Array]:
    """Hides what lies within `horizon` of the last row of each series."""

    def hides(panel: Panel) -> Array:
        return panel.times > np.repeat(last_times(panel) - horizon, panel.lengths)

    return hides


def last_times(panel: Panel) -> Array:
    """(n,) of `times`, that of the last row of each series, none of which is empty."""
    return panel.times[panel.first + panel.lengths - 1]


def validation_folds(problem: Problem) -> Iterator[Problem]:
    """The problems within the training part, on which defaults are chosen; the same ones for every method.

    Series are dealt out to the folds, classes evenly, groups whole. Series that go on are cut back instead, by one more
    horizon in each fold.
    """
    train, count = problem.train.compact(), problem.folds
    if problem.onwards:
        assert problem.hides is not None
        assert problem.horizon is not None
        for back in range(count):
            whole = without_rows(train, last_rows(back * problem.horizon)(train)) if back else train
            asked = _asking(whole, problem.hides)
            yield replace(problem, train=asked["test"], **asked)
        return
    if problem.kind == "series":
        fold = stratified_folds(np.asarray(problem.labels), count, seed=0)
    else:
        fold = _dealt(np.arange(len(train)) if problem.groups is None else problem.groups, count)
    for turn in range(count):
        rest, held = np.flatnonzero(fold != turn), np.flatnonzero(fold == turn)
        if problem.hides is not None:
            part = _asking(train[held].compact(), problem.hides)
        else:
            part = {"labels": _some(problem.labels, rest), "truth": _some(problem.labels, held), "test": train[held]}
        if problem.groups is not None:
            part |= {"groups": problem.groups[rest], "test_groups": problem.groups[held]}
        yield replace(problem, train=train[rest], **part)


def _dealt(groups: Array, count: int) -> Array:
    """(n,) the fold of each series, that of its group."""
    names, member = np.unique(groups, return_inverse=True)
    fold = np.empty(len(names), np.int64)
    fold[np.random.RandomState(0).permutation(len(names))] = np.arange(len(names)) % count
    return np.asarray(fold[member])


def _some(labels: Any, index: Array) -> Any:
    return labels[index] if isinstance(labels, np.ndarray) else [labels[i] for i in index]


def fingerprint(problem: Problem) -> str:
    """16 letters that differ if anything differs that a method reads or is measured by."""
    digest = hashlib.sha256(problem.kind.encode())
    for panel in (problem.train.compact(), problem.test.compact()):
        for array in (panel.times, panel.values, panel.lengths, panel.observed):
            _add(digest, array)
        digest.update(b"none" if panel.static is None else panel.static.to_csv(index=False).encode())
    groups = [each for each in (problem.groups, problem.test_groups) if each is not None]
    for several in (problem.labels, problem.truth, problem.asked, *groups):
        for one in [several] if isinstance(several, np.ndarray) else several:
            _add(digest, one)
    return digest.hexdigest()[:16]


def _add(digest: Any, array: Array | None) -> None:
    if array is None:
        digest.update(b"none")
    else:
        array = array if array.dtype.kind != "O" else array.astype(str)
        digest.update(f"{array.dtype.str}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
