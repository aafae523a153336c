"""What explanations and reports need from a fitted estimator: its series and queries as the model reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from lformer.estimators.base import LFormerEstimator
from lformer.estimators.calibrating import Told
from lformer.estimators.forecast import LFormerForecaster
from lformer.estimators.interpolate import LFormerInterpolator
from lformer.estimators.intervals import IntervalEstimator
from lformer.estimators.points import LFormerPointClassifier, LFormerPointRegressor, _per_series
from lformer.estimators.pretraining import LFormerPretrainer
from lformer.estimators.series import LFormerRegressor, _aligned
from lformer.panel import Array, Panel, without_rows
from lformer.parts import PanelPart, Targets


def of_points(estimator: LFormerEstimator) -> bool:
    """Whether it predicts for each row."""
    return isinstance(estimator, LFormerPointClassifier | LFormerPointRegressor)


def of_records(estimator: LFormerEstimator) -> bool:
    """Whether it predicts values of the series themselves, at query times."""
    return isinstance(estimator, LFormerForecaster | LFormerInterpolator)


def of_classes(estimator: LFormerEstimator) -> bool:
    """Whether it predicts classes."""
    return hasattr(estimator, "classes_")


def matched(estimator: LFormerEstimator, X: Any) -> Panel:
    """The series of X with channels and clock as in training; for interpolators and forecasters, without empty rows."""
    check_is_fitted(estimator, "model_")
    if isinstance(estimator, LFormerPretrainer):
        raise TypeError("LFormerPretrainer makes no predictions: fit an estimator from it and explain that one.")
    panel = estimator.features_.match(estimator._series(X)).compact()
    if of_records(estimator) and panel.observed is not None:
        panel = without_rows(panel, ~np.any(panel.observed, axis=1))
    return panel


def unasked(estimator: LFormerEstimator, panel: Panel) -> PanelPart:
    """Matched series, in batches as the model reads them."""
    return estimator._part(panel, Targets(values=np.zeros(len(panel)), at="series"))


def queried(estimator: LFormerEstimator, X: Any, query_times: Any) -> PanelPart:
    """Series of X with queries, for an interpolator or forecaster."""
    assert isinstance(estimator, LFormerForecaster | LFormerInterpolator)
    return estimator._queries(X, query_times)


def hidden(estimator: LFormerEstimator, X: Any) -> PanelPart:
    """Series of X with rows hidden as queries, as in `score` of an interpolator or forecaster."""
    assert isinstance(estimator, LFormerForecaster | LFormerInterpolator)
    check_is_fitted(estimator, "model_")
    return estimator._with_hidden_rows(X)


def aligned(estimator: LFormerEstimator, X: Any, y: Any) -> Any:
    """Targets in the order of the series: (n, ...), for points a list of (L_i, ...); None if series are the targets."""
    if of_records(estimator):
        return None
    panel = estimator._series(X)
    if of_points(estimator):
        return _per_series(panel, X, y)
    return _aligned(panel, y, isinstance(X, Panel))


def judged(estimator: LFormerEstimator, X: Any, y: Any) -> tuple[Told, Array]:
    """The predictions of an estimator of numbers, and (N, O) the true values, NaN where there is none."""
    assert isinstance(estimator, IntervalEstimator)
    if isinstance(estimator, LFormerForecaster | LFormerInterpolator):
        part, truth, _ = estimator._with_unseen_values(X)
        return estimator._told(part), truth
    assert isinstance(estimator, LFormerRegressor | LFormerPointRegressor)
    known = np.concatenate(y) if isinstance(y, list) else np.asarray(y)
    truth = known.astype(np.float64)
    return estimator._told(X), truth[:, None] if truth.ndim == 1 else truth


def rules(estimator: LFormerEstimator) -> dict[str, Any]:
    """The baselines that `fit` compared with, by name; empty after loading, as they are not saved."""
    found = getattr(estimator, "_naive", None)
    return {} if found is None else dict(found.rules)


def selected(targets: Any, index: Array) -> Any:
    """The targets of some series."""
    return [targets[i] for i in index] if isinstance(targets, list) else None if targets is None else targets[index]
