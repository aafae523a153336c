"""What models of linear stochastic differential equations share: an orthogonal basis, and (e^x - 1) / x."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from lformer.baselines.expm import matrix_exp


def grown_over_rate(x: Tensor) -> Tensor:
    """(e^x - 1) / x, and its limit 1 at 0."""
    small = x.abs() < 1e-4
    safe = torch.where(small, 1, x)
    return torch.where(small, 1 + x / 2 + x * x / 6, torch.expm1(safe) / safe)


class Orthogonal(nn.Module):
    """A matrix that stays orthogonal whatever an optimiser does to its parameters.

    E = exp(W - Wᵀ), a rotation; of W only the entries above the diagonal are used, so only these are kept.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        above = torch.triu_indices(size, size, offset=1)
        self.size = size
        self.above: Tensor
        self.register_buffer("above", above[0] * size + above[1], persistent=False)
        self.angles = nn.Parameter(torch.randn(above.shape[1]) / math.sqrt(size))

    def forward(self) -> Tensor:
        """(N, N), in float64 where the device has it, so that rounding leaves it orthogonal."""
        angles = self.angles if self.angles.device.type == "mps" else self.angles.double()
        upper = angles.new_zeros(self.size * self.size).index_copy(0, self.above, angles).view(self.size, self.size)
        return matrix_exp(upper - upper.mT).to(self.angles.dtype)
