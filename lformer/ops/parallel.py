"""The same numbers in plain PyTorch, in linear time and without a loop over steps (paper IV-B).

With `c_n` the running sum of the decay and `w_i = 1 - g_i`:

    non-causal   y_n = e^{-c_n} q_n · (S_0 + Σ_i e^{c_i} w_i k_iᵀ v_i)            two matrix products
    causal       y_n = e^{-c_n} q_n · S_0 + Σ_{i<=n} e^{-(c_n - c_i)} w_i (q_n·k_i) v_i     chunk by chunk

The causal exponents `c_n - c_i` are formed as sums over the rows between i and n, never as differences of one long
running sum: they are exact, never negative, and one huge gap among ordinary ones costs no accuracy.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from lformer.ops import checks

GROUP = 32  # chunks whose states are resolved in one product; more are grouped, level by level


def attention(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, state: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """(B, L, H, K), (B, L, H, K), (B, L, H, V), (B, L, H), (B, H, K, V) -> (B, L, H, V), (B, H, K, V)."""
    return (_causal if causal else _noncausal)(q, k, v, decay, state)


# --- non-causal: matrix associativity ---


def largest_span(dtype: torch.dtype) -> float:
    """Total decay up to which the non-causal weights, and products of ordinary values with them, stay finite."""
    return 0.9 * math.log(torch.finfo(dtype).max)


def _noncausal(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Weights relative to the middle of the series: each factor then spans half of the float range at most.

    The exponents, one number per row and head, are kept in float64: rounding a large exponent to float32 would cost
    its weight as many digits as the exponent has.
    """
    exact = decay if decay.device.type == "mps" else decay.double()
    c = exact.mT.cumsum(dim=-1).mT.contiguous()  # along the last axis: along another one, GPUs scan column by column
    middle = exact.sum(dim=1, keepdim=True) / 2  # (B, 1, H)
    fade = torch.exp(-middle).to(q.dtype).mT[..., None]  # (B, H, 1, 1)
    k = k * (torch.exp(c - middle) * -torch.expm1(-exact)).to(k.dtype)[..., None]
    q = q * torch.exp(middle - c).to(q.dtype)[..., None]
    memory = outer_sum(k, v) + fade * state  # e^{+middle} S_L
    return read(q, memory), fade * memory


def outer_sum(k: Tensor, v: Tensor) -> Tensor:
    """Σ_n k_nᵀ v_n per head, (B, L, H, K), (B, L, H, V) -> (B, H, K, V).

    One product over all heads whose off-diagonal blocks are dropped: with heads narrower than a tile this wastes
    less than the copies that a head-major layout costs.
    """
    H, K, V = k.shape[2], k.shape[3], v.shape[3]
    if not _narrow(H, K, V):
        return torch.einsum("blhk,blhv->bhkv", k, v)
    blocks = (k.flatten(2).mT @ v.flatten(2)).unflatten(2, (H, V)).unflatten(1, (H, K))  # (B, H, K, H, V)
    return torch.diagonal(blocks, dim1=1, dim2=3).permute(0, 3, 1, 2)


def read(q: Tensor, memory: Tensor) -> Tensor:
    """q_n S per head, (B, L, H, K), (B, H, K, V) -> (B, L, H, V)."""
    H, K, V = memory.shape[1:]
    if not _narrow(H, K, V):
        return torch.einsum("blhk,bhkv->blhv", q, memory)
    heads = torch.eye(H, dtype=q.dtype, device=q.device)
    blocks = torch.einsum("bhkv,hg->bhkgv", memory, heads).flatten(3).flatten(1, 2)  # (B, HK, HV), block diagonal
    return (q.flatten(2) @ blocks).unflatten(2, (H, V))


def _narrow(H: int, K: int, V: int) -> bool:
    return H > 1 and H * max(K, V) <= 128


# --- causal: chunks, and a hierarchical pass between them ---


def chunk_length(K: int, V: int) -> int:
    """Rows per chunk: about as many score entries as state entries per row, within what a tile likes."""
    return min(64, max(32, 1 << round(math.log2(math.sqrt(max(K * V, 1))))))


