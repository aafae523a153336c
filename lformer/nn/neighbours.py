"""Neighbours of a moment: the values of each channel some typical intervals before and after it, interpolated linearly.

With these in a row, the first linear map over the row is a convolution in time. It handles real intervals: where
observations are missing or late, linear interpolation fills in, and on a regular grid it is the plain convolution over
neighbouring rows.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lformer.nn.known import Ahead, Known, follow, look_ahead
from lformer.nn.query import rows_until

REACH = 16  # maximum number of rows that a causal model looks back, and that a stream keeps
WIDE = 15.0  # the outermost neighbours are at least 1 / WIDE of a typical series away


class Recent(NamedTuple):
    """The latest rows of some series, as kept by a stream, and what was known before them."""

    values: Tensor  # (B, REACH, C) scaled, 0 where nothing was observed; rows before the first of a series are empty
    observed: Tensor  # (B, REACH, C) bool
    times: Tensor  # (B, REACH) not decreasing
    known: Known  # (B, C) before the first of them


def nothing_recent(known: Known) -> Recent:
    """The value before the first row of series, about which nothing is known, (B, C)."""
    B, C = known.latest.shape
    return Recent(
        values=known.latest.new_zeros(B, REACH, C),
        observed=known.latest.new_zeros(B, REACH, C, dtype=torch.bool),
        times=known.time.new_zeros(B, REACH) - torch.inf,
        known=known,
    )


def offsets(count: int, causal: bool) -> list[int]:
    """In typical intervals: `count` before and, unless the model is causal, as many after.

    Example:
        >>> offsets(2, causal=False), offsets(2, causal=True)
        ([-2, -1, 1, 2], [-2, -1])
    """
    before = list(range(-count, 0))
    return before if causal else [*before, *range(1, count + 1)]


def distances(count: int, interval: Tensor, span: Tensor | None = None) -> Tensor:
    """(count,) distances of the neighbours on either side of a row: 1, 2, 3, … typical intervals.

    If these cover less than 1 / WIDE of the typical span of a series, they are spread geometrically instead, so that
    rows of a long, dense series show shapes and not only noise.

    Example:
        >>> one = torch.tensor(1.0)
        >>> distances(4, one).tolist(), distances(4, one, 60 * one).tolist()
        ([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0])
        >>> distances(4, one, 405 * one).round().tolist()
        [1.0, 3.0, 9.0, 27.0]
    """
    whole = torch.arange(1, count + 1, device=interval.device, dtype=interval.dtype)
    if span is None:
        return interval * whole
    widest = (span / (WIDE * interval)).clamp(min=count)
    return interval * torch.maximum(whole, widest ** ((whole - 1) / max(1, count - 1)))


def around(
    moments: Tensor,
    level: Tensor,
    times: Tensor,
    lengths: Tensor,
    known: Known,
    ahead: Ahead,
    apart: Tensor,
) -> Tensor:
    """How much each channel differs from its level around each moment, in a model that reads the whole series.

    Args:
        moments: (B, N) times of rows or queries.
        level: (B, N, C) what each channel is compared with.
        times: (B, L) times of the rows.
        lengths: (B,).
        known: (B, L + 1, C) before the first and after each row.
        ahead: (B, L + 1, C) likewise.
        apart: (count,) distances of the neighbours on either side, nearest first.

    Returns:
        (B, N, 2 · count · C); 0 beyond the first and the last observation of a channel.
    """
    steps = torch.cat([-apart.flip(0), apart]).to(times.dtype)
    asked = (moments[..., None] + steps).flatten(1)  # (B, N · 2 count)
    index = rows_until(times, lengths, asked)
    found = on_line(at_index(known, index), ahead.at(index), asked).unflatten(1, (moments.shape[1], len(steps)))
    return torch.where(torch.isnan(found), 0, found - level[:, :, None]).flatten(2)


def before_rows(
    values: Tensor, observed: Tensor, times: Tensor, lengths: Tensor, recent: Recent, interval: Tensor, count: int
) -> tuple[Tensor, Recent]:
    """The same, looking back only, from a state: (B, L, count · C), and the latest rows afterwards.

    A row looks back at most `REACH` rows, including itself.
    """
    L, C = values.shape[1:]
    values, observed = torch.cat([recent.values, values], 1), torch.cat([recent.observed, observed], 1)
    times = torch.cat([recent.times, times], 1)  # (B, REACH + L)
    known = follow(values, observed, torch.where(torch.isfinite(times), times, 0), recent.known)
    ahead = look_ahead(values, observed, times)
    rows = torch.arange(REACH, REACH + L, device=times.device)  # positions of the new rows
    steps = torch.arange(-count, 0, device=times.device, dtype=times.dtype)  # on the device, for CUDA graphs
    asked = times[:, REACH:, None] + steps * interval.to(times.dtype)  # (B, L, count)
    index = torch.searchsorted(times.contiguous(), asked.flatten(1).contiguous(), right=True).unflatten(1, (L, count))
    index = torch.maximum(index, (rows - REACH + 2)[:, None]).flatten(1)
    then = ahead.at(index)
    own = rows.repeat_interleave(count)[:, None]  # by number, not by time: of equal times, later rows are in the future
    then = then._replace(time=torch.where(then.row <= own, then.time, torch.inf))
    found = on_line(at_index(known, index), then, asked.flatten(1)).unflatten(1, (L, count))
    latest = known.latest[:, REACH + 1 :, None]
    last = lengths[:, None] + torch.arange(REACH, device=times.device)  # (B, REACH), not the padding
    wide = last[..., None].expand(-1, -1, C)
    kept = Recent(
        values.gather(1, wide), observed.gather(1, wide), times.gather(1, last), known.at(lengths[:, None]).squeeze()
    )
    return torch.where(torch.isnan(found), 0, found - latest).flatten(2), kept


class Latest(NamedTuple):
    """The part of `Known` that is needed here, to save memory."""

    value: Tensor
    time: Tensor


def at_index(known: Known, index: Tensor) -> Latest:
    """(B, N, C), (B, M) -> (B, M, C)"""
    where = index[..., None].expand(-1, -1, known.latest.shape[-1])
    return Latest(known.latest.gather(1, where), known.time.gather(1, where))


def on_line(now: Latest, ahead: Ahead, times: Tensor) -> Tensor:
    """(B, N, C) linear interpolation between the observations around a moment; NaN outside their range"""
    between = torch.isfinite(now.time) & torch.isfinite(ahead.time)
    reach = torch.where(between, ahead.time - now.time, 1).clamp(min=torch.finfo(now.time.dtype).tiny)
    since = torch.where(between, times[..., None] - now.time, 0)
    line = now.value + (since / reach).clamp(0, 1).to(now.value.dtype) * (ahead.value - now.value)
    exact = now.time == times[..., None]  # at the last observation itself
    return torch.where(between, line, torch.where(exact, now.value, torch.nan))
