"""Models on tables of series and rows: what a line holds, what each of them learns, what it refuses."""

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from helpers import irregular_arrays

from lformer import IrregularBatch, Panel, tasks
from lformer.baselines import BASELINES, minirocket
from lformer.baselines.neighbourhood import COMPONENTS, PLACES, REACHES, Neighbourhood, moments, to_nearest
from lformer.evaluate import evaluate, predict
from lformer.parts import PanelPart, Prepared, Splits, Targets, splits_of

NAN = float("nan")


def made(at: str, numbers: bool, n: int = 60) -> Splits[PanelPart]:
    """Ragged noise around a slow wave, with holes; asked for its level, or whether that is above 0."""
    rng = np.random.default_rng(0)
    series, level = [], []
    for _ in range(n):
        clock = rng.exponential(1.0, rng.integers(20, 40)).cumsum()
        wave = 2 * np.sin(clock / 6 + 6 * rng.random())
        x = np.column_stack([wave, -wave]) + rng.normal(size=(len(clock), 2))
        x[rng.random(x.shape) < 0.3] = NAN
        series.append((clock, x))
        level.append(wave if at == "rows" else wave.mean(keepdims=True))
    y = np.concatenate(level)
    values = y[:, None].astype(np.float32) if numbers else (y > 0).astype(np.int64)
    parts = {"train": np.arange(40), "validation": np.arange(40, n), "test": np.arange(40, n)}
    prepared = Prepared(panel=Panel.from_list(series), targets=Targets(values=values, at=at), **parts)  # type: ignore[arg-type]
    return splits_of(prepared, "toy", "", seed=0)


def task_of(at: str, numbers: bool) -> tasks.Task:
    if numbers:
        return tasks.regress_points(1) if at == "rows" else tasks.regress(1)
    return tasks.classify(2, "step" if at == "rows" else "series")


def build(name: str, found: Splits[PanelPart], task: tasks.Task) -> Any:
    entry = BASELINES[name]
    return entry.model(entry.config(inputs=found.spec.inputs, outputs=task.outputs, answer=task.answer))


@pytest.mark.parametrize("at", ["series", "rows"])
@pytest.mark.parametrize("numbers", [False, True])
def test_they_learn_and_nothing_is_worse_than_the_constant(at: str, numbers: bool) -> None:
    found, task = made(at, numbers), task_of(at, numbers)
    scores = {}
    for name in ("constant", "ridge" if numbers else "logistic", "boosting"):
        model = build(name, found, task)
        model.fit(found.train, task)
        scores[name] = evaluate(model, task, found.test, batch_size=7)["mse" if numbers else "cross_entropy"]
        again = pickle.loads(pickle.dumps(model))
        answers, alone = predict(model, task, found.test), predict(again, task, found.test, batch_size=1)
        assert torch.allclose(
            torch.hstack([a.flatten() for a in answers]), torch.hstack([a.flatten() for a in alone]), atol=1e-4
        )
    constant, *others = scores.values()
    assert max(others) < 0.8 * constant


def test_a_constant_says_the_shares_or_the_mean() -> None:
    for numbers in (False, True):
        found, task = made("rows", numbers), task_of("rows", numbers)
        model = build("constant", found, task)
        model.fit(found.train, task)
        y = found.train.compact().targets.values
        answers = torch.cat(predict(model, task, found.test))
        expected = y.mean(axis=0) if numbers else np.log(np.bincount(y) / len(y))
        np.testing.assert_allclose(answers.numpy(), np.broadcast_to(expected, answers.shape), atol=1e-5)


def test_a_line_holds_a_row_and_what_is_beside_it() -> None:
    batch = IrregularBatch.build([[[1.0, NAN], [NAN, 5.0], [4.0, 7.0]]], [[0.0, 1.0, 3.0]], dtype=torch.float64)
    rows = Neighbourhood()
    rows.fit(lambda: [batch])
    table = rows.table(batch)
    P = len(PLACES)
    at = [2 * PLACES.index(place) for place in (-1, 0, 1)]
    assert table[1, at].tolist() == [1, 2, 4]  # on the line
    assert table[1, [k + 1 for k in at]].tolist() == [5, 5, 7]
    around = table[1, 2 * P : 2 * P + 4]
    np.testing.assert_allclose(around, [7 / 3, 17 / 3, np.std([1, 2, 4]), np.std([5, 5, 7])], rtol=1e-6)
    ages = table[:, 2 * P + 4 * len(REACHES) :][:, :2]
    assert ages.tolist() == [[0, 1], [1, 0], [0, 0]]
    assert table[1, -P:].tolist() == [-1, -1, -1, -1, 0, 2, 2, 2, 2]


def test_means_and_nearest_observations_are_those_of_a_loop() -> None:
    rng = np.random.default_rng(0)
    rows, times = 1e4 + rng.normal(size=(30, 2)), rng.exponential(size=30).cumsum()
    for i, found in enumerate(moments(rows, 4)):
        near = rows[max(i - 4, 0) : i + 5]
        np.testing.assert_allclose(found, [*near.mean(axis=0), *near.std(axis=0)], rtol=1e-9)
    values = np.where(rng.random((30, 2)) < [0.2, 0.0], rows, NAN)
    seen = times[~np.isnan(values[:, 0])]
    np.testing.assert_allclose(to_nearest(times, values)[:, 0], np.abs(times[:, None] - seen).min(axis=1))
    assert np.isnan(to_nearest(times, values)[:, 1]).all()


