"""Season: the part of the values of a series that is linear in its marks, by ridge regression in closed form.

    season(t) = w · marks(t),    w = argmin Σ (x - level - w · marks)² + ridge / 2 · |w - shared|²

Each series and channel has its own `w`, which is shrunk towards a `w` shared by all series, in units of their spread,
if there are few observations. The strength is chosen on the training series: their first halves must predict the
second. The cost is linear in the length of a series, and no step synchronises with a device.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

# Weight of the shared season, in observations; the mean square of a sine is 1/2. With the last one, only it remains.
RIDGES = (3.0, 10.0, 30.0, 100.0, 1000.0, 1e6)
LEVEL = 1e-3  # ridge on the level, which is needed for series without observations


class Observations(NamedTuple):
    """The data to which a season is fitted."""

    values: Tensor  # (B, L, C), 0 where nothing was observed
    observed: Tensor  # (B, L, C) bool
    marks: Tensor  # (B, L, M)


class Season(nn.Module):
    """The season of each series and channel, as weights of its marks.

    What is fitted is stored in buffers: `shared` (C, M) in units of a series' spread, and `ridge` (C,).
    """

    def __init__(self, channels: int, marks: int) -> None:
        super().__init__()
        self.shared: Tensor
        self.ridge: Tensor
        self.register_buffer("shared", torch.zeros(channels, marks))
        self.register_buffer("ridge", torch.full((channels,), RIDGES[1]))

    def forward(self, given: Observations) -> Tensor:
        """(B, L, C) centred values in units of the spread of their series -> (B, C, M) weights"""
        return weights(given, self.shared.to(given.values.dtype), self.ridge)

    @torch.no_grad()
    def fit(self, series: Sequence[Observations]) -> None:
        """Choose the ridge of each channel, and fit the season that training series share."""
        halves = [_halves(given) for given in series]
        shared = common(first for first, _ in halves)
        errors = torch.stack([_foretold(halves, shared, torch.full_like(self.ridge, ridge)) for ridge in RIDGES])
        self.ridge.copy_(self.ridge.new_tensor(RIDGES)[errors.argmin(dim=0)])
        self.shared.copy_(common(series))


def weights(given: Observations, shared: Tensor, ridge: Tensor) -> Tensor:
    """(B, C, M) of each series and channel, shrunk towards (C, M) with strength (C,)"""
    values, observed, marks = given
    rest = torch.where(observed, values - marks @ shared.T, 0)
    gram, moment = normal_equations(given._replace(values=rest))
    return shared + solve(gram + _penalty(ridge.to(gram.dtype), marks.shape[2]), moment)[..., 1:]


def common(series: Iterable[Observations]) -> Tensor:
    """(C, M) the season of all series together"""
    equations = [normal_equations(given) for given in series]
    gram = torch.stack([gram.sum(dim=0) for gram, _ in equations]).sum(dim=0)
    moment = torch.stack([moment.sum(dim=0) for _, moment in equations]).sum(dim=0)
    ridge = gram.new_full((len(gram),), RIDGES[1])
    return solve(gram + _penalty(ridge, gram.shape[-1] - 1), moment)[..., 1:]


def normal_equations(given: Observations) -> tuple[Tensor, Tensor]:
    """XᵀX (B, C, 1 + M, 1 + M) and Xᵀy (B, C, 1 + M) of a level and the marks"""
    values, observed, marks = given
    x = torch.cat([torch.ones_like(marks[..., :1]), marks], dim=-1)  # (B, L, 1 + M)
    C, K, seen = values.shape[2], x.shape[2], observed.to(values.dtype)
    if C < K:  # use the smaller of two products
        gram = (seen[..., :, None] * x[..., None, :]).flatten(2).transpose(1, 2) @ x
    else:
        gram = seen.transpose(1, 2) @ (x[..., :, None] * x[..., None, :]).flatten(2)
    return gram.reshape(-1, C, K, K), values.transpose(1, 2) @ x


def solve(matrix: Tensor, right: Tensor) -> Tensor:
    """(..., K, K) symmetric positive definite, (..., K) -> (..., K), by elimination in K steps"""
    rows = torch.cat([matrix, right[..., None]], dim=-1)
    for k in range(matrix.shape[-1]):
        pivot = rows[..., k : k + 1, :] / rows[..., k : k + 1, k : k + 1]
        rows = torch.cat([rows[..., :k, :], torch.zeros_like(pivot), rows[..., k + 1 :, :]], dim=-2)
        rows = rows - rows[..., :, k : k + 1] * pivot
        rows = torch.cat([rows[..., :k, :], pivot, rows[..., k + 1 :, :]], dim=-2)
    return rows[..., -1]


def _penalty(ridge: Tensor, marks: int) -> Tensor:
    """(C,) -> (C, 1 + M, 1 + M)"""
    diagonal = torch.cat([torch.full_like(ridge, LEVEL)[:, None], (ridge / 2)[:, None].expand(-1, marks)], dim=1)
    return torch.diag_embed(diagonal)


def _halves(given: Observations) -> tuple[Observations, Observations]:
    """The earlier and the later half of the observations of each series and channel."""
    count = given.observed.cumsum(dim=1)
    early = given.observed & (2 * count <= count[:, -1:])
    late = given.observed & ~early
    return tuple(  # type: ignore[return-value]
        given._replace(values=torch.where(half, given.values, 0), observed=half) for half in (early, late)
    )


def _foretold(halves: Iterable[tuple[Observations, Observations]], shared: Tensor, ridge: Tensor) -> Tensor:
    """(C,) squared error on second halves of the season fitted to first halves; the level may differ"""
    total = torch.zeros_like(ridge)
    for early, late in halves:
        rest = late.values - torch.einsum("blm,bcm->blc", late.marks, weights(early, shared, ridge))
        count = late.observed.sum(dim=1, keepdim=True).clamp(min=1)
        mean = torch.where(late.observed, rest, 0).sum(dim=1, keepdim=True) / count
        total += torch.where(late.observed, rest - mean, 0).square().sum(dim=(0, 1)).to(total.dtype)
    return total
