"""Trees beside a network: those of scikit-learn to the last comparison, saved, streamed and exported with the model."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from export.rewriting import quick_rewriting
from safetensors.torch import load_file, save_file
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

from lformer import LFormerClassifier, LFormerRegressor, Panel, load
from lformer.baselines.boosting import BoostingConfig, grow
from lformer.estimators.base import _together
from lformer.estimators.tree_fitting import TreeFitter, _fill, _fit, _rounded_down
from lformer.estimators.tree_start import best_line
from lformer.estimators.weights import unsound
from lformer.evaluate import evaluate
from lformer.export.example import initial
from lformer.export.graphs import BatchGraph
from lformer.export.program import save_onnx, traced
from lformer.export.step import StepGraph
from lformer.nn.trees import FOR_SERIES, Trees

SMALL: dict[str, Any] = {"width": 8, "depth": 1, "heads": 2, "max_epochs": 2, "random_state": 0, "device": "cpu"}


def ragged(n: int, seed: int = 0) -> Panel:
    """Uneven times, ragged lengths, missing values, a channel that some series never saw."""
    rng = np.random.default_rng(seed)
    series = []
    for _ in range(n):
        length = int(rng.integers(1, 12))
        values = rng.normal(rng.normal(size=2), 1.0, (length, 2))
        values[rng.random((length, 2)) < 0.4] = np.nan
        values[0, 0] = rng.normal()
        series.append((np.cumsum(rng.exponential(size=length)), values))
    return Panel.from_list(series)


def beating(n: int, seed: int = 0) -> tuple[Panel, np.ndarray]:
    """A noisy sine at uneven moments, some of them missing, and how fast it is; a second channel of noise."""
    rng = np.random.default_rng(seed)
    pace, series = rng.uniform(0.5, 1.5, n), []
    for each in pace:
        times = np.sort(rng.uniform(0, 10, int(rng.integers(40, 60))))
        sine = np.sin(2 * np.pi * each * times + rng.uniform(0, 6)) + 0.3 * rng.normal(size=len(times))
        values = np.column_stack([sine, rng.normal(size=len(times))])
        values[rng.random(values.shape) < 0.1] = np.nan
        series.append((times, values))
    return Panel.from_list(series), pace


def least(X: Panel) -> np.ndarray:
    """What one comparison finds and a mean does not: whether the least value of a channel lies below a threshold."""
    return np.array([np.nanmin(values[:, 0]) for _, values in X])


@pytest.fixture(scope="module")
def X() -> Panel:
    return ragged(400)


@pytest.fixture(scope="module")
def classifier(X: Panel) -> LFormerClassifier:
    return LFormerClassifier(summaries=True, trees=True, streaming=True, **SMALL).fit(X, least(X) < -0.5)


@pytest.mark.parametrize("outputs", [2, 3])
def test_they_are_those_of_scikit_learn(outputs: int) -> None:
    rng = np.random.default_rng(1)
    table = rng.normal(size=(600, 6)).astype(np.float32)
    table[rng.random(table.shape) < 0.3] = np.nan
    table[:, 5] = rng.integers(0, 3, 600)  # ties with thresholds between them
    y = np.clip((np.nan_to_num(table[:, 0], nan=1) > 0) + (table[:, 5] > 1) * (outputs - 2), 0, outputs - 1)
    grown: Any = HistGradientBoostingClassifier(max_iter=20, max_leaf_nodes=FOR_SERIES.leaves).fit(table, y)
    trees = Trees(6, outputs, 20)
    _fill(trees, grown, [1] if outputs == 2 else [0, 1, 2])
    fresh = rng.permutation(table.ravel()).reshape(table.shape)
    found = trees(torch.from_numpy(fresh)).numpy()
    expected = grown.decision_function(fresh)
    assert np.allclose(found[:, 1] if outputs == 2 else found, expected, atol=1e-5)
    assert found.std() > 0.1


def test_numbers_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(2)
    table = rng.normal(size=(300, 2)).astype(np.float32)
    grown: Any = HistGradientBoostingRegressor(max_iter=10, max_leaf_nodes=FOR_SERIES.leaves).fit(
        table, 3 + table[:, 0] ** 2
    )
    trees = Trees(2, 1, 10)
    _fill(trees, grown, [0])
    assert np.allclose(trees(torch.from_numpy(table))[:, 0].numpy(), grown.predict(table), atol=1e-5)


def test_thresholds_keep_their_neighbours_apart() -> None:
    below = np.array([1.0, -3.0, 1e-30, 5.0], np.float32)
    above = np.nextafter(below, np.float32(np.inf))
    middle = (below.astype(np.float64) + above) / 2
    rounded = _rounded_down(middle)
    assert (below <= rounded).all()
    assert (above > rounded).all()
    assert np.isfinite(_rounded_down(np.array([np.inf, -np.inf]))).all()


def test_thresholds_lie_between_values() -> None:
    """Where the last bit of a feature decides, two machines disagree."""
    rng = np.random.default_rng(4)
    table = rng.normal(size=(2000, 3)).astype(np.float32)
    table[rng.random(table.shape) < 0.2] = np.nan
    y = (np.nan_to_num(table[:, 0]) + np.nan_to_num(table[:, 1]) ** 2 > 0.5).astype(int)
    config = BoostingConfig(inputs=1, outputs=2, max_iter=20)
    trees = Trees(3, 2, 20)
    _fit(trees, table.astype(np.float64), y, np.ones(2000), config)
    grown: Any = grow("Classifier", table.astype(np.float64), y, np.ones(2000), config)
    lines = torch.from_numpy(table)
    found = trees(lines)
    assert np.allclose(found[:, 1].numpy(), grown.decision_function(table), atol=1e-5)
    for nudged in (torch.nextafter(lines, torch.tensor(-torch.inf)), torch.nextafter(lines, torch.tensor(torch.inf))):
        assert torch.equal(trees(nudged), found)


def test_they_find_what_a_short_training_does_not(X: Panel, classifier: LFormerClassifier) -> None:
    new = ragged(300, seed=5)
    alone = LFormerClassifier(summaries=True, trees=False, streaming=True, **SMALL).fit(X, least(X) < -0.5)
    truth = least(new) < -0.5
    assert float(classifier.model_.trees.weight) > 0  # type: ignore[union-attr, arg-type]
    assert classifier.score(new, truth) > alone.score(new, truth) + 0.05
    assert classifier.validation_score_ < alone.validation_score_


def test_the_weight_is_the_best_on_the_validation_series(X: Panel) -> None:
    """Where classes are drawn at random trees have nothing to say, and little of them is mixed in."""
    y = np.random.default_rng(3).integers(0, 2, len(X))
    model = LFormerClassifier(summaries=True, trees=True, **SMALL).fit(X, y)
    alone = LFormerClassifier(summaries=True, trees=False, **SMALL).fit(X, y)
    assert model.validation_score_ <= alone.validation_score_ + 1e-6


def test_the_score_is_that_of_the_model_with_its_trees(X: Panel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though nobody asks the network again."""
    real, seen = TreeFitter.mix, []

    def watched(self: TreeFitter) -> dict[str, float]:
        told = real(self)
        assert told == pytest.approx(evaluate(self.model, self.task, self.splits.validation, self.batch_size), rel=1e-6)
        seen.append(told[self.task.monitor])
        return told

    monkeypatch.setattr(TreeFitter, "mix", watched)
    for kind, y in ((LFormerClassifier, least(X) < -0.5), (LFormerRegressor, least(X))):
        seen.clear()
        model = kind(summaries=True, trees=True, **SMALL).fit(X, y)
        assert seen == [model.validation_score_]


