# mypy: ignore-errors
"""B4: from the gradients of reading and writing to that of the gate, (B, L, H) numbers only (Algorithm 1).

With E_n = dy_n · y_n and F_n the gradient of the write weight w_n = 1 - e^{-û_n}, the gradient of the decay û_n is

    D_n = e^{-û_n} F_n + Σ_{m>=n} (w_m F_m - E_m)

and that of u_n, which every share of the budget contains,

    "sequence"   (D_n - Σ_m D_m û_m) / U             "prefix"   D_n / U_n - Σ_{m>=n} D_m û_m / U_m.

A sum over later rows is the sum over all rows less that over earlier ones, in float64: so every kernel walks
forwards, and a segment needs no more than the sums of the others.
"""

import triton
import triton.language as tl

from lformer.ops.fused.mixer_forward import interpolation
from lformer.ops.fused.rows import kernel, write_weight

TINY = tl.constexpr(1.1754943508222875e-38)  # smallest normal float32; a smaller sum is not divided by


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
def inverse(total):
    """1 / total where there is anything to share, else 0: the rule of `ops.gates`."""
    something = total >= TINY
    return tl.where(something, 1 / tl.where(something, total, 1.0), 0.0)


@triton.jit
def sum_segments(source, batch, begin, end, H: tl.constexpr, SEGMENTS: tl.constexpr):
    """Σ over the segments `begin … end` of a (B, S, H) tensor -> (H,)"""
    segment = tl.arange(0, SEGMENTS)
    at = (batch.to(tl.int64) * tl.num_programs(1) + segment)[:, None] * H + tl.arange(0, H)[None, :]
    return tl.sum(tl.load(source + at, mask=((segment >= begin) & (segment < end))[:, None], other=0.0), axis=0)
