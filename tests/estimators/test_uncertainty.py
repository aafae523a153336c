"""Intervals, quantiles and sets of all six estimators: on data that calibration did not see, in every unit, saved."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from estimators.every_estimator import POINTS, RECORDS, SMALL, answers, fitted, records, same, targets
from estimators.saved_models import changed, resealed
from scipy.stats import binom
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from lformer import (
    LFormerClassifier,
    LFormerForecaster,
    LFormerInterpolator,
    LFormerPointClassifier,
    LFormerPointRegressor,
    LFormerPretrainer,
    LFormerRegressor,
    Panel,
    load,
)
from lformer.estimators import TooFewSeriesWarning
from lformer.splitting import hold_out

NUMBERS = [LFormerRegressor, LFormerPointRegressor, LFormerInterpolator, LFormerForecaster]
SETS = [LFormerClassifier, LFormerPointClassifier]
LAST: dict[str, Any] = {"width": 8, "heads": 2, "depth": 1, "max_epochs": 2, "random_state": 0, "device": "cpu"}


def wandering(n: int, seed: int, factor: float = 1.0) -> Panel:
    """Two channels that wander, each series with a noise of its own; uneven, ragged, a third missing."""
    rng = np.random.default_rng(seed)
    series = []
    for _ in range(n):
        length = int(rng.integers(8, 20))
        times = np.sort(rng.uniform(0, 10, length))
        steps = rng.normal(size=(length, 2)) * np.sqrt(np.diff(times, prepend=times[0] - 0.1))[:, None]
        values = 20 + np.cumsum(steps, axis=0) * np.exp(rng.normal(0, 0.4))
        values[rng.random((length, 2)) < 0.3] = np.nan
        values[0] = 20
        series.append((times, factor * values))
    return Panel.from_list(series, channels=["a", "b"], ids=[f"{seed}-{i}" for i in range(n)])


def asked_of(kind: Any, panel: Panel, seed: int, factor: float = 1.0) -> Any:
    """Targets with noise that grows with the spread of a series; None for those who ask for values."""
    rng = np.random.default_rng(seed + 1000)
    level = [np.nanmean(x[:, 0]) / factor for _, x in panel]
    noise = [0.3 + np.nanstd(x) / factor for _, x in panel]
    if kind is LFormerRegressor:
        return factor * np.array([m + s * rng.normal() for m, s in zip(level, noise, strict=True)])
    if kind is LFormerPointRegressor:
        found = [factor * (m + s * rng.normal(size=n)) for m, s, n in zip(level, noise, panel.lengths, strict=True)]
        return [np.where(rng.random(len(y)) < 0.2, np.nan, y) for y in found]
    if kind is LFormerClassifier:
        return np.array(
            [
                ["low", "mid", "high"][np.digitize(m + s * rng.normal(), [19.5, 20.5])]
                for m, s in zip(level, noise, strict=True)
            ]
        )
    if kind is LFormerPointClassifier:
        return [np.where(x[:, 0] + rng.normal(size=len(x)) > 20, "up", "down") for _, x in panel]
    return None


def covered(model: Any, panel: Panel, y: Any, coverage: float) -> tuple[np.ndarray, np.ndarray]:
    """(N, O) 1 inside, 0 outside, NaN where there is no truth, and (N,) whose each is."""
    if isinstance(model, LFormerClassifier | LFormerPointClassifier):
        told = model.predict_set(panel, coverage)
        told, y = (np.concatenate(told), np.concatenate(y)) if isinstance(told, list) else (told, y)
        inside = told[np.arange(len(y)), np.searchsorted(model.classes_, y)].astype(float)[:, None]
        lengths = panel.lengths if isinstance(model, LFormerPointClassifier) else np.ones(len(panel), int)
        return inside, np.repeat(np.arange(len(panel)), lengths)
    if isinstance(model, LFormerInterpolator | LFormerForecaster):
        part, truth, used = model._with_unseen_values(panel)
        assert used.all()
        asked, first = part.targets, part.targets.first
        times = [asked.times[a : a + n] for a, n in zip(first, asked.lengths, strict=True)]
        stamps = [t + o for t, o in zip(times, part.panel.origin, strict=True)]
        ends, owner = (
            np.concatenate(model.predict_interval(part.panel, stamps, coverage)),
            np.repeat(np.arange(len(panel)), asked.lengths),
        )
    else:
        ends = model.predict_interval(panel, coverage)
        truth = np.concatenate(y)[:, None] if isinstance(ends, list) else y[:, None]
        ends = (np.concatenate(ends) if isinstance(ends, list) else ends)[:, None]
        owner = np.repeat(np.arange(len(panel)), panel.lengths) if isinstance(y, list) else np.arange(len(panel))
    return np.where(np.isnan(truth), np.nan, (ends[..., 0] <= truth) & (truth <= ends[..., 1])), owner


def over_series(inside: np.ndarray, owner: np.ndarray) -> float:
    shares = [np.nanmean(inside[owner == i]) for i in np.unique(owner) if (~np.isnan(inside[owner == i])).any()]
    return float(np.mean(shares))


CASES = [(kind, None) for kind in SETS] + [(kind, u) for kind in NUMBERS for u in (None, "gaussian", "quantiles")]


@pytest.mark.filterwarnings("ignore:.* further ahead than any in training")
@pytest.mark.parametrize(("kind", "uncertainty"), CASES)
def test_coverage_on_series_that_calibration_did_not_see(kind: Any, uncertainty: str | None) -> None:
    """200 series calibrate, 200 others are asked; bounds that the count of one draw exceeds once in a million."""
    train, held, new = (wandering(n, seed) for n, seed in ((60, 1), (200, 2), (200, 3)))
    more: dict[str, Any] = {} if kind in SETS else {"uncertainty": uncertainty}
    more |= {"horizon": 4.0, "extrapolate": "warn"} if kind is LFormerForecaster else {}
    model = kind(**LAST, **more).fit(train, asked_of(kind, train, 1))
    y = asked_of(kind, held, 2)
    model.calibrate(held, *([] if y is None else [y]))
    found = over_series(*covered(model, new, asked_of(kind, new, 3), 0.8))
    # Calibration and test each have a binomial error of 200 draws at most: shares of a series spread less than 0 or 1.
    apart = 0.8 - binom.ppf(5e-7, 200, 0.8) / 200
    assert 0.8 - np.sqrt(2) * apart < found < 0.8 + np.sqrt(2) * apart
    wide = over_series(*covered(model, new, asked_of(kind, new, 3), 0.95))
    assert wide > found


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("uncertainty", [None, "gaussian", "quantiles"])
def test_a_change_of_unit_changes_nothing_else(kind: Any, uncertainty: str | None) -> None:
    """By a power of 2, which rounds nothing: answers, quantiles and intervals are the same numbers in the new unit."""
    found = []
    for factor in (1.0, 1024.0):
        X, held = wandering(30, 1, factor), wandering(40, 2, factor)
        y, z = asked_of(kind, X, 1, factor), asked_of(kind, held, 2, factor)
        model = kind(**LAST, uncertainty=uncertainty).fit(X, y)
        model.calibrate(held, *([] if z is None else [z]))
        when = ([12.0, 11.0],) if kind in RECORDS else ()
        told = [*model.predict(X, *when), *model.predict_interval(X, *when, coverage=0.8)]
        told += [] if uncertainty is None else [*model.predict_quantiles(X, *when, q=[0.1, 0.5, 0.995])]
        found.append(np.concatenate([np.ravel(one) for one in told]) / factor)
    assert np.array_equal(*found)


@pytest.mark.parametrize("kind", NUMBERS)
def test_quantiles_do_not_cross_and_the_median_is_the_answer(kind: Any) -> None:
    X = records(20)
    when = ([12.0, 40.0],) if kind in RECORDS else ()
    q = [0.001, 0.01, 0.05, 0.3, 0.5, 0.51, 0.9, 0.99, 0.9999]
    for uncertainty in ("gaussian", "quantiles"):
        model = fitted(kind, X, uncertainty=uncertainty, members=2)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".* further ahead than any in training")
            told, point = model.predict_quantiles(X, *when, q=q), model.predict(X, *when)
            median = model.predict_quantiles(X, *when, q=0.5)
        for one, answer, middle in zip(told, point, median, strict=True):
            assert one.shape == (*np.shape(answer), len(q))
            assert (np.diff(one, axis=-1) >= 0).all()
            assert np.allclose(one[..., 4], answer)
            assert np.allclose(middle, answer)


def test_members_that_differ_are_less_sure_together() -> None:
    X, y = wandering(30, 1), asked_of(LFormerRegressor, wandering(30, 1), 1)
    model = LFormerRegressor(**LAST, members=3, uncertainty="gaussian").fit(X, y)
    mean, deviation = model.predict(X, return_std=True)
    alone = []
    for member in model.model_.models:
        one = LFormerRegressor(**LAST, uncertainty="gaussian").fit(X, y)
        one.model_, one.task_ = member, model.task_
        alone.append(one.predict(X, return_std=True))
    means, deviations = np.array([m for m, _ in alone]), np.array([s for _, s in alone])
    assert np.allclose(mean, means.mean(axis=0))
    assert np.allclose(deviation**2, (deviations**2).mean(axis=0) + means.var(axis=0), rtol=1e-4)


def test_a_model_that_says_how_sure_it_is_gives_difficult_series_wider_intervals() -> None:
    """The noise of a target is the value of the second channel; the model must find that out."""
    rng = np.random.default_rng(0)

    def drawn(n: int) -> tuple[Panel, np.ndarray]:
        noise, level = rng.choice([0.1, 3.0], n), rng.normal(size=n)
        series = []
        for s, m in zip(noise, level, strict=True):
            times = np.sort(rng.uniform(0, 5, rng.integers(4, 9)))
            series.append((times, np.column_stack([np.full(len(times), m), np.full(len(times), s)])))
            series[-1][1][rng.random(series[-1][1].shape) < 0.2] = np.nan
            series[-1][1][0] = m, s
        return Panel.from_list(series), level + noise * rng.normal(size=n)

    (X, y), (held, z), (new, w) = drawn(200), drawn(200), drawn(400)
    noisy = np.array([x[0, 1] > 1 for _, x in new])
    for uncertainty in ("gaussian", "quantiles"):
        model = LFormerRegressor(width=16, depth=1, max_epochs=12, lr=1e-2, uncertainty=uncertainty, random_state=0)
        model.fit(X, y).calibrate(held, z)
        ends = model.predict_interval(new, 0.9)
        wide = np.ptp(ends, axis=1)
        assert np.median(wide[noisy]) > 4 * np.median(wide[~noisy])
        inside = (ends[:, 0] <= w) & (w <= ends[:, 1])
        assert inside.mean() > binom.ppf(1e-6, 400, 0.85) / 400
    plain = LFormerRegressor(width=16, depth=1, max_epochs=3, random_state=0).fit(X, y).calibrate(held, z)
    assert np.ptp(np.ptp(plain.predict_interval(new, 0.9), axis=1)) < 1e-9


def test_forecasts_further_ahead_have_wider_intervals() -> None:
    model = LFormerForecaster(horizon=8.0, calibration_fraction=0.8, **LAST).fit(wandering(900, 5))
    assert (model.calibration_.counts >= 100).all()
    new = Panel.from_list([(t[t < 3], x[t < 3]) for t, x in wandering(20, 6)], channels=["a", "b"])
    last = np.array([t[-1] for t, _ in new])
    wide = np.array([np.ptp(e, axis=2) for e in model.predict_interval(new, [t + np.array([0.2, 7.0]) for t in last])])
    assert (wide[:, 1] > 1.5 * wide[:, 0]).all()


def test_series_on_their_own_scale_have_intervals_of_their_own_size() -> None:
    rng = np.random.default_rng(0)
    size = np.exp(rng.normal(0, 1, 80))
    days = np.arange(30.0)
    X = [(days, s * (10 + rng.normal(size=30))) for s in size]
    for uncertainty in (None, "gaussian", "quantiles"):
        model = LFormerForecaster(horizon=5.0, series_scale=True, uncertainty=uncertainty, **LAST)
        model.fit(X[:40]).calibrate(X[40:])
        ends = np.array(model.predict_interval(X[40:], [31.0, 33.0], coverage=0.8))
        wide = np.ptp(ends, axis=-1)[:, 0, 0] / size[40:]
        assert wide.max() < 4 * wide.min()


def test_order_and_size_of_batches_change_nothing() -> None:
    X = records(20)
    order = np.random.default_rng(0).permutation(20)
    for kind in NUMBERS:
        when = ([12.0, 40.0],) if kind in RECORDS else ()
        model = fitted(kind, X, uncertainty="quantiles", calibration_fraction=0.6)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".* further ahead than any in training")
            told = model.predict_interval(X, *when, coverage=0.6)
            mixed = model.predict_interval(X[order], *when, coverage=0.6)
            single = clone(model).set_params(batch_size=3)
            single.__dict__.update(
                {k: v for k, v in model.__dict__.items() if k.endswith("_") or k in ("_flat", "_is_table", "_own")}
            )
            small = single.predict_interval(X, *when, coverage=0.6)
        for i in range(20):
            assert np.allclose(mixed[i], told[order[i]], rtol=1e-4, atol=1e-4)
            assert np.allclose(small[i], told[i], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("kind", "uncertainty"), CASES)
def test_a_saved_model_keeps_its_calibration(kind: Any, uncertainty: str | None, tmp_path: Path) -> None:
    X = records(30)
    more = {} if kind in SETS else {"uncertainty": uncertainty}
    model = fitted(kind, X, calibration_fraction=0.5, members=2, autosave=str(tmp_path / "m"), **more)
    again = load(tmp_path / "m")
    assert again.get_params() == model.get_params()
    assert same(told(again, X), told(model, X))
    assert same(answers(again, X), answers(model, X))
    assert np.array_equal(again.calibration_.thresholds, model.calibration_.thresholds)
    assert np.array_equal(again.calibration_.counts, model.calibration_.counts)
    assert again.calibration_.series == model.calibration_.series


def told(model: Any, X: Panel) -> list[Any]:
    if isinstance(model, LFormerClassifier | LFormerPointClassifier):
        return [*model.predict_set(X, 0.6), *model.predict_set(X, 0.6, by_class=True)]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* further ahead than any in training")
        when = ([12.0, 40.0],) if type(model) in RECORDS else ()
        quantiles = [] if model.uncertainty is None else [*model.predict_quantiles(X, *when)]
        return [*model.predict_interval(X, *when, coverage=0.6), *quantiles]


def test_a_calibration_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    model = fitted(LFormerForecaster, records(30), calibration_fraction=0.5)
    for to, words in (
        ({"groups": 3, "edges": [1.0, 2.0, 3.0], "series": 15}, "a calibration of 3 groups where the rest .* needs 2"),
        ({"groups": 2, "edges": [2.0, 1.0], "series": 15}, "edges must rise"),
        ({"groups": 2, "edges": [-1.0], "series": 15}, "edges must be greater than 0"),
        ({"groups": 2, "edges": [1.0], "series": 15}, "does not fit estimator.json beside it in 2 tensors"),
        ({"groups": 2, "edges": [1.0, 2.0, 3.0], "series": 3}, "counts more than its 3 series"),
        (None, "has no 'calibration'"),
    ):
        model.save(tmp_path / "m")
        changed(tmp_path / "m", "calibration", to=to)
        with pytest.raises(ValueError, match=words):
            load(tmp_path / "m")
    model.save(tmp_path / "m")
    resealed(tmp_path / "m", {"calibration": None})
    with pytest.raises(ValueError, match=r"in 2 tensors; calibration\.counts must be absent"):
        load(tmp_path / "m")
    model.calibration_.thresholds[0, 0, 5] = np.nan
    with pytest.raises(
        ValueError, match=r"thresholds of its calibration are negative, or do not increase.*Calibrate it"
    ):
        model.save(tmp_path / "m")
    found = json.loads((tmp_path / "m" / "estimator.json").read_text())
    assert "thresholds" not in json.dumps(found)  # infinite ones are no JSON; they are among the weights


def test_what_is_missing_is_said() -> None:
    X = records(30)
    model = fitted(LFormerRegressor, X)
    with pytest.raises(ValueError, match=r"not calibrated, .* calibrate .* calibration_fraction=0\.2"):
        model.predict_interval(X)
    with pytest.raises(ValueError, match=r'predict_quantiles needs .* uncertainty="gaussian" or uncertainty="quant'):
        model.predict_quantiles(X)
    with pytest.raises(ValueError, match='return_std needs a LFormerRegressor fitted with uncertainty="gaussian"'):
        model.predict(X, return_std=True)
    with pytest.raises(NotFittedError):
        LFormerRegressor().predict_interval(X)
    with pytest.raises(ValueError, match='uncertainty must be None, "gaussian" or "quantiles"'):
        fitted(LFormerRegressor, X, uncertainty="normal")
    with pytest.raises(ValueError, match="calibration_fraction must be at least 0 and below 1; got 1"):
        fitted(LFormerRegressor, X, calibration_fraction=1.0)
    with pytest.raises(ValueError, match="at least 3 series"):
        fitted(LFormerRegressor, X[:2], calibration_fraction=0.5)
    sure = fitted(LFormerRegressor, X, uncertainty="gaussian")
    for wrong in ([], [0.0, 0.5], 1.0, [[0.5]]):
        with pytest.raises(ValueError, match="q must be one or several numbers between 0 and 1"):
            sure.predict_quantiles(X, wrong)
    few = model.calibrate(X[:8], targets(LFormerRegressor, X)[:8])
    with pytest.raises(ValueError, match=r"coverage 0\.9 needs at least 9 calibration series .* output 0 \(8\)"):
        few.predict_interval(X, 0.9)
    assert few.predict_interval(X, 0.88).shape == (30, 2, 2)
    with pytest.raises(ValueError, match="y must have 2 numbers for each prediction; got 1"):
        model.calibrate(X, np.zeros(30))
    with pytest.raises(ValueError, match="groups must have one entry for each of the 30 series"):
        model.calibrate(X, targets(LFormerRegressor, X), groups=[1, 2])


def test_a_channel_without_enough_series_has_infinite_intervals_and_a_warning() -> None:
    X = wandering(40, 1)
    rare = Panel.from_list([(t, np.where([True, i < 5], x, np.nan)) for i, (t, x) in enumerate(X)], channels=["a", "b"])
    model = LFormerInterpolator(**LAST).fit(X).calibrate(rare)
    with pytest.warns(TooFewSeriesWarning, match=r"needs at least 9 calibration series with a value; .*'b' \(5\)"):
        ends = np.array(model.predict_interval(X, [5.0], coverage=0.9))
    assert np.isfinite(ends[:, :, 0]).all()
    assert (ends[:, :, 1] == [-np.inf, np.inf]).all()


def test_another_fit_forgets_the_calibration_and_a_clone_has_none() -> None:
    X = records(30)
    y = targets(LFormerClassifier, X)
    model = fitted(LFormerClassifier, X, calibration_fraction=0.5)
    assert model.predict_set(X, 0.6).any(axis=1).all()
    assert not hasattr(clone(model), "calibration_")
    model.set_params(calibration_fraction=0.0).fit(X, y)
    with pytest.raises(ValueError, match="not calibrated"):
        model.predict_set(X)
    assert fitted(LFormerPretrainer, X).calibration_ is None


def test_a_failed_calibration_leaves_the_last_one() -> None:
    X = records(30)
    model = fitted(LFormerClassifier, X, calibration_fraction=0.5)
    before = model.calibration_
    with pytest.raises(ValueError, match=r"classes \['other'\] are not among those of training"):
        model.calibrate(X, np.array(["other"] * 30))
    assert model.calibration_ is before


def test_held_out_series_have_no_part_in_training() -> None:
    """The same as to hold them out by hand; targets may come by id, too."""
    X = records(40)
    y = targets(LFormerRegressor, X)
    one = LFormerRegressor(**SMALL, calibration_fraction=0.25).fit(X, y)
    assert one.calibration_.series == 10
    seed = int(np.random.RandomState(SMALL["random_state"]).randint(2**31 - 1))
    kept, held = map(np.sort, hold_out(40, 0.25, seed))
    by_hand = LFormerRegressor(**SMALL).fit(X[kept], y[kept]).calibrate(X[held], y[held])
    assert np.array_equal(by_hand.predict_interval(X, 0.8), one.predict_interval(X, 0.8))
    by_id = dict(zip(X.ids.tolist(), y.tolist(), strict=True))
    named = LFormerRegressor(**SMALL, calibration_fraction=0.25).fit(X, by_id, sample_weight=np.ones(40))
    assert np.array_equal(named.predict_interval(X, 0.8), one.predict_interval(X, 0.8))


@pytest.mark.parametrize("form", ["list", "array", "table"])
def test_series_of_every_form_can_be_held_out(form: str) -> None:
    rng = np.random.default_rng(0)
    array = rng.normal(size=(30, 6, 2))
    X = {"list": [(np.sort(rng.random(6)), x) for x in array], "array": array, "table": array[..., 0]}[form]
    model = LFormerRegressor(**SMALL, calibration_fraction=0.4).fit(X, rng.normal(size=30))
    assert model.predict_interval(X, 0.8).shape == (30, 2)
    inner = LFormerInterpolator(**SMALL, calibration_fraction=0.4).fit(X, rng.normal(size=30))  # y is ignored
    assert inner.calibration_.series == 12
    points = LFormerPointRegressor(**SMALL, calibration_fraction=0.4).fit(X, rng.normal(size=(30, 6)))
    assert [one.shape for one in points.predict_interval(X, 0.8)] == [(6, 2)] * 30


def test_subjects_count_not_their_series() -> None:
    X = records(40)
    y = targets(LFormerRegressor, X)
    model = fitted(LFormerRegressor, X)
    model.calibrate(X, y, groups=np.arange(40) // 8)
    assert model.calibration_.counts.tolist() == [[5], [5]]
    with pytest.raises(ValueError, match=r"needs at least 9 calibration series .* \(5\)"):
        model.predict_interval(X, 0.9)
    inner = fitted(LFormerInterpolator, X).calibrate(X, groups=np.arange(40) // 8)
    assert inner.calibration_.series == 5


def test_forecasts_are_calibrated_as_they_are_asked() -> None:
    """With values at times of one's own, and in dates."""
    X = records(40, dated=True)
    model = fitted(LFormerForecaster, X, horizon="4h")
    cut = np.datetime64("2024-02-29T03:00", "ms")
    some = [i for i, (t, _) in enumerate(X) if (t < cut).any() and (t >= cut).any()]
    series = [X[i] for i in some]
    known = Panel.from_list(
        [(t[t < cut], x[t < cut]) for t, x in series],
        channels=["k", "na"],
        static=X[some].static,
        ids=X.ids[some].tolist(),
        unit="h",
    )
    times, values = [t[t >= cut] for t, _ in series], [x[t >= cut] for t, x in series]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* further ahead than any in training")
        model.calibrate(known, values, times)
        told = np.concatenate(model.predict_interval(known, times, coverage=0.7))
    truth = np.concatenate(values)
    inside = (told[..., 0] <= truth) & (truth <= told[..., 1])
    owner = np.repeat(np.arange(len(some)), [len(t) for t in times])
    first = ~np.isnan(truth[:, 0])
    share = np.bincount(owner[first], inside[first, 0]) / np.maximum(np.bincount(owner[first]), 1)
    assert share[np.bincount(owner[first]) > 0].mean() >= 0.7  # the series of the calibration itself
    with pytest.raises(ValueError, match="y holds the values at query_times: give both, or neither"):
        model.calibrate(known, values)
    with pytest.raises(ValueError, match=r"y must have values for each of the .* series; got 1"):
        model.calibrate(known, values[:1], times)
    with pytest.raises(ValueError, match=r"y must be \(query times, channels\) of each series"):
        model.calibrate(known, [v[:, :1] for v in values], times)


