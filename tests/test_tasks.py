"""Tasks and metrics: the published definitions, on ragged series with missing targets."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import irregular_batch
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor, nn

from lformer import IrregularBatch, data, metrics, tasks
from lformer.evaluate import evaluate, predict
from lformer.metrics import Mean, Metric
from lformer.panel import Panel
from lformer.parts import PanelPart, Prepared, Spec, Splits, Targets, splits_of
from lformer.tasks import Task

TRAJECTORY = tasks.trajectory()


def batch_of(targets: Tensor, observed: Tensor | None = None, given: Tensor | None = None) -> IrregularBatch:
    batch = irregular_batch(B=len(targets), L=5)
    return replace(batch, targets=targets, targets_observed=observed, targets_given=given)


def figure(metric: Metric, prediction: Tensor, batch: IrregularBatch) -> float:
    return metric.finish(metric.collect(prediction, metrics.targets_of(batch), batch))


def figures(task: Task, output: Tensor, batch: IrregularBatch) -> dict[str, float]:
    """Every metric of a task, from what a model puts out."""
    return {name: metric.finish(task.collect(name, output, batch)) for name, metric in task.metrics.items()}


def test_spiral_errors_sum_over_coordinates() -> None:
    prediction = torch.tensor([[[3.0, 4.0]], [[0.0, 0.0]]])
    batch = batch_of(torch.zeros(2, 1, 2))
    assert figure(Mean(metrics.summed_absolute), prediction, batch) == 3.5
    assert figure(Mean(metrics.summed_squared), prediction, batch) == 12.5
    assert figure(Mean(metrics.summed_squared, root=True), prediction, batch) == pytest.approx(12.5**0.5)
    assert figure(Mean(metrics.squared), prediction, batch) == 6.25


def test_a_trajectory_tells_the_halves_apart() -> None:
    prediction = torch.cat([torch.ones(1, 75, 2), torch.full((1, 75, 2), 2.0)], 1)
    batch = batch_of(torch.zeros_like(prediction))
    found = figures(TRAJECTORY, prediction, batch)
    assert found["interpolation_mae"] == 2.0
    assert found["extrapolation_mae"] == 4.0
    assert found["extrapolation_rmse"] == pytest.approx(8**0.5)
    assert found["mae"] == 3.0


def test_errors_count_observed_targets_and_tell_given_from_unseen() -> None:
    targets = torch.tensor([[[1.0, 9.0], [2.0, 3.0]]])
    observed = torch.tensor([[[True, False], [True, True]]])
    given = torch.tensor([[[True, False], [False, False]]])
    batch = batch_of(targets, observed, given)
    task = tasks.records("extrapolate", 2)
    found = figures(task, torch.zeros_like(targets), batch)
    assert found["mse"] == pytest.approx((1 + 4 + 9) / 3)
    assert found["mse_unseen"] == pytest.approx((4 + 9) / 2)
    assert float(task.loss(torch.zeros_like(targets), batch)) == pytest.approx(14 / 3)
    assert "mse_unseen" not in tasks.records("reconstruct", 2).metrics


def test_every_channel_weighs_the_same_in_the_mean_over_channels() -> None:
    targets = torch.tensor([[[1.0, 9.0, 5.0], [2.0, 3.0, 5.0], [4.0, 7.0, 5.0]]])
    observed = torch.tensor([[[True, False, False], [True, True, False], [True, False, False]]])
    given = torch.tensor([[[True, False, False], [False] * 3, [False] * 3]])
    task = tasks.records("extrapolate", 3)
    metric = task.metrics["mse_channels"]
    one, other = batch_of(targets, observed, given), batch_of(targets[:, :2], observed[:, :2], given[:, :2])
    assert figures(task, torch.zeros_like(targets), one)["mse_channels"] == pytest.approx(((4 + 16) / 2 + 9) / 2)
    kept = torch.cat([task.collect("mse_channels", torch.zeros_like(metrics.targets_of(b)), b) for b in (one, other)])
    assert metric.finish(kept) == pytest.approx(((4 + 16 + 4) / 3 + 9) / 2)  # of all batches together
    assert math.isnan(metric.finish(task.collect("mse_channels", targets, batch_of(targets, observed, observed))))


def test_what_does_not_count_reaches_neither_loss_nor_gradient() -> None:
    targets = torch.randn(3, 5, 2)
    observed = torch.rand(3, 5, 2) < 0.5
    prediction = torch.randn(3, 5, 2, requires_grad=True)
    batch = batch_of(targets, observed)
    tasks.records("reconstruct", 2).loss(prediction, batch).backward()
    assert prediction.grad is not None
    assert bool((prediction.grad[~observed] == 0).all())
    assert bool((prediction.grad[observed] != 0).all())
    wild = torch.where(observed, targets, 1e6)
    fixed = prediction.detach()
    for where in (targets, wild):
        assert float(tasks.records("reconstruct", 2).loss(fixed, batch_of(where, observed))) == pytest.approx(
            float((fixed - targets)[observed].square().mean())
        )


def test_accuracy_is_over_all_points_and_skips_padding() -> None:
    scores = torch.tensor([[[2.0, 1.0], [0.0, 1.0], [5.0, 0.0]]])
    labels = torch.tensor([[0, 0, 1]])
    task = tasks.classify(2, "step")
    padded = batch_of(labels, torch.tensor([[True, True, False]]))
    assert figure(task.metrics["accuracy"], scores, padded) == 0.5
    expected = torch.nn.functional.cross_entropy(scores[0, :2], labels[0, :2])
    assert float(task.loss(scores, padded)) == pytest.approx(float(expected))
    assert figure(task.metrics["accuracy"], scores, batch_of(labels)) == pytest.approx(1 / 3)


def test_smoothed_labels_are_those_of_pytorch_and_of_the_loss_alone() -> None:
    g = torch.Generator().manual_seed(0)
    scores, labels = torch.randn(6, 4, generator=g), torch.tensor([0, 1, 2, 3, 3, 1])
    plain, smooth = tasks.classify(4), tasks.classify(4, smoothing=0.1)
    expected = torch.nn.functional.cross_entropy(scores, labels, label_smoothing=0.1)
    assert float(smooth.loss(scores, batch_of(labels))) == pytest.approx(float(expected))
    for name in plain.metrics:
        batch = batch_of(labels)
        assert figure(smooth.metrics[name], scores, batch) == figure(plain.metrics[name], scores, batch)


def test_a_regression_reports_its_own_units_and_trains_near_one() -> None:
    class Zero(nn.Module):
        def forward(self, batch: IrregularBatch) -> Tensor:
            return torch.zeros(len(batch), 1)

    batch = batch_of(torch.tensor([[80.0], [100.0]]))
    task = tasks.regress(1, shift=[90.0], scale=[10.0])
    output = task.predict(Zero(), batch)
    assert task.decode(output).tolist() == [[90.0], [90.0]]
    assert figures(task, output, batch) == {"mae": 10.0, "rmse": 10.0, "mse": 1.0}
    assert float(task.loss(output, batch)) == pytest.approx(1.0)


def test_outputs_of_very_different_units_weigh_alike() -> None:
    targets = torch.tensor([[1e9 + 1.0, 0.001], [1e9 - 1.0, 0.003]], dtype=torch.float64)
    task = tasks.regress(2, shift=[1e9, 0.002], scale=[1.0, 0.001])
    batch, output = batch_of(targets), torch.tensor([[1.0, 1.0], [1.0, 1.0]])
    assert task.encode(targets).tolist() == [[1.0, -1.0], [-1.0, 1.0]]  # no digit lost before it is near 1
    assert task.decode(output)[0].tolist() == [1e9 + 1.0, 0.003]
    assert float(task.loss(output, batch)) == pytest.approx(2.0)
    assert figures(task, output, batch)["mse"] == pytest.approx(2.0)


def test_the_weight_of_a_batch_is_what_its_loss_is_the_mean_of() -> None:
    g = torch.Generator().manual_seed(0)
    targets, observed = torch.randn(4, 5, 2, generator=g), torch.rand(4, 5, 2, generator=g) < 0.6
    output = torch.randn(4, 5, 2, generator=g)
    for task in (tasks.records("reconstruct", 2), TRAJECTORY):
        whole = batch_of(targets, observed)
        parts = [(whole[:1], output[:1]), (whole[1:], output[1:])]
        total = sum(float(task.weight(b) * task.loss(o, b)) for b, o in parts)
        assert total / float(task.weight(whole)) == pytest.approx(float(task.loss(output, whole)), rel=1e-6)


def test_rankings_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    for ties in (False, True):
        labels = rng.integers(0, 2, 60)
        score = rng.normal(labels, 2.0)
        score = score.round() if ties else score
        scores = torch.from_numpy(np.column_stack([np.full(60, 0.3), score + 0.3]))
        found = figures(tasks.classify(2), scores, batch_of(torch.from_numpy(labels)))
        assert found["auroc"] == pytest.approx(roc_auc_score(labels, score), abs=1e-12)
        assert found["auprc"] == pytest.approx(average_precision_score(labels, score), abs=1e-12)
    assert np.isnan(metrics.roc_area(torch.ones(3), torch.zeros(3)))
    assert np.isnan(metrics.average_precision(torch.ones(3), torch.zeros(3)))


def test_a_data_set_may_say_what_is_printed_and_what_selects() -> None:
    splits = replace(ragged("classify"), metrics=("auroc", "auprc"))
    task = tasks.for_splits(splits)
    assert (task.monitor, task.direction, dict(task.printed)) == ("auroc", "max", {"auroc": 100.0, "auprc": 100.0})
    assert tasks.for_splits(ragged("classify")).monitor == "accuracy"


def test_nothing_to_compare_is_not_a_number() -> None:
    batch = batch_of(torch.zeros(1, 2, 2), torch.zeros(1, 2, 2, dtype=torch.bool))
    assert np.isnan(figure(Mean(metrics.squared), torch.ones(1, 2, 2), batch))
    assert float(metrics.mean_loss(torch.ones(1, 2, 2), batch)) == 0.0


def test_a_task_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="'accuracy' is not one of the metrics of trajectory: mae"):
        replace(TRAJECTORY, monitor="accuracy")
    with pytest.raises(ValueError, match="the batch has no targets"):
        TRAJECTORY.loss(torch.zeros(1, 1, 2), irregular_batch(B=1))
    with pytest.raises(ValueError, match="trajectory needs 2 outputs; the model gives 3"):
        TRAJECTORY.predict(nn.Linear(3, 3), torch.zeros(1, 3))  # type: ignore[arg-type]


def ragged(task: str, seed: int = 0) -> Splits[PanelPart]:
    """Ragged series with holes, asked at their rows, as a prepared set."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 9, 23)
    values = rng.standard_normal((lengths.sum(), 3)).astype(np.float32)
    values[rng.random(values.shape) < 0.4] = np.nan
    clock = np.concatenate([np.sort(rng.exponential(2.0, n)) for n in lengths])
    panel = Panel.build(clock, values, lengths)
    assert panel.observed is not None
    if task == "classify":
        targets = Targets(values=rng.integers(0, 2, 23), at="series")
    elif task == "classify-points":
        targets = Targets(values=rng.integers(0, 4, lengths.sum()), at="rows")
    else:
        targets = Targets(values=panel.values, at="rows", observed=panel.observed, given=panel.observed)
    order = rng.permutation(23)
    prepared = Prepared(panel=panel, targets=targets, train=order[:13], validation=order[13:18], test=order[18:])
    return splits_of(prepared, "ragged", task, seed)


