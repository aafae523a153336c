"""All six estimators where scikit-learn puts estimators: pipelines, searches, joblib; targets by id."""

import pickle
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from estimators.every_estimator import POINTS, SERIES, SIX, SMALL, answers, close, fitted, records, same, targets
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from lformer import (
    LFormerClassifier,
    LFormerPointClassifier,
    LFormerPointRegressor,
    LFormerRegressor,
    Panel,
)


@pytest.mark.parametrize("kind", SIX)
def test_clones_pickles_joblib_and_pipelines(kind: Any, tmp_path: Path) -> None:
    X = records()
    model, y = fitted(kind, X), targets(kind, X)
    told = answers(model, X)
    assert len(model.history_) == model.n_iter_ == 1
    assert model.task_.monitor in model.history_[-1]
    assert clone(model).get_params() == model.get_params()
    assert not hasattr(clone(model), "model_")
    assert same(answers(clone(model).fit(X, y), X), told)
    assert same(answers(pickle.loads(pickle.dumps(model)), X), told)
    joblib.dump(model, tmp_path / "m.joblib")
    assert same(answers(joblib.load(tmp_path / "m.joblib"), X), told)
    last = make_pipeline(FunctionTransformer(), clone(model)).fit(X, y)[-1]
    assert same(answers(last, X), told)


@pytest.mark.parametrize("kind", SIX)
def test_cross_validation_and_grid_search(kind: Any) -> None:
    X = records()
    y = targets(kind, X)
    folds = KFold(3, shuffle=True, random_state=0)
    scores = cross_val_score(kind(**SMALL), X, y, cv=folds)
    assert scores.shape == (3,)
    assert np.isfinite(scores).all()
    name = kind.__name__.lower()
    pipe = make_pipeline(FunctionTransformer(), kind(**SMALL))
    search = GridSearchCV(pipe, {f"{name}__width": [4, 8]}, cv=folds).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_[-1].model_.config.width == search.best_params_[f"{name}__width"]


@pytest.mark.parametrize("kind", SIX)
def test_what_another_process_is_sent_fits_the_same(kind: Any) -> None:
    X = records()
    chosen = [0, 2, 3, 5, 8, 9]
    y = targets(kind, X[chosen])
    model, sent, y_sent = pickle.loads(pickle.dumps((kind(**SMALL), X[chosen], y)))
    assert same(answers(model.fit(sent, y_sent), X), answers(kind(**SMALL).fit(X[chosen], y), X))


@pytest.mark.filterwarnings("ignore")  # Python does not keep the filters of threads apart
def test_searches_run_in_threads() -> None:
    X = records()
    with joblib.parallel_config(backend="threading", n_jobs=2):
        scores = cross_val_score(LFormerPointRegressor(**SMALL), X, targets(LFormerPointRegressor, X), cv=KFold(3))
    assert np.isfinite(scores).all()


# -- targets and weights by id


def by_id(X: Panel, y: Any) -> dict[str, pd.Series]:
    """The same targets, as a Series in another order, and one with more ids than series."""
    shuffled = pd.Series(list(y), index=X.ids, dtype=None if np.ndim(y[0]) == 0 else object)[::-1]
    return {"shuffled": shuffled, "more": pd.concat([shuffled, shuffled[:1].rename({X.ids[-1]: "stranger"})])}


@pytest.mark.parametrize("kind", [LFormerClassifier, *POINTS])
def test_a_series_of_targets_goes_by_id(kind: Any) -> None:
    X = records()
    y = targets(kind, X)
    model = fitted(kind, X)
    told, score = answers(model, X), model.score(X, y)
    for form, one in by_id(X, y).items():
        again = kind(**SMALL).fit(X, one)
        assert same(answers(again, X), told), form
        assert again.score(X, one) == score
    with pytest.raises(ValueError, match=r"y has no entry for 1 of 12 ids, among them \['p00'\]"):
        kind(**SMALL).fit(X, by_id(X, y)["shuffled"][:-1])
    with pytest.raises(ValueError, match=r"y has no entry for 1 of 12 ids, among them \['p00'\]"):
        model.score(X, by_id(X, y)["shuffled"][:-1])


def test_a_table_of_several_targets_goes_by_id() -> None:
    X = records()
    y = targets(LFormerRegressor, X)
    table = pd.DataFrame(y, index=X.ids, columns=["a", "b"])[::-1]
    model = LFormerRegressor(**SMALL).fit(X, table)
    assert same(answers(model, X), answers(fitted(LFormerRegressor, X), X))
    assert model.score(X, table) == model.score(X, y)
    assert model.score(X, table) != model.score(X, y[::-1])


@pytest.mark.parametrize("kind", SERIES + POINTS)
def test_weights_go_by_id_and_are_checked(kind: Any) -> None:
    X = records()
    y, weights = targets(kind, X), np.linspace(0.1, 3, 12)
    plain = answers(fitted(kind, X), X)
    weighed = answers(kind(**SMALL).fit(X, y, sample_weight=weights), X)
    assert not close(plain, weighed)
    named = pd.Series(weights, index=X.ids).sample(frac=1, random_state=0)
    assert same(answers(kind(**SMALL).fit(X, y, sample_weight=named), X), weighed)
    for bad, says in ((weights[:-1], "must be 12 numbers"), (-weights, "numbers from 0"), (0 * weights, "is zero for")):
        with pytest.raises(ValueError, match=f"sample_weight .*{says}|sample_weight {says}"):
            kind(**SMALL).fit(X, y, sample_weight=bad)


# -- rare classes


def rare(n: int = 60, seed: int = 0) -> tuple[Panel, list[Any]]:
    """Rows of which one in ten is of another class, hard to tell from the rest."""
    rng = np.random.default_rng(seed)
    labels = [(rng.random(int(rng.integers(5, 12))) < 0.1).astype(int) for _ in range(n)]
    series = [(np.cumsum(rng.exponential(1, len(y))), rng.normal(0.8 * y, 1)[:, None]) for y in labels]
    return Panel.from_list(series), labels


def test_balanced_classes_of_rows_lift_the_rare_one() -> None:
    X, y = rare()
    change = {**SMALL, "max_epochs": 8, "lr": 0.02}
    truth = np.concatenate(y)

    def found(class_weight: Any) -> float:
        """The share of the rare rows that are called rare."""
        model = LFormerPointClassifier(**change, class_weight=class_weight).fit(X, y)
        return float(np.concatenate(model.predict(X))[truth == 1].mean())

    assert found(None) < 0.1
    assert found("balanced") > 0.3
    assert found({0: 1.0, 1: 40.0}) > 0.6


def test_a_series_of_weight_zero_teaches_nothing() -> None:
    X, y = rare(40)
    wrong = [1 - labels if i % 3 else labels for i, labels in enumerate(y)]
    weights = (np.arange(40) % 3 == 0).astype(float)
    change = {**SMALL, "max_epochs": 8, "lr": 0.02}
    told = [answers(LFormerPointClassifier(**SMALL).fit(X, t, sample_weight=weights), X) for t in (wrong, y)]
    assert same(*told)  # after the one epoch of SMALL; which of several epochs is best is asked of all series alike
    model = LFormerPointClassifier(**change).fit(X, wrong, sample_weight=weights)
    assert model.score(X, y) > 0.5 > LFormerPointClassifier(**change).fit(X, wrong).score(X, y)


def test_a_weight_for_a_class_that_is_not_there_is_named() -> None:
    X, y = rare(12)
    with pytest.raises(ValueError, match=r"classes, \[1\], are not in class_weight"):
        LFormerPointClassifier(**SMALL, class_weight={0: 1, 2: 5}).fit(X, y)
