"""The definition: liquid gated attention token by token, as the paper writes it (IV-A, IV-B, Algorithm 1).

Slow and plain on purpose. Everything fast is tested against this page: output, state and every gradient.

    g_n = exp(-decay_n)                                   the liquid gate
    S_n = g_n S_{n-1} + (1 - g_n) k_nᵀ v_n                the memory
    y_n = q_n S_n                                         the reading (the output gate o_n belongs to the module)
"""

import torch
from torch import Tensor

from lformer.ops.gates import GateNorm


def liquid_gates(gate: Tensor, deltas: Tensor, mu: Tensor, norm: GateNorm) -> tuple[Tensor, Tensor]:
    """Algorithm 1: (B, L, H), (B, L), (H,) -> local gates `g` and cumulative gates `ġ`, both (B, L, H)."""
    before = torch.zeros_like(gate[:, 0])
    u = []
    for n in range(gate.shape[1]):
        rate = mu * before + (1 - mu) * gate[:, n]  # line 4, x̄_n
        u.append(deltas[:, n, None] * rate)  # line 5
        before = gate[:, n]  # line 3, for the next row

    whole = torch.stack(u).sum(dim=0)
    running = torch.zeros_like(whole)
    product = torch.ones_like(whole)
    local, cumulative = [], []
    for u_n in u:
        running = running + u_n
        share = {"sequence": whole, "prefix": running, "none": torch.ones_like(whole)}[norm]
        g = torch.exp(-u_n / torch.where(share > 0, share, 1.0))  # lines 7-8, or 11
        product = product * g  # lines 9 and 12
        local.append(g)
        cumulative.append(product)
    return torch.stack(local, dim=1), torch.stack(cumulative, dim=1)


def step(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """One row of the recurrence: (B, H, K), (B, H, K), (B, H, V), (B, H), (B, H, K, V) -> (B, H, V), new state."""
    g = torch.exp(-decay)[..., None, None]
    write = -torch.expm1(-decay)[..., None, None]  # 1 - g, without cancellation where the interval is tiny
    state = g * state + write * (k[..., :, None] * v[..., None, :])  # Eq. of the recurrent update
    return (q[..., None, :] @ state).squeeze(-2), state  # Eq. of the output retrieval


def recurrent(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Causal: the recurrence over all rows. Shapes as `ops.liquid_gated_attention`."""
    y = []
    for n in range(q.shape[1]):
        y_n, state = step(q[:, n], k[:, n], v[:, n], decay[:, n], state)
        y.append(y_n)
    return (torch.stack(y, dim=1) if y else torch.zeros_like(v)), state


def all_pairs(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Non-causal: every row reads every row, `y_n = Σ_i (ġ_n / ġ_i) (1 - g_i) (q_n·k_i) v_i + ġ_n q_n S_0`.

    `ġ_n / ġ_i = exp(c_i - c_n)` with `c` the running sum of the decay; for i > n it exceeds 1.
    """
    c = decay.cumsum(dim=1)
    exponent = c[:, None, :] - c[:, :, None]  # (B, n, i, H)
    weight = torch.exp(exponent) * -torch.expm1(-decay)[:, None]
    scores = torch.einsum("bnhk,bihk->bnih", q, k)
    y = torch.einsum("bnih,bihv->bnhv", weight * scores, v)
    y = y + torch.exp(-c)[..., None] * torch.einsum("bnhk,bhkv->bnhv", q, state)
    return y, recurrent(q, k, v, decay, state)[1]


def attention(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, state: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """Both forms under one signature: -> (B, L, H, V), (B, H, K, V)."""
    return (recurrent if causal else all_pairs)(q, k, v, decay, state)