class Rows(nn.Module):
    """Answers that depend on the row alone."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.map = nn.Linear(3, outputs)

    def forward(self, batch: IrregularBatch) -> Tensor:
        return self.map(batch.values)


@pytest.mark.parametrize("name", ["classify-points", "reconstruct"])
def test_figures_do_not_depend_on_the_batch_size(name: str) -> None:
    splits = ragged(name)
    task = tasks.for_splits(splits)
    model = Rows(task.outputs)
    found = [evaluate(model, task, splits.train, size) for size in (1, 4, 100)]
    for other in found[1:]:
        assert other == pytest.approx(found[0], rel=1e-6)
    answers = [predict(model, task, splits.train, size) for size in (1, 4, 100)]
    assert [len(a) for a in answers[0]] == splits.train.panel.lengths.tolist()
    for other in answers[1:]:
        for a, b in zip(answers[0], other, strict=True):
            assert torch.allclose(a, b, atol=1e-6)


def test_tasks_are_made_from_what_was_loaded() -> None:
    assert tasks.for_splits(ragged("classify-points")).outputs == 4
    task = tasks.for_splits(ragged("reconstruct"))
    assert (task.name, task.outputs, task.answer) == ("reconstruct", 3, "step")
    assert tasks.for_splits(data.load("spiral-2")).answer == "query"
    assert tasks.for_splits(data.load("spiral-2", unobserved="rows")).answer == "step"
    spec = Spec(inputs=1, outputs=1, answer="series")
    with pytest.raises(ValueError, match="unknown task 'guess'; there are classify, regress"):
        tasks.for_splits(Splits("x", 1, 2, 3, spec, "guess"))  # type: ignore[type-var]