def test_wild_values_count_in_calibration_as_they_are() -> None:
    """Training bounds what it learns from; coverage must not be of bounded values."""
    X = wandering(40, 1)
    wild = Panel.from_list([(t, np.where(i % 4 == 0, 1e6, 1) * x) for i, (t, x) in enumerate(X)], channels=["a", "b"])
    model = LFormerInterpolator(series_scale=False, **LAST).fit(X).calibrate(wild)
    assert np.ptp(np.array(model.predict_interval(X, [5.0], coverage=0.9)), axis=-1).min() > 1e5


def test_sets_of_classes() -> None:
    X, held, new = (wandering(n, seed) for n, seed in ((80, 1), (200, 2), (300, 3)))
    y, z, w = (asked_of(LFormerClassifier, panel, seed) for panel, seed in ((X, 1), (held, 2), (new, 3)))
    model = LFormerClassifier(**(LAST | {"max_epochs": 15})).fit(X, y).calibrate(held, z)
    small, large = model.predict_set(new, 0.5), model.predict_set(new, 0.95)
    assert small.shape == (300, 3)
    assert small.any(axis=1).all()  # never empty
    assert (large >= small).all()
    assert large.sum() > small.sum()
    likeliest = model.predict_proba(new).argmax(axis=1)
    assert small[np.arange(300), likeliest].all()
    code = np.searchsorted(model.classes_, w)
    every = model.predict_set(new, 0.8, by_class=True)
    for k in range(3):
        n, m = int((code == k).sum()), int((z == model.classes_[k]).sum())
        apart = np.sqrt((0.8 - binom.ppf(5e-7, n, 0.8) / n) ** 2 + (0.8 - binom.ppf(5e-7, m, 0.8) / m) ** 2)
        assert every[code == k, k].mean() > 0.8 - apart
    with pytest.raises(
        ValueError, match=r"coverage 0\.999 needs at least 999 calibration series .* all classes \(200\)"
    ):
        model.predict_set(new, 0.999)


