"""The methods of the bench of defaults: rivals worth the name, and the estimators as they come."""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from bench import problems

from lformer import Panel
from lformer.baselines import BASELINES
from lformer.bench.defaults import generated, ours, rules
from lformer.bench.defaults.grid import Grid
from lformer.bench.defaults.measures import Answers, measure
from lformer.bench.defaults.methods import METHODS
from lformer.bench.defaults.problem import Problem
from lformer.estimators import (
    LFormerClassifier,
    LFormerForecaster,
    LFormerInterpolator,
    LFormerPointClassifier,
    LFormerPointRegressor,
    LFormerRegressor,
)
from lformer.evaluate import predict
from lformer.parts import PanelPart, Targets
from lformer.tasks import records

FROM_AEON = ("minirocket", "dtw")


def answers(name: str, problem: Problem) -> Answers:
    method = METHODS[name].make(problem.kind, 0, "cpu")
    method.fit(problem.blind)
    return method.answer(problem.blind)


def score(name: str, problem: Problem) -> float:
    return measure(problem, answers(name, problem))[problem.measures[0]][0]


@pytest.mark.parametrize("name", ["minirocket", "dtw", "boosting", "random-forest", "logistic"])
def test_classifiers_tell_two_levels_apart(name: str) -> None:
    if name in FROM_AEON:
        pytest.importorskip("aeon", reason=f"{name} comes from aeon")
    assert score(name, problems.levels()) > 0.9


@pytest.mark.parametrize("name", ["boosting", "random-forest", "logistic"])
def test_classifiers_of_rows_tell_them_apart(name: str) -> None:
    problem = problems.rows(60)
    said = answers(name, problem).said
    assert [len(row) for row in said] == problem.test.lengths.tolist()
    assert score(name, problem) > 0.9


@pytest.mark.parametrize("name", ["minirocket", "boosting", "random-forest", "ridge"])
def test_regressors_find_the_level(name: str) -> None:
    if name in FROM_AEON:
        pytest.importorskip("aeon", reason=f"{name} comes from aeon")
    assert score(name, problems.amounts(240)) < 0.3


@pytest.mark.parametrize("name", ["boosting", "random-forest", "ridge"])
def test_regressors_of_rows_see_the_rows_beside_them(name: str) -> None:
    problem = problems.row_amounts(60)
    said = answers(name, problem).said
    assert [len(row) for row in said] == problem.test.lengths.tolist()
    assert score(name, problem) < 0.6


@pytest.mark.parametrize("make", [problems.amounts, problems.row_amounts])
def test_a_constant_is_the_mean_in_training(make: Callable[[], Problem]) -> None:
    problem = make()
    mean = np.concatenate([np.atleast_1d(each) for each in problem.labels]).mean()
    assert np.concatenate([np.atleast_1d(each) for each in answers("constant", problem).said]) == pytest.approx(mean)
    assert score("constant", problem) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("name", ["boosting", "random-forest", "logistic"])
def test_covariates_are_read(name: str) -> None:
    import pandas as pd

    problem = problems.levels()
    noise = [replace(p, values=np.zeros_like(p.values)) for p in (problem.train, problem.test)]
    told = [pd.DataFrame({"site": labels}) for labels in (problem.labels, problem.truth)]
    train, test = (replace(p, static=static) for p, static in zip(noise, told, strict=True))
    assert score(name, replace(problem, train=train, test=test)) == 1.0


@pytest.mark.parametrize("name", FROM_AEON)
def test_without_aeon_the_error_names_the_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [m for m in sys.modules if m.split(".")[0] == "aeon"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "aeon", None)
    with pytest.raises(ImportError, match=r"lformer\[adapters\]"):
        METHODS[name].make("series", 0, "cpu")


# -- on a grid


def test_a_grid_follows_the_line_and_stays_at_the_ends() -> None:
    panel = Panel.from_list(
        [([1.0, 3.0, 4.0], [[2.0, np.nan], [6.0, 1.0], [8.0, np.nan]]), ([0.0, 5.0], [[0.0, 3.0]] * 2)]
    )
    problem = replace(problems.levels(), train=panel, test=panel, steps=6)
    cube = Grid.fit(problem).cube(panel)
    assert cube[0].tolist() == [[2, 2, 4, 6, 8, 8], [1] * 6]
    assert Grid.fit(replace(problem, steps=4, stretch=True)).cube(panel)[0, 0].tolist() == [2, 4, 6, 8]


def test_a_channel_that_was_never_observed_is_at_its_mean_in_training() -> None:
    train = Panel.from_list([([0.0, 1.0], [[1.0, 4.0], [3.0, 6.0]])])
    test = Panel.from_list([([0.0, 1.0], [[1.0, np.nan], [3.0, np.nan]])])
    problem = replace(problems.levels(), train=train, test=test, steps=2)
    assert Grid.fit(problem).cube(test)[0].tolist() == [[1, 3], [5, 5]]
    assert Grid.fit(problem).rows(test)[:, 1].tolist() == [5, 5]


# -- rules


@pytest.mark.parametrize("name", ["last-value", "series-mean", "linear-interpolation"])
def test_rules_are_those_of_the_library(name: str) -> None:
    problem = problems.waves()
    test, asked = problem.test, problem.asked
    lengths = np.array([len(times) for times in asked])
    targets = Targets(
        values=np.zeros((int(lengths.sum()), 2), np.float32), at="queries", times=np.concatenate(asked),
        first=np.cumsum(lengths) - lengths, lengths=lengths,
    )  # fmt: skip
    entry, task = BASELINES[name], records("interpolate", 2, "query")
    rule = entry.model(entry.config(inputs=2, outputs=2, answer="query"))
    rule.set_mean(torch.from_numpy(rules.channel_means(problem.train)))  # type: ignore[operator]
    expected = predict(rule, task, PanelPart(test, targets, np.arange(len(test)), 0, precise=True))
    for told, theirs in zip(answers(name, problem).said, expected, strict=True):
        np.testing.assert_allclose(told, theirs.numpy(), atol=1e-5)


