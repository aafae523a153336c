"""A read-out that weights rows by their distance in time, for models that predict at queries (paper, outlook VI).

A query passes through the mixers as a row that only reads. The memory there fades by a factor of e over a whole series,
and later rows weigh more than earlier ones, so the prediction hardly depends on which rows are near. After the last
mixer, the rows are therefore written once more, into memories that fade with time alone, u = Δ, in both directions of
time, each with a budget β > 0 of its own:

    past      S_n = e^(-β û_n) S_{n-1} + (1 - e^(-β û_n)) k_nᵀ v_n        û_n: share of the interval before row n
    future    T_n = e^(-β ŵ_n) T_{n+1} + (1 - e^(-β ŵ_n)) k_nᵀ v_n        ŵ_n: share of the interval after row n
    y(t) = [ e^(-β û(t)) q S_n ,  e^(-β ŵ(t)) q T_{n+1} ]                 t_n <= t < t_{n+1}

û(t) and ŵ(t) are the shares of t - t_n and t_{n+1} - t; shares are those of `ops.normalise_decay`, so the unit of time
cancels wherever it does in the mixers. A row at distance d thus has weight e^(-β d̂): with β = 1 this reaches over the
whole series, with β = 64 only to rows next to the query. S is empty before the first row, T after the last one. Each
head has several β, which are learned. A causal model only reads the past, and S is its state.

Both memories are those of `ops.liquid_gated_attention`, the second with time reversed, so the cost is linear in rows
and queries.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from lformer import ops
from lformer.nn.query import Merged
from lformer.ops import checks

ReadOut = Literal["row", "time"]
BUDGETS = (1.0, 4.0, 16.0, 64.0)  # initial β of every head


class ReadOutState(NamedTuple):
    """The state after the last valid row, in float64, see `exact_dtype`."""

    memory: Tensor  # (B, H M, K, V) S of every head and budget
    total: Tensor  # (B, 1) running sum of the intervals


class TimeReadOut(nn.Module):
    """What queries read from the rows of their series by distance in time, (B, Q, D), to be added to the prediction.

    Args:
        width: D.
        heads: H, each with M = 4 budgets.
        causal: whether a query only reads earlier rows.
        gate_norm: how intervals are normalised to shares, as in the mixers.
        backend: backend of `ops.liquid_gated_attention`.
    """

    undecayed = ("log_budgets",)  # weight decay towards 0 would favour a budget of 1 without reason

    def __init__(self, width: int, heads: int, *, causal: bool, gate_norm: ops.GateNorm, backend: str = "auto") -> None:
        super().__init__()
        self.causal, self.gate_norm, self.backend = causal, gate_norm, backend
        self.norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.log_budgets = nn.Parameter(torch.tensor(BUDGETS).log().repeat(heads, 1))  # (H, M)
        sides = 1 if causal else 2
        self.mix = nn.Linear(sides * len(BUDGETS) * width, width, bias=False)

    def forward(self, x: Tensor, merged: Merged, state: ReadOutState | None = None) -> tuple[Tensor, ReadOutState]:
        """Read at the queries.

        Args:
            x: (B, L + Q, D) rows and queries in merged order, from the last mixer.
            merged: their order and intervals; with `ahead` unless causal.
            state: the state to continue from, if any.

        Returns:
            (B, Q, D), and the state after the last valid row.
        """
        q, k, v = self._project(x)
        past, after = self._memory(q, k, v, merged.deltas, merged.is_query, state)
        sides = [merged.answers(past)]
        if not self.causal:
            assert merged.ahead is not None
            q, k, v, ahead, is_query = (t.flip(1) for t in (q, k, v, merged.ahead, merged.is_query))
            future, _ = self._memory(q, k, v, ahead, is_query, None)
            sides.append(merged.answers(future.flip(1)))
        return self.mix(torch.cat(sides, dim=-1)), after

    def advance(self, x: Tensor, delta: Tensor, state: ReadOutState) -> ReadOutState:
        """One row per series, from the last mixer: (B, D), (B,) -> the new state"""
        return self._memory(*self._project(x[:, None]), delta[:, None], None, state)[1]

    def init_state(self, batch: int) -> ReadOutState:
        """The state before the first row."""
        like, (H, M) = self.query.weight, self.log_budgets.shape
        exact, size = checks.exact_dtype(like.device), like.shape[0] // H
        return ReadOutState(
            memory=like.new_zeros(batch, H * M, size, size, dtype=exact), total=like.new_zeros(batch, 1, dtype=exact)
        )

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, N, D) -> q, k, v (B, N, H M, K), those of a head repeated for each of its budgets"""
        x, (H, M) = self.norm(x), self.log_budgets.shape
        q, k, v = (layer(x).unflatten(-1, (H, 1, -1)) for layer in (self.query, self.key, self.value))
        k = k / math.sqrt(k.shape[-1])
        q, k, v = (t.expand(-1, -1, -1, M, -1).flatten(2, 3) for t in (q, k, v))
        return q, k, v

    def _memory(
        self, q: Tensor, k: Tensor, v: Tensor, deltas: Tensor, is_query: Tensor | None, state: ReadOutState | None
    ) -> tuple[Tensor, ReadOutState]:
        """(B, N, H M, K) thrice, (B, N) twice -> (B, N, H M V), what every row and query reads from the rows so far"""
        share, total = ops.normalise_decay(
            deltas[..., None], self.gate_norm, state and state.total, return_total=True, is_query=is_query
        )
        decay = share * self.log_budgets.exp().flatten().to(share.dtype)  # (B, N, H M)
        writes = decay if is_query is None else decay.masked_fill(is_query[..., None], 0)
        y, memory = ops.liquid_gated_attention(
            q, k, v, writes, True, state and state.memory, return_state=True, backend=self.backend
        )
        y = y * torch.exp(writes - decay)[..., None].to(y.dtype)  # a query reads the memory of the previous row, faded
        exact = checks.exact_dtype(q.device)
        return y.flatten(2), ReadOutState(memory.to(exact), total.to(exact))


