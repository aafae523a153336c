"""Paths through the rows of ragged series, and their signatures up to any moment."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lformer.baselines.model import Clock
from lformer.baselines.signature import Levels, chen, inverse, prefixes, straight
from lformer.batch import IrregularBatch
from lformer.nn.query import rows_until


class Paths(NamedTuple):
    """G paths in d dimensions for each of B series, straight between rows; the first dimension is time.

    Behind the last row time goes on alone; before the first row nothing moves.
    """

    points: Tensor  # (B, N, G, d), the last valid one again on padding
    signatures: Levels  # (B, N, G, dⁿ), from the first point to each
    batch: IrregularBatch
    clock: Clock
    base: int  # points before the first row: one with a base point, or none

    @classmethod
    def through(
        cls, rows: Tensor, batch: IrregularBatch, clock: Clock, level: int, univariate: bool, basepoint: bool
    ) -> Paths:
        """Through rows (B, L, W), as exactly as the times are kept.

        Args:
            rows: what the channels are.
            batch: when, and which rows are valid.
            clock: the unit of time.
            level: of the signatures.
            univariate: W paths of time and a channel; else one of time and all channels.
            basepoint: whether a path begins at 0, and goes from there to the first row.
        """
        x = hold(rows.to(batch.times.dtype), batch)
        time = clock(batch.times)[..., None]
        pairs = torch.stack([time.expand_as(x), x], dim=-1)  # (B, L, W, 2)
        points = pairs if univariate else torch.cat([time, x], dim=-1)[:, :, None]  # (B, L, 1, W + 1)
        if basepoint:
            points = torch.cat([torch.zeros_like(points[:, :1]), points], dim=1)
        return cls(points, prefixes(points, level), batch, clock, int(basepoint))

    def up_to_rows(self) -> Levels:
        """(B, L, G, dⁿ)"""
        return tuple(level[:, self.base :] for level in self.signatures)

    def up_to(self, moments: Tensor) -> Levels:
        """(B, M) -> (B, M, G, dⁿ), all rows that are not later, and the way towards the next."""
        lengths = self.batch.lengths[:, None]
        passed = rows_until(self.batch.times, self.batch.lengths, moments)  # (B, M)
        index = (passed - 1 + self.base).clamp(min=0)
        here = at(self.points, index)
        following = at(self.points, (index + 1).clamp(max=self.points.shape[1] - 1))
        now = self.clock(moments)[..., None]  # (B, M, 1)
        reach = (following - here)[..., 0].clamp(min=torch.finfo(now.dtype).tiny)
        share = ((now - here[..., 0]) / reach).clamp(0, 1)[..., None]
        between = ((passed > 0) & (passed < lengths))[..., None, None]
        behind = ((passed > 0) & (passed == lengths))[..., None, None]
        alone = torch.cat([now[..., None] - here[..., :1], torch.zeros_like(here[..., 1:])], dim=-1)
        step = torch.where(between, share * (following - here), torch.where(behind, alone, 0))
        level = len(self.signatures)
        return chen(tuple(at(one, index) for one in self.signatures), straight(step, level))


def hold(rows: Tensor, batch: IrregularBatch) -> Tensor:
    """(B, L, W) -> (B, L, W), the last valid row again on padding; zeros in an empty series."""
    index = torch.minimum(torch.arange(rows.shape[1], device=rows.device), (batch.lengths - 1).clamp(min=0)[:, None])
    return torch.where(batch.lengths[:, None, None] > 0, rows.gather(1, index[..., None].expand_as(rows)), 0)


def at(x: Tensor, index: Tensor) -> Tensor:
    """(B, N, G, S), (B, M) -> (B, M, G, S)"""
    return x.gather(1, index[..., None, None].expand(-1, -1, *x.shape[2:]))


def from_to(start: Levels, end: Levels) -> Levels:
    """The signature of the path between two moments, from those up to each."""
    return chen(inverse(start), end)
