"""S5: a linear state-space model in continuous time, taken from row to row by the interval between them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from lformer.baselines.model import state_after
from lformer.baselines.state_space import (
    GatedBlock,
    Moments,
    Recurrence,
    StateSpaceConfig,
    StateSpaceModel,
    complex_inputs,
    real_outputs,
)
from lformer.nn.attention import one_of
from lformer.ops.scan import linear_scan

Discretisation = Literal["zoh", "bilinear"]
LEAST_DECAY = 1e-4  # Re Λ stays below minus this, so that states do not grow over long intervals


@dataclass(frozen=True, kw_only=True)
class S5Config(StateSpaceConfig):
    """`state` complex numbers a layer, of which one of each conjugate pair is kept.

    Attributes:
        hippo_blocks: J, equal blocks of HiPPO matrices that the states start as; state / J must be even.
        discretisation: how inputs act between rows: "zoh" holds them, "bilinear" is the trapezoidal rule.
        step_min, step_max: range of the steps Δ at the start; a state moves by Δ times the interval, in typical ones.
    """

    hippo_blocks: int = 1
    discretisation: Discretisation = "zoh"
    step_min: float = 1e-3
    step_max: float = 1e-1

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("discretisation", self.discretisation, Discretisation)
        self.require_positive("hippo_blocks")
        if self.state % (2 * self.hippo_blocks):
            raise ValueError(
                f"state must be an even number for each of the hippo_blocks, as half of it is kept; got "
                f"state={self.state}, hippo_blocks={self.hippo_blocks}."
            )
        if not 0 < self.step_min <= self.step_max:
            raise ValueError(f"0 < step_min <= step_max must hold; got {self.step_min} and {self.step_max}.")


def hippo_normal(N: int) -> Tensor:
    """(N, N) in float64, the normal part of HiPPO-LegS: -½ on the diagonal, and a skew-symmetric rest."""
    n = torch.arange(N, dtype=torch.float64)
    root = torch.sqrt(2 * n + 1)
    legs = -torch.tril(root[:, None] * root[None, :], diagonal=-1) - torch.diag(n + 1)
    p = torch.sqrt(n + 0.5)
    return legs + p[:, None] * p[None, :]


def hippo_modes(N: int) -> tuple[Tensor, Tensor]:
    """Eigenvalues (N,) and eigenvectors (N, N) of `hippo_normal`, complex128; one of each conjugate pair first."""
    S = hippo_normal(N)
    imaginary, V = torch.linalg.eigh(-1j * S)  # in ascending order, so the negative half comes first
    return torch.complex(S.diagonal().mean().expand(N).contiguous(), imaginary), V


class Step(NamedTuple):
    """A discretised step: x' = kept ⊙ x + gain ⊙ (B̃ u), complex."""

    kept: Tensor
    gain: Tensor


class S5Layer(Recurrence):
    """x' = Λ x + B̃ u, y = 2 Re(C̃ x) + D ⊙ u, from row to row by steps of Δ_p times the interval before the row.

    An interval of 0, as between rows at the same time, leaves the state as it is.
    """

    undecayed = ("rate", "frequency", "log_step", "B")

    def __init__(self, config: S5Config) -> None:
        super().__init__()
        self.discretisation = config.discretisation
        D, J = config.width, config.hippo_blocks
        N = config.state // J  # of a block
        values, V = hippo_modes(N)
        kept = N // 2
        P = J * kept
        modes = V[:, :kept]
        B_modes = (modes.mH @ _lecun(J, N, D, states=config.state).to(V.dtype)).flatten(0, 1)  # (P, D)
        C_modes = (torch.view_as_complex(_lecun(D, J, N, 2, states=config.state)) @ modes).flatten(1)  # (D, P)
        self.rate = nn.Parameter(values.real[:kept].repeat(J).float())  # Re Λ, (P,)
        self.frequency = nn.Parameter(values.imag[:kept].repeat(J).float())  # Im Λ
        self.log_step = nn.Parameter(torch.empty(P).uniform_(math.log(config.step_min), math.log(config.step_max)))
        self.B = nn.Parameter(torch.stack([B_modes.real, B_modes.imag], dim=1).float())  # (P, 2, D)
        self.C = nn.Parameter(torch.view_as_real(C_modes).float())  # (D, P, 2)
        self.D = nn.Parameter(torch.randn(D))

    def step(self, intervals: Tensor) -> Step:
        """(...) intervals, in typical ones -> (..., P) each"""
        eigenvalues = torch.complex(self.rate.clamp(max=-LEAST_DECAY), self.frequency)
        moved = torch.exp(self.log_step) * intervals[..., None] * eigenvalues  # (..., P)
        if self.discretisation == "zoh":
            less_one = _expm1(moved)
            return Step(less_one + 1, less_one / eigenvalues)
        below = 1 / (1 - moved / 2)
        return Step((1 + moved / 2) * below, torch.exp(self.log_step) * intervals[..., None] * below)

    def inputs(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., P) complex, B̃ u"""
        return complex_inputs(x, self.B)

    def states(self, x: Tensor, intervals: Tensor) -> Tensor:
        """(B, L, D), (B, L) -> (B, L, P) complex"""
        step = self.step(intervals)
        return linear_scan(step.kept, step.gain * self.inputs(x))

    def read(self, states: Tensor, x: Tensor) -> Tensor:
        """(..., P) complex, (..., D) -> (..., D)"""
        return 2 * real_outputs(states, self.C) + self.D * x

    def forward(self, x: Tensor, intervals: Tensor) -> Tensor:
        """(B, L, D), (B, L) -> (B, L, D)"""
        return self.read(self.states(x, intervals), x)

    def ask(self, x: Tensor, asked: Tensor, moments: Moments) -> Tensor:
        """(B, L, D), (B, Q, D) -> (B, L + Q, D); to its query a state moves on as to a row."""
        states, step = self.states(x, moments.intervals), self.step(moments.since)
        moved = step.kept * state_after(states, moments.until) + step.gain * self.inputs(asked)
        return self.read(torch.cat([states, moved], dim=1), torch.cat([x, asked], dim=1))


def _lecun(*shape: int, states: int) -> Tensor:
    """Normal numbers in float64, cut at two deviations, of variance 1 / states.

    For B, too, the published initialiser takes the first axis of (states, width) for what is summed over.
    """
    std = 1 / math.sqrt(states) / 0.87962566103423978  # what cutting leaves of the deviation
    return nn.init.trunc_normal_(torch.empty(shape, dtype=torch.float64), std=std, a=-2 * std, b=2 * std)


def _expm1(z: Tensor) -> Tensor:
    """exp(z) - 1 of a complex z, exact for small ones too."""
    grown = torch.expm1(z.real)
    half = torch.sin(z.imag / 2)
    return torch.complex(grown * torch.cos(z.imag) - 2 * half * half, (grown + 1) * torch.sin(z.imag))


class S5(StateSpaceModel):
    """Blocks of norm, S5 layer, GELU and gated linear unit. Intervals enter as steps, in units of a typical interval.

    A query is answered as an empty row in its place would be: by then the states have moved on.
    """

    config: S5Config

    def block(self) -> nn.Module:
        return GatedBlock(S5Layer(self.config), self.config)
