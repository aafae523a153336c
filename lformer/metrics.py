"""Metrics as defined in the published tables: over the entries of a whole data set, however it is batched.

A metric collects a few numbers from every batch, in float64, and is finished once. Series of different lengths are thus
weighted by their number of entries, and neither batch size nor padding changes a result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Literal, Protocol

import torch
from torch import Tensor

from lformer.batch import IrregularBatch
from lformer.distributions import LEVELS, OTHERS

Error = Callable[[Tensor, Tensor], Tensor]  # (prediction, target) -> error of each entry or point
Where = Callable[[IrregularBatch], Tensor]  # which entries of the targets count
HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


@lru_cache(maxsize=256)
@torch.inference_mode(False)
def constant(numbers: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor of a few numbers, cached: it cannot be copied from the CPU while a CUDA graph is recorded."""
    return torch.tensor(numbers, dtype=dtype, device=device)


# --- errors of single entries ---


def absolute(prediction: Tensor, target: Tensor) -> Tensor:
    """|p - t| of each entry."""
    return (prediction - target).abs()


def squared(prediction: Tensor, target: Tensor) -> Tensor:
    """(p - t)² of each entry."""
    return (prediction - target).square()


def summed_absolute(prediction: Tensor, target: Tensor) -> Tensor:
    """`|dx| + |dy| + …` of each point: (..., C), (..., C) -> (...)."""
    return absolute(prediction, target).sum(dim=-1)


def summed_squared(prediction: Tensor, target: Tensor) -> Tensor:
    """`dx² + dy² + …` of each point: (..., C), (..., C) -> (...)."""
    return squared(prediction, target).sum(dim=-1)


def correct(scores: Tensor, target: Tensor) -> Tensor:
    """1 where the true class has the largest score, else 0: (..., K), (...) -> (...)."""
    return (scores.argmax(dim=-1) == target).to(torch.float64)


def surprise(scores: Tensor, target: Tensor) -> Tensor:
    """Binary cross-entropy of presence, 1 or 0, where the score is its log odds."""
    return torch.nn.functional.binary_cross_entropy_with_logits(scores, target, reduction="none")


def value_and_presence(observed: float, prediction: Tensor, target: Tensor) -> Tensor:
    """(p - t)² of values and `surprise` of presence, weighted so that the overall mean is the sum of both means.

    Args:
        observed: share of the entries that were observed: only these count for values, all for presence.
        prediction, target: (..., 2 C), values followed by presence.
    """
    (value, score), (true, there) = prediction.chunk(2, dim=-1), target.chunk(2, dim=-1)
    return (1 + observed) * torch.cat([squared(value, true) / observed, surprise(score, there)], dim=-1)


# --- errors of distributions, in the block layout of `lformer.distributions` ---


def of_point(error: Error, prediction: Tensor, target: Tensor) -> Tensor:
    """The error of the point prediction alone: (..., P O), (..., O) -> (..., O)."""
    return error(prediction[..., : target.shape[-1]], target)


def gaussian_surprise(prediction: Tensor, target: Tensor) -> Tensor:
    """Negative log-density of a normal distribution: (..., 2 O), (..., O) -> (..., O); infinite for a point."""
    if prediction.shape[-1] == target.shape[-1]:
        return torch.full_like(prediction, torch.inf)
    mean, deviation = prediction.chunk(2, dim=-1)
    return 0.5 * ((target - mean) / deviation).square() + deviation.log() + HALF_LOG_TWO_PI


def gaussian_crps(prediction: Tensor, target: Tensor) -> Tensor:
    """Continuous ranked probability score of a normal distribution: (..., 2 O), (..., O) -> (..., O).

    In the units of the target; for a point it is the absolute error, so the two can be compared.
    """
    if prediction.shape[-1] == target.shape[-1]:
        return absolute(prediction, target)
    mean, deviation = prediction.chunk(2, dim=-1)
    z = (target - mean) / deviation
    density = torch.exp(-0.5 * z.square()) / math.sqrt(2 * math.pi)
    return deviation * (z * torch.erf(z / math.sqrt(2)) + 2 * density - 1 / math.sqrt(math.pi))


def pinball(prediction: Tensor, target: Tensor) -> Tensor:
    """Twice the pinball loss, averaged over `LEVELS`: (..., P O), (..., O) -> (..., O); absolute error for points."""
    return _pinball(prediction, target, [1 / len(LEVELS)] * len(LEVELS))


