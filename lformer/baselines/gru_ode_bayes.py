"""GRU-ODE-Bayes: a GRU in continuous time between observations, and a step of a GRU at each of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from lformer.baselines.evolving import Filled, filled_rows
from lformer.baselines.model import FRAME, Frame, full_precision, observations
from lformer.baselines.ode import ODEConfig
from lformer.batch import IrregularBatch
from lformer.nn.attention import one_of
from lformer.nn.dropout import Dropout
from lformer.nn.query import rows_until
from lformer.nn.rows import Encoded
from lformer.tasks import Task

WIDEST = 20.0  # of a log variance, either way
NOISE = 0.01  # deviation of an observation
Method = Literal["exponential", "euler", "midpoint", "rk4", "dopri5"]


@dataclass(frozen=True, kw_only=True)
class GRUODEBayesConfig(ODEConfig):
    """`rows` decides how values are scaled; what was observed is read in any case. There is no embedder.

    Attributes:
        method: "exponential" takes `steps` steps over every interval, each exact for gates that do not change, so that
            the state stays within ±1 over intervals of any length; for the others see `Solver`. "euler" keeps the state
            there only if no step is longer than a typical interval.
        width: numbers of the state.
        depth: hidden layers of the network that predicts observations.
        prediction_units: its units.
        prepared: numbers made of the observation of each channel.
        impute: whether predictions enter the equation between observations.
        dropout: in the network that predicts, in training.
        likelihood_weight: of what the observations add to the loss; 0 leaves that of the task alone.
        kl_weight: therein, of the predictions after observations.
    """

    method: Method = "exponential"  # type: ignore[assignment]
    steps: int = 2
    depth: int = 1
    prediction_units: int = 25
    prepared: int = 10
    impute: bool = True
    dropout: float = 0.0
    likelihood_weight: float = 1.0
    kl_weight: float = 1e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("prediction_units", "prepared")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1; got {self.dropout}.")
        for name in ("likelihood_weight", "kl_weight"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be at least 0; got {getattr(self, name)}.")

    def check_method(self) -> None:
        """Refuse an unknown one."""
        one_of("method", self.method, Method)
        if self.adjoint and self.method == "exponential":
            raise ValueError('adjoint=True needs a method of torchdiffeq, such as "rk4"; got method="exponential".')


class Prediction(NamedTuple):
    """Of the channels, normal laws."""

    mean: Tensor  # (..., C)
    log_variance: Tensor  # (..., C)


class Walk(NamedTuple):
    """What a series left behind."""

    states: Tensor  # (B, L + 1, D), before the first row that holds an observation and after each
    before: Prediction  # (B, L, C), what was predicted at these rows before they were read
    values: Tensor  # (B, L, C) what was observed there
    observed: Tensor  # (B, L, C) bool


class GRUODEBayes(Frame):
    """Between observations dh/dt = (1 − z) ⊙ (n − h), with the gates z and n of a GRU; h' = GRUCell(·, h) at each.

    The cell reads, of each channel that was observed, its value, what was predicted there and how far off that was.
    Rows in which nothing was observed leave the state alone. A series is answered from its last state, a row and a
    query from the state moved on to their time; intervals are in typical ones. Before the first observation the state
    is h_0, which static covariates may change, and does not move.

    Added to the loss of the task, each as a mean over what was observed: the negative log likelihood of what was
    predicted before an observation, and the divergence of what is predicted after it from the observation itself.

    Note: answers come from the head that all models share, not from the network that predicts observations. Of frames
    every pixel is a channel.
    """

    own_draws = True
    config: GRUODEBayesConfig

    @property
    def recordable(self) -> bool:
        """Whether a step depends on shapes alone: not by torchdiffeq, which looks at its times and steps."""
        return self.config.method == "exponential"

    def __init__(self, config: GRUODEBayesConfig) -> None:
        super().__init__(config)
        channels = math.prod(FRAME) if config.embedder == "frames" else config.inputs
        self.predict = Predict(channels, config)
        self.between = Between(channels, config)
        self.prepare = Prepare(channels, config.prepared)
        self.cell = nn.GRUCell(channels * config.prepared, config.width)
        self.start = nn.Parameter(torch.full((config.width,), 0.05))
        self.covariates: nn.Sequential | None = None
        if config.statics:
            units = config.prediction_units
            self.covariates = nn.Sequential(
                nn.Linear(config.statics, units), nn.ReLU(), nn.Linear(units, config.width, bias=False)
            )
        for module in (self.predict, self.between, self.covariates):
            _initialise(module)

    def read(self, batch: IrregularBatch, encoded: Encoded) -> Tensor:
        """(B, D), (B, L, D) or (B, Q, D) as `config.answer` says."""
        filled = filled_rows(batch)
        return self.at_moments(self.walk(batch, encoded, filled).states, batch, filled)

    def training_loss(self, task: Task, batch: IrregularBatch) -> Tensor:
        """The loss of the task, and what the observations add to it, ()."""
        whole, encoded = self.encode(batch)
        filled = filled_rows(whole)
        walk = self.walk(whole, encoded, filled)
        read = self.at_moments(walk.states, whole, filled)
        found = task.loss(self.asked_for(self.answer(read, whole, encoded), batch), batch)
        return found + self.config.likelihood_weight * self.observation_loss(walk)

    def observation_loss(self, walk: Walk) -> Tensor:
        """(), 0 if nothing was observed."""
        with full_precision(walk.states.device):
            after = self.predict(walk.states[:, 1:])
        surprise, far = negative_log_likelihood(walk.before, walk.values), divergence(after, walk.values)
        each = torch.where(walk.observed, surprise + self.config.kl_weight * far, 0)
        return each.sum() / walk.observed.sum().clamp(min=1)

    def walk(self, batch: IrregularBatch, encoded: Encoded, filled: Filled) -> Walk:
        """Read the rows that hold an observation, in the order of time."""
        values, observed = observations(self.rows, batch, self.config.embedder == "frames")
        values, observed = filled.first(values).to(encoded.rows.dtype), filled.first(observed)
        with full_precision(values.device):
            return self._walk(values, observed, (filled.deltas / self.rows.interval).to(values.dtype), batch)

    def _walk(self, values: Tensor, observed: Tensor, intervals: Tensor, batch: IrregularBatch) -> Walk:
        h = self.first_state(values, batch)
        states, before = [h], []
        rows = (part.unbind(dim=1) for part in (values, observed, observed.any(dim=2, keepdim=True), intervals))
        for k, (x, seen, read, interval) in enumerate(zip(*rows, strict=True)):
            moved = self.evolve(h, interval) if k else h
            p = self.predict(moved)
            h = torch.where(read, self.cell(self.prepare(x, seen, p), moved), moved)
            states.append(h)
            before.append(p)
        return Walk(torch.stack(states, dim=1), _stacked(before), values, observed)

    def first_state(self, values: Tensor, batch: IrregularBatch) -> Tensor:
        """h_0, (B, D)."""
        found = self.start.expand(values.shape[0], -1)
        if self.covariates is not None and batch.static is not None:
            found = found + self.covariates(batch.static.to(values.dtype))
        return torch.tanh(found)

    def at_moments(self, states: Tensor, batch: IrregularBatch, filled: Filled) -> Tensor:
        """(B, L + 1, D) -> (B, D), (B, L, D) or (B, Q, D), moved on from the latest observation."""
        moments, count = batch.times, filled.so_far
        if self.config.answer == "series":
            return _taken(states, count[:, -1:]).squeeze(1)
        if batch.query_times is not None:
            moments = batch.query_times
            count = filled.until(rows_until(batch.times, batch.lengths, moments))
        since = (filled.since(moments, count) / self.rows.interval).to(states.dtype)
        latest = _taken(states, count)
        with full_precision(states.device):
            return self.evolve(latest.flatten(0, 1), since.flatten()).view_as(latest)

    def evolve(self, h: Tensor, intervals: Tensor) -> Tensor:
        """(N, D), (N,) in typical intervals -> (N, D)"""
        if self.config.method != "exponential":
            return self.config.solver(Equation(self.predict, self.between), h, intervals)
        step = intervals[:, None] / self.config.steps
        for _ in range(self.config.steps):
            rate, target = gates(self.predict, self.between, h)
            h = h - torch.expm1(-rate * step) * (target - h)  # exactly h if there is no interval
        return h


class Equation(nn.Module):
    """(1 − z) ⊙ (n − h)"""

    def __init__(self, predict: Predict, between: Between) -> None:
        super().__init__()
        self.predict, self.between = predict, between

    def forward(self, h: Tensor) -> Tensor:
        """(N, D) -> (N, D)"""
        rate, target = gates(self.predict, self.between, h)
        return rate * (target - h)


def gates(predict: Predict, between: Between, h: Tensor) -> tuple[Tensor, Tensor]:
    """(N, D) -> 1 − z, (N, D), and n, (N, D)."""
    rate, target = between(h, None if between.from_prediction is None else torch.cat(predict(h), dim=-1))
    return rate, target


class Between(nn.Module):
    """The gates of a GRU without observations; the reset gate acts on the state."""

    def __init__(self, channels: int, config: GRUODEBayesConfig) -> None:
        super().__init__()
        D = config.width
        self.from_prediction = nn.Linear(2 * channels, 3 * D, bias=False) if config.impute else None
        self.gates, self.candidate = nn.Linear(D, 2 * D), nn.Linear(D, D)

    def forward(self, h: Tensor, p: Tensor | None) -> tuple[Tensor, Tensor]:
        """(N, D), (N, 2 C) -> 1 − z, (N, D), and n, (N, D)."""
        D = h.shape[1]
        given = h.new_zeros(3 * D) if self.from_prediction is None or p is None else self.from_prediction(p)
        r, z = torch.sigmoid(self.gates(h) + given[..., : 2 * D]).chunk(2, dim=-1)
        return 1 - z, torch.tanh(self.candidate(r * h) + given[..., 2 * D :])


class Predict(nn.Module):
    """What the channels would show: (N, D) -> mean and log variance, (N, C) each."""

    def __init__(self, channels: int, config: GRUODEBayesConfig) -> None:
        super().__init__()
        sizes = [config.width, *[config.prediction_units] * config.depth]
        layers: list[nn.Module] = []
        for n in range(config.depth):
            layers += [nn.Linear(sizes[n], sizes[n + 1]), nn.ReLU(), Dropout(config.dropout)]
        self.layers = nn.Sequential(*layers, nn.Linear(sizes[-1], 2 * channels))

    def forward(self, h: Tensor) -> Prediction:
        mean, log_variance = self.layers(h).chunk(2, dim=-1)
        return Prediction(mean, log_variance.clamp(-WIDEST, WIDEST))


class Prepare(nn.Module):
    """What the cell reads: of each channel a few numbers, 0 if it was not observed."""

    def __init__(self, channels: int, prepared: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(math.sqrt(2 / (4 + prepared)) * torch.randn(channels, 4, prepared))
        self.bias = nn.Parameter(torch.full((channels, prepared), 0.1))

    def forward(self, x: Tensor, observed: Tensor, p: Prediction) -> Tensor:
        """(N, C), (N, C), (N, C) each -> (N, C · prepared)"""
        error = (x - p.mean) * torch.exp(-0.5 * p.log_variance)
        given = torch.stack([x, p.mean, p.log_variance, error], dim=-1)  # (N, C, 4)
        found = torch.relu(torch.einsum("nci,cip->ncp", given, self.weight) + self.bias)
        return torch.where(observed[..., None], found, 0).flatten(1)


def negative_log_likelihood(p: Prediction, x: Tensor) -> Tensor:
    """Of each entry, (...)."""
    error = (x - p.mean) * torch.exp(-0.5 * p.log_variance)
    return 0.5 * (error.square() + p.log_variance + math.log(2 * math.pi))


def divergence(p: Prediction, x: Tensor) -> Tensor:
    """Of each entry, (...): of the prediction from a normal law around the observation, with deviation `NOISE`."""
    far = (p.log_variance.exp() + (p.mean - x).square()) / NOISE**2
    return 0.5 * (far - 1 - p.log_variance) + math.log(NOISE)


def _stacked(rows: list[Prediction]) -> Prediction:
    """L times (B, C) -> (B, L, C)"""
    return Prediction(*(torch.stack(part, dim=1) for part in zip(*rows, strict=True)))


def _initialise(module: nn.Module | None) -> None:
    """Linear maps as published."""
    for layer in () if module is None else module.modules():
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.constant_(layer.bias, 0.05)


def _taken(states: Tensor, count: Tensor) -> Tensor:
    """(B, L + 1, D), (B, N) -> (B, N, D)"""
    return states.gather(1, count[..., None].expand(-1, -1, states.shape[2]))
