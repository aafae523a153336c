# mypy: ignore-errors
"""The weights of a mixer as its backward kernels take them, and their gradients from the sums over rows.

LN(x) Wᵀ + b = h (W γ)ᵀ + (b + W β), with h the rows of mean 0 and variance 1. From G = Σ over rows of (gradient)ᵀ h and
s = Σ over rows of the gradient follow dW = G γ + s βᵀ, db = s, dγ = Σ_out W G and dβ = Wᵀ s.

The kernels sum G' = G + SHIFT s: the entries of h sum to 0, so those of a row of G do, and s is found in the mean.
"""

import triton
import triton.language as tl

from lformer.ops.fused.backward_rows import LARGEST, SHIFT, load_weight, narrow, power
from lformer.ops.fused.mixer_forward import interpolation
from lformer.ops.fused.rows import load_vector


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


@triton.jit
def fold_up(
    weight, norm, norm_bias, out, out_bias, scales, F,
    D: tl.constexpr, FP: tl.constexpr, SLICE: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    gamma, beta = load_vector(norm, D), load_vector(norm_bias, D)
    largest = tl.full((), 0.0, tl.float32)
    bound = tl.full((), 0.0, tl.float32)
    for half in tl.static_range(2):
        for start in range(0, FP, SLICE):
            raw = load_weight(weight + half * F * D, start, F, D, SLICE).to(tl.float32)
            w, b = raw * gamma, tl.sum(raw * beta, axis=1)
            tl.store(out_bias + half * FP + start + tl.arange(0, SLICE), b)
            largest = tl.maximum(largest, tl.max(tl.max(tl.abs(w), axis=1), axis=0))
            # No row h is longer than √D.
            bound = tl.maximum(bound, tl.max(tl.sqrt(tl.sum(w * w, axis=1) * D) + tl.abs(b), axis=0))
    scale = power(largest, OPERAND)
    for half in tl.static_range(2):
        for start in range(0, FP, SLICE):
            w = load_weight(weight + half * F * D, start, F, D, SLICE).to(tl.float32) * gamma * scale
            at = (half * FP + start + tl.arange(0, SLICE))[:, None] * D + tl.arange(0, D)[None, :]
            tl.store(out + at, narrow(w, OPERAND))
    tl.store(scales, 1 / scale)
    if OPERAND == "fp16":
        tl.store(scales + 2, 1 / power(bound, OPERAND) * (2 * LARGEST))  # a power of two above the bound
    else:
        tl.store(scales + 2, 1.0)


@triton.jit
def fold_down(
    weight, out, scales, F, D: tl.constexpr, FP: tl.constexpr, SLICE: tl.constexpr, OPERAND: tl.constexpr
):  # fmt: skip
    largest = tl.full((), 0.0, tl.float32)
    for start in range(0, FP, SLICE):
        w = load_down(weight, start, F, D, SLICE)
        largest = tl.maximum(largest, tl.max(tl.max(tl.abs(w), axis=1), axis=0))
    scale = power(largest, OPERAND)
    for start in range(0, FP, SLICE):
        at = (start + tl.arange(0, SLICE))[:, None] * D + tl.arange(0, D)[None, :]
        tl.store(out + at, narrow(load_down(weight, start, F, D, SLICE) * scale, OPERAND))
    tl.store(scales, 1 / scale)


@triton.jit
def load_down(weight, start, F, D: tl.constexpr, SLICE: tl.constexpr):
    """Columns `start …` of a (D, F) weight, as (SLICE, D)."""
    unit = start + tl.arange(0, SLICE)
    at = tl.arange(0, D)[None, :] * F + unit[:, None]
    return tl.load(weight + at, mask=(unit < F)[:, None], other=0.0).to(tl.float32)


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
