"""LFormerClassifier and LFormerRegressor: one prediction per series."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from lformer import tasks
from lformer.estimators.base import all_or_nothing, mean_and_deviation
from lformer.estimators.calibrating import Told
from lformer.estimators.class_sets import SetEstimator, class_scores
from lformer.estimators.classes import ClassSettings
from lformer.estimators.eval_set import Part, codes
from lformer.estimators.inputs import as_panel, goes_by_id, series_groups, series_weights
from lformer.estimators.intervals import TargetEstimator
from lformer.estimators.with_trees import TreesEstimator
from lformer.nn import LFormerConfig
from lformer.nn.summaries import FEATURES
from lformer.panel import Array, Panel
from lformer.parts import Targets
from lformer.scaling import Scale
from lformer.tasks import Task
from lformer.train import TrainConfig

PER_SUMMARY = 10  # series needed per summary feature, to avoid overfitting
CLASSES_TO_MIX = 200  # validation series with classes that suffice to choose the weight of the trees
NUMBERS_TO_MIX = 12  # a number carries more information: 12 found the best weight in eight of eight fits, on folds


@dataclass(kw_only=True, eq=False, repr=False)
class _SeriesEstimator(TreesEstimator):
    """The regularisation and summary features that both share."""

    members: int | Literal["auto"] = "auto"
    drop_fraction: float = 0.2
    summaries: bool | Literal["auto"] = "auto"
    weight_decay: float = 0.1
    _trees_need: ClassVar[str] = "summaries=True"
    _count: int = field(default=0, init=False)  # number of training series of the last `fit`; not saved

    def _training(self, series: int = 1) -> TrainConfig:
        return replace(super()._training(series), drop_fraction=self.drop_fraction)

    def _prepare(
        self, panel: Panel, targets: Targets, task: Task, scale: Scale, seed: int
    ) -> tuple[Panel, Targets, Task]:
        self._count = len(panel) - self._held
        return super()._prepare(panel, targets, task, scale, seed)

    def _config(self, task: Task) -> LFormerConfig:
        config = super()._config(task)
        wanted = self.summaries
        if wanted == "auto":
            wanted = self._count >= PER_SUMMARY * FEATURES * config.inputs
        config = replace(config, summaries=bool(wanted))
        self._with_trees(config)  # raises before training if trees=True is impossible
        return config

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not 0 <= self.drop_fraction < 1:
            raise ValueError(f"drop_fraction must be at least 0 and below 1; got {self.drop_fraction}.")
        if self.summaries is not True and self.summaries is not False and self.summaries != "auto":
            raise ValueError(f'summaries must be True, False or "auto"; got {self.summaries!r}.')


@dataclass(kw_only=True, eq=False, repr=False)
class LFormerClassifier(ClassifierMixin, ClassSettings, _SeriesEstimator, SetEstimator):  # type: ignore[misc]
    """Classify whole series.

    Args:
        class_weight, label_smoothing: see `ClassSettings`.
        drop_fraction: share of the observations, rows and channels of a series that is dropped in training, differently
            in every epoch. Useful for many noisy channels and few series.
        summaries: whether the prediction also depends on summary features of each channel: its mean, range and the
            like, as used by gradient-boosted trees. "auto" turns this on if there are ten series per summary feature;
            with fewer, the model would overfit to them.
        trees: whether the prediction is averaged with that of gradient-boosted trees on these features and the static
            covariates. The weight of the trees (`model_.trees.weight`, from 0 to 1) is the one that is best on the
            validation series, see `lformer.nn.trees`. "auto" turns this on if summaries are used and there are at least
            30 validation series (12 for regression), but not with `streaming`, where trees would slow down every row,
            nor with `class_weight`.
        pretrained: an `LFormerPretrainer` fitted on more series, without classes, or the folder of a saved one; see
            `FineTunedEstimator`.
        calibration_fraction: see `CalibratedEstimator`.
        others: see `LFormerEstimator`.

    Example:
        >>> import numpy as np
        >>> from lformer import Panel
        >>> rng = np.random.default_rng(0)
        >>> level = np.arange(40) % 2
        >>> X = Panel.from_list([(np.sort(rng.random(5)), rng.normal(3 * y, 1, (5, 1))) for y in level])
        >>> LFormerClassifier(max_epochs=5, random_state=0).fit(X, level).score(X, level) > 0.9
        True
    """

    dropout: float | Literal["auto"] = 0.2

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None, eval_set: Any = None, groups: Any = None) -> Self:
        """Train on series and their classes; a Series or dict of classes is aligned with the ids of a Panel.

        Args:
            X: the series.
            y: (n,) their classes.
            sample_weight: (n,) weight of each series.
            eval_set: (X, y) on which to select the epoch; all of X is then used for training. Channels, scales and
                classes are determined from X alone.
            groups: (n,) the subject of each series, if some subjects have several. All series of a subject are then
                either in the training or in the validation set, so that the epoch is selected by performance on new
                subjects.
        """
        panel = self._series(X, reset=True)
        labels = _labels(panel, X, y)
        self.classes_, code = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"there must be at least two classes; all {len(labels)} series are of one class, "
                f"{self.classes_.tolist()[0]!r}."
            )
        weights = series_weights(sample_weight, panel, isinstance(X, Panel))
        targets = Targets(values=code.astype(np.int64), at="series", weights=weights)
        task = self._classification(self.classes_, labels, len(panel))

        def read(panel: Panel, X: Any, y: Any) -> Part:
            return panel, Targets(values=codes(_labels(panel, X, y), self.classes_), at="series")

        whose = series_groups(groups, panel, isinstance(X, Panel))
        return self._fit(*self._validated((panel, targets), eval_set, read), task, code, whose)

    def predict_proba(self, X: Any) -> Array:
        """(n, classes) class probabilities, in the order of `classes_`."""
        check_is_fitted(self, "model_")
        return self._decode(torch.stack(self._answers(X, self.task_)))

    def predict_log_proba(self, X: Any) -> Array:
        """(n, classes) logarithms of the class probabilities, finite even where a probability underflows to 0."""
        check_is_fitted(self, "model_")
        return torch.log_softmax(torch.stack(self._answers(X, self.task_)).double(), dim=-1).numpy()

    def predict(self, X: Any) -> Array:
        """(n,) the most likely class of each series."""
        check_is_fitted(self, "model_")
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def calibrate(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Calibrate the size of prediction sets on series not used in training and their classes, as in `fit`.

        `groups`: (n,) the subject of each series, if some subjects have several. Subjects are then the unit of
        calibration, and the coverage holds for new subjects.
        """
        check_is_fitted(self, "model_")
        probability, labels = self.predict_proba(X), _labels(self._series(X), X, y)
        n = len(labels)
        told = Told(probability, probability, np.ones(n, int), np.zeros(n))
        return self._calibrate(told, class_scores(probability, codes(labels, self.classes_)), groups)

    def predict_set(self, X: Any, coverage: float = 0.9, by_class: bool = False) -> Array:
        """Prediction sets: (n, classes) bool, which classes are in the set of each series, in the order of `classes_`.

        For new series from the same distribution as those of `calibrate`, the set contains the true class with at least
        this probability. A set contains every class that is likely enough, and always the most likely one; see
        `lformer.estimators.class_sets`.

        Args:
            X: the series.
            coverage: probability that the set contains the true class, from 0.001 to 0.999.
            by_class: whether the coverage holds within each class, even a rare one; otherwise it holds on average over
                all classes.
        """
        check_is_fitted(self, "model_")
        return self._set(self.predict_proba(X), coverage, by_class)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy; targets and weights are aligned as in `fit`."""
        return float(super().score(X, *_both_aligned(X, y, sample_weight)))

    def _decode(self, outputs: torch.Tensor) -> Array:
        """Class probabilities."""
        return torch.softmax(outputs.double(), dim=-1).numpy()


@dataclass(kw_only=True, eq=False, repr=False)
class LFormerRegressor(RegressorMixin, _SeriesEstimator, TargetEstimator):  # type: ignore[misc]
    """Predict one or several numbers for each series.

    Args:
        uncertainty: what is predicted in addition to the numbers themselves, see `IntervalEstimator`.
        others: as in `LFormerClassifier`, without those of `ClassSettings`.

    Example:
        >>> import numpy as np
        >>> from lformer import Panel
        >>> rng = np.random.default_rng(0)
        >>> level = rng.normal(size=60)
        >>> X = Panel.from_list([(np.sort(rng.random(5)), rng.normal(y, 0.1, (5, 1))) for y in level])
        >>> LFormerRegressor(max_epochs=10, random_state=0).fit(X, level).score(X, level) > 0.8
        True
    """

    dropout: float | Literal["auto"] = "auto"
    _with_uncertainty: ClassVar[float] = 0.2
    _to_mix: ClassVar[int] = 12  # a number carries more information than a class

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None, eval_set: Any = None, groups: Any = None) -> Self:
        """Train on series and their numbers; a Series or dict of numbers is aligned with the ids of a Panel.

        Args:
            X: the series.
            y: (n,) or (n, outputs) numbers.
            sample_weight: (n,) weight of each series.
            eval_set: (X, y) on which to select the epoch; all of X is then used for training. Channels and scales are
                determined from X alone.
            groups: (n,) the subject of each series, if some subjects have several. All series of a subject are then
                either in the training or in the validation set, so that the epoch is selected by performance on new
                subjects.
        """
        panel = self._series(X, reset=True)
        table, self._flat = _table(panel, X, y)
        weights = series_weights(sample_weight, panel, isinstance(X, Panel))
        task = self._distributed(tasks.regress(table.shape[1], *mean_and_deviation(table)))
        targets = Targets(values=table, at="series", weights=weights)

        def read(panel: Panel, X: Any, y: Any) -> Part:
            return panel, Targets(values=_table(panel, X, y)[0], at="series")

        whose = series_groups(groups, panel, isinstance(X, Panel))
        return self._fit(*self._validated((panel, targets), eval_set, read), task, groups=whose)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """(n,) or (n, outputs), as the targets were: predicted means, or medians of quantiles.

        With `return_std`, also their standard deviations, of the same shape; requires uncertainty="gaussian".
        """
        check_is_fitted(self, "model_")
        told = self._told(X)
        return (self._point(told), self._deviation(told)) if return_std else self._point(told)

    def predict_quantiles(self, X: Any, q: Any = (0.05, 0.5, 0.95)) -> Array:
        """Predicted quantiles: (n, J) or (n, outputs, J) for levels q (J,), without J for a single one.

        Requires `uncertainty`. These are the model's own estimates, without a guarantee; `predict_interval` has
        guaranteed coverage.
        """
        check_is_fitted(self, "model_")
        return np.asarray(self._quantiles(self._told(X), q))

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Array:
        """Prediction intervals: (n, 2) or (n, outputs, 2), lower and upper ends; requires `calibrate`.

        For new series from the same distribution as those of `calibrate`, the number lies inside its interval with at
        least this probability, separately for each output. Without `uncertainty` all intervals are equally wide; with
        it, they are wider for difficult series.
        """
        check_is_fitted(self, "model_")
        return np.asarray(self._interval(self._told(X), coverage))

    def calibrate(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Calibrate the width of prediction intervals on series not used in training and their numbers, as in `fit`.

        `groups`: (n,) the subject of each series, if some subjects have several. Subjects are then the unit of
        calibration, and the coverage holds for new subjects.
        """
        check_is_fitted(self, "model_")
        told = self._told(X)
        return self._calibrate(told, self._scores(told, _table(self._series(X), X, y)[0]), groups)

    def _told(self, X: Any) -> Told:
        numbers = self.task_.decode(torch.stack(self._answers(X, self.task_))).numpy()
        n = len(numbers)
        return Told(numbers, np.tile(self.task_.scale, (n, 1)), np.ones(n, int), np.zeros(n))

    def _shaped(self, flat: Array, told: Told) -> Array:
        return flat[:, 0] if self._flat else flat

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R²; targets and weights are aligned as in `fit`."""
        return float(super().score(X, *_both_aligned(X, y, sample_weight)))

    def _decode(self, outputs: torch.Tensor) -> Array:
        """Numbers in the units of the targets, without the last axis if the targets had none."""
        numbers = self.task_.decode(outputs).numpy()[..., : self.task_.outputs]
        return numbers[..., 0] if self._flat else numbers


def _labels(panel: Panel, X: Any, y: Any) -> Array:
    """(n,) the class of each series of `panel`, which was built from X."""
    labels: Array = column_or_1d(_aligned(panel, y, isinstance(X, Panel)), warn=True)
    check_classification_targets(labels)
    return labels


def _table(panel: Panel, X: Any, y: Any) -> tuple[Array, bool]:
    """(n, outputs) numbers of each series of `panel`, which was built from X, and whether they were given as (n,)."""
    numbers = np.asarray(_aligned(panel, y, isinstance(X, Panel)), np.float64)
    if not np.isfinite(numbers).all():
        raise ValueError("y must be finite numbers; it contains NaN or infinity.")
    return (numbers[:, None], True) if numbers.ndim == 1 else (numbers, False)


def _aligned(panel: Panel, y: Any, by_id: bool) -> Array:
    """One target per series: by id if both sides have ids, else by position."""
    if y is None:
        raise ValueError("requires y to be passed, but the target y is None: give one target for each series.")
    if goes_by_id(y, by_id):
        return panel.align(y, "y")
    array = np.asarray(y)
    if array.ndim == 0 or len(array) != len(panel):
        raise ValueError(
            f"X and y must have as many entries: inconsistent numbers of samples, {len(panel)} series and "
            f"{array.shape[0] if array.ndim else 1} targets."
        )
    return array


def _both_aligned(X: Any, y: Any, sample_weight: Any) -> tuple[Array, Array | None]:
    """Targets and weights in the order of the series, as the score functions of scikit-learn need them."""
    panel, by_id = as_panel(X)[0], isinstance(X, Panel)
    return _aligned(panel, y, by_id), None if sample_weight is None else series_weights(sample_weight, panel, by_id)