def quantile_crps(prediction: Tensor, target: Tensor) -> Tensor:
    """Approximate continuous ranked probability score of quantiles: (..., P O), (..., O) -> (..., O).

    It is twice the integral of the pinball loss over all levels, in which each of ours represents its neighbourhood. In
    the units of the target; for a point it is the absolute error.
    """
    ends = [0.0, *((a + b) / 2 for a, b in pairwise(LEVELS)), 1.0]
    share = dict(zip(LEVELS, (b - a for a, b in pairwise(ends)), strict=True))
    return _pinball(prediction, target, [share[level] for level in (0.5, *OTHERS)])


def _pinball(prediction: Tensor, target: Tensor, weights: list[float]) -> Tensor:
    outputs = target.shape[-1]
    if prediction.shape[-1] == outputs:
        return absolute(prediction, target)
    levels, weight = (
        constant(tuple(numbers), prediction.dtype, prediction.device)[:, None] for numbers in ((0.5, *OTHERS), weights)
    )
    missed = target[..., None, :] - prediction.unflatten(-1, (len(LEVELS), outputs))
    return (2 * weight * torch.maximum(levels * missed, (levels - 1) * missed)).sum(dim=-2)


# --- which entries count ---


def all_targets(batch: IrregularBatch) -> Tensor:
    """Every target that has a true value."""
    targets = targets_of(batch)
    return torch.ones_like(targets, dtype=torch.bool) if batch.targets_observed is None else batch.targets_observed


def unseen_targets(batch: IrregularBatch) -> Tensor:
    """Targets whose value was not among the inputs."""
    counted = all_targets(batch)
    return counted if batch.targets_given is None else counted & ~batch.targets_given


def value_targets(batch: IrregularBatch) -> Tensor:
    """Targets in the first half of the outputs: values, if presence is predicted too."""
    counted = all_targets(batch)
    return counted & _is_value(counted)


def presence_targets(batch: IrregularBatch) -> Tensor:
    """Targets in the second half of the outputs."""
    counted = all_targets(batch)
    return counted & ~_is_value(counted)


def _is_value(counted: Tensor) -> Tensor:
    """(2 C,)"""
    return torch.arange(counted.shape[-1], device=counted.device) < counted.shape[-1] // 2


def first_half(batch: IrregularBatch) -> Tensor:
    """Targets in the first half of the points of each series."""
    return _from_middle(batch, before=True)


def second_half(batch: IrregularBatch) -> Tensor:
    """Targets in the second half of the points of each series."""
    return _from_middle(batch, before=False)


def _from_middle(batch: IrregularBatch, before: bool) -> Tensor:
    counted = all_targets(batch)
    points = counted.shape[1]
    first = torch.arange(points, device=counted.device) < points // 2
    return counted & (first if before else ~first).reshape(-1, *(1,) * (counted.dim() - 2))


def targets_of(batch: IrregularBatch) -> Tensor:
    """The targets; raises if there are none."""
    if batch.targets is None:
        raise ValueError("the batch has no targets; give them to IrregularBatch.build(..., targets=...).")
    return batch.targets


# --- metrics over a whole data set ---


class Metric(Protocol):
    """A metric over a whole data set.

    `best` says whether it is minimised or maximised; `scaled`, whether predictions and targets are compared in units of
    the targets' standard deviation (see `Task`) instead of their own units.
    """

    @property
    def best(self) -> Literal["min", "max"]: ...
    @property
    def scaled(self) -> bool: ...

    def collect(self, prediction: Tensor, targets: Tensor, batch: IrregularBatch) -> Tensor:
        """(N, 2) float64, what is kept of one batch."""
        ...

    def finish(self, kept: Tensor) -> float:
        """The metric, from what was kept of all batches; NaN if nothing counted."""
        ...


@dataclass(frozen=True)
class Mean:
    """The mean of an error over some targets, or its root; if `weighted`, with the weights of series and channels.

    `power`: exponent of these weights, which are for squared errors; 1/2 for errors in the units of the targets.
    """

    error: Error
    where: Where = all_targets
    root: bool = False
    scaled: bool = False
    best: Literal["min", "max"] = "min"
    weighted: bool = False
    power: float = 1.0

    def collect(self, prediction: Tensor, targets: Tensor, batch: IrregularBatch) -> Tensor:
        """(1, 2): sum and count over one batch."""
        error, counted = masked(self.error(prediction, targets), self.where(batch))
        error = torch.where(counted, error.to(torch.float64), 0.0)
        total = (weigh(error, batch, self.power) if self.weighted else error).sum()
        return torch.stack([total, counted.sum().to(torch.float64)])[None]

    def finish(self, kept: Tensor) -> float:
        total, count = kept.sum(dim=0).tolist()
        mean = total / count if count else float("nan")
        return float(mean**0.5) if self.root else mean


