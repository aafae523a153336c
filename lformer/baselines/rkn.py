"""RKN-dt: a Kalman filter in a learned space, whose transition depends on the state and on the interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lformer import metrics
from lformer.baselines.evolving import filled_rows
from lformer.baselines.model import BaselineConfig, BaselineModel, state_after
from lformer.batch import IrregularBatch
from lformer.nn.attention import one_of
from lformer.nn.query import rows_until
from lformer.nn.rows import Encoded
from lformer.tasks import Task

SMALLEST_VARIANCE = 1e-6
Normalise = Literal["pre", "post"]


@dataclass(frozen=True, kw_only=True)
class RKNConfig(BaselineConfig):
    """Set `rows="observed"` or "carried" where values are missing.

    Attributes:
        state: 2 m, numbers of the latent state; its first half is observed.
        transitions: K, matrices of which a transition is mixed.
        band: how far from the diagonal the four blocks of a matrix reach.
        depth: layers of the network that mixes them; it has `width` hidden units.
        normalise: what has length 1, the embedded row ("pre") or the latent observation ("post").
    """

    depth: int = 1
    state: int = 30
    transitions: int = 15
    band: int = 3
    normalise: Normalise = "pre"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("normalise", self.normalise, Normalise)
        self.require_positive("state", "transitions")
        if self.state % 2:
            raise ValueError(f"state has two halves, so it must be even; got {self.state}.")
        if self.band < 0:
            raise ValueError(f"band must be at least 0; got {self.band}.")


class Belief(NamedTuple):
    """A Gaussian over the latent state, whose covariance has four diagonal blocks, two of them alike."""

    mean: Tensor  # (..., 2 m)
    upper: Tensor  # (..., m) variances of the observed half
    lower: Tensor  # (..., m) of the other half
    side: Tensor  # (..., m) covariances of each observed number with its partner

    @property
    def covariance(self) -> Tensor:
        """(..., 3 m)"""
        return torch.cat([self.upper, self.lower, self.side], dim=-1)

    def where(self, chosen: Tensor, other: Belief) -> Belief:
        """This belief where `chosen`, (..., 1), else the other one."""
        return Belief(*(torch.where(chosen, mine, its) for mine, its in zip(self, other, strict=True)))


class RKN(BaselineModel):
    """Row by row: predict the state over the interval since the row before, then update it by the encoded row.

    A row in which nothing was observed is predicted and not updated. A series and a row are answered from the mean
    after the update, a query from the mean predicted from the latest row that is not later; over no interval nothing is
    predicted. Before any row the belief is the initial one.

    Targets that are numbers are learned by Gaussian likelihood, with a variance decoded from the covariance of the
    state; classes by the loss of the task. Answers are means.

    Note: embedder and head are the shared ones. In between, the encoder is a linear map of the embedded row for the
    mean and one for the variance, and mean and covariance of the state pass a hidden layer of `width` units each. The
    filter works in the dtype of the model; the authors' is float64.
    """

    recordable = True
    own_draws = True

    def __init__(self, config: RKNConfig) -> None:
        super().__init__(config)
        D, m = config.width, config.state // 2
        self.normalise = config.normalise
        self.observation = nn.Linear(D, m)
        self.observation_variance = nn.Linear(D, m)
        self.transition = Transition(config)
        self.initial = nn.Parameter(torch.full((2, m), math.log(10.0)))  # log variances
        self.decoder = nn.Sequential(nn.Linear(2 * m, D), nn.Tanh())
        self.variance = nn.Sequential(nn.Linear(3 * m, D), nn.Tanh(), nn.Linear(D, config.outputs))

    def read(self, batch: IrregularBatch, encoded: Encoded) -> Tensor:
        """(B, D), (B, L, D) or (B, Q, D) as `config.answer` says."""
        mean: Tensor = self.decoder(self.believe(batch, encoded).mean)
        return mean

    def training_loss(self, task: Task, batch: IrregularBatch) -> Tensor:
        """Negative log likelihood of the targets, less a constant, (); the loss of the task if they are classes."""
        if task.error not in (metrics.squared, metrics.summed_squared):
            return task.loss(task.predict(self, batch), batch)
        mean, variance = self.gaussian(batch)
        error = 0.5 * (variance.log() + metrics.squared(mean, task.encode(metrics.targets_of(batch))) / variance)
        return metrics.mean_loss(error if task.error is metrics.squared else error.sum(dim=-1), batch)

    def gaussian(self, batch: IrregularBatch) -> tuple[Tensor, Tensor]:
        """Mean and variance of each answer: (B, O), (B, L, O) or (B, Q, O)."""
        whole, encoded = self.encode(batch)
        belief = self.believe(whole, encoded)
        mean = self.answer(self.decoder(belief.mean), whole, encoded)
        variance = positive(self.variance(belief.covariance)).clamp(min=SMALLEST_VARIANCE)
        return self.asked_for(mean, batch), self.asked_for(variance, batch)

    def believe(self, batch: IrregularBatch, encoded: Encoded) -> Belief:
        """(B, ...), (B, L, ...) or (B, Q, ...), the belief about what is asked for."""
        x = self.embed_rows(encoded.rows, batch)
        start, rows = self.initial_belief(x), self.filter(x, batch)
        if batch.query_times is None and self.config.answer == "step":
            return rows
        if batch.query_times is None:
            return Belief(*(_after(a, b, batch.lengths[:, None]).squeeze(1) for a, b in zip(start, rows, strict=True)))
        count = rows_until(batch.times, batch.lengths, batch.query_times)
        latest = Belief(*(_after(a, b, count) for a, b in zip(start, rows, strict=True)))
        since = batch.query_times - batch.times.gather(1, (count - 1).clamp(min=0))
        since = torch.where(count > 0, since, 0)[..., None]
        predicted = self.transition(latest, self._typical(since, x), self.transition.banded())
        return predicted.where(since > 0, latest)

    def filter(self, x: Tensor, batch: IrregularBatch) -> Belief:
        """(B, L, D) embedded rows -> (B, L, ...), the belief after each row; on padding that of the last row."""
        w, r = self.latent_observation(x)
        deltas = self._typical(batch.deltas, x).T[..., None].unbind()
        valid, seen = (flag.T[..., None].unbind() for flag in (batch.valid, filled_rows(batch).has))
        belief, found, matrices = self.initial_belief(x), [], self.transition.banded()
        for k, (mean, variance) in enumerate(zip(w.transpose(0, 1).unbind(), r.transpose(0, 1).unbind(), strict=True)):
            if k:
                belief = self.transition(belief, deltas[k], matrices).where(valid[k], belief)
            belief = updated(belief, mean, variance, seen[k])
            found.append(belief)
        return Belief(*(torch.stack(part, dim=1) for part in zip(*found, strict=True)))

    def initial_belief(self, x: Tensor) -> Belief:
        """(B, ...), the belief before the first row; the mean is 0."""
        upper, lower = self.initial.exp()[:, None].expand(-1, x.shape[0], -1)
        return Belief(torch.zeros_like(upper).repeat(1, 2), upper, lower, torch.zeros_like(upper))

    def latent_observation(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, L, D) -> (B, L, m) mean and (B, L, m) variance."""
        if self.normalise == "pre":
            x = _of_length_one(x)
        w = self.observation(x)
        return w if self.normalise == "pre" else _of_length_one(w), positive(self.observation_variance(x))

    def _typical(self, intervals: Tensor, like: Tensor) -> Tensor:
        return (intervals / self.rows.interval).to(like.dtype)


