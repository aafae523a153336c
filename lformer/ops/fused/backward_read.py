# mypy: ignore-errors
"""B2: backward of reading, x1 = x + (o ⊙ y) W_mᵀ with y_n = e^{-c_n} q_n S (paper IV-B).

The case that is not causal: all rows of a series read the same S. It is multiplied with W_q once, queries are never
formed, and their gradients and R follow from Z = Σ (e^{-c} dy)ᵀ h' afterwards, in `query_gradients`. The norm is folded
into the weights by the caller.

Every tile has a unit, a power of two that makes it fit into an operand: `…_unit` times the tile is the true value.
"""

import triton.language as tl

from lformer.ops.fused.backward_rows import (
    SHIFT,
    add_rows,
    full,
    head_sums,
    joint_product,
    load_projection,
    load_weight,
    narrow,
    peak_power,
    product,
    projection,
    room,
    scaled,
    shifted_rows,
)
from lformer.ops.fused.rows import dot, kernel, load_heads, load_memory, load_rows, sigmoid, store_memory


@kernel
def read_backward(
    x,  # (B, L, D)
    dx,  # (B, L, D) in: gradient of x1; out: its share in the gradient of x
    peaks,  # (PEAKS,) of |dx|
    fade,  # (B, L, H) e^{-c}
    memory,  # (B, S, H, K, V) `partial` of the forward pass
    weight,  # (2D, D) folded: q, o
    bias,  # (2D,)
    mix,  # (D, D)
    e,  # (B, L, H) out: dy · y
    g,  # (B, S, 5, D, D) out: 0: Z, 1: Σ doᵀ h', 4: Σ dx1ᵀ (o ⊙ y)
    L,
    length,  # rows of a segment
    count,  # of peaks
    D: tl.constexpr,
    H: tl.constexpr,
    T: tl.constexpr,
    PEAKS: tl.constexpr,
    PRECISION: tl.constexpr,
    OPERAND: tl.constexpr,
):
    """One segment, tile by tile."""
    batch, segment, segments = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    first = batch.to(tl.int64) * L
    own = batch.to(tl.int64) * segments + segment
    K: tl.constexpr = D // H
    size: tl.constexpr = D * K  # numbers in one memory
    channel = tl.arange(0, D)
    wo, bo, o_unit = load_projection(weight + D * D, bias + D, D, OPERAND)
    wm, wm_unit = scaled(load_weight(mix, 0, D, D, D).to(tl.float32), OPERAND)
    grad_scale = peak_power(peaks, count, PEAKS, OPERAND)
    read_unit = wm_unit / grad_scale / room(OPERAND)
    wq_rows, bq_row = load_weight(weight, 0, D, D, D), tl.load(bias + channel)
    s = tl.zeros((D, D), tl.float32)
    for part in range(segments):
        s += load_memory(memory + (batch.to(tl.int64) * segments + part) * size, D, H)
    joint = joint_product(tl.trans(s), wq_rows, OPERAND)  # (V, in): Sᵀ W_q
    wq, bq, y_unit = projection(joint, tl.sum(bq_row[:, None] * s, axis=0), D, OPERAND)
    do_unit = y_unit * read_unit * (2 * full(OPERAND))

    gq = tl.zeros((D, D), tl.float32)
    go = tl.zeros((D, D), tl.float32)
    gm = tl.zeros((D, D), tl.float32)
    end = tl.minimum((segment + 1) * length, L)
    for start in range(segment * length, end, T):
        rows = start + tl.arange(0, T)
        inside = rows < end
        # In the order that lets tiles die early: registers are what this kernel is short of.
        h = shifted_rows(x, first, rows, inside, D, OPERAND)
        weak = load_heads(fade, first, rows, inside, D, H)
        y = (product(h, wq, OPERAND) + bq) * weak
        o = sigmoid((product(h, wo, OPERAND) + bo) * o_unit, PRECISION)
        dx1 = narrow(load_rows(dx, first, rows, inside, D).to(tl.float32) * grad_scale, OPERAND)
        dread = product(dx1, wm, OPERAND) * room(OPERAND) * o
        gm = tl.dot(tl.trans(dx1), narrow(o * y, OPERAND), gm, input_precision="ieee")
        y *= dread
        head = tl.arange(0, H)[None, :]
        sums = head_sums(y, T, D, H) * (y_unit * read_unit)
        tl.store(e + first * H + rows[:, None] * H + head, sums, mask=inside[:, None])
        do = narrow(y * (1 - o) / (2 * full(OPERAND)), OPERAND)  # gradient before the sigmoid of o
        go = tl.dot(tl.trans(do), h, go, input_precision="ieee")
        dq = narrow(dread * weak, OPERAND)
        gq = tl.dot(tl.trans(dq), h, gq, input_precision="ieee")
        dh = product(dq, tl.trans(wq), OPERAND) * (1 / o_unit / (2 * full(OPERAND)))  # the unit of what comes from o
        dh = tl.dot(do, tl.trans(wo), dh, input_precision="ieee")
        add_rows(dx, x, first, rows, inside, dh * (do_unit * o_unit), D)

    at = g + own * (5 * D * D) + channel[:, None] * D + channel[None, :]
    tl.store(at, gq * read_unit)
    tl.store(at + D * D, go * do_unit)
    tl.store(at + 4 * D * D, gm * (y_unit / grad_scale))


@kernel
def query_gradients(
    memory,  # (B, S, H, K, V)
    weight,  # (D, D) folded W_q
    bias,  # (D,)
    reverse,  # (B, H, K, V) out: R
    g,  # (B, S, 5, D, D) in 0: Z; out 0: G' of q in the first segment, 0 in the others
    segments,
    D: tl.constexpr,
    H: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """One series that is not causal: queries q = h W_qᵀ + b_q have the gradient a Sᵀ, a = e^{-c} dy, and R = Σ qᵀ a."""
    first = tl.program_id(0).to(tl.int64) * segments
    size: tl.constexpr = D * (D // H)
    channel = tl.arange(0, D)
    at = g + channel[:, None] * D + channel[None, :]
    s = tl.zeros((D, D), tl.float32)
    z = tl.zeros((D, D), tl.float32)
    for part in range(segments):
        s += load_memory(memory + (first + part) * size, D, H)
        z += tl.load(at + (first + part) * (5 * D * D))
        tl.store(at + (first + part) * (5 * D * D), tl.zeros((D, D), tl.float32))
    tl.debug_barrier()  # the first of these zeros is written before what takes its place
    tl.store(at + first * (5 * D * D), dot(s, z, PRECISION))
    mean = tl.sum(z, axis=1) / D
    r = dot(load_weight(weight, 0, D, D, D), tl.trans(z - mean[:, None]), PRECISION)
    r += tl.load(bias + channel)[:, None] * (mean / SHIFT)[None, :]
    store_memory(reverse + tl.program_id(0).to(tl.int64) * size, r, D, H)
