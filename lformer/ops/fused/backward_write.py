"""B3 and B5: backward of writing and of the gate (paper IV-A, IV-B).

What row i wrote, e^{c_i} w_i k_iᵀ v_i, is read through R = Σ_n e^{-c_n} q_nᵀ dy_n over the rows that see it. In the
causal case c runs within the chunk, R comes from the chunks after it, and the rows of the chunk itself add
(keep ⊙ v dyᵀ)(e^{-c} q) and (keep ⊙ k (e^{-c} q)ᵀ) dy. The norm is folded into the weights by the caller.
"""

import triton
import triton.language as tl

from lformer.ops.fused.backward_rows import add_rows, head_sums, load_weight, masked_attention
from lformer.ops.fused.rows import (
    dot,
    dot_add,
    load_heads,
    load_memory,
    load_rows,
    load_transposed,
    load_vector,
    normalise,
    same_head,
)


@triton.jit
def write_backward(
    x,  # (B, L, D)
    dx,  # (B, L, D) in and out
    dy,  # (B, L, D) causal: gradient of what was read
    fade,  # (B, L, H) e^{-c}
    rise,  # (B, L, H) e^{c} w
    growth,  # (B, L, H) e^{c}
    reverse,  # (B, H, K, V) R; causal: (B, S, H, K, V), of each segment from its start
    span,  # (B, S, H) causal
    weight,  # (4D, D) folded: q, o, k, v
    bias,  # (4D,)
    f,  # (B, L, H) out: gradient of the write weight w
    g_weight,  # (B, S, 2, D, D) out: Σ hᵀ dk, Σ hᵀ dv
    g_bias,  # (B, S, 2, D) out
    L,
    length,  # rows of a segment
    D: tl.constexpr,
    H: tl.constexpr,
    T: tl.constexpr,
    CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """One segment, its chunks from the last to the first."""
    batch, segment, segments = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    first = batch.to(tl.int64) * L
    own = batch.to(tl.int64) * segments + segment
    K: tl.constexpr = D // H
    size: tl.constexpr = D * K
    key, key_bias = load_transposed(weight, 2 * D, 3 * D, D, D), load_vector(bias + 2 * D, D)
    value, value_bias = load_transposed(weight, 3 * D, 4 * D, D, D), load_vector(bias + 3 * D, D)
    wk = load_weight(weight, 2 * D, 3 * D, D, D)
    wv = load_weight(weight, 3 * D, 4 * D, D, D)
    heads = tl.arange(0, D) // K
    if CAUSAL:
        wq_in = load_transposed(weight, 0, D, D, D)
        bq = load_vector(bias, D)
        r = tl.zeros((D, D), tl.float32)
        for ahead in range(segments - 1 - segment):
            at = batch.to(tl.int64) * segments + (segments - 1 - ahead)
            across = tl.exp(-tl.load(span + at * H + heads))
            r = r * across[:, None] + load_memory(reverse + at * size, D, H)
    else:
        # All rows are read through the same R: it is multiplied with W_k and W_v once.
        r = load_memory(reverse + batch.to(tl.int64) * size, D, H)
        key_r, key_r_bias = dot(key, r, PRECISION), tl.sum(tl.trans(key_bias) * r, axis=0)[None, :]
        value_r, value_r_bias = dot(value, tl.trans(r), PRECISION), tl.sum(value_bias * r, axis=1)[None, :]

    gk = tl.zeros((D, D), tl.float32)
    gv = tl.zeros((D, D), tl.float32)
    gbk = tl.zeros((D,), tl.float32)
    gbv = tl.zeros((D,), tl.float32)

    end = tl.minimum((segment + 1) * length, L)
    count = tl.cdiv(end - segment * length, T)
    for step in range(count):
        start = segment * length + (count - 1 - step) * T
        rows = start + tl.arange(0, T)
        inside = rows < end
        h, _ = normalise(load_rows(x, first, rows, inside, D).to(tl.float32), D)
        k = dot(h, key, PRECISION) + key_bias
        if CAUSAL:
            r *= tl.load(fade + (first + tl.minimum(start + T, end) - 1) * H + heads)[:, None]
            v = dot(h, value, PRECISION) + value_bias
            q = (dot(h, wq_in, PRECISION) + bq) * load_heads(fade, first, rows, inside, D, H)
            dread = load_rows(dy, first, rows, inside, D).to(tl.float32)
            dk = dot(v, tl.trans(r), PRECISION) + masked_attention(v, dread, q, T, D, H, False, PRECISION)
            dv = dot(k, r, PRECISION) + masked_attention(k, q, dread, T, D, H, False, PRECISION)
            r = tl.where(same_head(D, H), dot_add(tl.trans(q), dread, r, PRECISION), 0.0)
        else:
            dk = dot(h, value_r, PRECISION) + value_r_bias
            dv = dot(h, key_r, PRECISION) + key_r_bias
        slope = head_sums(k * dk, T, D, H)
        head = tl.arange(0, H)[None, :]
        at = first * H + rows[:, None] * H + head
        slope *= tl.load(growth + at, mask=inside[:, None], other=0.0)
        tl.store(f + at, slope, mask=inside[:, None])
        written = load_heads(rise, first, rows, inside, D, H)
        dk *= written
        dv *= written

        gk = dot_add(tl.trans(h), dk, gk, PRECISION)
        gv = dot_add(tl.trans(h), dv, gv, PRECISION)
        gbk += tl.sum(dk, axis=0)
        gbv += tl.sum(dv, axis=0)
        dh = dot(dk, wk, PRECISION)
        dh = dot_add(dv, wv, dh, PRECISION)
        add_rows(dx, x, first, rows, inside, dh, D)

    channel = tl.arange(0, D)
    at = channel[:, None] * D + channel[None, :]
    tl.store(g_weight + own * (2 * D * D) + at, gk)
    tl.store(g_weight + own * (2 * D * D) + D * D + at, gv)
    tl.store(g_bias + own * (2 * D) + channel, gbk)
    tl.store(g_bias + own * (2 * D) + D + channel, gbv)


@triton.jit
def gate_backward(
    x,  # (N, D) rows of all series
    dx,  # (N, D) in and out
    slope,  # (N, H) gradient before the sigmoid of the gate
    weight,  # (H, D) folded
    g_weight,  # (programs, H, D) out: Σ slopeᵀ h
    g_bias,  # (programs, H) out
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
    gb = tl.zeros((16,), tl.float32)
    for turn in range(tl.cdiv(tl.cdiv(N, T) - tl.program_id(0), tl.num_programs(0))):
        first = (own + turn * tl.num_programs(0)) * T
        rows = tl.arange(0, T)
        inside = rows < N - first
        h, _ = normalise(load_rows(x, first, rows, inside, D).to(tl.float32), D)
        at = rows[:, None] * H + head[None, :]
        slopes = tl.load(slope + first * H + at, mask=inside[:, None] & (head < H)[None, :], other=0.0)
        g = dot_add(tl.trans(slopes), h, g, PRECISION)
        gb += tl.sum(slopes, axis=0)
        dh = dot(slopes, w, PRECISION)
        add_rows(dx, x, first, rows, inside, dh, D)
    at = head[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(g_weight + own * (H * D) + at, g, mask=(head < H)[:, None])
    tl.store(g_bias + own * H + head, gb, mask=head < H)
