"""S6 and Mamba: state-space models whose pace, write and read weights come from the rows themselves."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lformer.baselines.model import state_after
from lformer.baselines.state_space import GatedBlock, Moments, Recurrence, Run, StateSpaceConfig, StateSpaceModel
from lformer.batch import IrregularBatch
from lformer.nn.attention import one_of
from lformer.nn.dropout import Dropout
from lformer.ops.scan import selective_scan

Block = Literal["plain", "gated"]
STEP_MIN, STEP_MAX = 1e-3, 1e-1  # the range of Δ at the start
LEAST_STEP = 1e-4


@dataclass(frozen=True, kw_only=True)
class S6Config(StateSpaceConfig):
    """`state` numbers for each channel of a row."""

    state: int = 16


@dataclass(frozen=True, kw_only=True)
class MambaConfig(StateSpaceConfig):
    """`state` numbers for each of `expand * width` channels.

    Attributes:
        expand: how many times as wide as a row the recurrence is.
        conv: rows that the convolution before it reads: the row itself and those just before.
        block: what stands around a mixer: "plain", x + mixer(RMSNorm(x)) and a last norm, as Mamba was published;
            "gated", that of the other state-space models, as the published figures for the UEA data sets have it.
            `norm` belongs to the latter alone.
    """

    state: int = 16
    expand: int = 2
    conv: int = 4
    block: Block = "plain"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("block", self.block, Block)
        self.require_positive("expand", "conv")
        if self.block == "plain" and self.norm != "layer":
            raise ValueError(
                f'norm belongs to block="gated", and block="plain" has an RMS norm; got norm={self.norm!r}.'
            )


class SelectiveLayer(Recurrence):
    """h_k = exp(Δ_k A) ⊙ h_{k-1} + (Δ_k ⊙ u_k) B_kᵀ, y_k = h_k C_k + D ⊙ u_k, with A = -exp(log_rates) and

    [δ_k, B_k, C_k] = W_x u_k, Δ_k = softplus(W_Δ δ_k + b_Δ).

    Args:
        width: E.
        state: N.
        rank: R, size of δ.
    """

    undecayed = ("log_rates", "D", "step_bias")

    def __init__(self, width: int, state: int, rank: int) -> None:
        super().__init__()
        self.sizes = [rank, state, state]
        self.select = nn.Linear(width, sum(self.sizes), bias=False)
        self.step_weight = nn.Parameter(torch.empty(width, rank).uniform_(-(rank**-0.5), rank**-0.5))
        step = torch.exp(torch.empty(width).uniform_(math.log(STEP_MIN), math.log(STEP_MAX))).clamp(min=LEAST_STEP)
        self.step_bias = nn.Parameter(step + torch.log(-torch.expm1(-step)))  # the inverse of softplus
        self.log_rates = nn.Parameter(torch.log(torch.arange(1.0, state + 1)).repeat(width, 1))  # (E, N)
        self.D = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor, intervals: Tensor) -> Tensor:
        """(B, L, E), times are not used -> (B, L, E)"""
        return self.scan(x)

    def ask(self, x: Tensor, asked: Tensor, moments: Moments) -> Tensor:
        """(B, L, E), (B, Q, E) -> (B, L + Q, E); a query in its place takes no step, so it reads and does not write."""
        merged = moments.merged
        y = self.scan(merged.arrange(x, asked), still=merged.is_query)
        return y.gather(1, merged.order.argsort(dim=1)[..., None].expand_as(y))

    def scan(self, x: Tensor, still: Tensor | None = None) -> Tensor:
        """(B, N, E) -> (B, N, E); rows that are `still`, (B, N), take no step."""
        low, B, C = self.select(x).split(self.sizes, dim=-1)
        # The bias is added outside of the product, which autocast would round: it says how long a channel remembers.
        delta = F.softplus(F.linear(low, self.step_weight).to(self.step_bias.dtype) + self.step_bias)
        if still is not None:
            delta = torch.where(still[..., None], 0, delta)
        return selective_scan(x, delta, -torch.exp(self.log_rates), B, C, self.D).to(x.dtype)


class MambaMixer(Recurrence):
    """[u, z] = W_in x, u ← SiLU(causal convolution of u), W_out (S6(u) ⊙ SiLU(z)); E = expand · width inside."""

    def __init__(self, config: MambaConfig) -> None:
        super().__init__()
        width = config.expand * config.width
        self.enter = nn.Linear(config.width, 2 * width, bias=False)
        self.convolution = nn.Conv1d(width, width, config.conv, groups=width, padding=config.conv - 1)
        self.selective = SelectiveLayer(width, config.state, _rank(config.width))
        self.leave = nn.Linear(width, config.width, bias=False)

    def forward(self, x: Tensor, intervals: Tensor) -> Tensor:
        """(B, L, D), times are not used -> (B, L, D)"""
        u, z = self.enter(x).chunk(2, dim=-1)
        return self.leave(self.selective(F.silu(self._convolved(u)), intervals) * F.silu(z))

    def ask(self, x: Tensor, asked: Tensor, moments: Moments) -> Tensor:
        """(B, L, D), (B, Q, D) -> (B, L + Q, D); a query reads itself and the rows just before it."""
        u, z = self.enter(torch.cat([x, asked], dim=1)).chunk(2, dim=-1)
        rows, queries = u[:, : x.shape[1]], u[:, x.shape[1] :]
        taps = self.convolution.weight[:, 0]  # (E, conv), the last of a row itself
        seen = self.convolution.bias + taps[:, -1] * queries
        for back in range(1, taps.shape[1]):
            seen = seen + taps[:, -1 - back] * state_after(rows, (moments.until + 1 - back).clamp(min=0))
        y = self.selective.ask(F.silu(self._convolved(rows)), F.silu(seen), moments)
        return self.leave(y * F.silu(z))

    def _convolved(self, u: Tensor) -> Tensor:
        """(B, L, E) -> (B, L, E)"""
        return self.convolution(u.mT)[..., : u.shape[1]].mT


class RMSNorm(nn.RMSNorm):
    """As PyTorch's, in the dtype of its weight, also under autocast."""

    def __init__(self, width: int) -> None:
        super().__init__(width, eps=1e-5)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., D)"""
        return super().forward(x.to(self.weight.dtype))


class PlainBlock(nn.Module):
    """x + Drop(mixer(RMSNorm(x)))."""

    def __init__(self, config: MambaConfig) -> None:
        super().__init__()
        self.norm = RMSNorm(config.width)
        self.recurrence = MambaMixer(config)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, valid: Tensor, run: Run) -> Tensor:
        """(B, N, D), (B, N) bool -> (B, N, D)"""
        return x + self.dropout(run(self.recurrence, self.norm(x)))


class S6(StateSpaceModel):
    """Blocks of norm, selective layer, GELU and gated linear unit.

    It knows the order of the rows and not their times; `time_channel=True` shows them as one more channel.
    """

    config: S6Config

    def block(self) -> nn.Module:
        width = self.config.width
        return GatedBlock(SelectiveLayer(width, self.config.state, _rank(width)), self.config)


class Mamba(StateSpaceModel):
    """Blocks around mixers of a convolution over a few rows, a selective layer and a gate; times as in S6."""

    config: MambaConfig

    def __init__(self, config: MambaConfig) -> None:
        super().__init__(config)
        self.last_norm = RMSNorm(config.width) if config.block == "plain" else nn.Identity()

    def block(self) -> nn.Module:
        return (
            PlainBlock(self.config)
            if self.config.block == "plain"
            else GatedBlock(MambaMixer(self.config), self.config)
        )

    def mix(self, x: Tensor, batch: IrregularBatch) -> Tensor:
        """(B, L, D) -> (B, L, D)"""
        return self.last_norm(super().mix(x, batch))

    def queries(self, x: Tensor, asked: Tensor, batch: IrregularBatch, query_times: Tensor) -> Tensor:
        """(B, L, D), (B, Q, D), (B, Q) -> (B, Q, D)"""
        return self.last_norm(super().queries(x, asked, batch, query_times))


def _rank(width: int) -> int:
    return math.ceil(width / 16)
