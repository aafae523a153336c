"""Trees beside a network that predicts at rows: fitted on the values around each row, saved and exported with it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier

from lformer import LFormerPointClassifier, LFormerPointRegressor, Panel, load
from lformer.estimators.tree_fitting import TreeFitter, _fill
from lformer.evaluate import evaluate
from lformer.nn.ensemble import Ensemble
from lformer.nn.trees import FOR_ROWS, Trees

SMALL: dict[str, Any] = {
    "width": 8, "depth": 1, "heads": 2, "max_epochs": 2, "random_state": 0, "device": "cpu", "members": 1,
}  # fmt: skip


def ragged(n: int, seed: int = 0) -> Panel:
    """Uneven times, ragged lengths, missing values, a channel that some series never saw."""
    rng = np.random.default_rng(seed)
    series = []
    for i in range(n):
        length = int(rng.integers(2, 40))
        values = rng.normal(size=(length, 2))
        values[rng.random((length, 2)) < 0.3] = np.nan
        if i % 7 == 0:
            values[:, 1] = np.nan
        series.append((np.cumsum(rng.exponential(size=length)), values))
    return Panel.from_list(series)


def corner(X: Panel) -> list[Any]:
    """What two comparisons find: whether both channels were last seen above a threshold."""
    found = []
    for _, values in X:
        latest = np.zeros(2)
        rows = []
        for row in values:
            latest = np.where(np.isnan(row), latest, row)
            rows.append(bool((latest > 0.3).all()))
        found.append(np.array(rows))
    return found


@pytest.fixture(scope="module")
def X() -> Panel:
    return ragged(160)


@pytest.fixture(scope="module")
def classifier(X: Panel) -> LFormerPointClassifier:
    return LFormerPointClassifier(**SMALL).fit(X, corner(X))


def test_larger_trees_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(1)
    table = rng.normal(size=(900, 4)).astype(np.float32)
    table[rng.random(table.shape) < 0.2] = np.nan
    y = (np.nan_to_num(table[:, 0]) > 0).astype(int) + 2 * (np.nan_to_num(table[:, 1] * table[:, 2]) > 0)
    grown: Any = HistGradientBoostingClassifier(
        max_iter=8, max_leaf_nodes=FOR_ROWS.leaves, max_depth=FOR_ROWS.depth, min_samples_leaf=5
    ).fit(table, y)
    trees = Trees(4, 4, 8, FOR_ROWS)
    _fill(trees, grown, [0, 1, 2, 3])
    assert np.allclose(trees(torch.from_numpy(table)).numpy(), grown.decision_function(table), atol=1e-5)


def test_a_large_table_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    trees, table = Trees(3, 2, 5, FOR_ROWS), torch.randn(50, 3)
    trees.feature.random_(0, 3)
    trees.value.normal_()
    whole = trees(table)
    monkeypatch.setattr("lformer.nn.trees.MOST", 70)  # seven lines at a time
    assert torch.equal(trees(table), whole)


def test_they_find_what_a_short_training_does_not(X: Panel, classifier: LFormerPointClassifier) -> None:
    new = ragged(100, seed=5)
    alone = LFormerPointClassifier(trees=False, **SMALL).fit(X, corner(X))
    assert float(classifier.model_.trees.weight) > 0  # type: ignore[union-attr, arg-type]
    assert classifier.score(new, corner(new)) > alone.score(new, corner(new)) + 0.05
    assert classifier.validation_score_ > alone.validation_score_  # accuracy


def test_numbers_of_rows(X: Panel) -> None:
    y = [np.column_stack([truth * 4.0 + 100, np.where(np.arange(len(truth)) % 3, np.nan, 1.0)]) for truth in corner(X)]
    model = LFormerPointRegressor(**SMALL).fit(X, y)
    alone = LFormerPointRegressor(trees=False, **SMALL).fit(X, y)
    assert float(model.model_.trees.weight) > 0  # type: ignore[union-attr, arg-type]
    assert model.score(X, y) > alone.score(X, y) + 0.05


def test_the_score_is_that_of_the_mixture(X: Panel, monkeypatch: pytest.MonkeyPatch) -> None:
    real, seen = TreeFitter.mix, []

    def watched(self: TreeFitter) -> dict[str, float]:
        found = real(self)
        assert found == evaluate(self.model, self.task, self.splits.validation, self.batch_size)
        seen.append(found[self.task.monitor])
        return found

    monkeypatch.setattr(TreeFitter, "mix", watched)
    model = LFormerPointClassifier(**SMALL).fit(X, corner(X))
    assert seen == [model.validation_score_]


def test_weights_of_series_count(X: Panel) -> None:
    """Series of weight 0 with wrong classes change nothing."""
    truth = corner(X)
    wrong = [~rows if i % 3 == 0 else rows for i, rows in enumerate(truth)]
    weight = np.array([0.0 if i % 3 == 0 else 1.0 for i in range(len(X))])
    model = LFormerPointClassifier(trees=True, **SMALL).fit(X, wrong, sample_weight=weight)
    plain = LFormerPointClassifier(trees=True, **SMALL).fit(X, wrong)
    assert model.score(X, truth) > plain.score(X, truth) + 0.05


def test_they_are_left_out_where_they_say_nothing(X: Panel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them a prediction costs less."""
    monkeypatch.setattr("lformer.estimators.tree_fitting.MIXES", np.zeros(1))
    model = LFormerPointClassifier(**SMALL).fit(X, corner(X))
    assert model.model_.trees is None
    assert model.model_.config.trees == 0  # type: ignore[union-attr]


