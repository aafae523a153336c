"""Series on their own scale: when, how much each counts, what is kept, and that stores of any size are forecast."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from estimators.every_estimator import RECORDS, SMALL

from lformer import LFormerForecaster, LFormerInterpolator, Panel, scaling
from lformer.estimators import load
from lformer.estimators.naive import LosesToNaiveWarning
from lformer.estimators.own_units import SMALLEST, differences, in_own_units, wants_own_scale, widened
from lformer.parts import Targets
from lformer.scaling import Scale

WEEK = np.array([-0.2, -0.25, -0.1, 0.0, 0.2, 0.5, -0.4])
BEGIN = np.datetime64("2023-01-02")


def stores(n: int = 24, days: int = 70, seed: int = 0, gaps: float = 0.2) -> list[tuple[Any, Any]]:
    """Daily sales of stores of very different size, with a week, a level that wanders, and days that are lost."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(n):
        day = np.flatnonzero(rng.random(days) > gaps)
        level = np.cumsum(rng.normal(0, 0.04, days))
        log = rng.normal(5, 1.2) + level + WEEK[np.arange(days) % 7] * rng.uniform(0.7, 1.3) + rng.normal(0, 0.1, days)
        made.append((BEGIN + day, np.exp(log)[day]))
    return made


def panel_of(series: Any, **change: Any) -> Panel:
    return Panel.from_list(series, **{"channels": ["sales"], "unit": "D", **change})


def relative(told: Any, truth: Any) -> float:
    return float(np.mean([np.abs(p[:, 0] - v).mean() / v.mean() for p, (_, v) in zip(told, truth, strict=True)]))


def test_stores_of_any_size_are_forecast_better_than_by_the_mean_of_the_weekday() -> None:
    series = stores()
    cut = BEGIN + 56
    known, truth = ([(d[w], v[w]) for d, v in series for w in [(d < cut) == early]] for early in (True, False))
    X = panel_of(known)
    model = LFormerForecaster(**SMALL | {"max_epochs": 3}, horizon=14.0).fit(X)
    assert model.model_.config.series_scale
    assert model.model_.config.persistence == "recent"
    assert model.task_.monitor == "mse_own"
    told = model.predict(X, [d for d, _ in truth])
    rule = []
    for (d, v), (asked, _) in zip(known, truth, strict=True):
        past, ahead = (x.astype(int) % 7 for x in (d, asked))
        rule.append(np.array([[v[past == w].mean() if (past == w).any() else v.mean()] for w in ahead]))
    assert relative(told, truth) < 0.95 * relative(rule, truth)
    assert model.validation_score_ < model.naive_score_
    assert model.score(X) > model.baseline_score(X)
    larger = panel_of([(d, 40 * v) for d, v in known])  # no store of training was so large
    assert relative(model.predict(larger, [d for d, _ in truth]), [(d, 40 * v) for d, v in truth]) < 0.25


@pytest.mark.parametrize("kind", RECORDS)
def test_batches_order_gaps_and_padding_change_nothing(kind: Any) -> None:
    X = panel_of(stores(10, 40))
    model = kind(**SMALL).fit(X)
    assert model.model_.config.series_scale
    asked = BEGIN + np.array([41, 47, 44])
    told = model.predict(X, asked)
    alone = [model.predict(X[[i]], asked)[0] for i in range(10)]
    for one, two, three in zip(told, alone, model.predict(X[::-1], asked)[::-1], strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4)
        np.testing.assert_allclose(one, three, rtol=1e-4)
    for q in range(3):
        for one, two in zip(told, model.predict(X, asked[[q]]), strict=True):
            np.testing.assert_allclose(one[[q]], two, rtol=1e-4)


@pytest.mark.parametrize("kind", RECORDS)
def test_it_is_kept_in_a_saved_model(kind: Any, tmp_path: Path) -> None:
    X = panel_of(stores(10, 40))
    model = kind(**SMALL).fit(X)
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    asked = BEGIN + np.array([50, 41])
    for one, two in zip(again.predict(X, asked), model.predict(X, asked), strict=True):
        np.testing.assert_array_equal(one, two)
    assert again.score(X) == model.score(X)
    assert again.task_.monitor == "mse_own"
    again.set_params(warm_start=True).fit(X)
    assert again.model_.config.series_scale
    with torch.no_grad():
        again.model_.rows.own.typical.zero_()
    with pytest.raises(ValueError, match=r"rows\.own\.typical is not greater than 0"):
        again.save(tmp_path / "n")


