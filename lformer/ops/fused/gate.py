# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""Gate and decay: from rows and intervals to how much a memory fades and is written, and back (Algorithm 1).

Naive form: `ops.gates` (`liquid_decay`, `normalise_decay`), with x̃ = σ(LN(x) W_gᵀ + b_g) from `nn.attention`. With
μ = σ(theta):

    F0   x̃ = σ(LN(x) W_gᵀ + b_g), and what each segment adds to U   of the first layer; later ones: `time_mixer.read`
    F1   u = δ (μ x̃_prev + (1 - μ) x̃), û = u / U, its running sum c, the write weight w = 1 - e^{-û}

B4 goes from the gradients of reading and writing to that of the gate, (B, L, H) numbers only. With E_n = dy_n · y_n and
F_n the gradient of the write weight w_n, the gradient of the decay û_n is

    D_n = e^{-û_n} F_n + Σ_{m>=n} (w_m F_m - E_m)

and that of u_n, which every share of the budget contains,

    "sequence"   (D_n - Σ_m D_m û_m) / U             "prefix"   D_n / U_n - Σ_{m>=n} D_m û_m / U_m.

A sum over later rows is the sum over all rows less that over earlier ones, in float64: so every kernel walks
forwards, and a segment needs no more than the sums of the others. B5 takes the gradient of the gate to the rows.

