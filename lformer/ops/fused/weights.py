# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""The weights of a mixer as its backward kernels take them, and their gradients from the sums over rows.

LN(x) Wᵀ + b = h (W γ)ᵀ + (b + W β), with h the rows of mean 0 and variance 1. From G = Σ over rows of (gradient)ᵀ h and
s = Σ over rows of the gradient follow dW = G γ + s βᵀ, db = s, dγ = Σ_out W G and dβ = Wᵀ s.

The kernels sum G' = G + SHIFT s: the entries of h sum to 0, so those of a row of G do, and s is found in the mean. Sums
over rows leave each program as its own part; parts are added in a fixed order, so results repeat to the last bit.

`Scratch` is what these kernels and those of the pieces hand to each other.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from lformer.ops.fused.channel import SLICE, fold_down, fold_up, padded_hidden, programs
from lformer.ops.fused.gate import gate_programs, interpolation
from lformer.ops.fused.launch import start_kernel
from lformer.ops.fused.operands import SHIFT, load_weight
from lformer.ops.fused.plan import MixerWeights, Plan
from lformer.ops.fused.tiles import load_vector

SUM_BLOCK = 64  # entries of a sum over parts that one program adds
ALIGNED = 32  # numbers: every piece of scratch begins at a multiple of 64 bytes or more
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


# --- before the rows ---


