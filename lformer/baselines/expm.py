"""Matrix exponentials that never ask what their values are, so that a CUDA graph may replay them.

    e^X = (e^{X / 2^s})^{2^s},   s so that ‖X / 2^s‖₁ ≤ ½,   e^Y ≈ Σ_{k ≤ 16} Y^k / k!   with an error below 1e-19

`torch.matrix_exp` chooses degree and number of squarings by the largest norm, for which a GPU has to be waited for. Here
s is a tensor, and a matrix that has been squared s times stays what it is while others go on.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lformer.baselines.model import full_precision

MOST_SQUARINGS = 24


def matrix_exp(x: Tensor) -> Tensor:
    """(..., N, N) -> (..., N, N); a matrix of a norm above 2²³ is taken by so much smaller that it has this norm."""
    with full_precision(x.device):
        norm = one_norm(x)
        x = x * shrunk(norm, MOST_SQUARINGS)[..., None, None]
        s = halvings(norm, MOST_SQUARINGS)
        found = taylor(x * 2.0 ** -s[..., None, None])
        for k in range(rounds(s, MOST_SQUARINGS)):
            found = torch.where((k < s)[..., None, None], found @ found, found)
    return found


def taylor(y: Tensor) -> Tensor:
    """(..., N, N) -> (..., N, N), the series up to degree 16 in six products (Paterson and Stockmeyer)."""
    one = torch.eye(y.shape[-1], dtype=y.dtype, device=y.device)
    y2 = y @ y
    powers = (one, y, y2, y2 @ y, y2 @ y2)
    found = sum_of(powers, 12)
    for first in (8, 4, 0):
        found = sum_of(powers[:4], first) + found @ powers[4]
    return found


def sum_of(powers: tuple[Tensor, ...], first: int) -> Tensor:
    """Σ_j powers[j] / (first + j)!"""
    found = powers[0] / math.factorial(first)
    for j, power in enumerate(powers[1:], start=first + 1):
        found = torch.add(found, power, alpha=1 / math.factorial(j))
    return found


def one_norm(x: Tensor) -> Tensor:
    """(..., N, N) -> (...), the largest sum of a column; without gradient, since it only says how to compute."""
    return x.detach().abs().sum(dim=-2).amax(dim=-1)


def halvings(norm: Tensor, most: int) -> Tensor:
    """(...) -> (...) int32, how often to halve until at most ½ is left, at most `most` times."""
    return (torch.frexp(norm).exponent + 1).clamp(0, most)


def shrunk(norm: Tensor, most: int) -> Tensor:
    """(...) -> (...), 1, or less where `most` halvings would leave more than ½."""
    return (2.0 ** (most - 1) / norm).clamp(max=1)


def rounds(s: Tensor, most: int) -> int:
    """(...) -> how many squarings to run: on the CPU as many as any matrix needs; elsewhere `most`, without a look."""
    return int(s.max()) if can_look(s) and s.numel() else most


def can_look(x: Tensor) -> bool:
    """Whether reading a value costs nothing."""
    return x.device.type == "cpu"
