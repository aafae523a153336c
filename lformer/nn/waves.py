"""Wave: the sine that fits a channel of a series best, its period estimated in each series, and how far to trust it.

    wave(t) = level + a cos 2πft + b sin 2πft,        f = argmax of the variance that it explains

A periodogram by least squares, which takes uneven times as they are (Lomb and Scargle), on a grid of frequencies, then
parabolas through its peak. How far to trust a wave is asked of the series itself: each observation is predicted from
the others, by the wave and by the line between its neighbours, and the two errors are compared.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from lformer.ops.checks import exact_dtype, exporting

FINE = 4  # frequencies within the width of a peak
CLOSER = (0.1, 0.02)  # cycles, between the points that a frequency is refined by
LOWEST = 0.75  # cycles in a series: a slower wave is a trend
MOST = 48  # cycles in a series at most, unless said
SHARE = 0.4  # cycles per observation at most
RIDGE = 1e-3  # of the unit mean square of a regressor, in observations
SLOWER = 1e-6  # by which share a wave must explain more for each cycle it has more, so that no tie is left to rounding
OWN = 0.1  # of what is said of an observation, the share that the others have at least
LEAST = 1e-6  # mean squared error of what is predicted without fail
PIECE = 64  # frequencies at a time
FEW = 6  # observations that can be compared, below which there is no wave


class Wave(NamedTuple):
    """Of each series and channel, (B, C)."""

    span: Tensor  # (B,) of the observations of a series
    frequency: Tensor  # cycles per span
    coefficients: Tensor  # (B, C, 3) level, cosine, sine
    trust: Tensor  # half the logarithm of the mean squared error of the line over that of the wave; -inf for no wave
    share: Tensor  # of the sum of squares about the mean, what it explains; NaN for few observations or only equal ones

    def at(self, times: Tensor) -> Tensor:
        """(B, N) -> (B, N, C)"""
        phase = (times.to(self.span.dtype) / self.span[:, None])[..., None]
        return (_regressors(phase, self.frequency) * self.coefficients[:, None]).sum(dim=-1)


@torch.no_grad()
def fit_wave(values: Tensor, observed: Tensor, times: Tensor, line: Tensor, most: int = MOST) -> Wave:
    """The best wave of each channel, in float64 where there is: which peak is the greatest is no matter of rounding.

    Args:
        values: (B, L, C), 0 where nothing was observed.
        observed: (B, L, C) bool, False on padding.
        times: (B, L) since the start of the series.
        line: (B, L, C) what the neighbours of each observation say of it; NaN where it has none on either side.
        most: cycles in a series.
    """
    B, L, C = values.shape
    dtype = exact_dtype(values.device)
    if L == 0:
        nothing = values.new_zeros(B, C, dtype=dtype)
        return Wave(nothing.new_ones(B), nothing, nothing.new_zeros(B, C, 3), nothing - math.inf, nothing + math.nan)
    values, times, seen, some = values.to(dtype), times.to(dtype), observed.to(dtype), observed.any(dim=2)
    span = torch.where(some, times, 0).amax(dim=1)
    span = torch.where(span > 0, span, 1)
    phase = torch.where(some, times / span[:, None], 0)  # 0 … 1
    count = seen.sum(dim=1)
    mean = values.sum(dim=1) / count.clamp(min=1)
    rest = torch.where(observed, values - mean[:, None], 0)
    grid = LOWEST + torch.arange(FINE * cycles_in(L, most) + 2, device=values.device, dtype=dtype) / FINE  # (K,)
    power = _power(phase, seen, rest, count, grid)
    power = torch.where(grid <= (SHARE * count).clamp(max=most)[..., None], power, 0)
    frequency = _refined(phase, seen, rest, _peak(power * (1 - SLOWER * grid), grid))
    coefficients, hat = _fitted(phase, seen, rest, frequency)
    said = (_regressors(phase[..., None], frequency) * coefficients[:, None]).sum(dim=-1)
    compared = observed & torch.isfinite(line)
    by_line = torch.where(compared, values - line.to(dtype), 0).square().sum(dim=1)
    by_wave = torch.where(compared, (rest - said) / (1 - hat).clamp(min=OWN), 0).square().sum(dim=1)
    least = LEAST * compared.sum(dim=1)
    trust = torch.log((by_line + least) / (by_wave + least).clamp(min=torch.finfo(dtype).tiny)) / 2
    total = rest.square().sum(dim=1)
    differ = (count >= FEW) & (total > LEAST * count)
    share = torch.where(differ, (said * rest).sum(dim=1) / torch.where(differ, total, 1), math.nan)
    coefficients = torch.cat([coefficients[..., :1] + mean[..., None], coefficients[..., 1:]], dim=-1)
    return Wave(span, frequency, coefficients, torch.where(compared.sum(dim=1) >= FEW, trust, -math.inf), share)


def cycles_in(rows: int, most: int) -> int:
    """At most, in a series of so many rows; while exporting, their number is a symbol, and it is the most of all."""
    return most if exporting() else max(1, min(most, math.ceil(SHARE * rows)))


def _power(phase: Tensor, seen: Tensor, rest: Tensor, count: Tensor, grid: Tensor) -> Tensor:
    """(B, C, K) the sum of squares that a wave of each frequency explains; the grid is regular, so angles are added"""
    cos_step, sin_step = _circle(phase, grid[:PIECE] - grid[0])
    n = count.clamp(min=1)[..., None]
    by_channel, rest = seen.transpose(1, 2), rest.transpose(1, 2)
    found = []
    for piece in grid.split(PIECE):
        cos_first, sin_first = _circle(phase, piece[:1])
        cos = cos_first * cos_step[..., : len(piece)] - sin_first * sin_step[..., : len(piece)]  # (B, L, K)
        sin = sin_first * cos_step[..., : len(piece)] + cos_first * sin_step[..., : len(piece)]
        c, s, cc, cs = (by_channel @ x for x in (cos, sin, cos * cos, cos * sin))
        moment_c, moment_s = rest @ cos, rest @ sin
        vcc, vss, vcs = cc - c * c / n + RIDGE, (n - cc) - s * s / n + RIDGE, cs - c * s / n
        det = (vcc * vss - vcs * vcs).clamp(min=RIDGE * RIDGE)
        found.append((moment_c.square() * vss + moment_s.square() * vcc - 2 * moment_c * moment_s * vcs) / det)
    return torch.cat(found, dim=2)


def _circle(phase: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """(B, L, K) cosine and sine of each frequency at each moment"""
    angle = 2 * math.pi * phase[..., None] * frequencies
    return torch.cos(angle), torch.sin(angle)


def _peak(power: Tensor, grid: Tensor) -> Tensor:
    """(B, C) where a parabola through the greatest power and its neighbours is greatest"""
    best = power.argmax(dim=2, keepdim=True).clamp(1, len(grid) - 2)
    return grid[best[..., 0]] + _top(*(power.gather(2, best + step)[..., 0] for step in (-1, 0, 1))) / FINE


def _refined(phase: Tensor, seen: Tensor, rest: Tensor, frequency: Tensor) -> Tensor:
    """(B, C) closer to the top of the power, by parabolas through ever closer points"""
    for step in CLOSER:
        found = [_explained(phase, seen, rest, frequency + side * step) for side in (-1, 0, 1)]
        frequency = frequency + step * _top(*found)
    return frequency


def _top(left: Tensor, middle: Tensor, right: Tensor) -> Tensor:
    """Where a parabola through three points at -1, 0 and 1 is greatest, within these; 0 if it has no top"""
    bend = left - 2 * middle + right
    return torch.where(bend < 0, 0.5 * (left - right) / torch.where(bend < 0, bend, 1), 0).clamp(-1, 1)


def _explained(phase: Tensor, seen: Tensor, rest: Tensor, frequency: Tensor) -> Tensor:
    """(B, C) the sum of squares that a wave of a frequency explains"""
    coefficients, _ = _fitted(phase, seen, rest, frequency)
    return (coefficients * torch.einsum("blci,blc->bci", _regressors(phase[..., None], frequency), rest)).sum(dim=-1)


def _regressors(phase: Tensor, frequency: Tensor) -> Tensor:
    """(B, N, 1), (B, C) -> (B, N, C, 3)"""
    angle = 2 * math.pi * phase * frequency[:, None]
    return torch.stack([torch.ones_like(angle), torch.cos(angle), torch.sin(angle)], dim=-1)


def _fitted(phase: Tensor, seen: Tensor, rest: Tensor, frequency: Tensor) -> tuple[Tensor, Tensor]:
    """(B, C, 3) by least squares, and (B, L, C) how much each observation counts in what is said of itself"""
    x = _regressors(phase[..., None], frequency)
    weighted = x * seen[..., None]
    gram = torch.einsum("blci,blcj->bcij", weighted, x) + RIDGE * torch.eye(3, device=x.device, dtype=x.dtype)
    inverse = _inverse(gram)
    moment = torch.einsum("blci,blc->bci", x, rest)
    hat = torch.einsum("blci,bcij,blcj->blc", x, inverse, x)
    return torch.einsum("bcij,bcj->bci", inverse, moment), hat


def _inverse(m: Tensor) -> Tensor:
    """(..., 3, 3) by cofactors: no call of a solver, which would wait for the device"""
    a, b, c = m.unbind(dim=-2)
    rows = torch.stack([torch.linalg.cross(b, c), torch.linalg.cross(c, a), torch.linalg.cross(a, b)], dim=-1)
    det = (a * rows[..., 0]).sum(dim=-1)
    return rows / det[..., None, None]
