"""Memory that the backward kernels of one layer hand to each other, and then those of the next layer.

An allocation takes a fifth of the time of a launch, and a layer wants some twenty tensors: they are pieces of three.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lformer.ops.fused.plan import Plan

ALIGNED = 32  # numbers: every piece begins at a multiple of 64 bytes or more


class Counts(NamedTuple):
    """How many programs leave parts, and what a hidden layer is filled up to."""

    rows: int  # of `channel_rows`
    hidden: int  # of `channel_weights`, for each slice
    gate: int  # of `gate_backward`, at most
    FP: int  # F filled up to whole slices


class Scratch(NamedTuple):
    """Flat pieces; the shapes are what kernels make of them."""

    counts: Counts
    # float32: the weights as the kernels take them, see `fold_weights`
    heads: Tensor  # (4 D, D) q, o, k, v; the gate follows
    gate: Tensor  # (H, D)
    heads_bias: Tensor  # (4 D + H,)
    hidden_bias: Tensor  # (2, FP)
    scales: Tensor  # (3,)
    # numbers that rows have for each head, (B, L, H)
    fade: Tensor  # weights in the memory, see `row_factors`
    growth: Tensor
    rise: Tensor
    e: Tensor  # E; in the end its place is taken by the gradient before the sigmoid of the gate
    f: Tensor  # F
    # between kernels
    peaks: Tensor  # (2, programs) of |dx1|, |dx2|
    shares: Tensor  # (B, S) peaks of the weights in the memory
    reverse: Tensor  # (B, H, K, V) R; causal: (B, S, H, K, V)
    units: Tensor  # (5,) causal
    chunk_units: Tensor  # (B, chunks, H) causal
    # parts of weight gradients, and their sums
    g_hidden: Tensor  # (parts, 3, FP, D) of `channel_weights`
    g_time: Tensor  # (B, S, 5, D, D)
    g_gate: Tensor  # (programs, H, D)
    sums: Tensor  # of g_hidden, g_time and g_gate
    # float64: of B4
    changes: Tensor  # (B, S, H), as the next three
    budgets: Tensor
    portions: Tensor
    g_mu: Tensor  # parts
    slope: Tensor  # (B, L, H)
    # as products take them
    hidden: Tensor  # (3, FP, D)
    dy: Tensor  # (B, L, D) causal, as the next two
    da: Tensor  # dq, and then dk
    db: Tensor  # do, and then dv


def make_scratch(x: Tensor, plan: Plan, counts: Counts, operand: torch.dtype) -> Scratch:
    """For layers of rows x (B, L, D), whose products take operands of that dtype."""
    B, L, D, H, S, FP = plan.B, plan.L, plan.D, plan.H, plan.segments, counts.FP
    sums = (3 * FP * D, 5 * D * D, H * D)
    memories = B * (S if plan.causal else 1) * D * plan.K
    chunks, rows = (B * plan.total_chunks * H, B * L * D) if plan.causal else (0, 0)
    wide = (
        4 * D * D, H * D, 4 * D + H, 2 * FP, 3, *[B * L * H] * 5, 2 * counts.rows, B * S, memories, 5, chunks,
        counts.hidden * sums[0], B * S * sums[1], counts.gate * sums[2], sum(sums),
    )  # fmt: skip
    double = (*[B * S * H] * 4, B * L * H)
    narrow = (3 * FP * D, *[rows] * 3)
    return Scratch(
        counts, *_pieces(x, torch.float32, wide), *_pieces(x, torch.float64, double), *_pieces(x, operand, narrow)
    )  # fmt: skip


def _pieces(like: Tensor, dtype: torch.dtype, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    filled = [-(-size // ALIGNED) * ALIGNED for size in sizes]
    return like.new_empty(sum(filled), dtype=dtype).split_with_sizes(filled)
