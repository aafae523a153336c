"""R-ODE and O-ODE: neural differential equations from a random state, recognised by a GRU or by an ODE-RNN."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lformer.baselines.bound import Law, asks_for_numbers, check_bound, log_likelihood
from lformer.baselines.model import full_precision
from lformer.baselines.node import Backwards, LatentODE, LatentODEConfig
from lformer.baselines.ode import Field
from lformer.batch import IrregularBatch
from lformer.tasks import Task

SMALLEST_DEVIATION = 1e-6


@dataclass(frozen=True, kw_only=True)
class VariationalODEConfig(LatentODEConfig):
    """See `LatentODEConfig`.

    Attributes:
        samples: of z_0, in training.
        noise: standard deviation of a target around its answer.
        kl_weight: of the divergence of z_0 from a standard normal law.
    """

    samples: int = 3
    noise: float = 0.01
    kl_weight: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bound(self.samples, self.noise, self.kl_weight)


class VariationalODE(LatentODE):
    """z_0 is normal, with mean and deviation recognised from the rows. A model brings `law`.

    Answers come from the mean of z_0. Targets that are numbers are learned by the importance-weighted bound over
    `samples` draws of z_0, where likelihoods are means over the targets of a batch, and the divergence is a mean over
    series and numbers of z_0; classes are learned by the loss of the task.

    Note: the weight of the divergence is constant. The authors' is 0 for ten epochs and rises to 1 afterwards.
    """

    config: VariationalODEConfig

    def law(self, backwards: Backwards) -> Law:
        """Of z_0, from the rows that hold an observation."""
        raise NotImplementedError(f"{type(self).__name__} must say how its state is distributed.")

    def first_state(self, backwards: Backwards) -> Tensor:
        """(B, latent), the mean"""
        return self.law(backwards).mean

    def training_loss(self, task: Task, batch: IrregularBatch) -> Tensor:
        """The negative bound, (); the loss of the task if the targets are classes."""
        if not asks_for_numbers(task):
            return task.loss(task.predict(self, batch), batch)
        whole, encoded = self.encode(batch)
        backwards, config = self.backwards(whole, encoded), self.config

        def answers(path: Tensor) -> Tensor:
            return self.asked_for(self.answer(path, whole, encoded), batch)

        with full_precision(backwards.rows.device):
            law = self.law(backwards)
            paths = self.trajectory(law.samples(config.samples), whole)
            likelihood = log_likelihood(answers, paths, task, batch, config.noise)
        return config.kl_weight * law.divergence().mean() - likelihood


@dataclass(frozen=True, kw_only=True)
class RODEConfig(VariationalODEConfig):
    """See `VariationalODEConfig`."""


class RODE(VariationalODE):
    """A GRU reads the rows from the last to the first, each with the interval before it, in typical intervals.

    Rows in which nothing was observed are passed over.
    """

    def __init__(self, config: RODEConfig) -> None:
        super().__init__(config)
        self.recognition = nn.GRU(self.channels.width + 1, config.width, batch_first=True)
        self.start = perceptron(config.width, 50, 2 * config.latent)

    def law(self, backwards: Backwards) -> Law:
        rows, intervals = backwards.rows, backwards.since_before / self.rows.interval
        states, _ = self.recognition(torch.cat([intervals[..., None].to(rows.dtype), rows], dim=-1))
        return law(self.start(backwards.last(states)))


@dataclass(frozen=True, kw_only=True)
class OODEConfig(VariationalODEConfig):
    """See `VariationalODEConfig`.

    Attributes:
        gate_units: hidden units of the three networks of the gated update.
        recognition_steps: Euler steps of the recognition, over every interval between two rows.
    """

    gate_units: int = 50
    recognition_steps: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("gate_units", "recognition_steps")


class OODE(VariationalODE):
    """An ODE-RNN reads the rows from the last to the first; between two of them its state moves back in time.

    The state is y, which moves as dy/dt = g(y), with time in typical intervals, and its deviation s, which does not;
    both are 0 at first. Rows in which nothing was observed are passed over.
    """

    config: OODEConfig

    def __init__(self, config: OODEConfig) -> None:
        super().__init__(config)
        self.recognition_field = Field(config.width, config.units, config.depth, config.activation)
        self.update = GatedUpdate(self.channels.width, config.width, config.gate_units)
        self.start = perceptron(2 * config.width, 100, 2 * config.latent)

    def law(self, backwards: Backwards) -> Law:
        rows, D = backwards.rows, self.config.width
        since = torch.roll(backwards.since_before, 1, dims=1) / self.rows.interval  # from a row to the one read last
        steps = (-since / self.config.recognition_steps).to(rows.dtype)[..., None]
        y = s = rows.new_zeros(rows.shape[0], D)
        for k, (row, step) in enumerate(zip(rows.unbind(dim=1), steps.unbind(dim=1), strict=True)):
            new_y, new_s = self.update(self.moved(y, step) if k else y, s, row)
            there = k < backwards.lengths
            y, s = torch.where(there, new_y, y), torch.where(there, new_s, s)
        return law(self.start(torch.cat([y, s], dim=-1)))

    def moved(self, y: Tensor, step: Tensor) -> Tensor:
        """Euler steps of some length for each series: (B, D), (B, 1) -> (B, D)"""
        for _ in range(self.config.recognition_steps):
            y = torch.addcmul(y, step, self.recognition_field(y))
        return y


class GatedUpdate(nn.Module):
    """A gated step of a state y and its deviation s with a row."""

    def __init__(self, inputs: int, width: int, units: int) -> None:
        super().__init__()
        self.keep = perceptron(2 * width + inputs, units, width)
        self.reset = perceptron(2 * width + inputs, units, width)
        self.candidate = perceptron(2 * width + inputs, units, 2 * width)

    def forward(self, y: Tensor, s: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        """(B, D), (B, D), (B, W) -> (B, D), (B, D)"""
        given = torch.cat([y, s, row], dim=-1)
        u, r = torch.sigmoid(self.keep(given)), torch.sigmoid(self.reset(given))
        new_y, new_s = self.candidate(torch.cat([r * y, r * s, row], dim=-1)).chunk(2, dim=-1)
        return torch.lerp(new_y, y, u), torch.lerp(new_s.abs(), s, u)


def perceptron(inputs: int, units: int, outputs: int) -> nn.Sequential:
    """Two linear maps with a tanh in between."""
    return nn.Sequential(nn.Linear(inputs, units), nn.Tanh(), nn.Linear(units, outputs))


def law(numbers: Tensor) -> Law:
    """(B, 2 latent) -> mean, and deviation as a magnitude."""
    mean, deviation = numbers.chunk(2, dim=-1)
    return Law(mean, deviation.abs().clamp(min=SMALLEST_DEVIATION))