def test_auto_asks_whether_series_differ_more_than_they_vary() -> None:
    numbers = [((d - BEGIN).astype(float), v) for d, v in stores(20, 30)]
    apart, alike = numbers, [(t, v / v.mean()) for t, v in numbers]
    for series, expected in ((apart, True), (alike, False)):
        X = panel_of(series)
        assert wants_own_scale(X, scaling.fit(X, np.arange(len(X)), "robust")) == expected
        for kind in RECORDS:
            assert kind(**SMALL).fit(X).model_.config.series_scale == expected
    forced = LFormerForecaster(**SMALL, series_scale=True).fit(panel_of(alike))
    assert forced.model_.config.series_scale
    assert not LFormerForecaster(**SMALL, series_scale=False).fit(panel_of(apart)).model_.config.series_scale
    streaming = LFormerForecaster(**SMALL, streaming=True).fit(panel_of(apart))
    assert not streaming.model_.config.series_scale
    assert streaming.model_.config.persistence == "latest"


def test_levels_alone_do_not_make_series_of_different_size() -> None:
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(300), 20)
    noise = rng.normal(size=len(owner))
    level, size = rng.normal(size=300), np.exp(rng.normal(size=300))
    share, factor = differences(3 * level[owner] + noise, owner)
    assert (share, factor) == (pytest.approx(0.9, abs=0.03), pytest.approx(0, abs=0.05))
    share, factor = differences(size[owner] * (5 + noise), owner)
    assert share > 0.8
    assert factor == pytest.approx(1, abs=0.1)
    share, factor = differences(noise, owner)
    assert (share, factor) == (pytest.approx(0, abs=0.02), pytest.approx(0, abs=0.05))
    assert differences(np.zeros(0), np.zeros(0, int)) == differences(np.ones(9), np.arange(9) // 3) == (0, 0)


def test_two_values_each_say_nothing_of_levels() -> None:
    rng = np.random.default_rng(0)
    X = Panel.from_list([([0.0, 1.0], rng.normal(size=(2, 2))) for _ in range(200)])
    assert not wants_own_scale(X, scaling.fit(X, np.arange(200), "robust"))
    single = Panel.from_list([([0.0], rng.normal(size=(1, 1))) for _ in range(9)])
    assert not wants_own_scale(single, scaling.fit(single, np.arange(9), "robust"))


@pytest.mark.parametrize("value", ["yes", None, 1, 0.5])
def test_other_choices_are_refused_by_fit(value: Any) -> None:
    with pytest.raises(ValueError, match='series_scale must be True, False or "auto"; got'):
        LFormerForecaster(**SMALL, series_scale=value).fit(panel_of(stores(4, 30)))


def test_a_streaming_model_cannot_have_it() -> None:
    for kind in RECORDS:
        with pytest.raises(
            ValueError, match=r"series_scale=True reads the whole series, which a streaming model cannot"
        ):
            kind(**SMALL, series_scale=True, streaming=True).fit(panel_of(stores(4, 30)))


def test_errors_count_in_spreads_and_a_steady_series_not_without_end() -> None:
    rng = np.random.default_rng(0)
    size = np.array([4.0, 10.0, 100.0, 0.0])
    X = Panel.from_list([(np.arange(80.0), 50 + s * rng.normal(size=(80, 1))) for s in size])
    scale = Scale(np.array([50.0]), np.array([10.0]), np.array([-np.inf]), np.array([np.inf]))
    asked = Targets(
        values=np.full((8, 1), 1e6), at="queries", times=np.full(8, 90.0), first=np.arange(4) * 2, lengths=np.full(4, 2)
    )
    found = in_own_units(asked, X, scale)
    assert found.weights is not None
    weights = found.weights[:, 0]
    spread = np.array([v.std() for _, v in X]) / 10
    np.testing.assert_allclose(weights[:3], spread[:3] ** -2, rtol=0.3)  # drawn a little to the typical one
    assert weights[3] == pytest.approx((SMALLEST * np.median(spread[:3])) ** -2, rel=1e-3)
    assert (np.diff(found.values.reshape(4, 2), axis=1) == 0).all()
    assert 50 + 5 * 100 < found.values[4, 0] < 50 + 15 * 100  # a wild one counts as at its bound


def test_bounds_leave_room_for_larger_series() -> None:
    wide = widened(Scale(np.zeros(2), np.ones(2), np.array([-1.0, -np.inf]), np.array([3.0, np.inf])))
    assert (wide.low.tolist(), wide.high.tolist()) == ([-41.0, -np.inf], [43.0, np.inf])


def test_values_between_rows_follow_the_week() -> None:
    """The line between neighbours is that of what is left when the week is taken out."""
    series = stores(20, 60, gaps=0.3)
    rng = np.random.default_rng(1)
    hidden = [rng.random(len(d)) < 0.2 for d, _ in series]
    X = panel_of([(d[~h], v[~h]) for (d, v), h in zip(series, hidden, strict=True)])
    truth = [(d[h], v[h]) for (d, v), h in zip(series, hidden, strict=True)]
    scores = {}
    for calendar in ("auto", False):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LosesToNaiveWarning)
            model = LFormerInterpolator(**SMALL | {"max_epochs": 3}, calendar=calendar).fit(X)
        scores[calendar] = relative(model.predict(X, [d for d, _ in truth]), truth)
    assert scores["auto"] < 0.8 * scores[False]
