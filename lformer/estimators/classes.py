"""What both classifiers share: how much each class counts, and how sure of a class training makes the model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from sklearn.utils.class_weight import compute_class_weight

from lformer import tasks
from lformer.panel import Array
from lformer.tasks import Task

SMOOTHING, FEW_SERIES = 0.05, 2000  # how much, for fewer than how many series, if nobody says


@dataclass(kw_only=True, eq=False, repr=False)
class ClassSettings:
    """Arguments of a classifier.

    Args:
        class_weight: None, "balanced", or a dict from class to weight.
        label_smoothing: share of each training label that is spread evenly over all classes, which keeps a model of few
            series from becoming too sure of itself; "auto" is 0.05 for fewer than 2,000 series, else 0.
    """

    class_weight: Literal["balanced"] | dict[Any, float] | None = None
    label_smoothing: float | Literal["auto"] = "auto"

    def _classification(self, classes: Array, labels: Array, series: int) -> Task:
        """One class for each of so many series. The epoch is chosen by cross-entropy: few series, few accuracies."""
        return replace(self._task(classes, labels, series, "series"), monitor="cross_entropy")

    def _point_classification(self, classes: Array, labels: Array, series: int) -> Task:
        """One class for each row. The epoch is chosen by accuracy: over many rows it is fine-grained, and it still
        rises when the model has become too sure of the rows it gets wrong."""
        return self._task(classes, labels, series, "step")

    def _task(self, classes: Array, labels: Array, series: int, answer: Literal["series", "step"]) -> Task:
        weights = None
        if self.class_weight is not None:
            weights = compute_class_weight(self.class_weight, classes=classes, y=labels).tolist()
        return tasks.classify(len(classes), answer, weights, self._smoothing(series))

    def _smoothing(self, series: int) -> float:
        given: Any = self.label_smoothing
        if given == "auto":
            return SMOOTHING if series < FEW_SERIES else 0.0
        if isinstance(given, str) or not 0 <= given < 1:
            raise ValueError(f'label_smoothing must be "auto", or at least 0 and below 1; got {given!r}.')
        return float(given)
