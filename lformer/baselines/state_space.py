"""What state-space models share: blocks around a recurrence over the rows, and norms that do not see padding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lformer.baselines.model import BaselineConfig, BaselineModel
from lformer.batch import IrregularBatch
from lformer.nn.attention import one_of
from lformer.nn.dropout import Dropout
from lformer.nn.query import Merged, merge, rows_until

Norm = Literal["layer", "batch"]


@dataclass(frozen=True, kw_only=True)
class StateSpaceConfig(BaselineConfig):
    """What every state-space model has.

    Attributes:
        state: numbers that a state holds: of the whole layer (LRU, S5) or of each channel (S6, Mamba).
        norm: of the rows before each recurrence, without weights of its own: "layer", each row by itself, which holds
            for any batch; "batch", each channel over all valid rows of the batch, as LRU and S5 were published.
        dropout: share of what a block adds that is dropped in training, before and behind its gated linear unit.
        state_rate: of the parameters of a state space that weight decay leaves alone, as a share of the learning rate.
    """

    state: int = 64
    norm: Norm = "layer"
    dropout: float = 0.0
    state_rate: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("norm", self.norm, Norm)
        self.require_positive("state")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1; got {self.dropout}.")
        if not self.state_rate > 0:
            raise ValueError(f"state_rate must be above 0; got {self.state_rate}.")


class Moments(NamedTuple):
    """When rows and queries are, in typical intervals."""

    intervals: Tensor  # (B, L) since the row before; 1 at the first row of a series
    since: Tensor  # (B, Q) since the latest row that is not later; 1 where there is none
    until: Tensor  # (B, Q) how many rows are not later
    merged: Merged  # both in the order of time


class Recurrence(nn.Module):
    """One layer: (B, L, D) rows and (B, L) how far each is from the row before, in typical intervals -> (B, L, D)."""

    undecayed: tuple[str, ...] = ()  # parameters that weight decay leaves alone: they set the pace, not the size
    undecayed_rate = 1.0  # at which these learn, as a share of the learning rate

    def forward(self, x: Tensor, intervals: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} must say how rows follow each other.")

    def ask(self, x: Tensor, asked: Tensor, moments: Moments) -> Tensor:
        """(B, L, D) rows, (B, Q, D) queries -> (B, L + Q, D). Queries read what rows left, and nothing reads them."""
        raise NotImplementedError(f"{type(self).__name__} must say what a query reads.")


class RowNorm(nn.Module):
    """Layer norm, or batch norm over the valid rows alone, which keeps running moments for use after training."""

    def __init__(self, width: int, kind: Norm, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.width, self.kind, self.momentum, self.eps = width, kind, momentum, eps
        self.mean: Tensor
        self.variance: Tensor
        if kind == "batch":
            self.register_buffer("mean", torch.zeros(width))
            self.register_buffer("variance", torch.ones(width))

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """(B, L, D), (B, L) bool -> (B, L, D)"""
        if self.kind == "layer":
            return F.layer_norm(x, (self.width,), eps=self.eps)
        mean, variance = self._moments(x, valid) if self.training else (self.mean, self.variance)
        return (x - mean) * torch.rsqrt(variance + self.eps)

    def _moments(self, x: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        """Of the valid rows, (D,) each; they also move the running ones, the variance without its bias."""
        count = valid.sum().clamp(min=1).to(x.dtype)
        mean = torch.where(valid[..., None], x, 0).sum(dim=(0, 1)) / count
        variance = torch.where(valid[..., None], (x - mean).square(), 0).sum(dim=(0, 1)) / count
        with torch.no_grad():
            share = self.momentum * (count > 1).to(self.mean.dtype)  # fewer rows have no spread
            self.mean.lerp_(mean.to(self.mean.dtype), share)
            unbiased = variance * count / (count - 1).clamp(min=1)
            self.variance.lerp_(unbiased.to(self.variance.dtype), share)
        return mean, variance


def complex_inputs(x: Tensor, weight: Tensor) -> Tensor:
    """B u: (..., D), (P, 2, D) real and imaginary parts -> (..., P) complex"""
    parts = (x @ weight.flatten(0, 1).mT).to(weight.dtype)  # autocast may have rounded them to what has no complex kind
    return torch.view_as_complex(parts.unflatten(-1, (-1, 2)))


def real_outputs(states: Tensor, weight: Tensor) -> Tensor:
    """Re(C x): (..., P) complex, (D, P, 2) real and imaginary parts -> (..., D)"""
    signed = torch.stack([weight[..., 0], -weight[..., 1]], dim=-1)
    return torch.view_as_real(states).flatten(-2) @ signed.flatten(1).mT


Run = Callable[[Recurrence, Tensor], Tensor]  # a recurrence over normed rows, or over rows and queries


class GatedBlock(nn.Module):
    """x + Drop(GLU(Drop(GELU(recurrence(norm(x)))))), GLU(y) = (W₁ y + b₁) ⊙ σ(W₂ y + b₂)."""

    def __init__(self, recurrence: Recurrence, config: StateSpaceConfig) -> None:
        super().__init__()
        self.norm = RowNorm(config.width, config.norm)
        self.recurrence = recurrence
        self.glu = nn.Linear(config.width, 2 * config.width)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, valid: Tensor, run: Run) -> Tensor:
        """(B, N, D), (B, N) bool -> (B, N, D)"""
        y = run(self.recurrence, self.norm(x, valid))
        return x + self.dropout(F.glu(self.glu(self.dropout(F.gelu(y)))))


class StateSpaceModel(BaselineModel):
    """`depth` blocks, one after the other; a series is answered from the mean over its valid rows.

    Rows do not look ahead, so padding, which comes last, is never read. A query is an empty row that reads, in every
    block, what the latest row not later has left, and is read by none.
    """

    recordable = True  # what it does depends on shapes, never on values, so its steps may be replayed as CUDA graphs
    own_draws = True  # it draws from the generators of a run, never from those of the process

    def __init__(self, config: StateSpaceConfig) -> None:
        super().__init__(config)
        self.blocks = nn.ModuleList(self.block() for _ in range(config.depth))
        for module in self.modules():
            if isinstance(module, Recurrence):
                module.undecayed_rate = config.state_rate

    def block(self) -> nn.Module:
        """A new block, called with rows (B, N, D), what is valid (B, N), and how to run its recurrence."""
        raise NotImplementedError(f"{type(self).__name__} must say what its blocks are.")

    def mix(self, x: Tensor, batch: IrregularBatch) -> Tensor:
        """(B, L, D) -> (B, L, D)"""
        intervals, valid = self.intervals(batch, x.dtype), batch.valid
        for block in self.blocks:
            x = block(x, valid, lambda recurrence, rows: recurrence(rows, intervals))
        return x

    def queries(self, x: Tensor, asked: Tensor, batch: IrregularBatch, query_times: Tensor) -> Tensor:
        """(B, L, D), (B, Q, D), (B, Q) -> (B, Q, D)"""
        moments, L = self.moments(batch, query_times, x.dtype), x.shape[1]
        valid = torch.cat([batch.valid, torch.zeros_like(moments.until, dtype=torch.bool)], dim=1)  # for norms
        both = torch.cat([x, asked], dim=1)
        for block in self.blocks:
            both = block(both, valid, lambda recurrence, u: recurrence.ask(u[:, :L], u[:, L:], moments))
        return both[:, L:]

    def moments(self, batch: IrregularBatch, query_times: Tensor, dtype: torch.dtype) -> Moments:
        """When the rows of a batch and its queries are."""
        count = rows_until(batch.times, batch.lengths, query_times)
        latest = batch.times.gather(1, (count - 1).clamp(min=0))
        since = ((query_times - latest) / self.rows.interval).to(dtype)
        merged = merge(batch.times, batch.deltas, batch.lengths, query_times)
        return Moments(self.intervals(batch, dtype), torch.where(count > 0, since, 1), count, merged)

    def intervals(self, batch: IrregularBatch, dtype: torch.dtype) -> Tensor:
        """(B, L) since the row before in typical intervals; 1 at the first row of a series."""
        typical = (batch.deltas / self.rows.interval).to(dtype)
        return torch.cat([torch.ones_like(typical[:, :1]), typical[:, 1:]], dim=1)