@dataclass(frozen=True)
class ChannelMean:
    """The mean over channels of the mean error of their targets; channels without targets are left out.

    Every channel has the same weight, however often it was observed: a macro average, while `Mean` is a micro average.
    """

    channels: int
    error: Error
    where: Where = all_targets
    scaled: bool = False
    best: Literal["min", "max"] = "min"

    def collect(self, prediction: Tensor, targets: Tensor, batch: IrregularBatch) -> Tensor:
        """(C, 2): sum and count over one batch, for each channel."""
        counted = self.where(batch)
        error = torch.where(counted, self.error(prediction, targets).to(torch.float64), 0.0)
        both = torch.stack([error, counted.to(torch.float64)], dim=-1)
        return both.flatten(0, -3).sum(dim=0)

    def finish(self, kept: Tensor) -> float:
        total, count = kept.reshape(-1, self.channels, 2).sum(dim=0).unbind(-1)
        return float((total / count)[count > 0].mean())


@dataclass(frozen=True)
class Ranking:
    """How well the score of the second of two classes ranks the series of a data set.

    Attributes:
        area: "roc", the area under the receiver operating characteristic, or "precision", the average precision.
    """

    area: Literal["roc", "precision"]
    scaled: bool = False
    best: Literal["min", "max"] = "max"

    def collect(self, prediction: Tensor, targets: Tensor, batch: IrregularBatch) -> Tensor:
        """(N, 2): score and class of each target; the class is NaN if the target does not count."""
        score = (prediction[..., 1] - prediction[..., 0]).to(torch.float64)
        counted = torch.where(all_targets(batch), targets.to(torch.float64), math.nan)
        return torch.stack([score, counted], dim=-1).flatten(0, -2)

    def finish(self, kept: Tensor) -> float:
        kept = kept[~kept[:, 1].isnan()]
        return (roc_area if self.area == "roc" else average_precision)(kept[:, 0], kept[:, 1])


def roc_area(scores: Tensor, positive: Tensor) -> float:
    """Share of the pairs of a positive and a negative that are in the right order; ties count half.

    Example:
        >>> roc_area(torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0.0, 0.0, 1.0, 1.0]))
        0.75
    """
    _, which, count = torch.unique(scores, return_inverse=True, return_counts=True)
    ranks = (count.cumsum(0) - (count - 1) / 2).to(torch.float64)[which]  # ties get their mean rank
    positives = float(positive.sum())
    negatives = len(positive) - positives
    if not positives or not negatives:
        return float("nan")
    return (float(ranks[positive > 0].sum()) - positives * (positives + 1) / 2) / (positives * negatives)


def average_precision(scores: Tensor, positive: Tensor) -> float:
    """Precision at each score, weighted by its share of the positives.

    Example:
        >>> round(average_precision(torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0.0, 0.0, 1.0, 1.0])), 4)
        0.8333
    """
    values, which = torch.unique(-scores, return_inverse=True)  # highest score first
    found = torch.zeros(len(values), dtype=torch.float64, device=scores.device)
    hits = found.index_add(0, which, positive.to(torch.float64))
    shown = found.index_add(0, which, torch.ones_like(positive, dtype=torch.float64))
    positives = float(hits.sum())
    if not positives:
        return float("nan")
    return float((hits.cumsum(0) / shown.cumsum(0) * hits).sum()) / positives


# --- training loss ---


def masked(error: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """Error and mask of the same shape; a point summed over its coordinates counts if all of them do."""
    return error, (counted.all(dim=-1) if counted.dim() > error.dim() else counted)


def mean_loss(error: Tensor, batch: IrregularBatch, power: float = 1.0) -> Tensor:
    """The mean error over all targets of a batch that count, with series weights if there are any, see `weigh`."""
    found, counted = masked(error, all_targets(batch))
    return weigh(torch.where(counted, found, 0.0), batch, power).sum() / counted.sum().clamp(min=1)


def weigh(error: Tensor, batch: IrregularBatch, power: float = 1.0) -> Tensor:
    """The error of each entry times the weight of its series, or of its series and channel, if there are weights.

    `power`: exponent of the weights, for errors that are not squared.
    """
    if batch.weights is None:
        return error
    weights = batch.weights.to(error.dtype)
    if power != 1:
        weights = weights.pow(power)
    inner = (1,) * (error.dim() - weights.dim())
    return error * weights.reshape(len(weights), *inner, *weights.shape[1:])
