"""RowEncoder: from observations to the rows a model reads, and what is known of every channel at each of them.

    "values"     the values, 0 where nothing was observed (paper)
    "observed"   the values, and which were observed
    "carried"    the latest value of each channel, whether it is fresh, and its age; and the intervals between rows

With `neighbours`, "carried" rows also show the values of each channel around them, see `lformer.nn.neighbours`.

The encoder looks at values, times and what was observed, never at the future, and has a state: a whole series, pieces
of it and single rows are encoded in the same way. Only if predictions start from linear interpolation, "carried" rows
also contain the next value of each channel and the time until then. Static covariates are appended to every row of a
series, and marks, which are known in advance, to every row and query.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from lformer.batch import IrregularBatch, median_interval, median_span
from lformer.nn.attention import one_of
from lformer.nn.known import Ahead, Known, Past, follow, look_ahead, nothing_known
from lformer.nn.neighbours import (
    Latest,
    Recent,
    around,
    at_index,
    before_rows,
    distances,
    nothing_recent,
    offsets,
    on_line,
)
from lformer.nn.own_scale import Own, OwnScale
from lformer.nn.query import rows_until
from lformer.nn.summaries import Seen, nothing_seen, see
from lformer.nn.waves import Wave, fit_wave

Rows = Literal["values", "observed", "carried"]


class RowConfig(Protocol):
    """The settings of a model that concern its rows."""

    @property
    def inputs(self) -> int: ...
    @property
    def outputs(self) -> int: ...
    @property
    def answer(self) -> str: ...
    @property
    def rows(self) -> Rows: ...
    @property
    def statics(self) -> int: ...
    @property
    def persistence(self) -> str: ...
    @property
    def embedder(self) -> str: ...


def check_rows(config: RowConfig) -> None:
    """Raise if settings of rows and predictions are incompatible."""
    if config.embedder == "frames" and (config.rows != "values" or config.statics or config.persistence != "none"):
        raise ValueError('embedder="frames" takes one frame per row: rows="values", no statics, persistence="none".')
    if config.statics < 0:
        raise ValueError(f"statics must be at least 0; got {config.statics}.")
    if config.persistence != "none" and (config.answer == "series" or config.outputs != config.inputs):
        raise ValueError(
            f"persistence={config.persistence!r} starts from the values of the channels, so the model must predict per "
            f"step or query with as many outputs as inputs; got answer={config.answer!r}, {config.outputs} outputs and "
            f"{config.inputs} inputs."
        )


@runtime_checkable
class FittedToRows(Protocol):
    """A part of a model that is fitted to statistics of the training rows, such as means, before training."""

    def fit_rows(self, batches: Sequence[IrregularBatch]) -> None:
        """Fit the statistics."""


class Encoded(NamedTuple):
    """Rows, and what predictions may start from."""

    rows: Tensor  # (B, L, W)
    known: Known | None  # (B, L + 1, C) before the first and after each row; None if not needed
    ahead: Ahead | None  # (B, L + 1, C) likewise, the next observations
    own: Own | None = None  # the scaling of each series, if series are on their own scale
    recent: Recent | None = None  # the latest rows of each series, if later rows will need them
    seen: Seen | None = None  # (B, C) after the last row, if summaries are used
    wave: Wave | None = None  # of each series and channel, if predictions may start from it


class RowEncoder(nn.Module):
    """Values, observed, times -> rows (B, L, W), and what is known of each channel.

    Args:
        inputs: C, observed channels.
        kind: content of a row, see above.
        statics: S, number of static covariates appended to every row, from `batch.static`.
        persistence: what predictions start from, see `Persistence`; "line" and "wave" use the next observations.
        marks: M, number of marks appended to rows and queries, from `batch.marks`.
        series_scale: whether values are in units of their own series, see `OwnScale`; its features are appended too.
        neighbours: number of moments to show on either side of a row, one typical interval apart; see `around`.
        causal: whether to show only moments before the row.
        summaries: whether to keep what `SummaryHead` needs.

    What is fitted is stored in buffers: `shift`, `scale`, `low` and `high` (C,) of the values (not used with "values",
    which takes them as they are, like the paper), and the typical `interval` and `span` of a series, in the data's unit
    of time.
    """

    def __init__(
        self,
        inputs: int,
        kind: Rows = "values",
        statics: int = 0,
        persistence: str = "none",
        marks: int = 0,
        series_scale: bool = False,
        neighbours: int = 0,
        causal: bool = False,
        summaries: bool = False,
    ) -> None:
        super().__init__()
        one_of("rows", kind, Rows)
        self.inputs, self.kind, self.statics, self.marks = inputs, kind, statics, marks
        self.neighbours, self.causal, self.summaries = neighbours, causal, summaries
        self.guesses = persistence != "none"
        self.keeps_known = self.guesses or kind == "carried"
        self.looks_ahead, self.waves = persistence in ("line", "wave"), persistence == "wave"
        self.plain = kind == "values" and statics == 0 and marks == 0 and not series_scale
        self.own = OwnScale(inputs, marks) if series_scale else None
        self.shift: Tensor
        self.scale: Tensor
        self.low: Tensor
        self.high: Tensor
        self.interval: Tensor
        self.span: Tensor
        if kind != "values":
            self.register_buffer("shift", torch.zeros(inputs))
            self.register_buffer("scale", torch.ones(inputs))
            self.register_buffer("low", torch.full((inputs,), -torch.inf))
            self.register_buffer("high", torch.full((inputs,), torch.inf))
        self.register_buffer("interval", torch.tensor(1.0))
        self.register_buffer("span", torch.tensor(1.0))

    def set_scale(self, shift: Tensor, scale: Tensor, low: Tensor, high: Tensor) -> None:
        """Scale values as `(clip(values, low, high) - shift) / scale` from now on, per channel, (C,) each."""
        for buffer, given in ((self.shift, shift), (self.scale, scale), (self.low, low), (self.high, high)):
            buffer.copy_(given)

    def extra_repr(self) -> str:
        return f"inputs={self.inputs}, kind={self.kind!r}, statics={self.statics}"

    @property
    def _owns(self) -> int:
        return 0 if self.own is None else self.own.width

    @property
    def width(self) -> int:
        """W, number of features per row."""
        C = self.inputs
        carried = (5 if self.looks_ahead else 3) * C + 2 + len(offsets(self.neighbours, self.causal)) * C
        return {"values": C, "observed": 2 * C, "carried": carried}[self.kind] + self.statics + self.marks + self._owns

    def forward(self, batch: IrregularBatch, past: Past | None = None) -> Encoded:
        """Encode the rows of the batch, continuing from `past`."""
        if self.plain and not self.keeps_known:
            return Encoded(batch.values, None, None)
        values, observed = self.scaled(batch)
        own = None
        if self.own is not None:
            own = self.own(values, observed, batch.marks)
            values = own.remove(values, observed, batch.marks)
        known = follow(values, observed, batch.times, self._before(batch, past)) if self.keeps_known else None
        ahead = None
        if self.looks_ahead or (self.neighbours and not self.causal):
            ahead = look_ahead(values, observed, batch.times)
        parts = [values]
        if self.kind == "observed":
            parts.append(observed.to(values.dtype))
        elif self.kind == "carried":
            assert known is not None
            after = ahead.after_rows() if ahead is not None and self.looks_ahead else None
            parts = self._carried(known.after_rows(), after, observed, batch.times, _gaps(batch, past))
        recent = None
        if self.neighbours:
            assert known is not None
            shown, recent = self._around(values, observed, batch, known, ahead, past)
            parts.append(shown)
        wave = None
        if self.waves:
            assert known is not None
            assert ahead is not None
            earlier = known.before_rows()
            line = on_line(Latest(earlier.latest, earlier.time), ahead.after_rows(), batch.times)
            wave = fit_wave(values, observed, batch.times, line)
        seen = None
        if self.summaries:
            before = None if past is None else past.seen
            seen = see(values, observed, nothing_seen(self._before(batch, past)) if before is None else before)
        return Encoded(self._completed(parts, batch, batch.marks, own), known, ahead, own, recent, seen, wave)

    def queries(self, batch: IrregularBatch, encoded: Encoded, past: Past | None = None) -> Tensor:
        """(B, Q, W), rows without observations at the query times.

        If predictions start from a guess, "carried" rows show what was known at that time, from which the guess is
        made. Otherwise they are empty: a model that only reads its memory at that time learns smooth curves far better.
        """
        asked = batch.query_times
        assert asked is not None
        if self.kind != "carried" or not self.guesses:
            width = (
                batch.values.shape[2:]
                if self.kind == "values"
                else (self.width - self.statics - self.marks - self._owns,)
            )
            dtype = batch.values.dtype if self.kind == "values" else self.shift.dtype
            nothing = batch.values.new_zeros(*asked.shape, *width, dtype=dtype)
            return self._completed([nothing], batch, batch.query_marks, encoded.own)
        assert encoded.known is not None
        count = rows_until(batch.times, batch.lengths, asked)
        last = torch.cat([_last_time(batch, past)[:, None], batch.times], dim=1).gather(1, count)
        gap = torch.where(torch.isfinite(last), (asked - last).clamp(min=0), 0)
        now = encoded.known.at(count)
        after = encoded.ahead.at(count) if encoded.ahead is not None and self.looks_ahead else None
        nothing = torch.zeros_like(now.latest, dtype=torch.bool)
        parts = self._carried(now, after, nothing, asked, gap)
        if self.neighbours and self.causal:  # not shown at queries: the model reads them from the rows
            shown = len(offsets(self.neighbours, self.causal)) * self.inputs
            parts.append(now.latest.new_zeros(*asked.shape, shown))
        elif self.neighbours:  # relative to linear interpolation, from which predictions start
            assert encoded.ahead is not None
            line = on_line(at_index(encoded.known, count), encoded.ahead.at(count), asked)
            level = torch.where(torch.isnan(line), now.latest, line)
            parts.append(self._around_moments(asked, level, batch, encoded.known, encoded.ahead))
        return self._completed(parts, batch, batch.query_marks, encoded.own)

    def scaled(self, batch: IrregularBatch) -> tuple[Tensor, Tensor]:
        """(B, L, C) scaled values, 0 where nothing was observed, and observed; nothing is observed on padding."""
        if tuple(batch.values.shape[2:]) != (self.inputs,):
            raise ValueError(
                f"the model was built for rows of shape {(self.inputs,)}; got {tuple(batch.values.shape[2:])}."
            )
        values, observed = batch.values, batch.observed & batch.valid[..., None]
        if self.kind != "values":
            values = ((values.clamp(self.low, self.high) - self.shift) / self.scale).to(self.shift.dtype)
        return torch.where(observed, values, 0), observed

    def _carried(self, now: Known, ahead: Ahead | None, observed: Tensor, times: Tensor, gap: Tensor) -> list[Tensor]:
        """Latest value, freshness and age of each channel; interval since the previous row, time since the start.

        With `ahead` also the next value and the time until then. Times enter as logarithms, in typical intervals; a
        channel that was never observed counts as older than a typical series, one without a next value as a typical
        series away.
        """
        dtype = now.latest.dtype
        elapsed = times.clamp(min=0)
        age = torch.where(torch.isfinite(now.time), times[..., None] - now.time, elapsed[..., None] + self.span)
        pace = torch.log1p(torch.stack([gap, elapsed], dim=-1).to(dtype) / self.interval.to(dtype))
        parts = [now.latest, observed.to(dtype), self._in_spans(age, dtype), pace]
        if ahead is not None:
            until = torch.where(torch.isfinite(ahead.time), ahead.time - times[..., None], self.span.to(times.dtype))
            parts += [ahead.value, self._in_spans(until, dtype)]
        return parts

    def _around(
        self,
        values: Tensor,
        observed: Tensor,
        batch: IrregularBatch,
        known: Known,
        ahead: Ahead | None,
        past: Past | None,
    ) -> tuple[Tensor, Recent | None]:
        """The values of each channel around each row, and the latest rows if a stream may continue from here."""
        if not self.causal:
            assert ahead is not None
            return self._around_moments(batch.times, known.after_rows().latest, batch, known, ahead), None
        recent = nothing_recent(self._before(batch, past)) if past is None or past.recent is None else past.recent
        return before_rows(values, observed, batch.times, batch.lengths, recent, self.interval, self.neighbours)

    def _around_moments(
        self, moments: Tensor, level: Tensor, batch: IrregularBatch, known: Known, ahead: Ahead
    ) -> Tensor:
        interval, span = self.interval.to(moments.dtype), self.span.to(moments.dtype)
        # A prediction that starts from linear interpolation is about the time between two observations.
        apart = distances(self.neighbours, interval, None if self.guesses else span)
        return around(moments, level, batch.times, batch.lengths, known, ahead, apart)

    def _in_spans(self, duration: Tensor, dtype: torch.dtype) -> Tensor:
        """A duration on a logarithmic scale: 0 for no time, 1 for the typical span of a series."""
        interval, span = self.interval.to(dtype), self.span.to(dtype)
        return torch.log1p(duration.clamp(min=0).to(dtype) / interval) / torch.log1p(span / interval)

    def _completed(self, parts: list[Tensor], batch: IrregularBatch, marks: Tensor | None, own: Own | None) -> Tensor:
        """(B, N, W) rows or queries with static covariates, marks, and the features of their series."""
        if self.statics:
            if batch.static is None or batch.static.shape[1:] != (self.statics,):
                found = "none" if batch.static is None else tuple(batch.static.shape[1:])
                raise ValueError(f"the model needs {self.statics} numbers of static covariates; the batch has {found}.")
            rows = parts[0].shape[1]
            parts = [*parts, batch.static.to(parts[0].dtype)[:, None].expand(-1, rows, -1)]
        if self.marks:
            parts = [*parts, checked_marks(marks, self.marks).to(parts[0].dtype)]
        if own is not None:
            parts = [*parts, *own.features(parts[0].shape[1], marks)]
        return torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]

    def _before(self, batch: IrregularBatch, past: Past | None) -> Known:
        if past is not None:
            return past.known
        like = batch.values if self.kind == "values" else self.shift
        return nothing_known(batch.values.shape[0], self.inputs, like, batch.times.dtype)


def checked_marks(marks: Tensor | None, count: int) -> Tensor:
    """The marks of rows or queries; raises if their number is not the one the model uses."""
    if marks is None or marks.shape[2] != count:
        found = "none" if marks is None else marks.shape[2]
        raise ValueError(
            f"the model reads {count} marks, numbers known in advance of every row and query; the batch has {found}. "
            "Give them as IrregularBatch.build(..., marks=, query_marks=), or to step(..., marks=)."
        )
    return marks


def fit_clock(model: nn.Module, batches: Sequence[IrregularBatch]) -> None:
    """Set the typical interval and the typical span of a series in every part of a model that has them.

    Parts with `fit_rows(batches)` are then fitted to the training rows.
    """
    interval = median_interval(batches)
    span = max(median_span(batches), interval)
    for module in model.modules():
        if isinstance(module, RowEncoder):
            module.interval.fill_(interval)
            module.span.fill_(span)
            if module.own is not None:
                module.own.fit([(*module.scaled(batch), batch.marks) for batch in batches])
    if isinstance(first := getattr(model, "first_interval", None), Tensor):
        first.fill_(interval)
    for module in model.modules():
        if isinstance(module, FittedToRows):
            module.fit_rows(batches)


def _last_time(batch: IrregularBatch, past: Past | None) -> Tensor:
    """(B,) time of the row before the first of the batch; NaN if there is none."""
    none = batch.times.new_full((batch.values.shape[0],), torch.nan)
    return none if past is None else torch.where(past.rows > 0, past.time.to(none.dtype), none)


def _gaps(batch: IrregularBatch, past: Past | None) -> Tensor:
    """(B, L) interval since the previous row, 0 at the first of a series."""
    before = torch.cat([_last_time(batch, past)[:, None], batch.times], dim=1)[:, :-1]
    return torch.nan_to_num(batch.times - before, nan=0.0).clamp(min=0)
