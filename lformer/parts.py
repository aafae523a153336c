"""Data sets as the trainer sees them: targets, a prepared data set, and three parts that provide batches.

Both the built-in data sets and the estimators produce this: series in one `Panel`, what is to be predicted in
`Targets`, and which series are for training, validation and test. `splits_of` makes the three parts from these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
import torch

from lformer.batch import IrregularBatch, Source
from lformer.covariates import Covariates
from lformer.panel import Array, Panel, drop_observations, is_large, padded_rows, runs, sample, take_rows
from lformer.panel.calendar import NO_CALENDAR, Calendar
from lformer.panel.checks import spell
from lformer.panel.own_numbers import OwnNumbers
from lformer.panel.stamps import LONGEST

POOL = 50  # training batches within which series are sorted by length: little padding, but still a random order


@dataclass(frozen=True, eq=False, kw_only=True)
class Targets:
    """What is to be predicted.

    Attributes:
        values: (n, ...) per series; (N, ...) per row of the panel; (M, ...) per query, all flat.
        at: which of the three.
        observed: bool like values, False where there is no true value; None if all count.
        given: bool like values, True where the value was also an input; None if none was.
        times: (M,) query times, in the time frame of the panel. Queries of a series without rows have no time, as there
            is nothing to count it from.
        first, lengths: (n,) first query and number of queries of each series.
        weights: (n,) weight of each series in the loss, or (n, C) of each of its channels; None if all are 1.
    """

    values: Array
    at: Literal["series", "rows", "queries"]
    observed: Array | None = None
    given: Array | None = None
    times: Array | None = None
    first: Array | None = None
    lengths: Array | None = None
    weights: Array | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Prepared:
    """A data set prepared by a protocol: all series in one panel, their targets, and the series of each part."""

    panel: Panel
    targets: Targets
    train: Array
    validation: Array
    test: Array


class Part(Protocol):
    """The series of a training, validation or test set."""

    def __len__(self) -> int:
        """Number of series."""
        ...

    def batches(self, size: int) -> Iterator[IrregularBatch]:
        """Every series once, the same on every call. `index` holds the positions of the series."""
        ...

    def training_steps(self, size: int) -> int:
        """Number of batches of `training_batches`."""
        ...

    def training_batches(self, size: int, epoch: int, drop_fraction: float = 0.0) -> Iterator[IrregularBatch]:
        """The batches of one training epoch, as a function of the data set's seed and the epoch only.

        A share `drop_fraction` of the observations, rows and channels of each series is dropped, differently in every
        epoch.
        """
        ...


Turn = tuple[int, int]  # (1, 3): the second of three processes that share some work in turns
ALONE: Turn = (0, 1)


S = TypeVar("S", bound=Source, covariant=True)


class Share(NamedTuple, Generic[S]):
    """Some series of a training batch, at least one.

    They do not count if the batch has too few series for all processes.
    """

    batch: S
    counts: bool = True


@runtime_checkable
class DealingPart(Protocol):
    """A part that can skip the batches, or the series of a batch, that belong to other processes."""

    def batches(self, size: int, turn: Turn = ALONE) -> Iterator[Source]:
        """The batches of a `Part`, but only those of this turn."""
        ...

    def training_shares(
        self, size: int, epoch: int, drop_fraction: float = 0.0, turn: Turn = ALONE
    ) -> Iterator[Share[Source]]:
        """The training batches of a `Part`, with the series of this turn only."""
        ...


def training_shares(
    part: Part | DealingPart, size: int, epoch: int, drop_fraction: float, turn: Turn
) -> Iterator[Share[Source]]:
    """The series of this turn, for each batch of one training epoch."""
    dropped = (drop_fraction,) if drop_fraction else ()
    if isinstance(part, DealingPart):
        yield from part.training_shares(size, epoch, *(dropped or (0.0,)), turn=turn)
        return
    for batch in part.training_batches(size, epoch, *dropped):
        mine = batch if turn == ALONE else batch[turn[0] :: turn[1]]
        yield Share(mine) if len(mine) else Share(batch[:1], counts=False)


def batches_in_turn(part: Part | DealingPart, size: int, turn: Turn) -> Iterator[Source]:
    """The batches of a part, or every n-th of them."""
    if isinstance(part, DealingPart):
        return part.batches(size, turn)
    return islice(part.batches(size), turn[0], None, turn[1])


P = TypeVar("P", bound=Part, covariant=True)
Q = TypeVar("Q", bound=Part)


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What a model must match to be trained on a data set.

    Attributes:
        inputs: channels of a row; for frames, pixels.
        outputs: numbers per prediction: classes, or targets.
        answer: one prediction per "series", per "step" (row) or per "query".
        statics: number of static covariates.
        shift, scale: of each output, mean and standard deviation of the training targets; empty for classes.
    """

    inputs: int
    outputs: int
    answer: Literal["series", "step", "query"]
    statics: int = 0
    shift: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()


