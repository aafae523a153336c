"""RecentMeans: predictions start from a learned mixture of the latest value, recent means and the mean so far.

The best mixture depends on the channel: the latest value for one that wanders, a mean for one that is noisy, and
usually something in between. The guess at an observed entry is the observation itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lformer.batch import IrregularBatch
from lformer.nn.known import Known
from lformer.nn.query import rows_until

SPANS = (8, 32)  # of the recent means, in typical intervals between rows
GAIN = 10.0  # factor on the logits, so that they change fast enough in a short training
LEAST = 1e-3  # minimum initial share, so that every share can grow
STEPS = 500


class Asked(NamedTuple):
    """Queries with known targets."""

    known: Known  # (B, L + 1, C)
    batch: IrregularBatch
    targets: Tensor  # (B, Q, C) in the units of `known`
    weights: Tensor  # (B, Q, C) weight of each


class RecentMeans(nn.Module):
    """The guess to which the model's output is added, (B, N, C).

    `mixture` (C, 4) weights, through a softmax, the latest value, the means of the last 8 and 32 typical intervals and
    the mean so far; `default` (C,) is the guess for channels that were never observed. Both are learned.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mixture = nn.Parameter(torch.zeros(channels, len(SPANS) + 2))
        self.default = nn.Parameter(torch.zeros(channels))

    def forward(self, known: Known, batch: IrregularBatch, interval: Tensor) -> Tensor:
        """(B, L, C) at the rows, or (B, Q, C) at the queries.

        Args:
            known: (B, L + 1, C) before the first and after each row.
            batch: the series, with their queries.
            interval: (), the typical interval.
        """
        if batch.query_times is None:
            now, fresh = known.after_rows(), batch.observed & batch.valid[..., None]
        else:
            now = known.at(rows_until(batch.times, batch.lengths, batch.query_times))
            fresh = now.time == batch.query_times[..., None]
        choices = self._choices(known, now, batch, interval)
        guess = (choices * torch.softmax(GAIN * self.mixture, dim=-1).to(choices.dtype)).sum(dim=-1)
        return torch.where(now.seen > 0, torch.where(fresh, now.latest, guess), self.default.to(guess.dtype))

    @torch.no_grad()
    def fit(self, series: Iterable[Asked], interval: Tensor) -> None:
        """Initialise the mixture to the best one for training series, by least squares; training continues from it."""
        K = self.mixture.shape[1]
        gram = torch.diag_embed(torch.full_like(self.mixture, torch.finfo(self.mixture.dtype).tiny))
        for known, batch, targets, weights in series:
            assert batch.query_times is not None
            now = known.at(rows_until(batch.times, batch.lengths, batch.query_times))
            error = self._choices(known, now, batch, interval) - targets[..., None]
            weights = torch.where(now.seen > 0, weights, 0)
            gram += torch.einsum("bnck,bncl,bnc->ckl", error, error, weights.to(error.dtype))
        gram = gram / gram.diagonal(dim1=-2, dim2=-1).amax(dim=-1)[:, None, None]
        share = torch.full_like(self.mixture, 1 / K)
        for _ in range(STEPS):  # exponentiated gradient descent, which keeps shares positive with sum 1
            share = share * torch.exp(-2 * (gram @ share[..., None])[..., 0])
            share = share / share.sum(dim=-1, keepdim=True)
        self.mixture.copy_(torch.log(share.clamp(min=LEAST)) / GAIN)

    def _choices(self, known: Known, now: Known, batch: IrregularBatch, interval: Tensor) -> Tensor:
        """(B, N, C, 4)"""
        means = [self._mean(known, now, batch, span * interval.to(now.time.dtype)) for span in SPANS]
        return torch.stack([now.latest, *means, now.mean], dim=-1)

    def _mean(self, known: Known, now: Known, batch: IrregularBatch, span: Tensor) -> Tensor:
        """(B, N, C) mean of the values observed within a span before the latest value"""
        B, N, C = now.time.shape
        begins = torch.where(now.seen > 0, now.time - span, -1.0)
        before = rows_until(batch.times, batch.lengths, begins.flatten(1)).reshape(B, N, C)
        total, seen = (
            now_ - then.gather(1, before) for now_, then in ((now.total, known.total), (now.seen, known.seen))
        )
        return (total / seen.clamp(min=1)).to(now.latest.dtype)
