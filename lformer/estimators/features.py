"""What reading new series needs from training: channels, clock and covariates; the scales are in the model."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lformer.covariates import Covariates
from lformer.estimators.inputs import match_channels, match_clock, on_calendar, require_dates
from lformer.panel import Array, Panel, some_of
from lformer.panel.calendar import NO_CALENDAR, Calendar, choose, choose_clock


@dataclass(frozen=True, kw_only=True)
class Features:
    """How new series are matched with those of training.

    Attributes:
        channels: names, in the order of training.
        known: (C,) bool, False for a channel that was never observed in training; its values in new series are ignored.
        unit: unit of the times.
        calendar: whether time stamps were dates or durations rather than numbers.
        covariates: encoding of the static covariates.
        marks: calendar features, with their time zone, or the clock; none by default.
    """

    channels: tuple[str, ...]
    known: Array
    unit: str
    calendar: bool
    covariates: Covariates
    marks: Calendar = NO_CALENDAR

    @classmethod
    def fit(cls, panel: Panel, calendar: Any = False, clock: Any = False) -> Features:
        """Determine the features from the training series; `calendar` and `clock` are those of the estimators."""
        known = _observed_channels(panel)
        if not known.any():
            raise ValueError(
                f"no value is observed in any of the {len(panel)} training series, so there is nothing to learn from."
            )
        return cls(
            channels=panel.channels,
            known=known,
            unit=panel.unit,
            calendar=on_calendar(panel),
            covariates=Covariates.fit(panel.static),
            marks=replace(choose(some_of(panel), calendar), clock=choose_clock(panel, clock)),
        )

    def match(self, panel: Panel) -> Panel:
        """The panel with the channels and the unit of time of training; raises an error that says what differs."""
        panel = match_clock(match_channels(panel, self.channels), self.calendar, self.unit)
        if self.marks.periods:
            require_dates(panel.origin.dtype.kind, panel.zone, self.marks.zone, "the times of X")
        if self.known.all():
            return panel
        if (new := _observed_channels(panel) & ~self.known).any():
            names = [name for name, is_new in zip(self.channels, new, strict=True) if is_new]
            warnings.warn(
                f"channels {names[:5]} were never observed in training; their values in X are left out.", stacklevel=4
            )
        observed = np.ones(panel.values.shape, bool) if panel.observed is None else panel.observed
        return replace(panel, values=np.where(self.known, panel.values, 0), observed=observed & self.known)

    def static(self, panel: Panel) -> Array | None:
        """(n, S) static covariates of the series, None if training had none."""
        return self.covariates.encode(panel.static) if self.covariates.width else None


def _observed_channels(panel: Panel) -> Array:
    """(*C) bool, whether a channel is observed in any row; reads the rows piece by piece."""
    found = np.full(panel.values.shape[1:], panel.observed is None and bool(panel.lengths.any()))
    for piece in panel.pieces():
        if piece.observed is None or found.all():
            break
        found |= piece.observed[piece.rows()].any(axis=0)
    return found
