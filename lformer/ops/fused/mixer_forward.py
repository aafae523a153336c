# mypy: ignore-errors
"""The forward kernels of the fused mixer: gates, decay, accumulate, read. Imports triton alone.

One program walks the rows of one segment of one series, tile by tile, with the weights at hand. A layer is

    gates        x̃ = σ(LN(x) W_g), and what each segment adds to U           only the first layer: `read` emits the next
    decay        û and its running sum, from the gates and the sums
    accumulate   Σ e^{c_i} w_i k_iᵀ v_i of each segment                       keys and values are never stored
    read         memory, output gate, W_m, residual, norm, SwiGLU, residual

Exponents inside a tile of a causal mixer are taken from the middle of the tile's decay, so that each factor spans half
of its range.
"""

import triton
import triton.language as tl

from lformer.ops.fused.rows import (
    dot,
    dot_add,
    layer_norm,
    load_memory,
    load_rows,
    load_transposed,
    load_vector,
    normalise,
    same_head,
    share,
    sigmoid,
    silu,
    store_memory,
    store_rows,
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
def operand(weight, PRECISION: tl.constexpr):
    """Round a weight once, where it is loaded."""
    return weight.to(tl.bfloat16) if PRECISION == "bf16" else weight.to(tl.float32)


@triton.jit
def fold(weight, bias, norm, norm_bias, D: tl.constexpr):
    """(D, N), (1, N) behind a layer norm -> the same map behind the bare normalisation, without its scale and shift."""
    at = tl.arange(0, D)
    scale, shift = tl.load(norm + at).to(tl.float32)[:, None], tl.load(norm_bias + at).to(tl.float32)[:, None]
    weight = weight.to(tl.float32)
    return weight * scale, bias + tl.sum(weight * shift, axis=0)[None, :]


@triton.jit
def projection(weight, D: tl.constexpr, PRECISION: tl.constexpr):
    """A (D, D) weight, transposed and rounded."""
    return operand(load_transposed(weight, 0, D, D, D), PRECISION)


# --- F0: gates of the first layer ---


@triton.jit
def emit_gates(
    x, first, rows, inside, ahead_inside, deltas, weight, bias, mu, gates,
    D: tl.constexpr, H: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Store x̃ of a (T, D) tile; return (16,) its share of U, `((1 - μ) δ_n + μ δ_{n+1}) x̃_n` summed over its rows."""
    head = tl.arange(0, GATE_COLUMNS)
    unit, _ = normalise(x, D)
    gate = sigmoid(dot(unit, weight, PRECISION) + bias, PRECISION)
    tl.store(gates + first * H + rows[:, None] * H + head[None, :], gate, mask=inside[:, None] & (head < H)[None, :])
    here = tl.load(deltas + first + rows, mask=inside, other=0.0)
    ahead = tl.load(deltas + first + rows + 1, mask=ahead_inside, other=0.0)
    return tl.sum(((1 - mu) * here[:, None] + mu * ahead[:, None]) * gate, axis=0)


@triton.jit
def gate_parameters(
    weight, bias, mu, norm, norm_bias, D: tl.constexpr, H: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """W_g as (D, 16), b_g and μ as (1, 16), filled up with zeros; the layer norm before them folded in."""
    head = tl.arange(0, GATE_COLUMNS)
    used = head < H
    bias = tl.load(bias + head, mask=used, other=0.0).to(tl.float32)[None, :]
    weight, bias = fold(load_transposed(weight, 0, H, D, GATE_COLUMNS), bias, norm, norm_bias, D)
    return operand(weight, PRECISION), bias, tl.load(mu + head, mask=used, other=0.0).to(tl.float32)[None, :]


@triton.jit
def gates_kernel(
    x, deltas, norm, norm_bias, wg, bg, mu, gates, sums, L, S, segment_rows,
    D: tl.constexpr, H: tl.constexpr, T: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """x (B, L, D) -> gates (B, L, H), sums (B, S, H)"""
    series, segment = (tl.program_id(0) // S).to(tl.int64), tl.program_id(0) % S
    start, rows = segment * segment_rows, tl.arange(0, T)
    end = tl.minimum(start + segment_rows, L)
    weight, bias, share_before = gate_parameters(wg, bg, mu, norm, norm_bias, D, H, PRECISION)
    total = tl.zeros((GATE_COLUMNS,), tl.float32)
    for at in range(start, end, T):
        first = series * L + at
        inside = at + rows < end
        tile = load_rows(x, first, rows, inside, D).to(tl.float32)
        total += emit_gates(
            tile, first, rows, inside, inside & (at + rows + 1 < L), deltas, weight, bias, share_before, gates,
            D, H, PRECISION,
        )  # fmt: skip
    head = tl.arange(0, GATE_COLUMNS)
    tl.store(sums + tl.program_id(0).to(tl.int64) * H + head, total, mask=head < H)


# --- F1: from gates to decay ---


@triton.jit
def decay_kernel(
    gates, deltas, mu, sums, decay, cum, span, L, S, segment_rows,
    H: tl.constexpr, T: tl.constexpr, CHUNK: tl.constexpr, SEGMENTS: tl.constexpr, CAUSAL: tl.constexpr,
    PREFIX: tl.constexpr,
):  # fmt: skip
    """gates (B, L, H), sums (B, S, H) -> decay, cum (B, L, H); span (B, S, H) if causal.

    SEGMENTS is a power of two that holds S.
    """
    series, segment = (tl.program_id(0) // S).to(tl.int64), tl.program_id(0) % S
    start, rows, head = segment * segment_rows, tl.arange(0, T), tl.arange(0, H)
    end = tl.minimum(start + segment_rows, L)
    mu = tl.load(mu + head).to(tl.float32)

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
        if CAUSAL:
            c = tl.cumsum(tl.reshape(u_hat.to(tl.float64), (T // CHUNK, CHUNK, H)), axis=1)
            c = tl.reshape(c, (T, H)).to(tl.float32)
        else:
            c = share(sofar, whole[None, :])
        across += tl.sum(u_hat, axis=0)
        target = first * H + rows[:, None] * H + head[None, :]
        tl.store(decay + target, u_hat, mask=inside)
        tl.store(cum + target, c, mask=inside)
    if CAUSAL:
        tl.store(span + tl.program_id(0).to(tl.int64) * H + head, across)


# --- F2: what each segment writes ---


@triton.jit
def write_factors(decay, cum, first, rows, inside, middle, H: tl.constexpr):
    """(H, T) e^{c - middle} w; 0 outside."""
    at = first * H + rows[None, :] * H + tl.arange(0, H)[:, None]
    u_hat = tl.load(decay + at, mask=inside[None, :], other=0.0)
    c = tl.load(cum + at, mask=inside[None, :], other=0.0)
    return tl.exp(tl.where(inside[None, :], c - middle[:, None], 0.0)) * write_weight(u_hat)


@triton.jit
def accumulate_kernel(
    x, decay, cum, norm, norm_bias, wk, bk, wv, bv, partial, key_scale, L, S, segment_rows,
    D: tl.constexpr, H: tl.constexpr, T: tl.constexpr, CAUSAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """x (B, L, D), decay, cum (B, L, H) -> partial (B, S, H, K, V).

    Keys and values are made as columns, (D, T): then every product finds its summed index where it wants it.
    """
    series, segment = (tl.program_id(0) // S).to(tl.int64), tl.program_id(0) % S
    start, rows = segment * segment_rows, tl.arange(0, T)
    end = tl.minimum(start + segment_rows, L)
    channels = tl.arange(0, D)
    place = channels[:, None] * D + channels[None, :]
    key, value = tl.load(wk + place), tl.load(wv + place)
    key_bias, value_bias = (
        tl.load(bk + channels).to(tl.float32)[:, None],
        tl.load(bv + channels).to(tl.float32)[:, None],
    )
    scale, shift = load_vector(norm, D), load_vector(norm_bias, D)
    memory = tl.zeros((D, D), tl.float32)
    middle = tl.zeros((H,), tl.float32)
    for at in range(start, end, T):
        first = series * L + at
        inside = at + rows < end
        h = tl.trans(layer_norm(load_rows(x, first, rows, inside, D).to(tl.float32), scale, shift, D))
        if CAUSAL:
            middle = tile_decay(cum, first, tl.minimum(T, end - at), H) / 2
        weight = spread_down(write_factors(decay, cum, first, rows, inside, middle, H), T, D, H)
        k = (dot(key, h, PRECISION) * key_scale + key_bias) * weight
        v = dot(value, h, PRECISION) + value_bias
        if CAUSAL:
            fade = tl.exp(-tl.reshape(tl.broadcast_to(middle[:, None], (H, D // H)), (D,)))[:, None]
            memory = fade * dot_add(k, tl.trans(v), fade * memory, PRECISION)
        else:
            memory = dot_add(k, tl.trans(v), memory, PRECISION)
    store_memory(partial + tl.program_id(0).to(tl.int64) * D * (D // H), memory, D, H)


# --- F3: read the memory, mix the channels ---


@triton.jit
def channel_weights(
    w_up, w_down, D: tl.constexpr, F: tl.constexpr, SLICES: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """W_1, W_2 (D, width) and W_3 (width, D) of every slice of the hidden width, zero past F."""
    weights = ()
    for n in tl.static_range(len(SLICES)):
        part = channel_slice(w_up, w_down, SLICES[n][0], SLICES[n][1], D, F, PRECISION)
        weights = weights + (part,)  # noqa: RUF005, a kernel knows no unpacking
    return weights


@triton.jit
def channel_slice(
    w_up, w_down, START: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr, F: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    hidden = START + tl.arange(0, WIDTH)
    at = tl.arange(0, D)[None, :] * F + hidden[:, None]
    return (
        operand(load_transposed(w_up, START, F, D, WIDTH), PRECISION),
        operand(load_transposed(w_up + F * D, START, F, D, WIDTH), PRECISION),
        operand(tl.load(w_down + at, mask=(hidden < F)[:, None], other=0.0), PRECISION),
    )


@triton.jit
def mix_channels(
    x, kept, w_up, w_down, norm, norm_bias,
    D: tl.constexpr, F: tl.constexpr, SLICES: tl.constexpr, KEEP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """(T, D) -> x + [SiLU(h W_1) ⊙ (h W_2)] W_3 with h = LN(x), a slice of the hidden width at a time."""
    h = operand(layer_norm(x, load_vector(norm, D), load_vector(norm_bias, D), D), PRECISION)
    for n in tl.static_range(len(SLICES)):
        if KEEP == 2:  # noqa: SIM108, only one branch is compiled
            weights = kept[n]
        else:
            weights = channel_slice(w_up, w_down, SLICES[n][0], SLICES[n][1], D, F, PRECISION)
        gate = dot(h, weights[0], PRECISION)
        value = dot(h, weights[1], PRECISION)
        x = dot_add(silu(gate, PRECISION) * value, weights[2], x, PRECISION)
    return x


@triton.jit
def read_factors(cum, first, rows, inside, middle, H: tl.constexpr):
    """(T, H) e^{-(c - middle)}"""
    at = first * H + rows[:, None] * H + tl.arange(0, H)[None, :]
    c = tl.load(cum + at, mask=inside[:, None], other=0.0)
    return tl.exp(tl.where(inside[:, None], middle[None, :] - c, 0.0))


@triton.jit
def read_kernel(
    x, decay, cum, partial, span, norm1, norm1_bias, wq, bq, wk, bk, wv, bv, wo, bo, wm, norm2, norm2_bias,
    w_up, w_down, x1, x2, lengths, pooled, deltas, next_norm, next_norm_bias, next_wg, next_bg, next_mu,
    next_gates, next_sums, key_scale, L, S, segment_rows,
    D: tl.constexpr, H: tl.constexpr, F: tl.constexpr, T: tl.constexpr, SLICES: tl.constexpr, KEEP: tl.constexpr,
    CAUSAL: tl.constexpr, STORE_X1: tl.constexpr, POOL: tl.constexpr, EMIT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """x (B, L, D), cum (B, L, H), partial (B, S, H, K, V) -> x2 (B, L, D), or pooled (B, S, D) sums of its valid rows.

    STORE_X1 keeps x1; EMIT adds gates and sums of the next layer; KEEP tells which weights are held for all
    tiles: 2 all, 1 those of the time mixer, 0 none. Vectors are read anew for every tile: kept, they would push other
    numbers out of the registers.
    SLICES are (start, width) of the parts in which the hidden width is taken.
    """
    series, segment = (tl.program_id(0) // S).to(tl.int64), tl.program_id(0) % S
    start, rows = segment * segment_rows, tl.arange(0, T)
    end = tl.minimum(start + segment_rows, L)

    if KEEP > 0:
        output, mix = projection(wo, D, PRECISION), projection(wm, D, PRECISION)
    kept = channel_weights(w_up, w_down, D, F, SLICES, PRECISION) if KEEP == 2 else ()
    if EMIT:
        next_weight, next_bias, next_share = gate_parameters(
            next_wg, next_bg, next_mu, next_norm, next_norm_bias, D, H, PRECISION
        )
        next_total = tl.zeros((GATE_COLUMNS,), tl.float32)
    if POOL:
        length = tl.load(lengths + series)
        total = tl.zeros((T, D), tl.float32)

    SIZE: tl.constexpr = D * (D // H)
    memory = tl.zeros((D, D), tl.float32)
    if CAUSAL:
        if KEEP > 0:
            query, key, value = projection(wq, D, PRECISION), projection(wk, D, PRECISION), projection(wv, D, PRECISION)
        for n in range(0, segment):
            across = tl.load(span + (series * S + n) * H + tl.arange(0, D) // (D // H))
            memory = tl.exp(-across)[:, None] * memory + load_memory(partial + (series * S + n) * SIZE, D, H)
    else:
        for n in tl.range(0, S, loop_unroll_factor=4):  # several loads at a time
            memory += load_memory(partial + (series * S + n) * SIZE, D, H)
        # Every row reads the same memory, so W_q is multiplied with it once: y = e^{-c} (h W_qᵀ + b_q) S.
        query_bias = tl.sum(tl.trans(load_vector(bq, D)) * memory, axis=0)[None, :]
        query = operand(dot(load_transposed(wq, 0, D, D, D), memory, PRECISION), PRECISION)

    for at in range(start, end, T):
        first = series * L + at
        inside = at + rows < end
        tile = load_rows(x, first, rows, inside, D).to(tl.float32)
        h = operand(layer_norm(tile, load_vector(norm1, D), load_vector(norm1_bias, D), D), PRECISION)
        if CAUSAL:
            if KEEP == 0:
                query, key, value = (
                    projection(wq, D, PRECISION),
                    projection(wk, D, PRECISION),
                    projection(wv, D, PRECISION),
                )
            q = dot(h, query, PRECISION) + load_vector(bq, D)
            middle = tile_decay(cum, first, tl.minimum(T, end - at), H) / 2
            q *= spread(read_factors(cum, first, rows, inside, middle, H), T, D, H)
            fade = tl.exp(-tl.reshape(tl.broadcast_to(middle[:, None], (H, D // H)), (D,)))[:, None]
            memory *= fade
            y = dot(q, memory, PRECISION)
            weight = spread(tl.trans(write_factors(decay, cum, first, rows, inside, middle, H)), T, D, H)
            k = (dot(h, key, PRECISION) * key_scale + load_vector(bk, D)) * weight
            v = dot(h, value, PRECISION) + load_vector(bv, D)
            y += read_tile(q, k, v, rows, D, H, PRECISION)
            memory = fade * tl.where(same_head(D, H), dot_add(tl.trans(k), v, memory, PRECISION), 0.0)
        else:
            q = dot(h, query, PRECISION) + query_bias
            y = q * spread(read_factors(cum, first, rows, inside, tl.zeros((H,), tl.float32), H), T, D, H)
        if KEEP == 0:
            output, mix = projection(wo, D, PRECISION), projection(wm, D, PRECISION)
        o = sigmoid(dot(h, output, PRECISION) + load_vector(bo, D), PRECISION)
        tile = dot_add(o * y, mix, tile, PRECISION)
        if STORE_X1:
            store_rows(x1, first, rows, inside, tile, D)
        tile = mix_channels(tile, kept, w_up, w_down, norm2, norm2_bias, D, F, SLICES, KEEP, PRECISION)
        if POOL:
            total += tl.where((inside & (at + rows < length))[:, None], tile, 0.0)
        else:
            store_rows(x2, first, rows, inside, tile, D)
        if EMIT:
            rounded = tile.to(x.dtype.element_ty).to(tl.float32)  # as the next layer will read it
            next_total += emit_gates(
                rounded, first, rows, inside, inside & (at + rows + 1 < L), deltas, next_weight, next_bias, next_share,
                next_gates, D, H, PRECISION,
            )  # fmt: skip
    if POOL:
        tl.store(pooled + tl.program_id(0).to(tl.int64) * D + tl.arange(0, D), tl.sum(total, axis=0))
    if EMIT:
        head = tl.arange(0, GATE_COLUMNS)
        tl.store(next_sums + tl.program_id(0).to(tl.int64) * H + head, next_total, mask=head < H)


@triton.jit
def read_tile(q, k, v, rows, D: tl.constexpr, H: tl.constexpr, PRECISION: tl.constexpr):
    """What rows of one causal tile read from each other: q, k already weighted, (T, D) -> (T, D).

    One head at a time, the channels of the others set to zero: heads are narrower than what a product takes.
    """
    head = (tl.arange(0, D) // (D // H))[None, :]
    past = rows[:, None] >= rows[None, :]
    k = tl.trans(k)
    y = tl.zeros(v.shape, tl.float32)
    for n in tl.static_range(H):
        scores = tl.where(past, dot(tl.where(head == n, q, 0.0), k, PRECISION), 0.0)
        y = dot_add(scores, tl.where(head == n, v, 0.0), y, PRECISION)
    return y