def test_auto_asks_for_series_that_can_tell(X: Panel) -> None:
    y = least(X) < -0.5
    few = LFormerClassifier(summaries=True, **SMALL).fit(X[:170], y[:170])
    many = LFormerClassifier(summaries=True, **SMALL).fit(X, y)
    stream = LFormerClassifier(summaries=True, streaming=True, **SMALL).fit(X, y)
    assert (few.model_.config.trees, many.model_.config.trees, stream.model_.config.trees) == (0, 200, 0)
    assert (
        LFormerRegressor(summaries=True, **SMALL).fit(X[:170], least(X)[:170]).model_.config.trees == 200
    )  # a number tells more
    assert LFormerRegressor(summaries=True, **SMALL).fit(X[:70], least(X)[:70]).model_.config.trees == 0


def test_regression_in_its_own_units(X: Panel) -> None:
    y = np.column_stack([1e3 + 100 * np.sign(least(X)), least(X)])
    model = LFormerRegressor(summaries=True, trees=True, **SMALL).fit(X, y)
    new = ragged(200, seed=6)
    error = np.abs(model.predict(new)[:, 0] - (1e3 + 100 * np.sign(least(new)))).mean()
    assert error < 40


def test_trees_of_numbers_start_from_a_line() -> None:
    """Beyond what they have seen it goes on; where its column says nothing it is at its middle."""
    rng = np.random.default_rng(5)
    table = rng.normal(size=(300, 4))
    table[rng.random(table.shape) < 0.2] = np.nan
    table[:, 2] = rng.normal(7, 2, 300)
    table[:5, 2] = np.nan
    y = np.stack([3 * np.nan_to_num(table[:, 2], nan=7) + (table[:, 0] > 0), rng.normal(size=300)], axis=1)
    weights = np.ones((300, 2))
    weights[5:20] = 0
    y[5:20] = 1e6  # does not count
    trees = Trees(4, 2, 200)
    config = BoostingConfig(inputs=1, outputs=2, max_iter=200)
    _fit(trees, table, y.astype(np.float32), weights, config)
    assert trees.column.tolist() == [2, 0]
    assert float(trees.slope[0]) == pytest.approx(3, abs=0.1)
    assert float(trees.slope[1]) == 0  # of a number that hangs on no column
    new = torch.tensor([[1.0, 0.0, 7.0, 0.0], [1.0, 0.0, 107.0, 0.0], [1.0, 0.0, np.nan, 0.0]])
    near, far, unknown = trees(new)[:, 0].tolist()
    assert near == pytest.approx(22, abs=0.5)
    assert far - near == pytest.approx(300, abs=12)
    assert unknown == pytest.approx(near, abs=1)