@triton.jit
def fold_weights(
    norm1, norm1_bias, wq, bq, wk, bk, wv, bv, wo, bo, wg, bg, norm2, norm2_bias, w_up, w_down,
    hidden,  # (3, FP, D) out: W_1, W_2 folded, W_3ᵀ; scaled and narrow, 0 past F
    hidden_bias,  # (2, FP) out
    scales,  # (3,) out: what undoes the scale of W_1 and W_2; of W_3; a bound of the hidden layer before the gate
    heads,  # (4 D + H, D) out: q, o, k, v, gate folded
    heads_bias,  # (4 D + H,) out
    key_scale, F, D: tl.constexpr, H: tl.constexpr, FP: tl.constexpr, SLICE: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """One program for each weight."""
    part = tl.program_id(0)
    if part == 0:
        fold_up(w_up, norm2, norm2_bias, hidden, hidden_bias, scales, F, D, FP, SLICE, OPERAND)
    elif part == 1:
        fold_down(w_down, hidden + 2 * FP * D, scales + 1, F, D, FP, SLICE, OPERAND)
    elif part == 2:
        fold_head(wq, bq, norm1, norm1_bias, heads, heads_bias, 1.0, D, D, D)
    elif part == 3:
        fold_head(wo, bo, norm1, norm1_bias, heads + D * D, heads_bias + D, 1.0, D, D, D)
    elif part == 4:
        fold_head(wk, bk, norm1, norm1_bias, heads + 2 * D * D, heads_bias + 2 * D, key_scale, D, D, D)
    elif part == 5:
        fold_head(wv, bv, norm1, norm1_bias, heads + 3 * D * D, heads_bias + 3 * D, 1.0, D, D, D)
    else:
        fold_head(wg, bg, norm1, norm1_bias, heads + 4 * D * D, heads_bias + 4 * D, 1.0, H, D, 16)


@triton.jit
def fold_head(weight, bias, norm, norm_bias, out, out_bias, scale, limit, D: tl.constexpr, OUT: tl.constexpr):
    """(limit, D), (limit,) -> the same, folded; `scale` is of the weight alone, as in `nn`."""
    w = load_weight(weight, 0, limit, D, OUT).to(tl.float32) * scale
    row = tl.arange(0, OUT)
    inside = row < limit
    b = tl.load(bias + row, mask=inside, other=0.0).to(tl.float32) + tl.sum(w * load_vector(norm_bias, D), axis=1)
    tl.store(out_bias + row, b, mask=inside)
    at = row[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(out + at, w * load_vector(norm, D), mask=inside[:, None])


# --- after the rows ---


@triton.jit(do_not_specialize=["hidden_count", "time_count", "gate_count", "embedder_count", "head_count"])
def sum_parts(
    hidden_parts, time_parts, gate_parts, mu_parts,  # (parts, size) each
    embedder_parts,  # of the first layer
    head_parts,  # of the last layer
    theta,  # (H,)
    sums,  # out: those of hidden, time and gate, one after the other
    g_weights,  # out: the gradient of theta, see `weight_gradients`, and those of embedder and head
    hidden_count, time_count, gate_count,  # of parts; those of mu are as many as those of time
    embedder_count, head_count,
    hidden_size, time_size, gate_size, mu_size, embedder_size, head_size,  # 0 where there is none
    theta_at, embedder_at,  # where these gradients lie; that of the head comes last
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The parts of all programs, added in their order: BLOCK entries a program."""
    block = tl.program_id(0)
    hidden_end = tl.cdiv(hidden_size, BLOCK)
    time_end = hidden_end + tl.cdiv(time_size, BLOCK)
    gate_end = time_end + tl.cdiv(gate_size, BLOCK)
    embedder_end = gate_end + tl.cdiv(embedder_size, BLOCK)
    head_end = embedder_end + tl.cdiv(head_size, BLOCK)
    time, gate = sums + hidden_size, sums + hidden_size + time_size
    embedder, head = g_weights + embedder_at, g_weights + embedder_at + embedder_size
    if block < hidden_end:
        sum_block(hidden_parts, sums, block, hidden_count, hidden_size, BLOCK)
    elif block < time_end:
        sum_block(time_parts, time, block - hidden_end, time_count, time_size, BLOCK)
    elif block < gate_end:
        sum_block(gate_parts, gate, block - time_end, gate_count, gate_size, BLOCK)
    elif block < embedder_end:
        sum_block(embedder_parts, embedder, block - gate_end, embedder_count, embedder_size, BLOCK)
    elif block < head_end:
        sum_block(head_parts, head, block - embedder_end, head_count, head_size, BLOCK)
    else:
        column = tl.arange(0, BLOCK)
        mu = interpolation(theta, column, column < mu_size)
        total = added(mu_parts, column, time_count, mu_size, BLOCK)
        tl.store(g_weights + theta_at + column, total * mu * (1 - mu), mask=column < mu_size)


@triton.jit
def sum_block(parts, out, block, count, size, BLOCK: tl.constexpr):
    column = block * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + column, added(parts, column, count, size, BLOCK), mask=column < size)


@triton.jit
def added(parts, column, count, size, BLOCK: tl.constexpr):
    """Σ over `count` parts of some columns, (BLOCK,)"""
    total = tl.zeros((BLOCK,), parts.dtype.element_ty)
    for start in range(0, count, BLOCK):
        part = (start + tl.arange(0, BLOCK)).to(tl.int64)
        inside = (part < count)[:, None] & (column < size)[None, :]
        total += tl.sum(tl.load(parts + part[:, None] * size + column[None, :], mask=inside, other=0.0), axis=0)
    return total


@triton.jit
def weight_gradients(
    sums,  # (3, FP, D) of `channel_weights`; (5, D, D) G' of q, o, k, v and Σ dx1ᵀ (o ⊙ y); (H, D) G' of the gate
    norm1, norm1_bias, wq, wk, wv, wo, wg, norm2, norm2_bias, w_up,
    g,  # out: the gradients of all weights, one after the other as in `MixerWeights`
    key_scale, F, D: tl.constexpr, H: tl.constexpr, FP: tl.constexpr, SLICE: tl.constexpr,
):  # fmt: skip
    """One program for the time mixer, one for the channel mixer."""
    size: tl.constexpr = D * D
    pair: tl.constexpr = D * D + D  # a projection and its bias
    hidden, time, gate = sums, sums + 3 * FP * D, sums + 3 * FP * D + 5 * size
    g_wq = g + 2 * D
    g_wg = g_wq + 4 * pair
    g_wm = g_wg + H * D + 2 * H  # past the gate, its bias and theta
    g_norm2 = g_wm + size
    g_up = g_norm2 + 2 * D
    if tl.program_id(0) == 0:
        gamma, beta = load_vector(norm1, D), load_vector(norm1_bias, D)
        a0, b0 = unfold(time, wq, gamma, beta, g_wq, g_wq + size, 1.0, D, D, D)
        a1, b1 = unfold(time + size, wo, gamma, beta, g_wq + 3 * pair, g_wq + 3 * pair + size, 1.0, D, D, D)
        a2, b2 = unfold(time + 2 * size, wk, gamma, beta, g_wq + pair, g_wq + pair + size, key_scale, D, D, D)
        a3, b3 = unfold(time + 3 * size, wv, gamma, beta, g_wq + 2 * pair, g_wq + 2 * pair + size, 1.0, D, D, D)
        a4, b4 = unfold(gate, wg, gamma, beta, g_wg, g_wg + H * D, 1.0, H, D, 16)
        store_vector(g, a0 + a1 + a2 + a3 + a4, D)
        store_vector(g + D, b0 + b1 + b2 + b3 + b4, D)
        row = tl.arange(0, D)
        at = row[:, None] * D + row[None, :]
        tl.store(g_wm + at, tl.load(time + 4 * size + at))
    else:
        gamma, beta = load_vector(norm2, D), load_vector(norm2_bias, D)
        dgamma = tl.zeros((D,), tl.float32)
        dbeta = tl.zeros((D,), tl.float32)
        for half in tl.static_range(2):
            for start in range(0, F, SLICE):
                rows = (half * F + start) * D
                a, b = unfold(
                    hidden + (half * FP + start) * D, w_up + rows, gamma, beta, g_up + rows, None, 1.0, F - start,
                    D, SLICE,
                )  # fmt: skip
                dgamma += a
                dbeta += b
        store_vector(g_norm2, dgamma, D)
        store_vector(g_norm2 + D, dbeta, D)
        for start in range(0, F, SLICE):
            unit = start + tl.arange(0, SLICE)
            inside = (unit < F)[:, None]
            tile = tl.load(hidden + 2 * FP * D + unit[:, None] * D + tl.arange(0, D)[None, :], mask=inside, other=0.0)
            tl.store(g_up + 2 * F * D + tl.arange(0, D)[None, :] * F + unit[:, None], tile, mask=inside)


@triton.jit
def unfold(source, weight, gamma, beta, out, out_bias, scale, limit, D: tl.constexpr, OUT: tl.constexpr):
    """G' (limit, D) -> what it adds to dγ and dβ, (D,); stores dW and, where there is a bias, db = s."""
    row = tl.arange(0, OUT)
    inside = row < limit
    at = row[:, None] * D + tl.arange(0, D)[None, :]
    G = tl.load(source + at, mask=inside[:, None], other=0.0)
    mean = tl.sum(G, axis=1) / D
    G, s = G - mean[:, None], mean / SHIFT
    w = load_weight(weight, 0, limit, D, OUT).to(tl.float32) * scale
    tl.store(out + at, (G * gamma + s[:, None] * beta) * scale, mask=inside[:, None])
    if out_bias is not None:
        tl.store(out_bias + row, s, mask=inside)
    return tl.sum(w * G, axis=0), tl.sum(w * s[:, None], axis=0)


@triton.jit
def store_vector(target, vector, D: tl.constexpr):
    tl.store(target + tl.arange(0, D), vector)


# --- memory that kernels hand to each other ---
#
# An allocation takes a fifth of the time of a launch, and a layer wants some twenty tensors: they are pieces of three.


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
    read_units: Tensor  # (B, chunks, H) causal: of dy, dq, do
    write_units: Tensor  # (B, chunks, H) causal: of dk, dv
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


def make_scratch(x: Tensor, plan: Plan) -> Scratch:
    """For the layers of one pass, whose rows are like x (B, L, D)."""
    counts = Counts(*programs(plan), gate_programs(plan), padded_hidden(plan))
    operand = DTYPES[plan.operand]
    B, L, D, H, S, FP = plan.B, plan.L, plan.D, plan.H, plan.segments, counts.FP
    sums = (3 * FP * D, 5 * D * D, H * D)
    memories = B * (S if plan.causal else 1) * D * plan.K
    chunks, rows = (B * plan.total_chunks * H, B * L * D) if plan.causal else (0, 0)
    wide = (
        4 * D * D, H * D, 4 * D + H, 2 * FP, 3, *[B * L * H] * 5, 2 * counts.rows, B * S, memories, 5, chunks, chunks,
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


# --- launches ---


def fold(w: MixerWeights, s: Scratch, plan: Plan) -> None:
    start_kernel(
        fold_weights, (7,),
        (
            w.norm1, w.norm1_bias, w.wq, w.bq, w.wk, w.bk, w.wv, w.bv, w.wo, w.bo, w.wg, w.bg, w.norm2, w.norm2_bias,
            w.w_up, w.w_down, s.hidden, s.hidden_bias, s.scales, s.heads, s.heads_bias,
        ),
        (_key_scale(plan), plan.F),
        D=plan.D, H=plan.H, FP=s.counts.FP, SLICE=SLICE, OPERAND=plan.operand,
    )  # fmt: skip


def gradients(s: Scratch, embedder: Tensor | None, head: Tensor | None, w: MixerWeights, plan: Plan) -> Tensor:
    """From the parts of the programs to the gradients of all weights, one after the other."""
    D, H, FP = plan.D, plan.H, s.counts.FP
    (embedders, embedder_size), (heads, head_size) = _counted(embedder), _counted(head)
    gates = embedders or s.counts.gate  # one kernel leaves both
    sizes = (3 * FP * D, 5 * D * D, H * D, H, embedder_size, head_size)
    numbers = [p.numel() for p in w]
    g = w.wq.new_empty(sum(numbers) + embedder_size + head_size)
    ends = (s.sums if parts is None else parts for parts in (embedder, head))
    start_kernel(
        sum_parts, (sum(-(-size // SUM_BLOCK) for size in sizes),),
        (s.g_hidden, s.g_time, s.g_gate, s.g_mu, *ends, w.theta, s.sums, g),
        (
            s.counts.hidden, plan.B * plan.segments, gates, embedders, heads, *sizes,
            sum(numbers[: w._fields.index("theta")]), sum(numbers),
        ),
        BLOCK=SUM_BLOCK,
    )  # fmt: skip
    start_kernel(
        weight_gradients, (2,),
        (s.sums, w.norm1, w.norm1_bias, w.wq, w.wk, w.wv, w.wo, w.wg, w.norm2, w.norm2_bias, w.w_up, g),
        (_key_scale(plan), plan.F), D=D, H=H, FP=FP, SLICE=SLICE,
    )  # fmt: skip
    return g


def apart(g: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """One after the other -> each in the shape of its tensor."""
    parts = list(g.split_with_sizes([p.numel() for p in tensors]))
    for n, p in enumerate(tensors):
        if p.dim() > 1:
            parts[n] = parts[n].view_as(p)
    return parts


def _key_scale(plan: Plan) -> float:
    """Of the weight of keys alone, as in `nn`."""
    return 1 / math.sqrt(plan.K)


def _counted(parts: Tensor | None) -> tuple[int, int]:
    """How many there are, and their size."""
    return (0, 0) if parts is None else (parts.shape[0], parts.shape[1])
