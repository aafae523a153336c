"""A fitted estimator on many series that are still coming in, whichever have news: one batched step for all of them."""

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
BACK = 8  # rows that late="merge" takes back, if nobody says how many


class Streams:
    """Many series, row by row. Made by `estimator.streams()`; answers are those of `predict` on each series so far.

    All is kept in a few arrays, the state of the model after the latest rows of each series, so a row costs the same
    after a million others, and a thousand rows at once cost far less than one by one. It runs on the CPU. Streams go on
    with the model they were opened with, even if the estimator is fitted again.

    Args:
        estimator: fitted with `streaming=True`.
        late: what to do with a row that is older than the last one of its series: "refuse" it with an error; "drop" and
            count it, in `dropped`; or "merge" it, as if it had come in time. Values at the stamp of a row that is
            there always join it.
        memory: how many rows of a series can be taken back to merge a late one; each takes as much room as the state.
            None is 8 with late="merge", else 1, which is what joining the last row needs.
        slots: how many series there is room for at first; room is made for more as they come.

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
        self.estimator = copy(estimator)  # with its model, scales and classes, whatever `fit` finds later
        self.reader = Reader(self.estimator)
        features = self.estimator.features_
        self.slots = Slots(estimator.model_, len(features.channels), memory, features.covariates.width, slots)

    def update(self, ids: Any, times: Any, values: Any, static: Any = None, channels: Any = None) -> Any:
        """Take in rows of any series, known or new, and answer for each.

        Several rows may be of one series, in any order: they are worked off in the order of time. Either all rows are
        right, or an error says which is not and nothing was taken in.

        Args:
            ids: (N,) whose rows these are, texts or whole numbers.
            times: (N,) stamps, of the kind that training had: numbers, dates or durations of Python, numpy or pandas;
                one stamp is that of all rows.
            values: (N, C) in the order of the channels in training, NaN where nothing was observed; or a table or dict
                with a column for some of the channels.
            static: covariates of series that are new, if training had any: a table with a row for each id in its index,
                or a dict with N entries for each covariate. Those of known series are not read again.
            channels: (N,) the channel of each value, if `values` are (N,), one observation each.

        Returns:
            (N, classes) probabilities, (N,) or (N, K) numbers, as `predict` gives: for each row the answer for its
            series up to it, or for the row itself. A row that was late gets the answer for its series as it stands.
            None from those that interpolate or forecast; ask them with `predict_at`.
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
        """What the model says at moments between observations; nothing changes by it.

        Those that interpolate or forecast read what is known so far. The others answer as if a row came then in which
        nothing was observed, which is no earlier than the last row of its series.

        Args:
            ids: (N,) of series that have had rows; one may be there several times.
            times: (N,) stamps, or one for all.

        Returns:
            (N, C) values of the channels, or answers as `update` gives.
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
                f"{type(self.estimator).__name__} answers at the rows that come in, so predict_at must not be earlier "
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
        """Forget these series, or all: they begin anew with their next row, and their room is free for others."""
        names = list(dict.fromkeys(self.ids if ids is None else self.reader.ids(ids)))
        self._known(names)
        self.slots.forget(names)

    def rows(self, ids: Any = None) -> Array:
        """(n,) how many rows each of these series, or of all, has had; what came at one stamp is one row."""
        return self.slots.count[self._known(self.ids if ids is None else self.reader.ids(ids))]

    @property
    def ids(self) -> list[Id]:
        """Of all series, in the order in which they came."""
        return list(self.slots.place)

    def __len__(self) -> int:
        return len(self.slots.place)

    def __contains__(self, name: object) -> bool:
        return name in self.slots.place

    def __repr__(self) -> str:
        return f"Streams({type(self.estimator).__name__}, {len(self):,} series, late={self.late!r})"

    def copy(self) -> Self:
        """Streams that go on from here on their own."""
        other = copy(self)
        other.slots = self.slots.copy()
        return other

    def save(self, folder: str | Path) -> None:
        """Write all series as they stand into a folder, whole or not at all; nothing is pickled."""
        from lformer.estimators.stream_files import save

        save(self, folder)

    def load(self, folder: str | Path) -> Self:
        """Go on from what `save` wrote, with streams of the same model; series that are here are forgotten."""
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
        """Positions of the rows that are taken in, and of those that are dropped as late."""
        wanted: Array = np.ones(len(names), bool)
        if self._asks:  # as `predict`, which leaves out rows in which nothing was observed
            wanted = ~np.all(np.isnan(self.reader.observed(given)), axis=1)
        late = wanted & (slots >= 0)
        late[late] = stamps[late] < self.slots.latest(slots[late])
        if self.late == "refuse" and late.any():
            n = int(np.argmax(late))
            last = self.slots.latest(slots[n : n + 1])
            unit = self.reader.features.unit
            raise ValueError(
                f"time must not go back: {stamps[n]} is {float(elapsed(last, stamps[n : n + 1], unit)[0]):g} "
                f"{unit or 'time units'} before the row that came last, at {last[0]}{whose(names[n])}. Sort what comes "
                'in, or open streams with late="merge" or late="drop".'
            )
        dropped = late & (self.late == "drop")
        return np.flatnonzero(wanted & ~dropped), np.flatnonzero(dropped)

    @torch.no_grad()
    def _ask(self, slots: Array, back: Array, now: Array, marks: Tensor | None) -> Tensor:
        """(B, O) at moments (B,) after their series began, `back` rows before where these stand."""
        model, times = self.estimator.model_, torch.from_numpy(now)
        state = self.slots.before(slots, self.slots.count[slots] - back)
        if self._asks:
            return model.ask(times[:, None], state, None if marks is None else marks[:, None])[:, 0]
        last = elapsed(self.slots.latest(slots), self.slots.origin[slots], self.reader.features.unit)
        nothing = torch.full((len(slots), len(self.reader.place)), torch.nan, dtype=torch.float64)
        output, _ = model.step(nothing, times - torch.from_numpy(last), state, marks)
        came = torch.from_numpy(now == last)[:, None]  # a row is there already
        return torch.where(came, self.slots.outputs[torch.from_numpy(slots)], output.float())

    def _require_askable(self, names: Sequence[Id], slots: Array, stamps: Array, back: Array) -> None:
        """Refuse moments at which the model cannot answer."""
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
    """Refuse an estimator that cannot answer while a series comes in."""
    name, config = type(estimator).__name__, estimator.model_.config
    if name == "LFormerPretrainer":
        raise ValueError("LFormerPretrainer gives no answers of its own: fit an estimator from it, and stream that.")
    if not config.causal:
        raise ValueError(
            f"this {name} reads a series as a whole, so it cannot answer while one comes in. Fit it again with "
            f"{name}(streaming=True)."
        )
