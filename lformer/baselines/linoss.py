"""LinOSS: a state-space model of harmonic oscillators, y'' = -A y + B u, driven by the rows.

    "im"     implicit:           z_k = z_{k-1} + Δ (B u_k - A y_k),      y_k = y_{k-1} + Δ z_k     oscillations decay
    "imex"   implicit-explicit:  z_k = z_{k-1} + Δ (B u_k - A y_{k-1}),  y_k = y_{k-1} + Δ z_k     energy is conserved

Both are 2 × 2 systems with one pair of conjugate factors λ, λ̄, and both unfold into two scans with single factors:

    w_k = λ (w_{k-1} + Δ B u_k),   y_k = λ̄ (y_{k-1} + Δ w_k)

Nothing is divided by the frequency, so this holds for A = 0, where the system has no basis of eigenvectors.
"""

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

Discretisation = Literal["im", "imex"]
Steps = Literal["rows", "intervals"]
LARGEST_SINE = 1 - 1e-6  # of (Δω / 2)²: beyond 1 the states of "imex" grow from row to row


@dataclass(frozen=True, kw_only=True)
class LinOSSConfig(StateSpaceConfig):
    """`state` oscillators a layer, each with a complex position and velocity.

    Attributes:
        discretisation: "im" or "imex", see above.
        steps: "rows", as published: every row is one step Δ, whatever its time. "intervals": the step is Δ times the
            interval before the row, in typical ones; with "im" alone, which no step makes unstable.
    """

    discretisation: Discretisation = "im"
    steps: Steps = "rows"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("discretisation", self.discretisation, Discretisation)
        one_of("steps", self.steps, Steps)
        if self.steps == "intervals" and self.discretisation == "imex":
            raise ValueError(
                'steps="intervals" needs discretisation="im": with "imex" steps of different sizes can make states '
                "grow without bound."
            )


class Oscillation(NamedTuple):
    """The two states of each oscillator, (..., P) complex; the velocity is z = w - (λ - 1) y / Δ for constant steps."""

    w: Tensor
    y: Tensor  # position


class OscillatorLayer(Recurrence):
    """C y + D ⊙ u of P oscillators with A = relu(stiffness) and steps Δ = σ(step).

    Complex matrices are kept as pairs of real ones, so that optimisers and files hold real numbers alone.
    """

    undecayed = ("stiffness", "step")

    def __init__(self, config: LinOSSConfig) -> None:
        super().__init__()
        self.discretisation, self.by_intervals = config.discretisation, config.steps == "intervals"
        D, P = config.width, config.state
        self.stiffness = nn.Parameter(torch.rand(P))
        self.step = nn.Parameter(torch.rand(P) - (4 if self.by_intervals else 0))  # smaller where a gap may be long
        self.B = nn.Parameter(torch.empty(P, 2, D).uniform_(-1, 1) / math.sqrt(D))  # real and imaginary parts
        self.C = nn.Parameter(torch.empty(D, P, 2).uniform_(-1, 1) / math.sqrt(P))
        self.D = nn.Parameter(torch.randn(D))

    def frequency(self) -> Tensor:
        """ω = √A, (P,); its gradient is 0 where A is."""
        moves = self.stiffness > 0
        return torch.where(moves, torch.where(moves, self.stiffness, 1).sqrt(), 0)

    def steps(self, intervals: Tensor) -> Tensor:
        """(...) in typical intervals -> (..., P) or, if every row is one step, (P,)"""
        step = torch.sigmoid(self.step)
        return step * intervals[..., None] if self.by_intervals else step

    def factors(self, steps: Tensor) -> Tensor:
        """λ for steps Δ: (..., P) -> (..., P) complex; |λ| <= 1 with "im" and 1 with "imex"."""
        angle = steps * self.frequency()
        if self.discretisation == "im":
            shrink = 1 / (1 + angle.square())
            return torch.complex(shrink, angle * shrink)  # 1 / (1 - i Δω)
        sine = (angle / 2).clamp(max=math.sqrt(LARGEST_SINE))  # of half the angle that a step turns
        return torch.complex(1 - 2 * sine.square(), 2 * sine * (1 - sine.square()).sqrt())

    def inputs(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., P) complex, B u"""
        return complex_inputs(x, self.B)

    def states(self, x: Tensor, intervals: Tensor) -> Oscillation:
        """(B, L, D), (B, L) -> (B, L, P) each"""
        steps = self.steps(intervals)
        turn = self.factors(steps)
        w = linear_scan(turn, turn * steps * self.inputs(x))
        return Oscillation(w, linear_scan(turn.conj().resolve_conj(), turn.conj() * steps * w))

    def read(self, y: Tensor, x: Tensor) -> Tensor:
        """(..., P) complex, (..., D) -> (..., D)"""
        return real_outputs(y, self.C) + self.D * x

    def forward(self, x: Tensor, intervals: Tensor) -> Tensor:
        """(B, L, D), (B, L) -> (B, L, D)"""
        return self.read(self.states(x, intervals).y, x)

    def ask(self, x: Tensor, asked: Tensor, moments: Moments) -> Tensor:
        """(B, L, D), (B, Q, D) -> (B, L + Q, D); states move on to a query only if steps are intervals."""
        states = self.states(x, moments.intervals)
        y = state_after(states.y, moments.until)
        if self.by_intervals:
            steps = self.steps(moments.since)
            turn = self.factors(steps)
            w = turn * (state_after(states.w, moments.until) + steps * self.inputs(asked))
            y = turn.conj() * (y + steps * w)
        return self.read(torch.cat([states.y, y], dim=1), torch.cat([x, asked], dim=1))


class LinOSS(StateSpaceModel):
    """Blocks of norm, oscillators, GELU and gated linear unit.

    As published it knows the order of the rows and not their times; `time_channel=True` shows them as one more channel,
    `steps="intervals"` makes them the steps of the oscillators. A query is then answered as an empty row in its place
    would be.
    """

    config: LinOSSConfig

    def block(self) -> nn.Module:
        return GatedBlock(OscillatorLayer(self.config), self.config)
