"""Paths through the rows of a series as pieces, one between each row and the next, in plain torch.

A piece is run through while s goes from 0 to 1. What drives an equation is its derivative, a polynomial in s whose
coefficients are held as (*, K, d): X'(s) = Σ_k c_k s^k. K is 1 for straight and 3 for cubic pieces.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lformer.nn.known import Ahead, Known
from lformer.nn.neighbours import Latest, on_line


def straight(points: Tensor) -> Tensor:
    """(B, L, d) -> (B, L - 1, 1, d)"""
    return points.diff(dim=1)[:, :, None]


def hermite(points: Tensor, gaps: Tensor) -> Tensor:
    """Cubic pieces whose slopes at the rows are backward differences, so that a piece reads no later row.

    A piece ends with the slope of the straight line along it, and begins with that of the line before it; the first
    piece is straight, and so are those beside a gap of 0.

    Args:
        points: (B, L, d).
        gaps: (B, L - 1), how long each piece takes, which slopes are divided by.

    Returns:
        (B, L - 1, 3, d)
    """
    step = points.diff(dim=1)
    before, gap = torch.cat([gaps[:, :1], gaps[:, :-1]], dim=1), gaps
    smooth = (before > 0) & (gap > 0)
    ratio = torch.where(smooth, gap / torch.where(smooth, before, 1), 0)[..., None]
    first = torch.where(smooth[..., None], ratio * torch.cat([step[:, :1], step[:, :-1]], dim=1), step)
    return torch.stack([first, 4 * (step - first), 3 * (first - step)], dim=2)


def cut(pieces: Tensor, share: Tensor) -> Tensor:
    """(*, K, d), (*) from 0 to 1 -> (*, K, d), the first part of each piece, again run through while s goes to 1."""
    power = torch.arange(1, pieces.shape[-2] + 1, device=pieces.device)
    return pieces * (share[..., None] ** power)[..., None]


def fill(times: Tensor, known: Known, ahead: Ahead | None) -> Tensor:
    """(B, L, C) values where they were observed, and what is known of them elsewhere.

    With `ahead`, the next observations, a gap is filled along the line between those around it, and its ends hold the
    nearest one. Without, it holds the latest one. A channel without any is 0.

    Args:
        times: (B, L).
        known: (B, L, C) after each row.
        ahead: (B, L, C) after each row, or None to read no later row.
    """
    if ahead is None:
        return known.latest
    line = on_line(Latest(known.latest, known.time), ahead, times)
    nearest = torch.where(torch.isfinite(known.time), known.latest, ahead.value)
    return torch.where(torch.isnan(line), nearest, line)
