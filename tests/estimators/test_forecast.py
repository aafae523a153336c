"""LFormerInterpolator and LFormerForecaster: values at times that were not observed, in the units and stamps of X."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from lformer import Panel, scaling
from lformer.estimators import ExtrapolationWarning, LFormerForecaster, LFormerInterpolator, load
from lformer.estimators.naive import LosesToNaiveWarning
from lformer.estimators.records import record_task
from lformer.parts import Targets

SMALL: dict[str, Any] = {
    "width": 16, "heads": 1, "depth": 1, "lr": 0.02, "random_state": 0, "device": "cpu", "series_scale": False,
}  # fmt: skip
BOTH = [LFormerInterpolator, LFormerForecaster]
Pairs = list[tuple[Any, Any]]


def wave(times: Any, phase: float) -> Any:
    """(L, 2) a sine about 50 and its mirror image about 0, of another unit."""
    angle = 0.8 * times + phase
    return np.column_stack([50 + 20 * np.sin(angle), -0.1 * np.sin(angle)])


def waves(n: int = 80, seed: int = 0) -> tuple[Pairs, Any]:
    """Sines of random phase at random times, a fifth of the values missing; and the phases."""
    rng = np.random.default_rng(seed)
    phases = rng.uniform(0, 2 * np.pi, n)
    series = []
    for phase in phases:
        times = np.sort(rng.uniform(0, 10, rng.integers(10, 20)))
        values = wave(times, phase)
        values[rng.random(values.shape) < 0.2] = np.nan
        series.append((times, values))
    return series, phases


def trends(n: int = 80, seed: int = 0) -> Pairs:
    """Straight lines up or down from a random level, at random times."""
    rng = np.random.default_rng(seed)
    series = []
    for slope in rng.choice([-2.0, 2.0], n):
        times = np.cumsum(rng.uniform(0.4, 1.6, rng.integers(8, 16)))
        series.append((100 + times, (rng.normal(10, 3) + slope * times)[:, None]))
    return series


def small(kind: Any = LFormerInterpolator, **change: Any) -> tuple[Any, Pairs]:
    """A model that has seen little, and its series."""
    X, _ = waves(10)
    return kind(**{**SMALL, "max_epochs": 1, "n_copies": 2, **change}).fit(X), X


def same(one: list[Any], two: list[Any], tolerance: float = 1e-4) -> bool:
    return all(a.shape == b.shape and np.allclose(a, b, atol=tolerance) for a, b in zip(one, two, strict=True))


def test_sines_are_interpolated() -> None:
    X, _ = waves()
    model = LFormerInterpolator(**SMALL, max_epochs=15).fit(X)
    unseen, phases = waves(40, seed=1)
    asked = np.random.default_rng(2).uniform(1, 9, 15)  # in no order
    told = model.predict(unseen, asked)
    truth = [wave(asked, phase) for phase in phases]
    error = np.mean(np.square(np.subtract(told, truth)), axis=(0, 1))
    spread = np.var(np.concatenate(truth), axis=0)
    assert (error < 0.4 * spread).all()
    assert model.score(unseen) > -0.4
    assert model.score(unseen) > model.baseline_score(unseen)
    seen = [(t[:2], v[:2]) for t, v in unseen]  # one row of two is hidden, and counts alone
    scale = np.asarray(model.task_.scale)
    (_, known), *_ = [(t, v) for t, v in seen if not np.isnan(v).any()]
    jump = float(np.mean(((known[1] - known[0]) / scale) ** 2))
    assert -model.baseline_score([(t, v) for t, v in seen if v is known]) <= jump + 1e-6


@pytest.mark.filterwarnings("ignore:1 of 40 series have queries further ahead than any in training")
def test_trends_are_forecast() -> None:
    model = LFormerForecaster(**SMALL, horizon=3.0, max_epochs=15, extrapolate="warn").fit(trends())
    unseen = trends(40, seed=1)
    known = [(t[t <= t[-1] - 3], v[t <= t[-1] - 3]) for t, v in unseen]
    asked = [t[t > t[-1] - 3] for t, _ in unseen]
    told = model.predict(known, asked)
    assert [len(p) for p in told] == [len(a) for a in asked]
    truth = np.concatenate([v[t > t[-1] - 3] for t, v in unseen])
    last = np.concatenate([np.full((len(a), 1), v[-1, 0]) for a, (_, v) in zip(asked, known, strict=True)])
    error = np.mean((np.concatenate(told) - truth) ** 2)
    assert error < 0.6 * np.mean((last - truth) ** 2)
    # The score hides just these rows, and counts in deviations of the channel.
    scale = model.task_.scale[0]
    assert model.score(unseen) == pytest.approx(-error / scale**2, rel=1e-3)
    before = np.concatenate([np.full((len(a), 1), v.mean()) for a, (_, v) in zip(asked, known, strict=True)])
    scores = model.compare(unseen)
    assert scores["last-value"] == pytest.approx(-np.mean((last - truth) ** 2) / scale**2, rel=1e-4)
    assert scores["series-mean"] == pytest.approx(-np.mean((before - truth) ** 2) / scale**2, rel=1e-4)
    assert scores["LFormerForecaster"] == model.score(unseen)
    others = {name: score for name, score in scores.items() if name != "LFormerForecaster"}
    assert others.keys() == {"last-value", "series-mean", "linear"}
    assert model.baseline_score(unseen) == max(others.values())


@pytest.mark.parametrize("kind", BOTH)
def test_queries_do_not_see_each_other_and_keep_their_order(kind: Any) -> None:
    model, X = small(kind)
    asked = [np.array([1.2, 0.5, 3.3, 0.5]) + t[-1] + 0.01 * i for i, (t, _) in enumerate(X)]
    told = model.predict(X, asked)
    assert [p.shape for p in told] == [(4, 2)] * len(X)
    alone = [
        np.concatenate(p)
        for p in zip(*(model.predict(X, [a[q : q + 1] for a in asked]) for q in range(4)), strict=True)
    ]
    assert same(told, alone)
    assert same([p[::-1] for p in told], model.predict(X, [a[::-1] for a in asked]))
    assert not np.allclose(told[0][0], told[0][2])
    ragged = [a[: i % 5] for i, a in enumerate(asked)]  # one asks nothing
    assert same(model.predict(X, ragged), [p[: i % 5] for i, p in enumerate(told)])
    assert [p.shape for p in model.predict(X, [])] == [(0, 2)] * len(X)


@pytest.mark.parametrize("kind", BOTH)
def test_series_batches_and_start_of_time_change_nothing(kind: Any) -> None:
    model, X = small(kind)
    asked = np.array([11.0, 12.5])
    told = model.predict(X, asked)
    assert same(told[::-1], model.predict(X[::-1], asked))
    assert same(told, model.predict([(t + 1e6, v) for t, v in X], asked + 1e6), tolerance=1e-2)
    assert same(told, model.set_params(batch_size=3).predict(X, asked))
    with_empty_rows = [(np.append(t, 10.9), np.vstack([v, [[np.nan, np.nan]]])) for t, v in X]
    assert same(told, model.predict(with_empty_rows, asked))


def test_calendar_stamps_and_whole_numbers() -> None:
    X, _ = waves(10)
    X = [(np.unique(np.rint(t * 100)), v[: len(np.unique(np.rint(t * 100)))]) for t, v in X]
    model = LFormerInterpolator(**SMALL, max_epochs=1).fit(X)
    asked = np.array([950.0, -20.0, 300.0])
    told = model.predict(X, asked)
    whole = [(t.astype(int), v) for t, v in X]
    assert same(told, model.predict(whole, asked.astype(int)))
    assert same(told, model.predict(whole, asked))
    begin = np.datetime64("2024-02-28T23:59:00", "s")
    dated = Panel.from_list([(begin + t.astype("timedelta64[s]"), v) for t, v in X])
    with pytest.raises(ValueError, match="times of X are calendar stamps, but the model was trained on numbers"):
        model.predict(dated, asked)
    model = clone(model).fit(dated)
    assert same(told, model.predict(dated, begin + asked.astype("timedelta64[s]")))
    aware = Panel.from_list([(pd.DatetimeIndex(begin + t.astype("timedelta64[s]"), tz="UTC"), v) for t, v in X])
    assert same(told, model.predict(aware, pd.DatetimeIndex(begin + asked.astype("timedelta64[s]"), tz="UTC")))
    lasting = Panel.from_list([(t.astype("timedelta64[s]"), v) for t, v in X], unit="min")
    assert same(told, model.predict(lasting, asked.astype("timedelta64[s]")))
    with pytest.raises(ValueError, match=r"query_times of series 0 must be of the kind of the times of X, datetime64"):
        model.predict(dated, asked)
    with pytest.raises(ValueError, match="times of X are numbers, but the model was trained on calendar stamps in s"):
        model.predict(X, asked)


@pytest.mark.parametrize("kind", BOTH)
def test_arrays_and_tables_of_another_length(kind: Any) -> None:
    table = np.random.default_rng(0).standard_normal((8, 12))
    model = kind(**SMALL, max_epochs=1).fit(table)
    assert [p.shape for p in model.predict(table[:, :7], [7.0, 8.5])] == [(2, 1)] * 8


def rows_of(model: Any, X: Pairs) -> tuple[Panel, Panel, Targets]:
    """The copies before and after hiding, and what is asked, as `fit` makes them."""
    panel = Panel.from_list(X)
    copies = panel[np.tile(np.arange(len(panel)), model.n_copies)].compact()
    scale = scaling.fit(copies, np.arange(len(copies)), "robust")
    nothing = Targets(values=np.zeros((0, 2)), at="queries")
    shown, targets, _ = model._prepare(copies, nothing, record_task("extrapolate", 2), scale, 0)
    return copies, shown, targets


def test_an_interpolator_hides_other_rows_in_every_copy() -> None:
    X, _ = waves(6)
    X = [(t, np.where(np.isnan(v), 0.0, v)) for t, v in X]
    model = LFormerInterpolator(hidden=0.3, n_copies=3)
    copies, shown, targets = rows_of(model, X)
    assert np.array_equal(copies.lengths - shown.lengths, (0.3 * copies.lengths).astype(int))
    assert np.array_equal(targets.lengths, copies.lengths)
    assert targets.given is not None
    seen = np.split(targets.given[:, 0], np.cumsum(copies.lengths)[:-1])
    assert not all(np.array_equal(seen[i], seen[i + 6]) for i in range(6))
    assert np.array_equal(targets.times, copies.times)
    scale = scaling.fit(copies, np.arange(len(copies)), "robust")
    assert np.allclose(targets.values, np.clip(copies.values, scale.low, scale.high))


@pytest.mark.parametrize("horizon", [None, 2.0, 1e3])
def test_a_forecaster_asks_only_after_the_cut_and_within_the_horizon(horizon: float | None) -> None:
    X, _ = waves(6)
    model = LFormerForecaster(horizon=horizon, n_copies=3)
    _, shown, targets = rows_of(model, X)
    assert targets.first is not None
    assert targets.lengths is not None
    assert targets.times is not None
    for i in range(18):
        begin, end = X[i % 6][0][[0, -1]]
        reach = (end - begin) / 2 if horizon is None else horizon
        known = shown.times[shown.first[i] : shown.first[i] + shown.lengths[i]]
        asked = targets.times[targets.first[i] : targets.first[i] + targets.lengths[i]]
        assert known[0] == begin
        if i < 6:  # the first copy is cut as late as can be
            assert asked[-1] == end
            assert known[-1] <= max(end - reach, begin) + 1e-9
        if len(asked):
            assert asked[0] > known[-1]
            assert asked[-1] - asked[0] <= reach
    assert len(set(shown.lengths[::6].tolist())) > 1 or horizon == 1e3


def test_copies_of_a_series_are_not_split() -> None:
    train, held = LFormerInterpolator(n_copies=4)._split(40, 0, None)
    assert set(train % 10).isdisjoint(held % 10)
    assert sorted([*train, *held]) == list(range(40))


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (None, "query_times is missing"),
        ([[12.0], [13.0]], "one array for each of the 10 series; got 2 arrays"),
        ([12.0, np.nan], "query_times of series 0 must be .* finite"),
        ([5.0, 12.0], r"times after the last row; series 0 has a row at 8\.63\d+ and a query at 5\."),
    ],
)
def test_bad_queries_get_a_clear_answer(asked: Any, says: str) -> None:
    model, X = small(LFormerForecaster)
    with pytest.raises(ValueError, match=says):
        model.predict(X, asked)


@pytest.mark.parametrize("kind", BOTH)
def test_series_without_values_or_with_a_single_row(kind: Any) -> None:
    X, _ = waves(10)
    X[3] = (X[3][0], np.full_like(X[3][1], np.nan))
    X[4] = ([1.0], [[50.0, np.nan]])
    model = kind(**SMALL, max_epochs=1).fit(X)
    assert np.isfinite(model.predict([X[4]], [2.0])[0]).all()
    with pytest.raises(ValueError, match=r"1 of 10 series have no observed value, among them \[3\]"):
        model.predict(X, [12.0])
    with pytest.raises(ValueError, match="10 of 10 series have no observed value"):
        kind(**SMALL).fit([X[3]] * 10)
    with pytest.raises(ValueError, match="at least 2 series with rows to hide"):
        kind(**SMALL).fit([X[4]] * 10)
    with pytest.raises(ValueError, match="no series has rows to hide"):
        model.score([X[4]])


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (LFormerInterpolator, {"hidden": 0.0}),
        (LFormerInterpolator, {"hidden": 1.0}),
        (LFormerInterpolator, {"n_copies": 0}),
        (LFormerForecaster, {"horizon": -1.0}),
        (LFormerForecaster, {"extrapolate": "yes"}),
        (LFormerForecaster, {"width": 0}),
    ],
)
def test_bad_parameters_are_refused_by_fit(kind: Any, change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        kind(**{**SMALL, **change}).fit(trends(4))


@pytest.mark.parametrize("kind", BOTH)
def test_whole_numbers_worth_a_fraction_are_learnt_in_their_own_units(kind: Any) -> None:
    """8-bit values worth 1/255 each, as frames and compact sensors store them."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(6, 12, 12)
    levels = np.repeat(rng.integers(100, 200, 12), lengths) + rng.integers(-3, 4, lengths.sum())
    times = np.concatenate([np.sort(rng.random(n)) * 9 for n in lengths])
    panel = Panel.build(times, levels.astype(np.uint8)[:, None], lengths, scale=1 / 255)
    real = Panel.build(times, levels[:, None] / 255, lengths)
    models = [kind(**SMALL, max_epochs=2).fit(X) for X in (panel, real)]
    told = [np.concatenate(m.predict(X, [9.5, 10.0])) for m, X in zip(models, (panel, real), strict=True)]
    np.testing.assert_allclose(told[0], told[1], atol=1e-4)
    assert (np.abs(told[0] - 150 / 255) < 0.4).all()
    assert models[0].score(panel) == pytest.approx(models[1].score(real), rel=1e-2)


