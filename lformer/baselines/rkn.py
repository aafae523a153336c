"""RKN-dt: a Kalman filter in a learned space, whose transition depends on the state and on the interval."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lformer import metrics
from lformer.baselines.evolving import filled_rows
from lformer.baselines.model import BaselineConfig, BaselineModel, full_precision
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
    """A Gaussian over the latent state. Of its covariance the diagonals of the four blocks m × m are kept."""

    mean: Tensor  # (..., 2, m), the observed half first
    covariance: Tensor  # (..., 2, 2, m), symmetric in the halves

    def where(self, chosen: Tensor, other: Belief) -> Belief:
        """This belief where `chosen`, (...), else the other one."""
        return Belief(
            torch.where(chosen[..., None, None], self.mean, other.mean),
            torch.where(chosen[..., None, None, None], self.covariance, other.covariance),
        )


class RKN(BaselineModel):
    """Row by row: predict the state over the interval since the row before, then update it by the encoded row.

    A row in which nothing was observed is predicted and not updated. A series and a row are answered from the mean
    after the update, a query from the mean predicted from the latest row that is not later; over no interval nothing is
    predicted. Before any row the belief is the initial one.

    Targets that are numbers are learned by Gaussian likelihood, with a variance decoded from the covariance of the
    state; classes by the loss of the task. Answers are means.

    Note: embedder and head are the shared ones. In between, the encoder is a linear map of the embedded row for the
    mean and one for the variance; the mean of the state passes three hidden layers, its covariance one. The filter
    works in the dtype of the model; the authors' is float64.
    """

    recordable = True
    own_draws = True

    def __init__(self, config: RKNConfig) -> None:
        super().__init__(config)
        D, m = config.width, config.state // 2
        self.normalise = config.normalise
        self.observation = nn.Linear(D, m)
        self.observation_variance = nn.Linear(D, m)
        self.transition = self.make_transition(config)
        self.initial = nn.Parameter(torch.full((2, m), math.log(10.0)))  # log variances
        self.decoder = _hidden(2 * m, D, 3)
        self.variance = nn.Sequential(*_hidden(3 * m, D, 1), nn.Linear(D, config.outputs))

    def make_transition(self, config: RKNConfig) -> Prediction:
        """How the state moves on between rows."""
        return Transition(config)

    def read(self, batch: IrregularBatch, encoded: Encoded) -> Tensor:
        """(B, D), (B, L, D) or (B, Q, D) as `config.answer` says."""
        return self.decoded(self.believe(batch, encoded))

    def decoded(self, belief: Belief) -> Tensor:
        """(...) -> (..., D), what the head makes the mean of the answer of."""
        hidden: Tensor = self.decoder(belief.mean.flatten(-2))
        return hidden

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
        mean = self.answer(self.decoded(belief), whole, encoded)
        (upper, side), (_, lower) = (half.unbind(-2) for half in belief.covariance.unbind(-3))
        variance = positive(self.variance(torch.cat([upper, lower, side], dim=-1))).clamp(min=SMALLEST_VARIANCE)
        return self.asked_for(mean, batch), self.asked_for(variance, batch)

    def believe(self, batch: IrregularBatch, encoded: Encoded) -> Belief:
        """(B, ...), (B, L, ...) or (B, Q, ...), the belief about what is asked for."""
        x = self.embed_rows(encoded.rows, batch)
        with full_precision(x.device):
            return self._believe(x.to(self.initial.dtype), batch)

    def _believe(self, x: Tensor, batch: IrregularBatch) -> Belief:
        start, rows = self.initial_belief(x), self.filter(x, batch)
        if batch.query_times is None and self.config.answer == "step":
            return rows
        if batch.query_times is None:
            last = (_after(a, b, batch.lengths[:, None]).squeeze(1) for a, b in zip(start, rows, strict=True))
            return Belief(*last)
        count = rows_until(batch.times, batch.lengths, batch.query_times)
        latest = Belief(*(_after(a, b, count) for a, b in zip(start, rows, strict=True)))
        since = batch.query_times - batch.times.gather(1, (count - 1).clamp(min=0))
        since = torch.where(count > 0, since, 0)
        predicted = self.transition.prepared()(latest, self.transition.interval(self._typical(since, x)))
        return predicted.where(since > 0, latest)

    def filter(self, x: Tensor, batch: IrregularBatch) -> Belief:
        """(B, L, D) embedded rows -> (B, L, ...), the belief after each row; on padding that of the last row."""
        observations = [part.transpose(0, 1).contiguous().unbind() for part in self.latent_observation(x)]
        seen = filled_rows(batch).has.T[..., None]
        weights = [part.to(x.dtype).unbind() for part in (seen, ~seen)]
        intervals = self.transition.interval(self._typical(batch.deltas.T, x)).unbind()
        predict, valid = self.transition.prepared(), batch.valid.T.unbind()
        belief, found = self.initial_belief(x), []
        for k, (w, r, one, none) in enumerate(zip(*observations, *weights, strict=True)):
            if k:
                belief = predict(belief, intervals[k]).where(valid[k], belief)
            belief = updated(belief, w, r, one, none)
            found.append(belief)
        return Belief(*(torch.stack(part, dim=1) for part in zip(*found, strict=True)))

    def initial_belief(self, x: Tensor) -> Belief:
        """(B, ...), the belief before the first row; the mean is 0."""
        variances = self.initial.exp().expand(x.shape[0], -1, -1)
        return Belief(torch.zeros_like(variances), torch.diag_embed(variances.mT).permute(0, 2, 3, 1))

    def latent_observation(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, L, D) -> (B, L, m) mean and (B, L, m) variance."""
        if self.normalise == "pre":
            x = _of_length_one(x)
        w = self.observation(x)
        return w if self.normalise == "pre" else _of_length_one(w), positive(self.observation_variance(x))

    def _typical(self, intervals: Tensor, like: Tensor) -> Tensor:
        return (intervals / self.rows.interval).to(like.dtype)


