"""What one would say of a channel without a model: five rules that need no training, as the ground to stand on.

    TrainMean             the mean of the training part, whatever the series
    LastValue             the latest observed value
    SeriesMean            the mean of the values so far
    LeastSquares          a linear function of both and of the age of the latest value, fitted for each channel
    LinearInterpolation   the line between the neighbouring observations; reads the future

"So far" is up to a row itself, or up to the time of a query. Of what was never observed the training mean is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from lformer.baselines.fitted import READ, FittedAtOnce, check_task
from lformer.batch import IrregularBatch, median_interval
from lformer.metrics import Where, all_targets, targets_of, unseen_targets, weigh
from lformer.nn.attention import one_of
from lformer.nn.known import Ahead, Known, follow, look_ahead, nothing_known
from lformer.nn.persistence import along_line
from lformer.nn.predictor import Answer
from lformer.nn.query import check_answer, rows_until
from lformer.parts import Part
from lformer.tasks import Task

FEATURES = 5  # of `LeastSquares`: latest value, mean so far, log age, 1; and 1 where nothing was observed so far
RIDGE = 1e-10  # of the diagonal: hardly felt by a regular system, enough to solve a singular one
ROUNDING = 1e-8  # of the mean: values that differ by less are one, and nothing can be learned from their differences


@dataclass(frozen=True, kw_only=True)
class NaiveConfig:
    """What describes a rule.

    Attributes:
        inputs: C, observed channels per row.
        outputs: as many.
        answer: at every row ("step"), or at `batch.query_times` ("query").
    """

    inputs: int
    outputs: int
    answer: Answer = "step"

    def __post_init__(self) -> None:
        one_of("answer", self.answer, Answer)
        if self.inputs < 1:
            raise ValueError(f"inputs must be at least 1; got {self.inputs}.")
        if self.answer == "series" or self.outputs != self.inputs:
            raise ValueError(
                "a naive rule answers with values of the channels it reads, so it needs as many outputs as inputs and "
                f'answer="step" or "query"; got {self.outputs} outputs, {self.inputs} inputs, answer={self.answer!r}.'
            )


class Naive(FittedAtOnce):
    """A rule for every channel by itself, worked out in float64. A subclass brings `rule`.

    What is fitted is held in buffers: the training `mean` (C,), and `shift` and `scale` (C,) of the task, so that the
    answers are in its units.
    """

    def __init__(self, config: NaiveConfig) -> None:
        super().__init__()
        self.config = config
        self.mean: Tensor
        self.shift: Tensor
        self.scale: Tensor
        self.register_buffer("mean", torch.full((config.inputs,), torch.nan, dtype=torch.float64))
        self.register_buffer("shift", torch.zeros(config.inputs, dtype=torch.float64))
        self.register_buffer("scale", torch.ones(config.inputs, dtype=torch.float64))

    def extra_repr(self) -> str:
        return f"inputs={self.config.inputs}, answer={self.config.answer!r}"

    def rule(self, batch: IrregularBatch) -> Tensor:
        """(B, L, C) at the rows or (B, Q, C) at the queries, in the units of the values."""
        raise NotImplementedError(f"{type(self).__name__} must say its rule.")

    def forward(self, batch: IrregularBatch) -> Tensor:
        """(B, L, C) or (B, Q, C) as `config.answer` says."""
        self._check(batch)
        if any(bool(fitted.isnan().any()) for fitted in self.buffers()):
            raise RuntimeError(f"{type(self).__name__} has learned nothing yet: call fit(part, task) first.")
        return ((self.rule(batch) - self.shift) / self.scale).to(batch.values.dtype)

    @torch.no_grad()
    def fit(self, part: Part, task: Task) -> None:
        """Learn the mean of the observed values of each channel; 0 if there are none."""
        check_task(self.config, task)
        total, count = torch.zeros_like(self.mean), torch.zeros_like(self.mean)
        for batch in self._batches(part):
            values, observed = self._observations(batch)
            total += values.sum(dim=(0, 1))
            count += observed.sum(dim=(0, 1))
        self.set_mean(total / count.clamp(min=1))
        none = not task.scale
        self.shift.copy_(torch.zeros_like(self.shift) if none else self.shift.new_tensor(task.shift))
        self.scale.copy_(torch.ones_like(self.scale) if none else self.scale.new_tensor(task.scale))

    def set_mean(self, mean: Tensor) -> None:
        """What is said of channels that were never observed, (C,), where it is known without a training part."""
        self.mean.copy_(mean)

    def _batches(self, part: Part) -> Iterator[IrregularBatch]:
        """All series of a part, on the device of the model."""
        for batch in part.batches(READ):
            self._check(batch)
            targets = targets_of(batch)
            if targets.shape[2:] != (self.config.inputs,):
                raise ValueError(
                    f"a naive rule predicts values of the {self.config.inputs} channels; the targets of a row or query "
                    f"have shape {tuple(targets.shape[2:])}."
                )
            yield batch.to(self.mean.device)

    def _check(self, batch: IrregularBatch) -> None:
        check_answer(self.config.answer, batch)
        if batch.values.shape[2:] != (self.config.inputs,):
            raise ValueError(
                f"the model was built for rows of shape {(self.config.inputs,)}; got {tuple(batch.values.shape[2:])}."
            )

    def _observations(self, batch: IrregularBatch) -> tuple[Tensor, Tensor]:
        """(B, L, C) values, 0 where nothing was observed, and what was; nothing is on padding."""
        observed = batch.observed & batch.valid[..., None]
        return torch.where(observed, batch.values.to(self.mean.dtype), 0), observed

    def _known(self, batch: IrregularBatch) -> Known:
        """(B, N, C), what is known of each channel where an answer is wanted."""
        values, observed = self._observations(batch)
        nothing = nothing_known(len(batch), self.config.inputs, values, batch.times.dtype)
        return follow(values, observed, batch.times, nothing).at(_rows_read(batch))

    def _ahead(self, batch: IrregularBatch) -> Ahead:
        """(B, N, C), the next observation of each channel from where an answer is wanted."""
        return look_ahead(*self._observations(batch), batch.times).at(_rows_read(batch))


class TrainMean(Naive):
    """x̂ = the mean of the observed values of the training part."""

    def rule(self, batch: IrregularBatch) -> Tensor:
        """(B, N, C)"""
        return self.mean.expand(*moments_of(batch).shape, -1)


class LastValue(Naive):
    """x̂ = the latest observed value; at an observed entry the observation itself."""

    def rule(self, batch: IrregularBatch) -> Tensor:
        """(B, N, C)"""
        now = self._known(batch)
        return torch.where(now.seen > 0, now.latest, self.mean)


class SeriesMean(Naive):
    """x̂ = the mean of the observed values so far."""

    def rule(self, batch: IrregularBatch) -> Tensor:
        """(B, N, C)"""
        now = self._known(batch)
        return torch.where(now.seen > 0, now.mean, self.mean)


class LinearInterpolation(Naive):
    """x̂ = the line between the neighbouring observations, the nearest one outside; reads the future."""

    def rule(self, batch: IrregularBatch) -> Tensor:
        """(B, N, C)"""
        now = self._known(batch)
        latest = torch.where(now.seen > 0, now.latest, self.mean)
        return along_line(latest, now, self._ahead(batch), moments_of(batch))


class LeastSquares(Naive):
    """x̂ = a · latest + b · mean so far + c · log(1 + age / interval) + d, by channel; a constant if never observed.

    The coefficients are those of least squares over the training targets that were not given (over all of a channel if
    each was), in float64, by normal equations summed over batches. Ages count in the median `interval` between rows, so
    that the unit of time does not matter. The constant is the mean of the training targets of which nothing was known.
    """

    def __init__(self, config: NaiveConfig) -> None:
        super().__init__(config)
        self.coefficients: Tensor
        self.interval: Tensor
        self.register_buffer("coefficients", torch.full((config.inputs, FEATURES), torch.nan, dtype=torch.float64))
        self.register_buffer("interval", torch.tensor(1.0, dtype=torch.float64))

    def rule(self, batch: IrregularBatch) -> Tensor:
        """(B, N, C)"""
        return self.mean + (self._features(batch) * self.coefficients).sum(dim=-1)

    @torch.no_grad()
    def fit(self, part: Part, task: Task) -> None:
        """Learn mean, interval and coefficients."""
        super().fit(part, task)
        self.interval.fill_(median_interval(self._batches(part)))
        gram, moment = self._normal_equations(part, unseen_targets)
        all_given = gram.diagonal(dim1=-2, dim2=-1).sum(dim=-1) == 0  # (C,)
        if bool(all_given.any()):
            every_gram, every_moment = self._normal_equations(part, all_targets)
            gram[all_given], moment[all_given] = every_gram[all_given], every_moment[all_given]
        rounding = gram[:, 3, 3] * (ROUNDING * self.mean).square()  # (C,) of the two features that are values
        gram[:, [0, 1], [0, 1]] += rounding[:, None]
        self.coefficients.copy_(solve(gram, moment))

    def _normal_equations(self, part: Part, where: Where) -> tuple[Tensor, Tensor]:
        """XᵀX (C, 5, 5) and Xᵀy (C, 5) over the targets that count, y being taken from the training mean."""
        C = self.config.inputs
        gram, moment = self.mean.new_zeros(C, FEATURES, FEATURES), self.mean.new_zeros(C, FEATURES)
        for batch in self._batches(part):
            counted = where(batch) & batch.valid[..., None] if batch.query_times is None else where(batch)
            weight = counted.to(self.mean.dtype)
            if batch.weights is not None:
                weight = weigh(weight, batch)
            x = self._features(batch)
            y = torch.where(counted, targets_of(batch).to(x.dtype) - self.mean, 0)
            weighted = x * weight[..., None]
            gram += torch.einsum("bncf,bncg->cfg", weighted, x)
            moment += torch.einsum("bncf,bnc->cf", weighted, y)
        return gram, moment

    def _features(self, batch: IrregularBatch) -> Tensor:
        """(B, N, C, 5); values are taken from the training mean, which keeps the equations well conditioned."""
        now = self._known(batch)
        some = now.seen > 0
        age = torch.where(some, moments_of(batch)[..., None] - now.time, 0).clamp(min=0).to(self.mean.dtype)
        one = torch.ones_like(now.latest)
        known = torch.stack(
            [now.latest - self.mean, now.mean - self.mean, torch.log1p(age / self.interval), one], dim=-1
        )
        return torch.cat([torch.where(some[..., None], known, 0), torch.where(some, 0, one)[..., None]], dim=-1)


def solve(gram: Tensor, moment: Tensor) -> Tensor:
    """(C, F, F), (C, F) -> (C, F), least squares from normal equations XᵀX w = Xᵀy; 0 for a feature that is always 0.

    The features are brought to length 1 first, so that the ridge is relative to the diagonal.
    """
    length = gram.diagonal(dim1=-2, dim2=-1).sqrt()
    length = torch.where(length > 0, length, 1)
    scaled = gram / (length[..., :, None] * length[..., None, :])
    empty = scaled.diagonal(dim1=-2, dim2=-1) == 0
    scaled = scaled + torch.diag_embed(torch.where(empty, 1.0, RIDGE))
    return torch.linalg.solve(scaled, moment / length) / length


def moments_of(batch: IrregularBatch) -> Tensor:
    """(B, N) times at which answers are wanted."""
    return batch.times if batch.query_times is None else batch.query_times


def _rows_read(batch: IrregularBatch) -> Tensor:
    """(B, N) how many rows may be read there: a row and those before it, or the rows not later than a query."""
    if batch.query_times is not None:
        return rows_until(batch.times, batch.lengths, batch.query_times)
    return torch.arange(1, batch.times.shape[1] + 1, device=batch.times.device).expand_as(batch.times)
