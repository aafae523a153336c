"""Tasks: the kind of prediction, a training loss, metrics, the metric that selects the epoch, and those of a table.

`TASKS` has one entry per task; `for_splits` returns the one a data set was loaded for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lformer import metrics
from lformer.batch import IrregularBatch
from lformer.distributions import NUMBERS, Distribution, in_units
from lformer.metrics import ChannelMean, Error, Mean, Metric, Ranking, constant
from lformer.parts import Spec, Splits

Answer = Literal["series", "step", "query"]
PERCENT, THOUSANDTHS = 100.0, 1000.0


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task on `batch.targets`.

    Attributes:
        name: as in `data.load(task=...)`.
        answer: the head a model needs: one prediction per "series", per "step" (row) or per "query".
        outputs: number of targets per prediction.
        distribution: what is predicted for each of them: a number, or its distribution.
        error: error of each entry or point; training minimises its mean, in units of `scale`.
        metrics: by name, over a whole data set.
        monitor: the metric on the validation set that selects the model.
        printed: the metrics shown in tables, with the factors by which they are multiplied.
        shift, scale: of each output, so that a model works with standardised numbers: prediction = shift + scale ·
            output. Empty if it predicts in the units of the targets.
        power: exponent of the series weights in the loss, see `metrics.weigh`.
    """

    name: str
    answer: Answer
    outputs: int
    error: Error
    metrics: Mapping[str, Metric]
    monitor: str
    printed: Mapping[str, float] = field(default_factory=dict)
    shift: Sequence[float] = ()
    scale: Sequence[float] = ()
    distribution: Distribution = "point"
    power: float = 1.0

    def __post_init__(self) -> None:
        for name in (self.monitor, *self.printed):
            if name not in self.metrics:
                raise ValueError(f"{name!r} is not one of the metrics of {self.name}: {', '.join(self.metrics)}.")
        if len(self.shift) not in (0, self.outputs) or len(self.shift) != len(self.scale):
            raise ValueError(f"shift and scale must have {self.outputs} numbers each, or none.")

    @property
    def direction(self) -> Literal["min", "max"]:
        """Whether the monitored metric is minimised or maximised."""
        return self.metrics[self.monitor].best

    def better(self, value: float, than: float) -> bool:
        """Whether one value of the monitored metric is better than another."""
        return value < than if self.direction == "min" else value > than

    def predict(self, model: nn.Module, batch: IrregularBatch) -> Tensor:
        """The model's output, in its own units; a baseline may give points where the task asks for distributions."""
        output: Tensor = model(batch)
        if output.shape[-1] not in (NUMBERS[self.distribution] * self.outputs, self.outputs):
            raise ValueError(f"{self.name} needs {self.outputs} outputs; the model gives {output.shape[-1]}.")
        return output

    def loss(self, output: Tensor, batch: IrregularBatch) -> Tensor:
        """The training loss, ()."""
        return metrics.mean_loss(self.error(output, self.encode(metrics.targets_of(batch))), batch, self.power)

    def weight(self, batch: IrregularBatch) -> Tensor:
        """The number of targets of a batch over which the loss is averaged, ()."""
        counted = metrics.all_targets(batch)
        points = self.error in (metrics.summed_squared, metrics.summed_absolute)
        return (counted.all(dim=-1) if points else counted).sum()

    def collect(self, name: str, output: Tensor, batch: IrregularBatch) -> Tensor:
        """What one metric keeps of a batch."""
        metric, targets = self.metrics[name], metrics.targets_of(batch)
        if not self.scale:
            return metric.collect(output, targets, batch)
        if metric.scaled:
            return metric.collect(output, self.encode(targets), batch)
        return metric.collect(self.decode(output), targets, batch)

    def encode(self, targets: Tensor) -> Tensor:
        """Targets in the units of the model's output; computed in float64 until they are standardised."""
        if not self.scale:
            return targets
        shift, scale = (constant(tuple(numbers), targets.dtype, targets.device) for numbers in (self.shift, self.scale))
        return ((targets - shift) / scale).float()

    def decode(self, output: Tensor) -> Tensor:
        """Model outputs in the units of the targets, in float64 if the device has it."""
        if not self.scale:
            return output
        wide = output if output.device.type == "mps" else output.double()
        shift, scale = (constant(tuple(numbers), wide.dtype, wide.device) for numbers in (self.shift, self.scale))
        return in_units(self.distribution, wide, shift, scale)


