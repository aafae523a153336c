"""LFormerPointClassifier and LFormerPointRegressor: one prediction for each row of a series."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from lformer import tasks
from lformer.estimators.base import all_or_nothing, mean_and_deviation
from lformer.estimators.calibrating import Told, split
from lformer.estimators.class_sets import SetEstimator, class_scores
from lformer.estimators.classes import ClassSettings
from lformer.estimators.eval_set import Part, codes
from lformer.estimators.inputs import goes_by_id, series_groups, series_weights
from lformer.estimators.intervals import TargetEstimator
from lformer.estimators.members import Member
from lformer.estimators.with_trees import TreesEstimator
from lformer.nn import LFormerConfig
from lformer.panel import Array, Panel
from lformer.parts import Targets
from lformer.tasks import Task

MOST_CHANNELS = 64  # with which trees are fitted by default: each brings ten features per row


@dataclass(kw_only=True, eq=False, repr=False)
class _PointEstimator(TreesEstimator):
    """The weight decay that both share, and trees on the values around each row."""

    weight_decay: float = 0.05
    _to_mix: ClassVar[int] = 12  # series; each has many rows
    _trees_need: ClassVar[str] = "streaming=False"

    def _config(self, task: Task) -> LFormerConfig:
        config = super()._config(task)
        self._with_trees(config)  # raises before training if trees=True is impossible
        return config

    def _trees_by_default(self, member: Member) -> bool:
        return super()._trees_by_default(member) and member.model.config.inputs <= MOST_CHANNELS


@dataclass(kw_only=True, eq=False, repr=False)
class LFormerPointClassifier(ClassSettings, _PointEstimator, SetEstimator):
    """Classify the rows of series.

    Args:
        class_weight, label_smoothing: as in `ClassSettings`, applied to each row.
        trees: whether the prediction is averaged with that of gradient-boosted trees on the values of each channel at
            the row and at rows nearby, see `lformer.nn.row_table` and `TreesEstimator`. "auto" turns this on with at
            least 12 validation series and at most 64 channels, but not with `streaming` nor with `class_weight`. Trees
            that do not help on the validation series are left out.
        pretrained: a fitted `LFormerPretrainer` to start from, or the folder of a saved one; see `FineTunedEstimator`.
        others: see `LFormerEstimator`.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X = [(np.sort(rng.random(n)), rng.standard_normal((n, 1))) for n in rng.integers(3, 9, 40)]
        >>> y = [np.where(values[:, 0] > 0, "up", "down") for _, values in X]
        >>> LFormerPointClassifier(max_epochs=10, random_state=0).fit(X, y).score(X, y) > 0.9
        True
    """

    dropout: float | Literal["auto"] = 0.1
    members: int | Literal["auto"] = "auto"
    _times: ClassVar[int] = 2  # there are many rows, and their accuracy keeps rising for longer
    _alone: ClassVar[int] = 2000  # the rows of a series resemble each other, so variety takes many series

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None, eval_set: Any = None, groups: Any = None) -> Self:
        """Train on series and the classes of their rows.

        Args:
            X: the series. In an array, rows without any value at the end of a series are padding.
            y: (L_i,) classes for each series: a list, a Series or dict by id, or an array (n, L) if X is an array.
            sample_weight: (n,) weight of each series.
            eval_set: (X, y) on which to select the epoch; all of X is then used for training.
            groups: (n,) the subject of each series, if some subjects have several. All series of a subject are then
                either in the training or in the validation set, so that the epoch is selected by performance on new
                subjects.
        """
        panel = self._series(X, reset=True)
        labels = _labels(panel, X, y)
        self.classes_, code = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"there must be at least two classes; all {len(labels)} rows are of one class, "
                f"{self.classes_.tolist()[0]!r}."
            )
        weights = series_weights(sample_weight, panel, isinstance(X, Panel))
        targets = Targets(values=code.astype(np.int64), at="rows", weights=weights)
        task = self._point_classification(self.classes_, labels, len(panel))

        def read(panel: Panel, X: Any, y: Any) -> Part:
            return panel.compact(), Targets(values=codes(_labels(panel, X, y), self.classes_), at="rows")

        whose = series_groups(groups, panel, isinstance(X, Panel))
        return self._fit(*self._validated(_with_targets(panel, targets), eval_set, read), task, groups=whose)

    def predict_proba(self, X: Any) -> list[Array]:
        """Class probabilities: a list of (L_i, classes), rows as in X, classes in the order of `classes_`."""
        check_is_fitted(self, "model_")
        return [self._decode(scores) for scores in self._answers(X, self.task_)]

    def predict_log_proba(self, X: Any) -> list[Array]:
        """Logarithms of the class probabilities: a list of (L_i, classes)."""
        check_is_fitted(self, "model_")
        return [torch.log_softmax(scores.double(), dim=-1).numpy() for scores in self._answers(X, self.task_)]

    def predict(self, X: Any) -> list[Array]:
        """The most likely class of each row: a list of (L_i,)."""
        return [self.classes_[proba.argmax(axis=1)] for proba in self.predict_proba(X)]

    def calibrate(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Calibrate the size of prediction sets on series not used in training, with the classes of their rows.

        `groups`: (n,) the subject of each series, see `LFormerClassifier.calibrate`.
        """
        check_is_fitted(self, "model_")
        labels, probability = _labels(self._series(X), X, y), self.predict_proba(X)
        flat, lengths = np.concatenate(probability), np.array([len(one) for one in probability])
        told = Told(flat, flat, lengths, np.zeros(len(flat)))
        return self._calibrate(told, class_scores(flat, codes(labels, self.classes_)), groups)

    def predict_set(self, X: Any, coverage: float = 0.9, by_class: bool = False) -> list[Array]:
        """Prediction sets: a list of (L_i, classes) bool, whether the set of a row contains each of `classes_`.

        For a new series from the same distribution as those of `calibrate`, the class of a randomly drawn row is in its
        set with at least this probability; this is an average over series and rows. See
        `LFormerClassifier.predict_set`.
        """
        check_is_fitted(self, "model_")
        probability = self.predict_proba(X)
        told = self._set(np.concatenate(probability), coverage, by_class)
        return split(told, np.array([len(one) for one in probability]))

    def score(self, X: Any, y: Any) -> float:
        """Accuracy over all rows of all series."""
        check_is_fitted(self, "model_")
        truth = np.concatenate(_per_series(self._series(X), X, y))
        return float(accuracy_score(truth, np.concatenate(self.predict(X))))

    def _decode(self, outputs: Tensor) -> Array:
        """Class probabilities."""
        return torch.softmax(outputs.double(), dim=-1).numpy()


