"""On the unit sphere of n dimensions: the power-spherical law, rotations, and paths made of them.

PS(μ, κ)    density ∝ (1 + μᵀx)^κ; with α = β + κ, β = (n - 1) / 2:
            log Z = (α + β) log 2 + β log π + ln Γ(α) - ln Γ(α + β)
path        z_{k+1} = exp(Ω_k) z_k, Ω_k skew-symmetric: steps that are rotations stay on the sphere
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lformer.baselines.expm import matrix_exp
from lformer.draws import generator_on


class PowerSpherical(NamedTuple):
    """A law around a direction; uniform at concentration 0."""

    direction: Tensor  # (B, n), μ of length 1
    concentration: Tensor  # (B,), κ

    def sample(self) -> Tensor:
        """(B, n), with gradients; from the generators of a run where there is one."""
        n = self.direction.shape[-1]
        beta = torch.full_like(self.concentration, (n - 1) / 2)
        generator = generator_on(beta.device)
        a, b = (torch._standard_gamma(x, generator=generator) for x in (beta + self.concentration, beta))
        b = b.clamp(min=torch.finfo(b.dtype).tiny)
        along = (a - b) / (a + b)  # 2 z - 1 of z ~ Beta(α, β), without cancellation at either end
        across = 2 * (a * b).sqrt() / (a + b)
        turn = F.normalize(normal((len(beta), n - 1), beta), dim=-1)
        y = torch.cat([along[:, None], across[:, None] * turn], dim=-1)
        first = torch.eye(1, n, dtype=y.dtype, device=y.device)
        mirror = F.normalize(first - self.direction, dim=-1)  # takes the first axis to μ
        return y - 2 * mirror * (mirror * y).sum(dim=-1, keepdim=True)

    def entropy(self) -> Tensor:
        """(B,) in float64 where the device has it: the terms are large and nearly cancel."""
        kappa = self.concentration if self.concentration.device.type == "mps" else self.concentration.double()
        beta = (self.direction.shape[-1] - 1) / 2
        alpha = beta + kappa
        log_z = (
            (alpha + beta) * math.log(2) + beta * math.log(math.pi) + torch.lgamma(alpha) - torch.lgamma(alpha + beta)
        )
        return log_z - kappa * (math.log(2) + torch.digamma(alpha) - torch.digamma(alpha + beta))

    def divergence(self) -> Tensor:
        """(B,) Kullback-Leibler divergence from the uniform law."""
        n = self.direction.shape[-1]
        area = math.log(2) + n / 2 * math.log(math.pi) - math.lgamma(n / 2)
        return (area - self.entropy()).to(self.concentration.dtype)


class Path(NamedTuple):
    """A path on the sphere in equal steps, each a rotation."""

    rotations: Tensor  # (B, G, n, n) Ω, skew-symmetric
    points: Tensor  # (B, G + 1, n)
    step: float

    def at(self, times: Tensor) -> Tensor:
        """(B, N) -> (B, N, n), also between the points, before the first and behind the last: by part of a rotation."""
        places = times / self.step
        k = places.floor().clamp(0, self.rotations.shape[1] - 1)
        index, n = k.long(), self.points.shape[-1]
        share = (places - k).to(self.points.dtype)[..., None, None]
        start = self.points.gather(1, index[..., None].expand(-1, -1, n))
        rotation = self.rotations.gather(1, index[..., None, None].expand(-1, -1, n, n))
        return rotated(share * rotation, start)


def follow(start: Tensor, rotations: Tensor, step: float) -> Path:
    """(B, n), (B, G, n, n) -> the path from there, by the geometric Euler method."""
    points, turns = [start], matrix_exp(rotations)
    for turn in turns.unbind(1):
        points.append((turn @ points[-1][..., None]).squeeze(-1))
    return Path(rotations, torch.stack(points, dim=1), step)


def rotated(rotation: Tensor, z: Tensor) -> Tensor:
    """exp(Ω) z: (..., n, n), (..., n) -> (..., n)"""
    return (matrix_exp(rotation) @ z[..., None]).squeeze(-1)


def skew(upper: Tensor, n: int) -> Tensor:
    """(..., n (n - 1) / 2) entries above the diagonal -> (..., n, n), skew-symmetric"""
    row, column = torch.triu_indices(n, n, offset=1, device=upper.device).unbind()
    matrix = upper.new_zeros(*upper.shape[:-1], n, n)
    matrix[..., row, column] = upper
    return matrix - matrix.transpose(-1, -2)


def normal(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Standard normal numbers, from the generators of a run where there is one."""
    return torch.randn(shape, generator=generator_on(like.device), dtype=like.dtype, device=like.device)
