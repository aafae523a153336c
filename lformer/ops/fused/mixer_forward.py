# mypy: ignore-errors
"""The forward kernels of the fused mixer: gates, decay, accumulate, read. Imports triton alone.

One program walks the rows of one segment of one series, tile by tile, with the weights at hand. A layer is

    gates        x̃ = σ(LN(x) W_g), and what each segment adds to U           only the first layer: `read` emits the next
    decay        û and its running sum, from the gates and the sums
    accumulate   Σ e^{c_i} w_i k_iᵀ v_i of each segment                       keys and values are never stored
    read         memory, output gate, W_m, residual, norm, SwiGLU, residual

A causal mixer has `mixer_causal.segment_kernel` in the place of accumulate: its rows also read, of their own segment.
"""

import triton
import triton.language as tl

from lformer.ops.fused.rows import (
    dot,
    dot_kept,
    dot_kept_add,
    kernel,
    layer_norm,
    left,
    load_memory,
    load_tile,
    load_tile_heads,
    load_vector,
    nearest,
    normalise,
    right,
    rounded,
    share,
    sigmoid,
    silu,
    split_columns,
    store_memory,
    store_tile,
    store_tile_heads,
    summed,
    times_heads,
    wait_for_rows,
    write_weight,
)

GATE_COLUMNS = tl.constexpr(16)  # the narrowest product a tensor core takes


# --- one number per head, spread over the channels ---


