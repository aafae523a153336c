"""Rivals that tell classes or numbers: on a regular grid, on summary features, on each row and its neighbours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from lformer.baselines import BASELINES, FittedAtOnce
from lformer.baselines.minirocket import aeon
from lformer.baselines.tabular import Kind as Asked
from lformer.bench.defaults.grid import Grid
from lformer.bench.defaults.measures import Answers
from lformer.bench.defaults.problem import Problem
from lformer.covariates import Covariates
from lformer.estimators import Summaries
from lformer.evaluate import predict
from lformer.panel import Array, Panel
from lformer.parts import PanelPart, Targets
from lformer.tasks import classify, regress, regress_points


class OnGrid:
    """A model of arrays: (n, C, steps), or flat, with the static covariates."""

    def __init__(self, model: Any, *, flat: bool) -> None:
        self.model, self._flat = model, flat

    def fit(self, problem: Problem) -> None:
        """Learn where the grid lies, then what is asked."""
        self._grid = Grid.fit(problem)
        self.model.fit(self._arrays(problem.train), problem.labels)

    def answer(self, problem: Problem) -> Answers:
        """Of the test series."""
        return told(self.model, self._arrays(problem.test))

    def _arrays(self, panel: Panel) -> Array:
        return self._grid.flat(panel) if self._flat else self._grid.cube(panel)


class OnRows:
    """A model of single rows, which sees those beside them."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def fit(self, problem: Problem) -> None:
        """Learn from all rows."""
        self._grid = Grid.fit(problem)
        self.model.fit(self._grid.rows(problem.train), np.concatenate(list(problem.labels)))

    def answer(self, problem: Problem) -> Answers:
        """Of the rows of the test series."""
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
        """Of the test series."""
        return told(self.model, self._summaries.transform(problem.test))


class Simple:
    """A model of the library that is fitted at once: of series by their summary features, of rows by their neighbours.

    One of them is the boosting with which every classifier and regressor compares itself in `fit`.
    """

    def __init__(self, name: str, **given: Any) -> None:
        self._baseline, self._given = BASELINES[name], given

    def fit(self, problem: Problem) -> None:
        """Learn classes of series, or numbers of series or of rows."""
        numbers = np.concatenate([np.atleast_1d(each) for each in problem.labels])[:, None]
        if problem.kind == "series":
            self._names, numbers = np.unique(problem.labels, return_inverse=True)
            self._task = classify(len(self._names))
        else:
            self._task = regress() if problem.kind == "numbers" else regress_points(1)
        self._covariates = Covariates.fit(problem.train.static)
        model = self._baseline.model(
            self._baseline.config(
                inputs=len(problem.train.channels), outputs=self._task.outputs, answer=self._task.answer,
                statics=self._covariates.width, **self._given,
            )
        )  # fmt: skip
        assert isinstance(model, FittedAtOnce)
        self._model = model
        self._model.fit(self._part(problem.train, numbers), self._task)

    def answer(self, problem: Problem) -> Answers:
        """Of the test series, or of their rows."""
        lines = len(problem.test) if self._task.answer == "series" else int(problem.test.lengths.sum())
        unknown = np.zeros(lines, np.int64) if problem.kind == "series" else np.zeros((lines, 1))
        said = [
            one.numpy().astype(np.float64)
            for one in predict(self._model, self._task, self._part(problem.test, unknown))
        ]
        if problem.kind == "series":
            return of_probabilities(self._names, np.exp(np.array(said)))
        return Answers(said=np.concatenate(said) if problem.kind == "numbers" else [one[:, 0] for one in said])

    def _part(self, panel: Panel, values: Array) -> PanelPart:
        panel = panel.compact()
        static = self._covariates.encode(panel.static) if self._covariates.width else None
        at: Literal["series", "rows"] = "series" if self._task.answer == "series" else "rows"
        return PanelPart(panel, Targets(values=values, at=at), np.arange(len(panel)), 0, static=static, precise=True)


def told(model: Any, table: Array) -> Answers:
    """The answers of a fitted model of scikit-learn; of a classifier with its probabilities, or else its scores."""
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


def forest(kind: Asked, seed: int) -> Any:
    """A random forest with the defaults of scikit-learn."""
    from sklearn import ensemble

    made = ensemble.RandomForestClassifier if kind == "classes" else ensemble.RandomForestRegressor
    return made(random_state=seed)


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
