"""Wave: the best-fitting sinusoid of each channel of a series, with its frequency, and how far to trust it.

    wave(t) = level + a cos 2πft + b sin 2πft,        f = argmax of the variance that it explains

The frequency comes from a least-squares periodogram, which handles uneven times (Lomb and Scargle), on a grid, refined
by fitting parabolas to its peak. The trust in a wave is estimated from the series itself: each observation is predicted
from the others, by the wave and by linear interpolation between its neighbours, and the two errors are compared.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from lformer.ops.checks import exact_dtype, exporting

FINE = 4  # frequencies within the width of a peak
CLOSER = (0.1, 0.02)  # steps of the refinement of a frequency, in cycles
LOWEST = 0.75  # minimum number of cycles in a series: a slower wave is a trend
MOST = 48  # default maximum number of cycles in a series
SHARE = 0.4  # maximum number of cycles per observation
RIDGE = 1e-3  # ridge of the regression, in observations with unit mean square
SLOWER = 1e-6  # relative penalty on each cycle, so that ties are not decided by rounding
OWN = 0.1  # lower bound on the weight of the other observations in the prediction of an observation
LEAST = 1e-6  # lower bound on a mean squared error
PIECE = 64  # frequencies computed at a time
FEW = 6  # minimum number of observations that can be compared; below, there is no wave


class Wave(NamedTuple):
    """The wave of each series and channel, (B, C)."""

    span: Tensor  # (B,) time span of the observations of a series
    frequency: Tensor  # cycles per span
    coefficients: Tensor  # (B, C, 3) level, cosine, sine
    trust: Tensor  # half the logarithm of the mean squared error of the line over that of the wave; -inf for no wave
    share: Tensor  # share of the variance that it explains; NaN if there are few observations, or all are equal

    def at(self, times: Tensor) -> Tensor:
        """(B, N) -> (B, N, C)"""
        phase = (times.to(self.span.dtype) / self.span[:, None])[..., None]
        return (_regressors(phase, self.frequency) * self.coefficients[:, None]).sum(dim=-1)


@torch.no_grad()
def fit_wave(values: Tensor, observed: Tensor, times: Tensor, line: Tensor, most: int = MOST) -> Wave:
    """The best wave of each channel, in float64 if available, so that rounding does not decide between peaks.

    Args:
        values: (B, L, C), 0 where nothing was observed.
        observed: (B, L, C) bool, False on padding.
        times: (B, L) since the start of the series.
        line: (B, L, C) linear interpolation between the neighbours of each observation; NaN if one is missing.
        most: maximum number of cycles in a series.
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
    """Maximum number of cycles for a number of rows; during export, where that is symbolic, the overall maximum."""
    return most if exporting() else max(1, min(most, math.ceil(SHARE * rows)))


def _power(phase: Tensor, seen: Tensor, rest: Tensor, count: Tensor, grid: Tensor) -> Tensor:
    """(B, C, K) the sum of squares that a wave of each frequency explains; angles are added, as the grid is regular"""
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
    """(B, L, K) cosine and sine for each frequency and moment"""
    angle = 2 * math.pi * phase[..., None] * frequencies
    return torch.cos(angle), torch.sin(angle)


def _peak(power: Tensor, grid: Tensor) -> Tensor:
    """(B, C) the maximum of a parabola through the greatest power and its neighbours"""
    best = power.argmax(dim=2, keepdim=True).clamp(1, len(grid) - 2)
    return grid[best[..., 0]] + _top(*(power.gather(2, best + step)[..., 0] for step in (-1, 0, 1))) / FINE


def _refined(phase: Tensor, seen: Tensor, rest: Tensor, frequency: Tensor) -> Tensor:
    """(B, C) closer to the maximum of the power, by parabolas through points ever closer together"""
    for step in CLOSER:
        found = [_explained(phase, seen, rest, frequency + side * step) for side in (-1, 0, 1)]
        frequency = frequency + step * _top(*found)
    return frequency


def _top(left: Tensor, middle: Tensor, right: Tensor) -> Tensor:
    """The position of the maximum of a parabola through points at -1, 0 and 1, within these; 0 if it has none"""
    bend = left - 2 * middle + right
    return torch.where(bend < 0, 0.5 * (left - right) / torch.where(bend < 0, bend, 1), 0).clamp(-1, 1)


def _explained(phase: Tensor, seen: Tensor, rest: Tensor, frequency: Tensor) -> Tensor:
    """(B, C) the sum of squares that a wave with this frequency explains"""
    coefficients, _ = _fitted(phase, seen, rest, frequency)
    return (coefficients * torch.einsum("blci,blc->bci", _regressors(phase[..., None], frequency), rest)).sum(dim=-1)


def _regressors(phase: Tensor, frequency: Tensor) -> Tensor:
    """(B, N, 1), (B, C) -> (B, N, C, 3)"""
    angle = 2 * math.pi * phase * frequency[:, None]
    return torch.stack([torch.ones_like(angle), torch.cos(angle), torch.sin(angle)], dim=-1)


def _fitted(phase: Tensor, seen: Tensor, rest: Tensor, frequency: Tensor) -> tuple[Tensor, Tensor]:
    """(B, C, 3) by least squares, and (B, L, C) the leverage: the weight of each observation in its own prediction"""
    x = _regressors(phase[..., None], frequency)
    weighted = x * seen[..., None]
    gram = torch.einsum("blci,blcj->bcij", weighted, x) + RIDGE * torch.eye(3, device=x.device, dtype=x.dtype)
    inverse = _inverse(gram)
    moment = torch.einsum("blci,blc->bci", x, rest)
    hat = torch.einsum("blci,bcij,blcj->blc", x, inverse, x)
    return torch.einsum("bcij,bcj->bci", inverse, moment), hat


def _inverse(m: Tensor) -> Tensor:
    """(..., 3, 3) by cofactors, without a solver, which would synchronise with the device"""
    a, b, c = m.unbind(dim=-2)
    rows = torch.stack([torch.linalg.cross(b, c), torch.linalg.cross(c, a), torch.linalg.cross(a, b)], dim=-1)
    det = (a * rows[..., 0]).sum(dim=-1)
    return rows / det[..., None, None]
