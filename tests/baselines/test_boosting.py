"""Gradient boosting on summary features: what it reads, what it says of classes and of numbers."""

import copy
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from helpers import irregular_arrays, irregular_batch

from lformer import IrregularBatch, Panel, tasks
from lformer.baselines import BASELINES, Boosting, BoostingConfig
from lformer.evaluate import evaluate, predict
from lformer.parts import PanelPart, Prepared, Splits, Targets, splits_of

Array = np.ndarray[Any, Any]


def series(n: int, seed: int = 0) -> tuple[Panel, Array, Array]:
    """Ragged series with holes around a level and with a slope of their own; both, (n,)."""
    rng = np.random.default_rng(seed)
    level, slope = rng.normal(size=n), rng.normal(size=n)
    made = []
    for i in range(n):
        clock = 1000 + rng.exponential(1.0, rng.integers(2, 20)).cumsum()
        x = np.column_stack([level[i] + 0.3 * rng.normal(size=len(clock)), slope[i] * (clock - 1000)])
        x[rng.random(x.shape) < 0.2] = np.nan
        made.append((clock, x))
    return Panel.from_list(made), level, slope


def splits(panel: Panel, targets: Targets, task: str, static: Array | None = None) -> Splits[PanelPart]:
    cut = 2 * len(panel) // 3
    parts = {"train": np.arange(cut), "validation": np.arange(cut, len(panel)), "test": np.arange(cut, len(panel))}
    found = splits_of(Prepared(panel=panel, targets=targets, **parts), "toy", task, seed=0)
    if static is None:
        return found
    return replace(
        found,
        **{
            name: replace(getattr(found, name), static=static[members].astype(np.float32))
            for name, members in parts.items()
        },
    )


def fitted(found: Splits[PanelPart], task: tasks.Task, **choices: Any) -> Boosting:
    model = Boosting(BoostingConfig(**{"inputs": found.spec.inputs, "outputs": task.outputs, "max_iter": 60} | choices))
    model.fit(found.train, task)
    return model


def classes(n: int = 240, seed: int = 0) -> Splits[PanelPart]:
    """Three classes by level and slope, the third one rare."""
    panel, level, slope = series(n, seed)
    y = np.where((level > 0.8) & (slope > 0.5), 2, level > 0).astype(np.int64)
    return splits(panel, Targets(values=y, at="series"), "classify")


def test_it_beats_the_class_shares() -> None:
    found, task = classes(), tasks.classify(3)
    model = fitted(found, task)
    scores = evaluate(model, task, found.test, batch_size=17)
    share = np.bincount(found.train.targets.values[found.train.members], minlength=3) / len(found.train)
    y = found.test.targets.values[found.test.members]
    assert scores["accuracy"] > 0.8 > (y == share.argmax()).mean()
    assert scores["cross_entropy"] < 0.5 < -np.log(share[y]).mean()


def test_answers_are_log_probabilities() -> None:
    found = classes()
    answers = torch.stack(predict(fitted(found, tasks.classify(3)), tasks.classify(3), found.test))
    assert answers.shape == (len(found.test), 3)
    assert answers.dtype == torch.float32
    torch.testing.assert_close(answers.exp().sum(dim=1), torch.ones(len(found.test)))


@pytest.mark.parametrize("left", [[0, 1], [1, 2], [2]])
def test_a_class_that_training_lacks_is_unlikely_and_not_impossible(left: list[int]) -> None:
    found, task = classes(), tasks.classify(4)
    y = found.train.targets.values[found.train.members]
    members = found.train.members[np.isin(y, left)]
    model = Boosting(BoostingConfig(inputs=2, outputs=4, max_iter=20))
    model.fit(replace(found.train, panel=found.train.panel[np.isin(y, left)], members=members), task)
    answers = torch.stack(predict(model, task, found.test))
    assert bool(torch.isfinite(answers).all())
    missing = [k for k in range(4) if k not in left]
    assert float(answers[:, missing].exp().max()) < 1e-6
    scores = evaluate(model, task, found.test)
    assert 1 < scores["cross_entropy"] < 30


