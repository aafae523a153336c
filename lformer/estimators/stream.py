"""A fitted estimator on a series that is still coming in: an answer after every observation, at a constant cost."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from lformer.estimators.inputs import require_dates
from lformer.panel import Array
from lformer.panel.missing import is_mark, read_marks
from lformer.panel.stamps import as_stamps, elapsed, missing
from lformer.panel.zones import zone_of

if TYPE_CHECKING:
    from lformer.estimators.base import LFormerEstimator


class Stream:
    """One series, row by row. Made by `estimator.stream()`; after every row the answer is that of `predict` so far.

    Nothing is kept but the state of the model, so a row costs the same after a million others. Rows are worked on by
    the CPU, with products to the last digit of float32: where `predict` uses a GPU, the two agree as far as TF32 does.
    A stream goes on with the model it was opened with, even if the estimator is fitted again.

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

    def __init__(self, estimator: LFormerEstimator, static: Mapping[str, Any] | None = None) -> None:
        check_is_fitted(estimator, "model_")
        _require_streaming(estimator)
        self._decode = copy(estimator)._decode  # with its scales and classes, whatever `fit` finds later
        self._model = estimator.model_
        self._features = estimator.features_
        self._marks = read_marks(estimator.missing_values, self._features.channels, np.float32, some=True)
        coding = self._features.covariates
        covariates = torch.from_numpy(coding.encode(_one_row(static))) if coding.width else None
        self._origin: Array | None = None
        self._zone: str | None = None
        self._elapsed = self._gap = 0.0
        self._row = np.full(len(self._features.channels), np.nan)
        self._before: Any = self._model.init_state(1, covariates)
        self._after: Any = self._before
        self._rows = 0

    def update(self, time: Any, values: Any) -> Any:
        """Take one observation and answer for the series so far, or for this row.

        Args:
            time: its stamp, of the kind that training had: a number, or a date or duration of Python, numpy or pandas.
                Not before the last one; dates all have a time zone, or none has. Values at the same stamp join its
                row, and the answer is given again.
            values: (C,) in the order of the channels in training, NaN where nothing was observed; or channel -> value.

        Returns:
            (classes,) probabilities in the order of `classes_`, or the number, or (K,) numbers, as `predict` gives.
        """
        row, (stamp, zone) = self._values(values), self._stamp(time)
        origin = stamp if self._origin is None else self._origin
        now = float(elapsed(stamp, origin, self._features.unit)[0])
        if self._origin is not None and now < self._elapsed:
            raise ValueError(
                f"time must not go back: {time} is {self._elapsed - now:g} {self._features.unit or 'time units'} "
                "before the row that came last. Sort what comes in, or open a stream for each series."
            )
        if self._origin is not None and now == self._elapsed:
            row, gap, before, rows = self._joined(row, time), self._gap, self._before, self._rows
        else:
            gap, before, rows = now - self._elapsed, self._after, self._rows + 1
        answer, after = self._step(row, stamp, gap, before)
        self._origin, self._zone, self._elapsed, self._gap, self._row = origin, zone, now, gap, row
        self._before, self._after, self._rows = before, after, rows
        return answer

    @property
    def rows(self) -> int:
        """How many rows there were so far; what came at one stamp is one row."""
        return self._rows

    def copy(self) -> Self:
        """A stream that goes on from here on its own; nothing is copied, as no state is ever changed."""
        return copy(self)

    @torch.no_grad()
    def _step(self, row: Array, stamp: Array, gap: float, before: Any) -> tuple[Any, Any]:
        """The answer after a row, and the state then; `before`, the state before it."""
        seen = np.where(self._features.known, row, np.nan)  # as `predict`, which leaves the others out
        values, delta = torch.from_numpy(seen)[None], torch.tensor([gap], dtype=torch.float64)
        calendar = self._features.marks
        marks = torch.from_numpy(calendar.of(stamp, self._features.unit)) if calendar.width else None
        output, state = self._model.step(values, delta, before, marks)
        return self._decode(output.float())[0], state

    def _stamp(self, time: Any) -> tuple[Array, str | None]:
        """(1,) of the kind that training had, and its time zone if it has one."""
        import pandas as pd

        given = np.array([time]) if isinstance(time, float | int) else pd.Index([time])
        stamp = as_stamps(given, "time")
        calendar = stamp.dtype.kind in "mM"
        if stamp.shape != (1,) or missing(stamp).any():
            raise ValueError(f"time must be one finite stamp; got {time!r}.")
        kind = stamp.dtype if self._origin is None else self._origin.dtype
        if calendar != self._features.calendar or (calendar and stamp.dtype.kind != kind.kind):
            needs = "a date or a duration, one kind for a series" if self._features.calendar else "a number"
            raise ValueError(f"time must be {needs}, as in training; got {time!r}.")
        if self._features.marks.periods:
            require_dates(stamp.dtype.kind, zone_of(given), self._features.marks.zone, f"the stamps, such as {time!r},")
        zone = zone_of(given)
        if self._origin is not None and (zone is None) != (self._zone is None):
            has, had = (f"the time zone {one}" if one else "no time zone" for one in (zone, self._zone))
            raise ValueError(
                f"time must have a time zone in all rows of a stream or in none: {time!r} has {has}, the row before it "
                f"had {had}. Give both the same: tz_localize, or datetime.replace(tzinfo=...)."
            )
        return stamp, zone

    def _values(self, values: Any) -> Array:
        """(C,) NaN where nothing was observed; numbers that float32 can hold."""
        channels = self._features.channels
        if isinstance(values, Mapping):
            if new := [name for name in values if name not in channels]:
                raise ValueError(f"channels {new[:5]} are not among those of training: {', '.join(channels[:8])}.")
            values = [values.get(name, np.nan) for name in channels]
        try:
            with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite and is refused
                row = np.atleast_1d(np.asarray(values, np.float64))
                single = row.astype(np.float32)
                row = np.where(np.isinf(single), np.inf, row)
        except (ValueError, TypeError) as error:
            raise ValueError(f"values must be numbers, NaN where nothing was observed: {error}.") from error
        if row.shape == (len(channels),):
            row = np.where(is_mark(single, self._marks), np.nan, row)
        if row.shape != (len(channels),) or np.isinf(row).any():
            raise ValueError(
                f"values must be {len(channels)} finite numbers, one for each of {', '.join(channels[:8])}, NaN where "
                f"nothing was observed; got {values!r}."
            )
        return row

    def _joined(self, row: Array, time: Any) -> Array:
        """What came at the stamp before and what comes now; a channel must not have come twice."""
        twice = ~np.isnan(row) & ~np.isnan(self._row)
        if twice.any():
            name = self._features.channels[int(np.argmax(twice))]
            raise ValueError(
                f"channel {name!r} came already at time {time}, with {self._row[twice][0]:g}; now it is "
                f"{row[twice][0]:g}. Decide for one value before the update."
            )
        return np.where(np.isnan(row), self._row, row)


def _require_streaming(estimator: LFormerEstimator) -> None:
    name, config = type(estimator).__name__, estimator.model_.config
    if config.answer == "query":
        raise ValueError(
            f"{name} answers at times that it is asked for, a stream at the rows that come in. Those that stream are "
            "LFormerClassifier, LFormerRegressor, LFormerPointClassifier and LFormerPointRegressor."
        )
    if not config.causal:
        raise ValueError(
            f"this {name} reads a series as a whole, so it cannot answer while one comes in. Fit it again with "
            f"{name}(streaming=True)."
        )


def _one_row(static: Mapping[str, Any] | None) -> Any:
    """A table of one row, as `Panel.static` is one."""
    import pandas as pd

    return None if static is None else pd.DataFrame({name: [value] for name, value in static.items()})
