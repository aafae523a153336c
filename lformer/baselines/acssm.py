"""ACSSM: a linear stochastic differential equation, steered by what a transformer and a GRU read in the observations.

In the basis of an orthogonal E the states move independently of each other. With control α_k = B Z_k at row k:

    a_k = -Σ_j c_kj (e^{D_j} + 1e-6),   c_k = softmax(W α_k)                     drift, negative
    m_k = e^{a_k δ_k} m_{k-1} + (e^{a_k δ_k} - 1) / a_k ⊙ α_k                    mean
    p_k = e^{2 a_k δ_k} p_{k-1} + (e^{2 a_k δ_k} - 1) / (2 a_k) + 1e-6           variance, of unit diffusion

δ_k is the interval before the row. Both are linear scans. What the head reads is M E m_k + C E Z_k.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lformer import metrics
from lformer.baselines.evolving import filled_rows
from lformer.baselines.linear_sde import Orthogonal, grown_over_rate
from lformer.baselines.model import BaselineConfig, BaselineModel, full_precision, state_after
from lformer.batch import IrregularBatch
from lformer.draws import generator_on
from lformer.nn.dropout import Dropout
from lformer.nn.embedder import SinusoidalTime
from lformer.nn.query import rows_until
from lformer.nn.rows import Encoded
from lformer.ops.scan import linear_scan
from lformer.tasks import Task

SMALL = 1e-6
TARGET_VARIANCE = 0.01
LEAST_LATENT_VARIANCE = 1.0


@dataclass(frozen=True, kw_only=True)
class ACSSMConfig(BaselineConfig):
    """The latent state has `width` numbers; `depth` is the number of transformer layers.

    Attributes:
        bases: K, drifts of which one is mixed.
        causal: whether a row attends to earlier rows alone, for extrapolation; else to all.
        absolute_time: put the time since the start in the place of δ_k, as the authors' program does and their paper
            does not.
        initial_variance: what the variance of the state before the first row starts from.
        samples: of the latent state in a training step.
        control_weight, latent_weight: of the two terms beside the error in `training_loss`.
        dropout: share of what each part of a transformer layer gives that is dropped in training.
    """

    bases: int = 20
    causal: bool = False
    absolute_time: bool = False
    initial_variance: float = 10.0
    samples: int = 3
    control_weight: float = 1e-6
    latent_weight: float = 1e-8
    dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("bases", "samples")
        if self.width % 2:
            raise ValueError(f"width must be even: times are embedded by pairs of sine and cosine; got {self.width}.")
        if self.initial_variance <= 0:
            raise ValueError(f"initial_variance must be positive; got {self.initial_variance}.")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1; got {self.dropout}.")


class Law(NamedTuple):
    """The latent state at some moments, in the basis E."""

    control: Tensor  # (..., D) Z, what is read of the observations
    mean: Tensor  # (..., D) m
    variance: Tensor  # (..., D) p


class Path(NamedTuple):
    """What is known of the rows of a batch."""

    embedded: Tensor  # (B, L, D)
    features: Tensor  # (B, L, D) of the latest row that holds an observation; 0 before the first
    hidden: Tensor  # (B, L, D) states of the GRU
    law: Law  # (B, L, ...)


class ACSSM(BaselineModel):
    """A series is answered from the state at its last row, a row from its own, a query as an empty row would be.

    A query at the time of a row is answered from that row. Rows without an observation are not attended to; they have
    the features of the latest row with one. Intervals are in typical ones; at the first row the interval is 0.

    Answers come from the mean of the latent state, in training too. `training_loss` draws samples of it. Numbers are
    learned by Gaussian likelihood with a variance of 0.01, everything else by the loss of the task; beside it stand the
    cost of the control, ½ Σ_k |α_k|² δ_{k+1}, and the negative log likelihood of the embedded rows under the latent
    state, both summed over a series and averaged over the batch.
    """

    recordable = True  # what it does depends on shapes alone, so its steps may be replayed as CUDA graphs
    own_draws = True

    def __init__(self, config: ACSSMConfig) -> None:
        super().__init__(config)
        D = config.width
        self.when = SinusoidalTime(D)
        self.layers = nn.ModuleList(EncoderLayer(D, config.dropout) for _ in range(config.depth))
        self.gru = nn.GRU(D, D, batch_first=True)
        self.features = nn.Linear(D, D)
        self.dynamics = ControlledDynamics(config)
        self.from_state, self.from_control = _xavier(D, D, bias=False), _xavier(D, D, bias=False)  # M, C
        self.log_extra = nn.Parameter(torch.zeros(D))  # w

    def read(self, batch: IrregularBatch, encoded: Encoded) -> Tensor:
        """(B, D), (B, L, D) or (B, Q, D) as `config.answer` says."""
        x = self.embed_rows(encoded.rows, batch)
        with full_precision(x.device):
            E = self.dynamics.basis()
            return self.latent(self.asked(self.path(x, batch, E), batch, E), E)

    def training_loss(self, task: Task, batch: IrregularBatch) -> Tensor:
        """Mean error of the answers from samples, and the two terms of the latent state, ()."""
        whole, encoded = self.encode(batch)
        x = self.embed_rows(encoded.rows, whole)
        with full_precision(x.device):
            E = self.dynamics.basis()
            path = self.path(x, whole, E)
            asked = self.asked(path, whole, E)
            center, spread = self.latent(asked, E), self.spread(asked, E)
            beside = self.control_cost(path, whole) + self.latent_cost(path, whole, E)
        errors = []
        for _ in range(self.settings.samples):
            noise = torch.randn(center.shape, generator=generator_on(x.device), device=x.device, dtype=center.dtype)
            answers = self.asked_for(self.answer(center + spread * noise, whole, encoded), batch)
            errors.append(task.loss(answers, batch))
        error = torch.stack(errors).mean()
        gaussian = task.error in (metrics.squared, metrics.summed_squared)
        return (error / (2 * TARGET_VARIANCE) if gaussian else error) + beside

    @property
    def settings(self) -> ACSSMConfig:
        assert isinstance(self.config, ACSSMConfig)
        return self.config

    # --- the latent state ---

    def latent(self, law: Law, E: Tensor) -> Tensor:
        """(..., D), mean of the latent state: M E m + C E Z."""
        y: Tensor = self.from_state(law.mean @ E.mT) + self.from_control(law.control @ E.mT)
        return y

    def spread(self, law: Law, E: Tensor) -> Tensor:
        """(..., D), what noise is multiplied with: M E √(p + e^w)."""
        spread: Tensor = self.from_state((law.variance + self.log_extra.exp()).sqrt() @ E.mT)
        return spread

    def path(self, x: Tensor, batch: IrregularBatch, E: Tensor) -> Path:
        """(B, L, D) embedded rows -> what is known at each of them."""
        x = x.to(self.log_extra.dtype)
        features = self.encoded_rows(x, batch)
        hidden = self.gru(features)[0]
        Z, start = self.features(hidden), self.dynamics.start(E)
        step = self.dynamics(Z, self.clock(batch.deltas, batch.times, x))
        B, D = x.shape[0], x.shape[2]
        states = linear_scan(step.kept, step.added, state=torch.cat([start.mean, start.variance]).expand(B, -1))
        return Path(x, features, hidden, Law(Z, states[..., :D], states[..., D:]))

    def asked(self, path: Path, batch: IrregularBatch, E: Tensor) -> Law:
        """(B, ...), (B, L, ...) or (B, Q, ...), the state at what is asked for."""
        if batch.query_times is None and self.config.answer == "step":
            return path.law
        if batch.query_times is None:
            return Law(*(part.squeeze(1) for part in self._after(path.law, batch.lengths[:, None], E)))
        count = rows_until(batch.times, batch.lengths, batch.query_times)
        latest = self._after(path.law, count, E)
        hidden, features = state_after(path.hidden, count), state_after(path.features, count)
        moved = torch.gru_cell(features.flatten(0, 1), hidden.flatten(0, 1), *self.gru.all_weights[0]).view_as(hidden)
        before = batch.times.gather(1, (count - 1).clamp(min=0))
        since = torch.where(count > 0, batch.query_times - before, 0)
        Z = self.features(moved)
        step = self.dynamics(Z, self.clock(since, batch.query_times.clamp(min=0), Z))
        mean, variance = (step.kept * torch.cat([latest.mean, latest.variance], dim=-1) + step.added).chunk(2, dim=-1)
        new = ((count == 0) | (since > 0))[..., None]
        return Law(*(torch.where(new, a, b) for a, b in zip((Z, mean, variance), latest, strict=True)))

    def clock(self, intervals: Tensor, times: Tensor, like: Tensor) -> Tensor:
        """(B, N) δ in typical intervals; with `absolute_time` the time since the start."""
        chosen = times if self.settings.absolute_time else intervals
        return (chosen / self.rows.interval).to(like.dtype)

    def _after(self, law: Law, count: Tensor, E: Tensor) -> Law:
        """(B, L, ...), (B, N) -> (B, N, ...), after the first `count` rows; what it starts from if there is none."""
        start, none = self.dynamics.start(E), (count == 0)[..., None]
        Z, mean, variance = (state_after(part, count) for part in law)
        return Law(Z, torch.where(none, start.mean, mean), torch.where(none, start.variance, variance))

    # --- what is read of the observations ---

    def encoded_rows(self, x: Tensor, batch: IrregularBatch) -> Tensor:
        """(B, L, D) -> (B, L, D), attended among rows with an observation; other rows have those of the latest."""
        has = filled_rows(batch).has
        place = torch.arange(x.shape[1], device=x.device)
        may = has[:, None, :].expand(-1, x.shape[1], -1)
        if self.settings.causal:
            may = may & (place <= place[:, None])
        may = may | (place == place[:, None])  # a softmax over nothing is NaN
        when = self.when(batch.times / self.rows.interval).to(x.dtype)
        y = torch.where(has[..., None], x + when, 0)
        for layer in self.layers:
            y = layer(y, may)
        latest = torch.where(has, place + 1, 0).cummax(dim=1).values
        return state_after(y, latest)

    # --- what training adds to the error ---

    def control_cost(self, path: Path, batch: IrregularBatch) -> Tensor:
        """λ ½ Σ_k |α_k|² δ_{k+1} of a series, (), mean over the batch."""
        size = self.dynamics.control(path.law.control).square().sum(dim=-1)  # (B, L)
        following = F.pad((batch.deltas / self.rows.interval).to(size.dtype)[:, 1:], (0, 1))
        following = torch.where(F.pad(batch.valid[:, 1:], (0, 1)), following, 0)
        return self.settings.control_weight * 0.5 * (size * following).sum(dim=1).mean()

    def latent_cost(self, path: Path, batch: IrregularBatch, E: Tensor) -> Tensor:
        """λ times the negative log likelihood of the embedded rows of a series, less a constant, (), mean likewise."""
        variance = self.spread(path.law, E).square().clamp(min=LEAST_LATENT_VARIANCE)
        error = (path.embedded.detach() - self.latent(path.law, E)).square()
        surprise = 0.5 * (variance.log() + error / variance).sum(dim=-1)  # (B, L)
        return self.settings.latent_weight * torch.where(filled_rows(batch).has, surprise, 0).sum(dim=1).mean()


class Step(NamedTuple):
    """[m, p]' = kept ⊙ [m, p] + added, (..., 2 D) each."""

    kept: Tensor
    added: Tensor