def test_several_numbers_are_predicted_in_the_units_of_the_task() -> None:
    panel, level, slope = series(300)
    values = np.column_stack([1000 + 50 * level, 0.01 * slope - 3]).astype(np.float32)
    values[::7, 1] = np.nan  # unknown, and marked so
    found = splits(panel, Targets(values=values, at="series", observed=~np.isnan(values)), "regress")
    task = tasks.regress(2, shift=(1000.0, -3.0), scale=(50.0, 0.01))
    model = fitted(found, task)
    scores = evaluate(model, task, found.test)
    assert scores["mse"] < 0.4  # of a variance of 1
    answers = task.decode(torch.stack(predict(model, task, found.test)))
    known = values[found.test.members]
    for k, deviation in enumerate((50, 0.01)):
        seen = ~np.isnan(known[:, k])
        error = answers[:, k].numpy()[seen] - known[seen, k]
        assert np.sqrt((error**2).mean()) < 0.7 * deviation


def test_static_covariates_are_features() -> None:
    panel, _, _ = series(200)
    static = np.random.default_rng(1).normal(size=(200, 2))
    targets = Targets(values=(static[:, 1] > 0).astype(np.int64), at="series")
    found, task = splits(panel, targets, "classify", static), tasks.classify(2)
    assert evaluate(fitted(found, task, statics=2), task, found.test)["auroc"] > 0.95
    assert evaluate(fitted(found, task), task, found.test)["auroc"] < 0.8
    model = fitted(found, task, statics=2)
    with pytest.raises(ValueError, match="needs 2 numbers of static covariates; the batch has none"):
        model(replace(found.test.batch(np.arange(3)), static=None))
    with pytest.raises(ValueError, match=r"needs 2 numbers of static covariates; the batch has \(1,\)"):
        model(replace(found.test.batch(np.arange(3)), static=torch.zeros(3, 1)))


def test_series_that_count_more_weigh_more() -> None:
    panel, level, _ = series(200)
    y = (level + np.random.default_rng(3).normal(size=200) > 0).astype(np.int64)
    weights = np.where(y == 1, 5.0, 1.0)
    task = tasks.classify(2)
    plain, heavy = (splits(panel, Targets(values=y, at="series", weights=w), "classify") for w in (None, weights))
    shares = [float(torch.stack(predict(fitted(f, task), task, f.test))[:, 1].exp().mean()) for f in (plain, heavy)]
    assert shares[1] > shares[0] + 0.1


def test_features_are_the_summaries_of_the_valid_rows() -> None:
    nan = float("nan")
    batch = IrregularBatch.build(
        [[[2.0, nan], [nan, 7.0], [8.0, nan]], [[1.0, 4.0], [9.0, 9.0], [9.0, 9.0]], [[9.0, 9.0]] * 3],
        [[10.0, 11.0, 13.0], [5.0, 5.0, 5.0], [0.0, 0.0, 0.0]],
        lengths=[3, 1, 0],
        static=[[0.5], [-1.0], [3.0]],
    )
    found = Boosting(BoostingConfig(inputs=2, outputs=2, statics=1)).features(batch)
    nothing = [0, nan, nan, nan, nan, nan]
    np.testing.assert_array_equal(
        found,
        [
            [2, 5, 8, 2, 8, 2, 1, 7, 7, 7, 7, nan, 0.5],
            [1, 1, 1, 1, 1, nan, 1, 4, 4, 4, 4, nan, -1.0],
            [*nothing, *nothing, 3.0],
        ],
    )


