"""IrregularBatch: series of different lengths and times, padded into tensors, checked once.

The one thing every model takes. Times are kept relative to each series' start, so no model sees the calendar, and
their differences are taken in float64 before anything is cast or moved.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor

ArrayLike = Tensor | np.ndarray[Any, Any] | Sequence[Any]


@dataclass(frozen=True, eq=False, kw_only=True)
class IrregularBatch:
    """B series of at most L rows. Make one with `build` or `from_series`, which check; the constructor does not.

    Attributes:
        values: (B, L, *C) channels, or frames of any shape; 0 where nothing was observed.
        times: (B, L) float64, since the start of each series; on padding, the last valid time.
        deltas: (B, L) interval since the row before; 0 in the first row and on padding.
        observed: (B, L, *C) bool, True = observed.
        lengths: (B,) valid rows; the rest is padding, on the right.
        start: (B,) float64, what was subtracted from the times.
        query_times: (B, Q) float64 since the start, where answers are wanted; None if at the rows or per series.
        static: (B, S) covariates of each series as numbers; None if there are none.
        targets: what is to be predicted, of any shape (B, ...).
        targets_observed: bool like `targets`, False where a target does not count; None if all valid ones do.
        targets_given: bool like `targets`, True where a target was also among the values; None if none was.
        weights: (B,) how much each series counts in the loss; None if all count 1.
        index: (B,) which series of its part each one is; None if they are in order.
    """

    values: Tensor
    times: Tensor
    deltas: Tensor
    observed: Tensor
    lengths: Tensor
    start: Tensor
    query_times: Tensor | None = None
    static: Tensor | None = None
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
        targets: Tensor | None = None,
        targets_observed: Tensor | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Self:
        """Check and convert padded arrays.

        Args:
            values: (B, L, *C); NaN means not observed.
            times: (B, L) or (L,), numbers that do not decrease along a series; what stands on padding is ignored.
            observed: (B, L, *C) bool; wins over NaN if given. A value that is observed must be finite.
            lengths: (B,) valid rows; all L if None.
            t0: (B,) or a number, the start of each series in the unit of `times`; its first stamp if None. Give the
                same start to every piece when a long series is fed in pieces.
            query_times: (B, Q) or (Q,), in the frame of `times`.
            static: (B, S) covariates of each series, as finite numbers.
            targets: (B, ...) kept as they are.
            targets_observed: bool like targets.
            dtype: of values and deltas.

        Returns:
            The batch, on the CPU; move it with `.to(device)`.

        Example:
            >>> batch = IrregularBatch.build([[[1.0], [float("nan")], [3.0]]], times=[[0.0, 0.4, 2.0]])
            >>> batch.observed.squeeze().tolist()
            [True, False, True]
        """
        given = torch.as_tensor(values)
        if given.dim() < 3:
            raise ValueError(
                f"values must have shape (B, L, C), series by rows by channels; got {tuple(given.shape)}. A single "
                "channel still needs its last axis: values[..., None]."
            )
        B, L = given.shape[:2]
        clock = _as_numbers("times", times)
        if clock.shape == (L,):
            clock = clock.expand(B, L)
        if clock.shape != (B, L):
            raise ValueError(
                f"times must have shape {(B, L)} or {(L,)} beside values {tuple(given.shape)}; got "
                f"{tuple(clock.shape)}."
            )
        count = torch.full((B,), L) if lengths is None else torch.as_tensor(lengths).to(torch.int64)
        if count.shape != (B,) or bool((count < 0).any()) or bool((count > L).any()):
            raise ValueError(f"lengths must be {B} numbers from 0 to {L}; got {count.tolist()}.")
        valid = torch.arange(L) < count[:, None]  # (B, L)

        start = _start(t0, clock, count)
        clock = _relative(clock, start, valid, count)
        seen = _observed(given, observed, valid)
        deltas = torch.diff(clock, dim=1, prepend=clock[:, :1]) if L else clock
        query = None
        if query_times is not None:
            query = _as_numbers("query_times", query_times)
            query = query.expand(B, -1) if query.dim() == 1 else query
            if query.dim() != 2 or query.shape[0] != B:
                raise ValueError(f"query_times must have shape ({B}, Q) or (Q,); got {tuple(query.shape)}.")
            _refuse(~torch.isfinite(query), "query_times must be finite; row {} has query_times[{}] = {}.", query)
            query = query - start[:, None]
        covariates = None if static is None else torch.as_tensor(static).to(dtype)
        if covariates is not None:
            if covariates.dim() != 2 or covariates.shape[0] != B:
                raise ValueError(f"static must have shape ({B}, S), a row per series; got {tuple(covariates.shape)}.")
            _refuse(~torch.isfinite(covariates), "static must be finite; series {}, column {} is {}.", covariates)
        if targets_observed is not None and (targets is None or targets_observed.shape != targets.shape):
            raise ValueError("targets_observed must have the shape of targets.")
        if targets is not None and targets.shape[:1] != (B,):
            raise ValueError(f"targets must have {B} rows, one per series; got shape {tuple(targets.shape)}.")
        return cls(
            values=torch.where(seen, given, 0).to(dtype),
            times=clock,
            deltas=deltas.to(dtype),
            observed=seen,
            lengths=count,
            start=start,
            query_times=query,
            static=covariates,
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
        if not series:
            raise ValueError("from_series needs at least one (times, values) pair; got an empty list.")
        clocks = [_as_numbers("times", times) for times, _ in series]
        values = [torch.as_tensor(v) for _, v in series]
        for i, (clock, value) in enumerate(zip(clocks, values, strict=True)):
            if clock.dim() != 1 or value.dim() < 2 or clock.shape[0] != value.shape[0]:
                raise ValueError(
                    f"series {i} must be a pair of times (L,) and values (L, C); got shapes {tuple(clock.shape)} and "
                    f"{tuple(value.shape)}."
                )
            if value.shape[1:] != values[0].shape[1:]:
                raise ValueError(
                    f"all series must have the same channels; series 0 has {tuple(values[0].shape[1:])}, series {i} "
                    f"has {tuple(value.shape[1:])}. Give a channel that was never observed as a column of NaN."
                )
        pad = torch.nn.utils.rnn.pad_sequence
        lengths = torch.tensor([len(clock) for clock in clocks])
        return cls.build(pad(values, batch_first=True), pad(clocks, batch_first=True), lengths=lengths, **build)

    def __len__(self) -> int:
        return self.values.shape[0]

    @property
    def valid(self) -> Tensor:
        """(B, L) bool, False on padding."""
        return torch.arange(self.values.shape[1], device=self.lengths.device) < self.lengths[:, None]

    def with_queries(self, query_times: Tensor) -> Self:
        """The same series, asked at other times: (B, Q), since each series' start."""
        return replace(self, query_times=query_times.to(self.times))

    def padded(
        self, rows: int, queries: int | None = None, targets: Literal["series", "step", "query"] = "series"
    ) -> Self:
        """The same series with more padding, so that batches of many lengths have few shapes; no answer changes.

        Args:
            rows: L afterwards, at least what it is.
            queries: Q afterwards, as it is if None or 0. Those that are added repeat the last one.
            targets: where they stand. Targets of rows and queries that were added do not count.
        """
        L, Q = self.times.shape[1], 0 if self.query_times is None else self.query_times.shape[1]
        queries = Q if queries is None or Q == 0 else queries
        if rows < L or queries < Q:
            raise ValueError(f"{L} rows and {Q} queries cannot be padded to {rows} and {queries}, which is less.")
        longer = {name: _longer(getattr(self, name), rows) for name in ("values", "deltas", "observed")}
        longer["times"] = _repeated(self.times, rows)
        if self.query_times is not None:
            longer["query_times"] = _repeated(self.query_times, queries)
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

    def __getitem__(self, series: slice | Tensor) -> Self:
        """Some of the series, with everything that belongs to them."""
        chosen = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{name: tensor[series] for name, tensor in chosen.items() if tensor is not None})

    def to(self, device: torch.device | str) -> Self:
        """Move every tensor. Devices without float64 get times in float32; the deltas are already exact."""
        device = torch.device(device)
        moved = {}
        for field in fields(self):
            tensor = getattr(self, field.name)
            if tensor is not None:
                narrow = device.type == "mps" and tensor.dtype == torch.float64
                moved[field.name] = tensor.to(device, torch.float32 if narrow else tensor.dtype)
        return replace(self, **moved)