def updated(prior: Belief, w: Tensor, r: Tensor, seen: Tensor, unseen: Tensor) -> Belief:
    """The belief after an observation of the upper half.

    Args:
        prior: (...)
        w: (..., m) what was observed.
        r: (..., m) its variance.
        seen: (..., 1) 1 where there was an observation; the prior stays where it is 0.
        unseen: (..., 1) 1 − seen.
    """
    (upper, side), (_, lower) = (half.unbind(-2) for half in prior.covariance.unbind(-3))
    precision = seen / (upper + r)
    change = precision * (w - prior.mean[..., 0, :])
    left = torch.addcmul(unseen, r, precision)  # not 1 − gain, which loses its digits where r is small
    new_lower = torch.addcmul(lower, side, side * precision, value=-1).clamp(min=torch.finfo(r.dtype).tiny)
    new_upper, new_side = left * upper, left * side  # positive all of them, but for rounding
    return Belief(
        mean=torch.addcmul(prior.mean, prior.covariance[..., 0, :, :], change[..., None, :]),
        covariance=torch.stack([new_upper, new_side, new_side, new_lower], dim=-2).unflatten(-2, (2, 2)),
    )


class Prediction(nn.Module):
    """What becomes of the belief over an interval without an observation."""

    def interval(self, deltas: Tensor) -> Tensor:
        """(...) in typical intervals -> (...) or (..., N), what `prepared` takes of them; made once for all rows."""
        raise NotImplementedError(f"{type(self).__name__} must say what it reads of an interval.")

    def prepared(self) -> Callable[[Belief, Tensor], Belief]:
        """A step of the belief: (...) and what `interval` gave -> (...), the belief after the interval."""
        raise NotImplementedError(f"{type(self).__name__} must say how the state moves on.")


def banded(size: int, reach: int) -> Tensor:
    """(m, 1, 1, m) bool, True where entries of the four blocks are at most `reach` from their diagonal."""
    index = torch.arange(size)
    return ((index[:, None] - index).abs() <= reach)[:, None, None]


