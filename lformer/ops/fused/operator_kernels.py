"""Kernels of liquid gated attention, forward and backward. Imports triton alone; `operator.py` launches them.

The rows of a series are cut into N chunks of T, and the chunks into S segments of CHUNKS. In every kernel `c_n` is the
running sum of the decay within the chunk, in float64, D its last value, and w_n = 1 - e^{-decay_n}. Row n weighs row i
by e^{-(c_n - c_i)}. With R_n the gradient of the memory S_n, all gradients are

    dq_n = S_n dy_n,   dk_n = w_n R_n v_n,   dv_n = w_n R_nᵀ k_n
    ddecay_n = e^{-decay_n} (k_n R_n v_n - <R_n, S_{n-1}>)

Memories and their gradients are scanned alike: the one forwards over (w k, v), the other backwards over (q, dy).
"""
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl

from lformer.ops.fused.gate import write_weight
from lformer.ops.fused.tiles import dot, dot_add, kernel

CAP = tl.constexpr(128.0)  # e^{-128} is 0 in float32, so causal decays beyond it can be cut to it


# --- blocks: T rows from `start` on, at most up to L; 64-bit up to the first row, 32-bit from there on ---


@triton.jit
def load_block(x, start, stride, L, first, WIDTH: tl.constexpr, T: tl.constexpr, BLOCK: tl.constexpr):
    """Columns `first … first + BLOCK`, (T, BLOCK); 0 past L and past WIDTH."""
    rows, columns = tl.arange(0, T), first + tl.arange(0, BLOCK)
    inside = rows[:, None] < L - start
    if WIDTH % BLOCK != 0:
        inside = inside & (columns[None, :] < WIDTH)
    return tl.load(x + start * stride + (rows[:, None] * stride + columns[None, :]), mask=inside, other=0.0)


@triton.jit
def store_block(x, start, stride, L, first, tile, WIDTH: tl.constexpr, T: tl.constexpr, BLOCK: tl.constexpr):
    rows, columns = tl.arange(0, T), first + tl.arange(0, BLOCK)
    inside = rows[:, None] < L - start
    if WIDTH % BLOCK != 0:
        inside = inside & (columns[None, :] < WIDTH)
    at = x + start * stride + (rows[:, None] * stride + columns[None, :])
    tl.store(at, tile.to(x.dtype.element_ty), mask=inside)


@triton.jit
def load_square(memory, first, K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr):
    """Columns `first … first + BV` of a (K, V) memory, (BK, BV)."""
    return load_block(memory, 0, V, K, first, V, BK, BV)


@triton.jit
def load_row(x, start, stride, L, T: tl.constexpr):
    """(T,) in float32; 0 past L, where a decay neither fades nor writes."""
    rows = tl.arange(0, T)
    return tl.load(x + start * stride + rows * stride, mask=rows < L - start, other=0.0).to(tl.float32)


@triton.jit
def store_row(x, start, stride, L, row, T: tl.constexpr):
    rows = tl.arange(0, T)
    tl.store(x + start * stride + rows * stride, row.to(x.dtype.element_ty), mask=rows < L - start)


# --- exponents within a chunk ---


@triton.jit
def capped(decay):
    """Decays cut to CAP where larger; NaN stays NaN."""
    return tl.where(decay > CAP, CAP, decay)


@triton.jit
def fade(exponent):
    """e^{-exponent} of float64 exponents that are not negative, in float32: rounded once, however large they are."""
    return tl.exp(-exponent).to(tl.float32)


@triton.jit
def weights_between(c, T: tl.constexpr):
    """(T, T): entry (n, i) is e^{-(c_n - c_i)} for i <= n, else 0.

    c is split into two float32 parts. Each difference is then right to the last digits of itself, however large c is.
    """
    high = c.to(tl.float32)
    low = (c - high.to(tl.float64)).to(tl.float32)
    between = (high[:, None] - high[None, :]) + (low[:, None] - low[None, :])
    at = tl.arange(0, T)
    return tl.exp(tl.where(at[:, None] >= at[None, :], -between, float("-inf")))


# --- causal: the memory before every chunk ---


