"""Matrix exponentials that never ask what their values are, so that a CUDA graph may replay them.

    e^X = (e^{X / 2^s})^{2^s},   s so that ‖X / 2^s‖₁ ≤ ½,   e^Y ≈ Σ_{k ≤ 16} Y^k / k!   with an error below 1e-19

`torch.matrix_exp` chooses degree and number of squarings by the largest norm, for which one has to wait for a GPU. Here
s is a tensor, and a matrix that has been squared s times stays what it is while others go on.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lformer.baselines.model import full_precision

MOST_SQUARINGS = 16


def matrix_exp(x: Tensor) -> Tensor:
    """(..., N, N) -> (..., N, N); a matrix of a norm above 2¹⁵ is made so much smaller that it has this norm."""
    with full_precision(x.device):
        norm = one_norm(x)
        s = halvings(norm)
        found = taylor(x * (shrunk(norm) * 2.0**-s)[..., None, None])
        for goes_on in squarings(s):
            found = torch.where(goes_on, found @ found, found)
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


def halvings(norm: Tensor) -> Tensor:
    """(...) -> (...) int32, how often to halve until at most ½ is left, at most `MOST_SQUARINGS` times."""
    return (torch.frexp(norm).exponent + 1).clamp(0, MOST_SQUARINGS)


def shrunk(norm: Tensor) -> Tensor:
    """(...) -> (...), 1, or less where so many halvings would leave more than ½."""
    return (2.0 ** (MOST_SQUARINGS - 1) / norm).clamp(max=1)


def squarings(s: Tensor) -> tuple[Tensor, ...]:
    """(...) -> (..., 1, 1) bool for every squaring, which matrices still take part.

    On the CPU there are as many as any matrix needs; elsewhere as many as any could need, without a look.
    """
    count = int(s.max()) if can_look(s) and s.numel() else MOST_SQUARINGS
    return (torch.arange(count, device=s.device) < s[..., None])[..., None, None].unbind(-3)


def can_look(x: Tensor) -> bool:
    """Whether reading a value costs nothing."""
    return x.device.type == "cpu"