def updated(prior: Belief, w: Tensor, r: Tensor, seen: Tensor) -> Belief:
    """The belief after an observation of the upper half.

    Args:
        prior: (..., 2 m) and so on.
        w: (..., m) what was observed.
        r: (..., m) its variance.
        seen: (..., 1) bool; the prior stays where it is False.
    """
    upper, lower = prior.mean.chunk(2, dim=-1)
    total = prior.upper + r
    error = torch.where(seen, (w - upper) / total, 0)
    side = torch.where(seen, prior.side / total, 0)
    left = torch.where(seen, r / total, 1)  # not 1 − gain, which loses its digits where r is small
    return Belief(
        mean=torch.cat([upper + prior.upper * error, lower + prior.side * error], dim=-1),
        upper=left * prior.upper,
        lower=(prior.lower - side * prior.side).clamp(min=torch.finfo(r.dtype).tiny),  # positive but for rounding
        side=left * prior.side,
    )


class Transition(nn.Module):
    """A linear step of the state, mixed of K banded matrices by what the state and the interval say."""

    def __init__(self, config: RKNConfig) -> None:
        super().__init__()
        m, K = config.state // 2, config.transitions
        sizes = [config.state + 1, *[config.width] * (config.depth - 1)]
        hidden = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.Tanh())]
        self.mixture = nn.Sequential(*hidden, nn.Linear(sizes[-1], K))
        one = torch.eye(m)
        start = torch.stack([torch.stack([one, 0.2 * one], dim=1), torch.stack([-0.2 * one, one], dim=1)])
        self.matrices = nn.Parameter(start.repeat(K, 1, 1, 1, 1))  # (K, 2, m, 2, m): block, row, block, column
        self.noise = nn.Parameter(torch.full((2, m), math.log(0.1)))  # log variances
        index = torch.arange(m)
        self.band: Tensor
        self.register_buffer("band", ((index[:, None] - index).abs() <= config.band)[:, None], persistent=False)

    def banded(self) -> Tensor:
        """(K, 2, m, 2, m), the matrices, once for all steps."""
        return torch.where(self.band, self.matrices, 0)

    def forward(self, belief: Belief, delta: Tensor, matrices: Tensor) -> Belief:
        """(..., 2 m) and so on, (..., 1) in typical intervals, those of `banded` -> the belief after the interval."""
        coefficients = torch.softmax(self.mixture(torch.cat([belief.mean, delta], dim=-1)), dim=-1)
        A = (coefficients @ matrices.flatten(1)).unflatten(-1, matrices.shape[1:])  # (..., 2, m, 2, m)
        return moved(belief, A, self.noise.exp())


