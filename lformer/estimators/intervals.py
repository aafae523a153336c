"""Estimators that predict numbers with uncertainty: quantiles, standard deviations and prediction intervals."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from lformer import tasks
from lformer.arrays import as_floats
from lformer.distributions import Distribution
from lformer.estimators.calibrating import CalibratedEstimator, Told
from lformer.estimators.conformal import require_enough
from lformer.estimators.normal_scores import normal_quantile, value_at, z_of
from lformer.panel import Array
from lformer.tasks import Task

KINDS = (None, "gaussian", "quantiles")


@dataclass(kw_only=True, eq=False, repr=False)
class IntervalEstimator(CalibratedEstimator):
    """Base class of the estimators that predict numbers.

    Args:
        uncertainty: what is predicted in addition to the number itself. "gaussian": a mean and a standard deviation,
            trained with the likelihood of a normal distribution; "quantiles": the median and 14 quantiles from 0.01 to
            0.99, trained with the pinball loss, for skewed or heavy-tailed targets. None predicts the number alone,
            trained with the squared error. An ensemble predicts the mixture of the normal distributions of its members,
            or the mean of their quantiles. With either, the epoch is selected by the continuous ranked probability
            score, in standard deviations of the target.
        others: see `CalibratedEstimator`.
    """

    uncertainty: Literal["gaussian", "quantiles"] | None = None

    @property
    def _kind(self) -> Distribution:
        """The distribution that the fitted model predicts, even if the parameter has been changed since."""
        return self.task_.distribution

    def _distributed(self, task: Task) -> Task:
        """The task with the chosen distribution."""
        self._check_uncertainty()
        return task if self.uncertainty is None else tasks.distributed(task, self.uncertainty)

    def _check_uncertainty(self) -> None:
        if self.uncertainty not in KINDS:
            raise ValueError(f'uncertainty must be None, "gaussian" or "quantiles"; got {self.uncertainty!r}.')

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._check_uncertainty()

    @abstractmethod
    def _shaped(self, flat: Array, told: Told) -> Any:
        """(N, O, ...) of all predictions, in the shape that `predict` returns."""

    def _names(self) -> list[str]:
        """Names of the outputs, (O,)."""
        return [f"output {k}" for k in range(self.task_.outputs)]

    def _interval(self, told: Told, coverage: float) -> Any:
        """(..., 2) lower and upper ends, in the shape of the predictions."""
        calibration = self._calibrated()
        found, bins = calibration.at(coverage), calibration.bins(told.ahead)
        used = np.zeros(found.shape, bool)
        used[:, np.unique(bins)] = True
        require_enough(found, calibration.counts, coverage, self._names(), used)
        z = found[:, bins].T
        ends = [value_at(self._kind, told.numbers, told.size, side * z) for side in (-1.0, 1.0)]
        return self._shaped(np.stack(ends, axis=-1), told)

    def _quantiles(self, told: Told, q: Any) -> Any:
        """(..., J) for levels q (J,), or (...) for a single one, in the shape of the predictions."""
        self._require(("gaussian", "quantiles"), "predict_quantiles")
        shares = as_floats(q, "q", np.float64)
        if shares.ndim > 1 or not shares.size or not bool(((shares > 0) & (shares < 1)).all()):
            raise ValueError(f"q must be one or several numbers between 0 and 1; got {q!r}.")
        levels = [normal_quantile(float(share)) for share in np.atleast_1d(shares)]
        found = [value_at(self._kind, told.numbers, told.size, np.asarray(z)) for z in levels]
        return self._shaped(np.stack(found, axis=-1) if shares.ndim else found[0], told)

    def _deviation(self, told: Told) -> Any:
        """The standard deviations, in the shape of the predictions."""
        self._require(("gaussian",), "return_std")
        return self._shaped(told.numbers[:, self.task_.outputs :], told)

    def _point(self, told: Told) -> Any:
        """The point predictions."""
        return self._shaped(told.numbers[:, : self.task_.outputs], told)

    def _require(self, kinds: tuple[str, ...], what: str) -> None:
        if self._kind not in kinds:
            words = " or ".join(f'uncertainty="{kind}"' for kind in kinds)
            hint = " For intervals, calibrate it and call predict_interval." if what == "predict_quantiles" else ""
            raise ValueError(f"{what} needs a {type(self).__name__} fitted with {words}.{hint}")

    def _scores(self, told: Told, truth: Array) -> Array:
        """(N, O) distance of the true values from the predictions, in standard deviations."""
        if truth.shape[1] != self.task_.outputs:
            raise ValueError(f"y must have {self.task_.outputs} numbers for each prediction; got {truth.shape[1]}.")
        return np.abs(z_of(self._kind, told.numbers, told.size, truth))


@dataclass(kw_only=True, eq=False, repr=False)
class TargetEstimator(IntervalEstimator):
    """A regressor with given targets, whose default dropout depends on `uncertainty`."""

    _with_uncertainty: ClassVar[float]  # dropout="auto" with uncertainty

    def _dropout(self) -> float:
        if self.dropout != "auto":
            return super()._dropout()
        return 0.0 if self.uncertainty is None else self._with_uncertainty
