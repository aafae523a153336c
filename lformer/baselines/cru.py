"""CRU: the filter of RKN, whose state moves on between rows by a linear stochastic differential equation.

    dz = A z dt + dβ,   A = Σ_k α_k(mean) A_k,   β of spectral density Q = diag(noise)
    over Δ:   mean' = Φ mean,   Σ' = Φ Σ Φᵀ + Γ,   Φ = e^{AΔ},   Γ = ∫₀^Δ e^{As} Q e^{Aᵀs} ds

In full, Φ and Γ come from one matrix exponential (Van Loan). Fast (f-CRU), all A_k have the same orthogonal
eigenvectors E, and both are closed forms in that basis.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lformer.baselines import expm
from lformer.baselines.linear_sde import Orthogonal, grown_over_rate
from lformer.baselines.rkn import RKN, Belief, Prediction, RKNConfig, banded, moved

MOST_GROWTH = 5.0  # of the logarithm of the state over one interval


@dataclass(frozen=True, kw_only=True)
class CRUConfig(RKNConfig):
    """As RKN-dt; the network that mixes the transitions is one linear layer, as published, unless `depth` says more.

    Attributes:
        fast: whether all transitions share their eigenvectors (f-CRU); `band` is then not used.
    """

    depth: int = 1
    fast: bool = False


class CRU(RKN):
    """Row by row: move the state on in continuous time over the interval since the row before, then update it.

    Encoder, update, initial belief, answers and loss are those of `RKN`. Intervals are in typical ones, so times need
    no scale of their own. An interval over which the state would grow by more than a factor of e^5 is shortened until
    it does not: matrix exponentials of a state that grows overflow over a long gap. In full, so is one of ‖A‖ Δ > 2¹⁵.
    """

    def make_transition(self, config: RKNConfig) -> Prediction:
        """In continuous time."""
        assert isinstance(config, CRUConfig)
        return FastDynamics(config) if config.fast else Dynamics(config)


class Step(NamedTuple):
    """What becomes of a Gaussian over an interval: Φ and Γ, (..., 2 m, 2 m) each."""

    kept: Tensor
    noise: Tensor


class _Mixed(Prediction):
    """A transition mixed of K by what the mean of the state says; the mixture does not see the interval."""

    def __init__(self, config: CRUConfig) -> None:
        super().__init__()
        self.observed_size = config.state // 2
        layers: list[nn.Module] = []
        for a, b in pairwise([config.state, *[config.width] * (config.depth - 1), config.transitions]):
            layers += [nn.Linear(a, b), nn.Tanh()]
        self.mixture = nn.Sequential(*layers[:-1], nn.Softmax(dim=-1))
        self.noise = nn.Parameter(torch.full((config.state,), math.log(0.1)))  # log of the spectral density

    def interval(self, deltas: Tensor) -> Tensor:
        """(...) -> (...), as they are."""
        return deltas

    def prepared(self) -> Callable[[Belief, Tensor], Belief]:
        """A step of the belief: (...) and (...) typical intervals -> (...)"""
        over = self.steps()

        def step(belief: Belief, deltas: Tensor) -> Belief:
            kept, noise = over(self.mixture(belief.mean.flatten(-2)), deltas)
            added = _blocks(noise, self.observed_size).diagonal(dim1=-3, dim2=-1)  # (..., 2, 2, m)
            return moved(belief, _blocks(kept, self.observed_size).transpose(-4, -3), added)

        return step

    def steps(self) -> Callable[[Tensor, Tensor], Step]:
        """(..., K) shares of the transitions, (...) intervals -> Step; what holds for all rows is computed once."""
        raise NotImplementedError(f"{type(self).__name__} must say what happens over an interval.")


class Dynamics(_Mixed):
    """A is mixed of matrices of four banded blocks, 0 at the start."""

    def __init__(self, config: CRUConfig) -> None:
        super().__init__(config)
        m = self.observed_size
        self.matrices = nn.Parameter(torch.zeros(config.transitions, m, 2, 2, m))  # row, its half, half of column, it
        self.band: Tensor
        self.register_buffer("band", banded(m, config.band), persistent=False)

    def steps(self) -> Callable[[Tensor, Tensor], Step]:
        matrices = torch.where(self.band, self.matrices, 0).transpose(1, 2).flatten(3).flatten(1, 2)  # (K, 2 m, 2 m)
        density = self.noise.exp()

        def over(shares: Tensor, deltas: Tensor) -> Step:
            A = (shares @ matrices.flatten(1)).unflatten(-1, matrices.shape[1:])
            return van_loan(A, density, shortened(deltas, growth_rate(A)))

        return over


class FastDynamics(_Mixed):
    """A = E diag(d) Eᵀ with one orthogonal E for all; d is mixed of vectors that start at 1e-5."""

    def __init__(self, config: CRUConfig) -> None:
        super().__init__(config)
        self.basis = Orthogonal(config.state)
        self.rates = nn.Parameter(torch.full((config.transitions, config.state), 1e-5))

    def steps(self) -> Callable[[Tensor, Tensor], Step]:
        E, density = self.basis(), self.noise.exp()

        def over(shares: Tensor, deltas: Tensor) -> Step:
            d = shares @ self.rates
            return in_eigenbasis(E, d, density, shortened(deltas, d.amax(dim=-1)))

        return over


def van_loan(A: Tensor, density: Tensor, deltas: Tensor) -> Step:
    """Φ and Γ of an interval, from one matrix exponential of a part of it, doubled as often as it was halved.

    The exponential holds e^{-AᵀΔ} too, which grows where the state decays; over a part with ‖A‖ Δ ≤ ½ it does not.
    Both are computed in float64 and returned in the dtype of A.

    Args:
        A: (..., N, N)
        density: (N,) diagonal of Q.
        deltas: (...)
    """
    N, wide = A.shape[-1], A if A.device.type == "mps" else A.double()
    deltas = deltas.to(wide.dtype)
    norm = torch.maximum(expm.one_norm(wide), expm.one_norm(wide.mT)) * deltas.detach()
    doublings = expm.halvings(norm)
    part = (deltas * expm.shrunk(norm) * 2.0**-doublings)[..., None, None]
    Q = torch.diag(density.to(wide.dtype)).expand_as(wide)
    block = torch.cat([torch.cat([wide, Q], -1), torch.cat([torch.zeros_like(wide), -wide.mT], -1)], -2)
    grown = expm.taylor(block * part)  # linear in Q, whose size therefore does not matter
    kept = grown[..., :N, :N]
    both = torch.cat([kept, grown[..., :N, N:] @ kept.mT], -1)  # side by side: fewer and larger products
    for goes_on in expm.squarings(doublings):
        kept, noise = both.split(N, dim=-1)
        twice, moved_on = (kept @ both).split(N, dim=-1)
        both = torch.where(goes_on, torch.cat([twice, noise + moved_on @ kept.mT], -1), both)
    kept, noise = both.split(N, dim=-1)
    return Step(kept.to(A.dtype), noise.to(A.dtype))


def in_eigenbasis(E: Tensor, d: Tensor, density: Tensor, deltas: Tensor) -> Step:
    """Φ and Γ of an interval for A = E diag(d) Eᵀ.

    Args:
        E: (N, N) orthogonal.
        d: (..., N)
        density: (N,) diagonal of Q.
        deltas: (...)
    """
    S = E.mT @ (density[:, None] * E)
    both = (d[..., :, None] + d[..., None, :]) * deltas[..., None, None]  # (..., N, N)
    noise = S * grown_over_rate(both) * deltas[..., None, None]
    return Step((E * torch.exp(d * deltas[..., None])[..., None, :]) @ E.mT, E @ noise @ E.mT)


def growth_rate(A: Tensor) -> Tensor:
    """(..., N, N) -> (...), no state grows faster: a bound of the eigenvalues of (A + Aᵀ) / 2."""
    size = (A + A.mT).abs() / 2
    own = A.diagonal(dim1=-2, dim2=-1)
    return (own + size.sum(dim=-1) - size.diagonal(dim1=-2, dim2=-1)).amax(dim=-1)


def shortened(deltas: Tensor, rate: Tensor) -> Tensor:
    """Intervals over which nothing grows by more than e^`MOST_GROWTH`: (...), (...) -> (...)"""
    return deltas.minimum(MOST_GROWTH / rate.detach().clamp(min=torch.finfo(rate.dtype).tiny ** 0.5))


def _blocks(matrix: Tensor, half: int) -> Tensor:
    """(..., 2 m, 2 m) -> (..., 2, m, 2, m)"""
    return matrix.unflatten(-1, (2, half)).unflatten(-3, (2, half))
