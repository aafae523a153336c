"""Answers that say how sure they are: a normal distribution, or quantiles that cannot cross.

A model answers each target with several numbers, in blocks of as many as there are targets. The first block is the
point answer, whatever the kind:

    "point"      the mean
    "gaussian"   mean, deviation
    "quantiles"  median, then the quantiles at the other `LEVELS`, in ascending order

All of this is exact under a change of units, and none of it needs to know a unit.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Literal

import torch
from torch import Tensor

Distribution = Literal["point", "gaussian", "quantiles"]

BELOW = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4)
LEVELS = (*BELOW, 0.5, *(round(1 - level, 3) for level in reversed(BELOW)))
OTHERS = tuple(level for level in LEVELS if level != 0.5)  # those of the blocks after the first
NUMBERS: dict[Distribution, int] = {"point": 1, "gaussian": 2, "quantiles": len(LEVELS)}  # blocks of each kind
LEAST = 1e-3  # deviation, or distance between two levels, in the units of the model: a likelihood stays finite


def from_raw(kind: Distribution, location: Tensor, raw: Tensor, size: Tensor | None = None) -> Tensor:
    """A distribution from any numbers: distances are positive by construction, so that no quantiles cross.

    Args:
        kind: of the distribution.
        location: (..., O) mean or median.
        raw: (..., (P - 1) O) any numbers; 0 stands for those of a standard normal distribution.
        size: (..., O) of a unit of the distances, in that of the location; 1 if None.

    Returns:
        (..., P O)

    Example:
        >>> [round(x, 4) for x in from_raw("gaussian", torch.tensor([5.0]), torch.zeros(1)).tolist()]
        [5.0, 1.0]
        >>> told = from_raw("quantiles", torch.zeros(1, 1), 100 * torch.randn(1, 14))
        >>> bool((torch.cat([told[:, 1:8], told[:, :1], told[:, 8:]], dim=1).diff() > 0).all())
        True
    """
    outputs = location.shape[-1]
    if kind == "point":
        return location
    if kind == "gaussian":
        deviation = _positive(raw, 1.0)
        return torch.cat([location, deviation if size is None else deviation * size], dim=-1)
    K = len(BELOW)
    z = [NormalDist().inv_cdf(level) for level in (*reversed(BELOW), 0.5)]
    steps = [abs(z[k]) - abs(z[k - 1]) if k else abs(z[0]) for k in range(K)]  # from the median outwards
    below, above = raw.unflatten(-1, (2 * K, outputs)).split(K, dim=-2)
    distances = []
    for side in (below.flip(-2), above):  # nearest to the median first
        grown = [_positive(side[..., k, :], steps[k]) for k in range(K)]
        distances.append(torch.stack(grown, dim=-2).cumsum(dim=-2))
    offsets = torch.cat([-distances[0].flip(-2), distances[1]], dim=-2)
    if size is not None:
        offsets = offsets * size[..., None, :]
    return torch.cat([location, (location[..., None, :] + offsets).flatten(-2)], dim=-1)


def _positive(raw: Tensor, start: float) -> Tensor:
    """More than `LEAST`, and `start` where raw is 0."""
    zero = math.log(math.expm1(start - LEAST))  # softplus of this is start - LEAST
    return LEAST + torch.nn.functional.softplus(raw + zero)


def mixture(kind: Distribution, members: Tensor) -> Tensor:
    """(M, ..., P O) -> (..., P O), what several models say together.

    Of normal distributions, mean and deviation of their mixture: where members differ, they are less sure together than
    each is alone. Of quantiles and points the mean, which keeps quantiles in order.
    """
    mean = members.mean(dim=0)
    if kind != "gaussian":
        return mean
    means, deviations = members.chunk(2, dim=-1)
    center = mean[..., : means.shape[-1]]
    variance = deviations.square().mean(dim=0) + (means - center).square().mean(dim=0)
    return torch.cat([center, variance.sqrt()], dim=-1)


def in_units(kind: Distribution, answers: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """(..., P O) of x' -> (..., P O) of x = shift + scale x', both (O,); answers of one block are points."""
    blocks = answers.shape[-1] // scale.shape[-1]
    if kind == "gaussian" and blocks > 1:
        mean, deviation = answers.chunk(2, dim=-1)
        return torch.cat([shift + scale * mean, scale * deviation], dim=-1)
    if blocks == 1:
        return shift + scale * answers
    return (shift + scale * answers.unflatten(-1, (blocks, scale.shape[-1]))).flatten(-2)
