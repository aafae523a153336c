"""Signatures of paths that consist of straight pieces, truncated at a level, in plain torch.

    S¹ = ∫ dx,   S² = ∫∫ dx ⊗ dx,   S³ = ∫∫∫ dx ⊗ dx ⊗ dx,   …   over ordered moments of the path

A straight piece Δ has the signature exp(Δ) = (Δ, Δ²/2!, Δ³/3!, …), and the signature of one path after another is the
product of theirs (Chen). It depends neither on where a path begins nor on how fast it is run through. Levels are held
flat: level n of a path in d dimensions is (*, dⁿ), the last index running fastest.
"""

from __future__ import annotations

import torch
from torch import Tensor

Levels = tuple[Tensor, ...]  # (*, d), (*, d²), (*, d³), …; level 0 is always 1


def straight(step: Tensor, level: int) -> Levels:
    """(*, d) -> levels 1 to `level`, of a straight piece."""
    found = [step]
    for n in range(2, level + 1):
        found.append(_outer(found[-1], step) / n)
    return tuple(found)


def chen(before: Levels, after: Levels) -> Levels:
    """Of a path followed by another."""
    return tuple(
        sum((_outer(before[m], after[n - 1 - m]) for m in range(n)), start=before[n] + after[n])
        for n in range(len(before))
    )


def inverse(levels: Levels) -> Levels:
    """Of the path run through backwards, so that `chen(inverse(S), S)` is 0 at every level."""
    found: list[Tensor] = []
    for n, level in enumerate(levels):
        found.append(-sum((_outer(found[m], levels[n - 1 - m]) for m in range(n)), start=level))
    return tuple(found)


def prefixes(path: Tensor, level: int) -> Levels:
    """(B, N, *, d) points -> (B, N, *, dⁿ), the signature of the path up to each point; 0 at the first.

    By Chen's identity a piece adds to level n the products of the lower levels before it with those of its own: running
    sums, one for each level.
    """
    pieces = straight(path[:, 1:] - path[:, :-1], level)
    found: list[Tensor] = []
    for n, piece in enumerate(pieces):
        added = sum((_outer(found[m][:, :-1], pieces[n - 1 - m]) for m in range(n)), start=piece)
        nothing = added.new_zeros(len(added), 1, *added.shape[2:])
        found.append(torch.cat([nothing, added.cumsum(dim=1)], dim=1))
    return tuple(found)


def size(dimensions: int, level: int) -> int:
    """Numbers of a signature: d + d² + … up to the level."""
    return sum(dimensions**n for n in range(1, level + 1))


def _outer(a: Tensor, b: Tensor) -> Tensor:
    """(*, m), (*, n) -> (*, m n)"""
    return (a[..., :, None] * b[..., None, :]).flatten(-2)
