"""IrregularBatch: series of different lengths and times, padded into tensors and validated.

It is the input of every model. Times are relative to the start of each series, so a model only knows the calendar from
`marks`, and time differences are taken in float64 before anything is cast or moved.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Protocol, Self, get_args

import numpy as np
import torch
from torch import Tensor

from lformer.arrays import BOOL, WHOLE, as_clock, as_tensor, check_word, floating, shown, whole_number

ArrayLike = Tensor | np.ndarray[Any, Any] | Sequence[Any]
Place = Literal["series", "step", "query"]


class Source(Protocol):
    """A batch, or an object that becomes one on a device; the trainer needs only this interface before that."""

    @property
    def index(self) -> Tensor | None:
        """(B,) position of each series in its data set."""
        ...

    @property
    def extent(self) -> tuple[int, int | None]:
        """Number of rows and queries, including padding; None if there are no queries."""
        ...

    def __len__(self) -> int:
        """Number of series."""
        ...

    def padded(self, rows: int, queries: int | None = None, targets: Place = "series") -> Self:
        """With more padding, see `IrregularBatch.padded`."""
        ...

    def to(self, device: torch.device | str) -> IrregularBatch:
        """The batch on a device."""
        ...


@dataclass(frozen=True, eq=False, kw_only=True)
class IrregularBatch:
    """A batch of B irregular series with at most L rows each, padded on the right.

    Create one with `build` or `from_series`, which validate their input; the constructor does not.

    Attributes:
        values: (B, L, *C) channels, or frames of any shape; 0 where nothing was observed.
        times: (B, L) float64, since the start of each series; on padding, the last valid time.
        deltas: (B, L) interval since the previous row; 0 in the first row and on padding.
        observed: (B, L, *C) bool, True = observed.
        lengths: (B,) number of valid rows; the rest is padding.
        start: (B,) float64, what was subtracted from the times; 0 for a series without rows, unless t0 was given.
        query_times: (B, Q) float64 since the start, at which predictions are requested; 0 for a series without a start.
            None if predictions are per row or per series.
        static: (B, S) static covariates as numbers; None if there are none.
        marks: (B, L, M) numbers known in advance for each row, such as the sine of the weekday; on padding, those of
            the last valid row. None if there are none.
        query_marks: (B, Q, M) the same for the queries.
        targets: what is to be predicted, of any shape (B, ...).
        targets_observed: bool like `targets`, False where a target does not count; None if all valid ones do.
        targets_given: bool like `targets`, True where a target is also among the values; None if none is.
        weights: (B,) weight of each series in the loss, or (B, C) of each of its channels; None if all are 1.
        index: (B,) position of each series in its data set; None if they are in order.
    """

    values: Tensor
    times: Tensor
    deltas: Tensor
    observed: Tensor
    lengths: Tensor
    start: Tensor
    query_times: Tensor | None = None
    static: Tensor | None = None
    marks: Tensor | None = None
    query_marks: Tensor | None = None
    targets: Tensor | None = None
    targets_observed: Tensor | None = None
    targets_given: Tensor | None = None
    weights: Tensor | None = None
    index: Tensor | None = None

    @classmethod
    def build(
        cls,
        values: ArrayLike,
        times: ArrayLike,
        *,
        observed: ArrayLike | None = None,
        lengths: ArrayLike | None = None,
        t0: ArrayLike | float | None = None,
        query_times: ArrayLike | None = None,
        static: ArrayLike | None = None,
        marks: ArrayLike | None = None,
        query_marks: ArrayLike | None = None,
        targets: Tensor | None = None,
        targets_observed: Tensor | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Self:
        """Validate and convert padded arrays.

        Args:
            values: (B, L, *C); NaN means not observed.
            times: (B, L) or (L,), numbers that do not decrease along a series; ignored on padding. Differences of
                integers are exact up to 2**62.
            observed: (B, L, *C) bool; takes precedence over NaN if given. An observed value must be finite in `dtype`.
            lengths: (B,) number of valid rows; all L if None.
            t0: (B,) or a number, the start of each series in the unit of `times`; its first time stamp if None. When a
                long series is passed in pieces, give the same start to every piece.
            query_times: (B, Q) or (Q,), on the same clock as `times`. For a series without rows and t0, there is no
                start to count time from, so all its queries are at 0.
            static: (B, S) static covariates of each series, as finite numbers.
            marks: (B, L, M) numbers known in advance for each row; ignored on padding.
            query_marks: (B, Q, M) the same for the queries.
            targets: (B, ...), stored unchanged.
            targets_observed: bool like targets.
            dtype: dtype of values and deltas.

        Returns:
            The batch, on the CPU; move it with `.to(device)`.

        Example:
            >>> batch = IrregularBatch.build([[[1.0], [float("nan")], [3.0]]], times=[[0.0, 0.4, 2.0]])
            >>> batch.observed.squeeze().tolist()
            [True, False, True]
        """
        dtype = floating(dtype)
        given = as_tensor(values, "values")
        if given.dim() < 3:
            raise ValueError(
                f"values must have shape (B, L, C), series by rows by channels; got {tuple(given.shape)}. A single "
                "channel still needs its last axis: values[..., None]."
            )
        B, L = given.shape[:2]
        count = _lengths(lengths, B, L)
        valid = torch.arange(L) < count[:, None]  # (B, L)
        stamps = _row_stamps(times, given.shape, valid)
        start = _start(t0, stamps, count)
        clock = _since(_repeat_last(stamps, start, count), start, dtype, "times")
        query = None
        if query_times is not None:
            query = _query_stamps(query_times, B)
            if t0 is None:  # without rows there is no start
                query = torch.where(count[:, None] > 0, query, start[:, None])
            query = _since(query, start, dtype, "query_times")
        seen = _observed(given, observed, valid)
        _check_targets(targets, targets_observed, B)
        return cls(
            values=_values(given, seen, dtype),
            times=clock,
            deltas=intervals(clock, dtype),
            observed=seen,
            lengths=count,
            start=start.to(torch.float64),
            query_times=query,
            static=None if static is None else _static(static, B, dtype),
            marks=None if marks is None else _repeat_last_marks(_marks(marks, (B, L), valid, "marks", dtype), count),
            query_marks=None if query_marks is None else _query_marks(query_marks, query, dtype),
            targets=targets,
            targets_observed=targets_observed,
        )

    @classmethod
    def from_series(cls, series: Sequence[tuple[ArrayLike, ArrayLike]], **build: Any) -> Self:
        """Pad a list of `(times (L,), values (L, C))` pairs of any lengths; other arguments as in `build`.

        Example:
            >>> batch = IrregularBatch.from_series([([0.0, 0.3, 2.0], torch.ones(3, 2)), ([5.0], torch.ones(1, 2))])
            >>> batch.values.shape, batch.lengths.tolist()
            (torch.Size([2, 3, 2]), [3, 1])
        """
        try:
            pairs = list(series)
        except TypeError:
            raise TypeError(f"from_series takes a list of (times, values) pairs; got {shown(series)}.") from None
        if not pairs:
            raise ValueError("from_series needs at least one (times, values) pair; got an empty list.")
        clocks: list[Tensor] = []
        values: list[Tensor] = []
        for i, pair in enumerate(pairs):
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise ValueError(f"series {i} must be a pair of times (L,) and values (L, C); got {shown(pair)}.")
            clock, value = as_clock(pair[0], f"times of series {i}"), as_tensor(pair[1], f"values of series {i}")
            if clock.dim() != 1 or value.dim() < 2 or clock.shape[0] != value.shape[0]:
                raise ValueError(
                    f"series {i} must be a pair of times (L,) and values (L, C); got shapes {tuple(clock.shape)} and "
                    f"{tuple(value.shape)}."
                )
            if values and value.shape[1:] != values[0].shape[1:]:
                raise ValueError(
                    f"all series must have the same channels; series 0 has {tuple(values[0].shape[1:])}, series {i} "
                    f"has {tuple(value.shape[1:])}. Give a channel that was never observed as a column of NaN."
                )
            clocks.append(clock)
            values.append(value)
        lengths = torch.tensor([len(clock) for clock in clocks])
        return cls.build(_padded(values), _padded(clocks), lengths=lengths, **build)

    def __len__(self) -> int:
        return self.values.shape[0]

    @property
    def extent(self) -> tuple[int, int | None]:
        """(L, Q), including padding; Q is None if there are no queries."""
        return self.times.shape[1], None if self.query_times is None else self.query_times.shape[1]

    @property
    def valid(self) -> Tensor:
        """(B, L) bool, False on padding."""
        return torch.arange(self.values.shape[1], device=self.lengths.device) < self.lengths[:, None]

    def with_queries(self, query_times: ArrayLike, query_marks: ArrayLike | None = None) -> Self:
        """The same series with other query times, (B, Q) or (Q,) since the start of each, and marks (B, Q, M)."""
        query = _query_stamps(query_times, len(self))
        query = _since(query, query.new_zeros(len(self)), self.deltas.dtype, "query_times")
        marks = None if query_marks is None else _query_marks(query_marks, query, self.deltas.dtype).to(self.values)
        return replace(self, query_times=query.to(self.times), query_marks=marks)

    def padded(self, rows: int, queries: int | None = None, targets: Place = "series") -> Self:
        """The same series with more padding, so that batches share a few shapes; predictions do not change.

        Args:
            rows: new L, at least the current one.
            queries: new Q, unchanged if None or 0. Added queries repeat the last one.
            targets: whether targets are per series, row or query. Those of added rows and queries do not count.
        """
        check_word(targets, "targets", get_args(Place))
        L, Q = self.times.shape[1], 0 if self.query_times is None else self.query_times.shape[1]
        rows = whole_number(rows, "rows")
        queries = Q if queries is None or Q == 0 else whole_number(queries, "queries")
        if rows < L or queries < Q:
            raise ValueError(f"{L} rows and {Q} queries cannot be padded to {rows} and {queries}, which is less.")
        longer = {name: _longer(getattr(self, name), rows) for name in ("values", "deltas", "observed")}
        longer["times"] = _repeated(self.times, rows)
        if self.query_times is not None:
            longer["query_times"] = _repeated(self.query_times, queries)
        if self.marks is not None:
            longer["marks"] = _repeated(self.marks, rows)
        if self.query_marks is not None:
            longer["query_marks"] = _repeated(self.query_marks, queries)
        if targets != "series" and self.targets is not None:
            seen = self.targets_observed
            beside = {
                "targets": self.targets,
                "targets_observed": torch.ones_like(self.targets, dtype=torch.bool) if seen is None else seen,
                "targets_given": self.targets_given,
            }
            count = rows if targets == "step" else queries
            longer |= {name: _longer(tensor, count) for name, tensor in beside.items() if tensor is not None}
        return replace(self, **longer)

    def stretch(self, start: int, stop: int, targets: Place = "series") -> Self:
        """Rows `start` to `stop` of every series, as held by one of several processes, see `ShardedLFormer`.

        Times are still relative to the start of the whole series. A series that ends before `start` has no rows left.

        Args:
            start, stop: positions from 0 to L; `stop` is exclusive.
            targets: whether targets are per series, row or query. Those of rows are cut as well.

        Example:
            >>> batch = IrregularBatch.build([[[1.0], [2.0], [3.0]]], times=[[5.0, 5.4, 7.0]])
            >>> batch.stretch(1, 3).times
            tensor([[0.4000, 2.0000]], dtype=torch.float64)
        """
        check_word(targets, "targets", get_args(Place))
        L = self.times.shape[1]
        start, stop = whole_number(start, "start"), whole_number(stop, "stop")
        if not 0 <= start <= stop <= L:
            raise ValueError(f"a stretch of {L} rows has 0 <= start <= stop <= {L}; got {start} and {stop}.")
        if self.query_times is not None:
            raise ValueError("a batch with query_times cannot be cut: a query belongs to no stretch.")
        cut = ["values", "times", "deltas", "observed", "marks"]
        if targets == "step":
            cut += ["targets", "targets_observed", "targets_given"]
        found = {name: getattr(self, name) for name in cut}
        parts = {name: tensor[:, start:stop] for name, tensor in found.items() if tensor is not None}
        if start < stop:  # the first row of the stretch has no previous row
            parts["deltas"] = torch.cat([torch.zeros_like(self.deltas[:, :1]), self.deltas[:, start + 1 : stop]], dim=1)
        return replace(self, lengths=(self.lengths - start).clamp(0, stop - start), **parts)

    def __getitem__(self, series: slice | ArrayLike) -> Self:
        """Select series by slice, positions or boolean mask, with everything that belongs to them."""
        if not isinstance(series, slice):
            series = _positions(series, len(self)).to(self.values.device)
        chosen = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{name: tensor[series] for name, tensor in chosen.items() if tensor is not None})

    def to(self, device: torch.device | str) -> Self:
        """Move every tensor to a device. Devices without float64 get times in float32; the deltas are already exact."""
        device = torch.device(device)
        moved = {}
        for field in fields(self):
            tensor = getattr(self, field.name)
            if tensor is not None:
                narrow = device.type == "mps" and tensor.dtype == torch.float64
                moved[field.name] = tensor.to(device, torch.float32 if narrow else tensor.dtype)
        return replace(self, **moved)


def _longer(tensor: Tensor, n: int) -> Tensor:
    """(B, L, ...) -> (B, n, ...), padded with zeros"""
    B, L, *rest = tensor.shape
    return tensor if n == L else torch.cat([tensor, tensor.new_zeros(B, n - L, *rest)], dim=1)


def _repeated(times: Tensor, n: int) -> Tensor:
    """(B, L, ...) -> (B, n, ...), padded with the last column; zeros if there is none"""
    L = times.shape[1]
    if L in (0, n):
        return _longer(times, n)
    return torch.cat([times, times[:, -1:].expand(-1, n - L, *times.shape[2:])], dim=1)


def _padded(series: list[Tensor]) -> Tensor:
    """[(L_i, ...)] -> (B, L, ...), padded with zeros, in a dtype that fits all of them"""
    if len({one.dtype for one in series}) > 1:  # torch uses the dtype of the first, and truncates the others
        series = [one.to(torch.float64) for one in series]
    return torch.nn.utils.rnn.pad_sequence(series, batch_first=True)


def _lengths(lengths: ArrayLike | None, B: int, L: int) -> Tensor:
    """(B,) number of valid rows, as a copy."""
    if lengths is None:
        return torch.full((B,), L)
    count = as_tensor(lengths, "lengths", WHOLE).to(torch.int64, copy=True)
    if count.shape != (B,) or bool((count < 0).any()) or bool((count > L).any()):
        raise ValueError(f"lengths must be {B} numbers from 0 to {L}; got {shown(count.tolist())}.")
    return count


def _row_stamps(times: ArrayLike, shape: Sequence[int], valid: Tensor) -> Tensor:
    """(B, L) time stamps of the rows, which are in order where they are valid."""
    B, L = valid.shape
    stamps = as_clock(times, "times")
    if stamps.shape == (L,):
        stamps = stamps.expand(B, L)
    if stamps.shape != (B, L):
        raise ValueError(
            f"times must have shape {(B, L)} or {(L,)} beside values {tuple(shape)}; got {tuple(stamps.shape)}."
        )
    _refuse(
        ~torch.isfinite(stamps) & valid,
        "times must be finite; series {} has times[{}] = {}. Drop rows without a time stamp.",
        stamps,
    )
    where = ((stamps[:, 1:] < stamps[:, :-1]) & valid[:, 1:]).nonzero()
    if len(where):
        i, step = where[0].tolist()
        raise ValueError(
            f"times must not decrease along a series; series {i} has times[{step + 1}] = {stamps[i, step + 1].item()} "
            f"after {stamps[i, step].item()}. Sort the rows of each series by time."
        )
    return stamps


def _start(t0: ArrayLike | float | None, stamps: Tensor, count: Tensor) -> Tensor:
    """(B,) what is subtracted; integers if the time stamps are, so that nothing is rounded before."""
    B, L = stamps.shape
    if t0 is None:
        return torch.where(count > 0, stamps[:, 0], 0) if L else stamps.new_zeros(B)
    start = as_clock(t0, "t0")
    if start.shape not in ((), (B,)) or not bool(torch.isfinite(start).all()):
        raise ValueError(f"t0 must be one finite number or {B} of them; got {shown(start.tolist())}.")
    whole = not stamps.is_floating_point() and bool(((start == start.round()) & (start.abs() < 2**62)).all())
    return start.to(torch.int64 if whole else torch.float64, copy=True).expand(B)


def _query_stamps(query_times: ArrayLike, B: int) -> Tensor:
    """(B, Q) time stamps of the queries."""
    query = as_clock(query_times, "query_times")
    query = query.expand(B, -1) if query.dim() == 1 else query
    if query.dim() != 2 or query.shape[0] != B:
        raise ValueError(f"query_times must have shape ({B}, Q) or (Q,); got {tuple(query.shape)}.")
    _refuse(~torch.isfinite(query), "query_times must be finite; series {} has query_times[{}] = {}.", query)
    return query


def _repeat_last(stamps: Tensor, start: Tensor, count: Tensor) -> Tensor:
    """(B, L) with the last valid time stamp on padding; the start, if there is none."""
    if stamps.shape[1] == 0:
        return stamps
    last = stamps.gather(1, (count - 1).clamp(min=0)[:, None])
    last = torch.where(count[:, None] > 0, last, start[:, None])
    return torch.where(torch.arange(stamps.shape[1]) < count[:, None], stamps, last)


def _since(stamps: Tensor, start: Tensor, dtype: torch.dtype, name: str) -> Tensor:
    """(B, L), (B,) -> (B, L) float64 times since the start, whose differences fit into the dtype or float32"""
    limit = torch.finfo(torch.promote_types(dtype, torch.float32)).max / 2
    whole = not (stamps.is_floating_point() or start.is_floating_point())
    since = stamps.to(torch.float64) - start.to(torch.float64)[:, None]
    _refuse(
        ~(since.abs() <= (2.0**62 if whole else limit)),
        f"{name} since the start of a series must not exceed {2.0**62 if whole else limit:.2g}; series {{}} has "
        f"{name}[{{}}] = {{}}. Drop stamps that stand for missing ones, or use a larger unit of time.",
        stamps,
    )
    return (stamps - start[:, None]).to(torch.float64) if whole else since  # float64 would round both beyond 2**53


def intervals(clock: Tensor, dtype: torch.dtype) -> Tensor:
    """(B, L) times -> (B, L) intervals since the previous row, 0 in the first row"""
    if clock.shape[1] == 0:
        return clock.to(dtype)
    deltas = torch.diff(clock, dim=1, prepend=clock[:, :1])
    cast = deltas.to(dtype)
    message = f"{dtype} cannot hold the interval before a row: series {{}}, row {{}}, {{}}. Use a larger unit of time."
    _refuse(~torch.isfinite(cast), message, deltas)
    return cast


def _observed(given: Tensor, observed: ArrayLike | None, valid: Tensor) -> Tensor:
    """(B, L, *C) bool, False on padding."""
    inside = valid.reshape(valid.shape + (1,) * (given.dim() - 2)).expand(given.shape)
    seen = ~torch.isnan(given) if observed is None else as_tensor(observed, "observed")
    if seen.dtype != torch.bool or seen.shape != given.shape:
        raise ValueError(
            f"observed must be bool with the shape of values, {tuple(given.shape)}, True = observed; got {seen.dtype} "
            f"{tuple(seen.shape)}."
        )
    return seen & inside


def _values(given: Tensor, seen: Tensor, dtype: torch.dtype) -> Tensor:
    """(B, L, *C) observed values, 0 elsewhere; all finite in the dtype."""
    values = torch.where(seen, given, 0).to(dtype)
    _refuse(
        ~torch.isfinite(values),
        f"an observed value must be finite in {dtype}; series {{}}, row {{}}, channel {{}} is {{}}. Mark it as not "
        "observed, or write NaN; if it is right, use a larger unit.",
        given,
    )
    return values


def _static(static: ArrayLike, B: int, dtype: torch.dtype) -> Tensor:
    """(B, S) static covariates, as a copy."""
    given = as_tensor(static, "static")
    if given.dim() != 2 or given.shape[0] != B:
        raise ValueError(f"static must have shape ({B}, S), a row per series; got {tuple(given.shape)}.")
    covariates = given.to(dtype, copy=True)
    message = f"static must be finite in {dtype}; series {{}}, column {{}} is {{}}."
    _refuse(~torch.isfinite(covariates), message, given)
    return covariates


def _marks(marks: ArrayLike, shape: tuple[int, int], valid: Tensor, name: str, dtype: torch.dtype) -> Tensor:
    """(B, N, M) numbers of rows or queries, as a copy, 0 where they do not count."""
    given = as_tensor(marks, name)
    if given.dim() != 3 or tuple(given.shape[:2]) != shape:
        B, N = shape
        raise ValueError(f"{name} must have shape ({B}, {N}, M), M numbers for each; got {tuple(given.shape)}.")
    found = torch.where(valid[..., None], given, 0).to(dtype)
    _refuse(
        ~torch.isfinite(found),
        f"{name} must be finite in {dtype}; series {{}}, place {{}}, number {{}} is {{}}.",
        given,
    )
    return found


def _repeat_last_marks(marks: Tensor, count: Tensor) -> Tensor:
    """(B, L, M) with those of the last valid row on padding."""
    B, L, M = marks.shape
    if L == 0:
        return marks
    row = torch.minimum(torch.arange(L), (count - 1).clamp(min=0)[:, None])
    return marks.gather(1, row[..., None].expand(B, L, M))


def _query_marks(marks: ArrayLike, query: Tensor | None, dtype: torch.dtype) -> Tensor:
    if query is None:
        raise ValueError("query_marks are those of query_times, which are missing.")
    return _marks(
        marks, (query.shape[0], query.shape[1]), torch.ones_like(query, dtype=torch.bool), "query_marks", dtype
    )


def _check_targets(targets: Any, observed: Any, B: int) -> None:
    for name, tensor in (("targets", targets), ("targets_observed", observed)):
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a tensor; got {type(tensor).__name__}. Use torch.as_tensor({name}).")
    if observed is not None and (targets is None or observed.shape != targets.shape or observed.dtype != torch.bool):
        raise ValueError("targets_observed must be bool, with the shape of targets.")
    if targets is not None and targets.shape[:1] != (B,):
        raise ValueError(f"targets must have {B} rows, one per series; got shape {tuple(targets.shape)}.")


def _positions(series: Any, B: int) -> Tensor:
    """Positions, or a boolean mask, as a tensor that indexes B series."""
    index = as_tensor(series, "which series to take", WHOLE + BOOL)
    if index.dim() != 1:
        raise TypeError(f"series are taken by slice, positions or mask, as in batch[2:3]; got {shown(series)}.")
    if index.dtype == torch.bool:
        if len(index) != B:
            raise IndexError(f"there are {B} series; got a mask of {len(index)}.")
        return index
    index = index.to(torch.int64)
    if bool(((index < -B) | (index >= B)).any()):
        raise IndexError(f"there are {B} series; got positions {shown(index.tolist())}.")
    return index


def _refuse(bad: Tensor, message: str, values: Tensor) -> None:
    """Raise an error that names the first bad entry, by series, row and channel."""
    if bool(bad.any()):
        where = tuple(int(i) for i in bad.nonzero()[0])
        named = where if len(where) <= 3 else (*where[:2], list(where[2:]))
        raise ValueError(message.format(*named, values[where].item()))


def mean_interval(batch: IrregularBatch) -> Tensor:
    """(B,) mean interval between the rows of each series; 0 for a single row or if all times are equal."""
    if batch.times.shape[1] == 0:
        return batch.deltas.new_zeros(len(batch))
    last = batch.times.gather(1, (batch.lengths - 1).clamp(min=0)[:, None])[:, 0]
    return ((last - batch.times[:, 0]) / (batch.lengths - 1).clamp(min=1)).to(batch.deltas.dtype)


def median_interval(batches: Iterable[IrregularBatch]) -> float:
    """Median positive interval over all series, used for `LFormer.first_interval`; 1.0 if there is none."""
    deltas = [batch.deltas[batch.deltas > 0].flatten() for batch in batches]
    median = _median(deltas)
    return median if math.isfinite(median) else 1.0


def median_span(batches: Sequence[IrregularBatch]) -> float:
    """Median time from the first to the last row of a series; 0.0 if there are no series."""
    median = _median([(b.times.amax(dim=1) - b.times[:, 0])[b.lengths > 0] for b in batches if b.times.shape[1]])
    return median if math.isfinite(median) else 0.0


def _median(parts: list[Tensor]) -> float:
    """The median of all numbers together; NaN if there are none."""
    numbers = torch.cat(parts) if parts else torch.zeros(0)
    return float(numbers.median()) if numbers.numel() else math.nan
