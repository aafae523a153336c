"""LRU: a linear recurrence with complex diagonal factors inside the unit circle, learnt in polar form."""

from __future__ import annotations

import math
from dataclasses import dataclass

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
from lformer.ops.scan import linear_scan


@dataclass(frozen=True, kw_only=True)
class LRUConfig(StateSpaceConfig):
    """`state` complex numbers a layer.

    Attributes:
        r_min, r_max: the ring in which the factors start, uniformly by area.
        max_phase: largest angle with which they start; smaller for long series.
    """

    r_min: float = 0.0
    r_max: float = 1.0
    max_phase: float = 6.28

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.r_min < self.r_max <= 1:
            raise ValueError(f"0 <= r_min < r_max <= 1 must hold; got r_min={self.r_min}, r_max={self.r_max}.")
        if self.max_phase <= 0:
            raise ValueError(f"max_phase must be positive; got {self.max_phase}.")


class LinearRecurrentUnit(Recurrence):
    """x_k = λ ⊙ x_{k-1} + γ ⊙ (B u_k), y_k = Re(C x_k) + D ⊙ u_k, λ = exp(-exp(ν) + i exp(θ)), γ = exp(g).

    Complex matrices are kept as pairs of real ones, so that optimisers and files hold real numbers alone.
    """

    undecayed = ("nu", "theta", "log_gamma")

    def __init__(self, config: LRUConfig) -> None:
        super().__init__()
        D, N = config.width, config.state
        # In float64: a factor drawn close to the circle must not be rounded onto it.
        radius = torch.rand(N, dtype=torch.float64) * (config.r_max**2 - config.r_min**2) + config.r_min**2
        radius = radius.clamp(1e-12, 1 - 1e-7)  # |λ|²
        self.nu = nn.Parameter(torch.log(-0.5 * torch.log(radius)).float())
        self.theta = nn.Parameter(torch.log(config.max_phase * torch.rand(N).clamp(min=1e-7)))
        self.log_gamma = nn.Parameter((0.5 * torch.log(1 - radius)).float())
        self.B = nn.Parameter(torch.randn(N, 2, D) / math.sqrt(2 * D))  # real and imaginary parts
        self.C = nn.Parameter(torch.randn(D, N, 2) / math.sqrt(N))
        self.D = nn.Parameter(torch.randn(D))

    def factors(self) -> Tensor:
        """λ, (N,) complex; |λ| < 1 for any parameters."""
        size = torch.exp(-torch.exp(self.nu))
        return torch.polar(size, torch.exp(self.theta))

    def states(self, x: Tensor) -> Tensor:
        """(B, L, D) -> (B, L, N) complex"""
        return linear_scan(self.factors(), complex_inputs(x, torch.exp(self.log_gamma)[:, None, None] * self.B))

    def forward(self, x: Tensor, intervals: Tensor) -> Tensor:
        """(B, L, D), times are not used -> (B, L, D)"""
        return real_outputs(self.states(x), self.C) + self.D * x

    def ask(self, x: Tensor, asked: Tensor, moments: Moments) -> Tensor:
        """(B, L, D), (B, Q, D) -> (B, L + Q, D); between rows a state stays as it is."""
        states = self.states(x)
        states = torch.cat([states, state_after(states, moments.until)], dim=1)
        return real_outputs(states, self.C) + self.D * torch.cat([x, asked], dim=1)


class LRU(StateSpaceModel):
    """Blocks of norm, linear recurrent unit, GELU and gated linear unit.

    It knows the order of the rows and not their times; `time_channel=True` shows them as one more channel.
    """

    config: LRUConfig

    def block(self) -> nn.Module:
        return GatedBlock(LinearRecurrentUnit(self.config), self.config)
