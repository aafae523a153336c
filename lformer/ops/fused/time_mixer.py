# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""Time mixer where every row reads the whole series, x1 = x + (o ⊙ y) W_mᵀ with y_n = e^{-c_n} q_n S, and back.

Naive form: `ops.reference` and `ops.parallel`, inside `nn.attention.LiquidGatedAttention` (paper IV-B).

    F2   S = Σ e^{c_i} w_i k_iᵀ v_i of each segment                             keys and values are never stored
    F3   memory, output gate, W_m, residual; then the channel mixer and the next layer's gates, or the sum of the rows

All rows of a series read the same S, so W_q is multiplied with it once and queries are never formed. A causal mixer has
`causal.segment_kernel` in the place of F2, and F3 adds what the earlier segments left.

B2, of reading, leaves Z = Σ (e^{-c} dy)ᵀ h', from which `query_gradients` makes the gradient of the queries and
R = Σ_n e^{-c_n} q_nᵀ dy_n. B3, of writing: what row i wrote, e^{c_i} w_i k_iᵀ v_i, is read through R, which is
multiplied with W_k and W_v once. The norm is folded into the weights by the caller.

Every tile of the backward pass has a unit, a power of two that makes it fit into an operand: `…_unit` times the tile is
the true value.
"""

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from lformer.ops.fused.channel import hidden_slices, kept_slices, mix_channels
from lformer.ops.fused.dropout import CHANNEL, TIME, Drops, arguments, drop, load_keys
from lformer.ops.fused.gate import GATE_COLUMNS, Decay, emit_gates, gate_parameters, write_weight
from lformer.ops.fused.launch import early, grid, launch, per_segment, room_for, row_counts, start_kernel
from lformer.ops.fused.operands import (
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
    share_power,
    shifted_rows,
)
from lformer.ops.fused.plan import MixerWeights, Plan, Saved
from lformer.ops.fused.tiles import (
    dot,
    dot_kept,
    dot_kept_add,
    kernel,
    layer_norm,
    left,
    load_heads,
    load_memory,
    load_rows,
    load_tile,
    load_tile_heads,
    load_vector,
    nearest,
    right,
    rounded,
    sigmoid,
    store_memory,
    store_tile,
    times_heads,
    wait_for_rows,
)

if TYPE_CHECKING:
    from lformer.ops.fused.weights import Scratch


# --- F2: what each segment writes ---


@triton.jit
def spread_down(tile, T: tl.constexpr, D: tl.constexpr, H: tl.constexpr):
    """(H, T) -> (D, T)"""
    return tl.reshape(tl.broadcast_to(tile[:, None, :], (H, D // H, T)), (D, T))


@triton.jit
def write_factors(decay, cum, first, rows, inside, H: tl.constexpr):
    """(H, T) e^{c} w; 0 outside."""
    at = first * H + rows[None, :] * H + tl.arange(0, H)[:, None]
    u_hat = tl.load(decay + at, mask=inside[None, :], other=0.0)
    c = tl.load(cum + at, mask=inside[None, :], other=0.0)
    # Without this `where`, which changes no number, Triton would take exponentials once they are spread over channels.
    return tl.exp(tl.where(inside[None, :], c, 0.0)) * write_weight(u_hat)


@kernel
def accumulate_kernel(
    x, decay, cum, norm, norm_bias, wk, bk, wv, bv, partial, key_scale, L, S, segment_rows,
    D: tl.constexpr, H: tl.constexpr, T: tl.constexpr, PRECISION: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """x (B, L, D), decay, cum (B, L, H) -> partial (B, S, H, K, V), where every row reads the whole series.

    Keys and values are made as columns, (D, T): then every product finds its summed index where it wants it.
    """
    series, segment = (tl.program_id(0) // S).to(tl.int64), tl.program_id(0) % S
    start, rows = segment * segment_rows, tl.arange(0, T)
    end = tl.minimum(start + segment_rows, L)
    channels = tl.arange(0, D)
    place = channels[:, None] * D + channels[None, :]
    key, value = rounded(tl.load(wk + place), PRECISION), rounded(tl.load(wv + place), PRECISION)
    key_bias, value_bias = (
        tl.load(bk + channels).to(tl.float32)[:, None],
        tl.load(bv + channels).to(tl.float32)[:, None],
    )
    scale, shift = load_vector(norm, D), load_vector(norm_bias, D)
    memory = tl.zeros((D, D), tl.float32)
    wait_for_rows(EARLY)
    tile = load_tile(x, series * L + start, end - start, T, D)
    for at in range(start, end, T):
        first = series * L + at
        inside = at + rows < end
        h = nearest(layer_norm(tile, scale, shift, D), PRECISION)
        tile = load_tile(x, first + T, end - at - T, T, D)  # on its way while this one is worked on
        weight = spread_down(write_factors(decay, cum, first, rows, inside, H), T, D, H)
        k = left((dot_kept(key, tl.trans(h), PRECISION) * key_scale + key_bias) * weight, PRECISION)
        v = tl.trans(left(dot_kept(value, tl.trans(h), PRECISION) + value_bias, PRECISION))
        memory = dot_kept_add(k, v, memory, PRECISION)
    store_memory(partial + tl.program_id(0).to(tl.int64) * D * (D // H), memory, D, H)


# --- F3: read the memory, mix the channels ---


@triton.jit
def square_weight(weight, D: tl.constexpr, PRECISION: tl.constexpr):
    """A (D, D) weight as the right operand, rounded once, where it is loaded."""
    return rounded(right(weight, 0, D, D, D, PRECISION), PRECISION)


@kernel
def read_kernel(
    x, y, reach, partial, span, norm1, norm1_bias, wq, bq, wo, bo, wm, norm2, norm2_bias, w_up, w_down, x1, x2,
    lengths, pooled, deltas, next_norm, next_norm_bias, next_wg, next_bg, next_theta, next_gates, next_sums, seed,
    L, S, segment_rows, place, dropped,
    D: tl.constexpr, H: tl.constexpr, F: tl.constexpr, T: tl.constexpr, SLICES: tl.constexpr, KEEP: tl.constexpr,
    CAUSAL: tl.constexpr, STORE_X1: tl.constexpr, POOL: tl.constexpr, EMIT: tl.constexpr, DROP: tl.constexpr,
    PRECISION: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """x (B, L, D), reach (B, L, H), partial (B, S, H, K, V) -> x2 (B, L, D), or pooled (B, S, D) sums of valid rows.

    `reach` is how far a memory decays until a row reads it. That of a causal mixer, with span (B, S, H), is what the
    earlier segments left; what a row reads of its own one is y (B, L, D), from `causal.segment_kernel`. STORE_X1 keeps
    x1; EMIT adds gates and sums of the next layer; KEEP tells which weights are held for all tiles: 2 all, 1 those of
    the time mixer, 0 none. Vectors are read again for every tile: kept, they would push other numbers out of the
    registers. SLICES are (start, width) of the parts in which the hidden width is taken. DROP leaves out some of what
    the two branches add.
    """
    series, segment = (tl.program_id(0) // S).to(tl.int64), tl.program_id(0) % S
    start = segment * segment_rows
    end = tl.minimum(start + segment_rows, L)

    kept = kept_slices(w_up, w_down, D, F, SLICES, PRECISION) if KEEP == 2 else ()
    if EMIT:
        next_weight, next_bias, next_mu = gate_parameters(
            next_wg, next_bg, next_theta, next_norm, next_norm_bias, D, H, PRECISION
        )
        next_total = tl.zeros((T, GATE_COLUMNS), tl.float32)
    if POOL:
        length = tl.load(lengths + series)
        total = tl.zeros((T // 16, 8, D), tl.float32)  # rows n and n + 8 in one, which a lane holds both
    if KEEP > 0:
        output, mix = square_weight(wo, D, PRECISION), square_weight(wm, D, PRECISION)
    wait_for_rows(EARLY)
    time_keys = load_keys(seed, place + TIME) if DROP else ()
    channel_keys = load_keys(seed, place + CHANNEL) if DROP else ()
    SIZE: tl.constexpr = D * (D // H)
    memory = tl.zeros((D, D), tl.float32)
    if CAUSAL:
        for n in tl.range(0, segment, loop_unroll_factor=4):  # several loads at a time
            across = tl.load(span + (series * S + n) * H + tl.arange(0, D) // (D // H))
            memory = tl.exp(-across)[:, None] * memory + load_memory(partial + (series * S + n) * SIZE, D, H)
    else:
        for n in tl.range(0, S, loop_unroll_factor=4):
            memory += load_memory(partial + (series * S + n) * SIZE, D, H)
    # All rows read the same memory, so W_q is multiplied with it once: y = e^{-reach} (h W_qᵀ + b_q) S.
    query_bias = tl.sum(tl.trans(load_vector(bq, D)) * memory, axis=0)[None, :]
    query = rounded(dot(right(wq, 0, D, D, D, PRECISION), memory, PRECISION), PRECISION)

    for at in range(start, end, T):
        first = series * L + at
        count = end - at
        tile = load_tile(x, first, count, T, D)
        h = left(layer_norm(tile, load_vector(norm1, D), load_vector(norm1_bias, D), D), PRECISION)
        read = dot_kept(h, query, PRECISION) + query_bias
        read = times_heads(read, tl.exp(-load_tile_heads(reach, first, count, T, H)), T, D, H)
        if CAUSAL:
            read += load_tile(y, first, count, T, D)
        # Always 0, which the compiler cannot know: it would load the weights once and run out of shared memory.
        zero = (at >> 31) * 16
        if KEEP == 0:
            output = square_weight(wo + zero, D, PRECISION)
        o = sigmoid(dot_kept(h, output, PRECISION) + load_vector(bo, D), PRECISION)
        if KEEP == 0:
            mix = square_weight(wm + zero, D, PRECISION)
        if DROP:
            tile += drop(dot_kept(left(o * read, PRECISION), mix, PRECISION), time_keys, dropped, first, T, D)
        else:
            tile = dot_kept_add(left(o * read, PRECISION), mix, tile, PRECISION)
        if STORE_X1:
            store_tile(x1, first, count, tile, T, D)
        tile = mix_channels(
            tile, kept, w_up + zero, w_down + zero, norm2, norm2_bias, channel_keys, dropped, first,
            D, F, SLICES, KEEP, DROP, PRECISION,
        )  # fmt: skip
        if POOL:
            tile = tl.where((tl.arange(0, T) < tl.minimum(count, length - at))[:, None], tile, 0.0)
            total += tl.sum(tl.reshape(tile, (T // 16, 2, 8, D)), axis=1)
        else:
            store_tile(x2, first, count, tile, T, D)
        if EMIT:
            stored = tile.to(x.dtype.element_ty).to(tl.float32)  # as the next layer will read it
            next_total += emit_gates(
                stored, first, count, L - at, deltas, next_weight, next_bias, next_mu, next_gates,
                T, D, H, PRECISION,
            )  # fmt: skip
    if POOL:
        sums = tl.sum(tl.reshape(total, (T // 2, D)), axis=0)
        tl.store(pooled + tl.program_id(0).to(tl.int64) * D + tl.arange(0, D), sums)
    if EMIT:
        head = tl.arange(0, GATE_COLUMNS)
        tl.store(next_sums + tl.program_id(0).to(tl.int64) * H + head, tl.sum(next_total, axis=0), mask=head < H)


# --- B2: reading ---


@kernel
def read_backward(
    x,  # (B, L, D)
    dx,  # (B, L, D) in: gradient of x1; out: its share in the gradient of x
    peaks,  # (PEAKS,) of |dx|, as the branch gets it
    fade,  # (B, L, H) e^{-c}
    memory,  # (B, S, H, K, V) `partial` of the forward pass
    weight,  # (2D, D) folded: q, o
    bias,  # (2D,)
    mix,  # (D, D)
    seed,  # () only with DROP
    e,  # (B, L, H) out: dy · y
    g,  # (B, S, 5, D, D) out: 0: Z, 1: Σ doᵀ h', 4: Σ dx1ᵀ (o ⊙ y)
    L,
    length,  # rows of a segment
    count,  # of peaks
    place,
    dropped,
    D: tl.constexpr,
    H: tl.constexpr,
    T: tl.constexpr,
    PEAKS: tl.constexpr,
    DROP: tl.constexpr,
    PRECISION: tl.constexpr,
    OPERAND: tl.constexpr,
):
    """One segment, tile by tile. With DROP the branch gets what is kept of the gradient of x1, the residual all."""
    batch, segment, segments = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    first = batch.to(tl.int64) * L
    own = batch.to(tl.int64) * segments + segment
    K: tl.constexpr = D // H
    size: tl.constexpr = D * K  # numbers in one memory
    keys = load_keys(seed, place + TIME) if DROP else ()
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
        dx1 = load_rows(dx, first, rows, inside, D).to(tl.float32) * grad_scale
        if DROP:
            dx1 = drop(dx1, keys, dropped, first + start, T, D)
        dx1 = narrow(dx1, OPERAND)
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


# --- B3: writing ---


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


# --- launches ---


class Reading(NamedTuple):
    """What the last kernel of a layer leaves; None where it was not asked for."""

    x2: Tensor | None  # (B, L, D)
    x1: Tensor | None  # (B, L, D)
    gates: Tensor | None  # (B, L, H) of the next layer
    sums: Tensor | None  # (B, S, H) of the next layer
    pooled: Tensor | None  # (B, S, D) sums of valid rows


def accumulate(x: Tensor, u_hat: Tensor, cum: Tensor, w: MixerWeights, plan: Plan) -> Tensor:
    """-> (B, S, H, K, V) what each segment writes, where every row reads the whole series."""
    partial = per_segment(x, plan, plan.H, plan.K, plan.K)
    start_kernel(
        accumulate_kernel, grid(plan),
        (x, u_hat, cum, w.norm1, w.norm1_bias, w.wk, w.bk, w.wv, w.bv, partial),
        (1 / math.sqrt(plan.K), *row_counts(plan)),
        D=plan.D, H=plan.H, PRECISION=plan.precision, **launch("accumulate", plan).options, **early(plan, x),
    )  # fmt: skip
    return partial


def read_rows(
    x: Tensor,
    y: Tensor,
    deltas: Tensor,
    rates: Decay,
    partial: Tensor,
    w: MixerWeights,
    plan: Plan,
    *,
    store_x1: bool = False,
    following: MixerWeights | None = None,
    pool_lengths: Tensor | None = None,
    drops: Drops | None = None,
) -> Reading:
    """-> x2; with `following` also the gates of the layer of those weights; with `pool_lengths` sums in x2's place.

    y is what `causal.read_segments` gives; where the mixer is not causal, nothing looks at it.
    """
    settings = launch("read", plan)
    after = w if following is None else following
    pool, emit = pool_lengths is not None, following is not None
    out = Reading(
        x2=None if pool else torch.empty_like(x),
        x1=torch.empty_like(x) if store_x1 else None,
        gates=torch.empty_like(rates.reach) if emit else None,
        sums=per_segment(x, plan, plan.H) if emit else None,
        pooled=per_segment(x, plan, plan.D) if pool else None,
    )
    x1, x2, valid, pooled, gates, sums = (
        x if t is None else t  # where nothing is wanted the kernel touches nothing
        for t in (out.x1, out.x2, pool_lengths, out.pooled, out.gates, out.sums)
    )
    random = arguments(drops, x)
    start_kernel(
        read_kernel, grid(plan),
        (
            x, y, rates.reach, partial, rates.span, w.norm1, w.norm1_bias, w.wq, w.bq, w.wo, w.bo, w.wm,
            w.norm2, w.norm2_bias, w.w_up, w.w_down, x1, x2, valid, pooled, deltas,
            after.norm1, after.norm1_bias, after.wg, after.bg, after.theta, gates, sums, random.seed,
        ),
        (*row_counts(plan), *random.numbers),
        D=plan.D, H=plan.H, F=plan.F,
        SLICES=hidden_slices(plan.F, settings.block, settings.narrowest), KEEP=settings.keep, CAUSAL=plan.causal,
        STORE_X1=store_x1, POOL=pool, EMIT=emit, PRECISION=plan.precision, **random.constant, **settings.options,
        **early(plan, x),
    )  # fmt: skip
    return out


def backward(dx: Tensor, saved: Saved, mix: Tensor, s: "Scratch", plan: Plan, drops: Drops | None = None) -> None:
    """B2 and B3; add to dx and fill g_time, E, F."""
    B, S, D, H, operand = plan.B, plan.segments, plan.D, plan.H, plan.operand
    sizes, heads, random = (plan.L, plan.rows), (s.heads, s.heads_bias), arguments(drops, dx)
    start_kernel(
        read_backward, (B, S),
        (saved.x, dx, s.peaks, s.fade, saved.partial, *heads, mix, random.seed, s.e, s.g_time),
        (*sizes, s.counts.rows, *random.numbers),
        D=D, H=H, PEAKS=room_for(s.counts.rows), PRECISION=plan.precision, OPERAND=operand, **random.constant,
        **launch("read_backward", plan).options,
    )  # fmt: skip
    start_kernel(
        query_gradients, (B,), (saved.partial, *heads, s.reverse, s.g_time), (S,),
        D=D, H=H, PRECISION="ieee" if plan.precision == "ieee" else "tf32", num_warps=8,
    )  # fmt: skip
    start_kernel(
        write_backward, (B, S),
        (saved.x, dx, s.rise, s.growth, s.shares, s.reverse, *heads, s.f, s.g_time), sizes,
        D=D, H=H, SHARES=room_for(B * S), OPERAND=operand, **launch("write_backward", plan).options,
    )  # fmt: skip
