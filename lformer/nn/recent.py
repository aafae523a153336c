"""Recent: answers start from a learned mixture of the latest value, recent means and the mean so far.

What is best hangs on the channel: of one that wanders the latest value, of one that is noisy a mean, and mostly
something between. The guess at an observed entry is the observation itself.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lformer.batch import IrregularBatch
from lformer.nn.known import Known
from lformer.nn.query import rows_until

SPANS = (8, 32)  # of recent means, in typical intervals between rows
GAIN = 10.0  # logits move as fast as they must in a short training


class Recent(nn.Module):
    """The guess that a model's answer is added to, (B, N, C).

    `mixture` (C, 4) says how much of it is the latest value, the means of the last 8 and 32 typical intervals and the
    mean so far, through a softmax; `default` (C,) is the guess for what was never observed. Both are learned.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mixture = nn.Parameter(torch.zeros(channels, len(SPANS) + 2))
        self.default = nn.Parameter(torch.zeros(channels))

    def forward(self, known: Known, batch: IrregularBatch, interval: Tensor) -> Tensor:
        """(B, L, C) at the rows, or (B, Q, C) at the queries.

        Args:
            known: (B, L + 1, C) before the first and after each row.
            batch: the series, and where answers are wanted.
            interval: (), a typical one.
        """
        if batch.query_times is None:
            now, fresh = known.after_rows(), batch.observed & batch.valid[..., None]
        else:
            now = known.at(rows_until(batch.times, batch.lengths, batch.query_times))
            fresh = now.time == batch.query_times[..., None]
        means = [self._mean(known, now, batch, span * interval.to(now.time.dtype)) for span in SPANS]
        choices = torch.stack([now.latest, *means, now.mean], dim=-1)  # (B, N, C, 4)
        guess = (choices * torch.softmax(GAIN * self.mixture, dim=-1).to(choices.dtype)).sum(dim=-1)
        return torch.where(now.seen > 0, torch.where(fresh, now.latest, guess), self.default.to(guess.dtype))

    def _mean(self, known: Known, now: Known, batch: IrregularBatch, span: Tensor) -> Tensor:
        """(B, N, C) of what was observed within a span before the latest value"""
        B, N, C = now.time.shape
        begins = torch.where(now.seen > 0, now.time - span, -1.0)
        before = rows_until(batch.times, batch.lengths, begins.flatten(1)).reshape(B, N, C)
        total, seen = (
            now_ - then.gather(1, before) for now_, then in ((now.total, known.total), (now.seen, known.seen))
        )
        return (total / seen.clamp(min=1)).to(now.latest.dtype)
