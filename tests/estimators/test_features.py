"""The rows a model reads, by hand, and training on less than there is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lformer import LFormer, LFormerClassifier, LFormerRegressor, Panel
from lformer.estimators import base
from lformer.estimators.features import Features
from lformer.estimators.hiding import HidingPart, hide_some
from lformer.parts import Targets


def two_series() -> Panel:
    """Uneven times, missing values, a channel that one series never has."""
    nan = np.nan
    return Panel.from_list([
        ([10.0, 11.0, 14.0], [[1.0, nan], [nan, 6.0], [3.0, nan]]),
        ([0.0, 2.0], [[nan, nan], [5.0, nan]]),
    ])  # fmt: skip


def test_a_row_holds_latest_value_observed_age_and_pace() -> None:
    panel = two_series()
    fitted = Features.fit(panel)
    rows = fitted.apply(panel).values
    assert rows.shape == (5, fitted.width) == (5, 3 * 2 + 2)
    a, b = fitted.scale
    first = (np.array([1.0, 1.0, 3.0, 0.0, 5.0]) - fitted.shift[0]) / a
    first[3] = 0  # the second series has seen nothing of it yet
    np.testing.assert_allclose(rows[:, 0], first, rtol=1e-5)
    np.testing.assert_allclose(rows[:, 1], [0, (6 - fitted.shift[1]) / b, (6 - fitted.shift[1]) / b, 0, 0], atol=1e-6)
    assert rows[:, 2:4].tolist() == [[1, 0], [0, 1], [1, 0], [0, 0], [1, 0]]
    assert fitted.interval == 2.0  # the median of 1, 3, 2
    assert fitted.span == 3.0  # of 4 and 2
    age = np.log1p(np.array([[0, 3], [1, 0], [0, 3], [3, 3], [0, 5]]) / 2) / np.log1p(3 / 2)
    np.testing.assert_allclose(rows[:, 4:6], age, rtol=1e-5, atol=1e-7)
    pace = np.log1p(np.array([[0, 0], [1, 1], [3, 4], [0, 0], [2, 2]]) / 2)
    np.testing.assert_allclose(rows[:, 6:], pace, rtol=1e-5, atol=1e-7)


def test_one_wild_value_moves_the_scale_of_nothing_else() -> None:
    x = np.random.default_rng(0).standard_normal((1000, 1))
    wild = x.copy()
    wild[0] = 1e9
    calm, upset = (Features.fit(Panel.from_list([(np.arange(1000.0), values)])) for values in (x, wild))
    assert abs(upset.scale[0] / calm.scale[0] - 1) < 0.05
    assert upset.apply(Panel.from_list([([0.0], [[1e9]])])).values[0, 0] < 6  # it counts as the bound
    assert calm.apply(Panel.from_list([([0.0], [[2.0]])])).values[0, 0] == pytest.approx(
        (2.0 - calm.shift[0]) / calm.scale[0], rel=1e-5
    )


def test_a_channel_that_is_nearly_always_one_number_keeps_its_exceptions() -> None:
    x = np.zeros((1000, 1))
    x[:2] = 1.0
    fitted = Features.fit(Panel.from_list([(np.arange(1000.0), x)]))
    rows = fitted.apply(Panel.from_list([([0.0, 1.0], [[0.0], [1.0]])])).values
    assert np.isfinite(rows).all()
    assert rows[1, 0] > rows[0, 0] + 0.5


def test_what_is_hidden_differs_from_epoch_to_epoch_and_repeats() -> None:
    rng = np.random.default_rng(1)
    panel = Panel.from_list([(np.sort(rng.random(n)), rng.standard_normal((n, 3))) for n in rng.integers(5, 30, 40)])
    features = Features.fit(panel)
    part = HidingPart(
        features.apply(panel), Targets(values=np.arange(40.0)[:, None], at="series"), np.arange(40), 7,
        series=panel, features=features, share=0.3,
    )  # fmt: skip

    def rows(epoch: int) -> list[list[float]]:
        found = sorted(part.training_batches(8, epoch), key=lambda b: float(b.targets.sum()))  # type: ignore[union-attr]
        return [b.values.flatten().tolist() for b in found]

    def left(epoch: int) -> dict[int, int]:
        """How many rows of each series an epoch shows."""
        pairs = [zip(b.index.tolist(), b.lengths.tolist(), strict=True) for b in part.training_batches(8, epoch)]  # type: ignore[union-attr]
        return {series: length for batch in pairs for series, length in batch}

    assert rows(0) == rows(0)
    assert left(0) != left(1)
    asked = np.concatenate([b.targets.flatten() for b in part.training_batches(8, 0)])  # type: ignore[union-attr]
    assert sorted(asked.tolist()) == list(range(40))
    assert next(b.values.shape for b in part.batches(40)) == (40, panel.lengths.max(), features.width)


def test_hidden_shares_by_count() -> None:
    rng = np.random.default_rng(2)
    panel = Panel.from_list([(np.arange(50.0), rng.standard_normal((50, 4))) for _ in range(400)])
    left = hide_some(panel, 0.2, rng)
    assert left.observed is not None
    kept = left.observed.sum() / panel.values.size
    assert kept == pytest.approx(0.8**3, abs=0.02)  # neither channel, row nor observation
    never = 1 - np.mean([left[[i]].compact().observed.any(axis=0).mean() for i in range(400)])  # type: ignore[union-attr]
    assert never == pytest.approx(0.2, abs=0.03)
    assert (left.values[~left.observed] == 0).all()
    assert (left.lengths >= 1).all()
    assert np.array_equal(left.first_times(), panel.first_times())
    same = hide_some(panel, 0.0, rng)
    assert np.array_equal(same.values, panel.values)


@pytest.mark.parametrize("kind", [LFormerClassifier, LFormerRegressor])
def test_hiding_trains_and_is_checked(kind: type) -> None:
    rng = np.random.default_rng(3)
    X = [(np.sort(rng.random(6)), rng.normal(2 * (i % 2), 1, (6, 2))) for i in range(30)]
    y = np.arange(30) % 2
    small = {"width": 8, "heads": 1, "depth": 1, "max_epochs": 2, "random_state": 0, "device": "cpu"}
    told = [np.asarray(kind(**small, hide=h).fit(X, y).predict(X), float) for h in (0.0, 0.3)]
    assert np.isfinite(told[1]).all()
    with pytest.raises(ValueError, match="hide must be at least 0 and below 1; got 1"):
        kind(**small, hide=1.0).fit(X, y)


def test_members_are_trained_apart_and_answer_together() -> None:
    rng = np.random.default_rng(4)
    X = [(np.sort(rng.random(6)), rng.normal(2 * (i % 2), 1, (6, 2))) for i in range(30)]
    y = rng.standard_normal(30)
    small = {"width": 8, "heads": 1, "depth": 1, "max_epochs": 3, "random_state": 0, "device": "cpu"}
    three = LFormerRegressor(**small, members=3).fit(X, y)
    one = LFormerRegressor(**small).fit(X, y)
    alone = []
    for model in three.model_.models:  # type: ignore[union-attr]
        one.model_ = model
        alone.append(one.predict(X))
    assert not np.allclose(alone[0], alone[1])
    np.testing.assert_allclose(three.predict(X), np.mean(alone, axis=0), atol=1e-5)
    assert [row["member"] for row in three.history_] == [0] * 3 + [1] * 3 + [2] * 3
    again = LFormerRegressor(**small, members=3).fit(X, y)
    assert np.array_equal(again.predict(X), three.predict(X))


def test_every_member_has_its_own_weights_and_validation_part(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[bytes, tuple[int, ...]]] = []
    train = base.fit

    def watch(model: LFormer, task: Any, splits: Any, *args: Any, **kwargs: Any) -> Any:
        begun.append((model.head[0].weight.detach().numpy().tobytes(), tuple(splits.validation.members)))  # type: ignore[index, union-attr]
        return train(model, task, splits, *args, **kwargs)

    monkeypatch.setattr(base, "fit", watch)
    rng = np.random.default_rng(6)
    X = [(np.sort(rng.random(4)), rng.standard_normal((4, 2))) for _ in range(40)]
    LFormerRegressor(width=8, heads=1, depth=1, max_epochs=1, members=3, random_state=0).fit(X, rng.standard_normal(40))
    assert len({weights for weights, _ in begun}) == len({held for _, held in begun}) == 3


def test_a_warm_start_goes_on_with_every_member() -> None:
    rng = np.random.default_rng(5)
    X = [(np.sort(rng.random(6)), rng.standard_normal((6, 2))) for _ in range(30)]
    y = rng.standard_normal(30)
    model = LFormerRegressor(width=8, heads=1, depth=1, max_epochs=1, members=2, random_state=0, warm_start=True)
    before = model.fit(X, y).model_.models  # type: ignore[union-attr]
    weights = [m.head[0].weight.detach().clone() for m in before]  # type: ignore[index]
    after = model.fit(X, y).model_.models  # type: ignore[union-attr]
    assert after == before
    assert all(not np.allclose(w, m.head[0].weight.detach()) for w, m in zip(weights, after, strict=True))  # type: ignore[index]
