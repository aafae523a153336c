"""LFormerInterpolator: predict the values of a series between, before and after its rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lformer.estimators.records import RecordEstimator
from lformer.hiding import random_rows
from lformer.panel import Array, Panel


@dataclass(kw_only=True, eq=False, repr=False)
class LFormerInterpolator(RecordEstimator):
    """Interpolate the values of a series between its rows, and before and after them.

    Args:
        hidden: share of the rows of each training series to hide.
        n_copies: number of copies of each training series, each with different rows hidden.
        persistence: whether predictions start from the line between the neighbouring observations, or from a sinusoid
            for series that it fits better.
        series_scale: whether each series is read in units of its own level, spread and season, and its errors are
            measured in its own spread. "auto" turns this on if the training series differ much in size, or if calendar
            features provide seasons.
        uncertainty: what is predicted in addition to the values themselves, see `IntervalEstimator`.
        others: see `CalibratedEstimator`.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> level = rng.normal(size=40)
        >>> X = [(np.sort(rng.random(6)), np.full((6, 1), 5 + y)) for y in level]
        >>> model = LFormerInterpolator(max_epochs=2, random_state=0).fit(X)
        >>> model.predict(X[:2], query_times=[0.2, 0.5, 0.9])[0].shape
        (3, 1)
    """

    hidden: float = 0.5
    _task_name: ClassVar[str] = "interpolate"

    def _usable(self, panel: Panel) -> Array:
        return (panel.lengths >= 2) & (self.hidden * panel.lengths >= 1)

    def _masks(self, panel: Panel, seed: int, copies: int) -> tuple[Array, Array]:
        """Visible rows are targets too: the prediction at the time of a row should be its value."""
        return random_rows(panel, self.hidden, seed), np.ones(len(panel.times), bool)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not 0 < self.hidden < 1:
            raise ValueError(f"hidden must lie between 0 and 1; got {self.hidden}.")
