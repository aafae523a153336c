"""Solves of equations that a path drives, dh/ds = field(h, X'(s)), by a fixed number of steps for each piece.

Every series has pieces of its own and takes the same number of steps in each, so that neither padding, on which nothing
moves, nor the company in a batch changes a solution.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

Solver = Literal["heun", "rk4"]
Field = Callable[[Tensor, Tensor], Tensor]  # states (*, D) and what drives them, (*, d) -> (*, D)


def solve(field: Field, h: Tensor, piece: Tensor, steps: int, solver: Solver) -> Tensor:
    """The state at the end of a piece.

    Args:
        field: dh/ds of states and the derivative of the path.
        h: (*, D) at the beginning.
        piece: (*, K, d), coefficients of the derivative, see `lformer.baselines.splines`.
        steps: how many.
        solver: "heun", of order 2, or "rk4", of order 4.
    """
    size = 1 / steps
    for n in range(steps):
        start, middle, end = (_derivative(piece, (n + part) * size) for part in (0, 0.5, 1))
        k1 = field(h, start)
        if solver == "heun":
            h = h + size / 2 * (k1 + field(h + size * k1, end))
        else:
            k2 = field(h + size / 2 * k1, middle)
            k3 = field(h + size / 2 * k2, middle)
            h = h + size / 6 * (k1 + 2 * k2 + 2 * k3 + field(h + size * k3, end))
    return h


def states_along(field: Field, h: Tensor, pieces: Tensor, steps: int, solver: Solver) -> Tensor:
    """(B, D) at the beginning, (B, P, K, d) -> (B, P + 1, D), the states before the first and after each piece."""
    states = [h]
    for piece in pieces.unbind(dim=1):
        states.append(solve(field, states[-1], piece, steps, solver))
    return torch.stack(states, dim=1)


def _derivative(piece: Tensor, s: float) -> Tensor:
    """(*, K, d) -> (*, d), at one place."""
    found = piece[..., 0, :]
    for k in range(1, piece.shape[-2]):
        found = found + s**k * piece[..., k, :]
    return found
