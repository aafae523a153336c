"""LSDE: a latent stochastic differential equation on the unit sphere, whose start and drift are read off a series.

    h = GRU over attention from reference points to observations, its last state
    z₀ ~ PS(W h / |W h|, κ(h)),   κ = min(100 (w · h + b)², 5·10⁴)
    dz = K(t) z dt + σ dB z,   K(t) skew-symmetric, each entry Σ_j c_j(h) T_j(s), T_j(s) = cos(j arccos s)

in equal steps that are rotations, exp(K Δ + σ √Δ ε). Time runs from 0 at the first row of a series to at most 1 at its
last, and s is half of it, away from where arccos has no derivative.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lformer.baselines.model import BaselineConfig, Channels, Clock, Frame, full_precision
from lformer.baselines.mtand import TimeAttention, TimeFeatures, may_attend
from lformer.baselines.sphere import Path, PowerSpherical, follow, normal, skew
from lformer.batch import IrregularBatch
from lformer.nn.rows import Encoded, Rows
from lformer.tasks import Task

SHARPEST = 5e4  # largest concentration of the law of the start


@dataclass(frozen=True, kw_only=True)
class LSDEConfig(BaselineConfig):
    """The defaults are those published for the pendulum, but for width and grid.

    The model reads channels, not embedded rows: of the embedder only "frames" is used, which makes `width` channels of
    a frame; `time_embedding` is not used.

    Attributes:
        rows: with "observed", the model's own way, a channel is attended over the times at which it was observed.
        width: of what is attended, and units of the GRU.
        depth: layers of the GRU.
        state: n, dimensions of the space the sphere is in; at least 3.
        degree: how many polynomials the drift is made of.
        grid: steps of the path over a typical series.
        references: reference points over the span of a series.
        heads: of the attention; must divide `time_width`.
        time_width: size of the time embedding.
        start_weight, path_weight: of the two divergences in the training loss.
        evidence_weight: of the bound on the likelihood of the inputs, beside the loss of the task. 0.1 is the published
            ratio at the end of its rise.
    """

    rows: Rows = "observed"
    depth: int = 1
    state: int = 16
    degree: int = 6
    grid: int = 64
    references: int = 128
    heads: int = 1
    time_width: int = 128
    start_weight: float = 1e-5
    path_weight: float = 1e-6
    evidence_weight: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("degree", "grid", "references", "heads")
        if self.state < 3:
            raise ValueError(f"state must be at least 3; got {self.state}.")
        if self.time_width < 2 or self.time_width % self.heads:
            raise ValueError(
                f"time_width must be at least 2 and a multiple of heads; got time_width={self.time_width}, "
                f"heads={self.heads}."
            )


class LSDE(Frame):
    """Rows and queries are answered from the point of the path at their times, a series from that at its last row.

    Answers come from the path without noise that starts in the middle of the law: they are the same on every call, in
    training too. What training minimises is taken of one sampled path.

    Note: the published grid of times is shared by all series, and observations are moved to its points; here it spans
    each series, and between two of its points a path turns by part of a rotation. Queries may lie up to another span
    behind the last row before the drift stays what it is. The weight of the task does not follow the epochs.
    """

    config: LSDEConfig
    recordable = True  # what it does depends on shapes alone, so its steps may be replayed as CUDA graphs
    own_draws = True  # it draws from the generators of a run, never from those of the process

    def __init__(self, config: LSDEConfig) -> None:
        super().__init__(config)
        D, n = config.width, config.state
        self.channels = Channels(self.rows, config)
        self.time = TimeFeatures(config.time_width)
        self.attend = TimeAttention(config.time_width, config.heads, self.channels.width, D)
        self.recognise = nn.GRU(D, D, config.depth, batch_first=True)
        self.direction, self.sharpness = nn.Linear(D, n), nn.Linear(D, 1)
        self.drift = nn.Linear(D, config.degree * n * (n - 1) // 2)
        self.log_noise = nn.Parameter(torch.tensor(math.log(0.1)))
        self.decode = nn.Linear(n, D)
        frames = config.embedder == "frames"
        self.rebuild = None if frames else nn.Linear(n, config.inputs)
        self.log_variance = None if frames else nn.Parameter(torch.zeros(()))

    def read(self, batch: IrregularBatch, encoded: Encoded) -> Tensor:
        """(B, D), (B, L, D) or (B, Q, D)"""
        law, drift = self.recognised(batch, encoded)
        return self.decoded(self.path(law.direction, drift, noise=None), batch)

    def decoded(self, path: Path, batch: IrregularBatch) -> Tensor:
        """What the head answers from, of a path."""
        clock = Clock.of(batch, self.rows.span)
        if batch.query_times is not None:
            return self.decode(path.at(clock(batch.query_times)))
        if self.config.answer == "step":
            return self.decode(path.at(clock(batch.times)))
        return self.decode(path.at(clock(clock.end)))[:, 0]

    def recognised(self, batch: IrregularBatch, encoded: Encoded) -> tuple[PowerSpherical, Tensor]:
        """The law of the start of each series, and its drift at the beginning of every step, (B, G, n (n - 1) / 2)."""
        x = self.channels(encoded.rows)
        clock = Clock.of(batch, self.rows.span)
        moments = torch.linspace(0, 1, self.config.references, device=x.device, dtype=clock.start.dtype)
        references = self.time(clock(clock.start + moments * (clock.end - clock.start)).to(x.dtype))  # (B, R, E)
        rows = self.time(clock(batch.times).to(x.dtype))  # (B, L, E)
        h = self.recognise(self.attend(references, rows, x, may_attend(self.config, batch, x)))[0][:, -1]  # (B, D)
        concentration = (100 * self.sharpness(h).squeeze(-1).square()).clamp(max=SHARPEST)
        coefficients = self.drift(h).unflatten(-1, (self.config.degree, -1))
        drift = torch.einsum("gj,bjm->bgm", self._polynomials(coefficients), coefficients)
        return PowerSpherical(F.normalize(self.direction(h), dim=-1), concentration), drift

    def _polynomials(self, like: Tensor) -> Tensor:
        """(G, J), T_j at the beginning of every step; twice as many for queries, which may lie behind the last row."""
        spans = 2 if self.config.answer == "query" else 1
        s = torch.arange(spans * self.config.grid, device=like.device, dtype=like.dtype) / (2 * self.config.grid)
        return torch.cos(s.arccos()[:, None] * torch.arange(self.config.degree, device=like.device))

    def path(self, start: Tensor, drift: Tensor, noise: Tensor | None) -> Path:
        """(B, n), (B, G, M), and standard normal numbers (B, G, M) or none."""
        step = 1 / self.config.grid
        with full_precision(start.device):
            turns = drift.to(self.log_noise.dtype) * step
            if noise is not None:
                turns = turns + self.log_noise.exp() * step**0.5 * noise
            return follow(start.to(turns.dtype), skew(turns, self.config.state), step)

    def training_loss(self, task: Task, batch: IrregularBatch) -> Tensor:
        """The loss of the task on a sampled path, and the bound on the likelihood of the inputs, ()."""
        whole, encoded = self.encode(batch)
        law, drift = self.recognised(whole, encoded)
        path = self.path(law.sample(), drift, normal(drift.shape, drift))
        answers = self.asked_for(self.answer(self.decoded(path, whole), whole, encoded), batch)
        bound = self.config.start_weight * law.divergence() + self.config.path_weight * self.path_divergence(
            path, drift
        )
        if self.rebuild is not None:
            bound = bound - self.log_likelihood(path, whole)
        count = torch.where(whole.valid, whole.observed.flatten(2).sum(dim=2), 0).sum(dim=1).clamp(min=1)
        return task.loss(answers, batch) + self.config.evidence_weight * (bound / count).mean()

    def path_divergence(self, path: Path, drift: Tensor) -> Tensor:
        """(B,) Kullback-Leibler divergence from Brownian motion on the sphere, ½ Σ |K z|² Δ / σ²."""
        moved = (skew(drift, self.config.state) @ path.points[:, :-1, :, None]).squeeze(-1)
        return 0.5 * moved.square().sum(dim=(1, 2)) * path.step / (2 * self.log_noise).exp()

    def log_likelihood(self, path: Path, batch: IrregularBatch) -> Tensor:
        """(B,) of all observed values of each series, Gaussian around a linear map of the path."""
        assert self.rebuild is not None
        assert self.log_variance is not None
        values, observed = self.rows.scaled(batch)
        mean = self.rebuild(path.at(Clock.of(batch, self.rows.span)(batch.times)))
        error = (values - mean).square() / self.log_variance.exp() + self.log_variance + math.log(2 * math.pi)
        return torch.where(observed, -0.5 * error, 0).sum(dim=(1, 2))
