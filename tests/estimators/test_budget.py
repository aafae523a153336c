"""Budgets are counted in steps: few series are trained as long as many, and a user's own number is taken literally."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from lformer import LFormer, LFormerClassifier, LFormerPointClassifier, LFormerPointRegressor, tasks
from lformer.estimators import budget as module
from lformer.estimators.base import members_of
from lformer.estimators.budget import LEAST, MEMBERS, MOST, PASSES, budget, warn_if_unfinished


@pytest.fixture(autouse=True)
def brief_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here as users have it."""
    monkeypatch.setattr(module, "LEAST", LEAST)
    monkeypatch.setattr(module, "MEMBERS", MEMBERS)


@pytest.mark.parametrize("series", [2, 3, 42, 200, 1000, 5440, 10**5])
def test_steps_lie_between_the_bounds(series: int) -> None:
    told = budget(series, 32, None)
    per_pass = -(-series // told.batch_size)
    passes = -(-told.epoch_steps // per_pass)
    steps = told.epochs * passes * per_pass
    assert steps >= LEAST
    assert steps <= max(MOST, PASSES * per_pass) + told.epochs * per_pass
    assert 1 <= told.batch_size <= 32


def test_a_number_of_epochs_is_taken_literally() -> None:
    assert budget(42, 32, 7) == (7, 1, 14)
    assert budget(42, 8, 7) == (7, 1, 8)


def history(values: list[float]) -> list[dict[str, float]]:
    return [{"epoch": n, "loss": 1.0, "cross_entropy": value} for n, value in enumerate(values)]


def test_a_run_that_still_gains_says_so() -> None:
    task = replace(tasks.classify(2, "series"), monitor="cross_entropy")
    falling = history([1 - n / 40 for n in range(20)])
    with pytest.warns(ConvergenceWarning, match=r"Model had not converged: cross_entropy .* max_epochs=40, or more"):
        assert warn_if_unfinished("Model", task, falling, 20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        level = history([1 / (1 + min(n, 9)) for n in range(20)])
        assert not warn_if_unfinished("Model", task, level, 20)
        assert not warn_if_unfinished("Model", task, falling[:15], 20)  # stopped by patience


def test_fit_trains_few_series_for_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST", 80)
    rng = np.random.default_rng(0)
    y = np.arange(24) % 2
    X = [(np.sort(rng.random(5)), rng.normal(3 * label, 1, (5, 1))) for label in y]
    small: dict[str, Any] = {"width": 8, "heads": 1, "depth": 1, "random_state": 0, "device": "cpu"}
    model = LFormerClassifier(patience=None, **small).fit(X, y)
    assert model.n_iter_ == 40
    assert hasattr(model, "unfinished_")
    assert {row["member"] for row in model.history_} == set(range(3))
    assert len(members_of(model.model_)) == 3
    for alone in ({"members": 1}, {"max_epochs": 2}, {"streaming": True}):
        assert isinstance(LFormerClassifier(**small, **alone).fit(X, y).model_, LFormer)
    with pytest.raises(ValueError, match='members must be "auto" or a whole number greater than 0; got 0'):
        LFormerClassifier(members=0).fit(X, y)


def test_rows_are_told_by_several_models_up_to_many_series() -> None:
    classifier = LFormerPointClassifier()
    assert [classifier._members(series) for series in (50, 1999, 2000)] == [3, 3, 1]
    assert [LFormerPointRegressor()._members(series) for series in (50, 2000)] == [1, 1]
    assert [LFormerClassifier()._members(series) for series in (99, 100)] == [3, 1]
    for alone in ({"members": 1}, {"max_epochs": 2}, {"streaming": True}):
        assert LFormerPointClassifier(**alone)._members(50) == 1


def test_what_is_drawn_anew_is_trained_on_for_longer_but_many_series_are_not() -> None:
    for series in (42, 700, 5440):
        once, thrice = budget(series, 32, None), budget(series, 32, None, times=3)
        assert thrice.epochs == pytest.approx(3 * once.epochs, rel=0.05)
    assert budget(10**6, 32, None, times=3).epochs == 3
    assert budget(700, 32, 5, times=3).epochs == 5