def test_neither_padding_nor_order_nor_origin_changes_a_line() -> None:
    values, times, lengths = irregular_arrays(6, 12, 3, seed=1)
    times = (times * 64).round() / 64  # so that moving the origin is exact
    batch = IrregularBatch.build(values, times, lengths=lengths, dtype=torch.float64)
    rows = Neighbourhood()
    rows.fit(lambda: [batch])
    known = np.split(rows.table(batch), np.cumsum(lengths.numpy())[:-1])
    padded = torch.cat([values, torch.full((6, 7, 3), 1e3).double()], 1)
    later = torch.cat([times, torch.full((6, 7), -5.0)], 1) + 2.0**30
    order = torch.tensor([3, 1, 5, 0, 4, 2])
    other = IrregularBatch.build(padded[order], later[order], lengths=lengths[order], dtype=torch.float64)
    np.testing.assert_array_equal(rows.table(other), np.concatenate([known[i] for i in order]))


def test_many_channels_are_read_by_their_components() -> None:
    rng = np.random.default_rng(0)
    strong = rng.normal(size=(5, 9, 2)) @ rng.normal(size=(2, 100)) + 3
    frames = torch.from_numpy(strong + 1e-3 * rng.normal(size=strong.shape)).reshape(5, 9, 10, 10)
    batch = IrregularBatch.build(frames, torch.rand(5, 9).cumsum(1), dtype=torch.float64)
    rows = Neighbourhood()
    rows.fit(lambda: [batch])
    assert rows.components is not None
    assert rows.components.shape == (100, COMPONENTS)
    back = rows._whole(strong.reshape(-1, 100)) @ rows.components[:, :2] @ rows.components[:, :2].T + rows.mean
    np.testing.assert_allclose(back, strong.reshape(-1, 100), atol=0.02)
    assert len(rows.table(batch)) == 45


@pytest.mark.parametrize(
    ("name", "numbers", "says"),
    [("logistic", True, "their linear model is ridge"), ("ridge", False, "their linear model is logistic")],
)
def test_a_linear_model_for_other_targets_is_named(name: str, numbers: bool, says: str) -> None:
    found, task = made("series", numbers), task_of("series", numbers)
    with pytest.raises(ValueError, match=says):
        build(name, found, task).fit(found.train, task)


class Spectrum:
    """In place of aeon's convolutions, which take half a minute to compile; `test_defaults_methods` runs those."""

    def __init__(self, random_state: int) -> None:
        assert random_state == 0

    def fit(self, X: Any, y: Any = None) -> Any:
        return self

    def transform(self, X: Any) -> Any:
        return np.abs(np.fft.rfft(X)).reshape(len(X), -1)


@pytest.mark.parametrize("numbers", [False, True])
def test_minirocket_tells_series_apart_by_their_shape(numbers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minirocket, "aeon", lambda module, name: Spectrum)
    rng = np.random.default_rng(0)
    fast = rng.random(60) < 0.5
    clocks = [rng.exponential(1.0, rng.integers(30, 40)).cumsum() for _ in fast]
    panel = Panel.from_list(
        [(t, np.sin((3 if f else 1) * t / 2 + 6 * rng.random())[:, None]) for t, f in zip(clocks, fast, strict=True)]
    )
    values = fast[:, None].astype(np.float32) if numbers else fast.astype(np.int64)
    parts = {"train": np.arange(40), "validation": np.arange(40, 60), "test": np.arange(40, 60)}
    found = splits_of(Prepared(panel=panel, targets=Targets(values=values, at="series"), **parts), "toy", "", seed=0)
    task = task_of("series", numbers)
    model = build("minirocket", found, task)
    model.fit(found.train, task)
    scores = evaluate(model, task, found.test)
    assert scores["mse"] < 0.15 if numbers else scores["accuracy"] > 0.85
    assert len(model.grid) == max(len(clock) for clock in clocks[:40])


def test_what_minirocket_cannot_read_is_refused() -> None:
    config = BASELINES["minirocket"].config
    for wrong, says in (
        ({"answer": "step"}, "reads whole series"),
        ({"statics": 2}, "reads no static covariates"),
        ({"steps": 8}, "steps must be at least 9"),
    ):
        with pytest.raises(ValueError, match=says):
            config(inputs=3, outputs=2, **wrong)


def test_static_covariates_stand_in_every_line() -> None:
    found = made("rows", False)
    covered = replace(found.train, static=np.arange(40, dtype=np.float32)[:, None])
    entry = BASELINES["boosting"]
    model = entry.model(entry.config(inputs=2, outputs=2, answer="step", statics=1))
    model.look(covered)  # type: ignore[operator]
    batch = covered.batch(np.array([3, 1]))
    lines = model.features(batch)  # type: ignore[operator]
    assert lines[:, -1].tolist() == [3.0] * int(batch.lengths[0]) + [1.0] * int(batch.lengths[1])


def test_a_series_without_rows_has_no_line() -> None:
    found, task = made("rows", True), task_of("rows", True)
    model = build("ridge", found, task)
    model.fit(found.train, task)
    batch = IrregularBatch.from_series([(torch.zeros(0), torch.zeros(0, 2)), (torch.arange(3.0), torch.ones(3, 2))])
    answers = model(batch)
    assert answers.shape == (2, 3, 1)
    assert (answers[0] == 0).all()
    assert (answers[1] != 0).all()