def test_a_split_for_numbers_looks_at_all_columns_one_for_classes_at_some() -> None:
    config, table, y = BoostingConfig(inputs=1, outputs=2, max_iter=2), np.eye(60), np.arange(60) % 2
    shares = [grow(kind, table, y, np.ones(60), config).max_features for kind in ("Classifier", "Regressor")]  # type: ignore[arg-type]
    assert shares == [0.3, 1.0]


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e9])
def test_the_best_line_is_that_of_least_squares(scale: float) -> None:
    rng = np.random.default_rng(6)
    table = scale * np.column_stack([rng.normal(size=80), np.full(80, 4.0), rng.normal(50, 1, 80), np.full(80, np.nan)])
    y, weight = 5 * table[:, 2] / scale + rng.normal(size=80), rng.uniform(0.1, 2, 80)
    line = best_line(table, y, weight)
    assert line.column == 2
    slope, level = np.polyfit(table[:, 2], y, 1, w=np.sqrt(weight))
    assert line.at(table) == pytest.approx(level + slope * table[:, 2], rel=1e-6)
    flat = best_line(table, rng.normal(size=80), weight)
    assert flat.slope == 0
    equal = best_line(table, np.full(80, 3.0), weight)
    assert equal.at(table) == pytest.approx(3.0)


