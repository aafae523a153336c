"""A fitted estimator on a series that is still coming in: an answer after every observation, at a constant cost."""

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
    """One series, row by row. Made by `estimator.stream()`; after every row the answer is that of `predict` so far.

    `Streams` of a single series: nothing is kept but the state of the model, so a row costs the same after a million
    others. Rows are worked on by the CPU, with products to the last digit of float32: where `predict` uses a GPU, the
    two agree as far as TF32 does. A stream goes on with the model it was opened with, even if the estimator is fitted
    again.

    Args:
        estimator: fitted with `streaming=True`.
        static: the covariates of the series, if training had any.
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
        self._streams.reader.static(self._static, [ALONE], [0])  # is anything missing?

    def update(self, time: Any, values: Any) -> Any:
        """Take one observation and answer for the series so far, or for this row.

        Args:
            time: its stamp, of the kind that training had: a number, or a date or duration of Python, numpy or pandas.
                Dates all have a time zone, or none has. Values at the same stamp join its row, and the answer is given
                again; what becomes of an earlier one, `late` says.
            values: (C,) in the order of the channels in training, NaN where nothing was observed; or channel -> value.

        Returns:
            (classes,) probabilities in the order of `classes_`, or the number, or (K,) numbers, as `predict` gives;
            None from those that interpolate or forecast.
        """
        if isinstance(values, Mapping):
            row: Any = {name: [value] for name, value in values.items()}
        else:
            row = [values] if np.ndim(values) else [[values]]
        told = self._streams.update([ALONE], [time], row, self._static)
        return None if told is None else told[0]

    def predict_at(self, time: Any) -> Any:
        """What the model says at a moment between observations, see `Streams.predict_at`; nothing changes by it."""
        if not len(self._streams):
            raise ValueError("the stream had no row yet, so there is nothing to tell from.")
        return self._streams.predict_at([ALONE], [time])[0]

    @property
    def rows(self) -> int:
        """How many rows there were so far; what came at one stamp is one row."""
        return int(self._streams.rows().sum())

    @property
    def dropped(self) -> int:
        """How many observations came too late and were dropped."""
        return self._streams.dropped

    def copy(self) -> Self:
        """A stream that goes on from here on its own."""
        other = copy(self)
        other._streams = self._streams.copy()
        return other
