"""Training on less than there is, and models that answer together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from lformer import LFormer, LFormerClassifier, LFormerRegressor
from lformer.estimators import members as training


@pytest.mark.parametrize("kind", [LFormerClassifier, LFormerRegressor])
def test_dropping_observations_trains_and_is_checked(kind: type) -> None:
    rng = np.random.default_rng(3)
    X = [(np.sort(rng.random(6)), rng.normal(2 * (i % 2), 1, (6, 2))) for i in range(30)]
    y = np.arange(30) % 2
    small = {"width": 8, "heads": 1, "depth": 1, "max_epochs": 2, "random_state": 0, "device": "cpu"}
    told = [np.asarray(kind(**small, drop_fraction=h).fit(X, y).predict(X), float) for h in (0.0, 0.3)]
    assert np.isfinite(told[1]).all()
    with pytest.raises(ValueError, match="drop_fraction must be at least 0 and below 1; got 1"):
        kind(**small, drop_fraction=1.0).fit(X, y)


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
    train = training.fit

    def watch(model: LFormer, task: Any, splits: Any, *args: Any, **kwargs: Any) -> Any:
        begun.append((model.head[0].weight.detach().numpy().tobytes(), tuple(splits.validation.members)))  # type: ignore[index, union-attr]
        return train(model, task, splits, *args, **kwargs)

    monkeypatch.setattr(training, "fit", watch)
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
    after = model.set_params(lr=1e-5).fit(X, y).model_.models  # type: ignore[union-attr]
    for old, new in zip(before, after, strict=True):
        assert torch.allclose(old.head[0].weight, new.head[0].weight, atol=1e-3)  # type: ignore[index,arg-type]
        assert not torch.equal(old.head[0].weight, new.head[0].weight)  # type: ignore[index,arg-type]
