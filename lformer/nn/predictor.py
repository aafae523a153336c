"""From the rows of the last mixer to predictions: per series, per row, or at query times."""

from typing import Literal

import torch
from torch import Tensor, nn

from lformer.ops.sharded import latest

Answer = Literal["series", "step", "query"]
Pooling = Literal["mean", "mean_last_max"]


def head(width: int, outputs: int, layers: int = 0) -> nn.Sequential:
    """`layers` times [Linear, ReLU], then Linear; with 0 layers a single linear map."""
    hidden = [module for _ in range(layers) for module in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(width, outputs))


class Pool(nn.Module):
    """Pool the rows of a series into one vector: their mean (paper), or mean, last row and maximum concatenated.

    The pooled values are running, so a series may come in pieces or row by row. In streams they are kept in float64: in
    float32, a sum over millions of rows would lose precision with every row.
    """

    def __init__(self, width: int, kind: Pooling = "mean") -> None:
        super().__init__()
        self.width, self.kind = width, kind
        self.outputs = width if kind == "mean" else 3 * width

    def start(self, batch: int, like: Tensor) -> Tensor:
        """-> (B, D) or (B, 3 D): sum, last row and maximum before the first row"""
        kept = like.new_zeros(batch, self.outputs)
        kept[:, 2 * self.width :] = -torch.inf
        return kept

    def add(self, kept: Tensor, x: Tensor, lengths: Tensor) -> Tensor:
        """(B, D or 3 D), (B, L, D), (B,) -> (B, D or 3 D) after these rows, without padding"""
        D = self.width
        valid = (torch.arange(x.shape[1], device=x.device) < lengths[:, None])[..., None]
        total = kept[:, :D] + torch.where(valid, x, 0).sum(dim=1)
        if self.kind == "mean":
            return total
        rows = torch.cat([kept[:, None, D : 2 * D].to(x.dtype), x], dim=1)
        last = rows.gather(1, lengths[:, None, None].expand(-1, 1, D)).squeeze(1)
        return torch.cat([total, last, torch.maximum(kept[:, 2 * D :], _greatest(x, valid))], dim=1)

    def join(self, kept: Tensor, lengths: Tensor) -> Tensor:
        """(R, B, D or 3 D), (R, B) for R stretches of each series -> (B, D or 3 D) of the whole series"""
        D = self.width
        total = kept[..., :D].sum(dim=0)
        if self.kind == "mean":
            return total
        last = latest(kept[..., D : 2 * D], lengths > 0)
        return torch.cat([total, last, kept[..., 2 * D :].amax(dim=0)], dim=1)

    def forward(self, kept: Tensor, count: Tensor) -> Tensor:
        """(B, D or 3 D), (B,) rows so far -> (B, D or 3 D); zeros for an empty series"""
        mean = kept[:, : self.width] / count.clamp(min=1)[:, None].to(kept.dtype)
        if self.kind == "mean":
            return mean
        return torch.cat([mean, torch.where(count[:, None] > 0, kept[:, self.width :], 0)], dim=1)


def _greatest(x: Tensor, valid: Tensor) -> Tensor:
    """(B, L, D), (B, L, 1) -> (B, D), -inf where there is no valid row"""
    if x.shape[1] == 0:
        return x.new_full((x.shape[0], x.shape[2]), -torch.inf)
    return torch.where(valid, x, -torch.inf).amax(dim=1)
