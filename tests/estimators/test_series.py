"""LFormerClassifier and LFormerRegressor: scikit-learn's manners, real time stamps, bad input answered clearly."""

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from lformer import LFormerClassifier, LFormerRegressor, Panel

SMALL: dict[str, Any] = {"width": 16, "heads": 1, "depth": 1, "lr": 0.02, "random_state": 0, "device": "cpu"}


def bursts(n: int = 80, seed: int = 0) -> tuple[Panel, pd.Series]:
    """Two asynchronous channels with the same values in both classes; only the pace of the observations differs."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        clock = np.cumsum(rng.exponential(1.0 if i % 2 else 5.0, rng.integers(4, 12)))
        rows += [
            {"who": f"p{i:03d}", "t": t, "lab": rng.choice(["na", "k"]), "x": rng.standard_normal()} for t in clock
        ]
    table = pd.DataFrame(rows).sample(frac=1, random_state=seed)
    labels = pd.Series({f"p{i:03d}": "fast" if i % 2 else "slow" for i in range(n)}).sample(frac=1, random_state=seed)
    return Panel.from_long(table, id="who", time="t", channel="lab", value="x"), labels


def test_time_is_the_input_and_targets_go_by_id() -> None:
    X, y = bursts()
    assert list(y.index) != X.ids.tolist()
    model = LFormerClassifier(**SMALL, max_epochs=15).fit(X, y)
    unseen, truth = bursts(seed=1)
    assert model.score(unseen, unseen.align(truth)) > 0.8
    assert model.classes_.tolist() == ["fast", "slow"]
    proba = model.predict_proba(unseen)
    assert proba.shape == (80, 2)
    assert np.allclose(proba.sum(axis=1), 1)
    assert len(model.history_) == model.n_iter_


def test_shifted_and_rescaled_times_and_other_batches_change_nothing() -> None:
    X, y = bursts(40)
    model = LFormerClassifier(**SMALL, max_epochs=2).fit(X, y)
    table = X.to_long()
    moved = Panel.from_long(
        table.assign(time=table["time"] + 1e6), id="id", time="time", channel="channel", value="value"
    )
    expected = model.predict_proba(X)
    assert np.allclose(model.predict_proba(moved), expected, atol=1e-5)
    assert np.allclose(model.predict_proba(X[::-1])[::-1], expected, atol=1e-5)
    assert np.allclose(model.set_params(batch_size=3).predict_proba(X), expected, atol=1e-5)


def test_the_same_random_state_repeats_and_clone_keeps_parameters() -> None:
    X, y = bursts(40)
    first = LFormerClassifier(**SMALL, max_epochs=2).fit(X, y)
    again = clone(first).fit(X, y)
    assert np.array_equal(first.predict_proba(X), again.predict_proba(X))
    restored = pickle.loads(pickle.dumps(first))
    assert np.array_equal(first.predict_proba(X), restored.predict_proba(X))


def test_cross_validation_grid_search_and_pipelines() -> None:
    X, y = bursts(40)
    labels = X.align(y)
    model = LFormerClassifier(**SMALL, max_epochs=2)
    assert cross_val_score(model, X, labels, cv=2).shape == (2,)
    search = GridSearchCV(make_pipeline(FunctionTransformer(), model), {"lformerclassifier__width": [8, 16]}, cv=2)
    assert search.fit(X, labels).best_params_["lformerclassifier__width"] in (8, 16)
    train, test, y_train, y_test = train_test_split(X, labels, random_state=0)
    assert 0 <= model.fit(train, y_train).score(test, y_test) <= 1


def test_several_outputs_static_covariates_and_weights() -> None:
    rng = np.random.default_rng(0)
    age = rng.normal(60, 10, 60)
    series = [(np.sort(rng.exponential(1, 6)), rng.standard_normal((6, 1))) for _ in range(60)]
    static = pd.DataFrame({"age": age, "site": np.where(age > 60, "north", "south")}, index=range(60))
    static.loc[3, "age"] = np.nan
    X = Panel.from_list(series, static=static)
    y = np.column_stack([age, -age])
    model = LFormerRegressor(**SMALL, max_epochs=40, patience=None).fit(X, y)
    assert model.predict(X).shape == (60, 2)
    assert model.score(X, y) > 0.8  # nothing but the covariates tells the age
    with pytest.raises(ValueError, match=r"trained with the static covariates age, site"):
        model.predict(Panel.from_list(series))
    weights = np.where(age > 60, 1.0, 0.0)
    one_sided = LFormerRegressor(**SMALL, max_epochs=40, patience=None).fit(X, age, sample_weight=weights)
    error = np.abs(one_sided.predict(X) - age)
    assert error[age > 60].mean() < error[age <= 60].mean()


def test_balanced_classes_lift_the_rare_one() -> None:
    rng = np.random.default_rng(0)
    y = (np.arange(240) % 12 == 0).astype(int)
    X = Panel.from_list([(np.sort(rng.exponential(1, 5)), rng.normal(0.5 * label, 1, (5, 1))) for label in y])
    plain, balanced = (
        LFormerClassifier(**SMALL, max_epochs=8, patience=None, class_weight=w).fit(X, y).predict_proba(X)[:, 1].mean()
        for w in (None, "balanced")
    )
    assert plain < 0.2
    assert balanced > 1.5 * plain


def test_warm_start_goes_on() -> None:
    X, y = bursts(40)
    model = LFormerClassifier(**SMALL, max_epochs=1, warm_start=True).fit(X, y)
    before = model.model_.head[0].weight.clone()
    gone_on = model.set_params(lr=1e-5).fit(X, y).model_.head[0].weight
    assert torch.allclose(gone_on, before, atol=1e-3)
    assert not torch.equal(gone_on, before)
    assert not torch.allclose(model.set_params(warm_start=False).fit(X, y).model_.head[0].weight, before, atol=1e-2)


def test_streaming_builds_a_causal_model() -> None:
    X, y = bursts(40)
    config = LFormerClassifier(**SMALL, max_epochs=1, streaming=True).fit(X, y).model_.config
    assert (config.causal, config.gate_norm) == (True, "prefix")


def test_lists_arrays_and_tables_are_taken() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(24) % 2
    array = rng.normal(y[:, None, None], 1, (24, 7, 2))
    array[rng.random(array.shape) < 0.3] = np.nan
    pairs = [(np.sort(rng.exponential(1, 4)), rng.normal(label, 1, (4, 2))) for label in y]
    for X in (array, array[:, :, 0], pairs, Panel.from_list(pairs)):
        model = LFormerClassifier(**SMALL, max_epochs=1).fit(X, y)
        assert model.predict(X).shape == (24,)


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (lambda X, y: (X, np.zeros(len(y))), "there must be at least two classes; all 24 series are of one class"),
        (lambda X, y: (X[:0], y[:0]), "the panel is empty"),
        (lambda X, y: (X, y[:-1]), "24 series and 23 targets"),
        (lambda X, y: (X, None), "requires y"),
        (
            lambda X, y: (X, dict.fromkeys(range(20), 0)),
            r"no entry for 4 of 24 ids, among them \[20, 21,",
        ),
        (lambda X, y: (np.array([["a", "b"], ["c", "d"]]), y[:2]), "could not convert string to float|numeric"),
        (lambda X, y: ([([0.0, 1.0], [[1.0], ["x"]])] * 2, y[:2]), "must be numbers"),
        (lambda X, y: ([([1.0, 0.0], [[1.0], [2.0]])] * 2, y[:2]), "times must not decrease"),
        (lambda X, y: ([([0.0, 0.0], [[1.0], [2.0]])] * 2, y[:2]), "on_duplicate"),
        (lambda X, y: ([([0.0, np.nan], [[1.0], [2.0]])] * 2, y[:2]), "needs a time|must be finite"),
        (lambda X, y: (X[:1], y[:1]), "at least two classes|at least 2 series"),
    ],
)
def test_bad_input_gets_a_clear_answer(break_it: Any, says: str) -> None:
    rng = np.random.default_rng(0)
    X = Panel.from_list([(np.sort(rng.exponential(1, 4)), rng.standard_normal((4, 1))) for _ in range(24)])
    X, y = break_it(X, np.arange(24) % 2)
    with pytest.raises(ValueError, match=says):
        LFormerClassifier(**SMALL, max_epochs=1).fit(X, y)


def test_series_without_any_value_and_with_one_row_are_answered() -> None:
    rng = np.random.default_rng(0)
    series = [(np.sort(rng.exponential(1, 3)), rng.standard_normal((3, 2))) for _ in range(20)]
    series[3] = (series[3][0], np.full((3, 2), np.nan))
    series[4] = ([0.5], [[1.0, np.nan]])
    X = Panel.from_list(series)
    proba = LFormerClassifier(**SMALL, max_epochs=1).fit(X, np.arange(20) % 2).predict_proba(X)
    assert np.isfinite(proba).all()


def test_a_new_channel_at_predict_is_named() -> None:
    X, y = bursts(20)
    model = LFormerClassifier(**SMALL, max_epochs=1).fit(X, y)
    table = X.to_long().replace({"channel": {"k": "ph"}})
    other = Panel.from_long(table, id="id", time="time", channel="channel", value="value")
    with pytest.raises(ValueError, match=r"New: \['ph'\]; missing: \['k'\]"):
        model.predict(other)


@pytest.mark.parametrize("change", [{"width": 0}, {"lr": -1.0}, {"validation_fraction": 1.0}, {"device": "tpu"}])
def test_bad_parameters_are_refused_by_fit(change: dict[str, Any]) -> None:
    X, y = bursts(10)
    with pytest.raises(ValueError, match=next(iter(change))):
        LFormerClassifier(**{**SMALL, **change}).fit(X, y)
