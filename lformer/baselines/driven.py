"""Solves of equations that a path drives, dh/ds = field(h, X'(s)), by a fixed number of steps for each piece.

Every series has pieces of its own and takes the same number of steps in each, so that neither padding, on which nothing
moves, nor the company in a batch changes a solution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

Solver = Literal["heun", "rk4"]
PLACES: dict[Solver, int] = {"heun": 1, "rk4": 2}  # for every step, at which the path is looked at, and its start
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
    return _through(field, h, _drives(piece, steps, solver), solver)


def states_along(field: Field, h: Tensor, pieces: Tensor, steps: int, solver: Solver) -> Tensor:
    """(B, D) at the beginning, (B, P, K, d) -> (B, P + 1, D), the states before the first and after each piece."""
    states = [h]
    for drives in zip(*(drive.unbind(dim=1) for drive in _drives(pieces, steps, solver)), strict=True):
        states.append(_through(field, states[-1], drives, solver))
    return torch.stack(states, dim=1)


def _through(field: Field, h: Tensor, drives: Sequence[Tensor], solver: Solver) -> Tensor:
    """(*, D), what drives it at all places that the solver looks at, (*, d) each -> (*, D), the state at the end."""
    each = PLACES[solver]
    size = each / (len(drives) - 1)
    for n in range(0, len(drives) - 1, each):
        start, middle, end = drives[n], drives[n + each // 2], drives[n + each]
        k1 = field(h, start)
        if solver == "heun":
            h = h + size / 2 * (k1 + field(h + size * k1, end))
        else:
            k2 = field(h + size / 2 * k1, middle)
            k3 = field(h + size / 2 * k2, middle)
            h = h + size / 6 * (k1 + 2 * k2 + 2 * k3 + field(h + size * k3, end))
    return h


def _drives(piece: Tensor, steps: int, solver: Solver) -> list[Tensor]:
    """(*, K, d) -> (*, d) each, the derivative of the path at all places that the solver looks at, ends included."""
    count = steps * PLACES[solver]
    return [_derivative(piece, n / count) for n in range(count + 1)]


def _derivative(piece: Tensor, s: float) -> Tensor:
    """(*, K, d) -> (*, d), at one place."""
    found = piece[..., 0, :]
    for k in range(1, piece.shape[-2]):
        found = found + s**k * piece[..., k, :]
    return found
