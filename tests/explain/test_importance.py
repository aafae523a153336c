"""What is lost without a channel or without the stamps: much where they matter, nothing where they do not."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from estimators.every_estimator import RECORDS, SIX, fitted, records, targets

from lformer import LFormerClassifier, LFormerForecaster, LFormerPointRegressor, LFormerRegressor, Panel
from lformer.explain import channel_importance, time_importance


def by_level(n: int = 80) -> tuple[Panel, Any]:
    """The class is the level of one channel; the other is noise. Uneven, ragged, with missing values."""
    rng = np.random.default_rng(1)
    label = rng.integers(0, 2, n)
    series = []
    for y in label:
        values = np.column_stack([rng.normal(5.0 * y, 1.0, 8), rng.normal(size=8)])[: rng.integers(4, 9)]
        values[rng.random(values.shape) < 0.3] = np.nan
        values[0, 0] = 5.0 * y
        series.append((np.cumsum(rng.exponential(1.0, len(values))), values))
    return Panel.from_list(series, channels=["level", "noise"]), label


def by_gap(n: int = 160) -> tuple[Panel, Any]:
    """The number is when the only high value came, between the first and the last row; values say nothing of it."""
    rng = np.random.default_rng(1)
    when = rng.uniform(0.5, 9.5, n)
    series = [(np.array([0.0, t, 10.0]), np.array([[0.0], [1.0], [0.0]])) for t in when]
    return Panel.from_list(series), when


def test_the_channel_that_matters_is_found() -> None:
    X, y = by_level()
    model = LFormerClassifier(width=8, heads=2, depth=1, max_epochs=20, random_state=0).fit(X[:50], y[:50])
    table = channel_importance(model, X[50:], y[50:], repeats=3)
    assert table["channel"].tolist() == ["level", "noise"]
    assert table["loss"][0] > 0.3
    assert abs(table["loss"][1]) < 0.1
    assert table.attrs["score"] == model.score(X[50:], y[50:])
    pd.testing.assert_frame_equal(table, channel_importance(model, X[50:], y[50:], repeats=3))
    other = channel_importance(model, X[50:], y[50:], repeats=3, random_state=1)
    assert other["loss"][0] != table["loss"][0]


def test_stamps_matter_where_the_answer_is_in_them() -> None:
    X, y = by_gap()
    model = LFormerRegressor(width=16, heads=2, depth=1, max_epochs=40, lr=0.01, dropout=0.0, random_state=0)
    model.fit(X[:120], y[:120])
    table = time_importance(model, X[120:], y[120:], repeats=3)
    assert table["stamps"].tolist() == ["evenly spaced", "intervals permuted"]
    assert table.attrs["score"] > 0.8
    assert (table["loss"] > 0.5).all()
    assert table["deviation"][0] == 0.0
    assert table["deviation"][1] > 0.0


@pytest.mark.parametrize("kind", SIX)
def test_every_estimator_can_be_asked(kind: Any) -> None:
    X = records()
    y = targets(kind, X)
    model = fitted(kind, X)
    whole = model.score(X) if kind in RECORDS else model.score(X, y)
    for table in (channel_importance(model, X, y, repeats=2), time_importance(model, X, y, repeats=2)):
        assert table.attrs["score"] == pytest.approx(whole, rel=1e-6)
        assert np.isfinite(table[["loss", "deviation"]].to_numpy()).all()
        assert len(table) == 2


def test_a_forecast_without_its_channel_loses_and_hidden_values_stay_the_true_ones() -> None:
    rng = np.random.default_rng(2)
    series = []
    for level in rng.normal(0, 5, 40):
        values = np.column_stack([rng.normal(level, 0.1, 9), rng.normal(size=9)])[: rng.integers(5, 10)]
        values[rng.random(values.shape) < 0.2] = np.nan
        values[[0, -1], 0] = level
        series.append((np.cumsum(rng.exponential(1.0, len(values))), values))
    X = Panel.from_list(series, channels=["level", "noise"])
    model = LFormerForecaster(  # which begins with the latest value, and hardly leaves it
        width=8, heads=2, depth=1, max_epochs=1, lr=1e-4, random_state=0, series_scale=False
    ).fit(X)
    table = channel_importance(model, X, repeats=2)
    assert table["channel"].tolist() == ["level", "noise"]
    assert table["loss"][0] > 0.5  # half of the variance between series, in deviations
    assert time_importance(model, X, repeats=2)["loss"].abs().max() > 0


def test_another_score_can_be_asked_for() -> None:
    X, y = by_level()
    model = LFormerClassifier(width=8, heads=2, depth=1, max_epochs=3, random_state=0).fit(X, y)
    for scoring in ("neg_log_loss", lambda e, X, y: -float(np.square(e.predict_proba(X)[:, 1] - y).mean())):
        table = channel_importance(model, X, y, scoring=scoring, repeats=1)
        assert table.attrs["score"] < 0
        assert table["deviation"].isna().all()  # of one number there is none
    by_id = pd.Series(y[::-1], index=X.ids[::-1])
    assert time_importance(model, X, by_id, repeats=1).attrs["score"] == model.score(X, y)


def test_what_makes_no_sense_is_refused() -> None:
    X = records()
    with pytest.raises(ValueError, match="leave out scoring"):
        channel_importance(fitted(LFormerForecaster), X, scoring="r2")
    with pytest.raises(ValueError, match="at least 2"):
        channel_importance(fitted(LFormerPointRegressor), X[[0]], targets(LFormerPointRegressor, X)[:1])
    with pytest.raises(ValueError, match="repeats must be"):
        time_importance(fitted(LFormerForecaster), X, repeats=0)
