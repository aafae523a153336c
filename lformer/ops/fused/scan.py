"""The two recurrences: kernels, launches, and functions that autograd knows.

Naive form: `ops.scan_reference`; in plain PyTorch `ops.scan_parallel`. A series is cut into segments, and each segment
goes row by row in registers, in three passes: what each segment leaves if it starts empty (`*_ends`), the states
between segments (`*_carry`), and all rows from the true starts (`*_rows`). The backward pass goes the same way from the
last row to the first; that of a selective scan first forms the states of a chunk of T rows again, from its rows and the
state before every chunk, which is all that is kept.

A tensor of rows is (B, L, ·) with rows `l*` numbers apart. A program has a segment of `R` rows and a block of columns.
Deterministic: no atomics, and sums over programs are taken in a fixed order.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from lformer.ops.fused.launch import power_of_two, start_kernel
from lformer.ops.fused.plan import Plan
from lformer.ops.scan_parallel import before as states_before

CHUNK = 32  # rows whose states are formed again at once
COLUMNS = 32  # of a linear scan in one program: one for each thread of a warp
CHANNELS = 32  # of a selective scan in one program with few states each
STATES = 512  # of a selective scan in one warp: a tile takes sixteen registers of a thread, and there are many tiles
PROGRAMS = 2112  # wanted per launch: sixteen for each multiprocessor of an H200


def linear(a: Tensor, b: Tensor, state: Tensor) -> Tensor:
    """(B, L, P), (B, L, P), (B, P) -> (B, L, P), float32 or complex64"""
    return _Linear.apply(a, b, state)


def selective(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
    """(B, L, E), (B, L, E), (E, N), (B, L, N), (B, L, N), (E,) -> (B, L, E), float32"""
    return _Selective.apply(u, delta, A, B, C, D)


# --- h_k = a_k h_{k-1} + b_k; with BACKWARDS g_k = b_k + conj(a_{k+1}) g_{k+1}. Complex numbers as pairs of floats ---


@triton.jit
def _load(x, at, mask, COMPLEX: tl.constexpr):
    """Real and imaginary part of the numbers at these places; the latter is 0 of real ones."""
    if COMPLEX:
        return tl.load(x + 2 * at, mask=mask, other=0.0), tl.load(x + 2 * at + 1, mask=mask, other=0.0)
    value = tl.load(x + at, mask=mask, other=0.0)
    return value, tl.zeros_like(value)


@triton.jit
def _store(x, at, real, imaginary, mask, COMPLEX: tl.constexpr):
    if COMPLEX:
        tl.store(x + 2 * at, real, mask=mask)
        tl.store(x + 2 * at + 1, imaginary, mask=mask)
    else:
        tl.store(x + at, real, mask=mask)


@triton.jit
def _times(xr, xi, yr, yi, COMPLEX: tl.constexpr):
    if COMPLEX:
        return xr * yr - xi * yi, xr * yi + xi * yr
    return xr * yr, xi


@triton.jit
def _factor(a, series, k, L, column, batch_stride, row_stride, inside, COMPLEX: tl.constexpr, BACKWARDS: tl.constexpr):
    """What the state before row k, in the direction of the scan, is multiplied with; nothing comes after the last."""
    if BACKWARDS:
        at = series * batch_stride + (k + 1) * row_stride + column
        real, imaginary = _load(a, at, inside & (k + 1 < L), COMPLEX)
        return real, -imaginary
    return _load(a, series * batch_stride + k * row_stride + column, inside, COMPLEX)


@triton.jit
def linear_ends(
    a, b, ends, spans,
    L, P, S, R, batch_stride, row_stride,
    BP: tl.constexpr, COMPLEX: tl.constexpr, BACKWARDS: tl.constexpr,
):  # fmt: skip
    """What each segment leaves of an empty start, and the product of its factors: (B, S, P) each."""
    blocks = tl.cdiv(P, BP)
    segment = tl.program_id(0) // blocks  # of all series
    series, s = (segment // S).to(tl.int64), segment % S
    column = tl.program_id(0) % blocks * BP + tl.arange(0, BP)
    inside = column < P
    count = min(R, L - s * R)
    hr, hi = tl.zeros((BP,), tl.float32), tl.zeros((BP,), tl.float32)
    wr, wi = tl.full((BP,), 1.0, tl.float32), tl.zeros((BP,), tl.float32)
    for i in range(count):
        k = s * R + i
        if BACKWARDS:
            k = s * R + count - 1 - i
        ar, ai = _factor(a, series, k, L, column, batch_stride, row_stride, inside, COMPLEX, BACKWARDS)
        br, bi = _load(b, (series * L + k) * P + column, inside, COMPLEX)
        hr, hi = _times(ar, ai, hr, hi, COMPLEX)
        hr, hi = hr + br, hi + bi
        wr, wi = _times(ar, ai, wr, wi, COMPLEX)
    at = (series * S + s) * P + column
    _store(ends, at, hr, hi, inside, COMPLEX)
    _store(spans, at, wr, wi, inside, COMPLEX)


@triton.jit
def linear_carry(
    ends, spans, start, starts,
    P, S,
    BP: tl.constexpr, COMPLEX: tl.constexpr, BACKWARDS: tl.constexpr,
):  # fmt: skip
    """(B, S, P) the state before each segment, from (B, P) before the first in the direction of the scan."""
    blocks = tl.cdiv(P, BP)
    series = (tl.program_id(0) // blocks).to(tl.int64)
    column = tl.program_id(0) % blocks * BP + tl.arange(0, BP)
    inside = column < P
    hr, hi = _load(start, series * P + column, inside, COMPLEX)
    for i in range(S):
        s = i
        if BACKWARDS:
            s = S - 1 - i
        at = (series * S + s) * P + column
        _store(starts, at, hr, hi, inside, COMPLEX)
        wr, wi = _load(spans, at, inside, COMPLEX)
        er, ei = _load(ends, at, inside, COMPLEX)
        hr, hi = _times(wr, wi, hr, hi, COMPLEX)
        hr, hi = hr + er, hi + ei


@triton.jit
def linear_rows(
    a, b, starts, h,
    L, P, S, R, batch_stride, row_stride,
    BP: tl.constexpr, COMPLEX: tl.constexpr, BACKWARDS: tl.constexpr,
):  # fmt: skip
    """(B, L, P) all states."""
    blocks = tl.cdiv(P, BP)
    segment = tl.program_id(0) // blocks
    series, s = (segment // S).to(tl.int64), segment % S
    column = tl.program_id(0) % blocks * BP + tl.arange(0, BP)
    inside = column < P
    count = min(R, L - s * R)
    hr, hi = _load(starts, (series * S + s) * P + column, inside, COMPLEX)
    for i in range(count):
        k = s * R + i
        if BACKWARDS:
            k = s * R + count - 1 - i
        at = (series * L + k) * P + column
        ar, ai = _factor(a, series, k, L, column, batch_stride, row_stride, inside, COMPLEX, BACKWARDS)
        br, bi = _load(b, at, inside, COMPLEX)
        hr, hi = _times(ar, ai, hr, hi, COMPLEX)
        hr, hi = hr + br, hi + bi
        _store(h, at, hr, hi, inside, COMPLEX)


# --- h_k = exp(Δ_k A) h_{k-1} + Δ_k u_k B_k, y_k = h_k C_k + D u_k: (BE, BN) states of BE channels in a program ---


@triton.jit
def _tile(rates, E, N, first, BE: tl.constexpr, BN: tl.constexpr):
    """Channels, states and their places in an (E, N) matrix, what is inside of it, and the rates A."""
    e, n = first + tl.arange(0, BE), tl.arange(0, BN)
    inside = (e < E)[:, None] & (n < N)[None, :]
    at = e[:, None] * N + n[None, :]
    return e, n, at, inside, tl.load(rates + at, mask=inside, other=0.0)


@triton.jit
def selective_ends(
    u, delta, writes, rates, ends, totals,
    L, E, N, S, R, lu, ld, lb,
    BE: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """(B, S, E, N) what each segment leaves of an empty start, and (B, S, E) the sum of its Δ."""
    blocks = tl.cdiv(E, BE)
    segment = (tl.program_id(0) // blocks).to(tl.int64)
    s = segment % S
    e, n, at, inside, A = _tile(rates, E, N, tl.program_id(0) % blocks * BE, BE, BN)
    row = segment // S * L + s * R
    h, total = tl.zeros((BE, BN), tl.float32), tl.zeros((BE,), tl.float32)
    for k in range(row, row + min(R, L - s * R)):
        d = tl.load(delta + k * ld + e, mask=e < E, other=0.0)
        x = tl.load(u + k * lu + e, mask=e < E, other=0.0)
        b = tl.load(writes + k * lb + n, mask=n < N, other=0.0)
        h = tl.exp(d[:, None] * A) * h + (d * x)[:, None] * b[None, :]
        total += d
    tl.store(ends + segment * E * N + at, h, mask=inside)
    tl.store(totals + segment * E + e, total, mask=e < E)


@triton.jit
def selective_carry(
    ends, totals, rates, starts,
    E, N, S,
    BE: tl.constexpr, BN: tl.constexpr, BACKWARDS: tl.constexpr,
):  # fmt: skip
    """(B, S, E, N) the state before each segment, or, backwards, what the rows after it want of its end."""
    blocks = tl.cdiv(E, BE)
    series = (tl.program_id(0) // blocks).to(tl.int64)
    e, _, at, inside, A = _tile(rates, E, N, tl.program_id(0) % blocks * BE, BE, BN)
    h = tl.zeros((BE, BN), tl.float32)
    for i in range(S):
        s = i
        if BACKWARDS:
            s = S - 1 - i
        segment = series * S + s
        tl.store(starts + segment * E * N + at, h, mask=inside)
        total = tl.load(totals + segment * E + e, mask=e < E, other=0.0)
        left = tl.load(ends + segment * E * N + at, mask=inside, other=0.0)
        h = tl.exp(total[:, None] * A) * h + left


@triton.jit
def selective_rows(
    u, delta, writes, reads, rates, skip, starts, y, marks,
    L, E, N, S, R, lu, ld, lb, lc,
    T: tl.constexpr, BE: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """(B, L, E) the output, and (B, S R / T, E, N) the state before every chunk of T rows."""
    blocks = tl.cdiv(E, BE)
    segment = (tl.program_id(0) // blocks).to(tl.int64)
    s = segment % S
    e, n, at, inside, A = _tile(rates, E, N, tl.program_id(0) % blocks * BE, BE, BN)
    D = tl.load(skip + e, mask=e < E, other=0.0)
    h = tl.load(starts + segment * E * N + at, mask=inside, other=0.0)
    last = segment // S * L + min(L, (s + 1) * R)  # the row after the segment
    for c in range(R // T):
        first = segment // S * L + s * R + c * T
        if first < last:
            tl.store(marks + (segment * (R // T) + c) * E * N + at, h, mask=inside)
        for k in range(first, min(first + T, last)):
            d = tl.load(delta + k * ld + e, mask=e < E, other=0.0)
            x = tl.load(u + k * lu + e, mask=e < E, other=0.0)
            b = tl.load(writes + k * lb + n, mask=n < N, other=0.0)
            read = tl.load(reads + k * lc + n, mask=n < N, other=0.0)
            h = tl.exp(d[:, None] * A) * h + (d * x)[:, None] * b[None, :]
            tl.store(y + k * E + e, tl.sum(h * read[None, :], axis=1) + D * x, mask=e < E)


@triton.jit
def selective_pulls(
    delta, reads, dy, rates, ends,
    L, E, N, S, R, ld, lc, ly,
    BE: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """(B, S, E, N) what each segment alone wants of the state before it."""
    blocks = tl.cdiv(E, BE)
    segment = (tl.program_id(0) // blocks).to(tl.int64)
    s = segment % S
    e, n, at, inside, A = _tile(rates, E, N, tl.program_id(0) % blocks * BE, BE, BN)
    row = segment // S * L + s * R
    count = min(R, L - s * R)
    pull = tl.zeros((BE, BN), tl.float32)
    for i in range(count):
        k = row + count - 1 - i
        d = tl.load(delta + k * ld + e, mask=e < E, other=0.0)
        w = tl.load(dy + k * ly + e, mask=e < E, other=0.0)
        read = tl.load(reads + k * lc + n, mask=n < N, other=0.0)
        pull = tl.exp(d[:, None] * A) * (pull + w[:, None] * read[None, :])
    tl.store(ends + segment * E * N + at, pull, mask=inside)


@triton.jit
def selective_gradients(
    u, delta, writes, reads, dy, rates, skip, marks, pulls, scratch, du, ddelta, dB, dC, dA, dD,
    L, E, N, S, R, lu, ld, lb, lc, ly, rows,
    T: tl.constexpr, BE: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Gradients, from the last row of a segment to the first: du, ddelta (B, L, E); a share each of dB and dC (blocks,
    B, L, N), dA (B, S, E, N) and dD (B, S, E), to be summed. `rows` is B L; scratch holds T states of each program.
    """
    blocks = tl.cdiv(E, BE)
    segment = (tl.program_id(0) // blocks).to(tl.int64)
    block = (tl.program_id(0) % blocks).to(tl.int64)
    s = segment % S
    e, n, at, inside, A = _tile(rates, E, N, tl.program_id(0) % blocks * BE, BE, BN)
    D = tl.load(skip + e, mask=e < E, other=0.0)
    pull = tl.load(pulls + segment * E * N + at, mask=inside, other=0.0)
    own = scratch + tl.program_id(0).to(tl.int64) * T * BE * BN
    own += tl.arange(0, BE)[:, None] * BN + tl.arange(0, BN)[None, :]
    sum_A, sum_D = tl.zeros((BE, BN), tl.float32), tl.zeros((BE,), tl.float32)
    last = segment // S * L + min(L, (s + 1) * R)
    for j in range(R // T):
        c = R // T - 1 - j
        first = segment // S * L + s * R + c * T
        count = min(T, last - first)  # not positive behind the end of the series
        h = tl.load(marks + (segment * (R // T) + c) * E * N + at, mask=inside & (count > 0), other=0.0)
        for i in range(count):
            k = first + i
            d = tl.load(delta + k * ld + e, mask=e < E, other=0.0)
            x = tl.load(u + k * lu + e, mask=e < E, other=0.0)
            b = tl.load(writes + k * lb + n, mask=n < N, other=0.0)
            tl.store(own + i * BE * BN, h)
            h = tl.exp(d[:, None] * A) * h + (d * x)[:, None] * b[None, :]
        tl.debug_barrier()  # another thread may read what this one wrote
        for i in range(count):
            k = first + count - 1 - i
            d = tl.load(delta + k * ld + e, mask=e < E, other=0.0)
            x = tl.load(u + k * lu + e, mask=e < E, other=0.0)
            w = tl.load(dy + k * ly + e, mask=e < E, other=0.0)
            b = tl.load(writes + k * lb + n, mask=n < N, other=0.0)
            read = tl.load(reads + k * lc + n, mask=n < N, other=0.0)
            before = tl.load(own + (count - 1 - i) * BE * BN)
            a = tl.exp(d[:, None] * A)
            kept = a * before
            h = kept + (d * x)[:, None] * b[None, :]
            g = pull + w[:, None] * read[None, :]  # gradient of h_k
            exponent = g * kept  # gradient of Δ A
            written = tl.sum(g * b[None, :], axis=1)
            tl.store(du + k * E + e, d * written + D * w, mask=e < E)
            tl.store(ddelta + k * E + e, tl.sum(exponent * A, axis=1) + x * written, mask=e < E)
            tl.store(dB + (block * rows + k) * N + n, tl.sum(g * (d * x)[:, None], axis=0), mask=n < N)
            tl.store(dC + (block * rows + k) * N + n, tl.sum(h * w[:, None], axis=0), mask=n < N)
            sum_A += exponent * d[:, None]
            sum_D += w * x
            pull = a * g
        tl.debug_barrier()  # before the next chunk writes over it
    tl.store(dA + segment * E * N + at, sum_A, mask=inside)
    tl.store(dD + segment * E + e, sum_D, mask=e < E)


def _parts(length: int, size: int) -> int:
    """How many parts of `size` hold `length`."""
    return -(-length // size)


def _segment_rows(length: int, programs: int, step: int) -> int:
    """Rows of a segment, a multiple of `step`: so many that `programs` beside each other make about PROGRAMS."""
    return _parts(_parts(length, max(1, PROGRAMS // programs)), step) * step


# --- launches of the linear scan ---


def states(a: Tensor, b: Tensor, begin: Tensor, backwards: bool = False) -> Tensor:
    """All states; backwards `g_k = b_k + conj(a_{k+1}) g_{k+1}`, with `begin` after the last row."""
    B, L, P = b.shape
    complex_ = b.is_complex()
    a = a.resolve_conj()
    if a.stride(2) != 1 and P > 1:
        a = a.contiguous()
    batch, row = a.stride()[:2]
    b, begin = b.resolve_conj().contiguous(), begin.resolve_conj().contiguous()
    blocks = _parts(P, COLUMNS)
    R = _segment_rows(L, B * blocks, step=1)
    S = _parts(L, R)
    ends, spans, starts, h = (torch.empty(n, dtype=b.dtype, device=b.device) for n in [(B, S, P)] * 3 + [b.shape])
    real = [torch.view_as_real(x) if complex_ else x for x in (a, b, begin, ends, spans, starts, h)]
    a_, b_, begin_, ends_, spans_, starts_, h_ = real
    how: dict[str, Any] = {"BP": COLUMNS, "COMPLEX": complex_, "BACKWARDS": backwards, "num_warps": 1}
    sizes = (L, P, S, R, batch, row)
    start_kernel(linear_ends, (B * S * blocks,), (a_, b_, ends_, spans_), sizes, **how)
    start_kernel(linear_carry, (B * blocks,), (ends_, spans_, begin_, starts_), (P, S), **how)
    start_kernel(linear_rows, (B * S * blocks,), (a_, b_, starts_, h_), sizes, **how)
    return h


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, begin: Tensor) -> Tensor:
        h = states(a, b, begin)
        ctx.save_for_backward(a, h, begin)
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dh: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a, h, begin = ctx.saved_tensors
        g = states(a, dh, torch.zeros_like(begin), backwards=True)
        return g * states_before(h, begin).conj(), g, a[:, 0].conj() * g[:, 0]


# --- launches of the selective scan ---


class Tile(NamedTuple):
    """Of one program: BE channels, of which there are `blocks`, with BN states each."""

    blocks: int
    BE: int
    BN: int

    @property
    def options(self) -> dict[str, Any]:
        return {"BE": self.BE, "BN": self.BN, "num_warps": max(1, min(8, self.BE * self.BN // STATES))}


def make_plan(u: Tensor, A: Tensor) -> tuple[Plan, Tile]:
    """Few states a channel: many channels to a warp. Many: sixteen channels to several warps."""
    (B, L, E), N = u.shape, A.shape[1]
    BN = max(4, power_of_two(N))
    BE = min(CHANNELS if BN * CHANNELS <= STATES else CHANNELS // 2, max(4, power_of_two(E)))
    blocks = _parts(E, BE)
    R = _segment_rows(L, B * blocks, CHUNK)
    return Plan(B, L, E, 1, N, CHUNK, R // CHUNK, _parts(L, R), "ieee", causal=True), Tile(blocks, BE, BN)


def _sizes(plan: Plan) -> tuple[int, ...]:
    """L, E, N, S, R of the kernels."""
    return plan.L, plan.H, plan.V, plan.segments, plan.rows


def _rows(x: Tensor) -> tuple[Tensor, int]:
    """A (B, L, ·) tensor whose rows lie equally far apart, and how far."""
    if x.stride(2) != 1 or x.stride(0) != x.shape[1] * x.stride(1):
        x = x.contiguous()
    return x, x.stride(1)


class _Selective(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
        plan, tile = make_plan(u, A)
        grid, states_of = (plan.B * plan.segments * tile.blocks,), (plan.B, plan.segments, plan.H, plan.V)
        (u, lu), (delta, ld), (B, lb), (C, lc), A, D = *map(_rows, (u, delta, B, C)), A.contiguous(), D.contiguous()
        ends, starts, totals = u.new_empty(states_of), u.new_empty(states_of), u.new_empty(states_of[:3])
        y = u.new_empty(plan.B, plan.L, plan.H)
        marks = u.new_empty(plan.B, plan.segments, plan.chunks, plan.H, plan.V)
        start_kernel(selective_ends, grid, (u, delta, B, A, ends, totals), (*_sizes(plan), lu, ld, lb), **tile.options)
        _carry(plan, tile, ends, totals, A, starts, backwards=False)
        start_kernel(
            selective_rows, grid, (u, delta, B, C, A, D, starts, y, marks), (*_sizes(plan), lu, ld, lb, lc),
            T=CHUNK, **tile.options,
        )  # fmt: skip
        ctx.save_for_backward(u, delta, A, B, C, D, totals, marks)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, ...]:
        u, delta, A, B, C, D, totals, marks = ctx.saved_tensors
        plan, tile = make_plan(u, A)
        grid, states_of = (plan.B * plan.segments * tile.blocks,), (plan.B, plan.segments, plan.H, plan.V)
        (u, lu), (delta, ld), (B, lb), (C, lc), (dy, ly) = map(_rows, (u, delta, B, C, dy))
        ends, pulls = u.new_empty(states_of), u.new_empty(states_of)
        start_kernel(selective_pulls, grid, (delta, C, dy, A, ends), (*_sizes(plan), ld, lc, ly), **tile.options)
        _carry(plan, tile, ends, totals, A, pulls, backwards=True)
        scratch = u.new_empty(*grid, CHUNK, tile.BE, tile.BN)
        du, ddelta = u.new_empty(plan.B, plan.L, plan.H), u.new_empty(plan.B, plan.L, plan.H)
        dB, dC = (u.new_empty(tile.blocks, plan.B, plan.L, plan.V) for _ in range(2))
        dA, dD = torch.empty_like(ends), torch.empty_like(totals)
        start_kernel(
            selective_gradients, grid,
            (u, delta, B, C, dy, A, D, marks, pulls, scratch, du, ddelta, dB, dC, dA, dD),
            (*_sizes(plan), lu, ld, lb, lc, ly, plan.B * plan.L), T=CHUNK, **tile.options,
        )  # fmt: skip
        return du, ddelta, dA.sum((0, 1)), dB.sum(0), dC.sum(0), dD.sum((0, 1))


def _carry(plan: Plan, tile: Tile, ends: Tensor, totals: Tensor, A: Tensor, starts: Tensor, backwards: bool) -> None:
    start_kernel(
        selective_carry, (plan.B * tile.blocks,), (ends, totals, A, starts), (plan.H, plan.V, plan.segments),
        BACKWARDS=backwards, **tile.options,
    )  # fmt: skip
