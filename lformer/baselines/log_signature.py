"""Log-signatures of paths that consist of straight pieces, up to level 2, in plain torch.

    level 1   x_n − x_0
    level 2   A_ij = ½ Σ_k [(x_k−1 − x_0)_i Δ_k,j − (x_k−1 − x_0)_j Δ_k,i],   i < j,   with Δ_k = x_k − x_k−1

A_ij is the area between the path and its chord, as seen by dimensions i and j. These are the coordinates in the Lyndon
basis: brackets [e_i, e_j] in the order 12, 13, …, 1d, 23, ….
"""

from __future__ import annotations

import torch
from torch import Tensor

LEVELS = (1, 2)


def log_signature(points: Tensor, level: int) -> Tensor:
    """(*, N, d) -> (*, d) or (*, d + d (d - 1) / 2)"""
    first = points[..., -1, :] - points[..., 0, :]
    if level == 1:
        return first
    since = points[..., :-1, :] - points[..., :1, :]
    product = since.transpose(-1, -2) @ points.diff(dim=-2)  # (*, d, d)
    i, j = pairs(points.shape[-1], points.device)
    return torch.cat([first, (product[..., i, j] - product[..., j, i]) / 2], dim=-1)


def pairs(dimensions: int, device: torch.device) -> Tensor:
    """(2, d (d - 1) / 2), the pairs i < j in the order of level 2."""
    return torch.triu_indices(dimensions, dimensions, offset=1, device=device)


def size(dimensions: int, level: int) -> int:
    """Numbers of a log-signature."""
    return dimensions if level == 1 else dimensions * (dimensions + 1) // 2
