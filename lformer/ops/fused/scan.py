"""The two recurrences as functions that autograd knows, and the launches of their kernels.

Deterministic: no atomics, and sums over programs are taken in a fixed order. For the backward pass of a selective scan
only its rows are kept, and the state before every chunk of `CHUNK` of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lformer.ops.fused import scan_kernels as kernels
from lformer.ops.fused.launching import start
from lformer.ops.scan_parallel import before

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


def _parts(length: int, size: int) -> int:
    """How many parts of `size` hold `length`."""
    return -(-length // size)


def _padded(size: int) -> int:
    """The next power of two."""
    return 1 << (size - 1).bit_length()


def _segment_rows(length: int, programs: int, step: int) -> int:
    """Rows of a segment, a multiple of `step`: so many that `programs` beside each other make about PROGRAMS."""
    return _parts(_parts(length, max(1, PROGRAMS // programs)), step) * step


# --- linear ---


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
    start(kernels.linear_ends, (B * S * blocks,), (a_, b_, ends_, spans_), sizes, **how)
    start(kernels.linear_carry, (B * blocks,), (ends_, spans_, begin_, starts_), (P, S), **how)
    start(kernels.linear_rows, (B * S * blocks,), (a_, b_, starts_, h_), sizes, **how)
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
        return g * before(h, begin).conj(), g, a[:, 0].conj() * g[:, 0]


# --- selective ---


class Plan(NamedTuple):
    """Sizes of one call: S segments of R rows, E channels in `blocks` of BE with BN states each."""

    B: int
    L: int
    E: int
    N: int
    S: int
    R: int
    blocks: int
    BE: int
    BN: int

    @property
    def tile(self) -> dict[str, Any]:
        return {"BE": self.BE, "BN": self.BN, "num_warps": max(1, min(8, self.BE * self.BN // STATES))}

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.L, self.E, self.N, self.S, self.R

    @property
    def grid(self) -> tuple[int]:
        return (self.B * self.S * self.blocks,)


def make_plan(u: Tensor, A: Tensor) -> Plan:
    """Few states a channel: many channels to a warp. Many: sixteen channels to several warps."""
    (B, L, E), N = u.shape, A.shape[1]
    BN = max(4, _padded(N))
    BE = min(CHANNELS if BN * CHANNELS <= STATES else CHANNELS // 2, max(4, _padded(E)))
    blocks = _parts(E, BE)
    R = _segment_rows(L, B * blocks, CHUNK)
    return Plan(B, L, E, N, _parts(L, R), R, blocks, BE, BN)


def _rows(x: Tensor) -> tuple[Tensor, int]:
    """A (B, L, ·) tensor whose rows lie equally far apart, and how far."""
    if x.stride(2) != 1 or x.stride(0) != x.shape[1] * x.stride(1):
        x = x.contiguous()
    return x, x.stride(1)


class _Selective(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
        plan = make_plan(u, A)
        (u, lu), (delta, ld), (B, lb), (C, lc), A, D = *map(_rows, (u, delta, B, C)), A.contiguous(), D.contiguous()
        ends, starts = u.new_empty(plan.B, plan.S, plan.E, plan.N), u.new_empty(plan.B, plan.S, plan.E, plan.N)
        totals = u.new_empty(plan.B, plan.S, plan.E)
        y = u.new_empty(plan.B, plan.L, plan.E)
        marks = u.new_empty(plan.B, plan.S, plan.R // CHUNK, plan.E, plan.N)
        start(kernels.selective_ends, plan.grid, (u, delta, B, A, ends, totals), (*plan.sizes, lu, ld, lb), **plan.tile)
        _carry(plan, ends, totals, A, starts, backwards=False)
        start(
            kernels.selective_rows, plan.grid, (u, delta, B, C, A, D, starts, y, marks), (*plan.sizes, lu, ld, lb, lc),
            T=CHUNK, **plan.tile,
        )  # fmt: skip
        ctx.save_for_backward(u, delta, A, B, C, D, totals, marks)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, ...]:
        u, delta, A, B, C, D, totals, marks = ctx.saved_tensors
        plan = make_plan(u, A)
        (u, lu), (delta, ld), (B, lb), (C, lc), (dy, ly) = map(_rows, (u, delta, B, C, dy))
        ends, pulls = u.new_empty(plan.B, plan.S, plan.E, plan.N), u.new_empty(plan.B, plan.S, plan.E, plan.N)
        start(kernels.selective_pulls, plan.grid, (delta, C, dy, A, ends), (*plan.sizes, ld, lc, ly), **plan.tile)
        _carry(plan, ends, totals, A, pulls, backwards=True)
        scratch = u.new_empty(*plan.grid, CHUNK, plan.BE, plan.BN)
        du, ddelta = u.new_empty(plan.B, plan.L, plan.E), u.new_empty(plan.B, plan.L, plan.E)
        dB, dC = (u.new_empty(plan.blocks, plan.B, plan.L, plan.N) for _ in range(2))
        dA, dD = torch.empty_like(ends), torch.empty_like(totals)
        start(
            kernels.selective_gradients, plan.grid,
            (u, delta, B, C, dy, A, D, marks, pulls, scratch, du, ddelta, dB, dC, dA, dD),
            (*plan.sizes, lu, ld, lb, lc, ly, plan.B * plan.L), T=CHUNK, **plan.tile,
        )  # fmt: skip
        return du, ddelta, dA.sum((0, 1)), dB.sum(0), dC.sum(0), dD.sum((0, 1))


def _carry(plan: Plan, ends: Tensor, totals: Tensor, A: Tensor, starts: Tensor, backwards: bool) -> None:
    start(
        kernels.selective_carry, (plan.B * plan.blocks,), (ends, totals, A, starts), (plan.E, plan.N, plan.S),
        BACKWARDS=backwards, **plan.tile,
    )  # fmt: skip
