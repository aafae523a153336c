"""Persistence: predictions in the units of the inputs start from a simple guess, which the model corrects.

    "latest"   the latest value of each channel, moved by a learned share towards the mean so far
    "recent"   a learned mixture of the latest value, recent means and the mean so far, see `RecentMeans`
    "line"     linear interpolation between observations; the first value before the first, "latest" after the last
    "wave"     like "line", but a sinusoid for series whose observations it predicts better than their neighbours do

The guess at an observed entry is the observation itself.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from lformer.batch import IrregularBatch
from lformer.nn.known import Ahead, Known
from lformer.nn.query import rows_until
from lformer.nn.recent import RecentMeans
from lformer.nn.rows import Encoded
from lformer.nn.waves import Wave

PersistenceKind = Literal["none", "latest", "recent", "line", "wave"]
BETTER = 0.25  # trust at which a wave gets weight 1/2: the line then has 1.6 times its squared error
SHARP = 8.0


def along_line(guess: Tensor, now: Known, ahead: Ahead, times: Tensor) -> Tensor:
    """(B, N, C) linear interpolation, constant before the first observation; the guess after the last"""
    between = (now.seen > 0) & torch.isfinite(ahead.time)
    reach = torch.where(between, ahead.time - now.time, 1)  # inf - inf would be NaN
    way = torch.where(between, times[..., None] - now.time, 0) / reach.clamp(min=torch.finfo(reach.dtype).tiny)
    line = now.latest + way.clamp(0, 1).to(guess.dtype) * (ahead.value - now.latest)
    guess = torch.where(between, line, guess)
    return torch.where((now.seen == 0) & torch.isfinite(ahead.time), ahead.value, guess)


class Persistence(nn.Module):
    """The guess to which the model's output is added, (B, N, C).

    All parameters are learned, per channel: `share` moves the guess from the latest value towards the mean so far,
    `default` is the guess for channels that were never observed, and `threshold` is how much better than the line a
    wave must be to get half of the weight.
    """

    def __init__(self, channels: int, kind: PersistenceKind = "latest") -> None:
        super().__init__()
        self.kind = kind
        self.share = nn.Parameter(torch.zeros(channels))
        self.default = nn.Parameter(torch.zeros(channels))
        if kind == "wave":
            self.threshold = nn.Parameter(torch.full((channels,), BETTER))

    def forward(
        self, now: Known, observed: Tensor, times: Tensor, ahead: Ahead | None = None, wave: Wave | None = None
    ) -> Tensor:
        """The guess, without the model.

        Args:
            now: (B, N, C) what is known at each moment.
            observed: (B, N, C) bool, True where the latest value was observed at this very moment.
            times: (B, N) of the moments.
            ahead: (B, N, C) the next observations, if the future may be read, for linear interpolation.
            wave: for each series and channel, if it may replace the line.
        """
        moved = self.share * (now.mean - now.latest)
        guess = now.latest + torch.where(observed, 0, moved)
        guess = torch.where(now.seen > 0, guess, self.default)
        if ahead is not None:
            guess = along_line(guess, now, ahead, times)
        if wave is None:
            return guess
        share = torch.sigmoid(SHARP * (wave.trust.to(guess.dtype) - self.threshold))[:, None]
        return torch.where(observed, guess, guess + share * (wave.at(times).to(guess.dtype) - guess))


def start_from_guess(head: nn.Sequential, channels: int, kind: PersistenceKind = "latest") -> Persistence | RecentMeans:
    """Persistence for a model with this head, whose last layer is set to 0, so that training starts at the guess."""
    last = head[-1]
    assert isinstance(last, nn.Linear)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return RecentMeans(channels) if kind == "recent" else Persistence(channels, kind)


def guess(persistence: Persistence | RecentMeans, batch: IrregularBatch, encoded: Encoded, interval: Tensor) -> Tensor:
    """The guess at every row, (B, L, C), or at the query times, (B, Q, C).

    Args:
        persistence: of the model.
        batch: the series.
        encoded: its rows, with what is known at each.
        interval: (), the typical interval between rows.
    """
    known, ahead = encoded.known, encoded.ahead
    assert known is not None
    if isinstance(persistence, RecentMeans):
        return persistence(known, batch, interval)
    if persistence.kind == "latest":
        ahead = None
    if batch.query_times is None:
        observed = batch.observed & batch.valid[..., None]
        ahead = None if ahead is None else ahead.after_rows()
        return persistence(known.after_rows(), observed, batch.times, ahead, encoded.wave)
    count = rows_until(batch.times, batch.lengths, batch.query_times)
    now = known.at(count)
    fresh = now.time == batch.query_times[..., None]
    ahead = None if ahead is None else ahead.at(count)
    return persistence(now, fresh, batch.query_times, ahead, encoded.wave)