The formula is on this page; `decays.py`, the same for fused layers, takes it from here and has the slopes of its own.
"""

from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from lformer.ops.fused.launch import early, grid, launch, per_segment, power_of_two, row_counts, start_kernel
from lformer.ops.fused.operands import SHIFT, add_rows, load_weight
from lformer.ops.fused.plan import MixerWeights, Plan, Saved
from lformer.ops.fused.tiles import (
    dot,
    dot_add,
    dot_kept,
    kernel,
    left,
    load_rows,
    load_tile,
    normalise,
    right,
    rounded,
    sigmoid,
    store_tile_heads,
    summed,
    wait_for_rows,
)

if TYPE_CHECKING:
    from lformer.ops.fused.weights import Scratch

GATE_COLUMNS = tl.constexpr(16)  # the narrowest product a tensor core takes
SERIES = tl.constexpr(0.5)  # up to this decay 1 - e^{-û} is summed as a series
TINY = tl.constexpr(1.1754943508222875e-38)  # smallest normal float32; a smaller sum is not divided by
DECAY_ROWS = 512  # of a tile of `decay`, at most; it is narrow
GATE_PROGRAMS = 1056  # of B5, which takes the rows of all series as one; it waits for memory
STEP = 256  # rows of a tile where a row is H numbers (B4)


# --- the formula ---


@triton.jit
def interpolation(theta, head, used):
    """μ = σ(theta) of some heads, the weight of the earlier endpoint; not rounded as products are."""
    return 1 / (1 + tl.exp(-tl.load(theta + head, mask=used, other=0.0).to(tl.float32)))


@triton.jit
def mean_rate(before, here, mu):
    """x̄ = μ x̃_prev + (1 - μ) x̃"""
    return here + mu * (before - here)


@triton.jit
def write_weight(decay):
    """w = 1 - e^{-û} to the last digits, also where û is tiny and the difference would cancel."""
    s = decay
    series = s * (1 - s / 2 * (1 - s / 3 * (1 - s / 4 * (1 - s / 5 * (1 - s / 6 * (1 - s / 7 * (1 - s / 8)))))))
    return tl.where(decay < SERIES, series, 1 - tl.exp(-decay))


@triton.jit
def share(part, whole):
    """`part / whole` where there is anything to share, else 0: the rule of `ops.gates`."""
    something = whole >= 1.1754943508222875e-38  # the smallest normal float32
    return tl.where(something, part / tl.where(something, whole, 1.0), 0.0)


@triton.jit
def inverse(total):
    """1 / total where there is anything to share, else 0: the rule of `ops.gates`."""
    something = total >= TINY
    return tl.where(something, 1 / tl.where(something, total, 1.0), 0.0)


# --- F0: gates of the first layer ---


@triton.jit
def fold(weight, bias, norm, norm_bias, D: tl.constexpr, PRECISION: tl.constexpr):
    """(D, N), (1, N) behind a layer norm -> the same map behind the bare normalisation, without its scale and shift."""
    at = summed(D, PRECISION)
    scale, shift = tl.load(norm + at).to(tl.float32)[:, None], tl.load(norm_bias + at).to(tl.float32)[:, None]
    weight = weight.to(tl.float32)
    return weight * scale, bias + tl.sum(weight * shift, axis=0)[None, :]


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
        u = delta * mean_rate(before, here, mu[None, :])
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


# --- B4: from the gradients of reading and writing to that of the gate ---


@kernel
def row_factors(
    decay,  # (B, L, H)
    cum,  # (B, L, H)
    fade,  # (B, L, H) out: e^{-c}, of reading
    growth,  # (B, L, H) out: e^{c}
    rise,  # (B, L, H) out: e^{c} w, of writing
    peaks,  # (B, S) out: largest e^{c} w of a segment; causal: largest w
    L,
    length,
    H: tl.constexpr,
    T: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """Weights of rows in the memory: exponentials that many channels share are taken once."""
    batch, segment, _ = place(H)
    first = batch.to(tl.int64) * L
    peak = tl.zeros((T, H), tl.float32)
    end = tl.minimum((segment + 1) * length, L)
    for start in range(segment * length, end, T):
        rows = start + tl.arange(0, T)
        inside = (rows < end)[:, None]
        at = offsets(first, rows, H)
        w = write_weight(tl.load(decay + at, mask=inside, other=0.0))
        c = tl.load(cum + at, mask=inside, other=0.0)
        grown = tl.exp(c)
        tl.store(fade + at, tl.exp(-c), mask=inside)
        tl.store(growth + at, grown, mask=inside)
        tl.store(rise + at, grown * w, mask=inside)
        peak = tl.maximum(peak, w if CAUSAL else grown * w)
    tl.store(peaks + batch * tl.num_programs(1) + segment, tl.max(tl.max(peak, axis=1), axis=0))


@kernel
def segment_sums(
    e,  # (B, L, H)
    f,  # (B, L, H)
    decay,  # (B, L, H)
    gates,  # (B, L, H)
    deltas,  # (B, L)
    theta,  # (H,) of μ = σ(theta)
    changes,  # (B, S, H) float64 out: Σ (w F - E)
    budgets,  # (B, S, H) float64 out: Σ u
    L,
    length,  # rows of a segment
    H: tl.constexpr,
    T: tl.constexpr,
):
    """What the other segments need to know of one."""
    batch, segment, own = place(H)
    first = batch.to(tl.int64) * L
    mu = wide_mu(theta, H)
    change = tl.zeros((T, H), tl.float64)
    budget = tl.zeros((T, H), tl.float64)
    end = tl.minimum((segment + 1) * length, L)
    for start in range(segment * length, end, T):
        rows = start + tl.arange(0, T)
        change += row_change(e, f, decay, first, rows, end, H)
        budget += row_budget(gates, deltas, mu, first, rows, end, H)
    tl.store(changes + own, tl.sum(change, axis=0))
    tl.store(budgets + own, tl.sum(budget, axis=0))


@kernel
def decay_gradient(
    e, f, decay, gates, deltas, theta,  # as above
    changes, budgets,
    slope,  # (B, L, H) float64 out: D
    shares,  # (B, S, H) float64 out: Σ D û; with PREFIX Σ D û / U_n
    L, length, H: tl.constexpr, T: tl.constexpr, SEGMENTS: tl.constexpr, PREFIX: tl.constexpr,
):  # fmt: skip
    """D of one segment."""
    batch, segment, own = place(H)
    first = batch.to(tl.int64) * L
    mu = wide_mu(theta, H)
    later = sum_segments(changes, batch, segment, tl.num_programs(1), H, SEGMENTS)
    before = sum_segments(budgets, batch, 0, segment, H, SEGMENTS)
    share = tl.zeros((T, H), tl.float64)
    end = tl.minimum((segment + 1) * length, L)
    for start in range(segment * length, end, T):
        rows = start + tl.arange(0, T)
        change = row_change(e, f, decay, first, rows, end, H)
        hat = load_wide(decay, first, rows, end, H)
        d = tl.exp(-hat) * load_wide(f, first, rows, end, H) + later[None, :] - tl.cumsum(change, axis=0) + change
        tl.store(slope + offsets(first, rows, H), d, mask=(rows < end)[:, None])
        later -= tl.sum(change, axis=0)
        if PREFIX:
            budget = row_budget(gates, deltas, mu, first, rows, end, H)
            part = inverse(before[None, :] + tl.cumsum(budget, axis=0))
            share += d * budget * part * part
            before += tl.sum(budget, axis=0)
        else:
            share += d * hat
    tl.store(shares + own, tl.sum(share, axis=0))


@kernel
def gate_gradient(
    slope, decay, gates, deltas, theta, budgets, shares,  # as above
    gate_slope,  # (B, L, H) out: gradient before the sigmoid of the gate
    g_mu,  # (B, S, H) float64 out
    L, length, H: tl.constexpr, T: tl.constexpr, SEGMENTS: tl.constexpr, PREFIX: tl.constexpr,
):  # fmt: skip
    """Gradient of the gate of one segment: x̃_n enters u_n and, as the earlier endpoint, u_{n+1}."""
    batch, segment, own = place(H)
    segments = tl.num_programs(1)
    first = batch.to(tl.int64) * L
    mu = wide_mu(theta, H)
    if PREFIX:
        before = sum_segments(budgets, batch, 0, segment, H, SEGMENTS)
        later = sum_segments(shares, batch, segment, segments, H, SEGMENTS)
    else:
        whole = inverse(sum_segments(budgets, batch, 0, segments, H, SEGMENTS))[None, :]
        common = sum_segments(shares, batch, 0, segments, H, SEGMENTS)[None, :]
    endpoint = tl.zeros((T, H), tl.float64)
    end = tl.minimum((segment + 1) * length, L)
    for start in range(segment * length, end, T):
        rows = start + tl.arange(0, T)
        d = load_wide(slope, first, rows, end, H)
        d_next = load_wide(slope, first, rows + 1, L, H)
        if PREFIX:
            budget = row_budget(gates, deltas, mu, first, rows, end, H)
            running = before[None, :] + tl.cumsum(budget, axis=0)
            inverse_next = inverse(running + row_budget(gates, deltas, mu, first, rows + 1, L, H))
            share = d * budget * inverse(running) * inverse(running)
            rest = later[None, :] - tl.cumsum(share, axis=0)  # over the rows after each
            du = d * inverse(running) - (rest + share)
            du_next = d_next * inverse_next - rest
            before += tl.sum(budget, axis=0)
            later -= tl.sum(share, axis=0)
        else:
            du = (d - common) * whole
            du_next = (d_next - common) * whole
        du *= load_interval(deltas, first, rows, end)
        du_next *= load_interval(deltas, first, rows + 1, L)
        x = load_wide(gates, first, rows, end, H)
        endpoint += du * (load_wide(gates, first, rows - 1, end, H) - x)
        gradient = ((1 - mu) * du + mu * du_next) * x * (1 - x)
        tl.store(gate_slope + offsets(first, rows, H), gradient.to(tl.float32), mask=(rows < end)[:, None])
    tl.store(g_mu + own, tl.sum(endpoint, axis=0))


@triton.jit
def place(H: tl.constexpr):
    """Series and segment of this program, and where its entry of a (B, S, H) tensor lies."""
    batch, segment = tl.program_id(0), tl.program_id(1)
    return batch, segment, (batch.to(tl.int64) * tl.num_programs(1) + segment) * H + tl.arange(0, H)


@triton.jit
def offsets(first, rows, H: tl.constexpr):
    return (first + rows)[:, None] * H + tl.arange(0, H)[None, :]


@triton.jit
def load_wide(source, first, rows, end, H: tl.constexpr):
    """Rows of (B L, H) in float64, 0 outside `0 … end`."""
    inside = ((rows >= 0) & (rows < end))[:, None]
    return tl.load(source + offsets(first, rows, H), mask=inside, other=0.0).to(tl.float64)


@triton.jit
def wide_mu(theta, H: tl.constexpr):
    """μ (1, H) in float64, as the forward pass took it."""
    head = tl.arange(0, H)
    return interpolation(theta, head, head < H).to(tl.float64)[None, :]


@triton.jit
def load_interval(deltas, first, rows, end):
    """δ of rows, (T, 1), 0 from `end` on."""
    return tl.load(deltas + first + rows, mask=rows < end, other=0.0).to(tl.float64)[:, None]


@triton.jit
def row_change(e, f, decay, first, rows, end, H: tl.constexpr):
    """w F - E, the gradient of the running sum c at each row."""
    inside = (rows < end)[:, None]
    w = write_weight(tl.load(decay + offsets(first, rows, H), mask=inside, other=0.0)).to(tl.float64)
    return w * load_wide(f, first, rows, end, H) - load_wide(e, first, rows, end, H)


@triton.jit
def row_budget(gates, deltas, mu, first, rows, end, H: tl.constexpr):
    """u = δ (μ x̃_prev + (1 - μ) x̃) of each row; mu (1, H)."""
    mean = mu * load_wide(gates, first, rows - 1, end, H) + (1 - mu) * load_wide(gates, first, rows, end, H)
    return load_interval(deltas, first, rows, end) * mean


@triton.jit
def sum_segments(source, batch, begin, end, H: tl.constexpr, SEGMENTS: tl.constexpr):
    """Σ over the segments `begin … end` of a (B, S, H) tensor -> (H,)"""
    segment = tl.arange(0, SEGMENTS)
    at = (batch.to(tl.int64) * tl.num_programs(1) + segment)[:, None] * H + tl.arange(0, H)[None, :]
    return tl.sum(tl.load(source + at, mask=((segment >= begin) & (segment < end))[:, None], other=0.0), axis=0)


# --- B5: from the gradient of the gate to the rows ---


@triton.jit
def through_gate(
    x, slope, w, g, first, rows, inside, D: tl.constexpr, H: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """Rows of x (N, D) and of the gradient before the sigmoid (N, H), W_g (16, D) -> g + Σ slopeᵀ h', dh (T, D)."""
    head = tl.arange(0, 16)
    h, _ = normalise(load_rows(x, first, rows, inside, D).to(tl.float32), D)
    h += SHIFT
    at = rows[:, None] * H + head[None, :]
    slopes = tl.load(slope + first * H + at, mask=inside[:, None] & (head < H)[None, :], other=0.0)
    return dot_add(tl.trans(slopes), h, g, PRECISION), dot(slopes, w, PRECISION)