@pytest.mark.parametrize("name", ["seasonal", "weekday-mean"])
def test_rules_of_a_week_are_exact_on_weekly_sales(name: str) -> None:
    assert score(name, problems.weekly()) == pytest.approx(0.0, abs=1e-12)
    assert score("last-value", problems.weekly()) > 0.3


def test_a_seasonal_rule_takes_the_nearest_of_the_same_phase() -> None:
    rule = rules.seasonal(10.0, near=1.0)
    times, values = np.array([0.5, 5.0, 10.6, 15.0]), np.array([1.0, 2.0, 3.0, 4.0])
    assert rule(times, values, np.array([20.0, 25.0, 35.0, 0.0])).tolist() == [3.0, 4.0, 4.0, 1.0]
    assert rule(times, values, np.array([22.0])).tolist() == [3.0]  # none is near: the nearest phase


def test_a_weekday_mean_looks_back_eight_weeks() -> None:
    times = np.arange(7.0 * 20)
    values = np.where(times < 7 * 12, 100.0, times % 7)
    assert rules.weekday_mean(7.0)(times, values, np.array([140.0, 143.0])).tolist() == [0.0, 3.0]
    assert np.isnan(rules.weekday_mean(7.0)(times[::7], values[::7], np.array([141.0]))).all()


def test_seasons_come_from_the_calendar_or_from_the_set() -> None:
    daily, numbers = problems.weekly(), problems.waves()
    assert rules.season_of(daily) == 7.0
    assert rules.season_of(replace(daily, season=365.25)) == 365.25
    assert rules.season_of(numbers) is None
    stamps = np.datetime64("2024-01-01T00", "h") + np.arange(48)
    hourly = Panel.from_list([(stamps, np.zeros((48, 1)))], unit="min")
    assert rules.season_of(replace(daily, train=hourly)) == 24 * 60
    weekly = Panel.from_list([(stamps[0] + 168 * np.arange(9), np.zeros((9, 1)))], unit="D")
    assert rules.season_of(replace(daily, train=weekly)) is None


def test_reasons_not_to_run_are_said() -> None:
    weekly, waves, stores = problems.weekly(), problems.waves(), generated.stores()
    assert METHODS["seasonal"].why_not(weekly) == METHODS["weekday-mean"].why_not(weekly) == ""
    assert METHODS["seasonal"].why_not(waves) == "no season is known"
    assert METHODS["weekday-mean"].why_not(replace(weekly, season=365.25)) == "no weekdays"
    assert METHODS["gaussian-process"].why_not(waves) == ""
    assert "too slow" in METHODS["gaussian-process"].why_not(stores)
    assert METHODS["dtw"].why_not(problems.levels()) == ""
    assert "too slow" in METHODS["dtw"].why_not(replace(problems.levels(), steps=10**5))


def test_a_gaussian_process_finds_the_waves() -> None:
    problem = problems.waves(8)
    assert score("gaussian-process", problem) < 0.5 * score("linear-interpolation", problem)


# -- the estimators


CASES: list[tuple[Callable[[], Problem], type]] = [
    (problems.levels, LFormerClassifier),
    (problems.rows, LFormerPointClassifier),
    (problems.amounts, LFormerRegressor),
    (problems.row_amounts, LFormerPointRegressor),
    (problems.weekly, LFormerForecaster),
    (problems.waves, LFormerInterpolator),
]


@pytest.mark.parametrize(("make", "kind"), CASES)
def test_the_estimators_answer_with_their_defaults(
    make: Callable[[], Problem], kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = make()
    assert ours.ESTIMATORS[problem.kind] is kind
    made = []

    def short(**given: object) -> object:
        assert given == {"random_state": 0, "device": "cpu"} | (
            {"horizon": 14.0} if kind is LFormerForecaster else {}
        )  # and nothing else
        made.append(kind(**given, max_epochs=1))
        return made[0]

    monkeypatch.setitem(ours.ESTIMATORS, problem.kind, short)
    method = ours.Defaults(0, "cpu")
    method.fit(problem.blind)
    found = measure(problem, method.answer(problem.blind))
    assert problem.measures[0] in found
    assert method.notes["estimator"] == kind.__name__
    assert method.notes["epochs"] == 1
    if kind is LFormerClassifier:
        assert found["accuracy"][0] == made[0].score(problem.test, problem.truth)
    if "r2" in found:
        assert found["r2"][0] == pytest.approx(made[0].score(problem.test, problem.truth))


def test_forecasts_are_asked_for_at_the_stamps_of_the_calendar(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problems.weekly()
    monkeypatch.setitem(ours.ESTIMATORS, "forecast", partial(LFormerForecaster, max_epochs=1))
    method = ours.Defaults(0, "cpu")
    method.fit(problem.blind)
    asked = []
    monkeypatch.setattr(LFormerForecaster, "predict", lambda self, X, query_times: asked.extend(query_times) or [])
    method.answer(problem.blind)
    assert asked[0].dtype.kind == "M"
    assert (asked[0] > np.datetime64("2024-01-01") + 7 * 10 - 1).all()
