"""SummaryHead: the contribution of summary features (mean, range etc. of each channel) to predictions per series.

    prediction = head(rows) + mlp(latest, mean, least, greatest, deviation, change and count per channel, covariates)

These are the features that one would give a tree or a linear model. A head could learn them from the rows, but with
many channels a row has few numbers for each, and with few series it does not. All features are running: a stream keeps
(B, C) numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from lformer.nn.dropout import Dropout
from lformer.nn.known import Known
from lformer.nn.waves import cycles_in, fit_wave
from lformer.ops.checks import exporting

FAR = 5.0  # features are clipped at this many standard deviations
FEATURES = 8
IN_TABLE = 7  # all features except whether there were values, which a table shows by NaN
OF_WAVES = 4  # for the values and for their changes: frequency of the wave, and share of variance it explains
CYCLES = 128  # maximum number of cycles of a wave in a table: the heart beats of a minute
AT_ONCE = 2**21  # numbers in a periodogram


class Seen(NamedTuple):
    """What summaries need of each channel in addition to `Known`: (B, C)."""

    first: Tensor  # 0 if there is none
    least: Tensor  # inf if there is none
    greatest: Tensor
    squares: Tensor  # sum of the squares, in the precision of the sum of the values


def nothing_seen(known: Known) -> Seen:
    """The value before the first row of series, (B, C)."""
    none = torch.zeros_like(known.latest)
    return Seen(none, none + torch.inf, none - torch.inf, torch.zeros_like(known.total))


def see(values: Tensor, observed: Tensor, before: Seen) -> Seen:
    """(B, L, C) values, 0 where nothing was observed, and observed -> (B, C) after the last row"""
    if values.shape[1] == 0:
        return before
    L, rows = values.shape[1], torch.arange(values.shape[1], device=values.device)[:, None]
    earliest = torch.where(observed, rows, L - 1).amin(dim=1, keepdim=True)  # values are 0 where nothing was observed
    squares = torch.where(observed, values, 0).to(before.squares.dtype).square()
    return Seen(
        first=torch.where(torch.isfinite(before.least), before.first, values.gather(1, earliest).squeeze(1)),
        least=torch.minimum(before.least, torch.where(observed, values, torch.inf).amin(dim=1)),
        greatest=torch.maximum(before.greatest, torch.where(observed, values, -torch.inf).amax(dim=1)),
        squares=before.squares + squares.sum(dim=1),
    )


class SummaryHead(nn.Module):
    """What is known of each channel, and static covariates -> contribution to the prediction (B, O).

    Args:
        channels: C.
        statics: S.
        width: of the hidden layer.
        outputs: O.
        dropout: dropout rate of the features and of the hidden layer.
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
    """Latest, mean, least, greatest, deviation and change of each channel, (B, C) each; arbitrary without values"""
    count = known.seen.clamp(min=1)
    mean = known.total / count
    variance = seen.squares / count - mean.square()
    spread = variance > 0  # it is 0 for a single value, where the square root has no gradient
    deviation = torch.where(spread, torch.where(spread, variance, 1).sqrt(), 0)
    return [known.latest, mean, seen.least, seen.greatest, deviation, known.latest - seen.first]


def table(known: Known, seen: Seen, static: Tensor | None, waves: Tensor | None) -> Tensor:
    """(B, W) features for `Trees`: the same without clipping, NaN for channels without values, and counts

    Args:
        known, seen: (B, C) after the last row.
        static: (B, S) static covariates.
        waves: (B, 4 C) from `about_waves`, if used; the last columns of the table.
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
    """(B, 4 C) features of the best-fitting sinusoid of each channel, NaN where there is none.

    They are its frequency, per unit of time, and the share of the variance it explains; then the same for the changes
    since the previous observation, in which a slow drift does not hide a fast wave. A heart rate, a tide or a pulsating
    star does not show in the mean or the range.

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
    """(B, 2 C), computed for a few series at a time to bound memory"""
    if exporting():  # in a graph, the number of pieces cannot depend on the data
        return _wave(values, observed, times)
    L, C = values.shape[1:]
    at_once = max(1, AT_ONCE // max(1, L * max(C, cycles_in(L, CYCLES))))
    pieces = zip(*(x.split(at_once) for x in (values, observed, times)), strict=True)
    return torch.cat([_wave(*piece) for piece in pieces])


def _wave(values: Tensor, observed: Tensor, times: Tensor) -> Tensor:
    wave = fit_wave(values, observed, times, line=torch.full_like(values, torch.nan), most=CYCLES)
    pace = torch.where(torch.isnan(wave.share), torch.nan, wave.frequency / wave.span[:, None])
    return torch.cat([pace, wave.share], dim=1)
