"""A fitted estimator on many series that are still coming in, whichever have news: one batched step for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from lformer.allocator import keep_blocks_of_steps
from lformer.arrays import check_word
from lformer.estimators.incoming import Id, Reader, whose
from lformer.estimators.ordering import Rows, in_order, require_once
from lformer.estimators.slots import Slots, dressed
from lformer.nn.states import first, put, take
from lformer.panel import Array
from lformer.panel.stamps import elapsed

if TYPE_CHECKING:
    from lformer.estimators.base import LFormerEstimator

Late = Literal["refuse", "drop", "merge"]
AT_ONCE = 1024  # series in one step: more gain nothing, and take more room
BACK = 8  # rows that late="merge" takes back, if nobody says how many


class Work(NamedTuple):
    """Rows to be worked off, and where their series stand before them: (n,) each."""

    rows: Rows
    slots: Array
    before: Array  # how many rows a series has then
    origin: Array  # the stamp its times count from


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
        >>> for row in range(5):
        ...     so_far = streams.update(["a", "b"], [X[0][0][row], X[1][0][row]], [X[0][1][row], X[1][1][row]])
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
        answers = torch.zeros(len(names), self.estimator.model_.config.outputs)
        slots = self.slots.find(names)
        if len(names):
            self.slots.keep_time(clock)
        taken, late = self._in_time(names, slots, stamps, given)
        answers[torch.from_numpy(late)] = self.slots.outputs[torch.from_numpy(slots[late])]
        if len(taken):
            some = [names[n] for n in taken] if len(taken) < len(names) else names
            answers[torch.from_numpy(taken)] = self._take_in(some, slots[taken], stamps[taken], given[taken], static)
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
            return self.estimator._decode(torch.zeros(0, self.estimator.model_.config.outputs))
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
        marks = self._marks(stamps)
        parts = [
            self._ask(slots[part], back[part], now[part], None if marks is None else marks[part])
            for part in _parts(len(names))
        ]
        return self.estimator._decode(torch.cat(parts).float())

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

    def _marks(self, stamps: Array) -> Tensor | None:
        """(M, marks) what is known in advance of these moments."""
        calendar = self.reader.features.marks
        return torch.from_numpy(calendar.of(stamps, self.reader.features.unit)) if calendar.width else None

    # --- rows ---

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

    def _take_in(self, names: Sequence[Id], slots: Array, stamps: Array, given: Array, static: Any) -> Tensor:
        """(N, O) answers of the model after rows none of which is to be dropped."""
        codes = slots.copy()
        fresh = slots < 0
        if fresh.any():
            number: dict[Id, int] = {}
            codes[fresh] = [self.slots.size + number.setdefault(names[n], len(number)) for n in np.flatnonzero(fresh)]
        series, begins, owner = np.unique(codes, return_index=True, return_inverse=True)
        new = series >= self.slots.size
        covariates = self.reader.static(static, names, begins[new].tolist())
        of_series = [names[n] for n in begins]
        work, late = self._arranged(of_series, np.where(new, -1, series), owner, stamps, given)
        work.slots[new] = claimed = self.slots.claim(int(new.sum()))
        try:
            self.slots.static[torch.from_numpy(claimed)] = torch.from_numpy(covariates)
            outputs = self._worked_off(work)
        except BaseException:
            self.slots.give_back(claimed)
            raise
        self.slots.place.update(zip((of_series[n] for n in np.flatnonzero(new)), claimed.tolist(), strict=True))
        rows, ends = work.rows, work.rows.first + work.rows.length - 1
        self.slots.outputs[torch.from_numpy(work.slots)] = outputs[torch.from_numpy(ends)]
        wanted = rows.of
        if self.estimator.model_.config.answer == "series":  # of which a late row shows no earlier answer
            wanted = np.where(late, ends[rows.owner[wanted]], wanted)
        return outputs[torch.from_numpy(wanted)]

    def _arranged(
        self, names: Sequence[Id], slots: Array, owner: Array, stamps: Array, given: Array
    ) -> tuple[Work, Array]:
        """Rows in order, with those that must be gone through again, and (N,) which of the given were late.

        Args:
            names: (n,) of the series.
            slots: (n,) theirs, -1 of a new one.
            owner: (N,) to which of them a row belongs.
            stamps: (N,).
            given: (N, C).
        """
        known = slots >= 0
        earliest = np.empty(len(slots), stamps.dtype)
        order = np.argsort(stamps, kind="stable")[::-1]
        earliest[owner[order]] = stamps[order]  # the last assignment of each stays
        count, back, late = np.zeros(len(slots), np.int64), np.zeros(len(slots), np.int64), np.zeros(len(owner), bool)
        if known.any():
            mine = slots[known]
            count[known] = self.slots.count[mine]
            latest = earliest.copy()
            latest[known] = self.slots.latest(mine)
            late = known[owner] & (stamps < latest[owner])
            again = np.flatnonzero(known & (earliest <= latest))
            if len(again):
                back[again] = self.slots.later(slots[again], earliest[again], equal=True)
                self._require_reachable([names[n] for n in again], slots[again], back[again], earliest[again])
                who, age = np.nonzero(np.arange(self.slots.ring) < back[again, None])
                at = slots[again][who], self.slots.ages(slots[again])[who, age]
                owner = np.concatenate([again[who], owner])
                stamps = np.concatenate([self.slots.stamps[at], stamps])
                given = np.concatenate([self.slots.values[at], given])
        rows, order = in_order(owner, stamps, given, len(slots))
        require_once(given, rows, order, names, self.reader.features.channels)
        before = count - back
        starts = rows.stamps[rows.first]
        origin = np.where(before > 0, self.slots.origin[slots], starts) if known.any() else starts
        return Work(rows._replace(of=rows.of[len(owner) - len(late) :]), slots.copy(), before, origin), late

    def _require_reachable(self, names: Sequence[Id], slots: Array, back: Array, earliest: Array) -> None:
        """Refuse a row that is older than what can be taken back."""
        lost = ~self.slots.reachable(slots, back)
        if lost.any():
            n = int(np.argmax(lost))
            raise ValueError(
                f"a row at {earliest[n]} comes too late to be merged{whose(names[n])}: of its "
                f"{self.slots.count[slots[n]]} rows, the last of which is at {self.slots.latest(slots)[n]}, only the "
                f"latest {self.slots.kept[slots[n]] - 1} can be taken back. Open streams with a larger memory."
            )

    @torch.no_grad()
    def _worked_off(self, work: Work) -> Tensor:
        """(M, O) answers after each row; at the end all series stand after their last one."""
        rows, unit = work.rows, self.reader.features.unit
        now = elapsed(rows.stamps, work.origin[rows.owner], unit)
        gap = np.diff(now, prepend=0.0)
        begun = np.flatnonzero(work.before > 0)
        gap[rows.first] = 0.0
        slots = work.slots[begun]
        last = self.slots.stamps[slots, (work.before[begun] - 1) % self.slots.ring]
        gap[rows.first[begun]] = now[rows.first[begun]] - elapsed(last, work.origin[begun], unit)
        values = torch.from_numpy(self.reader.observed(rows.values))
        deltas, marks = torch.from_numpy(gap), self._marks(rows.stamps)
        outputs = torch.zeros(len(rows.stamps), self.estimator.model_.config.outputs)
        longest = np.argsort(-rows.length, kind="stable")  # those with many rows first: the others leave at the end
        for part in _parts(len(longest)):
            self._steps(work, longest[part], values, deltas, marks, outputs)
        return outputs

    def _steps(
        self, work: Work, series: Array, values: Tensor, deltas: Tensor, marks: Tensor | None, outputs: Tensor
    ) -> None:
        """Work off the rows of some series, those with the most rows first, one of each in a step."""
        model, slots, ring = self.estimator.model_, self.slots, self.slots.ring
        begin, length = work.rows.first[series], work.rows.length[series]
        state = slots.before(work.slots[series], work.before[series])
        kept: list[tuple[Array, Array, Any]] = []
        for n in range(int(length[0])):
            active = int((length > n).sum())
            state = first(state, active)
            at = begin[:active] + n
            index = torch.from_numpy(at)
            given = (values[index], deltas[index], state, None if marks is None else marks[index])
            if self._asks:
                state = model.advance(*given)
            else:
                output, state = model.step(*given)
                outputs[index] = output.float()
            stays = np.flatnonzero(length[:active] - n <= ring)  # the others leave the ring again before the end
            if len(stays):
                kept.append((stays, at[stays], state if len(stays) == active else take(state, torch.from_numpy(stays))))
        for who, at, after in kept:  # now, that nothing can go wrong any more
            mine = work.slots[series[who]]
            place = (work.before[series[who]] + at - begin[who]) % ring
            put(slots.states, torch.from_numpy(mine * ring + place), dressed(after, None))
            slots.stamps[mine, place], slots.values[mine, place] = work.rows.stamps[at], work.rows.values[at]
        mine, total = work.slots[series], work.before[series] + length
        replayed = np.where(work.before[series] > 0, slots.kept[mine] - (slots.count[mine] - work.before[series]), 0)
        slots.origin[mine] = work.origin[series]
        slots.kept[mine], slots.count[mine] = np.minimum(replayed + length, ring), total

    # --- questions ---

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


def _parts(count: int) -> Iterator[slice]:
    """So many series, as many at once as one step takes."""
    return (slice(n, n + AT_ONCE) for n in range(0, count, AT_ONCE))


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