def test_classes_of_rows_in_sets() -> None:
    X = records(40)
    model = fitted(LFormerPointClassifier, X, calibration_fraction=0.5)
    sets = model.predict_set(X, 0.8)
    assert [one.shape for one in sets] == [(n, 2) for n in X.lengths]
    assert all(one.any(axis=1).all() for one in sets)


@pytest.mark.parametrize(("kind", "share"), [(LFormerRegressor, 0.2), (LFormerPointRegressor, 0.1)])
def test_who_says_how_sure_he_is_trains_with_dropout_and_no_other_regressor(kind: type, share: float) -> None:
    assert fitted(kind).model_.config.dropout == 0.0
    assert fitted(kind, uncertainty="quantiles").model_.config.dropout == share
    assert fitted(kind, dropout=0.3).model_.config.dropout == 0.3
    with pytest.raises(ValueError, match="dropout must be at least 0 and below 1; got 'auto'"):
        fitted(LFormerInterpolator, dropout="auto")


@pytest.mark.parametrize("kind", [LFormerRegressor, LFormerPointRegressor])
def test_streams_answer_with_the_point_of_a_distribution(kind: Any) -> None:
    X = records(20)
    for uncertainty in ("gaussian", "quantiles"):
        model = fitted(kind, X, streaming=True, uncertainty=uncertainty, members=2)
        stream = model.stream({"age": 50.0, "site": "north"})
        told = [stream.update(time, values) for time, values in zip(*X[0], strict=True)]
        static = X.static.iloc[[0]].assign(age=50.0, site="north")
        alone = Panel.from_list([X[0]], channels=["k", "na"], ids=["p00"], static=static)
        whole = model.predict(alone)[0]
        assert np.allclose(told if kind in POINTS else told[-1], whole, atol=1e-4)