def moved(belief: Belief, A: Tensor, noise: Tensor) -> Belief:
    """A Σ Aᵀ + noise, of which the diagonals of the blocks are kept.

    Args:
        belief: (..., 2 m) and so on.
        A: (..., 2, m, 2, m)
        noise: (2, m)
    """
    mean = (A.flatten(-4, -3).flatten(-2) @ belief.mean[..., None]).squeeze(-1)
    columns = torch.stack([belief.upper, belief.side, belief.side, belief.lower], dim=-2)
    columns = columns.unflatten(-2, (2, 2))[..., None, None, :, :, :]  # (..., 1, 1, 2, 2, m)
    half = A[..., 0, None, :] * columns[..., 0, :, :] + A[..., 1, None, :] * columns[..., 1, :, :]  # (..., 2, m, 2, m)
    (half_u, half_l), (A_u, A_l) = half.unbind(-4), A.unbind(-4)
    upper, lower, side = ((a * b).flatten(-2).sum(-1) for a, b in ((half_u, A_u), (half_l, A_l), (half_l, A_u)))
    return Belief(mean, upper + noise[0], lower + noise[1], side)


def positive(x: Tensor) -> Tensor:
    """e^x below 0, x + 1 above."""
    return torch.where(x < 0, torch.exp(x.clamp(max=0)), x + 1)


def _of_length_one(x: Tensor) -> Tensor:
    return F.normalize(x, dim=-1, eps=1e-6)


def _after(start: Tensor, rows: Tensor, count: Tensor) -> Tensor:
    """(B, S), (B, L, S), (B, Q) -> (B, Q, S), after the first `count` rows; `start` if there is none."""
    return torch.where(count[..., None] > 0, state_after(rows, count), start[:, None])
