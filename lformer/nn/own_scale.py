"""OwnScale: each series in units of its own level, spread and season, so that large and small series share one model.

    x' = (x - level) / spread - season(t),        prediction = level + spread · (prediction' + season(t))

Level and spread are the mean and the standard deviation of the observed values of the series, after clipping extreme
ones; the spread is shrunk towards that of a typical series if there are few values. The season is included if rows have
marks, see `Season`. All of it needs the whole series, so it is not available in causal models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from lformer.nn.season import Observations, Season

SHRINK = 3.0  # weight of the typical spread in the shrinkage, in observations
LEAST = 1e-3  # spread of a constant series, relative to the typical one
FAR = 10.0  # values are clipped at this distance from the median, in spreads of the middle half or of a typical series
ROUNDING = 1e-5  # values that differ by less are equal; in standard deviations of training
STEADIEST = 0.02  # lower bound on the spread for prediction intervals, relative to the typical one
HALF = 1.349  # interquartile range of a normal distribution, in standard deviations


class OwnConfig(Protocol):
    """The settings that decide whether series can be on their own scale."""

    @property
    def inputs(self) -> int: ...
    @property
    def outputs(self) -> int: ...
    @property
    def answer(self) -> str: ...
    @property
    def causal(self) -> bool: ...
    @property
    def embedder(self) -> str: ...


def check_own_scale(config: OwnConfig) -> None:
    """Raise if series cannot be on their own scale."""
    if config.causal:
        raise ValueError(
            "series_scale=True reads the whole series to determine its level and spread, which a causal model, as "
            "streaming needs it, must not. Use series_scale=False."
        )
    if config.answer == "series" or config.outputs != config.inputs or config.embedder == "frames":
        raise ValueError(
            "series_scale=True scales predictions like the channels, so the model must predict per step or "
            f"query with as many outputs as inputs; got answer={config.answer!r}, {config.outputs} outputs and "
            f"{config.inputs} inputs."
        )


class Own(NamedTuple):
    """The scaling of each series, by channel."""

    level: Tensor  # (B, C)
    spread: Tensor  # (B, C)
    size: Tensor  # (B, C) logarithm of the spread, 0 for a typical one
    waves: Tensor | None  # (B, C, M) the season, as weights of the marks; None if there are no marks
    low: Tensor  # (B, C) bounds of the values
    high: Tensor

    def season(self, marks: Tensor | None) -> Tensor | None:
        """(B, N, M) -> (B, N, C), in units of the spread"""
        if self.waves is None or marks is None:
            return None
        return torch.einsum("bnm,bcm->bnc", marks.to(self.waves.dtype), self.waves)

    def remove(self, values: Tensor, observed: Tensor, marks: Tensor | None) -> Tensor:
        """(B, L, C) in units of the series, 0 where nothing was observed"""
        inner = values.clamp(self.low[:, None], self.high[:, None])
        own, season = (inner - self.level[:, None]) / self.spread[:, None], self.season(marks)
        return torch.where(observed, own if season is None else own - season, 0)

    def restore(self, answers: Tensor, marks: Tensor | None) -> Tensor:
        """(B, N, C) back in the original units of the values"""
        season = self.season(marks)
        return self.level[:, None] + self.spread[:, None] * (answers if season is None else answers + season)

    def features(self, moments: int, marks: Tensor | None) -> list[Tensor]:
        """(B, N, ...) level and spread of the series, and its season at N moments"""
        told = torch.cat([torch.asinh(self.level), self.size], dim=1)[:, None].expand(-1, moments, -1)
        season = self.season(marks)
        return [told] if season is None else [told, season]


class OwnScale(nn.Module):
    """Values, observed and marks -> `Own`.

    Args:
        channels: C.
        marks: M; without marks there is no season.

    The `typical` spread (C,) of a series is fitted and stored in a buffer.
    """

    def __init__(self, channels: int, marks: int = 0) -> None:
        super().__init__()
        self.channels = channels
        self.season = Season(channels, marks) if marks else None
        self.typical: Tensor
        self.register_buffer("typical", torch.ones(channels))

    @property
    def width(self) -> int:
        """Number of features that `Own.features` adds to a row."""
        return self.channels * (2 if self.season is None else 3)

    def forward(self, values: Tensor, observed: Tensor, marks: Tensor | None) -> Own:
        """(B, L, C), (B, L, C), (B, L, M)"""
        low, high = self.bounds(values, observed)
        level, deviation, count = moments(values.clamp(low[:, None], high[:, None]), observed)
        typical, known = self.typical.to(values.dtype), (count - 1).clamp(min=0)
        size = torch.log((deviation / typical).clamp(min=LEAST)) * known / (known + SHRINK)
        own = Own(level, typical * torch.exp(size), size, None, low, high)
        if self.season is None:
            return own
        assert marks is not None
        given = Observations(own.remove(values, observed, None), observed, marks.to(values.dtype))
        return own._replace(waves=self.season(given))

    def deviation(self, own: Own) -> Tensor:
        """(B, C) the standard deviation assumed in prediction intervals: the spread, with a lower bound"""
        return torch.maximum(own.spread, STEADIEST * self.typical)

    def bounds(self, values: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C) twice, the bounds beyond which a value of the series is considered an outlier"""
        low, middle, high = quartiles(values, observed)
        reach = FAR * torch.maximum((high - low) / HALF, self.typical.to(values.dtype))
        return middle - reach, middle + reach

    @torch.no_grad()
    def fit(self, series: Sequence[tuple[Tensor, Tensor, Tensor | None]]) -> None:
        """Fit the typical spread, the median over training series, and the seasons; series as in `forward`."""
        found = [moments(values, observed)[1:] for values, observed, _ in series]
        for c in range(self.channels):
            seen = torch.cat([deviation[count[:, c] > 1, c] for deviation, count in found])
            seen = seen[seen > ROUNDING]
            self.typical[c] = seen.median() if seen.numel() else 1.0
        if self.season is not None:
            given = []
            for values, observed, marks in series:
                assert marks is not None
                own = self(values, observed, marks)._replace(waves=None)
                given.append(Observations(own.remove(values, observed, None), observed, marks.to(values.dtype)))
            self.season.fit(given)


def quartiles(values: Tensor, observed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(B, L, C) -> (B, C) lower quartile, median and upper quartile of the observed values; 0 if there are none"""
    B, L, C = values.shape
    count = observed.sum(dim=1, keepdim=True)
    if L == 0:
        zero = values.new_zeros(B, C)
        return zero, zero, zero
    ordered = torch.where(observed, values, torch.inf).sort(dim=1).values
    found = [ordered.gather(1, ((count - 1).clamp(min=0) * share).round().long())[:, 0] for share in (0.25, 0.5, 0.75)]
    low, middle, high = (torch.where(count[:, 0] > 0, one, 0) for one in found)
    return low, middle, high


def moments(values: Tensor, observed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(B, L, C) -> (B, C) mean, standard deviation and count of the observed values; 0 if there are none"""
    count = observed.sum(dim=1).to(values.dtype)
    some = count.clamp(min=1)
    mean = torch.where(observed, values, 0).sum(dim=1) / some
    square = torch.where(observed, values - mean[:, None], 0).square().sum(dim=1) / some
    return mean, square.sqrt(), count