def test_neither_padding_nor_order_nor_origin_changes_anything() -> None:
    values, times, lengths = irregular_arrays(6, 12, 3, seed=1)
    times = (times * 64).round() / 64  # so that moving the origin is exact
    model = Boosting(BoostingConfig(inputs=3, outputs=2))

    def features(values: torch.Tensor, times: torch.Tensor, lengths: torch.Tensor) -> Array:
        return model.features(IrregularBatch.build(values, times, lengths=lengths, dtype=torch.float64))

    known, order = features(values, times, lengths), torch.tensor([3, 1, 5, 0, 4, 2])
    longer = (
        torch.cat([values, torch.full((6, 7, 3), 1e3).double()], 1),
        torch.cat([times, torch.full((6, 7), -5.0)], 1),
    )
    np.testing.assert_array_equal(features(*longer, lengths), known)
    np.testing.assert_array_equal(features(values[order], times[order], lengths[order]), known[order.numpy()])
    np.testing.assert_array_equal(features(values, times + 2.0**30, lengths), known)
    batch = IrregularBatch.build(values, times, lengths=lengths, dtype=torch.float64)
    np.testing.assert_array_equal(
        model.features(replace(batch, observed=batch.observed | ~batch.valid[..., None])), known
    )


def test_every_fit_is_the_same_and_can_be_copied_and_pickled() -> None:
    found, task = classes(), tasks.classify(3)
    batch = found.test.batch(np.arange(20))
    model, again = fitted(found, task), fitted(found, task)
    assert torch.equal(model(batch), again(batch))
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(batch), model(batch))
    assert list(model.parameters()) == []


@pytest.mark.parametrize("n", [6, 45])
def test_few_series_are_enough(n: int) -> None:
    found, task = classes(n, seed=2), tasks.classify(3)
    assert bool(torch.isfinite(torch.stack(predict(fitted(found, task), task, found.test))).all())


def test_empty_series_and_a_channel_without_values_are_read() -> None:
    found, task = classes(), tasks.classify(3)
    batch = IrregularBatch.from_series([(torch.zeros(0), torch.zeros(0, 2)), (torch.arange(3.0), torch.ones(3, 2))])
    assert bool(torch.isfinite(fitted(found, task)(batch)).all())
    panel = found.train.panel
    silent = replace(panel, observed=panel.observed & np.array([True, False]))  # type: ignore[operator]
    model = Boosting(BoostingConfig(inputs=2, outputs=3, max_iter=5))
    model.fit(replace(found.train, panel=silent), task)
    assert model(batch).shape == (2, 3)


def test_frames_are_channels() -> None:
    frames = IrregularBatch.build(torch.rand(4, 6, 3, 3), torch.rand(4, 6).cumsum(1))
    assert Boosting(BoostingConfig(inputs=9, outputs=1)).features(frames).shape == (4, 54)


def test_what_it_cannot_do_is_refused() -> None:
    entry = BASELINES["boosting"]
    with pytest.raises(ValueError, match='answer must be "series" or "step"; got "query"'):
        entry.config(inputs=3, outputs=2, answer="query")
    with pytest.raises(ValueError, match="outputs must be at least 1; got 0"):
        entry.config(inputs=3, outputs=0)
    model = entry.model(entry.config(inputs=3, outputs=2))
    with pytest.raises(RuntimeError, match=r"learned nothing yet: call fit\(part, task\) first"):
        model(irregular_batch())
    with pytest.raises(ValueError, match="asks for 5 outputs per series, and this model gives 2"):
        model.fit(classes().train, tasks.classify(5))  # type: ignore[operator]
    with pytest.raises(ValueError, match=r"built for rows of shape \(3,\); got \(2,\)"):
        model.fit(classes().train, tasks.classify(2))  # type: ignore[operator]
    values = np.zeros((30, 1), np.float32)
    nothing = Targets(values=values, at="series", observed=np.zeros(values.shape, bool))
    with pytest.raises(ValueError, match="no target of the training part counts"):
        fitted(splits(series(30)[0], nothing, "regress"), tasks.regress(1))
