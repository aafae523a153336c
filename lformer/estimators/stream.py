"""Predictions for one series that is still coming in: after every observation, at a constant cost."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from lformer.estimators.incoming import ALONE
from lformer.estimators.streams import Late, Streams

if TYPE_CHECKING:
    from lformer.estimators.base import LFormerEstimator


class Stream:
    """A stream for one series, row by row, opened by `estimator.stream()`.

    After every row the prediction is that of `predict` on the series so far. Only the state of the model is kept, so a
    row costs the same even after a million others. A stream is `Streams` of a single series and runs on the CPU in full
    float32 precision; where `predict` uses a GPU, the two agree up to the rounding of TF32. The stream keeps the model
    it was opened with, even if the estimator is fitted again.

    Args:
        estimator: fitted with `streaming=True`.
        static: the static covariates of the series, if the model was trained with any.
        late, memory: see `Streams`.

    Example:
        >>> import numpy as np
        >>> from lformer import LFormerClassifier
        >>> rng = np.random.default_rng(0)
        >>> X = [(np.sort(rng.random(5)), rng.normal(3 * (i % 2), 1, (5, 1))) for i in range(20)]
        >>> model = LFormerClassifier(streaming=True, max_epochs=2, device="cpu", random_state=0)
        >>> stream = model.fit(X, np.arange(20) % 2).stream()
        >>> for time, values in zip(*X[0]):
        ...     so_far = stream.update(time, values)
        >>> np.allclose(so_far, model.predict_proba(X[:1])[0], atol=1e-5)
        True
    """

    def __init__(
        self,
        estimator: LFormerEstimator,
        static: Mapping[str, Any] | None = None,
        late: Late = "refuse",
        memory: int | None = None,
    ) -> None:
        self._streams = Streams(estimator, late, memory, slots=1)
        self._static = None if static is None else {name: [value] for name, value in static.items()}
        self._streams.reader.static(self._static, [ALONE], [0])  # raises if a covariate is missing

    def update(self, time: Any, values: Any) -> Any:
        """Add one observation and return the prediction for the series so far, or for this row.

        Args:
            time: its time stamp, of the same kind as in training: a number, or a date or duration from Python, numpy or
                pandas. Either all dates have a time zone or none has. Values with the time stamp of an existing row
                join that row, and the prediction is made again; `late` determines what happens to an earlier time
                stamp.
            values: (C,) in the order of the channels in training, NaN where nothing was observed; or a dict by channel.

        Returns:
            (classes,) class probabilities in the order of `classes_`, or a number or (K,) numbers, as in `predict`;
            None for interpolators and forecasters.
        """
        if isinstance(values, Mapping):
            row: Any = {name: [value] for name, value in values.items()}
        else:
            row = [values] if np.ndim(values) else [[values]]
        told = self._streams.update([ALONE], [time], row, self._static)
        return None if told is None else told[0]

    def predict_at(self, time: Any) -> Any:
        """Predict at a time between observations, see `Streams.predict_at`; the stream does not change."""
        if not len(self._streams):
            raise ValueError("the stream has had no row yet, so there is nothing to predict from.")
        return self._streams.predict_at([ALONE], [time])[0]

    @property
    def rows(self) -> int:
        """Number of rows so far; observations at the same time stamp are one row."""
        return int(self._streams.rows().sum())

    @property
    def dropped(self) -> int:
        """Number of observations that were dropped because they came too late."""
        return self._streams.dropped

    def copy(self) -> Self:
        """An independent copy, which continues from here."""
        other = copy(self)
        other._streams = self._streams.copy()
        return other
