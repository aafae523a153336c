"""NRDE: a neural rough differential equation, driven by the log-signatures of a path over windows of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from lformer.baselines.controlled import Controlled, ControlledConfig, Path, mlp
from lformer.baselines.log_signature import log_signature, size

MOST_NUMBERS = 10_000  # of a log-signature of level 3, which grows as d³; a field has `width * inner` weights for each


@dataclass(frozen=True, kw_only=True)
class WindowedConfig(ControlledConfig):
    """Of models driven by log-signatures.

    Attributes:
        level: 1 or 2, of NRDE also 3, of the log-signatures.
        window: rows of a window; the last one of a window is the first of the next.
    """

    levels: ClassVar[tuple[int, ...]] = (1, 2)  # there are
    level: int = 2
    window: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_positive("window")
        if self.level not in self.levels:
            *others, last = map(str, self.levels)
            raise ValueError(f"level must be {', '.join(others)} or {last}; got {self.level}.")


class Windowed(Controlled):
    """dh/ds = field(h, ℓ) while s goes from 0 to 1, with ℓ the log-signature of the path over a window.

    The path is straight between rows. A row or query inside a window is reached from the beginning of the window by the
    log-signature of the path from there up to it, so that no state reads a later row.

    Note: log-signatures are taken from the points of each window by themselves, when they are needed. What looks ahead,
    unless `causal`, are filled gaps and queries between two rows. No 0 is put before the path, since the state begins
    with a linear map of the first row.
    """

    config: WindowedConfig

    def __init__(self, config: WindowedConfig) -> None:
        super().__init__(config)
        self.window = config.window

    def pieces(self, path: Path) -> Tensor:
        """(B, P, 1, β), of the windows that all rows of the batch fill."""
        points, n = path.points, self.window
        windows = (points.shape[1] - 1) // n
        order = torch.arange(windows, device=points.device)[:, None] * n + torch.arange(n + 1, device=points.device)
        return log_signature(points[:, order], self.config.level)[:, :, None]

    def way(self, path: Path, row: Tensor, moments: Tensor | None) -> Tensor:
        """(B, M, 1, β)"""
        begin = torch.div(row, self.window, rounding_mode="floor") * self.window
        order = torch.arange(self.window, device=row.device)
        index = torch.minimum(begin[..., None] + order, row[..., None])  # (B, M, N), none behind the row
        if moments is not None:
            index = torch.cat([index, (row + 1).clamp(max=path.points.shape[1] - 1)[..., None]], dim=2)
        points = path.points.gather(1, index.flatten(1)[..., None].expand(-1, -1, path.points.shape[2]))
        points = points.unflatten(1, index.shape[1:])  # (B, M, N, d)
        if moments is not None:
            share, alone = path.since(row, moments)
            here, following = points[:, :, -2], points[:, :, -1]
            now = here + share[..., None] * (following - here) + alone
            points = torch.cat([points[:, :, :-1], now[:, :, None]], dim=2)
        return log_signature(points, self.config.level)[:, :, None]


@dataclass(frozen=True, kw_only=True)
class NRDEConfig(WindowedConfig):
    """See `WindowedConfig`."""

    levels: ClassVar[tuple[int, ...]] = (1, 2, 3)


class NRDE(Windowed):
    """The field is linear in ℓ: F(h) ℓ, with F(h) an MLP of shape (D, β)."""

    config: NRDEConfig

    def __init__(self, config: NRDEConfig) -> None:
        super().__init__(config)
        numbers = size(self.dimensions, config.level)
        if config.level == 3 and numbers > MOST_NUMBERS:
            raise ValueError(
                f"log-signatures of level 3 of a path in {self.dimensions} dimensions have {numbers:,} numbers, "
                f"more than {MOST_NUMBERS:,}; take level=2 or fewer channels."
            )
        self.field = LinearField(config.width, numbers, config.inner, config.depth)


class LinearField(nn.Module):
    """F(h) ℓ, with tanh before the last layer of F and none after it, as published."""

    def __init__(self, width: int, numbers: int, inner: int, depth: int) -> None:
        super().__init__()
        self.hidden = mlp(width, inner, depth, nn.ReLU, last=nn.Tanh)
        self.last = nn.Linear(inner, width * numbers)

    def forward(self, h: Tensor, drive: Tensor) -> Tensor:
        """(*, D), (*, β) -> (*, D)"""
        matrix = self.last(self.hidden(h)).unflatten(-1, (h.shape[-1], -1))
        return (matrix @ drive[..., None]).squeeze(-1)
