"""Liquid gated attention on tensors: check, choose a backend, call it. Needs torch alone; triton for "fused"."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Literal, overload

import torch
from torch import Tensor

from lformer.ops import checks, fused, parallel, reference
from lformer.ops.gates import GateNorm, liquid_decay, normalise_decay

__all__ = ["BACKENDS", "GateNorm", "choose_backend", "liquid_decay", "liquid_gated_attention", "normalise_decay"]

Attention = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, bool], tuple[Tensor, Tensor]]

BACKENDS: dict[str, Attention] = {  # in plain PyTorch, on every device; beside them stands "fused"
    "reference": reference.attention,
    "parallel": parallel.attention,
}


def choose_backend(
    backend: str = "auto",
    q: Tensor | None = None,
    k: Tensor | None = None,
    v: Tensor | None = None,
    decay: Tensor | None = None,
    state: Tensor | None = None,
) -> str:
    """The name of the backend that a call with this `backend` and these tensors runs.

    The rule of "auto" stands here and nowhere else: "fused" on CUDA where its kernels take the tensors and products may
    be rounded (half precision, or TF32 allowed), else "parallel". Without tensors only the name is checked.
    """
    if backend not in ("auto", "fused", *BACKENDS):
        known = ", ".join(map(repr, (*BACKENDS, "fused")))
        raise ValueError(f"backend must be 'auto' or one of {known}; got {backend!r}.")
    if q is None or k is None or v is None or decay is None:
        return "parallel" if backend == "auto" else backend
    if backend == "auto":
        fuse = q.is_cuda and fused.rounds(q, k, v) and not fused.unsupported(q, k, v, decay, state)
        return "fused" if fuse else "parallel"
    if backend == "fused" and (reason := fused.unsupported(q, k, v, decay, state)):
        raise ValueError(f"backend 'fused' cannot run here: {reason}. Use backend='auto' or 'parallel'.")
    return backend


def _fused(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, state: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    from lformer.ops.fused.operator import attention  # imports triton

    return attention(q, k, v, decay, state, causal)


@overload
def liquid_gated_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    causal: bool = False,
    state: Tensor | None = None,
    return_state: Literal[False] = False,
    backend: str = "auto",
) -> Tensor: ...
@overload
def liquid_gated_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    causal: bool = False,
    state: Tensor | None = None,
    *,
    return_state: Literal[True],
    backend: str = "auto",
) -> tuple[Tensor, Tensor]: ...
def liquid_gated_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    causal: bool = False,
    state: Tensor | None = None,
    return_state: bool = False,
    backend: str = "auto",
) -> Tensor | tuple[Tensor, Tensor]:
    """Read a memory that fades with time: `S_n = g_n S_{n-1} + (1 - g_n) k_nᵀ v_n`, `y_n = q_n S_n`.

    Causal, row n reads rows 1 … n. Non-causal, every row reads every row: the sum over i runs over the whole
    series, with the same weights continued to i > n (paper, IV-B).

    Args:
        q: (B, L, H, K) queries.
        k: (B, L, H, K) keys.
        v: (B, L, H, V) values.
        decay: (B, L, H) `-log g >= 0`; 0 on padding, which then neither fades nor writes.
        causal: whether a row reads only what came before it, itself included.
        state: (B, H, K, V) memory before the first row; zeros if None. It may be wider than the rows, as that of a
            stream is: rows are then worked on in their own dtype, and what they leave is added to it in its dtype.
        return_state: also return the memory after the last row.
        backend: "auto", "fused" or one of `BACKENDS`; `choose_backend` tells which one a call runs.

    Returns:
        (B, L, H, V) in the dtype of `v`, and (B, H, K, V) in float32 or wider if the state is asked for.
        Everything is accumulated in float32, or in float64 if any of q, k, v and decay is, also under autocast.

    Example:
        >>> q = k = v = torch.randn(2, 100, 4, 16)
        >>> decay = torch.rand(2, 100, 4)
        >>> liquid_gated_attention(q, k, v, decay, causal=True).shape
        torch.Size([2, 100, 4, 16])
    """
    checks.attention_shapes(q, k, v, decay, state)
    chosen = choose_backend(backend, q, k, v, decay, state)
    checks.decay_valid(decay)
    dtype = checks.wide_dtype(q, k, v, decay)
    if not causal:
        checks.span_fits(decay, dtype, parallel.largest_span(dtype))
    rows = (q, k, v, decay)
    if chosen != "fused":  # its kernels widen what they load
        rows = (q.to(dtype), k.to(dtype), v.to(dtype), decay.to(dtype))
    run = _fused if chosen == "fused" else BACKENDS[chosen]
    wider = state if state is not None and checks.wide_dtype(state, q, k, v, decay) != dtype else None
    if state is None or wider is not None:
        state = torch.zeros(q.shape[0], *q.shape[2:], v.shape[-1], dtype=dtype, device=q.device)
    device = q.device.type
    with torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext():
        y, state = run(*rows, state.to(dtype), causal)
        if wider is not None:
            y, state = _continued(q.to(dtype), decay, y, state, wider)
    y = y.to(v.dtype)
    checks.finite_result(y, "the output of liquid_gated_attention")
    return (y, state) if return_state else y


def _continued(q: Tensor, decay: Tensor, y: Tensor, left: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """What rows read and leave, which began with an empty memory, as if they had begun with `state`.

    Both are linear in it. In a stream of millions of rows, each one changes the memory by less than the last digit of
    float32, so what a row leaves is added to the memory in float64.
    """
    c = decay.double().cumsum(dim=1)
    faded = torch.exp(-c).to(q.dtype)[..., None] * torch.einsum("blhk,bhkv->blhv", q, state.to(q.dtype))
    return y + faded, torch.exp(-decay.sum(dim=1, dtype=torch.float64))[..., None, None] * state + left