# --- the definition ---


def by_definition(
    q: Tensor, k: Tensor, v: Tensor, times: Tensor, asked: Tensor, first: Tensor, budget: Tensor, norm: ops.GateNorm
) -> Tensor:
    """The equations above for one series, head and budget, query by query and row by row.

    Args:
        q: (Q, K) of the queries.
        k, v: (L, K), (L, V) of the rows.
        times, asked: (L,) non-decreasing, (Q,).
        first: () interval before the first row and after the last.
        budget: () β.
        norm: how intervals are normalised to shares.

    Returns:
        (Q, 2 V), what is read from the past and from the future.
    """
    past = [_one_side(q[n], k, v, times, t, first, budget, norm) for n, t in enumerate(asked)]
    rows = (k.flip(0), v.flip(0), -times.flip(0))  # time runs backwards
    future = [_one_side(q[n], *rows, -t, first, budget, norm, strictly=True) for n, t in enumerate(asked)]
    return torch.cat([torch.stack(past), torch.stack(future)], dim=-1)


def _one_side(
    q: Tensor, k: Tensor, v: Tensor, times: Tensor, asked: Tensor, first: Tensor, budget: Tensor, norm: ops.GateNorm,
    strictly: bool = False,
) -> Tensor:  # fmt: skip
    """(K,), (L, K), (L, V), (L,), () -> (V,) from the rows before a query and, unless `strictly`, at the same time"""
    whole = first + times[-1] - times[0]
    memory, running, latest = torch.zeros_like(k[0, :, None] * v[0]), torch.zeros_like(first), times[0]

    def gate(u: Tensor) -> Tensor:
        shared = {"sequence": whole, "prefix": running + u, "none": torch.ones_like(u)}[norm]
        return torch.exp(-budget * u / torch.where(shared > 0, shared, 1.0))

    for n, t in enumerate(times):
        if t > asked or (strictly and t == asked):
            break
        u = t - latest if n else first
        g = gate(u)
        memory = g * memory + (1 - g) * k[n, :, None] * v[n]
        running, latest = running + u, t
    return gate((asked - latest).clamp(min=0)) * (q / math.sqrt(len(q))) @ memory
