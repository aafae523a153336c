"""Predictions for many series that are still coming in, with one batched step for all that have new rows."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from lformer.allocator import keep_blocks_of_steps
from lformer.arrays import check_word
from lformer.estimators.incoming import Id, Reader, whose
from lformer.estimators.slots import Slots
from lformer.estimators.working import marks_of, parts, take_in
from lformer.panel import Array
from lformer.panel.stamps import elapsed

if TYPE_CHECKING:
    from lformer.estimators.base import LFormerEstimator

Late = Literal["refuse", "drop", "merge"]
BACK = 8  # default memory of late="merge"


class Streams:
    """Streams for many series, row by row, opened by `estimator.streams()`.

    Predictions are those of `predict` on each series so far. The states of the model after the latest rows of each
    series are kept in a few arrays, so a row costs the same even after a million others, and a thousand rows at once
    cost far less than one by one. Streams run on the CPU, and keep the model they were opened with even if the
    estimator is fitted again.

    Args:
        estimator: fitted with `streaming=True`.
        late: what to do with a row that is older than the last one of its series: "refuse" raises an error; "drop"
            drops it and counts it in `dropped`; "merge" treats it as if it had come in time. Values with the time stamp
            of an existing row always join that row.
        memory: number of rows of a series that can be undone to merge a late one; each takes as much memory as a state.
            None is 8 with late="merge", else 1, which is enough to join the last row.
        slots: number of series to reserve space for; more space is allocated as needed.

    Example:
        >>> import numpy as np
        >>> from lformer import LFormerClassifier
        >>> rng = np.random.default_rng(0)
        >>> X = [(np.sort(rng.random(5)), rng.normal(3 * (i % 2), 1, (5, 1))) for i in range(20)]
        >>> model = LFormerClassifier(streaming=True, max_epochs=2, device="cpu", random_state=0)
        >>> streams = model.fit(X, np.arange(20) % 2).streams()
        >>> times, values = (np.stack([series[part] for series in X[:2]]) for part in (0, 1))
        >>> for row in range(5):
        ...     so_far = streams.update(["a", "b"], times[:, row], values[:, row])
        >>> np.allclose(so_far, model.predict_proba(X[:2]), atol=1e-5)
        True
    """

    def __init__(
        self, estimator: LFormerEstimator, late: Late = "refuse", memory: int | None = None, slots: int = 0
    ) -> None:
        check_is_fitted(estimator, "model_")
        require_streaming(estimator)
        check_word(late, "late", ("refuse", "drop", "merge"))
        memory = (BACK if late == "merge" else 1) if memory is None else memory
        if not isinstance(memory, int) or isinstance(memory, bool) or memory < 1:
            raise ValueError(f"memory must be a whole number of at least 1, or None; got {memory!r}.")
        keep_blocks_of_steps()
        self.late, self.memory, self.dropped = late, memory, 0
        self.dropped_last: Array = np.zeros(0, np.int64)  # which rows of the latest call were dropped
        self.estimator = copy(estimator)  # keeps its model, scales and classes when the original is fitted again
        self.reader = Reader(self.estimator)
        features = self.estimator.features_
        self.slots = Slots(estimator.model_, len(features.channels), memory, features.covariates.width, slots)

    def update(self, ids: Any, times: Any, values: Any, static: Any = None, channels: Any = None) -> Any:
        """Add rows of any series, known or new, and return a prediction for each row.

        A call may contain several rows of the same series, in any order: they are processed in order of time. If any
        row is invalid, an error names it and no row is added.

        Args:
            ids: (N,) the series of each row, as strings or integers.
            times: (N,) time stamps, of the same kind as in training: numbers, or dates or durations from Python, numpy
                or pandas; a single one applies to all rows.
            values: (N, C) in the order of the channels in training, NaN where nothing was observed; or a table or dict
                with a column for some of the channels.
            static: static covariates of new series, if the model was trained with any: a table whose index holds the
                ids, or a dict with N entries per covariate. Those of known series are ignored.
            channels: (N,) the channel of each value, if `values` are (N,), one observation each.

        Returns:
            (N, classes) class probabilities, or (N,) or (N, K) numbers, as in `predict`: for each row the prediction
            for its series up to that row, or for the row itself. After a late row, the prediction is that for its
            series as it now stands. None for interpolators and forecasters; call `predict_at` instead.
        """
        names = self.reader.ids(ids)
        stamps, clock = self.reader.stamps(times, names, self.slots.clock if len(self) else None)
        given = self.reader.values(values, names, channels)
        answers = torch.zeros(len(names), self.estimator.model_.config.numbers)
        slots = self.slots.find(names)
        if len(names):
            self.slots.keep_time(clock)
        taken, late = self._in_time(names, slots, stamps, given)
        answers[torch.from_numpy(late)] = self.slots.outputs[torch.from_numpy(slots[late])]
        if len(taken):
            some = [names[n] for n in taken] if len(taken) < len(names) else names
            told = take_in(self.reader, self.slots, some, stamps[taken], given[taken], static)
            answers[torch.from_numpy(taken)] = told
        self.dropped, self.dropped_last = self.dropped + len(late), late
        return None if self._asks else self.estimator._decode(answers)

    def predict_at(self, ids: Any, times: Any) -> Any:
        """Predict at times between observations; the streams do not change.

        Interpolators and forecasters predict from what is known so far. The other estimators predict as if a row
        without any observation came at that time, which must not be earlier than the last row of the series.

        Args:
            ids: (N,) series that have had rows; one may occur several times.
            times: (N,) time stamps, or one for all.

        Returns:
            (N, C) values of the channels, or predictions as in `update`.
        """
        names = self.reader.ids(ids)
        slots = self._known(names)
        stamps, _ = self.reader.stamps(times, names, self.slots.clock)
        if not len(names):
            return self.estimator._decode(torch.zeros(0, self.estimator.model_.config.numbers))
        back = self.slots.later(slots, stamps, equal=False)
        if self._asks:
            self._require_askable(names, slots, stamps, back)
        elif back.any():
            n = int(np.argmax(back > 0))
            raise ValueError(
                f"{type(self.estimator).__name__} predicts for incoming rows, so predict_at must not be earlier "
                f"than the last of them: {stamps[n]} lies before {self.slots.latest(slots)[n]}{whose(names[n])}."
            )
        now = elapsed(stamps, self.slots.origin[slots], self.reader.features.unit)
        marks = marks_of(self.reader, stamps)
        told = [
            self._ask(slots[part], back[part], now[part], None if marks is None else marks[part])
            for part in parts(len(names))
        ]
        return self.estimator._decode(torch.cat(told).float())

    def reset(self, ids: Any = None) -> None:
        """Forget these series, or all of them: they start anew with their next row, and their space becomes free."""
        names = list(dict.fromkeys(self.ids if ids is None else self.reader.ids(ids)))
        self._known(names)
        self.slots.forget(names)

    def rows(self, ids: Any = None) -> Array:
        """(n,) number of rows so far of these series, or of all; observations at the same time stamp are one row."""
        return self.slots.count[self._known(self.ids if ids is None else self.reader.ids(ids))]

    @property
    def ids(self) -> list[Id]:
        """Ids of all series, in order of first arrival."""
        return list(self.slots.place)

    def __len__(self) -> int:
        return len(self.slots.place)

    def __contains__(self, name: object) -> bool:
        return name in self.slots.place

    def __repr__(self) -> str:
        return f"Streams({type(self.estimator).__name__}, {len(self):,} series, late={self.late!r})"

    def copy(self) -> Self:
        """Independent copies, which continue from here."""
        other = copy(self)
        other.slots = self.slots.copy()
        return other

    def save(self, folder: str | Path) -> None:
        """Save the state of all series to a folder, atomically and without pickle."""
        from lformer.estimators.stream_files import save

        save(self, folder)

    def load(self, folder: str | Path) -> Self:
        """Continue from the states that `save` wrote for the same model; the series held here are discarded."""
        from lformer.estimators.stream_files import load

        load(self, folder)
        return self

    @property
    def _asks(self) -> bool:
        return self.estimator.model_.config.answer == "query"

    def _known(self, names: Sequence[Id]) -> Array:
        slots = self.slots.find(names)
        if (slots < 0).any():
            lost = list(dict.fromkeys(name for name, slot in zip(names, slots, strict=True) if slot < 0))
            raise KeyError(f"series {', '.join(map(repr, lost[:5]))} had no row yet, or none since the last reset.")
        return slots

    def _in_time(self, names: list[Id], slots: Array, stamps: Array, given: Array) -> tuple[Array, Array]:
        """Positions of the rows to add, and of those dropped as late."""
        wanted: Array = np.ones(len(names), bool)
        if self._asks:  # like `predict`, leave out rows without any observation
            wanted = ~np.all(np.isnan(self.reader.observed(given)), axis=1)
        late = wanted & (slots >= 0)
        late[late] = stamps[late] < self.slots.latest(slots[late])
        if self.late == "refuse" and late.any():
            n = int(np.argmax(late))
            last = self.slots.latest(slots[n : n + 1])
            unit = self.reader.features.unit
            raise ValueError(
                f"time must not go back: {stamps[n]} is {float(elapsed(last, stamps[n : n + 1], unit)[0]):g} "
                f"{unit or 'time units'} before the row that came last, at {last[0]}{whose(names[n])}. Sort the rows, "
                'or open streams with late="merge" or late="drop".'
            )
        dropped = late & (self.late == "drop")
        return np.flatnonzero(wanted & ~dropped), np.flatnonzero(dropped)

    @torch.no_grad()
    def _ask(self, slots: Array, back: Array, now: Array, marks: Tensor | None) -> Tensor:
        """(B, O) outputs at times (B,) after the start of the series, `back` rows before their current state."""
        model, times = self.estimator.model_, torch.from_numpy(now)
        state = self.slots.before(slots, self.slots.count[slots] - back)
        if self._asks:
            return model.ask(times[:, None], state, None if marks is None else marks[:, None])[:, 0]
        last = elapsed(self.slots.latest(slots), self.slots.origin[slots], self.reader.features.unit)
        nothing = torch.full((len(slots), len(self.reader.place)), torch.nan, dtype=torch.float64)
        output, _ = model.step(nothing, times - torch.from_numpy(last), state, marks)
        came = torch.from_numpy(now == last)[:, None]  # there is a row at this time already
        return torch.where(came, self.slots.outputs[torch.from_numpy(slots)], output.float())

    def _require_askable(self, names: Sequence[Id], slots: Array, stamps: Array, back: Array) -> None:
        """Raise for times at which the model cannot predict."""
        lost = ~self.slots.reachable(slots, back)
        if lost.any():
            n = int(np.argmax(lost))
            raise ValueError(
                f"{stamps[n]} lies before the latest {self.slots.kept[slots[n]]} rows that are kept of this series"
                f"{whose(names[n])}. Open streams with a larger memory to ask about the past."
            )
        unit, origin = self.reader.features.unit, self.slots.origin[slots]
        last, now = elapsed(self.slots.latest(slots), origin, unit), elapsed(stamps, origin, unit)
        self.estimator._check_asked(names, last, now, now, unit)


def require_streaming(estimator: LFormerEstimator) -> None:
    """Raise for an estimator that cannot predict while a series comes in."""
    name, config = type(estimator).__name__, estimator.model_.config
    if name == "LFormerPretrainer":
        raise ValueError("LFormerPretrainer makes no predictions: fit an estimator from it, and stream that.")
    if not config.causal:
        raise ValueError(
            f"this {name} reads a series as a whole, so it cannot predict while one comes in. Fit it again with "
            f"{name}(streaming=True)."
        )