class ControlledDynamics(nn.Module):
    """How mean and variance of the state move over an interval, by what the control says."""

    undecayed = ("log_rates", "start_log_variance")

    def __init__(self, config: ACSSMConfig) -> None:
        super().__init__()
        D = config.width
        self.initial_variance = config.initial_variance
        self.basis = Orthogonal(D)
        self.control = _xavier(D, D, bias=False)  # B
        self.mixture = nn.Linear(D, config.bases)
        self.log_rates = nn.Parameter(torch.randn(config.bases, D))
        self.start_mean = nn.Parameter(torch.randn(D))
        self.start_log_variance = nn.Parameter(torch.randn(D))

    def start(self, E: Tensor) -> Law:
        """Before the first row, (D,) each: Eᵀ μ and the diagonal of Eᵀ diag(s e^v) E; nothing is read yet."""
        variance = self.initial_variance * self.start_log_variance.exp()
        return Law(torch.zeros_like(self.start_mean), self.start_mean @ E, variance @ E.square())

    def drift(self, control: Tensor) -> Tensor:
        """(..., D) α -> (..., D) a, negative."""
        return -(torch.softmax(self.mixture(control), dim=-1) @ (self.log_rates.exp() + SMALL))

    def forward(self, Z: Tensor, deltas: Tensor) -> Step:
        """(..., D), (...) intervals -> Step"""
        control = self.control(Z)
        moved = self.drift(control) * deltas[..., None]
        mean = deltas[..., None] * grown_over_rate(moved) * control
        variance = deltas[..., None] * grown_over_rate(2 * moved) + SMALL
        return Step(torch.cat([moved.exp(), (2 * moved).exp()], -1), torch.cat([mean, variance], -1))


class EncoderLayer(nn.Module):
    """A transformer layer of one head that normalises after each residual sum; its inner width is D."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.attention, self.out = _xavier(width, 3 * width), _xavier(width, width)
        self.inner, self.outer = _xavier(width, width), _xavier(width, width)
        self.first_norm, self.last_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, may: Tensor) -> Tensor:
        """(B, L, D), (B, L, L) bool, who attends to whom -> (B, L, D)"""
        q, k, v = self.attention(x).chunk(3, dim=-1)
        read = self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=may))
        x = self.first_norm(x + self.dropout(read))
        inner = self.dropout(F.gelu(self.inner(x)))
        y: Tensor = self.last_norm(x + self.dropout(self.outer(inner)))
        return y


def _xavier(inputs: int, outputs: int, bias: bool = True) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, bias=bias)
    nn.init.xavier_uniform_(layer.weight)
    return layer