def _longer(tensor: Tensor, n: int) -> Tensor:
    """(B, L, ...) -> (B, n, ...), zeros after them."""
    B, L, *rest = tensor.shape
    return tensor if n == L else torch.cat([tensor, tensor.new_zeros(B, n - L, *rest)], dim=1)


def _repeated(times: Tensor, n: int) -> Tensor:
    """(B, L) -> (B, n), the last column again and again; zeros if there is none."""
    L = times.shape[1]
    return _longer(times, n) if L in (0, n) else torch.cat([times, times[:, -1:].expand(-1, n - L)], dim=1)


def _as_numbers(name: str, values: ArrayLike) -> Tensor:
    """float64 tensor; stamps of a calendar are refused here because their unit is the user's choice."""
    array = values if isinstance(values, Tensor) else np.asarray(values)
    if isinstance(array, np.ndarray) and array.dtype.kind not in "fiu":
        hint = (
            " Choose the unit: (times - times[:, :1]) / numpy.timedelta64(1, 'h')." if array.dtype.kind in "mM" else ""
        )
        raise TypeError(f"{name} must be numbers; got {array.dtype}.{hint}")
    return torch.as_tensor(array).to(torch.float64)


def _start(t0: ArrayLike | float | None, clock: Tensor, count: Tensor) -> Tensor:
    B, L = clock.shape
    if t0 is None:
        return torch.where(count > 0, clock[:, 0], 0.0) if L else clock.new_zeros(B)
    start = torch.as_tensor(t0, dtype=torch.float64)
    if start.shape not in ((), (B,)) or not bool(torch.isfinite(start).all()):
        raise ValueError(f"t0 must be one finite number or {B} of them; got {start.tolist()}.")
    return start.expand(B)


