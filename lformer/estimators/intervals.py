"""Numbers that say how sure they are: quantiles, deviations, and intervals that cover as often as they say."""

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
    """Arguments of an estimator of numbers.

    Args:
        uncertainty: what the model says beside the answer itself. "gaussian": a mean and a deviation, trained by the
            likelihood of a normal distribution; "quantiles": a median and 14 quantiles from 0.01 to 0.99, trained by
            the pinball loss, for what is skewed or has heavy tails. None says nothing, and is trained by the squared
            error. Of several members, the mixture of the normal distributions, or the mean of the quantiles. With
            either, the epoch is chosen by the continuous ranked probability score, in deviations of the target.
        others: see `CalibratedEstimator`.
    """

    uncertainty: Literal["gaussian", "quantiles"] | None = None

    @property
    def _kind(self) -> Distribution:
        """What the model puts out, whatever the parameter says meanwhile."""
        return self.task_.distribution

    def _distributed(self, task: Task) -> Task:
        """A task on numbers as it is asked here."""
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
        """(N, O, ...) of all answers, as `predict` gives them."""

    def _names(self) -> list[str]:
        """Of the numbers of an answer, (O,)."""
        return [f"output {k}" for k in range(self.task_.outputs)]

    def _interval(self, told: Told, coverage: float) -> Any:
        """(..., 2) lower and upper ends, of the shape of the answers."""
        calibration = self._calibrated()
        found, bins = calibration.at(coverage), calibration.bins(told.ahead)
        used = np.zeros(found.shape, bool)
        used[:, np.unique(bins)] = True
        require_enough(found, calibration.counts, coverage, self._names(), used)
        z = found[:, bins].T
        ends = [value_at(self._kind, told.numbers, told.size, side * z) for side in (-1.0, 1.0)]
        return self._shaped(np.stack(ends, axis=-1), told)

    def _quantiles(self, told: Told, q: Any) -> Any:
        """(..., J) at the shares q (J,), or (...) at one, of the shape of the answers."""
        self._require(("gaussian", "quantiles"), "predict_quantiles")
        shares = as_floats(q, "q", np.float64)
        if shares.ndim > 1 or not shares.size or not bool(((shares > 0) & (shares < 1)).all()):
            raise ValueError(f"q must be one or several numbers between 0 and 1; got {q!r}.")
        levels = [normal_quantile(float(share)) for share in np.atleast_1d(shares)]
        found = [value_at(self._kind, told.numbers, told.size, np.asarray(z)) for z in levels]
        return self._shaped(np.stack(found, axis=-1) if shares.ndim else found[0], told)

    def _deviation(self, told: Told) -> Any:
        """The deviations of the answers, of their shape."""
        self._require(("gaussian",), "return_std")
        return self._shaped(told.numbers[:, self.task_.outputs :], told)

    def _point(self, told: Told) -> Any:
        """The answers themselves."""
        return self._shaped(told.numbers[:, : self.task_.outputs], told)

    def _require(self, kinds: tuple[str, ...], what: str) -> None:
        if self._kind not in kinds:
            words = " or ".join(f'uncertainty="{kind}"' for kind in kinds)
            hint = " For intervals, calibrate it and call predict_interval." if what == "predict_quantiles" else ""
            raise ValueError(f"{what} needs a {type(self).__name__} fitted with {words}.{hint}")

    def _scores(self, told: Told, truth: Array) -> Array:
        """(N, O) how far the truth lies from the answers, in deviations."""
        if truth.shape[1] != self.task_.outputs:
            raise ValueError(f"y must have {self.task_.outputs} numbers for each answer; got {truth.shape[1]}.")
        return np.abs(z_of(self._kind, told.numbers, told.size, truth))


@dataclass(kw_only=True, eq=False, repr=False)
class TargetEstimator(IntervalEstimator):
    """An estimator of numbers that are given as targets, whose dropout depends on whether it says how sure it is."""

    _with_uncertainty: ClassVar[float]  # dropout, if it is "auto"

    def _dropout(self) -> float:
        if self.dropout != "auto":
            return super()._dropout()
        return 0.0 if self.uncertainty is None else self._with_uncertainty
