"""GRU-D: a GRU that fills in missing values and forgets by how long ago each channel was observed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lformer.baselines.model import BaselineConfig, BaselineModel, full_precision, observations, state_after
from lformer.batch import IrregularBatch
from lformer.nn.dropout import Dropout
from lformer.nn.known import Known, follow, nothing_known
from lformer.nn.query import rows_until
from lformer.nn.rows import Encoded

LARGEST_EXPONENT = 1000.0


@dataclass(frozen=True, kw_only=True)
class GRUDConfig(BaselineConfig):
    """`depth` layers of `width` units; the published model has one.

    Attributes:
        rows: "values" is the published model, whose gates read what was observed in any case.
        dropout: share of what the head reads that is dropped in training.
    """

    dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1; got {self.dropout}.")


class GRUD(BaselineModel):
    """With δ the time since a channel was last observed, in typical intervals, and γ = exp(−max(0, W δ + b)):

        x̂ = x where observed, else γ_x ⊙ (latest value) + (1 − γ_x) ⊙ (training mean)
        ĥ = γ_h ⊙ h, and a GRU step from ĥ with x̂ and what was observed

    A series is answered from its last state, a row from its own, a query from the state of the latest row that is not
    later, decayed to its time. A row in which nothing was observed is a step like any other. What was never observed
    counts as observed at the first row, with the training mean.

    Note: x̂ passes the embedder that all models share before it enters the gates; embedder="linear" is one more linear
    map. Of frames every pixel is a channel.
    """

    recordable = True
    own_draws = True

    def __init__(self, config: GRUDConfig) -> None:
        super().__init__(config)
        channels = math.prod(self.embedder.shape) if config.embedder == "frames" else config.inputs
        self.fill = Fill(channels)
        self.layers = nn.ModuleList(GRUDLayer(config.width, channels) for _ in range(config.depth))
        self.dropout = Dropout(config.dropout)

    def read(self, batch: IrregularBatch, encoded: Encoded) -> Tensor:
        """(B, D), (B, L, D) or (B, Q, D) as `config.answer` says."""
        values, observed = self._observations(batch)
        known = _known(values, observed, batch)
        ages = self._ages(known.before_rows(), batch.times, batch)
        now = known.after_rows()
        filled = self.fill(values, observed, now.latest, now.seen > 0, ages)
        x, shown = self.embed_rows(_with_first(encoded.rows, filled), batch), observed.to(values.dtype)
        with full_precision(x.device):
            x = x.to(values.dtype)
            for layer in self.layers:
                x = layer(x, shown, ages)
            if batch.query_times is not None:
                count = rows_until(batch.times, batch.lengths, batch.query_times)
                last = self.layers[-1]
                assert isinstance(last, GRUDLayer)
                x = last.decay(self._ages(known.at(count), batch.query_times, batch)) * state_after(x, count)
        if self.config.answer == "series":
            x = state_after(x, batch.lengths[:, None]).squeeze(1)
        return self.dropout(x)

    @torch.no_grad()
    def fit_rows(self, batches: Sequence[IrregularBatch]) -> None:
        """Set the mean of the observed values of each channel; 0 where there are none."""
        mean = self.fill.mean
        total, count = torch.zeros_like(mean, dtype=torch.float64), torch.zeros_like(mean, dtype=torch.float64)
        for batch in batches:
            values, observed = self._observations(batch.to(mean.device))
            total += values.sum(dim=(0, 1), dtype=torch.float64)
            count += observed.sum(dim=(0, 1))
        mean.copy_(total / count.clamp(min=1))

    def _observations(self, batch: IrregularBatch) -> tuple[Tensor, Tensor]:
        return observations(self.rows, batch, self.config.embedder == "frames")

    def _ages(self, known: Known, moments: Tensor, batch: IrregularBatch) -> Tensor:
        """(B, N, C), (B, N) -> (B, N, C), δ at some moments."""
        since = torch.where(known.seen > 0, known.time, batch.times[:, :1, None])
        return ((moments[..., None] - since).clamp(min=0) / self.rows.interval).to(known.latest.dtype)


class Fill(nn.Module):
    """Fills in what was not observed: from the latest value of a channel towards its training `mean`, a buffer."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(channels)
        self.weight = nn.Parameter(torch.empty(channels).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(channels).uniform_(-bound, bound))
        self.mean: Tensor
        self.register_buffer("mean", torch.zeros(channels))

    def forward(self, values: Tensor, observed: Tensor, latest: Tensor, seen: Tensor, ages: Tensor) -> Tensor:
        """x̂ from (B, L, C) each: values, whether observed, the latest ones, whether there is one, and δ."""
        decay = _decay(ages * self.weight + self.bias)
        latest = torch.where(seen, latest, self.mean)
        return torch.where(observed, values, self.mean + decay * (latest - self.mean))


class GRUDLayer(nn.Module):
    """A GRU whose state decays by the ages of the channels; the reset gate acts on the state, as published."""

    def __init__(self, width: int, channels: int) -> None:
        super().__init__()
        self.fade = nn.Linear(channels, width)
        self.gates = nn.Linear(width + channels, 3 * width)  # of [x, observed]: update, reset, candidate
        bound = 1 / math.sqrt(width)
        self.recurrent_gates = nn.Parameter(torch.empty(width, 2 * width).uniform_(-bound, bound))
        self.recurrent_candidate = nn.Parameter(torch.empty(width, width).uniform_(-bound, bound))

    def decay(self, ages: Tensor) -> Tensor:
        """(B, N, C) -> (B, N, D), γ_h"""
        return _decay(self.fade(ages))

    def forward(self, x: Tensor, observed: Tensor, ages: Tensor) -> Tensor:
        """(B, L, D), (B, L, C), (B, L, C) -> (B, L, D), the states."""
        D = x.shape[2]
        gates = self.gates(torch.cat([x, observed], dim=-1)).transpose(0, 1)  # (L, B, 3 D): a step lies together
        decays = self.decay(ages).transpose(0, 1).contiguous().unbind()
        update_reset, candidates = gates[..., : 2 * D].contiguous().unbind(), gates[..., 2 * D :].contiguous().unbind()
        h, states = x.new_zeros(x.shape[0], D), []
        for gate, candidate, decay in zip(update_reset, candidates, decays, strict=True):
            h = decay * h
            z, r = torch.sigmoid(torch.addmm(gate, h, self.recurrent_gates)).chunk(2, dim=1)
            h = torch.lerp(h, torch.tanh(torch.addmm(candidate, r * h, self.recurrent_candidate)), z)
            states.append(h)
        return torch.stack(states, dim=1)


def _decay(rate: Tensor) -> Tensor:
    return torch.exp(-rate.clamp(0, LARGEST_EXPONENT))


def _known(values: Tensor, observed: Tensor, batch: IrregularBatch) -> Known:
    nothing = nothing_known(values.shape[0], values.shape[2], values, batch.times.dtype)
    return follow(values, observed, batch.times, nothing)


def _with_first(rows: Tensor, filled: Tensor) -> Tensor:
    """Rows, (B, L, W) or frames, with the filled-in values (B, L, C) in place of the values that stand first."""
    if rows.dim() > 3:
        return filled.view_as(rows)
    return torch.cat([filled, rows[..., filled.shape[2] :]], dim=-1)
