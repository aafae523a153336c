"""What is asked of a model: the kind of answer, a loss to train on, metrics to report, and the one that selects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lformer import metrics
from lformer.batch import IrregularBatch
from lformer.data import PanelPart, Splits
from lformer.data.spirals import HALF, SpiralPart
from lformer.metrics import Metric


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task on `batch.targets`.

    Attributes:
        name: as printed.
        answer: the head a model needs: one answer per "series", per "step" (row) or per "query".
        outputs: how many numbers an answer has.
        loss: (prediction, batch) -> (), what training minimises.
        metrics: by name, of a whole part.
        monitor: the metric of the validation part that selects the model.
        direction: whether a small or a large value of it is good.
        shift, scale: prediction = shift + scale · output of the model, so that a model works with numbers near 1.
    """

    name: str
    answer: Literal["series", "step", "query"]
    outputs: int
    loss: Callable[[Tensor, IrregularBatch], Tensor]
    metrics: dict[str, Metric]
    monitor: str
    direction: Literal["min", "max"]
    shift: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.monitor not in self.metrics:
            raise ValueError(f"monitor must be one of the metrics {', '.join(self.metrics)}; got {self.monitor!r}.")

    def predict(self, model: nn.Module, batch: IrregularBatch) -> Tensor:
        """The model's answer in the units of the targets."""
        output = model(batch)
        if output.shape[-1] != self.outputs:
            raise ValueError(f"{self.name} needs {self.outputs} outputs; the model gives {output.shape[-1]}.")
        return output if (self.shift, self.scale) == (0.0, 1.0) else self.shift + self.scale * output

    def better(self, value: float, than: float) -> bool:
        """Whether one value of the monitored metric beats another."""
        return value < than if self.direction == "min" else value > than


def classify(
    classes: int, answer: Literal["series", "step"] = "series", of_class: Sequence[float] | None = None
) -> Task:
    """One of several classes, of each series or of each row; accuracy over all of them.

    `of_class` says how much each class counts in the loss and in the cross-entropy of a part; all alike if None.
    """
    error = partial(_cross_entropy, None if of_class is None else torch.tensor(of_class, dtype=torch.float32))
    return Task(
        name="classify" if answer == "series" else "classify-points",
        answer=answer,
        outputs=classes,
        loss=partial(metrics.mean_loss, error),
        metrics={"accuracy": Metric(metrics.correct), "cross_entropy": Metric(error)},
        monitor="accuracy",
        direction="max",
    )


def regress(outputs: int = 1, shift: float = 0.0, scale: float = 1.0) -> Task:
    """Numbers of each series, reported in their own units; `shift` and `scale` are those of the training targets."""
    return Task(
        name="regress",
        answer="series",
        outputs=outputs,
        loss=partial(_scaled_loss, scale),
        metrics={"mae": Metric(metrics.absolute), "rmse": Metric(metrics.squared, root=True)},
        monitor="rmse",
        direction="min",
        shift=shift,
        scale=scale,
    )


def regress_points(outputs: int) -> Task:
    """Numbers of each row."""
    return Task(
        name="regress-points",
        answer="step",
        outputs=outputs,
        loss=partial(metrics.mean_loss, metrics.squared),
        metrics={"mse": Metric(metrics.squared), "mae": Metric(metrics.absolute)},
        monitor="mse",
        direction="min",
    )


def records(name: str, channels: int, answer: Literal["step", "query"] = "step") -> Task:
    """The values of a record at its rows: reconstructed, interpolated or extrapolated.

    `mse` is over every observed value, given or not, and selects; `mse_unseen` over those that were not among the
    inputs. Which of the two a publication prints is often not said, so both are reported. Reconstruction has no unseen
    value.
    """
    measures = {"mse": Metric(metrics.squared), "mae": Metric(metrics.absolute)}
    if name != "reconstruct":
        measures["mse_unseen"] = Metric(metrics.squared, metrics.unseen_targets)
    return Task(
        name=name,
        answer=answer,
        outputs=channels,
        loss=partial(metrics.mean_loss, metrics.squared),
        metrics=measures,
        monitor="mse",
        direction="min",
    )


def trajectory(half: int, answer: Literal["step", "query"] = "query") -> Task:
    """Trace a curve at all its points: the first `half` count as interpolation, the rest as extrapolation."""
    first, second = metrics.points(0, half), metrics.points(half, None)
    return Task(
        name="trajectory",
        answer=answer,
        outputs=2,
        loss=partial(metrics.mean_loss, metrics.summed_squared),
        metrics={
            "mae": Metric(metrics.summed_absolute),
            "interpolation_mae": Metric(metrics.summed_absolute, first),
            "interpolation_rmse": Metric(metrics.summed_squared, first, root=True),
            "extrapolation_mae": Metric(metrics.summed_absolute, second),
            "extrapolation_rmse": Metric(metrics.summed_squared, second, root=True),
        },
        monitor="mae",
        direction="min",
    )


def for_splits(splits: Splits[Any]) -> Task:
    """The task a data set was loaded for, with as many outputs as its targets need.

    Example:
        >>> from lformer.data import load
        >>> for_splits(load("spiral-2", task="extrapolate")).metrics.keys() >= {"extrapolation_mae"}
        True
    """
    train = splits.train
    if isinstance(train, SpiralPart):
        return trajectory(HALF, "query" if train.unobserved == "query" else "step")
    if not isinstance(train, PanelPart):
        raise TypeError(f"no task is known for parts of type {type(train).__name__}; make a Task by hand.")
    targets, name = train.targets, splits.task
    if name in ("classify", "classify-points"):
        return classify(int(targets.values.max()) + 1, "series" if name == "classify" else "step")
    if name == "regress":
        known = targets.values[train.members]
        return regress(known.shape[1], float(known.mean()), float(known.std()) or 1.0)
    if name == "regress-points":
        return regress_points(targets.values.shape[1])
    return records(name, targets.values.shape[1], "query" if targets.at == "queries" else "step")


def _scaled_loss(scale: float, prediction: Tensor, batch: IrregularBatch) -> Tensor:
    """The mean squared error in units of the scale."""
    return metrics.mean_loss(metrics.squared, prediction, batch) / scale**2


def _cross_entropy(of_class: Tensor | None, scores: Tensor, target: Tensor) -> Tensor:
    """-log of the probability of the right class, times its weight: (K,), (..., K), (...) -> (...)."""
    error = -torch.log_softmax(scores, dim=-1).gather(-1, target[..., None]).squeeze(-1)
    return error if of_class is None else of_class.to(error)[target] * error