@dataclass(kw_only=True, eq=False, repr=False)
class LFormerPointRegressor(_PointEstimator, TargetEstimator):
    """Predict one or several numbers for each row of a series; NaN among the targets marks missing ones.

    Args:
        uncertainty: what is predicted in addition to the numbers themselves, see `IntervalEstimator`.
        others: as in `LFormerPointClassifier`, without those of `ClassSettings`.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X = [(np.sort(rng.random(n)), rng.standard_normal((n, 1))) for n in rng.integers(3, 9, 40)]
        >>> y = [10 + 5 * values[:, 0] for _, values in X]
        >>> LFormerPointRegressor(max_epochs=20, random_state=0).fit(X, y).score(X, y) > 0.8
        True
    """

    dropout: float | Literal["auto"] = "auto"
    _with_uncertainty: ClassVar[float] = 0.1

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None, eval_set: Any = None, groups: Any = None) -> Self:
        """Train on series and the numbers of their rows.

        Args:
            X: the series. In an array, rows without any value at the end of a series are padding.
            y: (L_i,) or (L_i, K) numbers for each series: a list, a Series or dict by id, or an array (n, L) if X is an
                array.
            sample_weight: (n,) weight of each series.
            eval_set: (X, y) on which to select the epoch; all of X is then used for training.
            groups: (n,) the subject of each series, if some subjects have several. All series of a subject are then
                either in the training or in the validation set, so that the epoch is selected by performance on new
                subjects.
        """
        panel = self._series(X, reset=True)
        numbers = _numbers(panel, X, y)
        self._flat = numbers.ndim == 1
        table, known = _known(numbers)
        if not known.any(axis=0).all():
            empty = np.flatnonzero(~known.any(axis=0)).tolist()
            raise ValueError(f"y holds no observed value for outputs {empty}: every number is NaN.")
        weights = series_weights(sample_weight, panel, isinstance(X, Panel))
        targets = Targets(values=np.where(known, table, 0.0), at="rows", observed=known, weights=weights)
        task = self._distributed(tasks.regress_points(table.shape[1], *mean_and_deviation(table)))
        whose = series_groups(groups, panel, isinstance(X, Panel))
        return self._fit(*self._validated(_with_targets(panel, targets), eval_set, _where_known), task, groups=whose)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predicted means, or medians of quantiles: a list of (L_i,) or (L_i, K), as the targets were, rows as in X.

        With `return_std`, also a list of their standard deviations; requires uncertainty="gaussian".
        """
        check_is_fitted(self, "model_")
        told = self._told(X)
        return (self._point(told), self._deviation(told)) if return_std else self._point(told)

    def predict_quantiles(self, X: Any, q: Any = (0.05, 0.5, 0.95)) -> list[Array]:
        """Predicted quantiles: a list of (L_i, J) or (L_i, K, J) for levels q (J,), without J for a single one.

        Requires `uncertainty`.
        """
        check_is_fitted(self, "model_")
        found: list[Array] = self._quantiles(self._told(X), q)
        return found

    def predict_interval(self, X: Any, coverage: float = 0.9) -> list[Array]:
        """Prediction intervals: a list of (L_i, 2) or (L_i, K, 2), lower and upper ends; requires `calibrate`.

        For a new series from the same distribution as those of `calibrate`, the number of a randomly drawn row lies
        inside its interval with at least this probability, separately for each output. This is an average over series
        and rows; it does not hold for all rows of a series at once.
        """
        check_is_fitted(self, "model_")
        found: list[Array] = self._interval(self._told(X), coverage)
        return found

    def calibrate(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Calibrate the width of prediction intervals on series not used in training, with the numbers of their rows.

        `groups`: (n,) the subject of each series, see `LFormerRegressor.calibrate`.
        """
        check_is_fitted(self, "model_")
        truth, _ = _known(_numbers(self._series(X), X, y))
        told = self._told(X)
        return self._calibrate(told, self._scores(told, truth), groups)

    def _told(self, X: Any) -> Told:
        found = [self.task_.decode(outputs).numpy() for outputs in self._answers(X, self.task_)]
        flat = np.concatenate(found)
        lengths = np.array([len(one) for one in found])
        return Told(flat, np.tile(self.task_.scale, (len(flat), 1)), lengths, np.zeros(len(flat)))

    def _shaped(self, flat: Array, told: Told) -> list[Array]:
        return split(flat[:, 0] if self._flat else flat, told.lengths)

    def score(self, X: Any, y: Any) -> float:
        """R² over all rows that have a target; the mean over outputs if there are several."""
        check_is_fitted(self, "model_")
        truth, told = _numbers(self._series(X), X, y), np.concatenate(self.predict(X))
        if truth.shape != told.shape:
            raise ValueError(f"y must have rows of shape {told.shape[1:]}, as in fit; got {truth.shape[1:]}.")
        pairs = [(t[np.isfinite(t)], p[np.isfinite(t)]) for t, p in zip(_columns(truth), _columns(told), strict=True)]
        return float(np.mean([r2_score(t, p) for t, p in pairs]))

    def _decode(self, outputs: Tensor) -> Array:
        """Numbers in the units of the targets, without the last axis if the targets had none."""
        numbers = self.task_.decode(outputs).numpy()[..., : self.task_.outputs]
        return numbers[..., 0] if self._flat else numbers


