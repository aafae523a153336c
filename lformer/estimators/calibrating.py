"""Estimators that can be calibrated: prediction intervals and prediction sets with guaranteed coverage.

See `lformer.estimators.conformal` for the guarantee and the method.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.validation import check_is_fitted

from lformer.estimators.base import LFormerEstimator
from lformer.estimators.conformal import Calibration, calibrated
from lformer.estimators.inputs import as_panel, goes_by_id, group_codes, series_groups
from lformer.panel import Array, Panel
from lformer.splitting import hold_out, hold_out_groups


class Told(NamedTuple):
    """The predictions for some series, concatenated."""

    numbers: Array  # (N, P O) in the units of the targets, as returned by `Task.decode`; or (N, K) probabilities
    size: Array  # (N, O) standard deviation to assume where the model predicts none
    lengths: Array  # (n,) number of predictions for each series
    ahead: Array  # (N,) time since the last row, for predictions after it; else 0


@dataclass(kw_only=True, eq=False, repr=False)
class CalibratedEstimator(LFormerEstimator):
    """Base class of all estimators except `LFormerPretrainer`; adds calibration to `LFormerEstimator`.

    Args:
        calibration_fraction: share of the training series that `fit` uses neither for training nor for selecting the
            epoch, and passes to `calibrate` at the end. With 0, call `calibrate` yourself with series not used in
            training.
        others: see `LFormerEstimator`.

    After calibration, `calibration_` holds the thresholds. They are saved with the model; fitting again discards them.
    """

    calibration_fraction: float = 0.0

    def _calibrate(self, told: Told, scores: Array, groups: Any = None) -> Self:
        """Compute the thresholds from (N, G) scores, NaN where there is none; `groups`: (n,) subjects of the series."""
        if not (~np.isnan(scores)).any():
            raise ValueError("none of the series to calibrate on has a value to compare with.")
        n = len(told.lengths)
        owner = np.repeat(np.arange(n) if groups is None else group_codes(groups, n), told.lengths)
        self.calibration_ = calibrated(scores, owner, told.ahead, self._edges())
        return self

    def _calibrated(self) -> Calibration:
        check_is_fitted(self, "model_")
        if self.calibration_ is None:
            raise ValueError(
                f"this {type(self).__name__} is not calibrated, so the coverage of its predictions is unknown. "
                "Call calibrate with series that training has not seen, or fit with calibration_fraction=0.2."
            )
        return self.calibration_

    def _hold_out(self, fit: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        if not self.calibration_fraction:
            return (args, kwargs), None
        self._check_parameters()
        given = signature(fit).bind(self, *args, **kwargs).arguments
        X, n = given["X"], len(given["X"])
        if n < 3:
            raise ValueError(f"at least 3 series are needed to train, to validate and to calibrate; n_samples={n}.")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        share, whose = min(self.calibration_fraction, (n - 2) / n), None
        if given.get("groups") is None:
            train, held = (np.sort(part) for part in hold_out(n, share, seed))
        else:
            codes = series_groups(given["groups"], as_panel(X)[0], isinstance(X, Panel)) or {}
            whose = np.array(list(codes.values()))
            train, held = hold_out_groups(whose, share, seed)
        part = {name: given[name] for name in given if name not in ("self", "X")}
        part = {name: value if name == "eval_set" else some_of(value, X, train) for name, value in part.items()}
        kept = [some_of(value, X, held) for value in (X, given.get("y")) if value is not None]
        return ((some_of(X, X, train),), part), (kept, None if whose is None else whose[held])

    def _calibrate_on(self, held: Any) -> None:
        if held is None:
            return
        kept, groups = held
        try:
            self.calibrate(*kept, groups=groups)
        except ValueError as error:
            raise ValueError(f"the {len(kept[0])} series that were held out for calibration: {error}") from error
        if self.autosave is not None:
            self.save(self.autosave)

    @abstractmethod
    def calibrate(self, X: Any, y: Any, *, groups: Any = None) -> Self:
        """Calibrate the width of intervals, or the size of sets, on series not used in training."""

    def _edges(self) -> Array:
        """(B - 1,) edges of the bins of the time ahead."""
        return np.zeros(0)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not 0 <= self.calibration_fraction < 1:
            raise ValueError(f"calibration_fraction must be at least 0 and below 1; got {self.calibration_fraction}.")


def some_of(values: Any, X: Any, index: Array) -> Any:
    """The entries of X, targets or weights for some series of X; what is aligned by id is returned unchanged."""
    if values is None or (values is not X and goes_by_id(values, isinstance(X, Panel))):
        return values
    return values[index] if isinstance(values, Panel) else _safe_indexing(values, index)


def split(flat: Array, lengths: Array) -> list[Array]:
    """(N, ...) -> a list of (N_i, ...), one per series"""
    return np.split(flat, np.cumsum(lengths)[:-1])
