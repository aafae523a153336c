"""LiquidGatedAttention: decoupled heads around `ops.liquid_gated_attention` (paper IV-A, IV-B)."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, get_args, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lformer import ops
from lformer.ops import checks, reference, sharded
from lformer.ops.sharded import Group

Mu = Literal["per_head", "shared", "fixed"]
Rate = Literal["input", "time"]
OutputGate = Literal["sigmoid", "none"]


class LayerState(NamedTuple):
    """The state of a layer after the last valid row; what grows with the series is in float64, see `exact_dtype`."""

    memory: Tensor  # (B, H, K, V) fast-weight memory S
    total: Tensor  # (B, H) running sum of u
    gate: Tensor  # (B, H) last gate value x̃


class Interpolation(nn.Module):
    """mu = sigmoid(theta), the weight of the earlier endpoint; theta starts at 0, the trapezoidal rule."""

    def __init__(self, heads: int, mu: Mu = "per_head") -> None:
        super().__init__()
        theta = torch.zeros(1 if mu == "shared" else heads)
        if mu == "fixed":
            self.register_buffer("theta", theta, persistent=False)
        else:
            self.theta = nn.Parameter(theta)

    def forward(self) -> Tensor:
        """-> (H,) or (1,)"""
        return torch.sigmoid(self.theta)


class LiquidGatedAttention(nn.Module):
    """Liquid gated attention: Y = Concat_h( O ⊙ LGA_h(X, Δ) ) W_m, where each head has its own gate and its own mu.

    Args:
        width: D, width of a row.
        heads: H; must divide D.
        causal: whether a row only reads earlier rows.
        gate_norm: "sequence" (paper; uses the whole series), "prefix" (allows streaming) or "none" (absolute time).
            With causal=True, "sequence" exists for the paper's efficiency study: its gates see the future.
        mu: "per_head" (paper), "shared" by all heads, or "fixed" at 0.5.
        rate: "input" (paper) or "time": decay that depends on time alone, `u = Δ`.
        output_gate: "sigmoid" (paper) or "none".
        backend: backend of `ops.liquid_gated_attention`.

    Example:
        >>> layer = LiquidGatedAttention(width=64, heads=4)
        >>> layer(torch.randn(2, 100, 64), deltas=torch.rand(2, 100)).shape
        torch.Size([2, 100, 64])
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        causal: bool = False,
        gate_norm: ops.GateNorm = "sequence",
        mu: Mu = "per_head",
        rate: Rate = "input",
        output_gate: OutputGate = "sigmoid",
        backend: str = "auto",
    ) -> None:
        super().__init__()
        one_of("gate_norm", gate_norm, ops.GateNorm)
        one_of("mu", mu, Mu)
        one_of("rate", rate, Rate)
        one_of("output_gate", output_gate, OutputGate)
        ops.choose_backend(backend)
        if heads < 1 or width < 1 or width % heads:
            raise ValueError(f"heads must divide width, both at least 1; got width={width}, heads={heads}.")
        self.width, self.heads, self.causal, self.gate_norm, self.backend = width, heads, causal, gate_norm, backend
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output_gate = nn.Linear(width, width) if output_gate == "sigmoid" else None
        self.gate = nn.Linear(width, heads) if rate == "input" else None  # w_f, b_f of every head
        self.mu = Interpolation(heads, mu) if rate == "input" else None
        self.mix = nn.Linear(width, width, bias=False)  # W_m

    def extra_repr(self) -> str:
        return f"heads={self.heads}, causal={self.causal}, gate_norm={self.gate_norm!r}, backend={self.backend!r}"

    @overload
    def forward(
        self,
        x: Tensor,
        deltas: Tensor,
        *,
        lengths: Tensor | None = None,
        is_query: Tensor | None = None,
        state: LayerState | None = None,
        return_state: Literal[False] = False,
    ) -> Tensor: ...
    @overload
    def forward(
        self,
        x: Tensor,
        deltas: Tensor,
        *,
        lengths: Tensor | None = None,
        is_query: Tensor | None = None,
        state: LayerState | None = None,
        return_state: Literal[True],
    ) -> tuple[Tensor, LayerState]: ...
    def forward(
        self,
        x: Tensor,
        deltas: Tensor,
        *,
        lengths: Tensor | None = None,
        is_query: Tensor | None = None,
        state: LayerState | None = None,
        return_state: bool = False,
    ) -> Tensor | tuple[Tensor, LayerState]:
        """Mix the rows of each series.

        Args:
            x: (B, L, D) rows.
            deltas: (B, L) interval since the latest writing row; 0 on padding.
            lengths: (B,) number of valid rows, all if None; only affects the returned state.
            is_query: (B, L) bool, rows that only read the memory and do not affect other rows.
            state: the state to continue from, if any.
            return_state: whether to also return the state after the last valid row.

        Returns:
            (B, L, D), and the new state if requested.
        """
        if return_state or state is not None:
            self._require_streaming("carry a state")
        q, k, v, o, gate = self._project(x)
        u = self._decay(gate, deltas, state, is_query)
        decay, total = ops.normalise_decay(
            u, self.gate_norm, state and state.total, return_total=True, is_query=is_query
        )
        writes = decay if is_query is None else decay.masked_fill(is_query[..., None], 0)
        y, memory = ops.liquid_gated_attention(
            q, k, v, writes, self.causal, state and state.memory, return_state=True, backend=self.backend
        )
        if not self.causal and self.gate_norm == "none":
            checks.moderate_result(y)
        if is_query is not None:  # a query reads the memory of the latest row, faded by its own gate
            y = y * torch.exp(writes - decay)[..., None].to(y.dtype)
        y = self._emit(y, o)
        if not return_state:
            return y
        exact = checks.exact_dtype(x.device)
        return y, LayerState(memory.to(exact), total.to(exact), _last_gate(gate, lengths, is_query, state))

    def sharded(self, x: Tensor, deltas: Tensor, lengths: Tensor, group: Group = None) -> Tensor:
        """Like `forward`, (B, L, D), (B, L), (B,) -> (B, L, D), on the stretch of each series that this process holds.

        The other processes of the group hold the other stretches, in the order of their ranks. Runs in plain PyTorch.
        """
        q, k, v, o, gate = self._project(x)
        u = sharded.liquid_decay(gate, deltas, self._mu(gate), lengths, group)
        y = sharded.liquid_gated_attention(
            q, k, v, sharded.normalise_decay(u, self.gate_norm, group), self.causal, group
        )
        if not self.causal and self.gate_norm == "none":
            checks.moderate_result(y)
        return self._emit(y, o)

    def decays(self, x: Tensor, deltas: Tensor) -> Tensor:
        """(B, L, D), (B, L) -> (B, L, H), the exponent of the gate of each row, `-log g`, as used in `forward`."""
        *_, gate = self._project(x)
        return ops.normalise_decay(self._decay(gate, deltas, None, None), self.gate_norm)

    def step(self, x: Tensor, delta: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        """Process one row: (B, D), (B,) -> (B, D) and the new state."""
        self._require_streaming("step")
        q, k, v, o, gate = self._project(x[:, None])
        u = self._decay(gate, delta[:, None], state, None)
        decay, total = ops.normalise_decay(u, self.gate_norm, state.total, return_total=True)
        dtype = state.memory.dtype
        q, k, v, decay = (t[:, 0].to(dtype) for t in (q, k, v, decay))
        y, memory = reference.step(q, k, v, decay, state.memory)
        return self._emit(y[:, None].to(x.dtype), o)[:, 0], LayerState(memory, total, gate[:, 0])

    def init_state(self, batch: int) -> LayerState:
        """The state before the first row."""
        self._require_streaming("carry a state")
        like = self.query.weight
        exact, size = checks.exact_dtype(like.device), self.width // self.heads
        return LayerState(
            memory=like.new_zeros(batch, self.heads, size, size, dtype=exact),
            total=like.new_zeros(batch, self.heads, dtype=exact),
            gate=like.new_zeros(batch, self.heads),
        )

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor]:
        """(B, L, D) -> q, k, v (B, L, H, K), o (B, L, D) or None, x̃ (B, L, H), by one product with all weights"""
        D, H = self.width, self.heads
        scale = 1 / math.sqrt(D // H)
        layers = [self.query, self.key, self.value, *(m for m in (self.output_gate, self.gate) if m is not None)]
        weight = torch.cat([m.weight * scale if m is self.key else m.weight for m in layers])
        bias = torch.cat([m.bias for m in layers])
        q, k, v, *rest = F.linear(x, weight, bias).split([m.out_features for m in layers], dim=-1)
        o = torch.sigmoid(rest[0]) if self.output_gate is not None else None
        gate = torch.sigmoid(rest[-1]) if self.gate is not None else torch.ones_like(q[..., :H])
        return q.unflatten(-1, (H, -1)), k.unflatten(-1, (H, -1)), v.unflatten(-1, (H, -1)), o, gate

    def _decay(self, gate: Tensor, deltas: Tensor, state: LayerState | None, is_query: Tensor | None) -> Tensor:
        return ops.liquid_decay(gate, deltas, self._mu(gate), state and state.gate, is_query)

    def _mu(self, gate: Tensor) -> Tensor:
        """-> (H,) or (1,). For decay by time alone, x̃ is 1 and only the row itself counts, so u = Δ."""
        return gate.new_zeros(1) if self.mu is None else self.mu()

    def _emit(self, y: Tensor, o: Tensor | None) -> Tensor:
        """(B, L, H, V) -> (B, L, D)"""
        y = y.flatten(2)
        return self.mix(y if o is None else o * y)

    def _require_streaming(self, wish: str) -> None:
        if not self.causal or self.gate_norm == "sequence":
            raise RuntimeError(
                f"this layer cannot {wish}: causal={self.causal}, gate_norm={self.gate_norm!r}. "
                + (
                    "Sequence normalisation divides by a sum over the whole series, which is not known before its end."
                    if self.gate_norm == "sequence"
                    else "A non-causal layer reads rows that have not come yet."
                )
                + ' Build the model with causal=True, gate_norm="prefix" (or "none" for decay in absolute time).'
            )


def _last_gate(gate: Tensor, lengths: Tensor | None, is_query: Tensor | None, state: LayerState | None) -> Tensor:
    """(B, L, H) -> (B, H): the gate of the last valid writing row, or that of the state if there is none"""
    B, L, H = gate.shape
    counts = torch.ones(B, L, dtype=torch.bool, device=gate.device) if is_query is None else ~is_query
    position = torch.arange(1, L + 1, device=gate.device)
    if lengths is not None:
        counts = counts & (position <= lengths[:, None])
    before = gate.new_zeros(B, 1, H) if state is None else state.gate[:, None]
    gates = torch.cat([before.to(gate.dtype), gate], dim=1)
    last = torch.cat([counts.new_zeros(B, 1), position * counts], dim=1).amax(dim=1)
    return gates.gather(1, last[:, None, None].expand(-1, 1, H)).squeeze(1)


def one_of(name: str, value: str, choices: object) -> None:
    """Raise if a value is not among the choices of a Literal."""
    allowed = get_args(choices)
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}.")