def test_they_know_how_fast_a_wave_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A regressor that reads whole series, saved and exported with what it needs for it."""
    monkeypatch.setattr("lformer.nn.summaries.CYCLES", 20)  # two pieces of frequencies instead of nine: a shorter graph
    X, y = beating(300)
    model = LFormerRegressor(summaries=True, trees=True, neighbours=0, clock=False, **SMALL).fit(X, y)
    new, truth = beating(100, seed=1)
    said = model.predict(new)
    assert np.sqrt(np.mean((said - truth) ** 2)) < 0.2 * truth.std()
    model.save(tmp_path / "model")
    assert (load(tmp_path / "model").predict(new) == said).all()
    alone = np.concatenate([model.predict(new[n : n + 1]) for n in range(10)])
    assert np.allclose(alone, said[:10], atol=1e-5)
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra export")
    with quick_rewriting():
        folder = model.export(tmp_path / "onnx")
    batch = new.batch(dtype=torch.float64)
    values = np.where(batch.observed, batch.values, np.nan)
    given = {"values": values, "times": batch.times.numpy(), "lengths": batch.lengths.numpy()}
    [told] = onnxruntime.InferenceSession(folder / "model.onnx").run(None, given)
    assert np.allclose(told[:, 0], said, atol=1e-4)


def test_waves_are_asked_for_only_where_they_are_worth_it(X: Panel) -> None:
    beats, pace = beating(200)
    assert LFormerRegressor(summaries=True, **SMALL).fit(beats, pace).model_.config.waves
    assert not LFormerRegressor(summaries=True, **SMALL).fit(X, least(X)).model_.config.waves


def test_of_too_many_rows_waves_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    beats, pace = beating(200)
    monkeypatch.setattr("lformer.estimators.tree_fitting.MOST_ROWS", 1000)
    model = LFormerRegressor(summaries=True, **SMALL).fit(beats, pace).model_
    assert (model.config.trees, model.config.waves) == (200, False)


def test_one_of_the_members_may_need_waves(X: Panel) -> None:
    beats, pace = beating(200)
    models = [
        LFormerRegressor(summaries=True, clock=False, **SMALL | {"random_state": n}).fit(beats, pace) for n in (0, 1)
    ]
    one, other = (model.model_ for model in models)
    narrow = one.new_trees(200)
    assert isinstance(narrow, Trees)
    narrow.weight.fill_(0.5)
    narrow.feature.fill_(narrow.features - 1)
    one.set_trees(narrow)
    batch = beats.batch()
    with torch.no_grad():
        expected = (one(batch) + other(batch)) / 2
        together = _together([one, other])
        assert [model.config.waves for model in together.models] == [True, True]  # type: ignore[union-attr]
        torch.testing.assert_close(together(batch), expected)


def test_saved_and_loaded(tmp_path: Path, X: Panel, classifier: LFormerClassifier) -> None:
    classifier.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert (again.predict_proba(X) == classifier.predict_proba(X)).all()


@pytest.mark.parametrize(
    ("name", "number"), [("left", 10**8), ("right", -1), ("feature", 14), ("column", 14), ("value", np.nan)]
)
def test_weights_that_lead_nowhere_are_refused(classifier: LFormerClassifier, name: str, number: float) -> None:
    state = classifier.model_.state_dict()
    assert not unsound(state, classifier.model_.config)
    state[f"trees.{name}"] = state[f"trees.{name}"].clone().index_fill_(0, torch.tensor([0]), number)
    assert f"trees.{name}" in unsound(state, classifier.model_.config)


def test_a_damaged_file_of_trees_is_refused(tmp_path: Path, classifier: LFormerClassifier) -> None:
    classifier.save(tmp_path / "model")
    file = next((tmp_path / "model").glob("*.safetensors"))
    tensors = load_file(file)
    tensors["trees.left"] += 1
    save_file(tensors, file)
    with pytest.raises(ValueError, match="damaged"):
        load(tmp_path / "model")


def test_row_by_row_as_whole_series(X: Panel, classifier: LFormerClassifier) -> None:
    expected = classifier.predict_proba(X[:6])
    for n in range(6):
        stream = classifier.stream()
        for time, values in zip(*X[n], strict=True):
            answer = stream.update(time, values)
        assert np.allclose(answer, expected[n], atol=1e-6)


def test_exported_with_the_model(tmp_path: Path, X: Panel, classifier: LFormerClassifier) -> None:
    """Whole series, and row by row; a value of NaN takes the branch of missing ones in a graph too."""
    batch, expected = X[:12].batch(dtype=torch.float64), classifier.predict_proba(X[:12])
    with torch.no_grad():
        told = BatchGraph(classifier).eval()(
            torch.where(batch.observed, batch.values, torch.nan), batch.times, batch.lengths
        )[0]
    assert np.allclose(told.numpy(), expected, atol=1e-5)
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra export")
    graph = StepGraph(classifier).eval()
    save_onnx(traced(graph, graph.inputs), tmp_path / "step.onnx", graph.inputs, graph.outputs)
    session = onnxruntime.InferenceSession(tmp_path / "step.onnx")
    for (times, values), probabilities in zip(X[:12], expected, strict=True):
        state = initial(graph, 1)
        for time, row in zip(times, values.astype(float), strict=True):
            answer, *after = session.run(None, {"values": row[None], "times": np.array([float(time)]), **state})
            state = dict(zip(state, after, strict=True))
        assert np.allclose(answer[0], probabilities, atol=1e-5)


def test_alone_and_in_company_the_same(X: Panel, classifier: LFormerClassifier) -> None:
    together = classifier.predict_proba(X[:20])
    alone = np.concatenate([classifier.predict_proba(X[n : n + 1]) for n in range(20)])
    assert np.allclose(alone, together, atol=1e-6)


def test_a_warm_start_grows_new_ones(X: Panel) -> None:
    y = least(X) < -0.5
    model = LFormerClassifier(summaries=True, trees=True, warm_start=True, **SMALL).fit(X, y)
    before = model.model_.trees.value.clone()  # type: ignore[union-attr, operator]
    model.set_params(trees=False).fit(X, y)
    assert model.model_.trees is None
    model.set_params(trees=True).fit(X, ~y)
    assert not torch.equal(model.model_.trees.value, before)  # type: ignore[union-attr, arg-type]


def test_members_have_their_own(X: Panel) -> None:
    model = LFormerClassifier(summaries=True, trees=True, members=2, **SMALL).fit(X, least(X) < -0.5)
    first, second = (member.trees for member in model.model_.models)  # type: ignore[union-attr]
    assert not torch.equal(first.value, second.value)
    before = torch.get_num_threads()
    torch.set_num_threads(2)  # each grows on its own cores
    try:
        beside = LFormerClassifier(summaries=True, trees=True, members=2, **SMALL).fit(X, least(X) < -0.5)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    for one, two in zip(beside.model_.models, (first, second), strict=True):  # type: ignore[union-attr]
        torch.testing.assert_close(one.trees.value, two.value)


@pytest.mark.parametrize("change", [{"summaries": False}, {"trees": "yes"}])
def test_what_cannot_be_is_said_before_training(
    X: Panel, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lformer.estimators.base.train_members", None)
    with pytest.raises(ValueError, match="trees"):
        LFormerClassifier(**{"summaries": True, "trees": True, **SMALL} | change).fit(X, least(X) < -0.5)


def test_uncertainty_leaves_no_room_for_them(X: Panel) -> None:
    settings: dict[str, Any] = {"summaries": True, "uncertainty": "gaussian", "validation_fraction": 0.5, **SMALL}
    assert LFormerRegressor(**settings).fit(X, least(X)).model_.config.trees == 0
    with pytest.raises(ValueError, match="uncertainty=None"):
        LFormerRegressor(trees=True, **settings).fit(X, least(X))


def test_classes_that_hardly_occur(X: Panel) -> None:
    """One that no training series has is all but ruled out, not lost."""
    y = np.repeat(["a", "b", "c", "d"], [390, 6, 2, 2])
    found = LFormerClassifier(summaries=True, trees=True, **SMALL).fit(X, y).predict_proba(X)
    assert found.shape == (400, 4)
    assert np.isfinite(found).all()
    assert np.allclose(found.sum(axis=1), 1)
