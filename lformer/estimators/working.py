"""Process rows for many series at once, each from its own state, and merge late rows.

A row at or before the last one of its series undoes the later rows: the model continues from the state before them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lformer.estimators.incoming import Id, Reader, whose
from lformer.estimators.ordering import Rows, in_order, require_once
from lformer.estimators.slots import Slots, dressed
from lformer.nn.states import first, put, take
from lformer.panel import Array
from lformer.panel.stamps import elapsed

AT_ONCE = 1024  # series per step: more are no faster, and take more memory


class Work(NamedTuple):
    """Rows to process, and the position of their series before them: (n,) each."""

    rows: Rows
    slots: Array
    before: Array  # number of rows of the series before them
    origin: Array  # the time stamp that its times are relative to


def parts(count: int) -> Iterator[slice]:
    """Slices of a number of series, each as large as one step can be."""
    return (slice(n, n + AT_ONCE) for n in range(0, count, AT_ONCE))


def marks_of(reader: Reader, stamps: Array) -> Tensor | None:
    """(M, marks) calendar features or clock of these times; None if the model has none."""
    calendar = reader.features.marks
    return torch.from_numpy(calendar.of(stamps, reader.features.unit)) if calendar.width else None


def take_in(reader: Reader, kept: Slots, names: Sequence[Id], stamps: Array, given: Array, static: Any) -> Tensor:
    """Process rows (N,) of any series, known or new: (N, O) outputs of the model, zeros if it predicts only at queries.

    Args:
        reader: reads rows as in training.
        kept: the states of the series.
        names: (N,) the series of each row.
        stamps: (N,).
        given: (N, C) values, NaN where nothing was observed.
        static: static covariates of new series, as in `Reader.static`.
    """
    codes = kept.find(names)
    fresh = codes < 0
    if fresh.any():
        number: dict[Id, int] = {}
        codes[fresh] = [kept.size + number.setdefault(names[n], len(number)) for n in np.flatnonzero(fresh)]
    series, begins, owner = np.unique(codes, return_index=True, return_inverse=True)
    new = series >= kept.size
    covariates = reader.static(static, names, begins[new].tolist())
    of_series = [names[n] for n in begins]
    work, late = arranged(reader, kept, of_series, np.where(new, -1, series), owner, stamps, given)
    work.slots[new] = claimed = kept.claim(int(new.sum()))
    try:
        kept.static[torch.from_numpy(claimed)] = torch.from_numpy(covariates)
        outputs = worked_off(reader, kept, work)
    except BaseException:
        kept.give_back(claimed)
        raise
    kept.place.update(zip((of_series[n] for n in np.flatnonzero(new)), claimed.tolist(), strict=True))
    rows, ends = work.rows, work.rows.first + work.rows.length - 1
    kept.outputs[torch.from_numpy(work.slots)] = outputs[torch.from_numpy(ends)]
    wanted = rows.of
    if kept.model.config.answer == "series":  # for a late row, return the latest prediction of its series
        wanted = np.where(late, ends[rows.owner[wanted]], wanted)
    return outputs[torch.from_numpy(wanted)]


def arranged(
    reader: Reader, kept: Slots, names: Sequence[Id], slots: Array, owner: Array, stamps: Array, given: Array
) -> tuple[Work, Array]:
    """Rows in order, including those that must be processed again, and (N,) which of the given rows were late.

    Args:
        reader, kept: as in `take_in`.
        names: (n,) of the series.
        slots: (n,) slots of the series, -1 for a new one.
        owner: (N,) the series of each row.
        stamps: (N,).
        given: (N, C).
    """
    known = slots >= 0
    earliest = np.empty(len(slots), stamps.dtype)
    order = np.argsort(stamps, kind="stable")[::-1]
    earliest[owner[order]] = stamps[order]  # the last assignment to each index wins
    count, back, late = np.zeros(len(slots), np.int64), np.zeros(len(slots), np.int64), np.zeros(len(owner), bool)
    if known.any():
        mine = slots[known]
        count[known] = kept.count[mine]
        latest = earliest.copy()
        latest[known] = kept.latest(mine)
        late = known[owner] & (stamps < latest[owner])
        again = np.flatnonzero(known & (earliest <= latest))
        if len(again):
            back[again] = kept.later(slots[again], earliest[again], equal=True)
            _require_reachable(kept, [names[n] for n in again], slots[again], back[again], earliest[again])
            who, age = np.nonzero(np.arange(kept.ring) < back[again, None])
            at = slots[again][who], kept.ages(slots[again])[who, age]
            owner = np.concatenate([again[who], owner])
            stamps = np.concatenate([kept.stamps[at], stamps])
            given = np.concatenate([kept.values[at], given])
    rows, order = in_order(owner, stamps, given, len(slots))
    require_once(given, rows, order, names, reader.features.channels)
    before = count - back
    starts = rows.stamps[rows.first]
    origin = np.where(before > 0, kept.origin[slots], starts) if known.any() else starts
    return Work(rows._replace(of=rows.of[len(owner) - len(late) :]), slots.copy(), before, origin), late


def _require_reachable(kept: Slots, names: Sequence[Id], slots: Array, back: Array, earliest: Array) -> None:
    """Raise if a row is older than what can be undone."""
    lost = ~kept.reachable(slots, back)
    if lost.any():
        n = int(np.argmax(lost))
        raise ValueError(
            f"a row at {earliest[n]} comes too late to be merged{whose(names[n])}: of its "
            f"{kept.count[slots[n]]} rows, the last of which is at {kept.latest(slots)[n]}, only the "
            f"latest {kept.kept[slots[n]] - 1} can be taken back. Open streams with a larger memory."
        )


@torch.no_grad()
def worked_off(reader: Reader, kept: Slots, work: Work) -> Tensor:
    """(M, O) outputs after each row; at the end, every series is in the state after its last row."""
    rows, unit = work.rows, reader.features.unit
    now = elapsed(rows.stamps, work.origin[rows.owner], unit)
    gap = np.diff(now, prepend=0.0)
    begun = np.flatnonzero(work.before > 0)
    gap[rows.first] = 0.0
    slots = work.slots[begun]
    last = kept.stamps[slots, (work.before[begun] - 1) % kept.ring]
    gap[rows.first[begun]] = now[rows.first[begun]] - elapsed(last, work.origin[begun], unit)
    values = torch.from_numpy(reader.observed(rows.values))
    deltas, marks = torch.from_numpy(gap), marks_of(reader, rows.stamps)
    outputs = torch.zeros(len(rows.stamps), kept.model.config.numbers)
    longest = np.argsort(-rows.length, kind="stable")  # longest first, so that the batch shrinks from the end
    for part in parts(len(longest)):
        _steps(kept, work, longest[part], values, deltas, marks, outputs)
    return outputs


def _steps(
    slots: Slots, work: Work, series: Array, values: Tensor, deltas: Tensor, marks: Tensor | None, outputs: Tensor
) -> None:
    """Process the rows of some series, longest first, with one row of each per step."""
    model, ring = slots.model, slots.ring
    begin, length = work.rows.first[series], work.rows.length[series]
    state = slots.before(work.slots[series], work.before[series])
    stay: list[tuple[Array, Array, Any]] = []
    for n in range(int(length[0])):
        active = int((length > n).sum())
        state = first(state, active)
        at = begin[:active] + n
        index = torch.from_numpy(at)
        given = (values[index], deltas[index], state, None if marks is None else marks[index])
        if model.config.answer == "query":
            state = model.advance(*given)
        else:
            output, state = model.step(*given)
            outputs[index] = output.float()
        stays = np.flatnonzero(length[:active] - n <= ring)  # earlier states would be overwritten in the ring buffer
        if len(stays):
            stay.append((stays, at[stays], state if len(stays) == active else take(state, torch.from_numpy(stays))))
    for who, at, after in stay:  # store only now, when no error can occur any more
        mine = work.slots[series[who]]
        place = (work.before[series[who]] + at - begin[who]) % ring
        put(slots.states, torch.from_numpy(mine * ring + place), dressed(after, None))
        slots.stamps[mine, place], slots.values[mine, place] = work.rows.stamps[at], work.rows.values[at]
    mine, total = work.slots[series], work.before[series] + length
    replayed = np.where(work.before[series] > 0, slots.kept[mine] - (slots.count[mine] - work.before[series]), 0)
    slots.origin[mine] = work.origin[series]
    slots.kept[mine], slots.count[mine] = np.minimum(replayed + length, ring), total
