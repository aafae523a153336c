"""Contributions of observations: they add up, are exact when left out, and nothing else has any."""

import warnings
from typing import Any

import numpy as np
import pytest
from estimators.every_estimator import POINTS, RECORDS, SERIES, SIX, fitted, records

from lformer import LFormerClassifier, LFormerForecaster, LFormerInterpolator, LFormerPointRegressor, LFormerRegressor
from lformer.explain import explain
from lformer.panel import Panel

pytestmark = pytest.mark.filterwarnings("ignore:.* further ahead than any in training")  # `asked` is the same for all


def asked(kind: Any) -> dict[str, Any]:
    """What else must be said of one number."""
    if kind in RECORDS:
        return {"at": 40.0, "output": "na"}
    return {"output": 1} if kind is LFormerRegressor else {}


@pytest.mark.parametrize("kind", SIX)
@pytest.mark.parametrize("streaming", [False, True])
def test_contributions_add_up_to_answer_minus_baseline(kind: Any, streaming: bool) -> None:
    model = fitted(kind, streaming=streaming, max_epochs=4, lr=0.02)
    found = explain(model, records(seed=5), 3, **asked(kind), method="integrated-gradients")
    total = found.answer - found.baseline
    assert found.gap == pytest.approx(total - found.table["contribution"].sum(), abs=1e-9)
    assert abs(found.gap) <= 0.05 * max(abs(total), 0.1 * (model.task_.scale or [1.0])[0])
    assert found.table["contribution"].abs().max() > 0


@pytest.mark.parametrize("kind", SIX)
@pytest.mark.parametrize("method", ["integrated-gradients", "leave-one-out"])
def test_the_answer_is_that_of_predict_and_only_observations_have_a_contribution(kind: Any, method: Any) -> None:
    X = records(seed=5)
    model = fitted(kind, X)
    found = explain(model, X, 3, **asked(kind), method=method)
    if kind in RECORDS:
        assert found.answer == pytest.approx(model.predict(X[[3]], [40.0])[0][0, 1], rel=1e-4)
    elif hasattr(model, "classes_"):
        proba = model.predict_proba(X)[3]
        best = float((proba[-1] if kind in POINTS else proba).max())
        assert found.answer == pytest.approx(np.log(best / (1 - best)), rel=1e-3, abs=1e-4)
    else:
        told = np.ravel(model.predict(X)[3])
        assert found.answer == pytest.approx(told[-1], rel=1e-4)
    stamps, values = X[3]
    row, channel = np.nonzero(~np.isnan(values))
    assert found.table["time"].to_numpy().tolist() == stamps[row].tolist()
    assert found.table["channel"].tolist() == [X.channels[c] for c in channel]
    np.testing.assert_array_equal(found.table["value"], values[row, channel])
    assert set(found.table["id"]) == {"p03"} == {found.id}


