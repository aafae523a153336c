"""Rivals that tell classes: on a regular grid, on summary features, on each row and its neighbours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lformer.baselines import BASELINES, FittedAtOnce
from lformer.baselines.minirocket import aeon
from lformer.bench.defaults.grid import Grid
from lformer.bench.defaults.measures import Answers
from lformer.bench.defaults.problem import Problem
from lformer.covariates import Covariates
from lformer.estimators import Summaries
from lformer.evaluate import predict
from lformer.panel import Array, Panel
from lformer.parts import PanelPart, Targets
from lformer.tasks import classify


class OnGrid:
    """A classifier of arrays: (n, C, steps), or flat, with the static covariates."""

    def __init__(self, model: Any, *, flat: bool) -> None:
        self.model, self._flat = model, flat

    def fit(self, problem: Problem) -> None:
        """Learn where the grid lies, then the classes."""
        self._grid = Grid.fit(problem)
        self.model.fit(self._arrays(problem.train), problem.labels)

    def answer(self, problem: Problem) -> Answers:
        """Classes of the test series."""
        return classes(self.model, self._arrays(problem.test))

    def _arrays(self, panel: Panel) -> Array:
        return self._grid.flat(panel) if self._flat else self._grid.cube(panel)


class OnRows:
    """A classifier of single rows, which sees those beside them."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def fit(self, problem: Problem) -> None:
        """Learn from all rows."""
        self._grid = Grid.fit(problem)
        self.model.fit(self._grid.rows(problem.train), np.concatenate(list(problem.labels)))

    def answer(self, problem: Problem) -> Answers:
        """Classes of the rows of the test series."""
        said = self.model.predict(self._grid.rows(problem.test))
        return Answers(said=np.split(said, np.cumsum(problem.test.lengths)[:-1]))


class OnSummaries:
    """A classifier of summary features and static covariates."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def fit(self, problem: Problem) -> None:
        """Learn from the training series."""
        self._summaries = Summaries().fit(problem.train)
        self.model.fit(self._summaries.transform(problem.train), problem.labels)

    def answer(self, problem: Problem) -> Answers:
        """Classes of the test series."""
        return classes(self.model, self._summaries.transform(problem.test))


class Boosting:
    """The library's own boosting on summary features, with which every classifier compares itself in `fit`."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def fit(self, problem: Problem) -> None:
        """Grow the trees."""
        self._names, code = np.unique(problem.labels, return_inverse=True)
        self._covariates = Covariates.fit(problem.train.static)
        self._task = classify(len(self._names))
        entry = BASELINES["boosting"]
        config = entry.config(
            inputs=len(problem.train.channels), outputs=len(self._names), statics=self._covariates.width,
            random_state=self._seed,
        )  # fmt: skip
        self._model = entry.model(config)
        assert isinstance(self._model, FittedAtOnce)
        self._model.fit(self._part(problem.train, code), self._task)

    def answer(self, problem: Problem) -> Answers:
        """Classes of the test series."""
        part = self._part(problem.test, np.zeros(len(problem.test), np.int64))
        shares = np.exp(np.array([scores.numpy() for scores in predict(self._model, self._task, part)], np.float64))
        return of_probabilities(self._names, shares)

    def _part(self, panel: Panel, code: Array) -> PanelPart:
        static = self._covariates.encode(panel.static) if self._covariates.width else None
        targets = Targets(values=code.astype(np.int64), at="series")
        return PanelPart(panel, targets, np.arange(len(panel)), 0, static=static, precise=True)


def classes(model: Any, table: Array) -> Answers:
    """The answers of a fitted classifier of scikit-learn: with probabilities if it has them, else with its scores."""
    if hasattr(model, "predict_proba"):
        return of_probabilities(model.classes_, model.predict_proba(table))
    if not hasattr(model, "decision_function"):
        return Answers(said=model.predict(table))
    scores = model.decision_function(table)
    return Answers(said=model.predict(table), ranking=scores if scores.ndim == 1 else None)


def of_probabilities(names: Array, shares: Array) -> Answers:
    """The likeliest of the classes, (n, K) probabilities given."""
    ranking = shares[:, 1] if shares.shape[1] == 2 else None
    return Answers(said=names[shares.argmax(axis=1)], probabilities=shares, ranking=ranking)


# -- models


def dtw() -> OnGrid:
    """The class of the nearest training series under dynamic time warping."""
    nearest = aeon("aeon.classification.distance_based", "KNeighborsTimeSeriesClassifier")
    return OnGrid(_Labels(nearest(n_neighbors=1, distance="dtw")), flat=False)


def forest(seed: int) -> Any:
    """A random forest with the defaults of scikit-learn."""
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(random_state=seed)


def trees(seed: int) -> Any:
    """Histogram gradient boosting with the defaults of scikit-learn."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(random_state=seed)


class _Labels:
    """A classifier whose probabilities are only votes, and say no more than its classes."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.fit: Callable[..., Any] = model.fit
        self.predict: Callable[..., Any] = model.predict