def _causal(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    L, K, V = q.shape[1], q.shape[3], v.shape[3]
    if L == 0:
        return torch.zeros_like(v), state
    exporting = checks.exporting()  # then L is a symbol, and the plan must not depend on it
    T = chunk_length(K, V) if exporting else min(L, chunk_length(K, V))
    q, k, v = (_split(x, T, dim=1).permute(0, 3, 1, 2, 4) for x in (q, k, v))  # (B, H, N, T, ·)
    decay = _split(decay, T, dim=1).permute(0, 3, 1, 2)  # (B, H, N, T)

    since_start = torch.exp(-decay.cumsum(dim=-1))
    between = torch.exp(-segment_sums(decay))  # (B, H, N, T, T), weight of row i in row n
    k = k * -torch.expm1(-decay)[..., None]

    writes = (k * between[..., -1, :, None]).mT @ v  # (B, H, N, K, V), what each chunk leaves at its end
    depth = 1 if exporting else _depth(decay.shape[2])
    states = _scan(decay.sum(dim=-1), writes.flatten(3), state.flatten(2), depth).unflatten(-1, (K, V))

    y = ((q @ k.mT) * between) @ v + (q * since_start[..., None]) @ states[:, :, :-1]
    return _first(y.permute(0, 2, 3, 1, 4).flatten(1, 2), L, 1), states[:, :, -1]


def _scan(decay: Tensor, writes: Tensor, start: Tensor, depth: int) -> Tensor:
    """All states of `S_m = e^{-decay_m} S_{m-1} + writes_m`, with `S_0 = start`.

    Args:
        decay: (..., N) decay across each chunk.
        writes: (..., N, X) what each chunk adds.
        start: (..., X) state before the first.
        depth: levels of grouping; each shortens N by GROUP, and what is left costs N².

    Returns:
        (..., N + 1, X) states S_0 … S_N.
    """
    if depth == 0:
        weights = torch.exp(-segment_sums(F.pad(decay, (1, 0))))
        return weights @ torch.cat([start[..., None, :], writes], dim=-2)
    N = decay.shape[-1]
    decay, writes = _split(decay, GROUP, dim=-1), _split(writes, GROUP, dim=-2)
    to_end = torch.exp(-(F.pad(decay[..., 1:], (0, 1)).flip(-1).cumsum(-1).flip(-1)))
    starts = _scan(decay.sum(dim=-1), (to_end[..., None, :] @ writes).squeeze(-2), start, depth - 1)
    inside = _scan(decay, writes, starts[..., :-1, :], 0)[..., :-1, :]
    return torch.cat([_first(inside.flatten(-3, -2), N, -2), starts[..., -1:, :]], dim=-2)


def _depth(N: int) -> int:
    return 0 if N <= GROUP else 1 + _depth(-(-N // GROUP))


def segment_sums(x: Tensor) -> Tensor:
    """(..., T) -> (..., T, T): entry (n, i) is `x_{i+1} + … + x_n` for i <= n, +inf above the diagonal.

    One product with a constant 0/1 tensor. Sums of non-negative terms only, so nothing cancels.
    """
    T = x.shape[-1]
    at = torch.arange(T, device=x.device)
    row, first, last = at[:, None, None], at[None, None, :], at[None, :, None]  # summed row j, from i, to n
    inside = (row > first) & (row <= last)  # (T, T, T): j, n, i
    sums = (x @ inside.to(x.dtype).flatten(1)).unflatten(-1, (T, T))
    return sums.masked_fill(at[None, :] > at[:, None], math.inf)


def _split(x: Tensor, size: int, dim: int) -> Tensor:
    """(..., L, ...) -> (..., N, size, ...) at `dim`, zero padded at the end: no decay, no write."""
    dim %= x.dim()
    length = x.shape[dim]
    missing = _parts(length, size) * size - length
    x = F.pad(x, (0, 0) * (x.dim() - 1 - dim) + (0, missing))
    if checks.exporting():
        return x.unfold(dim, size, size).movedim(-1, dim + 1)  # as unflatten, without a proof that the sizes divide
    return x.unflatten(dim, (-1, size))


def _parts(length: int, size: int) -> int:
    """How many parts of `size` hold `length` rows.

    While exporting, `length` is a symbol; two spare parts of padding keep every size above 1 for any length, so that
    the graph holds for all of them.
    """
    return length // size + 2 if checks.exporting() else (length + size - 1) // size


def _first(x: Tensor, length: int, dim: int) -> Tensor:
    """The first `length` entries along `dim`; by index while exporting, where a slice would ask for a proof."""
    if checks.exporting():
        return x.index_select(dim, torch.arange(length, device=x.device))
    return x.narrow(dim, 0, length)