def test_of_too_many_rows_some_series_are_drawn(X: Panel, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = LFormerPointClassifier(**SMALL)
    sizes: list[int] = []
    real = TreeFitter._table

    def watched(self: TreeFitter, *given: Any) -> Any:
        found = real(self, *given)
        sizes.append(len(found.features))
        return found

    monkeypatch.setattr(TreeFitter, "_table", watched)
    whole.fit(X, corner(X))
    monkeypatch.setattr("lformer.estimators.tree_fitting.MOST_NUMBERS", 20 * 500)
    whole.fit(X, corner(X))
    assert sizes[2] < 700 < sizes[0]
    assert sizes[3] == sizes[1]  # the validation set stays whole


def test_who_has_none(X: Panel) -> None:
    y = corner(X)
    for change in ({"streaming": True}, {"class_weight": "balanced"}, {"trees": False}):
        assert LFormerPointClassifier(**SMALL | change).fit(X, y).model_.trees is None
    few = LFormerPointClassifier(**SMALL).fit(X[:40], y[:40])  # six validation series
    assert few.model_.trees is None
    with pytest.raises(ValueError, match="trees=True needs streaming=False and uncertainty=None"):
        LFormerPointClassifier(trees=True, streaming=True, **SMALL).fit(X, y)


def test_padding_order_and_time_origin_change_nothing(classifier: LFormerPointClassifier) -> None:
    new = ragged(20, seed=9)
    whole = classifier.predict_proba(new)
    for i in (3, 0, 12):
        times, values = new[i]
        [alone] = classifier.predict_proba([(times + 5000.0, values)])
        np.testing.assert_allclose(alone, whole[i], atol=1e-5)


def test_members_have_their_own(X: Panel) -> None:
    model = LFormerPointClassifier(**SMALL | {"members": 2}).fit(X, corner(X))
    assert isinstance(model.model_, Ensemble)
    one, other = model.model_.models
    assert not torch.equal(one.trees.value, other.trees.value)  # type: ignore[union-attr, arg-type]


def test_saved_and_loaded(tmp_path: Path, X: Panel, classifier: LFormerPointClassifier) -> None:
    classifier.save(tmp_path / "model")
    again = load(tmp_path / "model")
    for one, other in zip(again.predict_proba(X), classifier.predict_proba(X), strict=True):
        assert (one == other).all()


def test_exported_with_the_model(tmp_path: Path, X: Panel, classifier: LFormerPointClassifier) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra export")
    folder = classifier.export(tmp_path / "onnx")
    batch = X[:9].batch(dtype=torch.float64)
    values = np.where(batch.observed, batch.values, np.nan)
    given = {"values": values, "times": batch.times.numpy(), "lengths": batch.lengths.numpy()}
    [found] = onnxruntime.InferenceSession(folder / "model.onnx").run(None, given)
    for n, expected in enumerate(classifier.predict_proba(X[:9])):
        np.testing.assert_allclose(found[n, : len(expected)], expected, atol=1e-5)