def _relative(clock: Tensor, start: Tensor, valid: Tensor, count: Tensor) -> Tensor:
    """Times since the start, checked, with the last valid one repeated over the padding."""
    _refuse(
        ~torch.isfinite(clock) & valid,
        "times must be finite; row {} has times[{}] = {}. Drop rows without a time stamp.",
        clock,
    )
    backwards = torch.zeros_like(valid)
    backwards[:, 1:] = (clock[:, 1:] < clock[:, :-1]) & valid[:, 1:]
    where = backwards.nonzero()
    if len(where):
        row, step = where[0].tolist()
        raise ValueError(
            f"times must not decrease along a series; row {row} has times[{step}] = {float(clock[row, step])} after "
            f"{float(clock[row, step - 1])}. Sort the rows of each series by time."
        )
    if clock.shape[1] == 0:
        return clock
    last = clock.gather(1, (count - 1).clamp(min=0)[:, None])
    last = torch.where(count[:, None] > 0, last, start[:, None])
    return torch.where(valid, clock, last) - start[:, None]


def _observed(given: Tensor, observed: ArrayLike | None, valid: Tensor) -> Tensor:
    inside = valid.reshape(valid.shape + (1,) * (given.dim() - 2)).expand(given.shape)
    seen = ~torch.isnan(given) if observed is None else torch.as_tensor(observed)
    if seen.dtype != torch.bool or seen.shape != given.shape:
        raise ValueError(
            f"observed must be bool with the shape of values, {tuple(given.shape)}, True = observed; got {seen.dtype} "
            f"{tuple(seen.shape)}."
        )
    seen = seen & inside
    _refuse(
        seen & ~torch.isfinite(given),
        "an observed value must be finite; series {}, row {}, channel {} is {}. Mark it as not observed, or write NaN.",
        given,
    )
    return seen


def _refuse(bad: Tensor, message: str, values: Tensor) -> None:
    if bool(bad.any()):
        where = tuple(int(i) for i in bad.nonzero()[0])
        shown = where if len(where) <= 3 else (*where[:2], list(where[2:]))
        raise ValueError(message.format(*shown, float(values[where])))


def mean_interval(batch: IrregularBatch) -> Tensor:
    """(B,) mean interval between the rows of each series; 0 for a single row or when all are ties."""
    last = batch.times.gather(1, (batch.lengths - 1).clamp(min=0)[:, None])[:, 0]
    return ((last - batch.times[:, 0]) / (batch.lengths - 1).clamp(min=1)).to(batch.deltas.dtype)


def median_interval(batches: Iterable[IrregularBatch]) -> float:
    """Median positive interval over all series, what `LFormer.first_interval` is set to; 1.0 if there is none."""
    deltas = torch.cat([batch.deltas[batch.deltas > 0].flatten() for batch in batches])
    median = float(deltas.median()) if deltas.numel() else math.nan
    return median if math.isfinite(median) else 1.0


def median_span(batches: Sequence[IrregularBatch]) -> float:
    """Median time from the first to the last row of a series; 0.0 if there are no series."""
    spans = torch.cat([(b.times.amax(dim=1) - b.times[:, 0])[b.lengths > 0] for b in batches if b.times.shape[1]])
    return float(spans.median()) if spans.numel() else 0.0
