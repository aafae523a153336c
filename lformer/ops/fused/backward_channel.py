"""B1: backward of the channel mixer, x2 = x1 + [SiLU(h W_1ᵀ) ⊙ (h W_2ᵀ)] W_3ᵀ with h = LN(x1) (paper IV-C).

The weight and bias of the norm are folded into W_1 and W_2 by the caller, so h is the normalised row alone.
"""

import triton
import triton.language as tl

from lformer.ops.fused.backward_rows import load_again, load_weight, norm_backward
from lformer.ops.fused.rows import dot, dot_add, load_rows, load_transposed, normalise, sigmoid, store_rows


@triton.jit
def channel_backward(
    x1,  # (N, D) rows of all series
    dx2,  # (N, D)
    w_up,  # (2F, D) folded
    b_up,  # (2F,)
    w_down,  # (D, F)
    dx1,  # (N, D) out
    g_up,  # (programs, 2, D, F) out: Σ rows hᵀ (gradient of a hidden unit)
    g_bias,  # (programs, 2F) out
    g_down,  # (programs, D, F) out
    scratch,  # (programs, TILES T, D) float32: gradient of h over the slices so far
    N,
    F,
    D: tl.constexpr,
    T: tl.constexpr,
    TILES: tl.constexpr,
    SLICE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Groups of TILES tiles of rows; within a group, slices of the hidden layer, whose weights then stay on chip.

    All sums over rows of one slice fit into registers, those of all slices do not: between groups they rest in this
    program's own entry of the outputs. What a group reads again for each slice is small enough for the L2 cache.
    """
    own = tl.program_id(0).to(tl.int64)
    for turn in range(tl.cdiv(tl.cdiv(N, TILES * T) - tl.program_id(0), tl.num_programs(0))):
        first = (own + turn * tl.num_programs(0)) * (TILES * T)
        for start in range(0, F, SLICE):
            tl.debug_barrier()  # the scratch of the slice before is written
            channel_slice(
                x1 + first * D, dx2 + first * D, w_up, b_up, w_down, dx1 + first * D,
                g_up + own * (2 * F * D), g_bias + own * (2 * F), g_down + own * (F * D),
                scratch + own * (TILES * T * D), (N - first).to(tl.int32), F, start, turn > 0,
                D, T, TILES, SLICE, PRECISION,
            )  # fmt: skip


@triton.jit
def channel_slice(
    x1, dx2, w_up, b_up, w_down, dx1, g_up, g_bias, g_down, scratch, N, F, start, again,
    D: tl.constexpr, T: tl.constexpr, TILES: tl.constexpr, SLICE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One group of rows, hidden units `start … start + SLICE`; `again` if sums of earlier groups are to be kept."""
    unit = start + tl.arange(0, SLICE)
    inside_f = unit < F
    w1_in = load_transposed(w_up, start, F, D, SLICE)
    w2_in = load_transposed(w_up + F * D, start, F, D, SLICE)
    w1 = load_weight(w_up, start, F, D, SLICE)
    w2 = load_weight(w_up + F * D, start, F, D, SLICE)
    b1 = tl.load(b_up + unit, mask=inside_f, other=0.0)[None, :]
    b2 = tl.load(b_up + F + unit, mask=inside_f, other=0.0)[None, :]
    channel = tl.arange(0, D)
    w3 = tl.load(w_down + channel[:, None] * F + unit[None, :], mask=inside_f[None, :], other=0.0)  # (D, SLICE)

    at = channel[:, None] * F + unit[None, :]
    keep = inside_f[None, :] & again
    g1 = tl.load(g_up + at, mask=keep, other=0.0)
    g2 = tl.load(g_up + F * D + at, mask=keep, other=0.0)
    g3 = tl.load(g_down + at, mask=keep, other=0.0)
    gb1 = tl.load(g_bias + unit, mask=inside_f & again, other=0.0)
    gb2 = tl.load(g_bias + F + unit, mask=inside_f & again, other=0.0)

    for tile in range(0, tl.minimum(TILES, tl.cdiv(N, T))):
        rows = tile * T + tl.arange(0, T)
        inside = rows < N
        h, _ = normalise(load_rows(x1, 0, rows, inside, D).to(tl.float32), D)
        grad = load_rows(dx2, 0, rows, inside, D)
        a = dot(h, w1_in, PRECISION) + b1
        b = dot(h, w2_in, PRECISION) + b2
        dz = dot(grad, w3, PRECISION)
        s = sigmoid(a, PRECISION)
        silu = a * s
        db = dz * silu
        da = dz * b * (s + silu * (1 - s))
        g3 = dot_add(tl.trans(grad), silu * b, g3, PRECISION)
        g1 = dot_add(tl.trans(h), da, g1, PRECISION)
        g2 = dot_add(tl.trans(h), db, g2, PRECISION)
        gb1 += tl.sum(da, axis=0)
        gb2 += tl.sum(db, axis=0)

        dh = load_rows(scratch, 0, rows, inside & (start > 0), D)
        dh = dot_add(da, w1, dh, PRECISION)
        dh = dot_add(db, w2, dh, PRECISION)
        # Both stores are masked rather than branched over: the result of a product must not enter a branch.
        store_rows(scratch, 0, rows, inside & (start + SLICE < F), dh, D)
        last = inside & (start + SLICE >= F)
        h, scale = normalise(load_again(x1, 0, rows, last, D), D)
        store_rows(dx1, 0, rows, last, load_again(dx2, 0, rows, last, D) + norm_backward(dh, h, scale, D), D)

    tl.store(g_up + at, g1, mask=inside_f[None, :])
    tl.store(g_up + F * D + at, g2, mask=inside_f[None, :])
    tl.store(g_down + at, g3, mask=inside_f[None, :])
    tl.store(g_bias + unit, gb1, mask=inside_f)
    tl.store(g_bias + F + unit, gb2, mask=inside_f)