def classify(
    classes: int, answer: Answer = "series", class_weights: Sequence[float] | None = None, smoothing: float = 0.0
) -> Task:
    """Classification of series or rows, with accuracy over all of them.

    `class_weights` are the weights of the classes in the loss and in the cross-entropy; all equal if None. `smoothing`
    is the share of each label that the loss, but no metric, spreads evenly over all classes. With two classes, the
    scores are also evaluated as a ranking: area under the ROC curve and average precision.
    """
    weights = None if class_weights is None else tuple(class_weights)
    metric = Mean(partial(_cross_entropy, weights, 0.0))
    found: dict[str, Metric] = {"accuracy": Mean(metrics.correct, best="max"), "cross_entropy": metric}
    if classes == 2:
        found |= {"auroc": Ranking("roc"), "auprc": Ranking("precision")}
    return Task(
        name="classify" if answer == "series" else "classify-points",
        answer=answer,
        outputs=classes,
        error=partial(_cross_entropy, weights, smoothing),
        metrics=found,
        monitor="accuracy",
        printed={"accuracy": PERCENT},
    )


def regress(outputs: int = 1, shift: Sequence[float] = (), scale: Sequence[float] = ()) -> Task:
    """Regression of series; `mae` and `rmse` are in the targets' units, `mse`, which selects, in units of `scale`."""
    return Task(
        name="regress",
        answer="series",
        outputs=outputs,
        error=metrics.squared,
        metrics={
            "mae": Mean(metrics.absolute),
            "rmse": Mean(metrics.squared, root=True),
            "mse": Mean(metrics.squared, scaled=True),
        },
        monitor="mse",
        printed={"mae": 1, "rmse": 1},
        shift=shift,
        scale=scale,
    )


def regress_points(outputs: int, shift: Sequence[float] = (), scale: Sequence[float] = ()) -> Task:
    """Regression of rows; errors are in units of `scale`."""
    return Task(
        name="regress-points",
        answer="step",
        outputs=outputs,
        error=metrics.squared,
        metrics={"mse": Mean(metrics.squared, scaled=True), "mae": Mean(metrics.absolute, scaled=True)},
        monitor="mse",
        printed={"mse": THOUSANDTHS},
        shift=shift,
        scale=scale,
    )


def records(
    name: str, channels: int, answer: Answer = "step", shift: Sequence[float] = (), scale: Sequence[float] = ()
) -> Task:
    """The values of a series at its rows or at other times: reconstructed, interpolated or extrapolated.

    `mse` covers every observed value, whether given as an input or not, and selects; `mse_unseen` covers those that
    were not among the inputs. Publications often do not say which of the two they report, so both are computed.
    `mse_channels` is the mean over channels of the error of their unseen values. Reconstruction has no unseen values.
    Errors are in units of `scale`.
    """
    measures: dict[str, Metric] = {
        "mse": Mean(metrics.squared, scaled=True), "mae": Mean(metrics.absolute, scaled=True),
    }  # fmt: skip
    printed = {"mse": PERCENT}
    if name != "reconstruct":
        measures["mse_unseen"] = Mean(metrics.squared, metrics.unseen_targets, scaled=True)
        measures["mse_channels"] = ChannelMean(channels, metrics.squared, metrics.unseen_targets, scaled=True)
        printed["mse_unseen"] = PERCENT
    return Task(
        name=name,
        answer=answer,
        outputs=channels,
        error=metrics.squared,
        metrics=measures,
        monitor="mse",
        printed=printed,
        shift=shift,
        scale=scale,
    )


def in_own_units(task: Task) -> Task:
    """Add metrics for series with weights: `mse_own`, over unseen values, weights them like the loss.

    With distributions, there is also `crps_own`; the likelihood of a normal distribution does not depend on units.
    """
    where, kind = metrics.unseen_targets, task.distribution
    own = Mean(metrics.squared, where, scaled=True, weighted=True)
    if kind == "point":
        return replace(task, metrics={**task.metrics, "mse_own": own}, monitor="mse_own")
    found = {
        "mse_own": replace(own, error=partial(metrics.of_point, metrics.squared)),
        "crps_own": Mean(SCORES[kind], where, scaled=True, weighted=True, power=0.5),
    }
    power = 0.0 if kind == "gaussian" else 0.5
    return replace(task, metrics={**task.metrics, **found}, monitor="crps_own", power=power)


SCORES: dict[Distribution, Error] = {"gaussian": metrics.gaussian_crps, "quantiles": metrics.quantile_crps}


