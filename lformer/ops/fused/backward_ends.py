# mypy: ignore-errors
"""The two ends of a whole model backwards: answers to the mean of the rows, and rows to the embedder (paper IV-C).

Like the kernels of the mixers these leave parts of the weight gradients, which `sum_parts` adds in a fixed order.
"""

import triton.language as tl

from lformer.ops.fused.backward_rows import SHIFT, load_again, load_weight, norm_backward
from lformer.ops.fused.rows import dot, dot_add, kernel, load_rows, normalise, store_rows


@kernel
def head_backward(
    grad,  # (B, O) of the answers
    mean,  # (B, D)
    weight,  # (O, D)
    dmean,  # (B, D) out
    g,  # (programs, O D + O) out: Σ gradᵀ mean, then Σ grad
    count,  # B
    outputs,  # O
    D: tl.constexpr,
    SERIES: tl.constexpr,
    BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """SERIES of the batch a program, BLOCK outputs at a time."""
    own = tl.program_id(0).to(tl.int64)
    first, rows, channel = own * SERIES, tl.arange(0, SERIES), tl.arange(0, D)
    inside = rows < count - first
    pooled = load_rows(mean, first, rows, inside, D).to(tl.float32)
    total = tl.zeros((SERIES, D), tl.float32)
    g_weight = g + own * outputs * (D + 1)
    for start in range(0, outputs, BLOCK):
        out = start + tl.arange(0, BLOCK)
        used = out < outputs
        at = (first + rows)[:, None] * outputs + out[None, :]
        slope = tl.load(grad + at, mask=inside[:, None] & used[None, :], other=0.0).to(tl.float32)
        total += dot(slope, load_weight(weight, start, outputs, D, BLOCK), PRECISION)
        at = out[:, None] * D + channel[None, :]
        tl.store(g_weight + at, dot(tl.trans(slope), pooled, PRECISION), mask=used[:, None])
        tl.store(g_weight + outputs * D + out, tl.sum(slope, axis=0), mask=used)
    store_rows(dmean, first, rows, inside, total, D)


@kernel
def embed_backward(
    x,  # (N, D) rows of all series
    dx,  # (N, D) gradient of x but for what comes through the gate
    slope,  # (N, H) gradient before the sigmoid of the gate
    weight,  # (H, D) folded
    values,  # (N, C)
    g_gate,  # (programs, H, D) out: Σ slopeᵀ h'
    g_embedder,  # (programs, D C + D) out: Σ dxᵀ values, then Σ dx
    N,
    C: tl.constexpr,
    WIDTH: tl.constexpr,
    D: tl.constexpr,
    H: tl.constexpr,
    T: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """`gate_backward` of the first layer, whose dx ends here: it meets the values and is not stored.

    WIDTH is a power of two, at least 16, that holds C.
    """
    own = tl.program_id(0).to(tl.int64)
    rows, head, channel, seen = tl.arange(0, T), tl.arange(0, 16), tl.arange(0, D), tl.arange(0, WIDTH)
    w = load_weight(weight, 0, H, D, 16)
    g = tl.zeros((16, D), tl.float32)
    g_weight = tl.zeros((WIDTH, D), tl.float32)
    g_bias = tl.zeros((D,), tl.float32)
    for turn in range(tl.cdiv(tl.cdiv(N, T) - tl.program_id(0), tl.num_programs(0))):
        first = (own + turn * tl.num_programs(0)) * T
        inside = rows < N - first
        h, _ = normalise(load_rows(x, first, rows, inside, D).to(tl.float32), D)
        h += SHIFT
        at = first * H + rows[:, None] * H + head[None, :]
        slopes = tl.load(slope + at, mask=inside[:, None] & (head < H)[None, :], other=0.0)
        g = dot_add(tl.trans(slopes), h, g, PRECISION)
        dh = dot(slopes, w, PRECISION)
        unit, scale = normalise(load_again(x, first, rows, inside, D), D)
        grad = load_again(dx, first, rows, inside, D) + norm_backward(dh, unit, scale, D)
        at = first * C + rows[:, None] * C + seen[None, :]
        given = tl.load(values + at, mask=inside[:, None] & (seen < C)[None, :], other=0.0)
        g_weight = dot_add(tl.trans(given), grad, g_weight, PRECISION)
        g_bias += tl.sum(grad, axis=0)
    at = head[:, None] * D + channel[None, :]
    tl.store(g_gate + own * (H * D) + at, g, mask=(head < H)[:, None])
    g_embedder += own * (D * (C + 1))
    tl.store(g_embedder + channel[None, :] * C + seen[:, None], g_weight, mask=(seen < C)[:, None])
    tl.store(g_embedder + D * C + channel, g_bias)
