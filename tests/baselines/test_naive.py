"""The rules that need no training: by hand, against a slow loop, and scored like any other model."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import irregular_arrays, relative_error
from safetensors.torch import load_file, save_file
from torch import Tensor

from lformer import IrregularBatch, Panel, tasks
from lformer.baselines import BASELINES, FittedAtOnce, NaiveConfig
from lformer.evaluate import evaluate, predict
from lformer.hiding import hide, random_rows
from lformer.parts import PanelPart, Prepared, splits_of

NAN = float("nan")
TIGHT = 1e-10
RULES = ["last-value", "series-mean", "linear", "linear-interpolation", "cubic-spline"]
AHEAD = ("linear-interpolation", "cubic-spline")  # which read the future
WITHOUT_FIT = [name for name in RULES if name != "linear"]
every_rule = pytest.mark.parametrize("name", RULES)
every_answer = pytest.mark.parametrize("answer", ["step", "query"])


@dataclass(frozen=True)
class Batched:
    """One batch as a part."""

    batch: IrregularBatch

    def batches(self, size: int) -> Iterator[IrregularBatch]:
        for start in range(0, len(self.batch), size):
            yield self.batch[start : start + size]


def build(name: str, answer: str, channels: int = 3) -> Any:
    return BASELINES[name].model(BASELINES[name].config(inputs=channels, outputs=channels, answer=answer))


def task_of(answer: str, channels: int = 3, **units: Any) -> tasks.Task:
    return tasks.records("extrapolate", channels, answer, **units)  # type: ignore[arg-type]


def arrays(answer: str, B: int = 6, L: int = 15, seed: int = 0) -> dict[str, Tensor]:
    """Ragged series with uneven times and holes, queries before, at, between and behind rows; targets at random."""
    g = torch.Generator().manual_seed(seed)
    values, times, lengths = irregular_arrays(B, L, 3, seed)
    times = (times * 64).round() / 64  # so that moving the origin is exact
    made = {"values": values, "times": times, "lengths": lengths}
    N = L
    if answer == "query":
        between = times[:, :1] + torch.rand(B, 4, generator=g) * (times[:, -1:] - times[:, :1])
        asked = torch.cat([times[:, :1] - 1, times[:, -1:] + 5, times[:, L // 2 :][:, :2], between], dim=1)
        made["query_times"] = (asked * 64).round() / 64
        N = asked.shape[1]
    made["targets"] = torch.randn(B, N, 3, generator=g, dtype=torch.float64)
    made["targets_observed"] = torch.rand(B, N, 3, generator=g) < 0.8
    if answer == "step":
        made["targets_observed"] &= (torch.arange(L) < lengths[:, None])[..., None]
    return made


def whole(made: dict[str, Tensor], **change: Any) -> IrregularBatch:
    return IrregularBatch.build(**{"dtype": torch.float64} | made | change)  # type: ignore[arg-type]


def fitted(name: str, answer: str, batch: IrregularBatch, **units: Any) -> Any:
    model = build(name, answer)
    model.fit(Batched(batch), task_of(answer, **units))
    return model


def valid_answers(model: Any, batch: IrregularBatch) -> Tensor:
    y = model(batch)
    return torch.where(batch.valid[..., None], y, 0.0) if model.config.answer == "step" else y


# --- known answers ---


def stay(**more: Any) -> IrregularBatch:
    """Two channels and three series: one with holes, one of a single row, one without any."""
    return IrregularBatch.build(
        [
            [[2.0, NAN], [NAN, NAN], [8.0, NAN], [NAN, 5.0]],
            [[NAN, 3.0], [9.0, 9.0], [9.0, 9.0], [9.0, 9.0]],
            [[9.0, 9.0], [9.0, 9.0], [9.0, 9.0], [9.0, 9.0]],
        ],
        [[10.0, 11.0, 13.0, 17.0], [4.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]],
        lengths=[4, 1, 0],
        dtype=torch.float64,
        **more,
    )


AT_ROWS: dict[str, list[list[float]]] = {
    "last-value": [[2, -10], [2, -10], [8, -10], [8, 5]],
    "series-mean": [[2, -10], [2, -10], [5, -10], [5, 5]],
    "linear-interpolation": [[2, 5], [4, 5], [8, 5], [8, 5]],
    "cubic-spline": [[2, 5], [4, 5], [8, 5], [16, 5]],
}
AT_QUERIES: dict[str, list[list[float]]] = {  # at 9, 10, 12, 13, 16, 17 and 99
    "last-value": [[-20, -10], [2, -10], [2, -10], [8, -10], [8, -10], [8, 5], [8, 5]],
    "series-mean": [[-20, -10], [2, -10], [2, -10], [5, -10], [5, -10], [5, 5], [5, 5]],
    "linear-interpolation": [[2, 5], [2, 5], [6, 5], [8, 5], [8, 5], [8, 5], [8, 5]],
    "cubic-spline": [[0, 5], [2, 5], [6, 5], [8, 5], [14, 5], [16, 5], [180, 5]],
}


@pytest.mark.parametrize("name", WITHOUT_FIT)
def test_answers_at_rows_by_hand(name: str) -> None:
    model = build(name, "step", channels=2)
    model.set_mean(torch.tensor([-20.0, -10.0]))
    y = model(stay())
    assert y.shape == (3, 4, 2)
    assert y[0].tolist() == AT_ROWS[name]
    assert y[1, 0].tolist() == [-20, 3]


@pytest.mark.parametrize("name", WITHOUT_FIT)
def test_answers_at_queries_by_hand(name: str) -> None:
    model = build(name, "query", channels=2)
    model.set_mean(torch.tensor([-20.0, -10.0]))
    asked = torch.tensor([[9.0, 10, 12, 13, 16, 17, 99], [3, 4, 5, 6, 7, 8, 9], [0, 1, 2, 3, 4, 5, 6]])
    y = model(stay(query_times=asked))
    assert y[0].tolist() == AT_QUERIES[name]
    before = [-20, 3] if name in AHEAD else [-20, -10]
    assert y[1].tolist() == [before, *[[-20, 3]] * 6]
    assert y[2].tolist() == [[-20, -10]] * 7


def test_the_training_mean_is_that_of_what_was_observed() -> None:
    targets, task = torch.zeros(3, 4, 2), task_of("step", channels=2)
    model = build("last-value", "step", channels=2)
    model.fit(Batched(replace(stay(), targets=targets)), task)
    assert model.mean.tolist() == [5, 4]
    observed = stay().observed & torch.tensor([True, False])
    model.fit(Batched(replace(stay(), targets=targets, observed=observed)), task)
    assert model.mean.tolist() == [5, 0]  # nothing to take a mean of


@every_answer
def test_the_mean_of_the_training_part_is_said_of_every_series(answer: str) -> None:
    asked = {"query_times": torch.tensor([[9.0, 12.5], [3.0, 4.0], [0.0, 1.0]])} if answer == "query" else {}
    batch = stay(**asked)
    moments = 2 if answer == "query" else 4
    model = build("train-mean", answer, channels=2)
    units = {"shift": [1.0, 0.0], "scale": [2.0, 4.0]}
    model.fit(Batched(replace(batch, targets=torch.zeros(3, moments, 2))), task_of(answer, channels=2, **units))
    assert model(batch).tolist() == [[[2.0, 1.0]] * moments] * 3  # means 5 and 4 in the units of the task


def test_a_spline_bends_between_observations_and_not_outside() -> None:
    asked = torch.tensor([[-1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 4.0]])
    batch = IrregularBatch.build([[[0.0], [1.0], [0.0]]], [[0.0, 1.0, 2.0]], query_times=asked, dtype=torch.float64)
    model = build("cubic-spline", "query", channels=1)
    model.set_mean(torch.zeros(1))
    expected = [-1.5, 0, 0.6875, 1, 0.6875, 0, -3]  # 1.5 t - 0.5 t³ up to the middle, and its mirror image
    assert model(batch)[0, :, 0].tolist() == pytest.approx(expected, abs=TIGHT)


# --- against a slow loop ---


def readable(batch: IrregularBatch, b: int, m: int, c: int) -> tuple[float, list[tuple[float, float]], int]:
    """The time of a moment, all observations (t, x) of a channel, and how many of them are not ahead of it."""
    rows = range(int(batch.lengths[b]))
    if batch.query_times is None:
        now, until = float(batch.times[b, m]), m + 1
    else:
        now = float(batch.query_times[b, m])
        until = sum(float(batch.times[b, r]) <= now for r in rows)
    seen = [r for r in rows if batch.observed[b, r, c]]
    found = [(float(batch.times[b, r]), float(batch.values[b, r, c])) for r in seen]
    return now, found, sum(r < until for r in seen)


def by_loop(name: str, batch: IrregularBatch, mean: Tensor, b: int, m: int, c: int) -> float:
    now, found, past = readable(batch, b, m, c)
    if name == "linear-interpolation" and found:
        if past == 0 or past == len(found):
            return found[0][1] if past == 0 else found[-1][1]
        (t0, x0), (t1, x1) = found[past - 1], found[past]
        return x0 + (x1 - x0) * (now - t0) / (t1 - t0) if t1 > t0 else x0
    if not past:
        return float(mean[c])
    return found[past - 1][1] if name != "series-mean" else float(np.mean([x for _, x in found[:past]]))


@pytest.mark.parametrize("name", [name for name in WITHOUT_FIT if name != "cubic-spline"])
@every_answer
@pytest.mark.parametrize("seed", range(3))
def test_it_equals_a_slow_loop(name: str, answer: str, seed: int) -> None:
    batch = whole(arrays(answer, seed=seed))
    model = fitted(name, answer, batch)
    y = model(batch)
    for b, n in enumerate(batch.lengths.tolist()):
        for m in range(n if answer == "step" else y.shape[1]):
            for c in range(3):
                assert float(y[b, m, c]) == pytest.approx(by_loop(name, batch, model.mean, b, m, c), abs=TIGHT)


def regression(batch: IrregularBatch, counted: Tensor, interval: float, c: int) -> tuple[Any, float]:
    """Coefficients of one channel, and the mean of the targets of which nothing was known, by lstsq over a loop."""
    rows, targets, unknown = [], [], []
    assert batch.targets is not None
    for b in range(len(batch)):
        for m in range(batch.targets.shape[1]):
            if not counted[b, m, c]:
                continue
            now, found, past = readable(batch, b, m, c)
            target = float(batch.targets[b, m, c])
            if not past:
                unknown.append(target)
                continue
            targets.append(target)
            rows.append(features(now, found[:past], interval))
    return np.linalg.lstsq(np.array(rows), np.array(targets), rcond=None)[0], float(np.mean(unknown))


def features(now: float, found: list[tuple[float, float]], interval: float) -> list[float]:
    return [found[-1][1], float(np.mean([x for _, x in found])), np.log1p((now - found[-1][0]) / interval), 1.0]


@every_answer
@pytest.mark.parametrize("given", ["none", "some", "all"])
def test_the_linear_rule_is_least_squares_over_what_was_not_given(answer: str, given: str) -> None:
    batch = whole(arrays(answer, B=12, seed=3))
    assert batch.targets_observed is not None
    shown = torch.rand(batch.targets_observed.shape, generator=torch.Generator().manual_seed(0)) < 0.5
    shown = torch.full_like(shown, given == "all") if given != "some" else shown
    batch = replace(batch, targets_given=shown)
    model = fitted("linear", answer, batch)
    counted = batch.targets_observed & ~shown if given == "some" else batch.targets_observed
    interval = float(batch.deltas[batch.deltas > 0].median())
    assert float(model.interval) == interval
    y = model(batch)
    for c in range(3):
        weights, unknown = regression(batch, counted, interval, c)
        for b, n in enumerate(batch.lengths.tolist()):
            for m in range(n if answer == "step" else y.shape[1]):
                now, found, past = readable(batch, b, m, c)
                expected = features(now, found[:past], interval) @ weights if past else unknown
                assert float(y[b, m, c]) == pytest.approx(expected, abs=1e-7)


@every_answer
def test_the_linear_rule_finds_a_linear_rule(answer: str) -> None:
    made = arrays(answer, B=40, seed=5)
    made["values"] = made["values"] * torch.tensor([1.0, 100.0, 0.01]) + torch.tensor([0.0, 5000.0, 7.0])
    batch = whole(made)
    known = build("linear", answer)
    known.set_mean(torch.tensor([3.0, 5000.0, 7.0]))
    known.interval.fill_(float(batch.deltas[batch.deltas > 0].median()))
    planted = torch.tensor([[0.7, 0.2, 0.0, 1.0, 4.0], [0.5, -0.5, 20.0, 3.0, -2.0], [0.0, 1.0, -0.01, 0.0, 0.1]])
    known.coefficients.copy_(planted)
    batch = replace(batch, targets=known(batch))
    model = fitted("linear", answer, batch)
    other = whole(arrays(answer, seed=77))
    assert relative_error(valid_answers(model, batch), valid_answers(known, batch)) < 1e-8
    assert relative_error(valid_answers(model, other), valid_answers(known, other)) < 1e-6
    assert relative_error(model.coefficients[:, :3], planted[:, :3].double()) < 1e-6


def test_series_that_count_more_weigh_more() -> None:
    made = arrays("step", B=4)
    batch = whole(made)
    weighted = fitted("linear", "step", replace(batch, weights=torch.tensor([1.0, 3.0, 2.0, 0.0])))
    repeated = fitted("linear", "step", whole({key: array[[0, 1, 1, 1, 2, 2]] for key, array in made.items()}))
    assert not torch.equal(weighted.mean, repeated.mean)  # the observed values of all series count alike
    assert weighted.interval == repeated.interval
    assert relative_error(valid_answers(weighted, batch), valid_answers(repeated, batch)) < 1e-6
    assert relative_error(valid_answers(fitted("linear", "step", batch), batch), valid_answers(repeated, batch)) > 1e-3


@every_answer
def test_systems_without_a_unique_solution_are_solved(answer: str) -> None:
    made = arrays(answer)
    made["values"][..., 0] = 1e6  # constant
    made["values"][..., 1] = NAN  # never observed
    made["targets_observed"][..., 2] = False  # nothing to learn from
    batch = whole(made)
    model = fitted("linear", answer, batch)
    y = model(batch)
    assert bool(torch.isfinite(y).all())
    counted = made["targets_observed"][..., 1]
    unknown = made["targets"][..., 1][counted].mean()
    assert relative_error(y[..., 1], unknown.expand(y.shape[:2])) < 1e-8
    assert relative_error(y[..., 2], model.mean[2].expand(y.shape[:2])) < 1e-8
    one = {
        key: array[:1, :1] if array.dim() > 1 else torch.ones_like(array[:1]) for key, array in arrays("step").items()
    }
    one = whole(one)
    assert bool(torch.isfinite(fitted("linear", "step", one)(one)).all())


@pytest.mark.parametrize("value", [0.1, 1e6 + 0.1, -1e-9])
def test_nothing_is_learned_from_rounding(value: float) -> None:
    made = arrays("step", B=40)
    made["values"] = torch.where(made["values"].isnan(), NAN, torch.tensor(value, dtype=torch.float64))
    model = fitted("linear", "step", whole(made))
    assert bool((model.mean != value).any())
    y = model(whole(made, values=made["values"] * 1.5))
    assert float(y.abs().max()) < 5  # as the targets are, however far from what was seen


# --- what must not matter ---


@every_rule
@every_answer
def test_neither_padding_nor_order_nor_origin_changes_anything(name: str, answer: str) -> None:
    made = arrays(answer)
    known = fitted(name, answer, whole(made))
    y = valid_answers(known, whole(made))

    B = len(made["lengths"])
    longer = {"values": torch.full((B, 9, 3), 1e3), "times": torch.full((B, 9), -5.0)}
    if answer == "step":
        longer |= {"targets": torch.full((B, 9, 3), NAN), "targets_observed": torch.zeros(B, 9, 3, dtype=torch.bool)}
    padded = whole({key: torch.cat([a, longer[key].to(a)], 1) if key in longer else a for key, a in made.items()})
    order = torch.tensor([3, 1, 5, 0, 4, 2])
    shuffled = whole({key: array[order] for key, array in made.items()})
    moved = whole(made | {key: made[key] + 2.0**30 for key in made.keys() & {"times", "query_times"}})
    dirty = replace(whole(made), observed=whole(made).observed | ~whole(made).valid[..., None])
    for other, back in ((padded, None), (shuffled, order.argsort()), (moved, None), (dirty, None)):
        for model in (known, fitted(name, answer, other)):
            again = valid_answers(model, other)[: len(y), : y.shape[1]]
            assert relative_error(again if back is None else again[back], y) < TIGHT


@every_rule
def test_the_unit_of_time_changes_nothing(name: str) -> None:
    made = arrays("query")
    seconds = made | {key: made[key] * 3600.0 for key in ("times", "query_times")}
    hours, other = whole(made), whole(seconds)
    assert relative_error(fitted(name, "query", other)(other), fitted(name, "query", hours)(hours)) < 1e-6


@every_rule
@every_answer
def test_only_interpolation_reads_the_future(name: str, answer: str) -> None:
    values, _, _ = irregular_arrays(2, 12, 3, seed=1)
    made = {"values": values, "times": torch.arange(12.0).double().expand(2, 12), "lengths": torch.tensor([12, 12])}
    N = 12
    if answer == "query":
        made["query_times"] = torch.arange(0.5, 12).double().expand(2, 12)
    model = fitted(name, answer, whole(made, targets=torch.randn(2, N, 3).double()))
    other = values.clone()
    other[:, 7:] = 9.0
    y, changed = model(whole(made)), model(whole(made, values=other))
    assert torch.equal(changed[:, :6], y[:, :6]) == (name not in AHEAD)
    assert relative_error(changed[:, 7:], y[:, 7:]) > 1e-3


@pytest.mark.parametrize("name", ["last-value", "linear-interpolation"])
@every_answer
def test_an_observation_is_answered_with_itself(name: str, answer: str) -> None:
    values, times, lengths = irregular_arrays(4, 12, 3, seed=2)
    times = times + torch.arange(12.0)  # no ties: of two observations at once a query takes the second
    asked = {"query_times": times} if answer == "query" else {}
    batch = IrregularBatch.build(values, times, lengths=lengths, dtype=torch.float64, **asked)
    model = build(name, answer)
    model.set_mean(torch.zeros(3))
    assert torch.equal(model(batch)[batch.observed], batch.values[batch.observed])


# --- as a model among others ---


def records(unobserved: str, n: int = 30) -> PanelPart:
    """Slow waves, sampled unevenly, with holes; a third of the rows is hidden."""
    rng = np.random.default_rng(0)
    series = []
    for length in rng.integers(3, 25, n):
        clock = 100 + rng.exponential(1.0, length).cumsum()
        waves = np.sin(clock[:, None] / [3.0, 9.0] + rng.normal(size=2)) + np.array([0.0, 50.0])
        waves[rng.random(waves.shape) < 0.2] = np.nan
        series.append((clock, waves))
    panel = Panel.from_list(series)
    shown, targets = hide(panel, random_rows(panel, 0.3, seed=0), unobserved)  # type: ignore[arg-type]
    parts = {name: np.arange(n) for name in ("train", "validation", "test")}
    return splits_of(Prepared(panel=shown, targets=targets, **parts), "waves", "interpolate", seed=0).train


@pytest.mark.parametrize("unobserved", ["rows", "query"])
@pytest.mark.parametrize("units", [{}, {"shift": [0.1, 50.0], "scale": [0.7, 0.7]}])
def test_it_is_scored_like_any_model(unobserved: str, units: dict[str, list[float]]) -> None:
    part, answer = records(unobserved), "step" if unobserved == "rows" else "query"
    task = tasks.records("interpolate", 2, answer, **units)  # type: ignore[arg-type]
    scores = {}
    for name in RULES:
        model = build(name, answer, channels=2)
        model.fit(part, task)
        scores[name] = evaluate(model, task, part, batch_size=7)
        assert scores[name]["mse"] >= 0
        if name in ("last-value", *AHEAD):
            assert scores[name]["mse"] < scores[name]["mse_unseen"]
        answers = predict(model, task, part)
        assert [y.shape[1] for y in answers] == [2] * len(part)
    unseen = {name: found["mse_unseen"] for name, found in scores.items()}
    scale = units["scale"][0] ** 2 if units else 1.0
    assert unseen["linear-interpolation"] < unseen["linear"] < unseen["last-value"] < 3 / scale
    assert unseen["linear"] < unseen["series-mean"]


@pytest.mark.parametrize("name", WITHOUT_FIT)
def test_rows_that_stay_empty_and_queries_are_answered_alike(name: str) -> None:
    found = []
    for unobserved, answer in (("rows", "step"), ("query", "query")):
        part, task = records(unobserved), tasks.records("interpolate", 2, answer)  # type: ignore[arg-type]
        model = build(name, answer, channels=2)
        model.fit(part, task)
        found.append(evaluate(model, task, part)["mse_unseen"])
    assert found[0] == pytest.approx(found[1], rel=1e-5)


@every_rule
@every_answer
def test_what_was_fitted_is_saved(name: str, answer: str, tmp_path: Path) -> None:
    batch = whole(arrays(answer))
    model, other = fitted(name, answer, batch, shift=[1.0, 2.0, 3.0], scale=[4.0, 5.0, 6.0]), build(name, answer)
    with pytest.raises(RuntimeError, match=r"learned nothing yet: call fit\(part, task\) first"):
        other(batch)
    save_file(model.state_dict(), tmp_path / "rule.safetensors")
    other.load_state_dict(load_file(tmp_path / "rule.safetensors"))
    assert torch.equal(other(batch), model(batch))
    model.fit(Batched(batch), task_of(answer))
    decoded = other(batch) * torch.tensor([4.0, 5.0, 6.0]) + torch.tensor([1.0, 2.0, 3.0])
    assert relative_error(decoded, model(batch)) < 1e-12


@every_rule
@every_answer
def test_empty_and_single_row_series_are_answered(name: str, answer: str) -> None:
    model = fitted(name, answer, whole(arrays(answer)))
    made = {key: array for key, array in arrays(answer, B=3, L=5).items() if "targets" not in key}
    for lengths, L in (([0, 0, 0], 0), ([0, 0, 0], 5), ([1, 1, 1], 1), ([0, 1, 5], 5)):
        change = {"values": made["values"][:, :L], "times": made["times"][:, :L], "lengths": torch.tensor(lengths)}
        y = model(whole(made | change))
        assert y.shape == (3, L if answer == "step" else 8, 3)
        assert bool(torch.isfinite(y).all())


@every_rule
def test_answers_are_as_precise_as_the_values(name: str) -> None:
    made = arrays("step")
    model = fitted(name, "step", whole(made))
    rough = model(whole(made, dtype=torch.float32))
    assert rough.dtype == torch.float32
    assert relative_error(rough, model(whole(made))) < 1e-6


def test_which_models_are_fitted_at_once() -> None:
    at_once = [name for name, baseline in BASELINES.items() if issubclass(baseline.model, FittedAtOnce)]
    assert at_once == ["train-mean", *RULES, "constant", "ridge", "logistic", "boosting", "minirocket"]
    assert all(not list(build(name, "step").parameters()) for name in RULES)


@pytest.mark.parametrize(
    ("choices", "says"),
    [
        ({"answer": "series"}, 'needs as many outputs as inputs and answer="step" or "query"; got 3 outputs, 3 inputs'),
        ({"outputs": 2}, "got 2 outputs, 3 inputs, answer='step'"),
        ({"answer": "token"}, "'series', 'step', 'query'; got 'token'"),
        ({"inputs": 0, "outputs": 0}, "inputs must be at least 1; got 0"),
    ],
)
def test_choices_that_make_no_sense_are_refused(choices: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        NaiveConfig(**{"inputs": 3, "outputs": 3} | choices)


@every_rule
def test_data_of_another_kind_are_refused(name: str) -> None:
    batch = whole(arrays("step"))
    model, part = build(name, "step"), Batched(batch)
    with pytest.raises(ValueError, match="asks for 3 outputs per query, and this model gives 3 per step"):
        model.fit(part, task_of("query"))
    with pytest.raises(ValueError, match="predicts values of the 3 channels; the targets of a row or query have shape"):
        model.fit(Batched(replace(batch, targets=batch.targets[..., 0])), task_of("step"))
    with pytest.raises(ValueError, match=r"built for rows of shape \(3,\); got \(2,\)"):
        model.fit(Batched(replace(batch, values=batch.values[..., :2])), task_of("step"))
    with pytest.raises(ValueError, match="has query_times"):
        model(whole(arrays("query")))
