"""From the last rows to answers: per series, per row, or at query times."""

from typing import Literal

import torch
from torch import Tensor, nn

Answer = Literal["series", "step", "query"]


def head(width: int, outputs: int, layers: int = 0) -> nn.Sequential:
    """`layers` times [Linear, ReLU], then Linear; with 0 layers a single linear map."""
    hidden = [module for _ in range(layers) for module in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(width, outputs))


def pooled_mean(total: Tensor, count: Tensor) -> Tensor:
    """(B, D) sum over valid rows, (B,) their number -> (B, D) mean; zeros for an empty series."""
    return total / count.clamp(min=1)[:, None].to(total.dtype)


def pooled_sum(x: Tensor, valid: Tensor) -> Tensor:
    """(B, L, D), (B, L) bool -> (B, D), padding left out."""
    return torch.where(valid[..., None], x, 0).sum(dim=1)
