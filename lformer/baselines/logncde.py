"""LogNCDE: a neural controlled differential equation solved by the Log-ODE method, with Lie brackets of its own fields.

    dh/ds = Σ_a λ_a f_a(h) + Σ_{a<b} λ_ab [f_a, f_b](h),      [f, g](h) = Dg(h) f(h) − Df(h) g(h)

while s goes from 0 to 1, with (λ_a, λ_ab) the log-signature of the path over a window of rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

from lformer.baselines.controlled import mlp
from lformer.baselines.log_signature import pairs
from lformer.baselines.nrde import Windowed, WindowedConfig
from lformer.batch import IrregularBatch
from lformer.tasks import Task

Fields = Callable[[Tensor], Tensor]  # (*, d, D) -> (*, d, D), field a at point a


@dataclass(frozen=True, kw_only=True)
class LogNCDEConfig(WindowedConfig):
    """See `WindowedConfig`.

    Attributes:
        scale: weights and biases of the fields are divided by it at the start.
        penalty: weight of the size of the fields' parameters in the loss; 0, 1e-6 and 1e-3 were published.
    """

    scale: float = 1000.0
    penalty: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.scale > 0:
            raise ValueError(f"scale must be above 0; got {self.scale}.")
        if not self.penalty >= 0:
            raise ValueError(f"penalty must be at least 0; got {self.penalty}.")


class LogNCDE(Windowed):
    """Fields f_1 … f_d from one MLP with SiLU that ends with tanh; level 1 has no brackets."""

    config: LogNCDEConfig
    field: BracketField

    def __init__(self, config: LogNCDEConfig) -> None:
        super().__init__(config)
        self.field = BracketField(config.width, self.dimensions, config.inner, config.depth)
        with torch.no_grad():
            for parameter in self.field.parameters():
                parameter.div_(config.scale)

    def training_loss(self, task: Task, batch: IrregularBatch) -> Tensor:
        """The loss of the task, and the penalty, ()."""
        loss = task.loss(task.predict(self, batch), batch)
        return loss + self.config.penalty * self.field.size() if self.config.penalty else loss


class BracketField(nn.Module):
    """The right side of the equation above."""

    def __init__(self, width: int, dimensions: int, inner: int, depth: int) -> None:
        super().__init__()
        self.width, self.dimensions = width, dimensions
        self.hidden = mlp(width, inner, depth, nn.SiLU)
        self.last = nn.Linear(inner, dimensions * width)

    def forward(self, h: Tensor, drive: Tensor) -> Tensor:
        """(*, D), (*, d) or (*, d (d + 1) / 2) -> (*, D)"""
        d = self.dimensions
        areas = None if drive.shape[-1] == d else antisymmetric(drive[..., d:], d)
        return log_ode(self.fields, h, drive[..., :d], areas)

    def fields(self, points: Tensor) -> Tensor:
        """(*, d, D) -> (*, d, D), field a at point a, without those of other fields there; or all at one point."""
        weight = self.last.weight.unflatten(0, (self.dimensions, self.width))  # (d, D, inner)
        bias = self.last.bias.unflatten(0, (self.dimensions, self.width))
        return torch.tanh(torch.einsum("...ai,ahi->...ah", self.hidden(points), weight) + bias)

    def size(self) -> Tensor:
        """(), over the layers, the mean norm of the rows of the weight and the norm of the bias."""
        layers = [layer for layer in self.modules() if isinstance(layer, nn.Linear)]
        return torch.stack([layer.weight.norm(dim=1).mean() + layer.bias.norm() for layer in layers]).sum()


def log_ode(fields: Fields, h: Tensor, first: Tensor, areas: Tensor | None) -> Tensor:
    """dh/ds by fields that a log-signature drives; the brackets by forward-mode derivatives, one for each field.

    Since Σ_{a<b} λ_ab [f_a, f_b] = Σ_b Df_b (Σ_a A_ab f_a) with A antisymmetric, every field is differentiated in one
    direction alone.

    Args:
        fields: field a at point a, (*, d, D) -> (*, d, D), or all of them at one point, (*, 1, D) -> (*, d, D).
        h: (*, D).
        first: (*, d), level 1.
        areas: (*, d, d), level 2, antisymmetric, or None for level 1 alone.
    """
    here = h[..., None, :]
    f = fields(here)  # (*, d, D)
    moved = (first[..., None] * f).sum(dim=-2)
    if areas is None:
        return moved
    directions = areas.transpose(-1, -2) @ f  # (*, d, D)
    _load_forward_mode()
    points = here.repeat_interleave(first.shape[-1], dim=-2)
    turned: Tensor = torch.func.jvp(fields, (points,), (directions,))[1]
    return moved + turned.sum(dim=-2)


def antisymmetric(areas: Tensor, dimensions: int) -> Tensor:
    """(*, d (d - 1) / 2), pairs a < b -> (*, d, d)"""
    i, j = pairs(dimensions, areas.device)
    found = areas.new_zeros(*areas.shape[:-1], dimensions, dimensions)
    found[..., i, j] = areas
    return found - found.transpose(-1, -2)


@cache
def _load_forward_mode() -> None:
    """Once: what torch loads at the first forward-mode derivative warns of parts of torch that are deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.func.jvp(torch.sin, (torch.zeros(()),), (torch.zeros(()),))
