# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""From the gates of all rows to the decay of a memory and back, for `layers.py`: numbers of (B, L, H) alone.

Naive form: `ops.gates`. With x̃ = σ(logits), μ = σ(theta), u_n = δ_n (μ x̃_{n-1} + (1 - μ) x̃_n) and D the gradient of û,

    "sequence"   û_n = u_n / U       du_n = (D_n - Σ_m D_m û_m) / U
    "prefix"     û_n = u_n / U_n     du_n = D_n / U_n - Σ_{m>=n} D_m û_m / U_m

A series is cut into S segments, one program each, which first leave their sums; a sum over later rows is the sum over
all less that over earlier ones. Running sums are taken in float64. Logits are columns of a wider tensor.

Where some rows only read, the same is done in plain PyTorch, both ways, without atomics and without autograd:
gradients then repeat to the last bit, and a step can be recorded.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from lformer.ops.fused.gate import interpolation, inverse, mean_rate
from lformer.ops.fused.launch import power_of_two, row_stride, start_kernel
from lformer.ops.fused.tiles import kernel
from lformer.ops.gates import FADED, shift

SEGMENTS = 128  # of a series, at most
ELEMENTS = 1024  # of a tile


@triton.jit
def segment_at(L, S, segment_rows):
    """Series, first row and end of this program."""
    series, segment = (tl.program_id(0) // S).to(tl.int64), tl.program_id(0) % S
    start = segment * segment_rows
    return series, segment, start, tl.minimum(start + segment_rows, L)


@triton.jit
def load_gates(logits, first, at, L, stride, H: tl.constexpr, BH: tl.constexpr):
    """x̃ of rows `at` of a series as a (T, BH) tile, 0 outside of the series and behind the heads."""
    head = tl.arange(0, BH)
    inside = ((at >= 0) & (at < L))[:, None] & (head < H)[None, :]
    tile = tl.load(logits + (first + at)[:, None] * stride + head[None, :], mask=inside, other=0.0).to(tl.float32)
    return tl.where(inside, 1 / (1 + tl.exp(-tile)), 0.0)


@triton.jit
def load_deltas(deltas, first, at, L):
    """(T, 1)"""
    return tl.load(deltas + first + at, mask=at < L, other=0.0)[:, None]


@triton.jit
def load_heads(source, first, at, L, H: tl.constexpr, BH: tl.constexpr):
    """Rows of (B, L, H) as a (T, BH) tile, 0 outside."""
    head = tl.arange(0, BH)
    inside = (at < L)[:, None] & (head < H)[None, :]
    return tl.load(source + (first + at)[:, None] * H + head[None, :], mask=inside, other=0.0)


@triton.jit
def load_sums(sums, series, S, H: tl.constexpr, BH: tl.constexpr, PARTS: tl.constexpr):
    """(B, S, H) -> (PARTS, BH) of one series; PARTS is a power of two that holds S."""
    part, head = tl.arange(0, PARTS), tl.arange(0, BH)
    inside = (part < S)[:, None] & (head < H)[None, :]
    return tl.load(sums + (series * S + part)[:, None] * H + head[None, :], mask=inside, other=0.0)


@triton.jit
def earlier_than(sums, segment, PARTS: tl.constexpr):
    """(PARTS, BH) -> (BH,) sum over the segments before one"""
    return tl.sum(tl.where((tl.arange(0, PARTS) < segment)[:, None], sums, 0.0), axis=0)


@triton.jit
def store_sum(sums, total, H: tl.constexpr, BH: tl.constexpr):
    """(BH,) -> the place of this program in (B, S, H)"""
    head = tl.arange(0, BH)
    tl.store(sums + tl.program_id(0).to(tl.int64) * H + head, total, mask=head < H)


# --- forwards ---


@kernel
def budget_kernel(
    logits, deltas, theta, budgets, L, S, segment_rows, stride,
    H: tl.constexpr, BH: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    """logits (B, L, H), rows `stride` apart, deltas (B, L), theta (H,) -> budgets (B, S, H) float64: Σ u"""
    series, _, start, end = segment_at(L, S, segment_rows)
    first, head = series * L, tl.arange(0, BH)
    mu = interpolation(theta, head, head < H)[None, :]
    total = tl.zeros((BH,), tl.float64)
    for begin in range(start, end, T):
        at = begin + tl.arange(0, T)
        here = load_gates(logits, first, at, end, stride, H, BH)
        u = load_deltas(deltas, first, at, end) * (
            mean_rate(load_gates(logits, first, at - 1, end, stride, H, BH), here, mu)
        )
        total += tl.sum(u.to(tl.float64), axis=0)
    store_sum(budgets, total, H, BH)


@kernel
def share_kernel(
    logits, deltas, theta, budgets, decay, L, S, segment_rows, stride,
    H: tl.constexpr, BH: tl.constexpr, T: tl.constexpr, PARTS: tl.constexpr, PREFIX: tl.constexpr,
):  # fmt: skip
    """As above, and budgets -> decay (B, L, H) float32: û"""
    series, segment, start, end = segment_at(L, S, segment_rows)
    first, head = series * L, tl.arange(0, BH)
    mu = interpolation(theta, head, head < H)[None, :]
    sums = load_sums(budgets, series, S, H, BH, PARTS)
    whole, sofar = tl.sum(sums, axis=0)[None, :], earlier_than(sums, segment, PARTS)
    for begin in range(start, end, T):
        at = begin + tl.arange(0, T)
        here = load_gates(logits, first, at, end, stride, H, BH)
        u = load_deltas(deltas, first, at, end) * (
            mean_rate(load_gates(logits, first, at - 1, end, stride, H, BH), here, mu)
        )
        if PREFIX:
            wide = u.to(tl.float64)
            part = inverse(sofar[None, :] + tl.cumsum(wide, axis=0))
            sofar += tl.sum(wide, axis=0)
        else:
            part = inverse(whole)
        inside = (at < end)[:, None] & (head < H)[None, :]
        tl.store(decay + (first + at)[:, None] * H + head[None, :], (u * part).to(tl.float32), mask=inside)


def make_decay(logits: Tensor, deltas: Tensor, theta: Tensor, prefix: bool) -> tuple[Tensor, Tensor]:
    """(B, L, H), (B, L), (H,) -> decay û (B, L, H), and the sums of u over segments, (B, S, H), for the way back."""
    B, L, H = logits.shape
    shape, segments, numbers = _plan(logits)
    budgets = logits.new_empty(B, segments, H, dtype=torch.float64)
    decay = logits.new_empty(B, L, H, dtype=torch.float32)
    start_kernel(budget_kernel, (B * segments,), (logits, deltas, theta, budgets), numbers, **shape, num_warps=4)
    start_kernel(
        share_kernel, (B * segments,), (logits, deltas, theta, budgets, decay), numbers,
        **shape, PARTS=power_of_two(segments), PREFIX=prefix, num_warps=4,
    )  # fmt: skip
    return decay, budgets


def _plan(logits: Tensor) -> tuple[dict[str, int], int, tuple[int, int, int, int]]:
    """What kernels are compiled for, how many segments a series has, and the numbers of every call."""
    _, L, H = logits.shape
    columns = max(16, power_of_two(H))
    T = max(16, ELEMENTS // columns)
    rows = triton.cdiv(triton.cdiv(L, SEGMENTS), T) * T
    segments = triton.cdiv(L, rows)
    return {"H": H, "BH": columns, "T": T}, segments, (L, segments, rows, row_stride(logits))


# --- backwards ---


@kernel
def share_sums_kernel(
    logits, deltas, theta, budgets, decay, slope, shares, L, S, segment_rows, stride,
    H: tl.constexpr, BH: tl.constexpr, T: tl.constexpr, PARTS: tl.constexpr, PREFIX: tl.constexpr,
):  # fmt: skip
    """decay, its gradient `slope` (B, L, H) -> shares (B, S, H) float64: Σ D û, with PREFIX Σ D û / U_n"""
    series, segment, start, end = segment_at(L, S, segment_rows)
    first, head = series * L, tl.arange(0, BH)
    mu = interpolation(theta, head, head < H)[None, :]
    sofar = earlier_than(load_sums(budgets, series, S, H, BH, PARTS), segment, PARTS)
    total = tl.zeros((BH,), tl.float64)
    for begin in range(start, end, T):
        at = begin + tl.arange(0, T)
        part = (
            load_heads(slope, first, at, end, H, BH).to(tl.float64)
            * load_heads(decay, first, at, end, H, BH).to(tl.float64)
        )  # fmt: skip
        if PREFIX:
            here = load_gates(logits, first, at, end, stride, H, BH)
            before = load_gates(logits, first, at - 1, end, stride, H, BH)
            u = (load_deltas(deltas, first, at, end) * mean_rate(before, here, mu)).to(tl.float64)
            part *= inverse(sofar[None, :] + tl.cumsum(u, axis=0))
            sofar += tl.sum(u, axis=0)
        total += tl.sum(part, axis=0)
    store_sum(shares, total, H, BH)


@kernel
def logits_kernel(
    logits, deltas, theta, budgets, decay, slope, shares, dlogits, parts, L, S, segment_rows, stride, to_stride,
    H: tl.constexpr, BH: tl.constexpr, T: tl.constexpr, PARTS: tl.constexpr, PREFIX: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """As above, and shares -> dlogits, COLUMNS wide with zeros behind the heads, and parts (B S, H) of dtheta.

    x̃_n enters u_n and, as the earlier endpoint, u_{n+1}: both of their gradients are made for every row.
    """
    series, segment, start, end = segment_at(L, S, segment_rows)
    first, head = series * L, tl.arange(0, BH)
    mu = interpolation(theta, head, head < H)[None, :]
    sums, changes = load_sums(budgets, series, S, H, BH, PARTS), load_sums(shares, series, S, H, BH, PARTS)
    unit = inverse(tl.sum(sums, axis=0))[None, :]
    sofar, later = earlier_than(sums, segment, PARTS), tl.sum(changes, axis=0)
    if PREFIX:
        later -= earlier_than(changes, segment, PARTS)
    of_mu = tl.zeros((BH,), tl.float64)
    for begin in range(start, end, T):
        at = begin + tl.arange(0, T)
        before = load_gates(logits, first, at - 1, L, stride, H, BH)
        here = load_gates(logits, first, at, L, stride, H, BH)
        after = load_gates(logits, first, at + 1, L, stride, H, BH)
        delta, ahead = load_deltas(deltas, first, at, L), load_deltas(deltas, first, at + 1, L)
        own = load_heads(slope, first, at, L, H, BH).to(tl.float64)
        following = load_heads(slope, first, at + 1, L, H, BH).to(tl.float64)
        if PREFIX:
            u = (delta * mean_rate(before, here, mu)).to(tl.float64)
            budget = sofar[None, :] + tl.cumsum(u, axis=0)
            share = inverse(budget)
            part = tl.where((at < end)[:, None], own * load_heads(decay, first, at, L, H, BH) * share, 0.0)
            left = later[None, :] - tl.cumsum(part, axis=0)  # over rows after this one
            next_u = (ahead * mean_rate(here, after, mu)).to(tl.float64)
            du = own * share - left - part
            next_du = following * inverse(budget + next_u) - left
            sofar += tl.sum(tl.where((at < end)[:, None], u, 0.0), axis=0)
            later -= tl.sum(part, axis=0)
        else:
            du = (own - later[None, :]) * unit
            next_du = (following - later[None, :]) * unit
        to_gate = (1 - mu) * delta * du + mu * ahead * next_du
        of_mu += tl.sum(tl.where((at < end)[:, None], delta * du * (before - here), 0.0), axis=0)
        tile = tl.where((head < H)[None, :], to_gate.to(tl.float32) * here * (1 - here), 0.0)
        inside = (at < end)[:, None] & (head < COLUMNS)[None, :]
        target = dlogits + (first + at)[:, None] * to_stride + head[None, :]
        tl.store(target, tile.to(dlogits.dtype.element_ty), mask=inside)
    slope_of_mu = tl.sum(mu * (1 - mu), axis=0)
    store_sum(parts, (of_mu * slope_of_mu).to(tl.float32), H, BH)


def decay_backward(
    logits: Tensor,
    deltas: Tensor,
    theta: Tensor,
    decay: Tensor,
    budgets: Tensor,
    slope: Tensor,
    dlogits: Tensor,
    prefix: bool,
) -> Tensor:
    """Of `make_decay`, from the gradient of û, `slope` (B, L, H).

    Fills dlogits (B L, ·), whose columns behind the heads become 0; returns the gradient of theta, (H,) in float32.
    """
    B, _, H = logits.shape
    shape, segments, numbers = _plan(logits)
    options = {**shape, "PARTS": power_of_two(segments), "PREFIX": prefix, "num_warps": 4}
    shares, parts = torch.empty_like(budgets), logits.new_empty(B * segments, H, dtype=torch.float32)
    tensors = (logits, deltas, theta, budgets, decay, slope, shares)
    start_kernel(share_sums_kernel, (B * segments,), tensors, numbers, **options)
    start_kernel(
        logits_kernel, (B * segments,), (*tensors, dlogits, parts), (*numbers, dlogits.stride(0)),
        **options, COLUMNS=dlogits.shape[1],
    )  # fmt: skip
    return parts.sum(dim=0)


# --- with queries ---


class Queried(NamedTuple):
    """Gates, and how the decay of every row follows from them; (B, L, H), theta's (H,)."""

    gate: Tensor  # x̃
    previous: Tensor  # x̃ of the latest row that wrote
    mu: Tensor
    u: Tensor
    whole: Tensor  # what u is a share of, (B, 1, H) with "sequence"
    inverse: Tensor  # 1 over that, or 0 where there is nothing to share

    @property
    def shares(self) -> Tensor:
        return self.u * self.inverse


def _queried(logits: Tensor, deltas: Tensor, theta: Tensor, is_query: Tensor, prefix: bool) -> Queried:
    gate, mu = torch.sigmoid(logits.float()), torch.sigmoid(theta.float())
    previous = shift(gate, None, is_query)
    u = deltas[..., None] * torch.lerp(gate, previous, mu)
    writes = u.masked_fill(is_query[..., None], 0).double()
    # A reading row is measured against the past and itself.
    whole = writes.cumsum(dim=1) + (u - writes) if prefix else writes.sum(dim=1, keepdim=True)
    something = whole >= torch.finfo(torch.float32).tiny
    inverse = torch.where(something, 1 / torch.where(something, torch.maximum(whole, u / FADED), 1.0), 0.0)
    return Queried(gate, previous, mu, u, whole, inverse)


def make_query_decay(
    logits: Tensor, deltas: Tensor, theta: Tensor, is_query: Tensor, prefix: bool
) -> tuple[Tensor, Tensor]:
    """(B, L, H) decay of the rows that write, 0 where one reads; (B L, H) what readers find left of a memory, else 1"""
    shares = _queried(logits, deltas, theta, is_query, prefix).shares
    queries = is_query[..., None]
    left = torch.exp(-shares.masked_fill(~queries, 0))
    return shares.masked_fill(queries, 0).float(), left.flatten(0, 1).float()


def query_decay_backward(
    logits: Tensor,
    deltas: Tensor,
    theta: Tensor,
    is_query: Tensor,
    slope: Tensor,
    dreads: Tensor,
    dlogits: Tensor,
    prefix: bool,
) -> Tensor:
    """Of `make_query_decay`, from the gradients of its results: as `decay_backward`."""
    H, found, queries = theta.shape[0], _queried(logits, deltas, theta, is_query, prefix), is_query[..., None]
    gate, previous, mu, u, whole, inverse = found
    shares = found.shares
    slope = torch.where(queries, -torch.exp(-shares) * dreads.view_as(slope), slope)
    own = slope * inverse
    of_whole = torch.where(whole >= u / FADED, -own * shares, 0.0)
    if prefix:
        later = of_whole.sum(dim=1, keepdim=True) - of_whole.cumsum(dim=1) + of_whole
        du = own + torch.where(queries, of_whole, later)
    else:
        du = own + of_whole.sum(dim=1, keepdim=True).masked_fill(queries, 0)
    du = deltas[..., None] * du
    # The rows whose earlier endpoint a row is follow it, up to the next one that writes.
    through = (mu * du).cumsum(dim=1)
    until = _next_writing(is_query)[..., None].expand_as(through)
    to_gate = (1 - mu) * du + (through.gather(1, until) - through).masked_fill(queries, 0)
    dlogits[:, :H] = (to_gate * gate * (1 - gate)).flatten(0, 1)
    dlogits[:, H:] = 0
    return ((du * (previous - gate)).sum(dim=(0, 1)) * mu * (1 - mu)).float()


def _next_writing(is_query: Tensor) -> Tensor:
    """(B, L) bool -> (B, L) the next row that writes after each row; the last one where there is none"""
    L = is_query.shape[1]
    position = torch.arange(L, device=is_query.device).expand_as(is_query).masked_fill(is_query, L - 1)
    ahead = position.flip(1).cummin(dim=1).values.flip(1)
    return torch.cat([ahead[:, 1:], torch.full_like(ahead[:, :1], L - 1)], dim=1)
