"""The recurrences row by row: the definition that the other backends are tested against."""

import torch
from torch import Tensor


def linear(a: Tensor, b: Tensor, state: Tensor) -> Tensor:
    """(B, L, P), (B, L, P), (B, P) -> (B, L, P)"""
    states = []
    for k in range(b.shape[1]):
        state = a[:, k] * state + b[:, k]
        states.append(state)
    return torch.stack(states, dim=1)


def selective(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
    """(B, L, E), (B, L, E), (E, N), (B, L, N), (B, L, N), (E,) -> (B, L, E)"""
    h = u.new_zeros(u.shape[0], *A.shape)  # (B, E, N)
    rows = []
    for k in range(u.shape[1]):
        h = torch.exp(delta[:, k, :, None] * A) * h + (delta[:, k] * u[:, k])[..., None] * B[:, k, None, :]
        rows.append((h @ C[:, k, :, None]).squeeze(-1) + D * u[:, k])
    return torch.stack(rows, dim=1)