@triton.jit
def spread(tile, T: tl.constexpr, D: tl.constexpr, H: tl.constexpr):
    """(T, H) -> (T, D)"""
    return tl.reshape(tl.broadcast_to(tile[:, :, None], (T, H, D // H)), (T, D))


@triton.jit
def spread_down(tile, T: tl.constexpr, D: tl.constexpr, H: tl.constexpr):
    """(H, T) -> (D, T)"""
    return tl.reshape(tl.broadcast_to(tile[:, None, :], (H, D // H, T)), (D, T))


@triton.jit
def tile_decay(cum, first, count, H: tl.constexpr):
    """(H,) decay across a tile of `count` rows, the last entry of a running sum within it."""
    return tl.load(cum + (first + count - 1) * H + tl.arange(0, H))


# --- parameters, as the products want them ---


@triton.jit
def fold(weight, bias, norm, norm_bias, D: tl.constexpr, PRECISION: tl.constexpr):
    """(D, N), (1, N) behind a layer norm -> the same map behind the bare normalisation, without its scale and shift."""
    at = summed(D, PRECISION)
    scale, shift = tl.load(norm + at).to(tl.float32)[:, None], tl.load(norm_bias + at).to(tl.float32)[:, None]
    weight = weight.to(tl.float32)
    return weight * scale, bias + tl.sum(weight * shift, axis=0)[None, :]


@triton.jit
def projection(weight, D: tl.constexpr, PRECISION: tl.constexpr):
    """A (D, D) weight as the right operand, rounded once, where it is loaded."""
    return rounded(right(weight, 0, D, D, D, PRECISION), PRECISION)


@triton.jit
def interpolation(theta, head, used):
    """μ = σ(theta) of some heads, the weight of the earlier endpoint; not rounded as products are."""
    return 1 / (1 + tl.exp(-tl.load(theta + head, mask=used, other=0.0).to(tl.float32)))


# --- before the first layer and after the last ---


@kernel
def intervals_kernel(
    deltas, times, lengths, first_interval, filled, L,
    BLOCK: tl.constexpr, TYPICAL: tl.constexpr, MEAN: tl.constexpr,
):  # fmt: skip
    """deltas (B, L) with the first interval of every series: `first_interval` if TYPICAL, the mean if MEAN, else 0."""
    series, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    count = tl.load(lengths + series)
    first = tl.load(first_interval).to(tl.float32) if TYPICAL else 0.0
    if MEAN:
        last = tl.load(times + series * L + tl.maximum(count, 1) - 1)
        mean = ((last - tl.load(times + series * L)) / tl.maximum(count - 1, 1)).to(tl.float32)
        first = tl.where(mean > 0, mean, first)
    first = tl.where(count > 0, first, 0.0)  # an empty series has no first row
    delta = tl.load(deltas + series * L + at, mask=at < L, other=0.0)
    tl.store(filled + series * L + at, tl.where(at == 0, first, delta), mask=at < L)


@kernel
def mean_kernel(pooled, lengths, mean, S, D: tl.constexpr, SEGMENTS: tl.constexpr):
    """pooled (B, S, D) sums of valid rows -> mean (B, D), 0 for an empty series; SEGMENTS as in `decay_kernel`."""
    series, parts, channels = tl.program_id(0).to(tl.int64), tl.arange(0, SEGMENTS)[:, None], tl.arange(0, D)
    part = tl.load(pooled + (series * S + parts) * D + channels[None, :], mask=parts < S, other=0.0)
    count = tl.maximum(tl.load(lengths + series), 1).to(tl.float32)
    tl.store(mean + series * D + channels, (tl.sum(part, axis=0) / count).to(mean.dtype.element_ty))


# --- F0: gates of the first layer ---


@triton.jit
def emit_gates(
    x, first, count, known, deltas, weight, bias, mu, gates,
    T: tl.constexpr, D: tl.constexpr, H: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Store x̃ of `count` rows of a (T, D) tile; return (T, 16) their shares of U, `((1 - μ) δ_n + μ δ_{n+1}) x̃_n`.

    `known` rows of intervals follow from here to the end of the series.
    """
    rows = tl.arange(0, T)
    inside = rows < count
    unit, _ = normalise(x, D)
    gate = sigmoid(dot_kept(left(unit, PRECISION), weight, PRECISION) + bias, PRECISION)
    store_tile_heads(gates, first, count, gate, T, H)
    here = tl.load(deltas + first + rows, mask=inside, other=0.0)
    ahead = tl.load(deltas + first + rows + 1, mask=inside & (rows + 1 < known), other=0.0)
    return ((1 - mu) * here[:, None] + mu * ahead[:, None]) * gate


@triton.jit
def gate_parameters(
    weight, bias, theta, norm, norm_bias, D: tl.constexpr, H: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """W_g as (D, 16), b_g and μ as (1, 16), heads past H without meaning; the layer norm before them folded in."""
    head = tl.arange(0, GATE_COLUMNS)
    used = head < H
    bias = tl.load(bias + head, mask=used, other=0.0).to(tl.float32)[None, :]
    weight = right(weight, 0, H, D, GATE_COLUMNS, PRECISION)
    weight, bias = fold(weight, bias, norm, norm_bias, D, PRECISION)
    return rounded(weight, PRECISION), bias, interpolation(theta, head, used)[None, :]


@kernel
def gates_kernel(
    x, deltas, norm, norm_bias, wg, bg, theta, gates, sums, L, S, segment_rows,
    D: tl.constexpr, H: tl.constexpr, T: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """x (B, L, D) -> gates (B, L, H), sums (B, S, H)"""
    series, segment = (tl.program_id(0) // S).to(tl.int64), tl.program_id(0) % S
    start = segment * segment_rows
    end = tl.minimum(start + segment_rows, L)
    weight, bias, mu = gate_parameters(wg, bg, theta, norm, norm_bias, D, H, PRECISION)
    total = tl.zeros((T, GATE_COLUMNS), tl.float32)
    ahead = load_tile(x, series * L + start, end - start, T, D)
    for at in range(start, end, T):
        first = series * L + at
        tile = ahead
        ahead = load_tile(x, first + T, end - at - T, T, D)  # on its way while this one is worked on
        total += emit_gates(
            tile, first, end - at, L - at, deltas, weight, bias, mu, gates, T, D, H, PRECISION
        )  # fmt: skip
    head = tl.arange(0, GATE_COLUMNS)
    tl.store(sums + tl.program_id(0).to(tl.int64) * H + head, tl.sum(total, axis=0), mask=head < H)


# --- F1: from gates to decay ---


@kernel
def decay_kernel(
    gates, deltas, theta, sums, decay, cum, span, fall, rise, reach, L, S, segment_rows,
    H: tl.constexpr, T: tl.constexpr, CHUNK: tl.constexpr, SEGMENTS: tl.constexpr, CAUSAL: tl.constexpr,
    PREFIX: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """gates (B, L, H), sums (B, S, H) -> decay, cum (B, L, H).

    Causal also span (B, S, H), and of every row (B, L, H), with C the decay across its chunk: fall e^{C - c} when it
    reads, rise e^{c - C} w when it writes; reach, the running sum within the segment. SEGMENTS is a power of two that
    holds S.
    """
    series, segment = (tl.program_id(0) // S).to(tl.int64), tl.program_id(0) % S
    start, rows, head = segment * segment_rows, tl.arange(0, T), tl.arange(0, H)
    end = tl.minimum(start + segment_rows, L)
    mu = interpolation(theta, head, head < H)

    wait_for_rows(EARLY)
    parts = tl.arange(0, SEGMENTS)[:, None]
    part = tl.load(sums + series * S * H + parts * H + head[None, :], mask=parts < S, other=0.0)
    whole = tl.sum(part, axis=0)
    # The sum over earlier segments counts the first row's own earlier endpoint, which belongs to this one.
    crossing = tl.load(deltas + series * L + start) * tl.load(
        gates + (series * L + start - 1) * H + head, mask=head + start * H >= H, other=0.0
    )
    running = tl.maximum(tl.sum(tl.where(parts < segment, part, 0.0), axis=0) - mu * crossing, 0.0).to(tl.float64)
    across = tl.zeros((H,), tl.float32)
    for at in range(start, end, T):
        first = series * L + at
        inside = (at + rows < end)[:, None]
        place = gates + first * H + rows[:, None] * H + head[None, :]
        here = tl.load(place, mask=inside, other=0.0)
        before = tl.load(place - H, mask=inside & (at + rows > 0)[:, None], other=0.0)
        delta = tl.load(deltas + first + rows, mask=at + rows < end, other=0.0)[:, None]
        u = delta * (here + mu[None, :] * (before - here))
        # Running sums become exponents, where every lost digit counts: they are kept in float64 until they are stored.
        exact = u.to(tl.float64)
        sofar = (running[None, :] + tl.cumsum(exact, axis=0)).to(tl.float32)
        running += tl.sum(exact, axis=0)
        u_hat = share(u, sofar if PREFIX else whole[None, :])
        target = first * H + rows[:, None] * H + head[None, :]
        if CAUSAL:
            c = tl.cumsum(tl.reshape(u_hat.to(tl.float64), (T // CHUNK, CHUNK, H)), axis=1).to(tl.float32)
            total = tl.sum(tl.reshape(u_hat, (T // CHUNK, CHUNK, H)), axis=1)
            left_over = tl.reshape(total[:, None, :] - c, (T, H))
            earlier = across[None, None, :] + (tl.cumsum(total, axis=0) - total)[:, None, :]
            tl.store(fall + target, tl.exp(left_over), mask=inside)
            tl.store(rise + target, tl.exp(-left_over) * write_weight(u_hat), mask=inside)
            tl.store(reach + target, tl.reshape(earlier + c, (T, H)), mask=inside)
            c = tl.reshape(c, (T, H))
        else:
            c = share(sofar, whole[None, :])
        across += tl.sum(u_hat, axis=0)
        tl.store(decay + target, u_hat, mask=inside)
        tl.store(cum + target, c, mask=inside)
    if CAUSAL:
        tl.store(span + tl.program_id(0).to(tl.int64) * H + head, across)


# --- F2: what each segment writes ---


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
def channel_weights(
    w_up, w_down, D: tl.constexpr, F: tl.constexpr, SLICES: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """W_1 beside W_2 (D, 2 width) and W_3 (width, D) of every slice of the hidden width, zero past F."""
    weights = ()
    for n in tl.static_range(len(SLICES)):
        part = channel_slice(w_up, w_down, SLICES[n][0], SLICES[n][1], D, F, PRECISION)
        weights = weights + (part,)  # noqa: RUF005, a kernel knows no unpacking
    return weights


@triton.jit
def channel_slice(
    w_up, w_down, START: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr, F: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    out = tl.arange(0, 2 * WIDTH)
    place = (START + out % WIDTH + out // WIDTH * F)[None, :] * D + summed(D, PRECISION)[:, None]
    up = tl.load(w_up + place, mask=(START + out % WIDTH < F)[None, :], other=0.0)
    hidden = START + summed(WIDTH, PRECISION)
    place = tl.arange(0, D)[None, :] * F + hidden[:, None]
    down = tl.load(w_down + place, mask=(hidden < F)[:, None], other=0.0)
    return rounded(up, PRECISION), rounded(down, PRECISION)


@triton.jit
def mix_channels(
    x, kept, w_up, w_down, norm, norm_bias,
    D: tl.constexpr, F: tl.constexpr, SLICES: tl.constexpr, KEEP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """(T, D) -> x + [SiLU(h W_1) ⊙ (h W_2)] W_3 with h = LN(x), a slice of the hidden width at a time."""
    h = left(layer_norm(x, load_vector(norm, D), load_vector(norm_bias, D), D), PRECISION)
    for n in tl.static_range(len(SLICES)):
        if KEEP == 2:  # noqa: SIM108, only one branch is compiled
            weights = kept[n]
        else:
            weights = channel_slice(w_up, w_down, SLICES[n][0], SLICES[n][1], D, F, PRECISION)
        gate, value = split_columns(dot_kept(h, weights[0], PRECISION))
        x = dot_kept_add(left(silu(gate, PRECISION) * value, PRECISION), weights[1], x, PRECISION)
    return x


@kernel
def read_kernel(
    x, y, reach, partial, span, norm1, norm1_bias, wq, bq, wo, bo, wm, norm2, norm2_bias, w_up, w_down, x1, x2,
    lengths, pooled, deltas, next_norm, next_norm_bias, next_wg, next_bg, next_theta, next_gates, next_sums,
    L, S, segment_rows,
    D: tl.constexpr, H: tl.constexpr, F: tl.constexpr, T: tl.constexpr, SLICES: tl.constexpr, KEEP: tl.constexpr,
    CAUSAL: tl.constexpr, STORE_X1: tl.constexpr, POOL: tl.constexpr, EMIT: tl.constexpr, PRECISION: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """x (B, L, D), reach (B, L, H), partial (B, S, H, K, V) -> x2 (B, L, D), or pooled (B, S, D) sums of valid rows.

    `reach` is how far a memory decays until a row reads it. That of a causal mixer, with span (B, S, H), is what the
    earlier segments left; what a row reads of its own one is y (B, L, D), from `segment_kernel`. STORE_X1 keeps x1;
    EMIT adds gates and sums of the next layer; KEEP tells which weights are held for all tiles: 2 all, 1 those of the
    time mixer, 0 none. Vectors are read again for every tile: kept, they would push other numbers out of the registers.
    SLICES are (start, width) of the parts in which the hidden width is taken.
    """
    series, segment = (tl.program_id(0) // S).to(tl.int64), tl.program_id(0) % S
    start = segment * segment_rows
    end = tl.minimum(start + segment_rows, L)

    kept = channel_weights(w_up, w_down, D, F, SLICES, PRECISION) if KEEP == 2 else ()
    if EMIT:
        next_weight, next_bias, next_mu = gate_parameters(
            next_wg, next_bg, next_theta, next_norm, next_norm_bias, D, H, PRECISION
        )
        next_total = tl.zeros((T, GATE_COLUMNS), tl.float32)
    if POOL:
        length = tl.load(lengths + series)
        total = tl.zeros((T // 16, 8, D), tl.float32)  # rows n and n + 8 in one, which a lane holds both
    if KEEP > 0:
        output, mix = projection(wo, D, PRECISION), projection(wm, D, PRECISION)
    wait_for_rows(EARLY)
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
            output = projection(wo + zero, D, PRECISION)
        o = sigmoid(dot_kept(h, output, PRECISION) + load_vector(bo, D), PRECISION)
        if KEEP == 0:
            mix = projection(wm + zero, D, PRECISION)
        tile = dot_kept_add(left(o * read, PRECISION), mix, tile, PRECISION)
        if STORE_X1:
            store_tile(x1, first, count, tile, T, D)
        tile = mix_channels(tile, kept, w_up + zero, w_down + zero, norm2, norm2_bias, D, F, SLICES, KEEP, PRECISION)
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