def test_an_untrained_forecast_is_the_latest_value() -> None:
    model = LFormerForecaster(**SMALL | {"max_epochs": 1, "lr": 1e-9}).fit(trends(12))
    unseen = trends(5, seed=3)
    told = model.predict(unseen, [[t[-1] + 1.0] for t, _ in unseen])
    np.testing.assert_allclose(np.ravel(told), [v[-1, 0] for _, v in unseen], rtol=1e-4)


def test_a_fit_that_loses_to_a_simple_rule_says_so() -> None:
    rng = np.random.default_rng(0)
    X = [(np.arange(10.0), rng.normal(level, 0.1, (10, 1))) for level in rng.normal(size=40)]
    model = LFormerForecaster(**SMALL | {"max_epochs": 1, "lr": 0.5})
    with pytest.warns(LosesToNaiveWarning, match="LFormerForecaster loses to .* on the validation series: mse_unseen"):
        model.fit(X)
    assert model.validation_score_ > model.naive_score_
    assert model.naive_ in ("last-value", "series-mean", "linear")


def test_where_an_answer_starts_from() -> None:
    X = trends(12)
    kinds = {
        (LFormerForecaster, True, False): "latest",
        (LFormerInterpolator, True, False): "wave",
        (LFormerInterpolator, True, True): "latest",  # a streaming model must not read the next observation
        (LFormerForecaster, False, False): "none",
        (LFormerInterpolator, False, True): "none",
    }
    for (kind, persistence, streaming), expected in kinds.items():
        model = kind(**SMALL, max_epochs=1, persistence=persistence, streaming=streaming).fit(X)
        assert model.model_.config.persistence == expected


