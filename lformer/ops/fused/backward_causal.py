# mypy: ignore-errors
"""B2 and B3 of the causal mixer: y_n = e^{-c_n} q_n S + Σ_{i<=n} e^{-(c_n - c_i)} w_i (q_n · k_i) v_i (paper IV-B).

c runs within the chunk and S is what the chunks before left. A row is read by the later rows of its chunk, and by the
later chunks through R = Σ e^{-c_n} q_nᵀ dy_n. Two kernels walk the chunks of one head, forwards with S and backwards
with R, and leave the gradients of the projections as operands; a third takes these to the rows and weights. The norm is
folded into the weights by the caller; units are as in B2, those of what is left are `units`: dy, dq, do, dk, dv.
"""

import triton
import triton.language as tl

from lformer.ops.fused.backward_rows import (
    add_rows,
    chunk_power,
    full,
    load_head,
    load_weight,
    masked_attention,
    narrow,
    peak_power,
    power,
    product,
    result_room,
    room,
    scaled,
    score_room,
    share_power,
    shifted_rows,
)
from lformer.ops.fused.rows import load_rows, sigmoid


@triton.jit
def causal_read(
    x,  # (B, L, D)
    dx,  # (B, L, D) gradient of x1
    peaks,  # (PEAKS,) of |dx|
    fade,  # (B, L, H) e^{-c}
    rise,  # (B, L, H) e^{c} w
    shares,  # (SHARES,) peaks of w
    memory,  # (B, S, H, K, V) `partial` of the forward pass
    span,  # (B, S, H)
    weight,  # (4D, D) folded: q, o, k, v
    bias,  # (4D,)
    mix,  # (D, D)
    dy,  # (B, L, D) out, narrow: gradient of what was read
    dq,  # (B, L, D) out, narrow
    do,  # (B, L, D) out, narrow: gradient before the sigmoid of o
    units,  # (5,) out: of dy, dq, do
    e,  # (B, L, H) out: dy · y
    reverse,  # (B, S, H, K, V) out: R of a segment from its start
    g,  # (B, S, 5, D, D) out: 4: Σ dx1ᵀ (o ⊙ y)
    L,
    length,  # rows of a segment
    count,  # of peaks
    D: tl.constexpr,
    H: tl.constexpr,
    T: tl.constexpr,
    PEAKS: tl.constexpr,
    SHARES: tl.constexpr,
    PRECISION: tl.constexpr,
    OPERAND: tl.constexpr,
):
    """One head in one segment, chunk by chunk."""
    head, batch, segment, segments = tl.program_id(0), tl.program_id(1), tl.program_id(2), tl.num_programs(2)
    first = batch.to(tl.int64) * L
    own = batch.to(tl.int64) * segments + segment
    K: tl.constexpr = D // H
    wq, bq, q_unit = load_head(weight, bias, head, D, K, OPERAND)
    wo, bo, o_unit = load_head(weight + D * D, bias + D, head, D, K, OPERAND)
    wk, bk, k_unit = load_head(weight + 2 * D * D, bias + 2 * D, head, D, K, OPERAND)
    wv, bv, v_unit = load_head(weight + 3 * D * D, bias + 3 * D, head, D, K, OPERAND)
    mix_all = load_weight(mix, 0, D, D, D).to(tl.float32)
    mix_scale = power(tl.max(tl.max(tl.abs(mix_all), axis=1), axis=0), OPERAND)
    columns = head * K + tl.arange(0, K)
    wm = tl.load(mix + tl.arange(0, D)[:, None] * D + columns[None, :]).to(tl.float32)
    wm = narrow(wm * mix_scale, OPERAND)
    grad_scale = peak_power(peaks, count, PEAKS, OPERAND)
    share = share_power(shares, tl.num_programs(1) * segments, SHARES, OPERAND)
    score_scale = share * score_room(K, OPERAND)
    from_scores = 1 / score_scale * result_room(K, OPERAND)
    dy_unit = 1 / mix_scale / grad_scale / room(OPERAND)
    y_unit = q_unit * k_unit * v_unit / result_room(K, OPERAND)
    s = tl.zeros((K, K), tl.float32)
    for before in range(segment):
        at = batch.to(tl.int64) * segments + before
        s = s * tl.exp(-tl.load(span + at * H + head)) + tl.load(memory + square(at * H + head, K))
    s *= share / k_unit
    s /= v_unit
    left = tl.full((), 1.0, tl.float32)  # what is left of the start of the segment
    r = tl.zeros((K, K), tl.float32)
    gm = tl.zeros((D, K), tl.float32)

    end = tl.minimum((segment + 1) * length, L)
    for start in range(segment * length, end, T):
        rows = start + tl.arange(0, T)
        inside = rows < end
        h = shifted_rows(x, first, rows, inside, D, OPERAND)
        q = narrow(product(h, wq, OPERAND) + bq, OPERAND)
        k = narrow(product(h, wk, OPERAND) + bk, OPERAND)
        v = narrow(product(h, wv, OPERAND) + bv, OPERAND)
        at = (first + rows) * H + head
        weak = tl.load(fade + at, mask=inside, other=0.0)
        strong = tl.load(rise + at, mask=inside, other=0.0)
        narrow_s, s_unit = scaled(s, OPERAND)
        from_memory = (weak * (s_unit / share * result_room(K, OPERAND)))[:, None]
        y = masked_attention(q, k, v, weak * score_scale, strong, T, True, OPERAND) * from_scores
        y += product(q, narrow_s, OPERAND) * from_memory
        o = sigmoid((product(h, wo, OPERAND) + bo) * o_unit, PRECISION)
        dx1 = narrow(load_rows(dx, first, rows, inside, D).to(tl.float32) * grad_scale, OPERAND)
        dread = product(dx1, wm, OPERAND) * room(OPERAND) * o
        gm = tl.dot(tl.trans(dx1), narrow(o * y, OPERAND), gm, input_precision="ieee")
        y *= dread
        tl.store(e + at, tl.sum(y, axis=1) * y_unit * dy_unit, mask=inside)
        place = (first + rows)[:, None] * D + columns[None, :]
        tl.store(do + place, narrow(y * (1 - o) / (2 * full(OPERAND)), OPERAND), mask=inside[:, None])

        dread = narrow(dread, OPERAND)
        tl.store(dy + place, dread, mask=inside[:, None])
        r = tl.dot(tl.trans(narrow(q * (weak * left)[:, None], OPERAND)), dread, r, input_precision="ieee")
        grad = masked_attention(dread, v, k, weak * score_scale, strong, T, True, OPERAND) * from_scores
        grad += product(dread, tl.trans(narrow_s), OPERAND) * from_memory
        tl.store(dq + place, narrow(grad, OPERAND), mask=inside[:, None])
        across = tl.load(fade + (first + tl.minimum(start + T, end) - 1) * H + head)
        left *= across
        written = narrow(k * (strong * (across * share))[:, None], OPERAND)
        s = tl.dot(tl.trans(written), v, s * across, input_precision="ieee")

    tl.store(reverse + square(own * H + head, K), r * q_unit * dy_unit)
    at = tl.arange(0, D)[:, None] * D + columns[None, :]
    tl.store(g + own * (5 * D * D) + 4 * D * D + at, gm * y_unit / grad_scale)
    tl.store(units, dy_unit)  # the same numbers from all programs
    tl.store(units + 1, dy_unit * k_unit * v_unit / result_room(K, OPERAND))
    tl.store(units + 2, y_unit * dy_unit * (2 * full(OPERAND)))


