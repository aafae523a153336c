"""What both classifiers share: class weights and label smoothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from sklearn.utils.class_weight import compute_class_weight

from lformer import tasks
from lformer.panel import Array
from lformer.tasks import Task

SMOOTHING, FEW_SERIES = 0.05, 2000  # label_smoothing="auto": 0.05 for fewer series than this


@dataclass(kw_only=True, eq=False, repr=False)
class ClassSettings:
    """Arguments of the classifiers.

    Args:
        class_weight: None, "balanced", or a dict from class to weight.
        label_smoothing: share of each training label that is spread evenly over all classes, which keeps a model
            trained on few series from becoming overconfident; "auto" is 0.05 for fewer than 2,000 series, else 0.
    """

    class_weight: Literal["balanced"] | dict[Any, float] | None = None
    label_smoothing: float | Literal["auto"] = "auto"

    def _classification(self, classes: Array, labels: Array, series: int) -> Task:
        """One class per series. The epoch is selected by cross-entropy, as accuracy is coarse for few series."""
        return replace(self._task(classes, labels, series, "series"), monitor="cross_entropy")

    def _point_classification(self, classes: Array, labels: Array, series: int) -> Task:
        """One class per row. The epoch is selected by accuracy.

        Over many rows it is fine-grained, and it still rises when the model has become overconfident about the rows it
        gets wrong.
        """
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
