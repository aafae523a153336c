"""The same recurrences in plain PyTorch, without a loop over rows.

`linear` cuts L rows into about √L segments and goes through all segments at once, three times: what each leaves if it
starts empty, then from segment to segment, then the states from the true starts. About 3 √L operations on large
tensors. `selective` goes through chunks of about √L rows; the states of a chunk, (B, √L, E, N), are formed from its
rows, read and forgotten. What is kept are the rows and the states between chunks, and the backward pass forms those of
each chunk again: O(B √L E N) numbers beside the O(B L (E + N)) of the rows.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable


def linear(a: Tensor, b: Tensor, state: Tensor) -> Tensor:
    """(B, L, P), (B, L, P), (B, P) -> (B, L, P)"""
    return _Linear.apply(a, b, state)


def selective(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
    """(B, L, E), (B, L, E), (E, N), (B, L, N), (B, L, N), (E,) -> (B, L, E)"""
    return _Selective.apply(u, delta, A, B, C, D)


def states(a: Tensor, b: Tensor, start: Tensor) -> Tensor:
    """(B, L, *X), (B, L, *X), (B, *X) -> (B, L, *X), all states of `h_k = a_k h_{k-1} + b_k`."""
    L = b.shape[1]
    rows = math.isqrt(L - 1) + 1  # of a segment
    a, b = _cut(a, rows), _cut(b, rows)  # (B, S, rows, *X)
    left, kept = b[:, :, 0], a[:, :, 0]  # of an empty start, and the share of the true one
    for k in range(1, rows):
        left, kept = torch.addcmul(b[:, :, k], a[:, :, k], left), kept * a[:, :, k]
    starts = [start]
    for s in range(b.shape[1] - 1):
        starts.append(torch.addcmul(left[:, s], kept[:, s], starts[-1]))
    h, state = torch.empty_like(b), torch.stack(starts, dim=1)
    for k in range(rows):
        state = torch.addcmul(b[:, :, k], a[:, :, k], state)
        h[:, :, k] = state
    return h.flatten(1, 2)[:, :L]


def states_back(a: Tensor, b: Tensor) -> Tensor:
    """The same from the last row to the first: `g_k = b_k + a_{k+1} g_{k+1}`, nothing after the last."""
    factors = torch.cat([torch.zeros_like(a[:, :1]), a[:, 1:].flip(1)], dim=1)
    return states(factors, b.flip(1), torch.zeros_like(b[:, 0])).flip(1)


def _cut(x: Tensor, rows: int) -> Tensor:
    """(B, L, *X) -> (B, S, rows, *X), zeros after the last row."""
    missing = -x.shape[1] % rows
    if missing:
        x = F.pad(x, (0, 0) * (x.dim() - 2) + (0, missing))
    return x.unflatten(1, (-1, rows))


def before(h: Tensor, start: Tensor) -> Tensor:
    """(B, L, *X), (B, *X) -> (B, L, *X), the state before each row."""
    return torch.cat([start[:, None], h[:, :-1]], dim=1)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, start: Tensor) -> Tensor:
        h = states(a, b, start)
        ctx.save_for_backward(a, h, start)
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dh: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a, h, start = ctx.saved_tensors
        g = states_back(a.conj(), dh)
        return g * before(h, start).conj(), g, a[:, 0].conj() * g[:, 0]


class _Selective(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
        y, state, starts = D * u, u.new_zeros(u.shape[0], *A.shape), []
        for rows in _chunks(u.shape[1]):
            starts.append(state)
            h = _chunk_states(u[:, rows], delta[:, rows], A, B[:, rows], state)[1]
            y[:, rows] += torch.einsum("blen,bln->ble", h, C[:, rows])
            state = h[:, -1].clone()  # a view would keep the states of the whole chunk
        ctx.save_for_backward(u, delta, A, B, C, D, torch.stack(starts, dim=1))
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, ...]:
        u, delta, A, B, C, D, starts = ctx.saved_tensors
        du, ddelta, dA = D * dy, torch.empty_like(delta), torch.zeros_like(A)
        dB, dC = torch.empty_like(B), torch.empty_like(C)
        pull = torch.zeros_like(starts[:, 0])  # (B, E, N), what later rows want of the state at the end of a chunk
        for i, rows in reversed(list(enumerate(_chunks(u.shape[1])))):
            x, d, writes, w = u[:, rows], delta[:, rows], B[:, rows], dy[:, rows]
            a, h = _chunk_states(x, d, A, writes, starts[:, i])
            dC[:, rows] = torch.einsum("ble,blen->bln", w, h)
            wanted = w[..., None] * C[:, rows, None, :]
            wanted[:, -1] += pull
            g = states_back(a, wanted)  # (B, T, E, N) gradient of the states
            pull = a[:, 0] * g[:, 0]
            dB[:, rows] = torch.einsum("blen,ble->bln", g, d * x)
            written = torch.einsum("blen,bln->ble", g, writes)
            du[:, rows] += d * written
            exponent = g.mul_(a).mul_(before(h, starts[:, i]))  # gradient of Δ A
            dA += torch.einsum("blen,ble->en", exponent, d)
            ddelta[:, rows] = torch.einsum("blen,en->ble", exponent, A) + x * written
        return du, ddelta, dA, dB, dC, (dy * u).sum(dim=(0, 1))


def _chunk_states(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """The factors and the states of a chunk, (B, T, E, N) each."""
    a = torch.exp(delta[..., None] * A)
    return a, states(a, (delta * u)[..., None] * B[:, :, None, :], start)


def _chunks(length: int) -> list[slice]:
    rows = math.isqrt(length - 1) + 1
    return [slice(first, min(first + rows, length)) for first in range(0, length, rows)]