@triton.jit
def square(index, K: tl.constexpr):
    """Offsets of the tile `index` of many (K, K) tiles."""
    at = tl.arange(0, K)
    return index * (K * K) + at[:, None] * K + at[None, :]


@triton.jit
def causal_write(
    x,  # (B, L, D)
    dy,  # (B, L, D) narrow
    fade, rise,  # as above
    growth,  # (B, L, H) e^{c}
    shares, reverse, span, weight, bias,  # as above
    dk,  # (B, L, D) out, narrow
    dv,  # (B, L, D) out, narrow
    units,  # (5,) in: of dy; out: of dk, dv, times that of the chunk
    chunk_units,  # (B, S chunks, H) out
    f,  # (B, L, H) out: gradient of the write weight w
    L, length, D: tl.constexpr, H: tl.constexpr, T: tl.constexpr, SHARES: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """One head in one segment, its chunks from the last to the first."""
    head, batch, segment, segments = tl.program_id(0), tl.program_id(1), tl.program_id(2), tl.num_programs(2)
    first = batch.to(tl.int64) * L
    own = batch.to(tl.int64) * segments + segment
    K: tl.constexpr = D // H
    wq, bq, q_unit = load_head(weight, bias, head, D, K, OPERAND)
    wk, bk, k_unit = load_head(weight + 2 * D * D, bias + 2 * D, head, D, K, OPERAND)
    wv, bv, v_unit = load_head(weight + 3 * D * D, bias + 3 * D, head, D, K, OPERAND)
    dy_unit = tl.load(units)
    share = share_power(shares, tl.num_programs(1) * segments, SHARES, OPERAND)
    r = tl.zeros((K, K), tl.float32)
    for ahead in range(segments - 1 - segment):
        at = batch.to(tl.int64) * segments + (segments - 1 - ahead)
        r = r * tl.exp(-tl.load(span + at * H + head)) + tl.load(reverse + square(at * H + head, K))
    r = r / q_unit / dy_unit
    common = q_unit * dy_unit / score_room(K, OPERAND)
    dk_unit, dv_unit = common * v_unit, common * k_unit

    columns = head * K + tl.arange(0, K)
    end = tl.minimum((segment + 1) * length, L)
    chunks = tl.cdiv(end - segment * length, T)
    for step in range(chunks):
        chunk = chunks - 1 - step
        start = segment * length + chunk * T
        rows = start + tl.arange(0, T)
        inside = rows < end
        h = shifted_rows(x, first, rows, inside, D, OPERAND)
        q = narrow(product(h, wq, OPERAND) + bq, OPERAND)
        k = narrow(product(h, wk, OPERAND) + bk, OPERAND)
        v = narrow(product(h, wv, OPERAND) + bv, OPERAND)
        place = (first + rows)[:, None] * D + columns[None, :]
        dread = tl.load(dy + place, mask=inside[:, None], other=0.0)
        at = (first + rows) * H + head
        weak = tl.load(fade + at, mask=inside, other=0.0)
        grown = tl.load(growth + at, mask=inside, other=0.0)
        across = tl.load(fade + (first + tl.minimum(start + T, end) - 1) * H + head)
        narrow_r, r_unit = scaled(r, OPERAND)
        # R has no bound: what is read through it has a unit of its own in each chunk.
        unit = chunk_power(r_unit, T, OPERAND)
        tl.store(chunk_units + (own * (length // T) + chunk) * H + head, unit)
        from_memory = (grown * (across * r_unit / unit * score_room(K, OPERAND)))[:, None]
        row_weight = grown * score_room(K, OPERAND)
        grad = masked_attention(v, dread, q, row_weight, weak, T, False, OPERAND) / unit
        grad += product(v, tl.trans(narrow_r), OPERAND) * from_memory
        tl.store(f + at, tl.sum(k * grad, axis=1) * k_unit * dk_unit * unit, mask=inside)
        written = (tl.load(rise + at, mask=inside, other=0.0) * weak * share)[:, None]
        tl.store(dk + place, narrow(grad * written, OPERAND), mask=inside[:, None])

        grad = masked_attention(k, q, dread, row_weight, weak, T, False, OPERAND) / unit
        grad += product(k, narrow_r, OPERAND) * from_memory
        tl.store(dv + place, narrow(grad * written, OPERAND), mask=inside[:, None])
        r = tl.dot(tl.trans(narrow(q * weak[:, None], OPERAND)), dread, r * across, input_precision="ieee")
    tl.store(units + 3, dk_unit / share)  # the same numbers from all programs
    tl.store(units + 4, dv_unit / share)


@triton.jit
def causal_project(
    x,  # (B, L, D)
    dx,  # (B, L, D) in: gradient of x1; out: with what comes through q, o, k, v
    dq, do, dk, dv,  # (B, L, D) narrow
    units,  # (5,)
    chunk_units,  # (B, S chunks, H)
    weight,  # (4D, D)
    g,  # (B, S, 5, D, D) out: 0 … 3: Σ dqᵀ h', Σ doᵀ h', Σ dkᵀ h', Σ dvᵀ h'
    L, length, D: tl.constexpr, H: tl.constexpr, T: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """One segment, chunk by chunk."""
    batch, segment, segments = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    first = batch.to(tl.int64) * L
    own = batch.to(tl.int64) * segments + segment
    wq, q_unit = scaled(load_weight(weight, 0, D, D, D), OPERAND)
    wo, o_unit = scaled(load_weight(weight, D, 2 * D, D, D), OPERAND)
    wk, k_unit = scaled(load_weight(weight, 2 * D, 3 * D, D, D), OPERAND)
    wv, v_unit = scaled(load_weight(weight, 3 * D, 4 * D, D, D), OPERAND)
    dq_unit, do_unit = tl.load(units + 1), tl.load(units + 2)
    dk_unit, dv_unit = tl.load(units + 3), tl.load(units + 4)
    heads = tl.arange(0, D) // (D // H)
    gq = tl.zeros((D, D), tl.float32)
    go = tl.zeros((D, D), tl.float32)
    gk = tl.zeros((D, D), tl.float32)
    gv = tl.zeros((D, D), tl.float32)
    end = tl.minimum((segment + 1) * length, L)
    for chunk in range(tl.cdiv(end - segment * length, T)):
        rows = segment * length + chunk * T + tl.arange(0, T)
        inside = rows < end
        unit_heads = tl.load(chunk_units + (own * (length // T) + chunk) * H + heads)
        unit = tl.max(unit_heads, axis=0)
        ratio = (unit_heads / unit)[None, :]
        h = shifted_rows(x, first, rows, inside, D, OPERAND)
        grad = load_rows(dq, first, rows, inside, D)
        gq = tl.dot(tl.trans(grad), h, gq, input_precision="ieee")
        dh = product(grad, wq, OPERAND) * (dq_unit * q_unit)
        grad = load_rows(do, first, rows, inside, D)
        go = tl.dot(tl.trans(grad), h, go, input_precision="ieee")
        dh += product(grad, wo, OPERAND) * (do_unit * o_unit)
        grad = narrow(load_rows(dk, first, rows, inside, D) * ratio, OPERAND)
        gk += product(tl.trans(grad), h, OPERAND) * unit
        dh += product(grad, wk, OPERAND) * (dk_unit * k_unit * unit)
        grad = narrow(load_rows(dv, first, rows, inside, D) * ratio, OPERAND)
        gv += product(tl.trans(grad), h, OPERAND) * unit
        dh += product(grad, wv, OPERAND) * (dv_unit * v_unit * unit)
        add_rows(dx, x, first, rows, inside, dh, D)
    channel = tl.arange(0, D)
    at = g + own * (5 * D * D) + channel[:, None] * D + channel[None, :]
    tl.store(at, gq * dq_unit)
    tl.store(at + D * D, go * do_unit)
    tl.store(at + 2 * D * D, gk * dk_unit)
    tl.store(at + 3 * D * D, gv * dv_unit)
