"""NODE: a neural ordinary differential equation, whose state at the first row is recognised from all rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lformer.baselines.evolving import filled_rows
from lformer.baselines.model import Channels, Frame, full_precision, state_after
from lformer.baselines.ode import Activation, Field, ODEConfig
from lformer.batch import IrregularBatch
from lformer.nn.attention import one_of
from lformer.nn.rows import Encoded

FAR = 8.0  # typical spans from the first row to where time slows down


@dataclass(frozen=True, kw_only=True)
class LatentODEConfig(ODEConfig):
    """Set `rows="observed"` where values are missing.

    The model reads channels, not embedded rows: of the embedder only "frames" is used, which makes `width` channels of
    a frame; `time_embedding` and `time_channel` are not used.

    Attributes:
        width: units of the recurrence that reads the rows.
        latent: numbers of the state z.
        units, depth, activation: of the network f, `depth` + 1 hidden layers.
        steps: points per typical span of a series at which z is solved for; between them it is interpolated. With 32
            points, "rk4" was off by at most 2e-4 of the largest answer in NODE and R-ODE trained on spirals,
            and "dopri5" with the default tolerances by 1e-2.
    """

    depth: int = 1
    steps: int = 32
    latent: int = 20
    units: int = 50
    activation: Activation = "tanh"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("activation", self.activation, Activation)
        self.require_positive("latent", "units")


class LatentODE(Frame):
    """dz/dt = f(z) from z_0 at the first row, with time in typical spans of a series. A model brings `first_state`.

    A row and a query are answered from z at their time, also before the first row and after the last; a series from z
    at its last row. Observations change z through z_0 alone.

    Every series has one trajectory, solved on a grid that depends on the model alone, and all moments are read off it,
    so that no answer depends on what else is asked. See `Solver.along`.

    Note: further than `FAR` spans from the first row the equation is dz/dt = (FAR / |t|) f(z), so that time goes on
    with its logarithm: a moment a million spans away is reached after about a hundred spans. Longer steps would be as
    few, but where the equation contracts explicit methods are unstable if a step is long, and "dopri5" takes none.
    """

    own_draws = True

    def __init__(self, config: LatentODEConfig) -> None:
        super().__init__(config)
        self.solver = config.solver
        self.channels = Channels(self.rows, config)
        self.field = Field(config.latent, config.units, config.depth, config.activation)

    def read_width(self) -> int:
        """Numbers of z."""
        assert isinstance(self.config, LatentODEConfig)
        return self.config.latent

    def first_state(self, backwards: Backwards) -> Tensor:
        """z_0 from the rows that hold an observation, (B, latent)."""
        raise NotImplementedError(f"{type(self).__name__} must say where its state begins.")

    def read(self, batch: IrregularBatch, encoded: Encoded) -> Tensor:
        """(B, latent), (B, L, latent) or (B, Q, latent) as `config.answer` says."""
        backwards = self.backwards(batch, encoded)
        with full_precision(backwards.rows.device):
            return self.trajectory(self.first_state(backwards), batch)

    def backwards(self, batch: IrregularBatch, encoded: Encoded) -> Backwards:
        """What `first_state` reads."""
        return backwards(self.channels(encoded.rows).to(encoded.rows.dtype), batch)

    def trajectory(self, z: Tensor, batch: IrregularBatch) -> Tensor:
        """z_0 to z at the moments that are asked for.

        (..., B, latent) -> (..., B, latent), (..., B, L, latent) or (..., B, Q, latent)
        """
        moments = batch.times if batch.query_times is None else batch.query_times
        if self.config.answer == "series":
            moments = moments[:, -1:]  # padding repeats the last time
        clock = slowed((moments - batch.times[:, :1]) / self.rows.span)
        clock = clock.expand(*z.shape[:-1], -1)  # all samples of a series have its moments
        found = self.solver.along(self.field, z.flatten(0, -2), clock.flatten(0, -2)).unflatten(0, z.shape[:-1])
        return found[..., 0, :] if self.config.answer == "series" else found


def slowed(spans: Tensor) -> Tensor:
    """Time up to `FAR` either way; beyond, t becomes FAR (1 + ln(t / FAR)), with the same rate where they meet."""
    beyond = (spans.abs() / FAR).clamp(min=1)
    return spans.clamp(-FAR, FAR) + spans.sign() * FAR * beyond.log()


@dataclass(frozen=True, kw_only=True)
class NODEConfig(LatentODEConfig):
    """See `LatentODEConfig`."""


class NODE(LatentODE):
    """z_0 is a linear map of the last state of a GRU that reads the rows from the last to the first.

    With a row it reads the time since the first one, in typical spans. Rows in which nothing was observed are passed
    over.
    """

    def __init__(self, config: NODEConfig) -> None:
        super().__init__(config)
        self.recognition = nn.GRU(self.channels.width + 1, config.width, batch_first=True)
        self.start = nn.Linear(config.width, config.latent)

    def first_state(self, backwards: Backwards) -> Tensor:
        """(B, latent)"""
        rows, times = backwards.rows, backwards.since_first / self.rows.span
        states, _ = self.recognition(torch.cat([times[..., None].to(rows.dtype), rows], dim=-1))
        return self.start(backwards.last(states))


class Backwards(NamedTuple):
    """The rows that hold an observation, from the last to the first; zeros follow."""

    rows: Tensor  # (B, L, W)
    since_first: Tensor  # (B, L) time since the first row
    since_before: Tensor  # (B, L) since the row that was observed before it, and is read after it; 0 at the first
    lengths: Tensor  # (B, 1) how many there are

    def last(self, states: Tensor) -> Tensor:
        """(B, L, D) -> (B, D), the state after the first row of the series; zeros if it has none."""
        return state_after(states, self.lengths).squeeze(1)


def backwards(x: Tensor, batch: IrregularBatch) -> Backwards:
    """(B, L, W) rows in the order of time."""
    filled = filled_rows(batch)
    count, place = filled.so_far[:, -1:], torch.arange(x.shape[1], device=x.device).expand(x.shape[:2])
    there = place < count
    turned = torch.where(there, count - 1 - place, place)
    rows = filled.first(x).gather(1, turned[..., None].expand_as(x))
    return Backwards(
        rows=torch.where(there[..., None], rows, 0),
        since_first=torch.where(there, filled.times.gather(1, turned) - batch.times[:, :1], 0),
        since_before=filled.deltas.gather(1, turned),
        lengths=count,
    )