def distributed(task: Task, kind: Distribution) -> Task:
    """The same task with predicted distributions; its own metrics then evaluate the point predictions.

    Training minimises the negative log-likelihood of a normal distribution, or the pinball loss of quantiles. The epoch
    is selected by `crps`, the continuous ranked probability score in units of `scale`, over unseen values if some
    values are given. For point predictions it is the absolute error, so baselines can be compared.
    """
    if kind == "point":
        return task
    where = metrics.unseen_targets if "mse_unseen" in task.metrics else metrics.all_targets
    found = {name: _of_point(metric) for name, metric in task.metrics.items()}
    found["crps"] = Mean(SCORES[kind], where, scaled=True)
    if kind == "gaussian":
        found["nll"] = Mean(metrics.gaussian_surprise, where, scaled=True)
    error = metrics.gaussian_surprise if kind == "gaussian" else metrics.pinball
    return replace(task, distribution=kind, error=error, metrics=found, monitor="crps")


def _of_point(metric: Metric) -> Metric:
    if not isinstance(metric, Mean | ChannelMean):
        raise TypeError(f"a distribution of numbers has no {type(metric).__name__}.")
    return replace(metric, error=partial(metrics.of_point, metric.error))


def pretrain(outputs: int, observed: float = 0.5, shift: Sequence[float] = (), scale: Sequence[float] = ()) -> Task:
    """Predict hidden parts of the rows of a series: the value of each channel, and whether there was one.

    Args:
        outputs: 2 C, values in units of `scale`, followed by the log odds of presence.
        observed: share of the entries that were observed, which balances the two losses.
        shift, scale: of each output; 0 and 1 for presence.
    """
    error = partial(metrics.value_and_presence, observed)
    return Task(
        name="pretrain",
        answer="step",
        outputs=outputs,
        error=error,
        metrics={
            "error": Mean(error, scaled=True),
            "mse": Mean(metrics.squared, metrics.value_targets, scaled=True),
            "presence": Mean(metrics.surprise, metrics.presence_targets, scaled=True),
        },
        monitor="error",
        printed={"mse": 1, "presence": 1},
        shift=shift,
        scale=scale,
    )


def trajectory(outputs: int = 2, answer: Answer = "query") -> Task:
    """Trace a curve at all its points: the first half is interpolation, the second extrapolation."""
    measures: dict[str, Metric] = {"mae": Mean(metrics.summed_absolute)}
    for name, where in (("interpolation", metrics.first_half), ("extrapolation", metrics.second_half)):
        measures[f"{name}_mae"] = Mean(metrics.summed_absolute, where)
        measures[f"{name}_rmse"] = Mean(metrics.summed_squared, where, root=True)
    return Task(
        name="trajectory",
        answer=answer,
        outputs=outputs,
        error=metrics.summed_squared,
        metrics=measures,
        monitor="mae",
        printed={name: PERCENT for name in measures if name != "mae"},
    )


def _records(name: str) -> Callable[[Spec], Task]:
    return lambda spec: records(name, spec.outputs, spec.answer)


TASKS: dict[str, Callable[[Spec], Task]] = {
    "classify": lambda spec: classify(spec.outputs, spec.answer),
    "regress": lambda spec: regress(spec.outputs, spec.shift, spec.scale),
    "classify-points": lambda spec: classify(spec.outputs, spec.answer),
    "regress-points": lambda spec: regress_points(spec.outputs),
    "reconstruct": _records("reconstruct"),
    "interpolate": _records("interpolate"),
    "extrapolate": _records("extrapolate"),
    "trajectory": lambda spec: trajectory(spec.outputs, spec.answer),
}


def for_splits(splits: Splits[Any]) -> Task:
    """The task a data set was loaded for, with as many outputs as its targets need.

    Example:
        >>> from lformer.data import load
        >>> for_splits(load("spiral-2")).metrics.keys() >= {"interpolation_mae", "extrapolation_mae"}
        True
    """
    if splits.task not in TASKS:
        raise ValueError(f"unknown task {splits.task!r}; there are {', '.join(TASKS)}.")
    task = TASKS[splits.task](splits.spec)
    if splits.metrics:
        printed = {name: task.printed.get(name, PERCENT) for name in splits.metrics}
        task = replace(task, monitor=splits.metrics[0], printed=printed)
    return task


def _cross_entropy(class_weights: tuple[float, ...] | None, smoothing: float, scores: Tensor, target: Tensor) -> Tensor:
    """-log of the probability of the true class, times its weight: (..., K), (...) -> (...).

    With `smoothing`, the target probability is 1 - smoothing + smoothing / K for the true class, and smoothing / K for
    each other.
    """
    log_probability = torch.log_softmax(scores, dim=-1)
    error = -log_probability.gather(-1, target[..., None]).squeeze(-1)
    if smoothing:
        error = (1 - smoothing) * error - smoothing * log_probability.mean(dim=-1)
    return error if class_weights is None else error * constant(class_weights, error.dtype, error.device)[target]
