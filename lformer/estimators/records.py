"""What interpolator and forecaster share: predicting the values of a series at query times.

Both hide rows of copies of the training series, and learn to predict the hidden values from the remaining rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from lformer import tasks
from lformer.devices import device_of
from lformer.estimators.base import all_or_nothing, scale_of
from lformer.estimators.calibrating import Told, split
from lformer.estimators.devices import series_at_once
from lformer.estimators.inputs import series_groups
from lformer.estimators.intervals import IntervalEstimator
from lformer.estimators.naive import RULES, in_deviations, naive
from lformer.estimators.own_units import fit_start, in_own_units, own_sizes, wants_own_scale, widened
from lformer.estimators.queries import clocks, informed, last_times, only, values_at
from lformer.evaluate import evaluate, predict
from lformer.hiding import hide
from lformer.nn import LFormer, LFormerConfig
from lformer.nn.ensemble import Ensemble
from lformer.nn.persistence import PersistenceKind
from lformer.panel import Array, Panel
from lformer.parts import PanelPart, Splits, Targets, sampled
from lformer.scaling import Scale
from lformer.tasks import Task


@dataclass(kw_only=True, eq=False, repr=False)
class RecordEstimator(IntervalEstimator):
    """Base class of the interpolator and the forecaster: copies with hidden rows in training, queries in prediction."""

    n_copies: int = 4
    persistence: bool = True
    series_scale: bool | Literal["auto"] = "auto"
    dropout: float | Literal["auto"] = 0.1
    weight_decay: float = 0.1
    clock: bool | Literal["auto"] = False  # queries may lie beyond its range
    _task_name: ClassVar[str]
    # Whether the last `fit` put series on their own scale; not saved.
    _own: bool = field(default=False, init=False)

    @all_or_nothing
    def fit(self, X: Any, y: None = None, eval_set: Any = None, groups: Any = None) -> Self:
        """Train on series alone; their own values are the targets, and `y` is ignored.

        Args:
            X: the series.
            y: ignored.
            eval_set: series on which to select the epoch; all of X is then used for training.
            groups: (n,) the subject of each series, if some subjects have several; whole subjects are then held out.
        """
        self._check_parameters()
        panel = self._series(X, reset=True)
        whose = series_groups(groups, panel, isinstance(X, Panel))
        self._is_table = False  # later tables may have another number of columns: columns are times
        panel = self._with_validation(self._asked(panel), eval_set)
        if len(panel) < max(2, self._held + 1):
            raise ValueError(
                f"at least 2 series with rows to hide are needed to train and to validate; "
                f"n_samples={len(panel) - self._held}, n_features={self.n_features_in_}."
            )
        if self.warm_start and hasattr(self, "model_"):
            self._own = self.model_.config.series_scale
        copies = panel[np.tile(np.arange(len(panel)), self.n_copies)]
        nothing = Targets(values=np.zeros((0, len(panel.channels)), np.float32), at="queries")
        task = self._distributed(record_task(self._task_name, len(panel.channels)))
        return self._fit(copies, nothing, task, groups=whose)

    def predict(self, X: Any, query_times: Any = None, return_std: bool = False) -> Any:
        """Predict values at the query times: means, or medians of quantiles.

        Args:
            X: the series.
            query_times: (Q,) for all series, or a list of (Q_i,), one per series; of the same kind as the times of X,
                in any order.
            return_std: whether to also return the standard deviations, as a second list; requires
                uncertainty="gaussian".

        Returns:
            A list of (Q_i, C), in the order of the query times, with channels in their units and in the order of
            training.
        """
        told = self._told(self._queries(X, query_times))
        return (self._point(told), self._deviation(told)) if return_std else self._point(told)

    def predict_quantiles(self, X: Any, query_times: Any = None, q: Any = (0.05, 0.5, 0.95)) -> list[Array]:
        """Predicted quantiles: a list of (Q_i, C, J) for levels q (J,), (Q_i, C) for a single one.

        Requires `uncertainty`. These are the model's own estimates, without a guarantee; `predict_interval` has
        guaranteed coverage.
        """
        found: list[Array] = self._quantiles(self._told(self._queries(X, query_times)), q)
        return found

    def predict_interval(self, X: Any, query_times: Any = None, coverage: float = 0.9) -> list[Array]:
        """Prediction intervals: a list of (Q_i, C, 2), lower and upper ends; requires `calibrate`.

        For a new series from the same distribution as those of `calibrate`, with queries of the same kind, the value of
        a channel at a randomly drawn query time lies inside its interval with at least this probability. This is an
        average over series and times, for each channel; it does not hold for all times of a series at once. Intervals
        of forecasts are calibrated in bins of the time since the last row, so they may widen with it; for series on
        their own scale, they are proportional to the spread of the series.
        """
        found: list[Array] = self._interval(self._told(self._queries(X, query_times)), coverage)
        return found

    def calibrate(self, X: Any, y: Any = None, query_times: Any = None, groups: Any = None) -> Self:
        """Calibrate the width of prediction intervals on series not used in training.

        Args:
            X: the series. Without y, some of their rows are hidden and predicted, as in `score`.
            y: (Q_i, C) values of each series at the query times, NaN where there is none. Give them if your queries
                differ from those of `score`; X are then the rows known at prediction time.
            query_times: as in `predict`; required with y.
            groups: (n,) the subject of each series, if some subjects have several. Subjects are then the unit of
                calibration.
        """
        check_is_fitted(self, "model_")
        if (y is None) != (query_times is None):
            raise ValueError("y holds the values at query_times: give both, or neither.")
        if y is None:
            part, truth, used = self._with_unseen_values(X)
            groups = None if groups is None else np.asarray(groups)[used]
        else:
            part = self._queries(X, query_times)
            truth = values_at(part, y)
        told = self._told(part)
        return self._calibrate(told, self._scores(told, truth), groups)

    def _calibrate_on(self, held: Any) -> None:
        super()._calibrate_on(None if held is None else (held[0][:1], held[1]))  # `fit` ignores y

    def _told(self, part: PanelPart) -> Told:
        asked = part.targets
        assert asked.lengths is not None
        assert asked.times is not None
        with self._answering() as model:
            answers = predict(model, self.task_, part, series_at_once(part, device_of(model), self.batch_size))
        found = [self.task_.decode(a[:n]).numpy() for a, n in zip(answers, asked.lengths, strict=True)]
        flat = np.concatenate(found)
        if self.model_.config.series_scale:
            size = np.repeat(own_sizes(self.model_, part, self.batch_size), asked.lengths, axis=0)
        else:
            size = np.ones((len(flat), self.task_.outputs))
        ahead = asked.times - np.repeat(last_times(part.panel), asked.lengths)
        return Told(flat, size * np.asarray(self.task_.scale), asked.lengths, ahead)

    def _shaped(self, flat: Array, told: Told) -> list[Array]:
        return split(flat, told.lengths)

    def _names(self) -> list[str]:
        return [f"channel {name!r}" for name in self.features_.channels]

    def _queries(self, X: Any, query_times: Any) -> PanelPart:
        """Series and query times, as a data set for prediction."""
        check_is_fitted(self, "model_")
        panel = informed(self.features_.match(self._series(X)), every=True)
        asked = clocks(panel, query_times, self.features_.marks)
        self._check_queries(panel, asked)
        lengths = np.array([len(clock) for clock in asked])
        targets = Targets(
            values=np.zeros((int(lengths.sum()), len(panel.channels)), np.float32),
            at="queries",
            times=np.concatenate(asked),
            first=np.cumsum(lengths) - lengths,
            lengths=lengths,
        )
        return self._part(panel, targets)

    def score(self, X: Any, y: None = None) -> float:
        """Negative mean squared error on hidden rows of X, in units of the standard deviation of each channel.

        For series on their own scale, in units of the spread of each series.
        """
        check_is_fitted(self, "model_")
        part = self._with_hidden_rows(X)
        with self._answering() as model:
            return -evaluate(model, self.task_, part, self.batch_size)[self._scored()]

    def _scored(self) -> str:
        """The metric of `score` and `compare`, which evaluates point predictions whatever `uncertainty` is."""
        return "mse_own" if self.model_.config.series_scale else "mse_unseen"

    def baseline_score(self, X: Any, y: None = None) -> float:
        """The score of the best baseline in `compare`."""
        return max(score for name, score in self.compare(X).items() if name != type(self).__name__)

    def compare(self, X: Any) -> dict[str, float]:
        """The scores of the model and of simple baselines, all on the same hidden rows of X.

        The baselines are the latest value and the mean so far of a channel, and for interpolation also linear
        interpolation. After `fit` they include least squares on latest value, mean and age; a loaded model does not
        have it.
        """
        check_is_fitted(self, "model_")
        part = self._with_hidden_rows(X)
        with self._answering() as model:
            scores = {type(self).__name__: -evaluate(model, self.task_, part, self.batch_size)[self._scored()]}
        part, task = in_deviations(part, self.task_, scale_of(self.model_))
        rules = {name: naive(name, task.outputs, task) for name in RULES[task.name]}
        for rule in rules.values():
            rule.set_mean(torch.zeros(task.outputs))  # in standardised units, the mean of training is 0
        if (fitted := getattr(self, "_naive", None)) is not None:
            rules = fitted.rules
        return scores | {
            name: -evaluate(rule, task, part, self.batch_size)[self._scored()] for name, rule in rules.items()
        }

    def _with_hidden_rows(self, X: Any) -> PanelPart:
        """Series of X with some of their rows hidden as queries, always the same ones."""
        (panel, _), scale = self._with_rows_to_hide(X), scale_of(self.model_)
        shown, asked = self._hide(panel, scale, seed=0, copies=1)
        if self.model_.config.series_scale:
            asked = in_own_units(asked, panel, scale, typical_spread(self.model_))
        return self._part(shown, asked)

    def _with_unseen_values(self, X: Any) -> tuple[PanelPart, Array, Array]:
        """The same, with the hidden values (M, C) unclipped, NaN where there is none or it is visible.

        Also (n,) bool, the series of X that have rows to hide.
        """
        panel, used = self._with_rows_to_hide(X)
        hidden, asked = self._masks(panel, seed=0, copies=1)
        shown, targets = hide(panel, hidden, "query")
        targets = only(targets, asked)
        assert targets.given is not None
        known = ~targets.given if targets.observed is None else targets.observed & ~targets.given
        return self._part(shown, targets), np.where(known, targets.values.astype(np.float64), np.nan), used

    def _with_rows_to_hide(self, X: Any) -> tuple[Panel, Array]:
        """The series of X that have rows to hide, and (n,) bool which those are."""
        panel = informed(self.features_.match(self._series(X)))
        used = self._usable(panel)
        if not used.any():
            raise ValueError("no series has rows to hide, so there is nothing to compare with.")
        return panel[used].compact(), used

    def _asked(self, panel: Panel) -> Panel:
        """The series that have rows to hide, without rows in which nothing was observed."""
        panel = informed(panel)
        return panel[self._usable(panel)]

    @abstractmethod
    def _usable(self, panel: Panel) -> Array:
        """(n,) bool, the series with at least one row to hide and one to keep."""

    @abstractmethod
    def _masks(self, panel: Panel, seed: int, copies: int) -> tuple[Array, Array]:
        """(N,) bool twice: the hidden rows, and the rows that are targets."""

    def _check_queries(self, panel: Panel, asked: list[Array]) -> None:
        """Raise for times at which the model cannot predict."""
        last = last_times(panel)
        earliest = np.array([clock.min() if len(clock) else np.inf for clock in asked])
        latest = np.array([clock.max() if len(clock) else end for clock, end in zip(asked, last, strict=True)])
        self._check_asked(panel.ids.tolist(), last, earliest, latest, panel.unit)

    def _check_asked(self, names: Sequence[Any], last: Array, earliest: Array, latest: Array, unit: str) -> None:
        """Raise for times at which the model cannot predict.

        Args:
            names: (n,) of the series.
            last: (n,) time of the last row of each series.
            earliest, latest: (n,) first and last query time of each series.
            unit: of all these.
        """

    def _decode(self, outputs: Tensor) -> Array:
        """Values in the units of their channels."""
        return self.task_.decode(outputs).numpy()[..., : self.task_.outputs]

    def _prepare(
        self, panel: Panel, targets: Targets, task: Task, scale: Scale, seed: int
    ) -> tuple[Panel, Targets, Task]:
        """The remaining rows, and the values of the target rows.

        Errors are measured in standard deviations of the channel; for series on their own scale, in their spreads.
        """
        panel = panel.compact()
        shown, asked = self._hide(panel, scale, seed, self.n_copies)
        if self._own:
            asked, task = in_own_units(asked, panel, scale), tasks.in_own_units(task)
        return shown, asked, replace(task, shift=scale.shift.tolist(), scale=scale.scale.tolist())

    def _scale(self, train: Panel) -> Scale:
        """Also decides whether series are on their own scale, which needs wider bounds."""
        scale = super()._scale(train)
        self._own = bool(self.series_scale)
        if self.series_scale == "auto":
            dated = bool(self.features_.marks.periods)  # with calendar features, each series has its own season
            self._own = not self.streaming and (dated or wants_own_scale(train, scale))
        return widened(scale) if self._own else scale

    def _hide(self, panel: Panel, scale: Scale, seed: int, copies: int) -> tuple[Panel, Targets]:
        """The remaining rows, and the values of the targets, clipped like the inputs."""
        hidden, asked = self._masks(panel, seed, copies)
        shown, targets = hide(panel, hidden, "query")
        return shown, only(replace(targets, values=np.clip(targets.values, scale.low, scale.high)), asked)

    def _begin(self, model: LFormer, task: Task, splits: Splits[PanelPart]) -> None:
        fit_start(model, task, list(sampled(splits.train).batches(self.batch_size)))

    def _config(self, task: Task) -> LFormerConfig:
        kind: PersistenceKind = "none"
        if self.persistence:  # linear interpolation or a wave, if later rows may be read
            kind = "recent" if self._own else "latest"
            if self._task_name == "interpolate" and not self.streaming:
                kind = "wave"
        return replace(super()._config(task), time_embedding="relative", persistence=kind, series_scale=self._own)

    def _split(
        self, n: int, seed: int, classes: Array | None = None, whose: Array | None = None
    ) -> tuple[Array, Array]:
        """Keep all copies of a series on the same side of the split."""
        series = n // self.n_copies
        train, held = super()._split(series, seed, classes, None if whose is None else whose[:series])
        shifts = series * np.arange(self.n_copies)[:, None]
        return (train + shifts).ravel(), (held + shifts).ravel()

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not self.n_copies >= 1:
            raise ValueError(f"n_copies must be at least 1; got {self.n_copies}.")
        if self.persistence is not True and self.persistence is not False:
            raise ValueError(f"persistence must be True or False; got {self.persistence!r}.")
        if self.series_scale is not True and self.series_scale is not False and self.series_scale != "auto":
            raise ValueError(f'series_scale must be True, False or "auto"; got {self.series_scale!r}.')
        if self.series_scale is True and self.streaming:
            raise ValueError(
                "series_scale=True reads the whole series, which a streaming model cannot. Use series_scale=False."
            )


def record_task(name: str, channels: int) -> Task:
    """The task of an interpolator or forecaster: the loss is on all targets, the epoch is selected on hidden values."""
    return replace(tasks.records(name, channels, "query"), monitor="mse_unseen")


def typical_spread(model: LFormer | Ensemble) -> Tensor:
    """(C,) typical spread of a series, as stored in a model with series on their own scale."""
    own = (model.models[0] if isinstance(model, Ensemble) else model).rows.own
    assert own is not None
    return own.typical