@pytest.mark.parametrize(
    ("kind", "change"), [*((kind, {}) for kind in SERIES + RECORDS), (LFormerForecaster, {"series_scale": True})]
)
def test_leaving_out_is_predicting_without_the_observation(kind: Any, change: dict[str, Any]) -> None:
    X = records(seed=6)
    model = fitted(kind, X, **change)
    found = explain(model, X, 2, **asked(kind), method="leave-one-out")
    table = X.to_long()
    mine = table[table["id"] == "p02"].index
    for n in (0, len(mine) // 2, len(mine) - 1):
        fewer = Panel.from_long(
            table.drop(index=mine[n]), id="id", time="time", channel="channel", value="value", static=X.static
        )
        told = explain(model, fewer, 2, **asked(kind), method="leave-one-out", **again(model, found)).answer
        assert found.table["contribution"][n] == pytest.approx(found.answer - told, rel=1e-3, abs=1e-5)
    assert found.baseline is None
    assert found.gap is None


def again(model: Any, found: Any) -> dict[str, Any]:
    """The class that was explained, even if another one is predicted now."""
    if not hasattr(model, "classes_"):
        return {}
    return {"output": next(name for name in model.classes_ if repr(name) in found.what or f"'{name}'" in found.what)}


def test_rows_stay_where_each_has_an_answer() -> None:
    X = records(seed=6)
    model = fitted(LFormerPointRegressor, X)
    last = explain(model, X, 2, method="leave-one-out")
    first = explain(model, X, 2, at=0, method="leave-one-out")
    assert last.what == f"prediction at row {X.lengths[2] - 1}"
    assert first.answer != last.answer
    stamps, values = X[2]
    values = values.copy()
    values[0, 0] = np.nan
    told = float(
        model.predict(Panel.from_list([(stamps, values)], channels=X.channels, ids=["p02"], static=X.static))[0][0]
    )
    assert first.table["contribution"][0] == pytest.approx(first.answer - told, rel=1e-3, abs=1e-5)


def test_padding_and_other_series_change_nothing() -> None:
    X = records(seed=5)
    model = fitted(LFormerClassifier, X)
    together, alone = explain(model, X, 4), explain(model, X[[4]], 0)
    np.testing.assert_allclose(together.table["contribution"], alone.table["contribution"], rtol=1e-6, atol=1e-9)
    assert together.answer == pytest.approx(alone.answer)


def test_a_channel_the_model_reads_the_sign_of_explains_the_class() -> None:
    rng = np.random.default_rng(0)
    level = np.arange(60) % 2
    series = []
    for y in level:
        length = int(rng.integers(4, 9))
        values = np.column_stack([rng.normal(4.0 * y, 1.0, length), rng.normal(size=length)])
        values[rng.random(values.shape) < 0.2] = np.nan
        values[0, 0] = 4.0 * y
        series.append((np.sort(rng.random(length)), values))
    X = Panel.from_list(series, channels=["level", "noise"])
    model = LFormerClassifier(width=8, heads=2, depth=1, max_epochs=20, random_state=0).fit(X, level)
    for i in (0, 1):
        found = explain(model, X, i)
        assert found.by_channel().index[0] == "level"
        assert found.by_channel()["level"] > 0  # both the high and the low level speak for their class
    against = explain(model, X, 1, output=0)
    assert against.by_channel()["level"] < 0
    assert against.what == "log-odds of 0"


def test_an_ensemble_is_explained_as_one() -> None:
    X = records(seed=5)
    model = fitted(LFormerRegressor, X, members=2, max_epochs=3)
    found = explain(model, X, 1, output=0)
    assert found.answer == pytest.approx(model.predict(X)[1, 0], rel=1e-5)
    assert abs(found.gap) < 0.02 * max(abs(found.answer - found.baseline), 0.1 * model.task_.scale[0])


def test_series_on_their_own_scale_are_explained_by_leaving_out() -> None:
    X = records(seed=5)
    model = fitted(LFormerForecaster, X, series_scale=True)
    assert explain(model, X, 0, at=40.0, output="k").method == "leave-one-out"
    with pytest.raises(ValueError, match=r"on its own scale.*leave-one-out"):
        explain(model, X, 0, at=40.0, output="k", method="integrated-gradients")


def test_summaries_of_a_channel_that_was_observed_once_have_a_gradient() -> None:
    X = records(seed=6)
    model = fitted(LFormerClassifier, X, summaries=True, trees=False, max_epochs=4, lr=0.02)
    times, values = X[2]
    once = np.where(np.arange(len(times))[:, None] == np.argmax(~np.isnan(values), axis=0), values, np.nan)
    one = Panel.from_list([(times, once)], ids=X.ids[2:3].tolist(), channels=X.channels, static=X.static)
    assert (np.sum(~np.isnan(once), axis=0) <= 1).all()
    found = explain(model, one, 0)
    assert found.method == "integrated-gradients"
    assert np.isfinite(found.table["contribution"]).all()
    assert found.table["contribution"].sum() == pytest.approx(found.answer - found.baseline, abs=0.02)


def test_models_with_trees_have_no_gradients_to_integrate() -> None:
    X = records(seed=6)
    model = fitted(LFormerClassifier, X, summaries=True, trees=True)
    model.model_.trees.weight.fill_(0.5)
    found = explain(model, X, 0)
    assert found.method == "leave-one-out"
    assert found.table["contribution"].abs().max() > 0
    with pytest.raises(ValueError, match=r"has trees.*leave-one-out"):
        explain(model, X, 0, method="integrated-gradients")
    model.model_.trees.weight.fill_(0.0)
    assert explain(model, X, 0).method == "integrated-gradients"


def test_dates_stay_dates() -> None:
    X = records(dated=True)
    found = explain(fitted(LFormerInterpolator, X), X, 0, at=np.datetime64("2024-03-01T12:00"), output="k")
    assert found.table["time"].dtype.kind == "M"
    assert found.what == "k at 2024-03-01T12:00"


@pytest.mark.parametrize(
    ("kind", "wrong", "message"),
    [
        (LFormerClassifier, {"i": 99}, "position of one of the 12 series"),
        (LFormerClassifier, {"at": 3}, "leave out at"),
        (LFormerClassifier, {"output": "dead"}, "one of the classes"),
        (LFormerClassifier, {"method": "magic"}, "method must be one of"),
        (LFormerRegressor, {}, "position of one of the 2 predicted numbers"),
        (LFormerPointRegressor, {"at": 99}, "position of one of the"),
        (LFormerForecaster, {"output": "k"}, "at is missing"),
        (LFormerForecaster, {"at": 40.0}, "channel whose value"),
        (LFormerForecaster, {"at": -40.0, "output": "k"}, "after the last row"),
    ],
)
def test_what_cannot_be_explained_is_refused_in_words(kind: Any, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, IndexError), match=message):
        explain(fitted(kind), records(), **wrong)


def test_a_gap_that_matters_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from lformer.explain import contributions

    X = records(seed=5)
    model = fitted(LFormerClassifier, X, max_epochs=4, lr=0.02)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        explain(model, X, 3)
    monkeypatch.setattr(contributions, "FEWEST", 1)  # a single point on the way, its gradient taken for another
    monkeypatch.setattr(contributions, "MOST", 1)
    monkeypatch.setattr(np.polynomial.legendre, "leggauss", lambda n: (np.zeros(n), np.ones(n)))
    with pytest.warns(UserWarning, match=r"leave .* unexplained"):
        explain(model, X, 3)


def test_the_plot_has_an_axis_for_each_channel() -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    for dated in (False, True):
        X = records(dated=dated)
        found = explain(fitted(LFormerClassifier, X), X, 0)
        figure = found.plot()
        assert {axis.get_ylabel() for axis in figure.axes} == {"k", "na"}
        drawn = sum(len(points.get_offsets()) for axis in figure.axes for points in axis.collections)
        assert drawn == len(found.table)
        assert len(found.plot(channels=1).axes) == 1
        plt.close("all")
