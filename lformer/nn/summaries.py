"""SummaryHead: what answers per series owe to the mean, the range and the like of each channel, whenever values came.

    answer = head(rows) + mlp(latest, mean, least, greatest, deviation, change and count of each channel, covariates)

What a tree or a linear model would be given. The rows could teach it to a head, but of many channels a few numbers per
row hold little, and few series teach less. All of it is running: a stream keeps (B, C) numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from lformer.nn.dropout import Dropout
from lformer.nn.known import Known
from lformer.nn.waves import cycles_in, fit_wave
from lformer.ops.checks import exporting

FAR = 5.0  # deviations beyond which a value says no more
FEATURES = 8
IN_TABLE = 7  # all but whether there were any, which a table says by NaN
OF_WAVES = 4  # of the values and of their changes: how fast the wave is, and how much it explains
CYCLES = 128  # of a wave in a table at most: heart beats of a minute
AT_ONCE = 2**21  # numbers of a periodogram


class Seen(NamedTuple):
    """What summaries need of each channel beyond what is `Known`: (B, C)."""

    first: Tensor  # 0 if there is none
    least: Tensor  # inf if there is none
    greatest: Tensor
    squares: Tensor  # sum of the squares, as exact as the sum of the values


def nothing_seen(known: Known) -> Seen:
    """Before the first row of series of which nothing is known, (B, C)."""
    none = torch.zeros_like(known.latest)
    return Seen(none, none + torch.inf, none - torch.inf, torch.zeros_like(known.total))


def see(values: Tensor, observed: Tensor, before: Seen) -> Seen:
    """(B, L, C) values, 0 where nothing was observed, and what was -> (B, C) after the last row"""
    if values.shape[1] == 0:
        return before
    L, rows = values.shape[1], torch.arange(values.shape[1], device=values.device)[:, None]
    earliest = torch.where(observed, rows, L - 1).amin(dim=1, keepdim=True)  # 0 is held where nothing was observed
    squares = torch.where(observed, values, 0).to(before.squares.dtype).square()
    return Seen(
        first=torch.where(torch.isfinite(before.least), before.first, values.gather(1, earliest).squeeze(1)),
        least=torch.minimum(before.least, torch.where(observed, values, torch.inf).amin(dim=1)),
        greatest=torch.maximum(before.greatest, torch.where(observed, values, -torch.inf).amax(dim=1)),
        squares=before.squares + squares.sum(dim=1),
    )


class SummaryHead(nn.Module):
    """What is known of each channel, and static covariates -> what is added to the answer (B, O).

    Args:
        channels: C.
        statics: S.
        width: of the hidden layer.
        outputs: O.
        dropout: in training, share of the summaries and of the hidden numbers set to 0.
    """

    def __init__(self, channels: int, statics: int, width: int, outputs: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.added = nn.Sequential(
            Dropout(dropout),
            nn.Linear(FEATURES * channels + statics, width),
            nn.ReLU(),
            Dropout(dropout),
            nn.Linear(width, outputs),
        )

    def forward(self, known: Known, seen: Seen, static: Tensor | None) -> Tensor:
        """(B, C), (B, C), (B, S) -> (B, O)"""
        dtype, some = known.latest.dtype, known.seen > 0
        parts = [torch.where(some, x, 0).to(dtype).clamp(-FAR, FAR) for x in about(known, seen)]
        parts += [torch.log1p(known.seen).to(dtype), some.to(dtype)]
        if static is not None:
            parts.append(static.to(dtype))
        return self.added(torch.cat(parts, dim=1))


def about(known: Known, seen: Seen) -> list[Tensor]:
    """Latest, mean, least, greatest, deviation and change of each channel, (B, C) each; anything where none was seen"""
    count = known.seen.clamp(min=1)
    mean = known.total / count
    variance = seen.squares / count - mean.square()
    spread = variance > 0  # of a single value it is 0, where a root has no gradient
    deviation = torch.where(spread, torch.where(spread, variance, 1).sqrt(), 0)
    return [known.latest, mean, seen.least, seen.greatest, deviation, known.latest - seen.first]


def table(known: Known, seen: Seen, static: Tensor | None, waves: Tensor | None) -> Tensor:
    """(B, W) what `Trees` are given: the same numbers without bounds, NaN where none was seen, and counts

    Args:
        known, seen: (B, C) after the last row.
        static: (B, S) covariates.
        waves: (B, 4 C) from `about_waves`, if they are asked for; the last columns of the table.
    """
    parts = [torch.where(known.seen > 0, x, torch.nan) for x in about(known, seen)]
    others = (x for x in (static, waves) if x is not None)
    return torch.cat([x.float() for x in (*parts, known.seen, *others)], dim=1)


def table_width(channels: int, statics: int, waves: bool) -> int:
    """W of a table.

    Example:
        >>> table_width(3, 1, waves=True), table_width(3, 1, waves=False)
        (34, 22)
    """
    return (IN_TABLE + OF_WAVES * waves) * channels + statics


def about_waves(values: Tensor, observed: Tensor, times: Tensor, before: Known) -> Tensor:
    """(B, 4 C) frequency of the best wave of each channel, per unit of time, and the share of the variance it explains;
    then the same of what changed since the observation before, where a slow drift does not hide a fast wave

    NaN where a channel has no wave. A heart rate, a tide, a pulsating star: none of it is in the mean or the range.

    Args:
        values: (B, L, C), 0 where nothing was observed.
        observed: (B, L, C) bool, False on padding.
        times: (B, L) since the start of the series.
        before: (B, L, C) what was known before each row.
    """
    follows = observed & torch.isfinite(before.time)
    changes = torch.where(follows, values - before.latest, 0)
    return torch.cat([_in_pieces(values, observed, times), _in_pieces(changes, follows, times)], dim=1)


def _in_pieces(values: Tensor, observed: Tensor, times: Tensor) -> Tensor:
    """(B, 2 C), of so many series at a time that memory is bounded"""
    if exporting():  # a number of pieces cannot depend on the data
        return _wave(values, observed, times)
    L, C = values.shape[1:]
    at_once = max(1, AT_ONCE // max(1, L * max(C, cycles_in(L, CYCLES))))
    pieces = zip(*(x.split(at_once) for x in (values, observed, times)), strict=True)
    return torch.cat([_wave(*piece) for piece in pieces])


def _wave(values: Tensor, observed: Tensor, times: Tensor) -> Tensor:
    wave = fit_wave(values, observed, times, line=torch.full_like(values, torch.nan), most=CYCLES)
    pace = torch.where(torch.isnan(wave.share), torch.nan, wave.frequency / wave.span[:, None])
    return torch.cat([pace, wave.share], dim=1)