@pytest.mark.parametrize("kind", [LFormerInterpolator, LFormerForecaster])
def test_streams_are_asked_for_the_point_of_a_distribution(kind: Any) -> None:
    X = records(20)
    for uncertainty in ("gaussian", "quantiles"):
        model = fitted(kind, X, streaming=True, uncertainty=uncertainty)
        one, (times, values) = X[:1], X[0]
        streams = model.streams()
        streams.update(["p00"] * len(times), times, values, static=X.static)
        soon = times[-1] + 0.1
        assert np.allclose(streams.predict_at(["p00"], [soon])[0], model.predict(one, [soon])[0], atol=1e-4)


def test_a_pretrained_start_and_a_warm_one_know_distributions() -> None:
    X = records(20)
    y = targets(LFormerRegressor, X)
    start = fitted(LFormerPretrainer, X)
    model = LFormerRegressor(**SMALL, pretrained=start, uncertainty="gaussian").fit(X, y)
    assert model.model_.config.numbers == 4
    model.set_params(warm_start=True, uncertainty="quantiles").fit(X, y)  # another head: the model is begun anew
    assert model.model_.config.numbers == 30
    assert "crps" in model.history_[0]


def test_score_and_comparison_are_of_the_point_answers() -> None:
    X = wandering(40, 1)
    for series_scale in (False, True):
        model = LFormerForecaster(**LAST, uncertainty="gaussian", series_scale=series_scale).fit(X)
        assert model.task_.monitor == ("crps_own" if series_scale else "crps")
        scores = model.compare(X)
        assert scores["LFormerForecaster"] == model.score(X) < 0
        assert scores["last-value"] < 0
        plain = LFormerForecaster(**LAST, series_scale=series_scale).fit(X)
        assert plain.compare(X)["last-value"] == pytest.approx(scores["last-value"])
