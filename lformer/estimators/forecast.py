"""LFormerForecaster: predict the values of a series after its last row."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from lformer.arrays import check_word
from lformer.estimators.horizon import Horizon, check_horizon, in_unit
from lformer.estimators.queries import last_times
from lformer.estimators.records import RecordEstimator
from lformer.panel import Array, Panel
from lformer.panel.checks import spell
from lformer.parts import Targets
from lformer.scaling import Scale
from lformer.tasks import Task

BINS = (0.125, 0.25, 0.5)  # edges of the bins of the time ahead, as shares of the trained reach
ROUNDING = 1e-6  # tolerance for queries beyond the trained reach, as a share of it


class ExtrapolationWarning(UserWarning):
    """A forecast reaches further ahead than those in training, which `extrapolate="warn"` allows."""


@dataclass(kw_only=True, eq=False, repr=False)
class LFormerForecaster(RecordEstimator):
    """Forecast the values of a series after its last row.

    Args:
        horizon: how far to look ahead: a number in the unit of the times or, if the times are dates or durations, a
            duration such as "28D", "36h" or a Timedelta. None is half the span of each training series.
        extrapolate: what to do with a query that lies further after the last row of its series than any in training
            (`reach_`, about the horizon): "error" raises an error, "warn" predicts and warns.
        n_copies: number of copies of each training series, each cut at a different time: one `horizon` before its end,
            the others earlier.
        persistence: whether forecasts start from the latest value of the channel; for series on their own scale, from a
            mixture of the latest value, recent means and the mean so far, plus the season.
        series_scale: whether each series is read in units of its own level, spread and season, and its errors are
            measured in its own spread. "auto" turns this on if the training series differ much in size, or if calendar
            features provide seasons. Not available with `streaming`.
        uncertainty: what is predicted in addition to the values themselves, see `IntervalEstimator`.
        others: see `CalibratedEstimator`.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X = [(np.arange(8.0), np.full((8, 1), 5 + y)) for y in rng.normal(size=40)]
        >>> model = LFormerForecaster(horizon=2.0, max_epochs=2, random_state=0).fit(X)
        >>> model.predict(X[:2], query_times=[8.0, 8.5])[0].shape
        (2, 1)
    """

    horizon: Horizon = None
    extrapolate: Literal["error", "warn"] = "error"
    neighbours: int | Literal["auto"] = 0
    _task_name: ClassVar[str] = "extrapolate"

    if TYPE_CHECKING:
        reach_: float

    def _edges(self) -> Array:
        """Edges of the bins of the time since the last row, as errors grow with it: shares of `reach_`."""
        return self.reach_ * np.array(BINS)

    def _usable(self, panel: Panel) -> Array:
        return last_times(panel) > panel.first_times()

    def _masks(self, panel: Panel, seed: int, copies: int) -> tuple[Array, Array]:
        """Rows after the cut are hidden; those of them within the horizon are targets."""
        start, end = panel.first_times(), last_times(panel)
        reach = (end - start) / 2 if self.horizon is None else np.full(len(panel), in_unit(self.horizon, panel))
        latest = np.maximum(end - reach, start)  # the first row always stays
        share = np.random.RandomState(seed).random_sample(len(panel))
        share[: len(panel) // copies] = 1.0
        cut = start + share * (latest - start)
        until = np.where(share == 1.0, end, cut + reach)
        hidden = panel.times > np.repeat(cut, panel.lengths)
        return hidden, hidden & (panel.times <= np.repeat(until, panel.lengths))

    def _prepare(
        self, panel: Panel, targets: Targets, task: Task, scale: Scale, seed: int
    ) -> tuple[Panel, Targets, Task]:
        """Also sets `reach_`: the longest time from the last visible row, before the cut, to the last target.

        The horizon itself counts as reached even if no row lies that far ahead, unless no series is that long.
        """
        shown, asked, task = super()._prepare(panel, targets, task, scale, seed)
        assert asked.times is not None
        assert asked.first is not None
        assert asked.lengths is not None
        some = asked.lengths > 0
        furthest = asked.times[(asked.first + asked.lengths - 1)[some]]
        reach = float((furthest - last_times(shown)[some]).max())
        if self.horizon is not None:
            longest = float((last_times(panel) - panel.first_times()).max())
            reach = max(reach, min(in_unit(self.horizon, panel), longest))
        self.reach_ = reach
        return shown, asked, task

    def _check_asked(self, names: Sequence[Any], last: Array, earliest: Array, latest: Array, unit: str) -> None:
        if bool((past := earliest <= last).any()):
            who, label = int(np.argmax(past)), f" {unit}" if unit else ""
            raise ValueError(
                f"forecasts are for times after the last row; series {names[who]!r} has a row at {last[who]:g}{label} "
                f"and a query at {earliest[who]:g}{label}. Drop its later rows, or use LFormerInterpolator."
            )
        ahead = latest - last
        if bool((far := ahead > (1 + ROUNDING) * self.reach_).any()):
            who = int(np.argmax(ahead))
            message = (
                f"{int(far.sum())} of {len(names)} series have queries further ahead than any in training, which was "
                f"up to {_span(self.reach_, unit)} after the last row; series {spell(names[who])} has one "
                f"{_span(float(ahead[who]), unit)} after its own."
            )
            if self.extrapolate == "error":
                raise ValueError(f'{message} Fit with a longer horizon, or allow it with extrapolate="warn".')
            warnings.warn(message, ExtrapolationWarning, stacklevel=4)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_word(self.extrapolate, "extrapolate", ("error", "warn"))
        check_horizon(self.horizon)


def _span(time: float, unit: str) -> str:
    """A span of time in words; long spans in seconds are also given in days."""
    days = f" ({time / 86400:.4g} days)" if unit == "s" and time >= 86400 else ""
    return f"{time:.6g} {unit}".rstrip() + days
