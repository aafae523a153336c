"""The importance-weighted bound: how models with random latent numbers learn targets that are numbers too.

log 1/K Σ_k exp(log p(y | z_k) − β KL(q ‖ N(0, I))),      z_k ~ q, normal,      p normal with a fixed deviation
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from lformer import metrics
from lformer.batch import IrregularBatch
from lformer.draws import generator_on
from lformer.tasks import Task


class Law(NamedTuple):
    """Independent normal laws."""

    mean: Tensor  # (B, *)
    deviation: Tensor  # (B, *), positive

    def divergence(self) -> Tensor:
        """From the standard normal law, of each number: (B, *)."""
        return 0.5 * (self.mean.square() + self.deviation.square() - 1) - self.deviation.log()

    def samples(self, count: int) -> Tensor:
        """(count, B, *), drawn from the generator of the run."""
        size, device = (count, *self.mean.shape), self.mean.device
        draws = torch.randn(size, generator=generator_on(device), device=device).to(self.mean.dtype)
        return torch.addcmul(self.mean, self.deviation, draws)


def check_bound(samples: int, noise: float, kl_weight: float) -> None:
    """Refuse what is no number of samples, no deviation of a target or no weight of the divergence."""
    if samples < 1:
        raise ValueError(f"samples must be at least 1; got {samples}.")
    if not noise > 0:
        raise ValueError(f"noise must be greater than 0; got {noise}.")
    if not kl_weight >= 0:
        raise ValueError(f"kl_weight must be at least 0; got {kl_weight}.")


def asks_for_numbers(task: Task) -> bool:
    """Whether the error of a task is that of normal targets, up to its unit."""
    return task.error in (metrics.squared, metrics.summed_squared)


def log_likelihood(
    answers: Callable[[Tensor], Tensor], samples: Tensor, task: Task, batch: IrregularBatch, noise: float
) -> Tensor:
    """log 1/K Σ_k exp(log p(y | z_k)), (), with log p the mean over the targets of a batch.

    Args:
        answers: latent numbers (B, *) -> what the model answers from them, one sample at a time.
        samples: (K, B, *), of the latent numbers or of what was made of them.
        task, batch: what is asked, and its targets.
        noise: standard deviation of a target around its answer.
    """
    targets, scores = task.encode(metrics.targets_of(batch)), []
    for z in samples:
        error = surprise(answers(z), targets, noise)
        scores.append(-metrics.mean_loss(error if task.error is metrics.squared else error.sum(-1), batch))
    return torch.logsumexp(torch.stack(scores), dim=0) - math.log(len(samples))


def surprise(prediction: Tensor, target: Tensor, noise: float) -> Tensor:
    """-log of the normal density of each entry."""
    return 0.5 * ((prediction - target) / noise).square() + math.log(noise) + 0.5 * math.log(2 * math.pi)