@dataclass(frozen=True)
class Splits(Generic[P]):
    """Training, validation and test set of a named data set.

    Attributes:
        name: name of the data set.
        train, validation, test: the three sets.
        spec: what a model must match.
        task: the task, as in `data.load(task=...)`.
        metrics: the metrics shown in tables, if they are not the usual ones of the task; the first one selects.
        partial: what the available files lack of the complete data set; "" if nothing. Results on a partial data set
            should not be compared with published ones.
        fingerprint: hash of everything the prepared data set depends on: files, protocol, seed, version of the
            preparation.
    """

    name: str
    train: P
    validation: P
    test: P
    spec: Spec
    task: str = ""
    metrics: tuple[str, ...] = ()
    partial: str = ""
    fingerprint: str = ""


@dataclass(frozen=True, eq=False)
class PanelPart:
    """Some series of a panel and their targets, in batches of similar length.

    Attributes:
        panel: the series.
        targets: of all series of the prepared data set; `members` selects ours.
        members: (n,) positions of the series of `panel` among those of the targets.
        seed: seed of the order in training.
        partial: as in `Splits`.
        static: (n, S) float32, static covariates of the series of `panel`; None if there are none.
        precise: whether float64 values of the panel stay in float64: a model that scales them itself then loses no
            precision in channels whose mean is far larger than their standard deviation.
        calendar: calendar features of rows and queries in the batches.
    """

    panel: Panel
    targets: Targets
    members: Array
    seed: int
    partial: str = ""
    static: Array | None = None
    precise: bool = False
    calendar: Calendar = NO_CALENDAR

    def __len__(self) -> int:
        return len(self.panel)

    def batches(self, size: int, turn: Turn = ALONE) -> Iterator[IrregularBatch]:
        """Every series once, shortest first; only the batches of this turn are built."""
        return (self.batch(index) for index in self.order(size, turn))

    def order(self, size: int, turn: Turn = ALONE) -> Iterator[Array]:
        """The positions of the series of each batch."""
        order, (first, of) = np.argsort(self.panel.lengths, kind="stable"), turn
        for start in range(first * size, len(order), of * size):
            yield order[start : start + size]

    def training_steps(self, size: int) -> int:
        """Number of batches in which every series occurs once."""
        return -(-len(self) // size)

    def training_batches(self, size: int, epoch: int, drop_fraction: float = 0.0) -> Iterator[IrregularBatch]:
        """Every series once, in an order that depends on (seed, epoch), series of similar length together."""
        return (share.batch for share in self.training_shares(size, epoch, drop_fraction))

    def training_shares(
        self, size: int, epoch: int, drop_fraction: float = 0.0, turn: Turn = ALONE
    ) -> Iterator[Share[IrregularBatch]]:
        """As `training_batches`, with the series of this turn only; the others are not even read."""
        if drop_fraction and self.targets.at != "rows" and not is_large(self.panel):
            left = drop_observations(self.panel, drop_fraction, np.random.default_rng([self.seed, epoch]))
            yield from replace(self, panel=left).training_shares(size, epoch, turn=turn)
            return
        for index, counts in self.training_order(size, epoch, turn):
            yield Share(self._with_less(index, drop_fraction, epoch) if drop_fraction else self.batch(index), counts)

    def training_order(self, size: int, epoch: int, turn: Turn = ALONE) -> Iterator[tuple[Array, bool]]:
        """The positions of the series of each of `training_shares`, and whether they count."""
        rng = np.random.RandomState([self.seed, epoch])
        order = rng.permutation(len(self))
        pool = np.arange(len(self)) // (POOL * size)
        order = order[np.lexsort((self.panel.lengths[order], pool))]  # stable: equal lengths stay in random order
        for start in size * rng.permutation(self.training_steps(size)):
            index = order[start : start + size]
            mine = np.arange(len(index))[turn[0] :: turn[1]]
            counts, mine = len(mine) > 0, mine if len(mine) else np.arange(1)
            yield index[mine], counts

    def _with_less(self, index: Array, drop_fraction: float, epoch: int) -> IrregularBatch:
        """A batch of some series with observations dropped only now, because a copy of all rows could be too large.

        Rows with targets are kept, without observations.
        """
        some, numbers, asked = self.some(index), OwnNumbers([self.seed, epoch], index), self.targets.at == "rows"
        some = some.compact() if asked else some  # rows and their targets at the same positions
        left = drop_observations(some.panel, drop_fraction, numbers, keep_rows=asked)
        less = replace(some, panel=left).batch(np.arange(len(index)))
        return replace(less, index=torch.from_numpy(np.asarray(index, np.int64)))

    def some(self, index: Array) -> PanelPart:
        """A part with some of the series, without copying rows."""
        static = None if self.static is None else self.static[index]
        return replace(self, panel=self.panel[index], members=self.members[index], static=static)

    def batch(self, index: Array) -> IrregularBatch:
        """A padded batch of some series with their targets."""
        asked = self._asked(index)
        if self.targets.weights is not None:
            asked["weights"] = torch.from_numpy(self.targets.weights[self.members[index]])
        if self.static is not None:
            asked["static"] = torch.from_numpy(self.static[index])
        wide = self.precise and self.panel.values.dtype == np.float64
        batch = self.panel.batch(index, torch.float64 if wide else torch.float32)
        asked |= {"index": torch.from_numpy(np.asarray(index, np.int64)), "deltas": batch.deltas.float()}
        return replace(batch, **asked, **self._marks(index, batch.times, asked.get("query_times")))

    def _marks(self, index: Array, times: torch.Tensor, queries: torch.Tensor | None) -> dict[str, torch.Tensor]:
        """Calendar features of rows and queries, if there are any."""
        if not self.calendar.width:
            return {}
        moments = {"marks": times} | ({} if queries is None else {"query_marks": queries})
        return {
            name: torch.from_numpy(self.calendar.marks(self.panel, index, since.numpy()))
            for name, since in moments.items()
        }

    def _asked(self, index: Array) -> dict[str, torch.Tensor]:
        """Targets in the layout of the batch, and query times."""
        targets = self.targets
        if targets.at == "series":
            members = self.members[index]
            return _tensors(targets, lambda flat: flat[members])
        first, lengths = self._target_runs(index)
        rows, valid = padded_rows(first, lengths, self.panel.pad_to if targets.at == "rows" else None)
        asked = _tensors(targets, lambda flat: take_rows(flat, rows, valid))
        if "targets_observed" not in asked and not valid.all():
            shown = torch.from_numpy(valid)
            extra = (1,) * (asked["targets"].dim() - 2)
            asked["targets_observed"] = shown.reshape(*shown.shape, *extra).expand(asked["targets"].shape)
        if targets.at == "queries":
            asked["query_times"] = torch.from_numpy(self._query_times(index, rows, lengths > 0))
        return asked

    def _query_times(self, index: Array, rows: Array, asked: Array) -> Array:
        """(B, Q) since the first row of each series; 0 if it has none, and on padding."""
        assert self.targets.times is not None
        clock = self.targets.times[rows] if len(self.targets.times) else np.zeros(rows.shape)
        counts = asked & (self.panel.lengths[index] > 0)  # without rows there is no start of time
        with np.errstate(over="ignore", invalid="ignore"):
            since = np.where(counts[:, None], clock - self.panel.first_times(index)[:, None], 0.0)
        if (bad := ~(np.abs(since) <= LONGEST)).any():
            series, query = np.argwhere(bad)[0].tolist()
            raise ValueError(
                f"queries must lie within {LONGEST:.2g} of the first row; series "
                f"{spell(self.panel.ids[index][series])} has a query at {clock[series, query]:g}. Use a larger unit."
            )
        return since

    def _target_runs(self, index: slice | Array) -> tuple[Array, Array]:
        """First target and number of targets of some series, if targets are per row or query."""
        if self.targets.at == "rows":
            return self.panel.first[index], self.panel.lengths[index]
        assert self.targets.first is not None
        assert self.targets.lengths is not None
        members = self.members[index]
        return self.targets.first[members], self.targets.lengths[members]

    def compact(self) -> PanelPart:
        """The same part without the rows and targets of other series."""
        targets, mine = self.targets, self.members
        if targets.at != "series":
            first, lengths = self._target_runs(slice(None))
            mine = runs(first, lengths)
            if targets.at == "queries":
                targets = replace(targets, first=np.cumsum(lengths) - lengths, lengths=lengths)
        flat = {name: getattr(targets, name) for name in ("values", "observed", "given", "times")}
        kept = {name: array[mine] for name, array in flat.items() if array is not None}
        if targets.weights is not None:
            kept["weights"] = targets.weights[self.members]
        return replace(self, panel=self.panel.compact(), targets=replace(targets, **kept), members=np.arange(len(self)))

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the rows of other series, which panel and targets share."""
        return dict((self.compact() if self.panel.wasteful else self).__dict__)


def sampled(part: Q) -> Q:
    """The part, or for a large one a representative sample of its series."""
    if isinstance(part, PanelPart) and is_large(part.panel):
        return cast(Q, part.some(sample(part.panel)))
    return part


def _tensors(targets: Targets, pick: Any) -> dict[str, torch.Tensor]:
    named = {"targets": targets.values, "targets_observed": targets.observed, "targets_given": targets.given}
    return {name: torch.from_numpy(pick(flat)) for name, flat in named.items() if flat is not None}


def splits_of(
    prepared: Prepared,
    name: str,
    task: str,
    seed: int,
    partial: str = "",
    fingerprint: str = "",
    covariates: Covariates | None = None,
    metrics: tuple[str, ...] = (),
    precise: bool = False,
    calendar: Calendar = NO_CALENDAR,
) -> Splits[PanelPart]:
    """The three parts of a prepared data set; covariates are encoded as in its training set by default."""
    panel, targets = prepared.panel, prepared.targets
    static = None
    if panel.static is not None:
        coding = Covariates.fit(panel.static.iloc[prepared.train]) if covariates is None else covariates
        static = coding.encode(panel.static) if coding.width else None

    def part(members: Array) -> PanelPart:
        covered = None if static is None else static[members]
        return PanelPart(panel[members], targets, np.asarray(members), seed, partial, covered, precise, calendar)

    train, validation = part(prepared.train), part(prepared.validation)
    test = validation if prepared.test is prepared.validation else part(prepared.test)  # evaluated only once
    spec = spec_of(panel, targets, prepared.train, 0 if static is None else static.shape[1])
    return Splits(name, train, validation, test, spec, task, metrics, partial, fingerprint)


def spec_of(panel: Panel, targets: Targets, train: Array, statics: int = 0) -> Spec:
    """What a model must match for these targets; means and standard deviations are those of the training series."""
    answer: Any = {"series": "series", "rows": "step", "queries": "query"}[targets.at]
    inputs = int(np.prod(panel.values.shape[1:]))
    if targets.values.dtype.kind in "iub":
        classes = int(targets.values.max(initial=0)) + 1
        return Spec(inputs=inputs, outputs=classes, answer=answer, statics=statics)
    shift: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    if targets.at == "series":
        known = targets.values[train].astype(np.float64)
        deviation = known.std(axis=0)
        shift, scale = tuple(known.mean(axis=0).tolist()), tuple(np.where(deviation > 0, deviation, 1.0).tolist())
    return Spec(
        inputs=inputs, outputs=targets.values.shape[1], answer=answer, statics=statics, shift=shift, scale=scale
    )
