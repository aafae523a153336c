"""NCDE: a neural controlled differential equation, dz = f(z) dX, along a smooth path through the observations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from lformer.baselines.controlled import Controlled, ControlledConfig, Path, mlp
from lformer.baselines.driven import Solver
from lformer.baselines.splines import cut, hermite, straight
from lformer.nn.attention import one_of

Shape = Literal["cubic", "linear"]
Knots = Literal["rows", "times"]


@dataclass(frozen=True, kw_only=True)
class NCDEConfig(ControlledConfig):
    """With "heun" and one step between rows, as published for the UEA sets, a cubic path is followed only roughly.

    Attributes:
        solver: by default "rk4", which follows cubic pieces exactly: a constant field moves by what the path does.
        path: between rows, "cubic" with backward differences as slopes, or "linear".
        knots: what the slopes of cubic pieces are per: "rows", one each, or "times". The same where rows are evenly
            spaced. With "times" a short gap before a long one makes the path overshoot by the ratio of the two.
    """

    solver: Solver = "rk4"
    path: Shape = "cubic"
    knots: Knots = "rows"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("path", self.path, Shape)
        one_of("knots", self.knots, Knots)


class NCDE(Controlled):
    """f is an MLP that ends with tanh, D × d numbers; the state begins with a linear map of the first row.

    Note: the path of a series is run through by the number of the row, which does not change the solution: time is one
    of its dimensions, and always straight between rows. Slopes are those of the past. What looks ahead, unless
    `causal`, are filled gaps and queries between two rows.
    """

    config: NCDEConfig

    def __init__(self, config: NCDEConfig) -> None:
        super().__init__(config)
        self.field = MatrixField(config.width, self.dimensions, config.inner, config.depth)

    def pieces(self, path: Path) -> Tensor:
        """(B, L - 1, K, d)"""
        if self.config.path == "linear":
            return straight(path.points)
        times = path.batch.times
        gaps = times.diff(dim=1) if self.config.knots == "times" else torch.ones_like(times[:, 1:])
        smooth = hermite(path.points, gaps)
        if self.config.time_in_path:
            line = path.points[..., :1].diff(dim=1)[:, :, None]
            time = torch.cat([line, torch.zeros_like(line), torch.zeros_like(line)], dim=2)
            smooth = torch.cat([time, smooth[..., 1:]], dim=-1)
        return torch.where(path.moving[..., None, None], smooth, 0)  # a cubic piece leaves the last row with a slope

    def way(self, path: Path, row: Tensor, moments: Tensor | None) -> Tensor:
        """(B, M, K, d)"""
        assert moments is not None
        share, alone = path.since(row, moments)
        pieces = self.pieces(path)
        none = pieces.new_zeros(len(pieces), 1, *pieces.shape[2:])  # behind the last row
        index = row[..., None, None].expand(-1, -1, *pieces.shape[2:])
        begun = cut(torch.cat([pieces, none], dim=1).gather(1, index), share)
        return torch.cat([begun[:, :, :1] + alone[:, :, None], begun[:, :, 1:]], dim=2)


class MatrixField(nn.Module):
    """f(z) X', with f(z) = tanh(MLP(z)) of shape (D, d)."""

    def __init__(self, width: int, dimensions: int, inner: int, depth: int) -> None:
        super().__init__()
        self.hidden = mlp(width, inner, depth, nn.ReLU)
        self.last = nn.Linear(inner, width * dimensions)

    def forward(self, h: Tensor, drive: Tensor) -> Tensor:
        """(*, D), (*, d) -> (*, D)"""
        matrix = torch.tanh(self.last(self.hidden(h))).unflatten(-1, (h.shape[-1], -1))
        return (matrix @ drive[..., None]).squeeze(-1)
