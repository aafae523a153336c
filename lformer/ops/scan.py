"""Linear recurrences over the rows of series: check, choose a backend, call it. Needs torch alone; triton for "fused".

    linear_scan      h_k = a_k ⊙ h_{k-1} + b_k                                                  real or complex
    selective_scan   h_k = exp(Δ_k A) ⊙ h_{k-1} + (Δ_k ⊙ u_k) B_kᵀ,  y_k = h_k C_k + D ⊙ u_k

The states of a selective scan, N for each of E channels, are never all held: they are formed chunk by chunk, and again
in the backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from lformer.ops import checks, fused, scan_parallel, scan_reference


class Scans(NamedTuple):
    """The two recurrences of one backend."""

    linear: Callable[[Tensor, Tensor, Tensor], Tensor]
    selective: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


SCANS: dict[str, Scans] = {  # in plain PyTorch, on every device; beside them stands "fused"
    "reference": Scans(scan_reference.linear, scan_reference.selective),
    "parallel": Scans(scan_parallel.linear, scan_parallel.selective),
}


def choose_scan(backend: str, *operands: Tensor) -> str:
    """The name of the backend that a scan of these operands runs: with "auto", "fused" on CUDA where it takes them."""
    if backend not in ("auto", "fused", *SCANS):
        known = ", ".join(map(repr, (*SCANS, "fused")))
        raise ValueError(f"backend must be 'auto' or one of {known}; got {backend!r}.")
    if backend not in ("auto", "fused"):
        return backend
    reason = fused.scan_unsupported(*operands)
    if backend == "auto":
        return "fused" if operands[0].is_cuda and not reason else "parallel"
    if reason:
        raise ValueError(f"backend 'fused' cannot run here: {reason}. Use backend='auto' or 'parallel'.")
    return backend


def _scans(backend: str, *operands: Tensor) -> Scans:
    chosen = choose_scan(backend, *operands)
    if chosen != "fused":
        return SCANS[chosen]
    from lformer.ops.fused.scan import linear, selective  # imports triton

    return Scans(linear, selective)


def linear_scan(a: Tensor, b: Tensor, state: Tensor | None = None, backend: str = "auto") -> Tensor:
    """All states of `h_k = a_k ⊙ h_{k-1} + b_k`, from `h_0 = state`.

    Args:
        a: (B, L, P), or what broadcasts to it, such as (P,); real or complex.
        b: (B, L, P).
        state: (B, P) before the first row; zeros if None.
        backend: "auto", "fused", "parallel" or "reference".

    Returns:
        (B, L, P) in float32 or wider, complex if a, b or state is.

    Example:
        >>> linear_scan(torch.tensor([0.5]), torch.ones(1, 4, 1)).flatten().tolist()
        [1.0, 1.5, 1.75, 1.875]
    """
    if b.dim() != 3 or (state is not None and state.shape != (b.shape[0], b.shape[2])):
        found = "" if state is None else f" and a state of {tuple(state.shape)}"
        raise ValueError(f"linear_scan takes b (B, L, P) and a state (B, P); got b of {tuple(b.shape)}{found}.")
    try:
        a = a.expand(b.shape)
    except RuntimeError:
        raise ValueError(f"a must broadcast to b; got {tuple(a.shape)} and {tuple(b.shape)}.") from None
    given = (a, b) if state is None else (a, b, state)
    dtype = checks.wide_dtype(*(x.real if x.is_complex() else x for x in given))
    dtype = dtype.to_complex() if any(x.is_complex() for x in given) else dtype
    a, b = a.to(dtype), b.to(dtype)
    if b.numel() == 0:
        return b
    state = b.new_zeros(b.shape[0], b.shape[2]) if state is None else state.to(dtype)
    with _no_autocast(b):
        h = _scans(backend, a, b, state).linear(a, b, state)
    _require_finite(h, "the states of linear_scan")
    return h


def selective_scan(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor, backend: str = "auto"
) -> Tensor:
    """Read a memory whose pace, write and read weights come from the rows themselves.

    Args:
        u: (B, L, E) rows.
        delta: (B, L, E) Δ >= 0, how far each channel moves on.
        A: (E, N) rates; not positive, or states grow.
        B: (B, L, N) write weights.
        C: (B, L, N) read weights.
        D: (E,) weight of the row itself.
        backend: "auto", "fused", "parallel" or "reference".

    Returns:
        (B, L, E) in float32 or wider.

    Example:
        >>> u, delta, B, C = torch.randn(2, 9, 8), torch.rand(2, 9, 8), torch.randn(2, 9, 4), torch.randn(2, 9, 4)
        >>> selective_scan(u, delta, -torch.rand(8, 4), B, C, torch.ones(8)).shape
        torch.Size([2, 9, 8])
    """
    rows, (E, N) = u.shape[:2], A.shape
    expected = {"u": (*rows, E), "delta": (*rows, E), "B": (*rows, N), "C": (*rows, N), "D": (E,)}
    for (name, shape), x in zip(expected.items(), (u, delta, B, C, D), strict=True):
        if tuple(x.shape) != shape:
            raise ValueError(f"with A of {(E, N)}, {name} must be {shape}; got {tuple(x.shape)}.")
    dtype = checks.wide_dtype(u, delta, A, B, C, D)
    u, delta, A, B, C, D = (x.to(dtype) for x in (u, delta, A, B, C, D))
    if u.numel() == 0:
        return u
    with _no_autocast(u):
        y = _scans(backend, u, delta, A, B, C, D).selective(u, delta, A, B, C, D)
    _require_finite(y, "the outputs of selective_scan")
    return y


def _no_autocast(x: Tensor) -> torch.autocast | nullcontext[None]:
    kind = x.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


def _require_finite(result: Tensor, what: str) -> None:
    """Refuse to hand out inf or NaN, where values are looked at."""
    if not checks.readable(result) or math.isfinite(float(result.detach().abs().sum())):
        return
    where = checks.first_bad(~torch.isfinite(result))
    if where is not None:
        raise OverflowError(
            f"{what} are not finite at {list(where)} (series, row, entry): the operands hold inf or NaN, or states "
            "grow from row to row. Check the inputs, and that no factor is larger than 1 in magnitude."
        )
