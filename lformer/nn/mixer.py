"""LiquidMixer: pre-norm residual block of a time mixer and a channel mixer (paper IV-C)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lformer import ops
from lformer.batch import IrregularBatch
from lformer.nn.attention import Interpolation, LayerState, LiquidGatedAttention
from lformer.nn.dropout import Dropout
from lformer.ops.fused.plan import CAUSAL_HEAD_SIZES, MixerWeights, not_launched, unsupported
from lformer.ops.sharded import Group


class SwiGLU(nn.Module):
    """SwiGLU(H) = [SiLU(H W_1) ⊙ (H W_2)] W_3, no biases."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * hidden, bias=False)  # W_1 and W_2 side by side
        self.down = nn.Linear(hidden, width, bias=False)  # W_3

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., D)"""
        gate, value = self.up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * value)


class FeedForward(nn.Module):
    """Linear, ReLU, Linear in the place of SwiGLU, for the paper's second ablation."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., D)"""
        return self.down(F.relu(self.up(x)))


KNOWN = (LiquidGatedAttention, Interpolation, SwiGLU, nn.Linear, nn.LayerNorm, Dropout)  # parts of a fused block


class LiquidMixer(nn.Module):
    """Y = X + time_mixer(LN(X), Δ); Z = Y + channel_mixer(LN(Y)).

    Args:
        width: D.
        time_mixer: mixes rows; `LiquidGatedAttention`, or anything called as it is.
        channel_mixer: mixes the channels of a row; `SwiGLU`, or any (..., D) -> (..., D).
        dropout: in training, share of the numbers set to 0 in what either adds.

    On CUDA the whole block runs as a few fused kernels where it can; `path` tells, `explain` gives the reason.
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
        if not self.explain(x, deltas, is_query):
            return run_fused([self], x, deltas)
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
        """As `forward`, from one state to the next."""
        y, state = self.liquid.forward(
            self.time_norm(x), deltas, lengths=lengths, is_query=is_query, state=state, return_state=True
        )
        return self._channels(x + self.dropout(y)), state

    def sharded(self, x: Tensor, deltas: Tensor, lengths: Tensor, group: Group = None) -> Tensor:
        """As `forward`, on the stretch of each series that this process of the group holds."""
        y = self.liquid.sharded(self.time_norm(x), deltas, lengths, group)
        return self._channels(x + self.dropout(y))

    def step(self, x: Tensor, delta: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        """(B, D), (B,) -> (B, D) and the new state"""
        y, state = self.liquid.step(self.time_norm(x), delta, state)
        return self._channels(x + y), state

    @property
    def liquid(self) -> LiquidGatedAttention:
        """The time mixer, where a state is needed: only liquid gated attention has one."""
        if not isinstance(self.time_mixer, LiquidGatedAttention):
            raise RuntimeError(
                f"{type(self.time_mixer).__name__} keeps no state, so the model cannot step or continue a series. Use "
                'time_mixer="liquid" with causal=True and gate_norm="prefix".'
            )
        return self.time_mixer

    def path(self, x: Tensor, deltas: Tensor, is_query: Tensor | None = None) -> str:
        """What `forward` runs on these rows: "fused mixer", or else the backend of the time mixer."""
        return self.backend(x) if self.explain(x, deltas, is_query) else "fused mixer"

    def backend(self, x: Tensor) -> str:
        """The backend that the time mixer chooses for these rows where the block is not fused, or "plain"."""
        time = self.time_mixer
        if not isinstance(time, LiquidGatedAttention):
            return "plain"
        q = _entering(x).new_empty(1, 1, time.heads, time.width // time.heads)
        return ops.choose_backend(time.backend, q, q, q, q[..., 0])

    def explain(self, x: Tensor, deltas: Tensor, is_query: Tensor | None = None) -> str:
        """Why `forward` does not run as fused kernels on these rows; empty if it does."""
        time, channel = self.time_mixer, self.channel_mixer
        if type(time) is not LiquidGatedAttention or type(channel) is not SwiGLU:
            return f"the mixers are {type(time).__name__} and {type(channel).__name__}"
        if time.backend not in ("auto", "fused"):
            return f"backend={time.backend!r}"
        if time.backend == "auto" and not x.is_cuda:
            return f'x is on {x.device}; backend="auto" fuses on CUDA alone'
        if time.backend == "auto" and time.causal and time.width // time.heads not in CAUSAL_HEAD_SIZES:
            return f'causal heads of {time.width // time.heads}; backend="fused" fuses them, "auto" {CAUSAL_HEAD_SIZES}'
        if time.output_gate is None or time.gate is None:
            return "an ablation takes away the output gate or the rate that the input sets"
        if changed := self._changed():
            return changed
        if is_query is not None:
            return "some rows only read"
        if deltas.requires_grad:
            return "deltas require a gradient"
        if x.dtype != time.query.weight.dtype and not torch.is_autocast_enabled(x.device.type):
            return f"x is {x.dtype} and the parameters are {time.query.weight.dtype}"
        if self.training and self.dropout.p > 0:
            return "dropout acts inside the block"
        return unsupported(_entering(x), time.width, time.heads, time.causal, time.gate_norm)

    @property
    def shape(self) -> tuple[bool, str, int, int]:
        """What the fused kernels of several blocks in one call must have in common, beside the width."""
        assert isinstance(self.channel_mixer, SwiGLU)
        hidden = self.channel_mixer.down.in_features
        return self.liquid.causal, self.liquid.gate_norm, self.liquid.heads, hidden

    def fused_weights(self) -> MixerWeights:
        """The parameters in the order of the fused kernels, of a block that `explain` has nothing against."""
        # Dictionaries, not attributes: a module looks for those in three places, which takes longer than a kernel.
        block: dict[str, Any] = self._modules
        time, channel = block["time_mixer"]._modules, block["channel_mixer"]._modules
        theta, heads = block["time_mixer"].mu.theta, block["time_mixer"].heads
        return MixerWeights(
            *_pair(block["time_norm"]), *_pair(time["query"]), *_pair(time["key"]), *_pair(time["value"]),
            *_pair(time["output_gate"]), *_pair(time["gate"]),
            theta if len(theta) == heads else theta.expand(heads),
            time["mix"]._parameters["weight"], *_pair(block["channel_norm"]),
            channel["up"]._parameters["weight"], channel["down"]._parameters["weight"],
        )  # fmt: skip

    def _changed(self) -> str:
        """What somebody put into this block that the fused kernels would pass over; empty if nothing."""
        if type(self) is not LiquidMixer:
            return f"the mixer is a {type(self).__name__}"
        if not all(map(_familiar, self._modules.values())):
            return next(filter(None, starmap(_explain_unknown, self._modules.items())))
        norms = (self.time_norm, self.channel_norm)
        if any(norm.eps != 1e-5 or norm.weight is None or norm.bias is None for norm in norms):
            return "a layer norm is not the usual one"
        return ""

    def _channels(self, x: Tensor) -> Tensor:
        return x + self.dropout(self.channel_mixer(self.channel_norm(x)))


def _pair(module: nn.Module) -> tuple[Any, Any]:
    """Weight and bias."""
    return module._parameters["weight"], module._parameters["bias"]


def _familiar(module: nn.Module | None) -> bool:
    """Whether the fused kernels do what this part of a block does; asked on every call, so in a hurry."""
    if module is None or type(module) not in KNOWN or has_hooks(module):
        return False
    return all(map(_familiar, module._modules.values()))


def _explain_unknown(name: str, module: nn.Module | None) -> str:
    """Why a part of a block is not `_familiar`; empty if it is."""
    if module is None or type(module) not in KNOWN:
        return f"{name} is a {type(module).__name__}"
    if has_hooks(module):
        return f"{name} has hooks"
    return next(
        filter(None, (_explain_unknown(f"{name}.{part}", inner) for part, inner in module._modules.items())), ""
    )


def run_fused(
    mixers: Sequence[LiquidMixer], x: Tensor, deltas: Tensor, lengths: Tensor | None = None, pool: bool = False
) -> Tensor:
    """Mixers that can be fused, one after the other: (B, L, D) -> (B, L, D), or the mean over valid rows (B, D)."""
    from lformer.ops.fused.mixer import stack  # imports triton

    liquid, layers = mixers[0].liquid, [mixer.fused_weights() for mixer in mixers]
    return stack(_entering(x), deltas, layers, liquid.causal, liquid.gate_norm, lengths, pool).to(x.dtype)


def can_fill(deltas: Tensor, backend: str) -> bool:
    """Whether `fill_intervals` takes these intervals where this backend was asked for."""
    wanted = deltas.is_cuda if backend == "auto" else backend == "fused"
    return wanted and deltas.dtype == torch.float32 and not deltas.requires_grad and not not_launched(deltas)


def fill_intervals(batch: IrregularBatch, first_interval: Tensor, typical: bool, mean: bool) -> Tensor:
    """(B, L) intervals with the first one of every series, as `LFormerConfig.first_interval` tells, in one launch."""
    from lformer.ops.fused.mixer import first_intervals, fused_intervals  # imports triton

    run = fused_intervals if torch.compiler.is_compiling() else first_intervals
    return run(batch.deltas, batch.times, batch.lengths, first_interval.detach(), typical, mean)


def has_hooks(module: nn.Module) -> bool:
    """True if calling the module does more than its `forward`."""
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )


def _entering(x: Tensor) -> Tensor:
    """Rows as they enter the fused kernels: under autocast in its dtype, as every product would take them."""
    device = x.device.type
    return x.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else x
