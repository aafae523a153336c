"""What interpolator and forecaster share: the values of a series at times that were not observed.

Both hide rows they know from copies of the training series, and learn to predict their values from what is left.
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
    """What the two share: copies with hidden rows in training, queries in prediction."""

    n_copies: int = 4
    persistence: bool = True
    series_scale: bool | Literal["auto"] = "auto"
    dropout: float | Literal["auto"] = 0.1
    weight_decay: float = 0.1
    clock: bool | Literal["auto"] = False  # what is asked lies beyond it
    _task_name: ClassVar[str]
    # Whether series are on their own scale, as the last `fit` found out; not saved.
    _own: bool = field(default=False, init=False)

    @all_or_nothing
    def fit(self, X: Any, y: None = None, eval_set: Any = None, groups: Any = None) -> Self:
        """Train on series alone; their own values are the targets, and `y` is ignored.

        Args:
            X: the series.
            y: nothing.
            eval_set: series to choose the epoch by, instead of a share of X: then all of X is trained on.
            groups: (n,) the subject of each series, if some have several; whole subjects are then held out.
        """
        self._check_parameters()
        panel = self._series(X, reset=True)
        whose = series_groups(groups, panel, isinstance(X, Panel))
        self._is_table = False  # a table may be longer or shorter than that of `fit`: its columns are times
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
        """The values at the times asked for: means, or medians of quantiles.

        Args:
            X: the series.
            query_times: (Q,) for all series, or a list of (Q_i,), one per series; stamps as those of X, in any order.
            return_std: also return the deviations, in a list of its own; needs uncertainty="gaussian".

        Returns:
            (Q_i, C) of each series in the order of its query times, channels in their units and the order of training.
        """
        told = self._told(self._queries(X, query_times))
        return (self._point(told), self._deviation(told)) if return_std else self._point(told)

    def predict_quantiles(self, X: Any, query_times: Any = None, q: Any = (0.05, 0.5, 0.95)) -> list[Array]:
        """(Q_i, C, J) of each series for shares q (J,), (Q_i, C) for a single one; needs `uncertainty`.

        They are what the model thinks, and promise nothing; `predict_interval` covers as often as it says.
        """
        found: list[Array] = self._quantiles(self._told(self._queries(X, query_times)), q)
        return found

    def predict_interval(self, X: Any, query_times: Any = None, coverage: float = 0.9) -> list[Array]:
        """(Q_i, C, 2) of each series, lower and upper ends, after `calibrate`.

        Of a new series like those of `calibrate`, asked in the same way, the value of a channel at a time drawn from
        those asked for lies inside with this probability at least. This is an average over series and times, for each
        channel, not for all times of a series at once. Intervals of forecasts are calibrated in bins of the time since
        the last row, so they may widen with it; those of series on their own scale go with the spread of the series.
        """
        found: list[Array] = self._interval(self._told(self._queries(X, query_times)), coverage)
        return found

    def calibrate(self, X: Any, y: Any = None, query_times: Any = None, groups: Any = None) -> Self:
        """Learn how wide intervals must be, from series that training has not seen.

        Args:
            X: the series. Alone, rows of them are hidden and asked for as in `score`.
            y: (Q_i, C) values of each series at the query times, NaN where there is none, if you ask otherwise than
                `score` does; X are then the rows that are known when you ask.
            query_times: as in `predict`, together with y.
            groups: (n,) the subject of each series, if some have several; it is then subjects that count.
        """
        check_is_fitted(self, "model_")
        if (y is None) != (query_times is None):
            raise ValueError("y and query_times go together: the values at the times asked for. Give both, or neither.")
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
        """Series and the times asked for, as something to be answered."""
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
        """Minus the mean squared error on rows of X that are hidden for it, in units of each channel's deviation.

        For series on their own scale, in units of the spread of each series.
        """
        check_is_fitted(self, "model_")
        part = self._with_hidden_rows(X)
        with self._answering() as model:
            return -evaluate(model, self.task_, part, self.batch_size)[self._scored()]

    def _scored(self) -> str:
        """The metric of `score` and `compare`, which is of points whatever the model says beside them."""
        return "mse_own" if self.model_.config.series_scale else "mse_unseen"

    def baseline_score(self, X: Any, y: None = None) -> float:
        """What `score` would be with the best of the simple rules that `compare` knows."""
        return max(score for name, score in self.compare(X).items() if name != type(self).__name__)

    def compare(self, X: Any) -> dict[str, float]:
        """The score of the model and of simple rules, all on the same hidden rows of X.

        Rules are the latest value and the mean so far of a channel and, to interpolate, the line between neighbours;
        after `fit` also least squares on latest value, mean and age. A model that was loaded has no least squares.
        """
        check_is_fitted(self, "model_")
        part = self._with_hidden_rows(X)
        with self._answering() as model:
            scores = {type(self).__name__: -evaluate(model, self.task_, part, self.batch_size)[self._scored()]}
        part, task = in_deviations(part, self.task_, scale_of(self.model_))
        rules = {name: naive(name, task.outputs, task) for name in RULES[task.name]}
        for rule in rules.values():
            rule.set_mean(torch.zeros(task.outputs))  # in deviations, the mean of training is 0
        if (fitted := getattr(self, "_naive", None)) is not None:
            rules = fitted.rules
        return scores | {
            name: -evaluate(rule, task, part, self.batch_size)[self._scored()] for name, rule in rules.items()
        }

    def _with_hidden_rows(self, X: Any) -> PanelPart:
        """Series of X with some of their rows hidden, always the same ones, and asked for."""
        (panel, _), scale = self._with_rows_to_hide(X), scale_of(self.model_)
        shown, asked = self._hide(panel, scale, seed=0, copies=1)
        if self.model_.config.series_scale:
            asked = in_own_units(asked, panel, scale, typical_spread(self.model_))
        return self._part(shown, asked)

    def _with_unseen_values(self, X: Any) -> tuple[PanelPart, Array, Array]:
        """The same, and the values (M, C) as they are, also wild ones, NaN where there is none or it is shown.

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
        """The series of X that have rows to hide, and which they are, (n,) bool."""
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
        """(n,) bool, the series that have a row to hide and one to keep."""

    @abstractmethod
    def _masks(self, panel: Panel, seed: int, copies: int) -> tuple[Array, Array]:
        """(N,) bool twice: rows that are hidden, and rows that are asked for."""

    def _check_queries(self, panel: Panel, asked: list[Array]) -> None:
        """Refuse times at which the model cannot answer."""
        last = last_times(panel)
        earliest = np.array([clock.min() if len(clock) else np.inf for clock in asked])
        latest = np.array([clock.max() if len(clock) else end for clock, end in zip(asked, last, strict=True)])
        self._check_asked(panel.ids.tolist(), last, earliest, latest, panel.unit)

    def _check_asked(self, names: Sequence[Any], last: Array, earliest: Array, latest: Array, unit: str) -> None:
        """Refuse times at which the model cannot answer.

        Args:
            names: (n,) of the series.
            last: (n,) time of the last row of each.
            earliest, latest: (n,) times asked for.
            unit: of all these.
        """

    def _decode(self, outputs: Tensor) -> Array:
        """Values in the units of their channels."""
        return self.task_.decode(outputs).numpy()[..., : self.task_.outputs]

    def _prepare(
        self, panel: Panel, targets: Targets, task: Task, scale: Scale, seed: int
    ) -> tuple[Panel, Targets, Task]:
        """Rows that stay, and the values of those that are asked for.

        Errors count in deviations of a channel; of series on their own scale, in their spreads.
        """
        panel = panel.compact()
        shown, asked = self._hide(panel, scale, seed, self.n_copies)
        if self._own:
            asked, task = in_own_units(asked, panel, scale), tasks.in_own_units(task)
        return shown, asked, replace(task, shift=scale.shift.tolist(), scale=scale.scale.tolist())

    def _scale(self, train: Panel) -> Scale:
        """With wider bounds for series on their own scale, which is decided here."""
        scale = super()._scale(train)
        self._own = bool(self.series_scale)
        if self.series_scale == "auto":
            dated = bool(self.features_.marks.periods)  # then each series has a season of its own
            self._own = not self.streaming and (dated or wants_own_scale(train, scale))
        return widened(scale) if self._own else scale

    def _hide(self, panel: Panel, scale: Scale, seed: int, copies: int) -> tuple[Panel, Targets]:
        """Rows that stay, and the values that are asked for, wild ones at their bounds as among the inputs."""
        hidden, asked = self._masks(panel, seed, copies)
        shown, targets = hide(panel, hidden, "query")
        return shown, only(replace(targets, values=np.clip(targets.values, scale.low, scale.high)), asked)

    def _begin(self, model: LFormer, task: Task, splits: Splits[PanelPart]) -> None:
        fit_start(model, task, list(sampled(splits.train).batches(self.batch_size)))

    def _config(self, task: Task) -> LFormerConfig:
        kind: PersistenceKind = "none"
        if self.persistence:  # the line, or a wave, where the future may be read
            kind = "recent" if self._own else "latest"
            if self._task_name == "interpolate" and not self.streaming:
                kind = "wave"
        return replace(super()._config(task), time_embedding="relative", persistence=kind, series_scale=self._own)

    def _split(
        self, n: int, seed: int, classes: Array | None = None, whose: Array | None = None
    ) -> tuple[Array, Array]:
        """All copies of a series go to the same side."""
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
    """Trained on all that is asked, selected by what was hidden."""
    return replace(tasks.records(name, channels, "query"), monitor="mse_unseen")


def typical_spread(model: LFormer | Ensemble) -> Tensor:
    """(C,) of a series, as a model on their own scale holds it."""
    own = (model.models[0] if isinstance(model, Ensemble) else model).rows.own
    assert own is not None
    return own.typical
