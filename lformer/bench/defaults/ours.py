"""The estimators with their defaults, or with one option changed: told only what is asked, a device and a seed."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from lformer.bench.defaults.measures import Answers
from lformer.bench.defaults.problem import Kind, Problem
from lformer.bench.defaults.rivals import of_probabilities
from lformer.estimators import (
    ExtrapolationWarning,
    LFormerClassifier,
    LFormerForecaster,
    LFormerInterpolator,
    LFormerPointClassifier,
    LFormerPointRegressor,
    LFormerRegressor,
    LosesToNaiveWarning,
)
from lformer.panel.stamps import stamps

ESTIMATORS: dict[Kind, type[Any]] = {
    "series": LFormerClassifier,
    "rows": LFormerPointClassifier,
    "numbers": LFormerRegressor,
    "row-numbers": LFormerPointRegressor,
    "forecast": LFormerForecaster,
    "interpolate": LFormerInterpolator,
}


class Defaults:
    """The estimator for a kind of problem; `notes` is what it says of its fit."""

    def __init__(self, seed: int, device: str, changed: Mapping[str, Any] | None = None) -> None:
        self._given = {"random_state": seed, "device": device, **(changed or {})}
        self.notes: dict[str, Any] = {}

    def fit(self, problem: Problem) -> None:
        """Train. How far ahead to forecast, and whose the series are, is no setting but part of the question."""
        asked = {"horizon": problem.horizon} if problem.kind == "forecast" else {}
        self._model = ESTIMATORS[problem.kind](**self._given, **asked)
        labels = (problem.labels,) if len(problem.labels) else ()
        whose = {} if problem.groups is None else {"groups": problem.groups}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LosesToNaiveWarning)  # the table says so
            self._model.fit(problem.train, *labels, **whose)
        self.notes = {
            "estimator": type(self._model).__name__,
            "epochs": int(self._model.n_iter_),
            "validation_score": float(self._model.validation_score_),
            "naive": str(self._model.naive_),
            "naive_score": float(self._model.naive_score_),
        }

    def answer(self, problem: Problem) -> Answers:
        """What `predict` says."""
        test = problem.test
        if problem.kind == "series":
            return of_probabilities(self._model.classes_, np.asarray(self._model.predict_proba(test)))
        if problem.kind in ("rows", "numbers", "row-numbers"):
            return Answers(said=self._model.predict(test))
        times = [stamps(asked, begin, test.unit) for asked, begin in zip(problem.asked, test.origin, strict=True)]
        if problem.kind == "forecast":  # after a gap the same question reaches further
            self._model.set_params(extrapolate="warn")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExtrapolationWarning)
            return Answers(said=self._model.predict(test, query_times=times))
