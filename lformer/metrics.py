"""Errors as the published tables define them: means over the entries of a whole part, however it is batched.

A metric is summed batch by batch, `total` and `count` in float64, and finished once. So series of different lengths
weigh by their entries, and neither batch size nor padding changes a figure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from lformer.batch import IrregularBatch

Error = Callable[[Tensor, Tensor], Tensor]  # (prediction, target) -> error of each entry or point
Where = Callable[[IrregularBatch], Tensor]  # which entries of the targets count


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
    """1 where the largest score is that of the right class, else 0: (..., K), (...) -> (...)."""
    return (scores.argmax(dim=-1) == target).to(torch.float64)


def all_targets(batch: IrregularBatch) -> Tensor:
    """Every target there is something to compare with."""
    targets = targets_of(batch)
    return torch.ones_like(targets, dtype=torch.bool) if batch.targets_observed is None else batch.targets_observed


def unseen_targets(batch: IrregularBatch) -> Tensor:
    """Those whose value was not among the inputs."""
    counted = all_targets(batch)
    return counted if batch.targets_given is None else counted & ~batch.targets_given


def points(begin: int, end: int | None) -> Where:
    """Those of the points from `begin` to before `end` of each series."""
    return partial(_between, begin, end)


def _between(begin: int, end: int | None, batch: IrregularBatch) -> Tensor:
    counted = all_targets(batch)
    inside = torch.zeros_like(counted)
    inside[:, begin:end] = True
    return counted & inside


@dataclass(frozen=True)
class Metric:
    """The mean of an error over some targets, or its root."""

    error: Error
    where: Where = all_targets
    root: bool = False

    def sums(self, prediction: Tensor, batch: IrregularBatch) -> Tensor:
        """(2,) float64: the total over one batch, and over how many."""
        error, counted = masked(self.error, prediction, batch, self.where)
        total = torch.where(counted, error.to(torch.float64), 0.0).sum()
        return torch.stack([total, counted.sum().to(torch.float64)])

    def finish(self, sums: Tensor) -> float:
        """The figure, from the sums of all batches; NaN if nothing counted."""
        total, count = sums.tolist()
        mean = total / count if count else float("nan")
        return float(mean**0.5) if self.root else mean


def masked(error: Error, prediction: Tensor, batch: IrregularBatch, where: Where) -> tuple[Tensor, Tensor]:
    """Error and mask of the same shape; a point summed over its coordinates counts if all of them do."""
    targets = targets_of(batch)
    found, counted = error(prediction, targets), where(batch)
    return found, (counted.all(dim=-1) if counted.dim() > found.dim() else counted)


def mean_loss(error: Error, prediction: Tensor, batch: IrregularBatch) -> Tensor:
    """The mean over all targets of a batch, to train on; weighted if its series have weights."""
    found, counted = masked(error, prediction, batch, all_targets)
    found = torch.where(counted, found, 0.0)
    if batch.weights is not None:
        found = found * batch.weights.to(found.dtype).reshape(-1, *(1,) * (found.dim() - 1))
    return found.sum() / counted.sum().clamp(min=1)


def targets_of(batch: IrregularBatch) -> Tensor:
    """The targets, which must be there."""
    if batch.targets is None:
        raise ValueError("the batch has no targets; give them to IrregularBatch.build(..., targets=...).")
    return batch.targets
