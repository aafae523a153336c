"""What is asked of a model: a loss to train on, metrics to report, and the one that selects."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from lformer import metrics

Measure = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Task:
    """A task on `batch.targets`.

    Attributes:
        name: as printed.
        loss: (prediction, targets) -> (), what training minimises.
        metrics: by name, each (all predictions of a part, all targets) -> ().
        monitor: the metric of the validation part that selects the model.
        direction: whether a small or a large value of it is good.
    """

    name: str
    loss: Measure
    metrics: dict[str, Measure]
    monitor: str
    direction: Literal["min", "max"]

    def __post_init__(self) -> None:
        if self.monitor not in self.metrics:
            raise ValueError(f"monitor must be one of the metrics {', '.join(self.metrics)}; got {self.monitor!r}.")


def trajectory(half: int) -> Task:
    """Trace a curve at all its points: the first `half` count as interpolation, the rest as extrapolation."""

    def first(measure: Measure) -> Measure:
        return lambda prediction, target: measure(prediction[:, :half], target[:, :half])

    def second(measure: Measure) -> Measure:
        return lambda prediction, target: measure(prediction[:, half:], target[:, half:])

    return Task(
        name="trajectory",
        loss=metrics.summed_mse,
        metrics={
            "mae": metrics.summed_mae,
            "interpolation_mae": first(metrics.summed_mae),
            "interpolation_rmse": first(metrics.summed_rmse),
            "extrapolation_mae": second(metrics.summed_mae),
            "extrapolation_rmse": second(metrics.summed_rmse),
        },
        monitor="mae",
        direction="min",
    )
