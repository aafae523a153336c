"""LiquidMixer: a pre-norm residual block of a time mixer and a channel mixer (paper IV-C)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from lformer.nn.attention import LayerState, LiquidGatedAttention
from lformer.nn.dropout import Dropout
from lformer.ops.sharded import Group


class SwiGLU(nn.Module):
    """SwiGLU(H) = [SiLU(H W_1) ⊙ (H W_2)] W_3, without biases."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * hidden, bias=False)  # W_1 and W_2 side by side
        self.down = nn.Linear(hidden, width, bias=False)  # W_3

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., D)"""
        gate, value = self.up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * value)


class FeedForward(nn.Module):
    """Linear, ReLU, Linear instead of SwiGLU, for the paper's second ablation."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., D)"""
        return self.down(F.relu(self.up(x)))


class LiquidMixer(nn.Module):
    """Y = X + time_mixer(LN(X), Δ); Z = Y + channel_mixer(LN(Y)).

    Args:
        width: D.
        time_mixer: mixes rows; `LiquidGatedAttention`, or a module with the same signature.
        channel_mixer: mixes the channels of a row; `SwiGLU`, or any (..., D) -> (..., D).
        dropout: dropout rate of both residual branches.

    Inside an `LFormer` on CUDA, all mixers run together as a few fused kernels if possible: see `lformer.nn.fusion`.
    """

    def __init__(self, width: int, time_mixer: nn.Module, channel_mixer: nn.Module, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.time_norm = nn.LayerNorm(width)
        self.time_mixer = time_mixer
        self.channel_norm = nn.LayerNorm(width)
        self.channel_mixer = channel_mixer

    def forward(
        self, x: Tensor, deltas: Tensor, *, lengths: Tensor | None = None, is_query: Tensor | None = None
    ) -> Tensor:
        """(B, L, D), (B, L) -> (B, L, D)"""
        y = self.time_mixer(self.time_norm(x), deltas, lengths=lengths, is_query=is_query)
        return self._channels(x + self.dropout(y))

    def scan(
        self,
        x: Tensor,
        deltas: Tensor,
        state: LayerState | None,
        *,
        lengths: Tensor | None = None,
        is_query: Tensor | None = None,
    ) -> tuple[Tensor, LayerState]:
        """Like `forward`, from one state to the next."""
        y, state = self.liquid.forward(
            self.time_norm(x), deltas, lengths=lengths, is_query=is_query, state=state, return_state=True
        )
        return self._channels(x + self.dropout(y)), state

    def sharded(self, x: Tensor, deltas: Tensor, lengths: Tensor, group: Group = None) -> Tensor:
        """Like `forward`, on the stretch of each series that this process of the group holds."""
        y = self.liquid.sharded(self.time_norm(x), deltas, lengths, group)
        return self._channels(x + self.dropout(y))

    def step(self, x: Tensor, delta: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        """(B, D), (B,) -> (B, D) and the new state"""
        y, state = self.liquid.step(self.time_norm(x), delta, state)
        return self._channels(x + y), state

    @property
    def liquid(self) -> LiquidGatedAttention:
        """The time mixer, when a state is needed: only liquid gated attention has one."""
        if not isinstance(self.time_mixer, LiquidGatedAttention):
            raise RuntimeError(
                f"{type(self.time_mixer).__name__} keeps no state, so the model cannot step or continue a series. Use "
                'time_mixer="liquid" with causal=True and gate_norm="prefix".'
            )
        return self.time_mixer

    def _channels(self, x: Tensor) -> Tensor:
        return x + self.dropout(self.channel_mixer(self.channel_norm(x)))
