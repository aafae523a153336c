"""What is known of every channel at a given time: the latest observation, statistics of the past, the next observation.

Scans over a series that look back (`follow`, which has a state) or ahead (`look_ahead`, for models that may).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from lformer.nn.neighbours import Recent
    from lformer.nn.summaries import Seen


class Known(NamedTuple):
    """What is known of each channel: (B, C) at one time, or (B, N, C) at N of them."""

    latest: Tensor  # the latest observed value, scaled; 0 if there is none
    time: Tensor  # when it was observed; -inf if never
    total: Tensor  # sum of the values so far, in the precision of the times
    seen: Tensor  # number of values so far

    @property
    def mean(self) -> Tensor:
        """Mean of the values so far; 0 if there are none."""
        return (self.total / self.seen.clamp(min=1)).to(self.latest.dtype)

    def at(self, index: Tensor) -> Known:
        """(B, N, C), (B, M) -> (B, M, C)"""
        where = index[..., None].expand(-1, -1, self.latest.shape[-1])
        return Known(*(field.gather(1, where) for field in self))

    def after_rows(self) -> Known:
        """(B, L + 1, C) -> (B, L, C), without what was known before the first row"""
        return Known(*(field[:, 1:] for field in self))

    def before_rows(self) -> Known:
        """(B, L + 1, C) -> (B, L, C), without what was known after the last row"""
        return Known(*(field[:, :-1] for field in self))

    def squeeze(self) -> Known:
        """(B, 1, C) -> (B, C)"""
        return Known(*(field.squeeze(1) for field in self))


class Past(NamedTuple):
    """The state of some series before the rows of a batch."""

    time: Tensor  # (B,) of the last row
    rows: Tensor  # (B,) number of rows
    known: Known  # (B, C)
    recent: Recent | None = None  # the latest rows, if rows show their neighbours
    seen: Seen | None = None  # (B, C) if summaries are used


def nothing_known(batch: int, channels: int, like: Tensor, clock: torch.dtype) -> Known:
    """(B, C) before the first row; values like `like`, times and sums in the dtype `clock`."""
    zero = like.new_zeros(batch, channels)
    exact = zero.to(clock)
    return Known(zero, exact - torch.inf, exact, exact)


def follow(values: Tensor, observed: Tensor, times: Tensor, before: Known) -> Known:
    """What is known after each of L rows; entry 0 is what was known before the first.

    Args:
        values: (B, L, C), 0 where nothing was observed.
        observed: (B, L, C) bool.
        times: (B, L).
        before: (B, C).

    Returns:
        (B, L + 1, C)
    """
    B, L, C = values.shape
    position = torch.arange(1, L + 1, device=values.device)
    index = torch.where(observed.transpose(1, 2), position, 0)  # (B, C, L): scans want their axis last
    index = torch.cat([index.new_zeros(B, C, 1), index], dim=2).cummax(dim=2).values.transpose(1, 2)
    latest = torch.cat([before.latest[:, None], values], dim=1).gather(1, index)
    clock = torch.cat([times[:, :1], times], dim=1) if L else times.new_zeros(B, 1)
    time = clock.gather(1, index.flatten(1)).unflatten(1, (L + 1, C))
    return Known(
        latest=latest,
        time=torch.where(index > 0, time, before.time[:, None]),
        total=_running(torch.where(observed, values, 0), before.total),
        seen=_running(observed, before.seen),
    )


def _running(x: Tensor, before: Tensor) -> Tensor:
    """(B, L, C), (B, C) -> (B, L + 1, C), running sums in the dtype of `before`"""
    return torch.cat([before[:, None], x], dim=1).transpose(1, 2).cumsum(dim=2).transpose(1, 2)


class Ahead(NamedTuple):
    """The next observation of each channel: (B, N, C)."""

    value: Tensor  # 0 if there is none
    time: Tensor  # inf if there is none
    row: Tensor  # its row; L if there is none

    def at(self, index: Tensor) -> Ahead:
        """(B, N, C), (B, M) -> (B, M, C)"""
        where = index[..., None].expand(-1, -1, self.value.shape[-1])
        return Ahead(*(field.gather(1, where) for field in self))

    def after_rows(self) -> Ahead:
        """(B, L + 1, C) -> (B, L, C), after each row"""
        return Ahead(*(field[:, 1:] for field in self))


def look_ahead(values: Tensor, observed: Tensor, times: Tensor) -> Ahead:
    """(B, L, C), (B, L, C), (B, L) -> (B, L + 1, C), the next observation after each row; entry 0 is the first one."""
    B, L, C = values.shape
    none = torch.full((B, C, 1), L, device=values.device)
    index = torch.where(observed.transpose(1, 2), torch.arange(L, device=values.device), L)
    index = torch.cat([index, none], dim=2).flip(2).cummin(dim=2).values.flip(2).transpose(1, 2)  # (B, L + 1, C)
    padded = torch.cat([values, values.new_zeros(B, 1, C)], dim=1)
    clock = torch.cat([times, times.new_full((B, 1), torch.inf)], dim=1)
    return Ahead(padded.gather(1, index), clock.gather(1, index.flatten(1)).unflatten(1, (L + 1, C)), index)
