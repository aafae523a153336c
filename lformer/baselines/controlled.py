"""Controlled: models whose state is moved by a path through the rows, dh = field(h) dX, from what the first row says.

The path has time as its first dimension, in typical spans of a series, and the channels of the rows. What the
path does where a value is missing, `rows` says; see `ControlledConfig`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lformer.baselines.driven import Solver, solve, states_along
from lformer.baselines.model import BaselineConfig, Channels, Frame, full_precision
from lformer.baselines.patching import hold
from lformer.baselines.splines import fill
from lformer.batch import IrregularBatch
from lformer.nn.attention import one_of
from lformer.nn.known import follow, look_ahead, nothing_known
from lformer.nn.query import rows_until
from lformer.nn.rows import Encoded


@dataclass(frozen=True, kw_only=True)
class ControlledConfig(BaselineConfig):
    """What all models that a path drives have.

    The models read channels, not embedded rows: of the embedder only "frames" is used, which makes `width` channels of
    a frame; `time_embedding` and `time_channel` are not used.

    Attributes:
        rows: with "values" the path goes through 0 where nothing was observed. With "observed", the published way, gaps
            are filled, and how often each channel was observed so far is a dimension of the path too. With "carried"
            the path goes through all that the rows show.
        width: D, of the state.
        depth: hidden layers of the vector field.
        inner: their width.
        solver: "heun" or "rk4", with fixed steps.
        steps: how many for each piece of the path: between two rows, or in a window.
        causal: read no later row. Gaps then hold the latest value, instead of the line to the next one, and between its
            latest row and a query time goes on alone, instead of the path towards the next row.
        time_in_path: False leaves time out of the path, whose pace then does not matter.
    """

    inner: int = 64
    solver: Solver = "heun"
    steps: int = 1
    causal: bool = False
    time_in_path: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("solver", self.solver, Solver)
        self.require_positive("inner", "steps")


class Path(NamedTuple):
    """Through the rows of B series, in d dimensions."""

    points: Tensor  # (B, L, d), the last valid one again on padding
    batch: IrregularBatch
    span: Tensor  # () the unit of time
    timed: bool  # whether time is the first dimension
    causal: bool

    @property
    def moving(self) -> Tensor:
        """(B, L - 1) bool, True between valid rows."""
        return self.batch.valid[:, 1:]

    def since(self, row: Tensor, moments: Tensor) -> tuple[Tensor, Tensor]:
        """What lies between the latest row and some moments.

        Args:
            row: (B, M) index of the latest row that is not later.
            moments: (B, M).

        Returns:
            (B, M) how far each is on the way to the next row, from 0 to 1; 0 behind the last row, or if the path is
            causal. And (B, M, d), how far time goes on alone in these cases, and no other dimension.
        """
        times, lengths = self.batch.times, self.batch.lengths[:, None]
        here, following = times.gather(1, row), times.gather(1, (row + 1).clamp(max=times.shape[1] - 1))
        passed = (moments - here).clamp(min=0)
        between = (row + 1 < lengths) & (not self.causal)
        share = torch.where(between, passed / (following - here).clamp(min=torch.finfo(passed.dtype).tiny), 0)
        alone = self.points.new_zeros(*row.shape, self.points.shape[2])
        if self.timed:
            alone[..., 0] = torch.where(between, 0, passed / self.span)
        return share.clamp(max=1), alone


class Controlled(Frame):
    """A path that drives a state. A model brings `field`, `pieces` and `way`.

    A series is answered from its last state, a row from its own, and a query from the state at its time; a query before
    the first row from zeros. After the last row time goes on alone. No state depends on a query.
    """

    recordable = True  # what it does depends on shapes alone, so its steps may be replayed as CUDA graphs
    config: ControlledConfig
    field: nn.Module  # (*, D), (*, d) -> (*, D)
    window = 1  # rows of a piece

    def __init__(self, config: ControlledConfig) -> None:
        super().__init__(config)
        self.channels = Channels(self.rows, config)
        moving = self.channels.width - config.statics
        self.start = nn.Linear(self.channels.width, config.width)
        self.dimensions = moving + config.time_in_path

    def pieces(self, path: Path) -> Tensor:
        """(B, P, K, β), what drives the state along each piece; 0 on padding."""
        raise NotImplementedError(f"{type(self).__name__} must say what drives it.")

    def way(self, path: Path, row: Tensor, moments: Tensor | None) -> Tensor:
        """(B, M) latest rows, (B, M) moments -> (B, M, K, β), from the beginning of their piece up to the moments.

        Without moments, up to the rows themselves.
        """
        raise NotImplementedError(f"{type(self).__name__} must say what drives it.")

    def read(self, batch: IrregularBatch, encoded: Encoded) -> Tensor:
        """(B, D), (B, L, D) or (B, Q, D) as `config.answer` says."""
        rows, config = self.channels(encoded.rows), self.config
        with full_precision(rows.device):
            path, first = self._path(batch, rows)
            pieces = self.pieces(path).to(first.dtype)
            states = states_along(self.field, self.start(first), pieces, config.steps, config.solver)
            if batch.query_times is not None:
                passed = rows_until(batch.times, batch.lengths, batch.query_times)
                found = self._at(states, path, (passed - 1).clamp(min=0), batch.query_times)
                return torch.where((passed > 0)[..., None], found, 0)
            if config.answer == "series":
                return self._at(states, path, (batch.lengths - 1).clamp(min=0)[:, None]).squeeze(1)
            return self._at(states, path, torch.arange(rows.shape[1], device=rows.device).expand(len(batch), -1))

    def _at(self, states: Tensor, path: Path, row: Tensor, moments: Tensor | None = None) -> Tensor:
        """(B, P + 1, D), (B, M), (B, M) -> (B, M, D), the state at some rows, or at moments behind them."""
        index = torch.div(row, self.window, rounding_mode="floor")
        begun = states.gather(1, index[..., None].expand(-1, -1, states.shape[2]))
        if moments is None and self.window == 1:
            return begun
        way = self.way(path, row, moments).to(begun.dtype)
        return solve(self.field, begun, way, self.config.steps, self.config.solver)

    def _path(self, batch: IrregularBatch, rows: Tensor) -> tuple[Path, Tensor]:
        """The path, and what the state begins with, (B, W): its first point without time, and static covariates.

        The path is as exact as the times are kept: only the small ways along it are in the dtype of the model.
        """
        moving = rows.shape[2] - self.config.statics
        points = hold(self._filled(batch, rows[..., :moving]).to(batch.times.dtype), batch)
        first = torch.cat([points[:, 0], rows[:, 0, moving:].to(points.dtype)], dim=-1).to(self.start.weight.dtype)
        if self.config.time_in_path:
            points = torch.cat([(batch.times / self.rows.span)[..., None], points], dim=-1)
        return Path(points, batch, self.rows.span, self.config.time_in_path, self.config.causal), first

    def _filled(self, batch: IrregularBatch, rows: Tensor) -> Tensor:
        """(B, L, W), with "observed" the gaps filled, and how often each channel was observed in place of whether.

        Counts are in those of a typical series, so that a channel that every row has goes from 0 to 1 as time does.
        """
        if self.config.rows != "observed":
            return rows
        values, observed = self.rows.scaled(batch)
        nothing = nothing_known(len(batch), self.config.inputs, values, batch.times.dtype)
        known = follow(values, observed, batch.times, nothing).after_rows()
        ahead = None if self.config.causal else look_ahead(values, observed, batch.times).after_rows()
        counts = (known.seen * (self.rows.interval / self.rows.span)).to(values.dtype)
        return torch.cat([fill(batch.times, known, ahead), counts], dim=-1)


def mlp(
    inputs: int, inner: int, depth: int, activation: type[nn.Module], last: type[nn.Module] | None = None
) -> nn.Sequential:
    """`depth` hidden layers, an activation after each; after the last one, `last`."""
    layers: list[nn.Module] = []
    for n in range(depth):
        layers += [nn.Linear(inner if n else inputs, inner), activation()]
    if last is not None:
        layers[-1] = last()
    return nn.Sequential(*layers)
