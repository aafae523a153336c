# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""Causal time mixer, y_n = e^{-c_n} q_n S + Σ_{i<=n} e^{-(c_n - c_i)} w_i (q_n · k_i) v_i, and its backward pass.

Naive form: `ops.reference` and `ops.parallel`, inside `nn.attention.LiquidGatedAttention` (paper IV-B). c runs within
the chunk and S is what the chunks before left.

Forwards, rows read and write chunk by chunk, one segment at a time. A segment starts from an empty memory; what earlier
segments wrote is the same for all of its rows but for its decay, and `time_mixer.read_kernel` adds it.

Backwards, a row is read by the later rows of its chunk, and by the later chunks through R = Σ e^{-c_n} q_nᵀ dy_n. Two
kernels walk the chunks of one head, forwards with S and backwards with R, and leave the gradients of the projections as
operands; a third takes these to the rows and weights. The norm is folded into the weights by the caller; units are as
in `time_mixer`, those of what is left are `units`: dy, dq, do, dk, dv, each times that of its chunk and head. Loads do
not pass the barriers of a product: they stand at the beginning of a step, and the step before prefetches.
"""

import math
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from lformer.ops.fused.dropout import TIME, Drops, arguments, drop, load_keys
from lformer.ops.fused.gate import Decay
from lformer.ops.fused.launch import early, grid, launch, per_segment, room_for, row_counts, start_kernel
from lformer.ops.fused.operands import (
    LARGEST,
    SHIFT,
    add_tile,
    affine,
    bias_operand,
    chunk_power,
    column_weights,
    full,
    head_column,
    head_projection,
    lift_power,
    load_narrow_head,
    load_weight,
    masked,
    narrow,
    peak_power,
    power,
    prefetch,
    product,
    project_head,
    projection_power,
    projection_powers,
    result_room,
    room,
    row_weights,
    scaled,
    score_room,
    share_power,
    shifted_tile,
    split_rows,
    square,
    store_head,
    store_row_sums,
    times_rows,
    weigh_scores,
)
from lformer.ops.fused.plan import MixerWeights, Plan, Saved
from lformer.ops.fused.tiles import (
    join_columns,
    kernel,
    load_rows,
    load_tile,
    load_tile_heads,
    load_vector,
    normalise,
    same_head,
    sigmoid,
    split_columns,
    store_memory,
    store_tile,
    times_heads,
    wait_for_rows,
)

if TYPE_CHECKING:
    from lformer.ops.fused.weights import Scratch


# --- F2: rows read and write, of their own segment ---


@kernel
def segment_kernel(
    x, cum, fall, rise, norm, norm_bias, wq, bq, wk, bk, wv, bv, y, partial, key_scale, L, S, segment_rows,
    D: tl.constexpr, H: tl.constexpr, T: tl.constexpr, PREFIX: tl.constexpr, PRECISION: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """x (B, L, D), cum, fall, rise (B, L, H) -> y (B, L, D) what rows read of their segment; partial (B, S, H, K, V).

    Memory and factors are those of the end of a chunk. Where a chunk decays by 1 at most, or operands have the range of
    float32, the factors are multiplied into q and k; else (WIDE) into the scores, in float32.
    """
    OPERAND: tl.constexpr = "fp16" if PRECISION == "tf32" else ("bf16" if PRECISION == "bf16" else "fp32")
    WIDE: tl.constexpr = PREFIX and OPERAND == "fp16"
    PREFETCH: tl.constexpr = not WIDE and D < 128  # where the registers hold the next rows too
    K: tl.constexpr = D // H
    series, segment = (tl.program_id(0) // S).to(tl.int64), tl.program_id(0) % S
    start = segment * segment_rows
    end = tl.minimum(start + segment_rows, L)
    query, q_unit = folded_projection(wq, bq, norm, norm_bias, 1.0, score_size(K, OPERAND), D, OPERAND)
    key, k_unit = folded_projection(wk, bk, norm, norm_bias, key_scale, score_size(K, OPERAND), D, OPERAND)
    value, v_unit = folded_projection(wv, bv, norm, norm_bias, 1.0, 1.0, D, OPERAND)
    wait_for_rows(EARLY)
    memory = tl.zeros((D, D), tl.float32)
    share = tl.full((), 1.0, tl.float32)
    sofar = tl.full((), 0.0, tl.float32)
    order = tl.arange(0, T)
    past = order[:, None] >= order[None, :]

    ahead = load_tile(x, series * L + start, end - start, T, D)
    for at in range(start, end, T):
        first = series * L + at
        count = end - at
        h = narrow(normalise(ahead, D)[0] + SHIFT, OPERAND)
        if PREFETCH:
            ahead = load_tile(x, first + T, count - T, T, D)  # on its way while this one is worked on
        total = tile_decay(cum, first, tl.minimum(T, count), H)
        falls = load_tile_heads(fall, first, count, T, H)
        rises = load_tile_heads(rise, first, count, T, H)
        # Most rows write little: written with this factor, it stays in the range of an operand, and so does the memory.
        before, share = share, chunk_share(total, OPERAND)
        size = memory_size(sofar, K, OPERAND)
        sofar += tl.max(total, axis=0)
        across = tl.exp(-tl.reshape(tl.broadcast_to(total[:, None], (H, K)), (D,))) * (share / before)
        memory = memory * tl.where(same_head(D, H), across[:, None], 0.0)
        s = narrow(memory * (size / share), OPERAND)
        q = affine(h, query, OPERAND)
        if not WIDE:
            q = times_heads(q, falls, T, D, H)
        q = narrow(q, OPERAND)
        k = affine(h, key, OPERAND)
        written = narrow(times_heads(k, rises * share, T, D, H), OPERAND)
        k = narrow(k, OPERAND) if WIDE else written
        v = narrow(affine(h, value, OPERAND), OPERAND)
        read = product(q, s, OPERAND)
        if WIDE:
            read = times_heads(read, falls * (share / size), T, D, H)
        else:
            # Times 1, which the compiler cannot know: a result that became a sum right away would keep products apart.
            read = read * (share / size * tl.where(at < 0, 0.0, 1.0))
        after, rows = (), split_rows(falls * share, H)
        reads, qs, ks, vs = split_heads(read, H), split_heads(q, H), split_heads(k, H), split_heads(v, H)
        for n in tl.static_range(H):
            scores = product(qs[n], tl.trans(ks[n]), OPERAND)
            if WIDE:
                scores = times_rows(scores, rows[n]) * column_weights(rise, first, count, n, T, H)
            scores = masked(scores, past, PRECISION, OPERAND)
            part = tl.dot(scores, vs[n], reads[n], input_precision="ieee")
            after = after + (part,)  # type: ignore[assignment]  # noqa: RUF005, kernels know no unpacking
        store_tile(y, first, count, join_heads(after, H) * (q_unit * k_unit * v_unit / share), T, D)
        memory = tl.dot(tl.trans(written), v, memory, input_precision="ieee")
        if not PREFETCH:
            ahead = load_tile(x, first + T, count - T, T, D)
    store_memory(partial + tl.program_id(0).to(tl.int64) * D * K, memory * (k_unit * v_unit / share), D, H)


@triton.jit
def tile_decay(cum, first, count, H: tl.constexpr):
    """(H,) decay across a tile of `count` rows, the last entry of a running sum within it."""
    return tl.load(cum + (first + count - 1) * H + tl.arange(0, H))


@triton.jit
def folded_projection(
    weight, bias, norm, norm_bias, scale, size, D: tl.constexpr, OPERAND: tl.constexpr
):  # fmt: skip
    """A (D, D) weight, times `scale`, and its bias, behind a layer norm -> operands of `affine`, what undoes them.

    No normalised row is longer than √D: results are scaled to LARGEST times `size`.
    """
    w = load_weight(weight, 0, D, D, D).to(tl.float32) * scale
    b = tl.load(bias + tl.arange(0, D)).to(tl.float32) + tl.sum(w * load_vector(norm_bias, D), axis=1)
    w = w * load_vector(norm, D)
    factor = power(tl.max(tl.sqrt(tl.sum(w * w, axis=1) * D) + tl.abs(b), axis=0), OPERAND) * size
    operand = narrow(w * factor, OPERAND)
    # What the rounded weights make of the shift of h' is taken back to the last digit. An error that is the same in all
    # rows does not average out in the memory, and the gradient of mu in "prefix" would show it.
    shifted = b * factor - tl.sum(operand.to(tl.float32), axis=1) * SHIFT
    return (tl.trans(operand), bias_operand(shifted, OPERAND)), 1 / factor


@triton.jit
def score_size(K: tl.constexpr, OPERAND: tl.constexpr):
    """Of q and k, over LARGEST, so that sums of K products of them are operands."""
    return (2.0**-10 if K == 16 else 2.0**-11) if OPERAND == "fp16" else 1.0


@triton.jit
def chunk_share(total, OPERAND: tl.constexpr):
    """The power of two that brings write weights close below 1, from the decay (H,) across their chunk."""
    if OPERAND == "fp16":
        return power(tl.clamp(tl.max(total, axis=0), 2.0**-40, 1.0), OPERAND) / (2 * full(OPERAND))
    else:
        return tl.full((), 1.0, tl.float32)


@triton.jit
def memory_size(sofar, K: tl.constexpr, OPERAND: tl.constexpr):
    """The power of two that makes a memory an operand: its weights sum up to at most the decay `sofar`, and to 1."""
    if OPERAND == "fp16":
        return power(tl.clamp(sofar, 2.0**-40, 1.0), OPERAND) / (4 * LARGEST * LARGEST * score_size(K, OPERAND))
    else:
        return tl.full((), 1.0, tl.float32)


@triton.jit
def split_heads(tile, H: tl.constexpr):
    """(T, D) -> H tiles (T, K). Which head a channel belongs to is a matter of registers, so nothing moves."""
    if H == 1:
        return (tile,)
    else:
        a, b = split_columns(tile)
        return split_heads(a, H // 2) + split_heads(b, H // 2)


@triton.jit
def join_heads(parts, H: tl.constexpr):
    """H tiles (T, K) -> (T, D)"""
    if H == 1:
        return parts[0]
    else:
        return join_columns(join_heads(parts[: H // 2], H // 2), join_heads(parts[H // 2 :], H // 2))


# --- B2: reading ---


@kernel
def causal_read(
    x,  # (B, L, D)
    dx,  # (B, L, D) gradient of x1
    peaks,  # (PEAKS,) of |dx|, as the branch gets it
    fade,  # (B, L, H) e^{-c}
    rise,  # (B, L, H) e^{c} w
    shares,  # (SHARES,) peaks of w
    memory,  # (B, S, H, K, V) `partial` of the forward pass
    span,  # (B, S, H)
    weight,  # (4D, D) folded: q, o, k, v
    bias,  # (4D,)
    mix,  # (D, D)
    seed,  # () only with DROP
    dy,  # (B, L, D) out, narrow: gradient of what was read
    dq,  # (B, L, D) out, narrow
    do,  # (B, L, D) out, narrow: gradient before the sigmoid of o
    units,  # (5,) out: of dy, dq, do, times that of the chunk
    chunk_units,  # (B, S chunks, H) out
    e,  # (B, L, H) out: dy · y
    reverse,  # (B, S, H, K, V) out: R of a segment from its start
    g,  # (B, S, 5, D, D) out: 4: Σ dx1ᵀ (o ⊙ y)
    L,
    length,  # rows of a segment
    count,  # of peaks
    place,
    dropped,
    D: tl.constexpr,
    H: tl.constexpr,
    T: tl.constexpr,
    PEAKS: tl.constexpr,
    SHARES: tl.constexpr,
    DROP: tl.constexpr,
    PRECISION: tl.constexpr,
    OPERAND: tl.constexpr,
):
    """One head in one segment, chunk by chunk. With DROP the branch gets what is kept of the gradient of x1."""
    head, batch, segment, segments = tl.program_id(0), tl.program_id(1), tl.program_id(2), tl.num_programs(2)
    own = batch.to(tl.int64) * segments + segment
    K: tl.constexpr = D // H
    keys = load_keys(seed, place + TIME) if DROP else ()
    scales = projection_powers(weight, bias, D, OPERAND)
    q_unit, o_unit, k_unit, v_unit = 1 / scales[0], 1 / scales[1], 1 / scales[2], 1 / scales[3]
    operand = head_projection(weight, bias, scales, head, D, H, OPERAND)
    mix_scale = power(tl.max(tl.max(tl.abs(load_weight(mix, 0, D, D, D).to(tl.float32)), axis=1), axis=0), OPERAND)
    wm = head_column(mix, mix_scale, head, D, H, OPERAND)
    grad_scale = peak_power(peaks, count, PEAKS, OPERAND)
    share = share_power(shares, tl.num_programs(1) * segments, SHARES, OPERAND)
    score_scale = share * score_room(K, OPERAND)
    from_scores = 1 / score_scale * result_room(K, OPERAND)
    dy_unit = 1 / mix_scale / grad_scale / room(OPERAND)
    y_unit = q_unit * k_unit * v_unit / result_room(K, OPERAND)
    s = earlier_memory(memory, span, batch.to(tl.int64) * segments, segment, head, K, H)
    s = s * (share / k_unit) / v_unit  # one after the other: of weights that are 0, the scales are huge
    left = tl.full((), 1.0, tl.float32)  # what is left of the start of the segment
    r = tl.zeros((K, K), tl.float32)
    lift = tl.full((), 1.0, tl.float32)  # of the chunk before
    gm = tl.zeros((D, K), tl.float32)

    end = tl.minimum((segment + 1) * length, L)
    last = batch.to(tl.int64) * L + end - 1
    for start in range(segment * length, end, T):
        first, inside = batch.to(tl.int64) * L + start, end - start
        h = shifted_tile(x, first, inside, T, D, OPERAND)
        dx1 = load_tile(dx, first, inside, T, D) * grad_scale
        if DROP:
            dx1 = drop(dx1, keys, dropped, first, T, D)
        dx1 = narrow(dx1, OPERAND)
        weak = row_weights(fade, first, inside, head, T, H)
        strong = column_weights(rise, first, inside, head, T, H)
        across = tl.load(fade + (first + tl.minimum(T, inside) - 1) * H + head)
        written = row_weights(rise, first, inside, head, T, H) * (across * share)
        prefetch(x, first + T, last, T, D, PRECISION)
        prefetch(dx, first + T, last, T, D, PRECISION)
        q, o, k, v = project_head(h, operand, OPERAND)
        q, k, v = narrow(q, OPERAND), narrow(k, OPERAND), narrow(v, OPERAND)
        o = sigmoid(o * o_unit, PRECISION)
        narrow_s, s_unit = scaled(s, OPERAND)
        from_memory = weak * (s_unit / share * result_room(K, OPERAND))
        scores = product(q, tl.trans(k), OPERAND)
        scores = weigh_scores(scores, weak * score_scale, strong, True, PRECISION, OPERAND)
        y = product(scores, v, OPERAND) * from_scores + times_rows(product(q, narrow_s, OPERAND), from_memory)
        gm = tl.dot(tl.trans(dx1), narrow(o * y, OPERAND), gm, input_precision="ieee")
        dread = product(dx1, wm, OPERAND) * room(OPERAND) * o
        y *= dread
        store_row_sums(e, first, inside, head, y * (y_unit * dy_unit), T, H)
        # In a long series a few rows may have gradients ten thousand times those of the others, and times small weights
        # the others would be lost below the range of float16: every chunk and head has a unit of its own.
        before, lift = lift, lift_power(dread, OPERAND)
        tl.store(chunk_units + (own * (length // T) + (start - segment * length) // T) * H + head, 1 / lift)
        store_head(do, first, inside, head, narrow(y * (1 - o) * (0.5 / full(OPERAND) * lift), OPERAND), T, D, H)

        dread = narrow(dread * lift, OPERAND)
        store_head(dy, first, inside, head, dread, T, D, H)
        late = narrow(times_rows(q.to(tl.float32), weak * left), OPERAND)
        r = tl.dot(tl.trans(late), dread, r * (lift / before), input_precision="ieee")
        scores = product(dread, tl.trans(v), OPERAND)
        scores = weigh_scores(scores, weak * score_scale, strong, True, PRECISION, OPERAND)
        grad = product(scores, k, OPERAND) * from_scores
        grad += times_rows(product(dread, tl.trans(narrow_s), OPERAND), from_memory)
        store_head(dq, first, inside, head, narrow(grad, OPERAND), T, D, H)
        left *= across
        written = narrow(times_rows(k.to(tl.float32), written), OPERAND)
        s = tl.dot(tl.trans(written), v, s * across, input_precision="ieee")

    tl.store(reverse + square(own * H + head, K), r * q_unit * (dy_unit / lift))
    at = tl.arange(0, D)[:, None] * D + head * K + tl.arange(0, K)[None, :]
    tl.store(g + own * (5 * D * D) + 4 * D * D + at, gm * (y_unit / grad_scale))
    tl.store(units, dy_unit)  # the same numbers from all programs
    tl.store(units + 1, dy_unit * k_unit * v_unit / result_room(K, OPERAND))
    tl.store(units + 2, y_unit * dy_unit * (2 * full(OPERAND)))


@triton.jit
def earlier_memory(memory, span, series, segment, head, K: tl.constexpr, H: tl.constexpr):
    """(B, S, H, K, V), (B, S, H) -> (K, V) the memory of one head at the start of a segment."""
    s = tl.zeros((K, K), tl.float32)
    for before in range(segment):
        at = (series + before) * H + head
        s = s * tl.exp(-tl.load(span + at)) + tl.load(memory + square(at, K))
    return s


# --- B3: writing ---


@triton.jit
def later_memory(reverse, span, series, segment, segments, head, K: tl.constexpr, H: tl.constexpr):
    """(B, S, H, K, V), (B, S, H) -> (K, V) R of one head at the end of a segment."""
    r = tl.zeros((K, K), tl.float32)
    for ahead in range(segments - 1 - segment):
        at = (series + segments - 1 - ahead) * H + head
        r = r * tl.exp(-tl.load(span + at)) + tl.load(reverse + square(at, K))
    return r


@kernel
def causal_write(
    x,  # (B, L, D)
    dy,  # (B, L, D) narrow
    fade, rise,  # as above
    growth,  # (B, L, H) e^{c}
    shares, reverse, span, weight, bias,  # as above
    dk,  # (B, L, D) out, narrow
    dv,  # (B, L, D) out, narrow
    units,  # (5,) in: of dy; out: of dk, dv, times that of the chunk
    dy_units,  # (B, S chunks, H) `chunk_units` of `causal_read`
    chunk_units,  # (B, S chunks, H) out
    f,  # (B, L, H) out: gradient of the write weight w
    L, length, D: tl.constexpr, H: tl.constexpr, T: tl.constexpr, SHARES: tl.constexpr, PRECISION: tl.constexpr,
    OPERAND: tl.constexpr,
):  # fmt: skip
    """One head in one segment, its chunks from the last to the first."""
    head, batch, segment, segments = tl.program_id(0), tl.program_id(1), tl.program_id(2), tl.num_programs(2)
    own = batch.to(tl.int64) * segments + segment
    K: tl.constexpr = D // H
    scales = projection_powers(weight, bias, D, OPERAND)
    q_unit, k_unit, v_unit = 1 / scales[0], 1 / scales[2], 1 / scales[3]
    operand = head_projection(weight, bias, scales, head, D, H, OPERAND)
    dy_unit = tl.load(units)
    share = share_power(shares, tl.num_programs(1) * segments, SHARES, OPERAND)
    common = q_unit * dy_unit / score_room(K, OPERAND)
    dk_unit, dv_unit = common * v_unit, common * k_unit
    r = later_memory(reverse, span, batch.to(tl.int64) * segments, segment, segments, head, K, H)
    r = r / q_unit / dy_unit
    lift = tl.full((), 1.0, tl.float32)  # of the chunk after

    end = tl.minimum((segment + 1) * length, L)
    chunks = tl.cdiv(end - segment * length, T)
    for step in range(chunks):
        chunk = chunks - 1 - step
        start = segment * length + chunk * T
        first, inside = batch.to(tl.int64) * L + start, end - start
        h = shifted_tile(x, first, inside, T, D, OPERAND)
        dread = load_narrow_head(dy, first, inside, head, T, D, H)
        weak, grown = row_weights(fade, first, inside, head, T, H), row_weights(growth, first, inside, head, T, H)
        columns = column_weights(fade, first, inside, head, T, H)
        across = tl.load(fade + (first + tl.minimum(T, inside) - 1) * H + head)
        written = row_weights(rise, first, inside, head, T, H) * weak * share
        prefetch(x, first - T, first, T, D, PRECISION)
        prefetch(dy, first - T, first, T, D, PRECISION)
        q, _, k, v = project_head(h, operand, OPERAND)
        q, k, v = narrow(q, OPERAND), narrow(k, OPERAND), narrow(v, OPERAND)
        after, lift = lift, 1 / tl.load(dy_units + (own * (length // T) + chunk) * H + head)
        r = r * (lift / after)
        narrow_r, r_unit = scaled(r, OPERAND)
        # R has no bound: what is read through it has a unit of its own in each chunk.
        unit = chunk_power(r_unit, T, OPERAND)
        tl.store(chunk_units + (own * (length // T) + chunk) * H + head, unit / lift)
        from_memory = grown * (across * r_unit / unit * score_room(K, OPERAND))
        row_weight = grown * score_room(K, OPERAND)
        scores = weigh_scores(product(v, tl.trans(dread), OPERAND), row_weight, columns, False, PRECISION, OPERAND)
        grad = product(scores, q, OPERAND) * (1 / unit)
        grad += times_rows(product(v, tl.trans(narrow_r), OPERAND), from_memory)
        store_row_sums(f, first, inside, head, k * grad * (k_unit * dk_unit * (unit / lift)), T, H)
        store_head(dk, first, inside, head, narrow(times_rows(grad, written), OPERAND), T, D, H)

        scores = weigh_scores(product(k, tl.trans(q), OPERAND), row_weight, columns, False, PRECISION, OPERAND)
        grad = product(scores, dread, OPERAND) * (1 / unit)
        grad += times_rows(product(k, narrow_r, OPERAND), from_memory)
        store_head(dv, first, inside, head, narrow(times_rows(grad, written), OPERAND), T, D, H)
        late = narrow(times_rows(q.to(tl.float32), weak), OPERAND)
        r = tl.dot(tl.trans(late), dread, r * across, input_precision="ieee")
    tl.store(units + 3, dk_unit / share)  # the same numbers from all programs
    tl.store(units + 4, dv_unit / share)


# --- B2 and B3: to the rows and weights ---


@kernel
def causal_project(
    x,  # (B, L, D)
    dx,  # (B, L, D) in: gradient of x1; out: with what comes through the two projections
    da, db,  # (B, L, D) narrow: dq and do, or dk and dv
    units,  # (5,)
    chunk_units,  # (B, S chunks, H)
    weight, bias,  # (4D, D), (4D,)
    g,  # (B, S, 5, D, D) out: 0 … 3: Σ dqᵀ h', Σ doᵀ h', Σ dkᵀ h', Σ dvᵀ h'
    L, length, D: tl.constexpr, H: tl.constexpr, T: tl.constexpr, PART: tl.constexpr, PRECISION: tl.constexpr,
    OPERAND: tl.constexpr,
):  # fmt: skip
    """One segment, chunk by chunk; PART is the first of the two projections, 0 or 2."""
    batch, segment, segments = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    own = batch.to(tl.int64) * segments + segment
    a_scale = projection_power(weight + PART * D * D, bias + PART * D, D, OPERAND)
    b_scale = projection_power(weight + (PART + 1) * D * D, bias + (PART + 1) * D, D, OPERAND)
    wa = narrow(load_weight(weight + PART * D * D, 0, D, D, D) * a_scale, OPERAND)
    wb = narrow(load_weight(weight + (PART + 1) * D * D, 0, D, D, D) * b_scale, OPERAND)
    a_unit, b_unit = tl.load(units + 1 + PART), tl.load(units + 2 + PART)
    ga = tl.zeros((D, D), tl.float32)
    gb = tl.zeros((D, D), tl.float32)
    heads = tl.arange(0, D) // (D // H)
    unit = tl.full((), 1.0, tl.float32)
    end = tl.minimum((segment + 1) * length, L)
    last = batch.to(tl.int64) * L + end - 1
    for chunk in range(tl.cdiv(end - segment * length, T)):
        start = segment * length + chunk * T
        first, inside = batch.to(tl.int64) * L + start, end - start
        rows = tl.arange(0, T)
        a = load_rows(da, first, rows, rows < inside, D)
        b = load_rows(db, first, rows, rows < inside, D)
        h = shifted_tile(x, first, inside, T, D, OPERAND)
        prefetch(da, first + T, last, T, D, PRECISION)
        prefetch(db, first + T, last, T, D, PRECISION)
        prefetch(x, first + T, last, T, D, PRECISION)
        prefetch(dx, first + T, last, T, D, PRECISION)
        if OPERAND == "fp16":  # the others have the range of float32, and all units are 1
            before = unit
            unit_heads = tl.load(chunk_units + (own * (length // T) + chunk) * H + heads)
            unit = tl.max(unit_heads, axis=0)
            ratio = narrow(unit_heads / unit, OPERAND)[None, :]
            a, b = a * ratio, b * ratio
            ga *= before / unit
            gb *= before / unit
        gb = tl.dot(tl.trans(b), h, gb, input_precision="ieee")
        dh = product(b, wb, OPERAND)
        if PART == 0:
            dh *= 2 * full(OPERAND) / b_scale  # the unit of what comes through q; those of k and v are the same
        ga = tl.dot(tl.trans(a), h, ga, input_precision="ieee")
        dh = tl.dot(a, wa, dh, input_precision="ieee") * (a_unit / a_scale * unit)
        add_tile(dx, x, first, inside, dh, T, D)
    g += own * (5 * D * D) + PART * D * D
    store_tile(g, tl.full((), 0, tl.int64), D, ga * (a_unit * unit), D, D)
    store_tile(g, tl.full((), D, tl.int64), D, gb * (b_unit * unit), D, D)


# --- launches ---


def read_segments(x: Tensor, rates: Decay, w: MixerWeights, plan: Plan) -> tuple[Tensor, Tensor]:
    """-> (B, L, D) what each row of a causal mixer reads of its own segment, (B, S, H, K, V) what a segment leaves."""
    y, partial = torch.empty_like(x), per_segment(x, plan, plan.H, plan.K, plan.K)
    start_kernel(
        segment_kernel, grid(plan),
        (
            x, rates.cum, rates.fall, rates.rise, w.norm1, w.norm1_bias, w.wq, w.bq, w.wk, w.bk, w.wv, w.bv,
            y, partial,
        ),
        (1 / math.sqrt(plan.K), *row_counts(plan)),
        D=plan.D, H=plan.H, PREFIX=plan.norm == "prefix", PRECISION=plan.precision,
        **launch("segment", plan).options, **early(plan, x),
    )  # fmt: skip
    return y, partial


def backward(dx: Tensor, saved: Saved, mix: Tensor, s: "Scratch", plan: Plan, drops: Drops | None = None) -> None:
    """B2 and B3; add to dx and fill g_time, E, F."""
    B, S, D, H, operand = plan.B, plan.segments, plan.D, plan.H, plan.operand
    sizes, where, heads, several = (plan.L, plan.rows), (H, B, S), (s.heads, s.heads_bias), room_for(B * S)
    rows, weights = (saved.x, dx, s.da, s.db, s.units), (*heads, s.g_time)
    random = arguments(drops, dx)
    project = {
        "D": D,
        "H": H,
        "PRECISION": plan.precision,
        "OPERAND": operand,
        **launch("causal_project", plan).options,
    }
    start_kernel(
        causal_read, where,
        (
            saved.x, dx, s.peaks, s.fade, s.rise, s.shares, saved.partial, saved.span, *heads, mix,
            random.seed, s.dy, s.da, s.db, s.units, s.read_units, s.e, s.reverse, s.g_time,
        ),
        (*sizes, s.counts.rows, *random.numbers),
        D=D, H=H, PEAKS=room_for(s.counts.rows), SHARES=several, PRECISION=plan.precision, OPERAND=operand,
        **random.constant, **launch("causal_read", plan).options,
    )  # fmt: skip
    start_kernel(causal_project, (B, S), (*rows, s.read_units, *weights), sizes, PART=0, **project)
    start_kernel(
        causal_write, where,
        (
            saved.x, s.dy, s.fade, s.rise, s.growth, s.shares, s.reverse, saved.span, *heads,
            s.da, s.db, s.units, s.read_units, s.write_units, s.f,
        ),
        sizes, D=D, H=H, SHARES=several, PRECISION=plan.precision, OPERAND=operand,
        **launch("causal_write", plan).options,
    )  # fmt: skip
    start_kernel(causal_project, (B, S), (*rows, s.write_units, *weights), sizes, PART=2, **project)
