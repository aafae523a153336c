"""Log-signatures of paths that consist of straight pieces, up to level 3, in plain torch.

    level 1   x_n − x_0
    level 2   A_ij = ½ Σ_k [(x_k−1 − x_0)_i Δ_k,j − (x_k−1 − x_0)_j Δ_k,i],   i < j,   with Δ_k = x_k − x_k−1
    level 3   S³ − ½ (S¹ ⊗ S² + S² ⊗ S¹) + ⅓ S¹ ⊗ S¹ ⊗ S¹,   with Sⁿ level n of the signature

A_ij is the area between the path and its chord, as seen by dimensions i and j. Coordinates are those in the Lyndon
basis: brackets [e_i, e_j] in the order 12, 13, …, 1d, 23, …, and then those of `words`.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor


def log_signature(points: Tensor, level: int) -> Tensor:
    """(*, N, d) -> (*, `size(d, level)`)"""
    first = points[..., -1, :] - points[..., 0, :]
    if level == 1:
        return first
    since = points[..., :-1, :] - points[..., :1, :]
    moments = since.transpose(-1, -2) @ points.diff(dim=-2)  # (*, d, d)
    i, j = pairs(points.shape[-1], points.device)
    lower = torch.cat([first, (moments[..., i, j] - moments[..., j, i]) / 2], dim=-1)
    return lower if level == 2 else torch.cat([lower, _third(points)], dim=-1)


def _third(points: Tensor) -> Tensor:
    """(*, N, d) -> (*, (d³ - d) / 3), level 3.

    By Chen's identity a piece Δ after a path with the signature S adds (S¹ + Δ/2) ⊗ Δ to level 2, and
    (S² + (S¹/2 + Δ/6) ⊗ Δ) ⊗ Δ to level 3.
    """
    step, since = points.diff(dim=-2), points[..., :-1, :] - points[..., :1, :]
    added = (since + step / 2)[..., :, None] * step[..., None, :]  # (*, N - 1, d, d)
    before = F.pad(added[..., :-1, :, :], (0, 0, 0, 0, 1, 0)).cumsum(dim=-3)  # level 2 at the beginning of each piece
    before = before + (since / 2 + step / 6)[..., :, None] * step[..., None, :]
    first, second = step.sum(dim=-2), added.sum(dim=-3)
    signature = torch.einsum("...nij,...nk->...ijk", before, step)
    mixed = first[..., :, None, None] * second[..., None, :, :] + second[..., :, :, None] * first[..., None, None, :]
    cube = first[..., :, None, None] * first[..., None, :, None] * first[..., None, None, :]
    log = signature - mixed / 2 + cube / 3  # (*, d, d, d)
    i, j, k = words(points.shape[-1], points.device)
    # The bracket of a word i < j < k has the word ikj too, with a minus.
    return log[..., i, j, k] + torch.where(j > k, log[..., i, k, j], 0)


def pairs(dimensions: int, device: torch.device) -> Tensor:
    """(2, d (d - 1) / 2), the pairs i < j in the order of level 2."""
    return torch.triu_indices(dimensions, dimensions, offset=1, device=device)


@lru_cache(maxsize=8)  # on a GPU they are not copied there again for every batch
def words(dimensions: int, device: torch.device) -> Tensor:
    """(3, (d³ - d) / 3), the Lyndon words of three letters in their order: i <= j and i < k.

    Their brackets are [i, [j, k]] where j < k, and [[i, j], k] otherwise.
    """
    found = [(i, j, k) for i, j, k in product(range(dimensions), repeat=3) if i <= j and i < k]
    with torch.inference_mode(mode=False):  # they are kept, and training cannot use what was made inside
        return torch.tensor(found, dtype=torch.int64, device=device).reshape(-1, 3).T


def size(dimensions: int, level: int) -> int:
    """Numbers of a log-signature."""
    d = dimensions
    return sum((d, d * (d - 1) // 2, (d**3 - d) // 3)[:level])
