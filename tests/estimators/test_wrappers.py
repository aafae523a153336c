"""What wraps an estimator in scikit-learn, on a Panel: bagging, stacking, calibration, permutation importance."""

from typing import Any

import numpy as np
import pytest
from estimators.every_estimator import SMALL, answers, fitted, records, same
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier, BaggingRegressor, StackingClassifier
from sklearn.impute import SimpleImputer
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from lformer import LFormerClassifier, LFormerRegressor, Panel
from lformer.estimators import Summaries


def told(n: int = 12) -> tuple[Panel, Any]:
    return records(n), np.array(["ill", "well"] * n)[:n]


def test_bagging_draws_series_of_a_panel() -> None:
    panel, y = told()
    X = np.asarray(panel)
    bag = BaggingClassifier(LFormerClassifier(**SMALL), 3, random_state=0).fit(X, y)
    each = [model.predict_proba(X) for model in bag.estimators_]
    assert np.allclose(bag.predict_proba(X), np.mean(each, axis=0))
    assert not np.allclose(each[0], each[1])
    assert set(bag.predict(X[3:5])) <= {"ill", "well"}
    numbers = np.linspace(-1, 1, 12)
    bag = BaggingRegressor(LFormerRegressor(**SMALL), 2, bootstrap=False, max_samples=6, random_state=0)
    assert bag.fit(X, numbers).predict(X).shape == (12,)
    assert {model.features_.channels for model in bag.estimators_} == {("k", "na")}
    with pytest.raises(ValueError, match="X has 8 features, but BaggingRegressor is expecting 1"):
        bag.predict(panel)  # scikit-learn takes the rows of a panel for features; the docs say what to do


def test_scikit_learns_importance_is_that_of_the_whole_series() -> None:
    panel, y = told()
    model = LFormerClassifier(**SMALL | {"max_epochs": 20, "lr": 0.02}).fit(panel, y)
    found = permutation_importance(model, np.asarray(panel), y, n_repeats=4, random_state=0)
    assert found.importances.shape == (1, 4)
    assert np.std(found.importances) > 0


def test_stacking_and_calibration_take_a_panel() -> None:
    X, y = told(24)
    lines = make_pipeline(Summaries(), SimpleImputer(keep_empty_features=True), LogisticRegression(max_iter=10_000))
    parts = [("lformer", LFormerClassifier(**SMALL)), ("lines", lines)]
    assert StackingClassifier(parts, cv=2).fit(X, y).predict_proba(X).shape == (24, 2)
    assert CalibratedClassifierCV(LFormerClassifier(**SMALL), cv=2).fit(X, y).predict_proba(X).shape == (24, 2)


def test_a_panel_as_an_array_of_series_is_the_same_series() -> None:
    X = records(dated=True)
    cells = np.asarray(X)
    assert cells.shape == (12, 1)
    model = fitted(LFormerClassifier, X)
    assert same(answers(model, cells), answers(model, X))
    assert same(answers(model, cells[[5, 0]]), answers(model, X[[5, 0]]))
    with pytest.raises(TypeError, match=r"no array of float64; use panel.to_array\(\)"):
        np.asarray(X, float)