@kernel
def scan_segments(
    x, z, decay,  # rows: (B, L, H, ·), decay (B, L, H)
    inside, since, ends, spans,
    x_b, x_l, x_h, z_b, z_l, z_h, d_b, d_l, d_h,
    L, H, N, S, CHUNKS,
    K: tl.constexpr, V: tl.constexpr, T: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    BACKWARDS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One segment and BV columns: walk its chunks from an empty memory, adding x_nᵀ z_n.

    Leaves the memory before each chunk and the decay up to there (`inside` (B, N, H, K, V), `since` (B, N, H)), and the
    memory at the end and the decay across the segment (`ends` (B, S, H, K, V), `spans` (B, S, H)). Backwards, "before"
    is the later side.
    """
    blocks = tl.cdiv(V, BV)
    program = tl.program_id(0).to(tl.int64)
    block, unit = (program % blocks).to(tl.int32), program // blocks
    first_column = block * BV
    head, segment, series = unit % H, unit // H % S, unit // H // S
    x += series * x_b + head * x_h
    z += series * z_b + head * z_h
    decay += series * d_b + head * d_h

    first = segment * CHUNKS
    count = tl.minimum(CHUNKS, N - first)
    memory = tl.zeros((BK, BV), tl.float32)
    passed = tl.zeros((), tl.float64)
    for j in range(count):
        chunk = first + (count - 1 - j if BACKWARDS else j)
        here = (series * N + chunk) * H + head
        store_block(inside + here * K * V, 0, V, K, first_column, memory, V, BK, BV)
        tl.store(since + here, passed, mask=block == 0)

        start = chunk * T
        d = capped(load_row(decay, start, d_l, L, T))
        total = tl.sum(d.to(tl.float64))
        c = tl.cumsum(d.to(tl.float64), 0)
        weight = fade(c) if BACKWARDS else write_weight(d) * fade(total - c)
        weighted = load_block(x, start, x_l, L, 0, K, T, BK).to(tl.float32) * weight[:, None]
        values = load_block(z, start, z_l, L, first_column, V, T, BV)
        memory = dot_add(tl.trans(weighted), values, memory * fade(total), PRECISION)
        passed += total
    there = (series * S + segment) * H + head
    store_block(ends + there * K * V, 0, V, K, first_column, memory, V, BK, BV)
    tl.store(spans + there, passed, mask=block == 0)


@kernel
def carry_segments(ends, spans, state, starts, final, H, S, SIZE, BLOCK: tl.constexpr, BACKWARDS: tl.constexpr):
    """BLOCK entries of the memory of one head: `S_s = e^{-span_s} S_{s-1} + end_s` over all segments.

    state, final: (B, H, K, V). ends, starts: (B, S, H, K, V). SIZE is K V.
    """
    blocks = tl.cdiv(SIZE, BLOCK)
    program = tl.program_id(0).to(tl.int64)
    block, head, series = program % blocks, program // blocks % H, program // blocks // H
    at = block * BLOCK + tl.arange(0, BLOCK)
    memory = tl.load(state + (series * H + head) * SIZE + at, mask=at < SIZE, other=0.0)
    for j in range(S):
        here = (series * S + (S - 1 - j if BACKWARDS else j)) * H + head
        tl.store(starts + here * SIZE + at, memory, mask=at < SIZE)
        end = tl.load(ends + here * SIZE + at, mask=at < SIZE, other=0.0)
        memory = fade(tl.load(spans + here)) * memory + end
    tl.store(final + (series * H + head) * SIZE + at, memory, mask=at < SIZE)


@triton.jit
def memory_before(
    inside, since, starts, chunk_at, segment_at, first,
    K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """The memory before a chunk: what its segment wrote up to there, and what the segment began with, faded."""
    written = load_square(inside + chunk_at * K * V, first, K, V, BK, BV)
    begun = load_square(starts + segment_at * K * V, first, K, V, BK, BV)
    return written + fade(tl.load(since + chunk_at)) * begun


# --- causal: one chunk ---


@kernel
def read_chunk(
    q, k, v, decay,  # rows: (B, L, H, ·), decay (B, L, H)
    inside, since, starts, y,
    q_b, q_l, q_h, k_b, k_l, k_h, v_b, v_l, v_h, d_b, d_l, d_h,
    L, H, N, S, CHUNKS,
    K: tl.constexpr, V: tl.constexpr, T: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One chunk: y_n = e^{-c_n} q_n S + Σ_{i<=n} e^{-(c_n - c_i)} w_i (q_n·k_i) v_i, with S the memory before it."""
    program = tl.program_id(0).to(tl.int64)
    head, chunk, series = program % H, program // H % N, program // H // N
    segment_at = (series * S + chunk // CHUNKS) * H + head
    start = chunk * T
    v += series * v_b + head * v_h
    y += (series * L * H + head) * V

    d = capped(load_row(decay + series * d_b + head * d_h, start, d_l, L, T))
    c = tl.cumsum(d.to(tl.float64), 0)
    queries = load_block(q + series * q_b + head * q_h, start, q_l, L, 0, K, T, BK)
    keys = load_block(k + series * k_b + head * k_h, start, k_l, L, 0, K, T, BK)
    scores = dot(queries, tl.trans(keys), PRECISION) * weights_between(c, T) * write_weight(d)[None, :]
    for first in range(0, V, BV):
        memory = memory_before(inside, since, starts, program, segment_at, first, K, V, BK, BV)
        values = load_block(v, start, v_l, L, first, V, T, BV)
        past = dot(queries, memory, PRECISION) * fade(c)[:, None]
        store_block(y, start, H * V, L, first, dot_add(scores, values, past, PRECISION), V, T, BV)


@kernel
def chunk_gradients(
    q, k, v, decay, dy,  # rows: (B, L, H, ·), decay (B, L, H)
    inside, since, starts,
    later, until, stops,
    dq, dk, dv, ddecay,
    q_b, q_l, q_h, k_b, k_l, k_h, v_b, v_l, v_h, d_b, d_l, d_h, g_b, g_l, g_h,
    key_row, value_row,
    L, H, N, S, CHUNKS,
    K: tl.constexpr, V: tl.constexpr, T: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One chunk: all its gradients, from the memory S before it and the gradient R of the memory after it.

    Rows of dq and dk are `key_row` numbers apart, those of dv `value_row`; heads lie beside each other.

    The part <R_n, S_{n-1}> of the decay's gradient is summed over what crosses row n: writes before it that are read
    at it or later. Differences of sums over all rows would be shorter, but leave rounding where nothing crosses.
    """
    program = tl.program_id(0).to(tl.int64)
    head, chunk, series = program % H, program // H % N, program // H // N
    segment_at = (series * S + chunk // CHUNKS) * H + head
    start = chunk * T
    v += series * v_b + head * v_h
    dy += series * g_b + head * g_h
    dq += series * L * key_row + head * K
    dk += series * L * key_row + head * K
    dv += series * L * value_row + head * V

    d = capped(load_row(decay + series * d_b + head * d_h, start, d_l, L, T))
    total = tl.sum(d.to(tl.float64))
    c = tl.cumsum(d.to(tl.float64), 0)
    w, from_start, to_end = write_weight(d), fade(c), fade(total - c)
    queries = load_block(q + series * q_b + head * q_h, start, q_l, L, 0, K, T, BK)
    keys = load_block(k + series * k_b + head * k_h, start, k_l, L, 0, K, T, BK)
    weights = weights_between(c, T)
    scores = dot(queries, tl.trans(keys), PRECISION) * weights

    pulls = tl.zeros((T, T), tl.float32)  # dy_n · v_i
    past = tl.zeros((T, BK), tl.float32)  # S dy_n
    future = tl.zeros((T, BK), tl.float32)  # R v_i
    across = tl.zeros((), tl.float32)  # <R, S>
    for first in range(0, V, BV):
        memory = memory_before(inside, since, starts, program, segment_at, first, K, V, BK, BV)
        pull = memory_before(later, until, stops, program, segment_at, first, K, V, BK, BV)
        values = load_block(v, start, v_l, L, first, V, T, BV)
        output = load_block(dy, start, g_l, L, first, V, T, BV)
        pulls = dot_add(output, tl.trans(values), pulls, PRECISION)
        past = dot_add(output, tl.trans(memory), past, PRECISION)
        future = dot_add(values, tl.trans(pull), future, PRECISION)
        across += tl.sum(memory * pull)
        ahead = dot(keys, pull, PRECISION) * to_end[:, None]
        ahead = dot_add(tl.trans(scores), output, ahead, PRECISION)
        store_block(dv, start, value_row, L, first, ahead * w[:, None], V, T, BV)

    past *= from_start[:, None]
    future *= to_end[:, None]
    at = tl.arange(0, T)
    earlier = at[:, None] < at[None, :]
    wide: tl.constexpr = "tf32" if PRECISION == "bf16" else PRECISION
    crossing = dot(scores * pulls * w[None, :], earlier.to(tl.float32), wide)  # (n', n): rows before n, read at n'
    inner = tl.sum(tl.where(at[:, None] >= at[None, :], crossing, 0.0), 0)
    reads = tl.sum(queries.to(tl.float32) * past, 1)  # of S at n
    writes = tl.sum(keys.to(tl.float32) * future, 1) * w  # into R at i
    outer = tl.sum(tl.where(at[None, :] < at[:, None], writes[None, :], reads[None, :]), 1)

    pulls *= weights
    past = dot_add(pulls * w[None, :], keys, past, PRECISION)
    future = dot_add(tl.trans(pulls), queries, future, PRECISION)
    written = tl.sum(keys.to(tl.float32) * future, 1)  # k_n R_n v_n
    slope = tl.exp(-d) * written - (fade(total) * across + inner + outer)
    store_block(dq, start, key_row, L, 0, past, K, T, BK)
    store_block(dk, start, key_row, L, 0, future * w[:, None], K, T, BK)
    store_row(ddecay + series * L * H + head, start, H, L, slope, T)


# --- non-causal: exponents relative to the middle of the series ---


@kernel
def sum_chunks(decay, totals, d_b, d_l, d_h, L, H, N, T: tl.constexpr, GROUP: tl.constexpr):
    """Decay across each of GROUP chunks, in float64: (B, L, H) -> (B, N, H)."""
    groups = tl.cdiv(N, GROUP)
    program = tl.program_id(0).to(tl.int64)
    head, group, series = program % H, program // H % groups, program // H // groups
    chunks = group * GROUP + tl.arange(0, GROUP)
    rows = chunks[:, None] * T + tl.arange(0, T)[None, :]
    d = tl.load(decay + series * d_b + head * d_h + rows * d_l, mask=rows < L, other=0.0)
    tl.store(totals + (series * N + chunks) * H + head, tl.sum(d.to(tl.float64), 1), mask=chunks < N)


@kernel
def sum_before(x, before, total, H, N, BLOCK: tl.constexpr, BACKWARDS: tl.constexpr):
    """Running sums of (B, N, H) along N without the entry itself, and the whole sum (B, H), all in float64."""
    program = tl.program_id(0).to(tl.int64)
    head, series = program % H, program // H
    passed = tl.zeros((), tl.float64)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        here = (series * N + (N - 1 - at if BACKWARDS else at)) * H + head
        entries = tl.load(x + here, mask=at < N, other=0.0)
        tl.store(before + here, passed + tl.cumsum(entries, 0) - entries, mask=at < N)
        passed += tl.sum(entries)
    tl.store(total + program, passed)


@triton.jit
def from_middle(d, before, total):
    """(T,) decay between the middle of the series and each row, in float64: negative in the first half."""
    return before - total / 2 + tl.cumsum(d.to(tl.float64), 0)


@kernel
def sum_segments(
    x, z, decay,  # rows: (B, L, H, ·), decay (B, L, H)
    before, total, sums,
    x_b, x_l, x_h, z_b, z_l, z_h, d_b, d_l, d_h,
    L, H, N, S, CHUNKS,
    K: tl.constexpr, V: tl.constexpr, T: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    BACKWARDS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One segment and BV columns: Σ e^{c_i} w_i x_iᵀ z_i, or Σ e^{-c_n} x_nᵀ z_n backwards; -> (B, S, H, K, V)."""
    blocks = tl.cdiv(V, BV)
    program = tl.program_id(0).to(tl.int64)
    block, unit = (program % blocks).to(tl.int32), program // blocks
    first_column = block * BV
    head, segment, series = unit % H, unit // H % S, unit // H // S
    x += series * x_b + head * x_h
    z += series * z_b + head * z_h
    decay += series * d_b + head * d_h
    whole = tl.load(total + series * H + head)

    first = segment * CHUNKS
    memory = tl.zeros((BK, BV), tl.float32)
    for chunk in range(first, tl.minimum(first + CHUNKS, N)):
        start = chunk * T
        d = load_row(decay, start, d_l, L, T)
        c = from_middle(d, tl.load(before + (series * N + chunk) * H + head), whole)
        weight = tl.exp(-c).to(tl.float32) if BACKWARDS else write_weight(d) * tl.exp(c).to(tl.float32)
        weighted = load_block(x, start, x_l, L, 0, K, T, BK).to(tl.float32) * weight[:, None]
        values = load_block(z, start, z_l, L, first_column, V, T, BV)
        memory = dot_add(tl.trans(weighted), values, memory, PRECISION)
    sums += ((series * S + segment) * H + head) * K * V
    store_block(sums, 0, V, K, first_column, memory, V, BK, BV)


@kernel
def read_whole(
    q, decay,  # rows: (B, L, H, ·), decay (B, L, H)
    before, total, memory, y,
    q_b, q_l, q_h, d_b, d_l, d_h,
    L, H, N,
    K: tl.constexpr, V: tl.constexpr, T: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One chunk: y_n = e^{-c_n} q_n M, with M the memory that all rows of the series share."""
    program = tl.program_id(0).to(tl.int64)
    head, chunk, series = program % H, program // H % N, program // H // N
    start = chunk * T
    d = load_row(decay + series * d_b + head * d_h, start, d_l, L, T)
    c = from_middle(d, tl.load(before + program), tl.load(total + series * H + head))
    weight = tl.exp(-c).to(tl.float32)[:, None]
    queries = load_block(q + series * q_b + head * q_h, start, q_l, L, 0, K, T, BK)
    memory += (series * H + head) * K * V
    y += (series * L * H + head) * V
    for first in range(0, V, BV):
        output = dot(queries, load_square(memory, first, K, V, BK, BV), PRECISION) * weight
        store_block(y, start, H * V, L, first, output, V, T, BV)


@kernel
def whole_gradients(
    q, k, v, decay, dy,  # rows: (B, L, H, ·), decay (B, L, H)
    before, total, memory, pull,
    dq, dk, dv, slopes, sums,
    q_b, q_l, q_h, k_b, k_l, k_h, v_b, v_l, v_h, d_b, d_l, d_h, g_b, g_l, g_h,
    key_row, value_row,
    L, H, N,
    K: tl.constexpr, V: tl.constexpr, T: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One chunk: the gradients of its rows, from M and its gradient; `key_row`, `value_row` as in `chunk_gradients`.

    Of the decay's gradient, e^{-decay_n} k_n R v_n + Σ_{m>=n} (w_m k_m R v_m - dy_m·y_m), the part within the chunk
    goes to `slopes` (B, L, H) and the sum over the chunk to `sums` (B, N, H).
    """
    program = tl.program_id(0).to(tl.int64)
    head, chunk, series = program % H, program // H % N, program // H // N
    start = chunk * T
    v += series * v_b + head * v_h
    dy += series * g_b + head * g_h
    dq += series * L * key_row + head * K
    dk += series * L * key_row + head * K
    dv += series * L * value_row + head * V
    memory += (series * H + head) * K * V
    pull += (series * H + head) * K * V

    d = load_row(decay + series * d_b + head * d_h, start, d_l, L, T)
    c = from_middle(d, tl.load(before + program), tl.load(total + series * H + head))
    reading, writing, w = tl.exp(-c).to(tl.float32), tl.exp(c).to(tl.float32), write_weight(d)
    queries = load_block(q + series * q_b + head * q_h, start, q_l, L, 0, K, T, BK)
    keys = load_block(k + series * k_b + head * k_h, start, k_l, L, 0, K, T, BK)
    past = tl.zeros((T, BK), tl.float32)
    future = tl.zeros((T, BK), tl.float32)
    for first in range(0, V, BV):
        values = load_block(v, start, v_l, L, first, V, T, BV)
        output = load_block(dy, start, g_l, L, first, V, T, BV)
        pulled = load_square(pull, first, K, V, BK, BV)
        past = dot_add(output, tl.trans(load_square(memory, first, K, V, BK, BV)), past, PRECISION)
        future = dot_add(values, tl.trans(pulled), future, PRECISION)
        ahead = dot(keys, pulled, PRECISION) * (writing * w)[:, None]
        store_block(dv, start, value_row, L, first, ahead, V, T, BV)
    past *= reading[:, None]
    future *= writing[:, None]
    store_block(dq, start, key_row, L, 0, past, K, T, BK)
    store_block(dk, start, key_row, L, 0, future * w[:, None], K, T, BK)

    written = tl.sum(keys.to(tl.float32) * future, 1)
    read = tl.sum(queries.to(tl.float32) * past, 1)
    change = (w * written).to(tl.float64) - read.to(tl.float64)
    within = tl.cumsum(change, 0, reverse=True)
    slope = tl.exp(-d) * written + within
    store_row(slopes + series * L * H + head, start, H, L, slope, T)
    tl.store(sums + program, tl.sum(change))


@kernel
def add_later(slopes, later, final, ddecay, L, H, N, T: tl.constexpr):
    """One chunk: what its rows have in `slopes`, plus the sum over the chunks after it, less <dS_L, S_L> (B, H)."""
    program = tl.program_id(0).to(tl.int64)
    head, chunk, series = program % H, program // H % N, program // H // N
    start = chunk * T
    first = series * L * H + head
    rest = tl.load(later + program) - tl.load(final + series * H + head)
    store_row(ddecay + first, start, H, L, load_row(slopes + first, start, H, L, T) + rest, T)
