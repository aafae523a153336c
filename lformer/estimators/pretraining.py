"""LFormerPretrainer: learn from series without targets, as a starting point for other estimators."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from lformer import tasks
from lformer.estimators.base import LFormerEstimator, all_or_nothing, scale_of
from lformer.estimators.inputs import alike, as_panel
from lformer.evaluate import evaluate
from lformer.hiding import HidingPart
from lformer.panel import Array, Panel, join
from lformer.parts import PanelPart, Prepared, Splits, Targets
from lformer.scaling import Scale
from lformer.tasks import Task


@dataclass(kw_only=True, eq=False, repr=False)
class LFormerPretrainer(LFormerEstimator):
    """Pre-train on series without targets, by hiding some of their rows and channels and predicting them.

    What is hidden changes in every epoch. For each channel of a hidden row, the model predicts the value and whether it
    was observed at all, since the fact that a test was ordered is as informative as its result. Pass the fitted
    pretrainer to other estimators, as in `LFormerClassifier(pretrained=...)`.

    After `fit`, `validation_score_` is the error on hidden rows of the validation series: the mean squared error of
    values, in standard deviations of the channel, plus the cross-entropy of presence.

    Args:
        hidden: share of the rows of a series to hide; about half of them are single rows, the others runs of
            neighbouring rows.
        hidden_channels: share of the channels to hide in all rows of a series.
        max_epochs: as in `LFormerEstimator`, but None takes three times as many steps, which pays off because what is
            hidden changes in every epoch.
        others: see `LFormerEstimator`.

    Example:
        >>> import numpy as np
        >>> from lformer import LFormerClassifier, LFormerPretrainer
        >>> rng = np.random.default_rng(0)
        >>> X = [(np.sort(rng.random(6)), rng.normal(i % 2, 1, (6, 2))) for i in range(40)]
        >>> start = LFormerPretrainer(max_epochs=2, random_state=0).fit(X)
        >>> model = LFormerClassifier(pretrained=start, max_epochs=2, random_state=0).fit(X[:10], np.arange(10) % 2)
        >>> model.predict(X[10:]).shape
        (30,)
    """

    hidden: float = 0.5
    hidden_channels: float = 0.15
    _times: ClassVar[int] = 3  # what is hidden changes in every epoch, so the model does not overfit to it

    @all_or_nothing
    def fit(self, X: Any, y: None = None, eval_set: Any = None) -> Self:
        """Train on series alone; `y` is ignored. `eval_set`: series to validate on instead of a share of X."""
        self._check_parameters()
        panel = self._series(X, reset=True)
        self._is_table = False  # later tables may have another number of columns: columns are times
        if len(panel.channels) < 2 and not bool((panel.lengths > 1).any()):
            raise ValueError(
                f"none of the {len(panel)} series has a second row or channel, so there is nothing to hide and to "
                "predict from the rest."
            )
        panel = self._with_validation(panel, eval_set)
        return self._fit(panel, _nothing(panel), tasks.pretrain(2 * len(panel.channels)))

    def score(self, X: Any, y: None = None) -> float:
        """Negative mean squared error of hidden values of X, in units of the standard deviation of each channel."""
        check_is_fitted(self, "model_")
        panel = _bounded(self.features_.match(self._series(X)), scale_of(self.model_))
        part = self._hiding(self._part(panel, _nothing(panel)))
        with self._answering() as model:
            return -evaluate(model, self.task_, part, self.batch_size)["mse"]

    def _prepare(
        self, panel: Panel, targets: Targets, task: Task, scale: Scale, seed: int
    ) -> tuple[Panel, Targets, Task]:
        """Clip extreme values, as the model reads them; errors are measured in standard deviations of the channel."""
        C, observed = len(panel.channels), 1.0
        if panel.observed is not None:
            observed = float(panel.observed[panel.rows()].mean())
        shift, spread = [*scale.shift.tolist(), *[0.0] * C], [*scale.scale.tolist(), *[1.0] * C]
        return _bounded(panel, scale), targets, tasks.pretrain(2 * C, observed, shift, spread)

    def _splits(self, prepared: Prepared, task: Task, seed: int) -> Splits[PanelPart]:
        splits = super()._splits(prepared, task, seed)
        train, validation = self._hiding(splits.train), self._hiding(splits.validation)
        return replace(splits, train=train, validation=validation, test=validation)

    def _hiding(self, part: PanelPart) -> HidingPart:
        return HidingPart.of(part, self.hidden, self.hidden_channels)

    def _decode(self, outputs: Tensor) -> Array:
        """Values in the units of their channels, without presence."""
        return self.task_.decode(outputs).numpy()[..., : outputs.shape[-1] // 2]

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not 0 < self.hidden < 1:
            raise ValueError(f"hidden must lie between 0 and 1; got {self.hidden}.")
        if not 0 <= self.hidden_channels < 1:
            raise ValueError(f"hidden_channels must be at least 0 and below 1; got {self.hidden_channels}.")


def pretrain(*series: Any, **parameters: Any) -> LFormerPretrainer:
    """Fit an `LFormerPretrainer` to series from one or several sources.

    Args:
        series: one or several sets of series, as `fit` takes them, such as those with a target and those without.
            Channels and unit of time are those of the first; a channel that is missing in the others is unobserved
            there.
        parameters: see `LFormerPretrainer`.

    Example:
        >>> import numpy as np
        >>> few, many = np.random.default_rng(0).random((4, 5, 2)), np.random.default_rng(1).random((8, 7, 2))
        >>> pretrain(few, many, width=8, max_epochs=1).n_iter_
        1
    """
    if not series:
        raise TypeError("pretrain needs series to learn from: pretrain(panel).")
    first, *others = (as_panel(one)[0] for one in series)
    every = join([first, *(alike(panel, first) for panel in others)]) if others else series[0]
    return LFormerPretrainer(**parameters).fit(every)


def _nothing(panel: Panel) -> Targets:
    """Placeholder targets for tasks whose targets are the series themselves."""
    return Targets(values=np.zeros((len(panel), 1), np.float32), at="series")


def _bounded(panel: Panel, scale: Scale) -> Panel:
    """The compacted panel in the units of its channels, with extreme values clipped."""
    panel = panel.compact()
    values = panel.values if panel.scale == 1.0 else (panel.values * panel.scale).astype(np.float32)
    values = np.clip(values, scale.low.astype(np.float64), scale.high.astype(np.float64)).astype(values.dtype)
    return panel.with_values(values if panel.observed is None else np.where(panel.observed, values, 0))