@kernel
def gate_backward(
    x,  # (N, D) rows of all series
    dx,  # (N, D) in and out
    slope,  # (N, H) gradient before the sigmoid of the gate
    weight,  # (H, D) folded
    g_weight,  # (programs, H, D) out: Σ slopeᵀ h'
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
    for turn in range(tl.cdiv(tl.cdiv(N, T) - tl.program_id(0), tl.num_programs(0))):
        first = (own + turn * tl.num_programs(0)) * T
        rows = tl.arange(0, T)
        inside = rows < N - first
        g, dh = through_gate(x, slope, w, g, first, rows, inside, D, H, PRECISION)
        add_rows(dx, x, first, rows, inside, dh, D)
    at = head[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(g_weight + own * (H * D) + at, g, mask=(head < H)[:, None])


# --- launches ---


def gate_programs(plan: Plan) -> int:
    """Of `gate_backward`, at most."""
    return min(GATE_PROGRAMS, -(-plan.B * plan.L // launch("gate_backward", plan).rows))


class Decay(NamedTuple):
    """What follows from the gates of a layer; `decay_kernel` says more."""

    decay: Tensor  # (B, L, H) û
    cum: Tensor  # (B, L, H) its running sum, causal: within the chunk
    span: Tensor  # (B, S, H) causal: the decay across each segment
    fall: Tensor  # (B, L, H) causal: e^{C - c}, C being the decay across the chunk
    rise: Tensor  # (B, L, H) causal: e^{c - C} w
    reach: Tensor  # (B, L, H) the running sum, causal: within the segment


def make_gates(x: Tensor, deltas: Tensor, w: MixerWeights, plan: Plan) -> tuple[Tensor, Tensor]:
    """(B, L, D), (B, L) -> x̃ (B, L, H) and what each segment adds to U, (B, S, H)."""
    x_tilde, sums = x.new_empty(plan.B, plan.L, plan.H, dtype=torch.float32), per_segment(x, plan, plan.H)
    start_kernel(
        gates_kernel, grid(plan),
        (x, deltas, w.norm1, w.norm1_bias, w.wg, w.bg, w.theta, x_tilde, sums), row_counts(plan),
        D=plan.D, H=plan.H, PRECISION=plan.precision, **launch("gates", plan).options,
    )  # fmt: skip
    return x_tilde, sums


def make_decay(x_tilde: Tensor, sums: Tensor, deltas: Tensor, theta: Tensor, plan: Plan) -> Decay:
    """(B, L, H), (B, S, H), (B, L), (H,) -> û and what follows from it."""
    u_hat, cum, span = torch.empty_like(x_tilde), torch.empty_like(x_tilde), per_segment(x_tilde, plan, plan.H)
    fall, rise, reach = x_tilde.new_empty(3, *x_tilde.shape) if plan.causal else (cum, cum, cum)
    start_kernel(
        decay_kernel, grid(plan),
        (x_tilde, deltas, theta, sums, u_hat, cum, span, fall, rise, reach), row_counts(plan),
        H=plan.H, T=min(DECAY_ROWS, power_of_two(plan.rows)), CHUNK=plan.chunk,
        SEGMENTS=power_of_two(plan.segments), CAUSAL=plan.causal, PREFIX=plan.norm == "prefix",
        num_warps=4, num_stages=1, **early(plan, x_tilde),
    )  # fmt: skip
    return Decay(u_hat, cum, span, fall, rise, reach)


def factors(saved: Saved, s: "Scratch", plan: Plan) -> None:
    """Fill the weights in the memory and their peaks."""
    start_kernel(
        row_factors, (plan.B, plan.segments), (saved.decay, saved.cum, s.fade, s.growth, s.rise, s.shares),
        (plan.L, plan.rows), H=plan.H, T=STEP, CAUSAL=plan.causal,
    )  # fmt: skip


def decay_backward(saved: Saved, theta: Tensor, s: "Scratch", plan: Plan) -> None:
    """B4: put the gradient before the sigmoid of the gate in E's place, and fill g_mu."""
    where, rows = (plan.B, plan.segments), (plan.L, plan.rows)
    known, sizes = (saved.decay, saved.gates, saved.deltas, theta), {"H": plan.H, "T": STEP}
    several = {"SEGMENTS": power_of_two(plan.segments), "PREFIX": plan.norm == "prefix"}
    start_kernel(segment_sums, where, (s.e, s.f, *known, s.changes, s.budgets), rows, **sizes)
    both = (s.e, s.f, *known, s.changes, s.budgets, s.slope, s.portions)
    start_kernel(decay_gradient, where, both, rows, **sizes, **several)
    start_kernel(gate_gradient, where, (s.slope, *known, s.budgets, s.portions, s.e, s.g_mu), rows, **sizes, **several)


def rows_backward(dx: Tensor, x: Tensor, s: "Scratch", plan: Plan) -> None:
    """B5: add to dx and fill g_gate."""
    start_kernel(
        gate_backward, (s.counts.gate,), (x, dx, s.e, s.gate, s.g_gate), (plan.B * plan.L,),
        D=plan.D, H=plan.H, PRECISION=plan.precision, **launch("gate_backward", plan).options,
    )  # fmt: skip
