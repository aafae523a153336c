# mypy: ignore-errors
"""B3 and B5: backward of writing and of the gate (paper IV-A, IV-B).

The case that is not causal: what row i wrote, e^{c_i} w_i k_iᵀ v_i, is read through R = Σ_n e^{-c_n} q_nᵀ dy_n over all
rows. R is multiplied with W_k and W_v once. The norm is folded into the weights by the caller; units are as in B2.
"""

import triton.language as tl

from lformer.ops.fused.backward_rows import (
    SHIFT,
    add_rows,
    head_sums,
    joint_product,
    load_projection,
    load_weight,
    narrow,
    product,
    projection,
    share_power,
    shifted_rows,
)
from lformer.ops.fused.rows import dot, dot_add, kernel, load_heads, load_memory, load_rows, normalise


@kernel
def write_backward(
    x,  # (B, L, D)
    dx,  # (B, L, D) in and out
    rise,  # (B, L, H) e^{c} w
    growth,  # (B, L, H) e^{c}
    shares,  # (SHARES,) peaks of e^{c} w
    reverse,  # (B, H, K, V) R
    weight,  # (4D, D) folded: q, o, k, v
    bias,  # (4D,)
    f,  # (B, L, H) out: gradient of the write weight w
    g,  # (B, S, 5, D, D) out: 2: Σ dkᵀ h', 3: Σ dvᵀ h'
    L,
    length,  # rows of a segment
    D: tl.constexpr,
    H: tl.constexpr,
    T: tl.constexpr,
    SHARES: tl.constexpr,
    OPERAND: tl.constexpr,
):
    """One segment, tile by tile."""
    batch, segment, segments = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    first = batch.to(tl.int64) * L
    own = batch.to(tl.int64) * segments + segment
    K: tl.constexpr = D // H
    size: tl.constexpr = D * K
    channel = tl.arange(0, D)
    wk, bk, k_unit = load_projection(weight + 2 * D * D, bias + 2 * D, D, OPERAND)
    wv, _, v_unit = load_projection(weight + 3 * D * D, bias + 3 * D, D, OPERAND)
    share = share_power(shares, tl.num_programs(0) * segments, SHARES, OPERAND)
    r = load_memory(reverse + batch.to(tl.int64) * size, D, H)
    key_bias, value_bias = tl.load(bias + 2 * D + channel), tl.load(bias + 3 * D + channel)
    joint = joint_product(tl.trans(r), load_weight(weight, 2 * D, 3 * D, D, D), OPERAND)  # (V, in): Rᵀ W_k
    key_r, key_r_bias, dv_unit = projection(joint, tl.sum(key_bias[:, None] * r, axis=0), D, OPERAND)
    joint = joint_product(r, load_weight(weight, 3 * D, 4 * D, D, D), OPERAND)  # (K, in): R W_v
    value_r, value_r_bias, dk_unit = projection(joint, tl.sum(value_bias[None, :] * r, axis=1), D, OPERAND)

    gk = tl.zeros((D, D), tl.float32)
    gv = tl.zeros((D, D), tl.float32)
    end = tl.minimum((segment + 1) * length, L)
    for start in range(segment * length, end, T):
        rows = start + tl.arange(0, T)
        inside = rows < end
        h = shifted_rows(x, first, rows, inside, D, OPERAND)
        k = product(h, wk, OPERAND) + bk
        dk = product(h, value_r, OPERAND) + value_r_bias
        at = first * H + rows[:, None] * H + tl.arange(0, H)[None, :]
        slope = head_sums(k * dk, T, D, H) * tl.load(growth + at, mask=inside[:, None], other=0.0)
        tl.store(f + at, slope * (k_unit * dk_unit), mask=inside[:, None])
        written = load_heads(rise, first, rows, inside, D, H) * share
        dk = narrow(dk * written, OPERAND)
        gk = tl.dot(tl.trans(dk), h, gk, input_precision="ieee")
        dv = product(h, key_r, OPERAND) + key_r_bias
        dv = narrow(dv * written, OPERAND)
        gv = tl.dot(tl.trans(dv), h, gv, input_precision="ieee")
        dh = product(dk, tl.trans(wk), OPERAND) * (dk_unit / dv_unit * (k_unit / v_unit))
        dh = tl.dot(dv, tl.trans(wv), dh, input_precision="ieee")
        add_rows(dx, x, first, rows, inside, dh * (dv_unit * v_unit / share), D)

    at = g + own * (5 * D * D) + 2 * D * D + channel[:, None] * D + channel[None, :]
    tl.store(at, gk * (dk_unit / share))
    tl.store(at + D * D, gv * (dv_unit / share))


@kernel
def gate_backward(
    x,  # (N, D) rows of all series
    dx,  # (N, D) in and out
    slope,  # (N, H) gradient before the sigmoid of the gate
    weight,  # (H, D) folded
    g_weight,  # (programs, H, D) out: Σ slopeᵀ h'
    N,
    D: tl.constexpr,
    H: tl.constexpr,
    T: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Rows of all series, tile by tile; the heads fill a tile of 16, the least that a product takes."""
    own = tl.program_id(0).to(tl.int64)
    head = tl.arange(0, 16)
    w = load_weight(weight, 0, H, D, 16)
    g = tl.zeros((16, D), tl.float32)
    for turn in range(tl.cdiv(tl.cdiv(N, T) - tl.program_id(0), tl.num_programs(0))):
        first = (own + turn * tl.num_programs(0)) * T
        rows = tl.arange(0, T)
        inside = rows < N - first
        h, _ = normalise(load_rows(x, first, rows, inside, D).to(tl.float32), D)
        h += SHIFT
        at = rows[:, None] * H + head[None, :]
        slopes = tl.load(slope + first * H + at, mask=inside[:, None] & (head < H)[None, :], other=0.0)
        g = dot_add(tl.trans(slopes), h, g, PRECISION)
        dh = dot(slopes, w, PRECISION)
        add_rows(dx, x, first, rows, inside, dh, D)
    at = head[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(g_weight + own * (H * D) + at, g, mask=(head < H)[:, None])
