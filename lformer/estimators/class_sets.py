"""Prediction sets: sets of classes that contain the true one with guaranteed coverage.

The score of a class is 1 minus its probability, and a set contains every class whose score is below a threshold (LAC:
Sadinle, Lei and Wasserman, "Least ambiguous set-valued classifiers", 2019). Among all methods with this guarantee it
has the smallest sets on average, and it needs no random numbers. Adaptive sets (APS) vary more with the difficulty of a
series, but are larger, and avoid that only by randomisation. For coverage within each class, use `by_class`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lformer.estimators.calibrating import CalibratedEstimator
from lformer.estimators.conformal import require_enough
from lformer.panel import Array


@dataclass(kw_only=True, eq=False, repr=False)
class SetEstimator(CalibratedEstimator):
    """A classifier with prediction sets."""

    if TYPE_CHECKING:
        classes_: Array

    def _set(self, probability: Array, coverage: float, by_class: bool) -> Array:
        """(N, K) bool, the prediction sets for (N, K) probabilities."""
        calibration = self._calibrated()
        found = calibration.at(coverage)
        names = ["all classes", *(f"class {name!r}" for name in self.classes_.tolist())]
        used = np.full(found.shape, by_class)
        used[0] = not by_class
        require_enough(found, calibration.counts, coverage, names, used)
        told = 1 - probability <= (found[1:, 0] if by_class else found[0, 0])
        told[np.arange(len(told)), probability.argmax(axis=1)] = True  # an empty set is useless
        return told


def class_scores(probability: Array, code: Array) -> Array:
    """(N, 1 + K) 1 minus the probability of the true class: for all predictions, then for those of each class alone."""
    missed = 1 - probability[np.arange(len(code)), code]
    mine = code[:, None] == np.arange(probability.shape[1])
    return np.concatenate([missed[:, None], np.where(mine, missed[:, None], np.nan)], axis=1)
