"""B2: backward of reading, x1 = x + (o ⊙ y) W_mᵀ with y_n = e^{-c_n} q_n S (paper IV-B).

The norm is folded into the weights by the caller. In the causal case c runs within the chunk, S is what the chunks
before left, and the rows of the chunk itself add (keep ⊙ (e^{-c} q)(e^{c} w k)ᵀ) v. In the other case all rows of a
series read the same S: it is multiplied with W_q once, queries are never formed, and their gradients and R follow from
Z = Σ hᵀ (e^{-c} dy) afterwards.
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
    sigmoid,
    store_memory,
    store_rows,
)


@triton.jit
def read_backward(
    x,  # (B, L, D)
    dx,  # (B, L, D) in: gradient of x1; out: its share in the gradient of x
    fade,  # (B, L, H) e^{-c}
    rise,  # (B, L, H) e^{c} w
    memory,  # (B, H, K, V); causal: (B, S, H, K, V) `partial` of the forward pass
    span,  # (B, S, H) causal
    weight,  # (4D, D) folded: q, o, k, v
    bias,  # (4D,)
    mix,  # (D, D)
    dy,  # (B, L, D) out, causal
    e,  # (B, L, H) out: dy · y
    reverse,  # (B, S, H, K, V) out, causal: Σ e^{-c_n} q_nᵀ dy_n with c from the start of the segment
    g_weight,  # (B, S, 3, D, D) out: Σ hᵀ dq (causal) or Z, Σ hᵀ do, Σ dx1ᵀ (o ⊙ y)
    g_bias,  # (B, S, 2, D) out: Σ dq (causal) or Σ e^{-c} dy, Σ do
    L,
    length,  # rows of a segment
    D: tl.constexpr,
    H: tl.constexpr,
    T: tl.constexpr,
    CAUSAL: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """One segment, chunk by chunk."""
    batch, segment, segments = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    first = batch.to(tl.int64) * L
    own = batch.to(tl.int64) * segments + segment
    K: tl.constexpr = D // H
    size: tl.constexpr = D * K  # numbers in one memory
    query, query_bias = load_transposed(weight, 0, D, D, D), load_vector(bias, D)
    wo_in = load_transposed(weight, D, 2 * D, D, D)
    wo = load_weight(weight, D, 2 * D, D, D)
    wm = load_weight(mix, 0, D, D, D)
    bo = load_vector(bias + D, D)
    heads = tl.arange(0, D) // K
    if CAUSAL:
        wk_in = load_transposed(weight, 2 * D, 3 * D, D, D)
        wv_in = load_transposed(weight, 3 * D, 4 * D, D, D)
        bk, bv = load_vector(bias + 2 * D, D), load_vector(bias + 3 * D, D)
        s = tl.zeros((D, D), tl.float32)
        for before in range(segment):
            at = batch.to(tl.int64) * segments + before
            across = tl.exp(-tl.load(span + at * H + heads))
            s = s * across[:, None] + load_memory(memory + at * size, D, H)
        left = tl.full((D,), 1.0, tl.float32)  # what is left of the start of the segment
        query_back = load_weight(weight, 0, D, D, D)
        r = tl.zeros((D, D), tl.float32)
    else:
        s = load_memory(memory + batch.to(tl.int64) * size, D, H)
        query, query_bias = dot(query, s, PRECISION), tl.sum(tl.trans(query_bias) * s, axis=0)[None, :]
        query_back = tl.trans(query)

    gq = tl.zeros((D, D), tl.float32)
    go = tl.zeros((D, D), tl.float32)
    gm = tl.zeros((D, D), tl.float32)
    gbq = tl.zeros((D,), tl.float32)
    gbo = tl.zeros((D,), tl.float32)

    end = tl.minimum((segment + 1) * length, L)
    for start in range(segment * length, end, T):
        rows = start + tl.arange(0, T)
        inside = rows < end
        # In the order that lets tiles die early: registers are what this kernel is short of.
        h, _ = normalise(load_rows(x, first, rows, inside, D).to(tl.float32), D)
        weak = load_heads(fade, first, rows, inside, D, H)
        y = (dot(h, query, PRECISION) + query_bias) * weak
        if CAUSAL:
            q = y
            k = (dot(h, wk_in, PRECISION) + bk) * load_heads(rise, first, rows, inside, D, H)
            v = dot(h, wv_in, PRECISION) + bv
            y = dot(q, s, PRECISION) + masked_attention(q, k, v, T, D, H, True, PRECISION)
        o = sigmoid(dot(h, wo_in, PRECISION) + bo, PRECISION)
        dx1 = load_rows(dx, first, rows, inside, D)
        dread = dot(dx1, wm, PRECISION) * o
        gm = dot_add(tl.trans(dx1), o * y, gm, PRECISION)
        y *= dread
        head = tl.arange(0, H)[None, :]
        tl.store(e + first * H + rows[:, None] * H + head, head_sums(y, T, D, H), mask=inside[:, None])
        do = y * (1 - o)  # gradient before the sigmoid of o
        go = dot_add(tl.trans(h), do, go, PRECISION)
        gbo += tl.sum(do, axis=0)
        dq = dread * weak
        if CAUSAL:
            store_rows(dy, first, rows, inside, dread, D)
            r = dot_add(tl.trans(q * left[None, :]), dread, r, PRECISION)
            dq = dot(dq, tl.trans(s), PRECISION)
            dq += masked_attention(dread, v, k, T, D, H, True, PRECISION) * weak
            across = tl.load(fade + (first + tl.minimum(start + T, end) - 1) * H + heads)
            left *= across
            s = dot_add(tl.trans(k), v, s, PRECISION) * across[:, None]
            s = tl.where(same_head(D, H), s, 0.0)
        gq = dot_add(tl.trans(h), dq, gq, PRECISION)
        gbq += tl.sum(dq, axis=0)
        dh = dot(dq, query_back, PRECISION)
        dh = dot_add(do, wo, dh, PRECISION)
        add_rows(dx, x, first, rows, inside, dh, D)

    if CAUSAL:
        store_memory(reverse + own * size, r, D, H)
    channel = tl.arange(0, D)
    at = channel[:, None] * D + channel[None, :]
    tl.store(g_weight + own * (3 * D * D) + at, gq)
    tl.store(g_weight + own * (3 * D * D) + D * D + at, go)
    tl.store(g_weight + own * (3 * D * D) + 2 * D * D + at, gm)
    tl.store(g_bias + own * (2 * D) + channel, gbq)
    tl.store(g_bias + own * (2 * D) + D + channel, gbo)