@pytest.mark.parametrize("horizon", [None, 2.0, 1e3])
def test_forecasts_past_what_was_trained_are_refused_or_warned_of(horizon: float | None) -> None:
    model, X = small(LFormerForecaster, horizon=horizon)
    X = [(t[~np.isnan(v).all(axis=1)], v[~np.isnan(v).all(axis=1)]) for t, v in X]  # other rows do not count
    spans = [t[-1] - t[0] for t, _ in X]
    nominal = max(spans) / 2 if horizon is None else min(horizon, max(spans))
    assert nominal <= model.reach_ <= max(spans)  # from the last row before the cut, which may lie well before it
    ends = np.array([t[-1] for t, _ in X])
    edge = [[end + model.reach_] for end in ends]
    assert np.isfinite(np.concatenate(model.predict(X, edge))).all()
    edge[4], edge[7] = [ends[4] + 0.5, ends[4] + 2 * model.reach_], [ends[7] + 3 * model.reach_]
    trained, asked = f"{model.reach_:.6g}", f"{3 * model.reach_:.6g}"
    says = rf"2 of 10 series have queries further .* up to {trained} after .*; series 7 has one {asked} "
    with pytest.raises(ValueError, match=says + r'after its own\. Fit with a longer horizon, or .*extrapolate="warn"'):
        model.predict(X, edge)
    with pytest.warns(ExtrapolationWarning, match=says):
        told = model.set_params(extrapolate="warn").predict(X, edge)
    assert [p.shape for p in told] == [(1, 2)] * 4 + [(2, 2)] + [(1, 2)] * 5


def test_a_span_of_the_calendar_is_told_in_days_too_and_the_reach_is_saved(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = [(pd.date_range("2024-01-01", periods=n, freq="7h"), rng.normal(size=(n, 1))) for n in (16, 17, 18, 19)]
    model = LFormerForecaster(**SMALL, max_epochs=1, horizon=2 * 86400.0).fit(X)
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.reach_ == model.reach_ >= 2 * 86400
    assert len(again.predict(X, [t[-1:] + pd.Timedelta("47h") for t, _ in X])) == 4
    with pytest.raises(
        ValueError, match=r"up to \d+ s \(2\.\d+ days\) after .* has one 1\.89\d*e\+08 s \(21\d\d days\)"
    ):
        again.predict(X, pd.DatetimeIndex(["2030-01-01"]))