class Transition(Prediction):
    """A linear step of the state, mixed of K banded matrices by what the state and the interval say."""

    def __init__(self, config: RKNConfig) -> None:
        super().__init__()
        m, K, D = config.state // 2, config.transitions, config.width
        sizes = [config.state + 1, *[D] * (config.depth - 1), K]
        self.mixture = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        one = torch.eye(m)
        start = torch.stack([torch.stack([one, 0.2 * one], dim=1), torch.stack([-0.2 * one, one], dim=1)], dim=1)
        self.matrices = nn.Parameter(start.repeat(K, 1, 1, 1, 1))  # (K, m, 2, 2, m): row, its half, half of column, it
        self.noise = nn.Parameter(torch.full((2, m), math.log(0.1)))  # log variances
        self.band: Tensor
        self.register_buffer("band", banded(m, config.band), persistent=False)

    def interval(self, deltas: Tensor) -> Tensor:
        """(...) in typical intervals -> (..., hidden), what the first layer of the mixture makes of them."""
        first = self.mixture[0]
        assert isinstance(first, nn.Linear)
        return torch.addcmul(first.bias, deltas[..., None], first.weight[:, -1])

    def prepared(self) -> Callable[[Belief, Tensor], Belief]:
        """A step of the belief: (...) and (..., hidden) of `interval` -> (...), the belief after the interval."""
        first, *others = self.mixture
        assert isinstance(first, nn.Linear)
        matrices = torch.where(self.band, self.matrices, 0)  # once for all steps, as all that follows
        flat, weight = matrices.flatten(1), first.weight[:, :-1].T
        noise = torch.diag_embed(self.noise.exp().T).permute(1, 2, 0)  # (2, 2, m)

        def step(belief: Belief, interval: Tensor) -> Belief:
            score = interval + belief.mean.flatten(-2) @ weight
            for layer in others:
                score = layer(torch.tanh(score))
            A = (torch.softmax(score, dim=-1) @ flat).unflatten(-1, matrices.shape[1:])
            return moved(belief, A, noise)

        return step


def moved(belief: Belief, A: Tensor, noise: Tensor) -> Belief:
    """A Σ Aᵀ + noise, of which the diagonals of the blocks are kept.

    Args:
        belief: (...)
        A: (..., m, 2, 2, m), of each row and its half the half and column.
        noise: (2, 2, m), or (..., 2, 2, m)
    """
    rows = A.flatten(-2)  # (..., m, 2, 2 m)
    mean = (rows.flatten(-3, -2) @ belief.mean.flatten(-2)[..., None]).view(belief.mean.mT.shape).mT
    upper, lower = belief.covariance[..., None, None, :, :, :].unbind(-3)
    half = torch.addcmul(A[..., :1, :] * upper, A[..., 1:, :], lower)  # (..., m, 2, 2, m), A Σ
    return Belief(mean, (half.flatten(-2) @ rows.mT).movedim(-3, -1) + noise)


def positive(x: Tensor) -> Tensor:
    """e^x below 0, x + 1 above."""
    return torch.where(x < 0, torch.exp(x.clamp(max=0)), x + 1)


def _hidden(inputs: int, width: int, layers: int) -> nn.Sequential:
    """Normalised layers: the state is a filtered mean of many small numbers, from which a tanh learned next to nothing
    (PhysioNet mortality: AUROC 0.49, and 0.78 with these). Published with ReLU, of which few units may all die."""
    sizes = [inputs, *[width] * layers]
    return nn.Sequential(
        *(part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.LeakyReLU(), nn.LayerNorm(b)))
    )


def _of_length_one(x: Tensor) -> Tensor:
    return F.normalize(x, dim=-1, eps=1e-6)


def _after(start: Tensor, rows: Tensor, count: Tensor) -> Tensor:
    """(B, ...), (B, L, ...), (B, Q) -> (B, Q, ...), after the first `count` rows; `start` if there is none."""
    states = torch.cat([start[:, None], rows], dim=1)
    index = count.view(*count.shape, *[1] * (rows.dim() - 2)).expand(*count.shape, *rows.shape[2:])
    return states.gather(1, index)