def _per_series(panel: Panel, X: Any, y: Any) -> list[Array]:
    """The targets of each series of `panel`, which was built from X, as an array with one entry per row."""
    targets = _in_order(panel, y, isinstance(X, Panel))
    if len(targets) != len(panel):
        raise ValueError(f"y must have one array for each series; got {len(targets)} for {len(panel)} series.")
    arrays = [np.asarray(one) for one in targets]
    if hasattr(X, "ndim"):  # what is padding in an array of series is padding in the array of targets
        rows = X.shape[1]
        arrays = [a[:n] if a.shape[:1] == (rows,) else a for a, n in zip(arrays, panel.lengths, strict=True)]
    for name, array, length in zip(panel.ids.tolist(), arrays, panel.lengths.tolist(), strict=True):
        if array.ndim == 0 or len(array) != length:
            got = "a single target" if array.ndim == 0 else f"{len(array)} targets"
            raise ValueError(f"y must have one target for each row; series {name!r} has {length} rows and {got}.")
    shapes = sorted({array.shape[1:] for array in arrays})
    if len(shapes) > 1:
        raise ValueError(f"the targets of all rows must have one shape; got {shapes}.")
    return arrays


def _in_order(panel: Panel, y: Any, by_id: bool) -> Any:
    """Targets in the order of the series: by id if both sides have ids, else by position."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None: give one array for each series.")
    if isinstance(y, Mapping):
        lost = [name for name in panel.ids.tolist() if name not in y]
        if lost:
            raise ValueError(f"y has no entry for {len(lost)} of {len(panel)} ids, among them {lost[:5]}.")
        return [y[name] for name in panel.ids.tolist()]
    if goes_by_id(y, by_id):
        return panel.align(y, "y")
    return y.to_numpy() if hasattr(y, "to_numpy") else y


def _numbers(panel: Panel, X: Any, y: Any) -> Array:
    """(N,) or (N, K) float64 of all rows; NaN where there is no target."""
    numbers = np.concatenate(_per_series(panel, X, y)).astype(np.float64)
    if numbers.ndim > 2:
        raise ValueError(f"the targets of a series must be (L,) or (L, K); got rows of shape {numbers.shape[1:]}.")
    if np.isinf(numbers).any():
        raise ValueError("y must be finite numbers, or NaN where there is no target; it contains infinity.")
    return numbers


def _labels(panel: Panel, X: Any, y: Any) -> Array:
    """(N,) classes of all rows."""
    labels = np.concatenate(_per_series(panel, X, y))
    if labels.ndim != 1:
        raise ValueError(f"the classes of a series must be (L,), one per row; got {labels.shape[1:]} numbers each.")
    check_classification_targets(labels)
    return labels


def _known(numbers: Array) -> tuple[Array, Array]:
    """(N, K) numbers, and which of them are given."""
    table = numbers[:, None] if numbers.ndim == 1 else numbers
    return table, np.isfinite(table)


def _where_known(panel: Panel, X: Any, y: Any) -> Part:
    """Series that have a target, and the numbers of all their rows, 0 where there is none."""
    table, known = _known(_numbers(panel, X, y))
    return _with_targets(panel, Targets(values=np.where(known, table, 0.0), at="rows", observed=known))


def _with_targets(panel: Panel, targets: Targets) -> tuple[Panel, Targets]:
    """Drop series without any target: they contribute nothing to training or validation."""
    owner = np.repeat(np.arange(len(panel)), panel.lengths)
    known = np.ones(len(owner), bool) if targets.observed is None else targets.observed.any(axis=1)
    kept = np.bincount(owner[known], minlength=len(panel)) > 0
    rows = kept[owner]
    observed = None if targets.observed is None else targets.observed[rows]
    weights = None if targets.weights is None else targets.weights[kept]
    return panel[kept].compact(), Targets(values=targets.values[rows], at="rows", observed=observed, weights=weights)


def _columns(table: Array) -> Array:
    """(N,) or (N, K) -> (K, N)"""
    return table[None] if table.ndim == 1 else table.T
