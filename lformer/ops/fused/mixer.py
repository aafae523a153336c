"""The fused mixer as functions of tensors: one block, or the whole depth in one call.

`torch.compile` sees custom operators. An eager call goes around them: what an operator checks on every call, with some
twenty parameters, takes longer than the kernels of a small batch. Values are checked as the plain path checks them; the
kernels never look.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lformer.ops import checks
from lformer.ops.fused import mixer_launch as launch
from lformer.ops.fused.plan import MixerWeights, Plan, Saved, make_plan

FORCED_CHUNKS = 0  # chunks per segment; 0 lets the plan choose, tests make many segments of few rows


def mixer(x: Tensor, deltas: Tensor, weights: MixerWeights, causal: bool, norm: str) -> Tensor:
    """One LiquidMixer: rows x (B, L, D) and intervals (B, L) -> (B, L, D). `plan.unsupported` tells what it takes."""
    return stack(x, deltas, [weights], causal, norm)


def stack(
    x: Tensor,
    deltas: Tensor,
    layers: Sequence[MixerWeights],
    causal: bool,
    norm: str,
    lengths: Tensor | None = None,
    pool: bool = False,
) -> Tensor:
    """Mixers one after the other.

    Args:
        x: (B, L, D) rows, float32 or bfloat16.
        deltas: (B, L) intervals; 0 on padding.
        layers: weights of each mixer.
        causal, norm: of all mixers.
        lengths: (B,) valid rows, all if None; only the pooled mean depends on it.
        pool: return the mean over valid rows, (B, D), in the place of the rows; 0 for an empty series.

    Returns:
        (B, L, D) or (B, D), in the dtype of x.
    """
    checks.deltas_valid(deltas)
    deltas = deltas.to(torch.float32).contiguous()
    if torch.is_grad_enabled() and (x.requires_grad or any(p.requires_grad for w in layers for p in w)):
        y = x
        for w in layers:
            if torch.compiler.is_compiling():
                y = fused_mixer(y, deltas, list(w), causal, norm)[0]
            else:
                y = _Block.apply(y, deltas, causal, norm, *w)
        if pool:
            y = _pooled(y, lengths)
    else:
        run = fused_stack if torch.compiler.is_compiling() else stack_forward
        y = run(x, deltas, [p for w in layers for p in w], causal, norm, lengths, pool)
    checks.finite_result(y, "the output of the fused mixer")
    return y


def first_intervals(
    deltas: Tensor, times: Tensor, lengths: Tensor, first_interval: Tensor, typical: bool, mean: bool
) -> Tensor:
    """Intervals (B, L) with the first one of every series filled in, in one launch.

    Args:
        deltas: (B, L) float32; times: (B, L) float64; lengths: (B,).
        first_interval: () what the first row of a series is given if `typical`, else 0.
        typical: see first_interval.
        mean: give it the mean interval of its series where that is positive.
    """
    return launch.intervals(deltas.contiguous(), times.contiguous(), lengths, first_interval, typical, mean)


fused_intervals = torch.library.custom_op("lformer::fused_intervals", first_intervals, mutates_args=())


@fused_intervals.register_fake
def _(deltas: Tensor, times: Tensor, lengths: Tensor, first_interval: Tensor, typical: bool, mean: bool) -> Tensor:
    return torch.empty_like(deltas, memory_format=torch.contiguous_format)


# --- training: one block, everything kept that its backward pass wants ---


def block_forward(
    x: Tensor, deltas: Tensor, weights: list[Tensor], causal: bool, norm: str
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """-> x2, and x1, gates, decay, cum, partial, span of `Saved`."""
    x, w, plan = _prepare(x, weights, causal, norm)
    gates, sums = launch.gates(x, deltas, w, plan)
    decay, cum, span = launch.decay(gates, sums, deltas, w.mu, plan)
    partial = launch.accumulate(x, decay, cum, w, plan)
    read = launch.read(x, deltas, decay, cum, partial, span, w, plan, store_x1=True)
    assert read.x2 is not None
    assert read.x1 is not None
    return read.x2, read.x1, gates, decay, cum, partial, span


fused_mixer = torch.library.custom_op("lformer::fused_mixer", block_forward, mutates_args=())


@fused_mixer.register_fake
def _(
    x: Tensor, deltas: Tensor, weights: list[Tensor], causal: bool, norm: str
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    plan = _plan(x, MixerWeights(*weights), causal, norm)
    rows = torch.empty_like(x, memory_format=torch.contiguous_format)
    heads = x.new_empty(plan.B, plan.L, plan.H, dtype=torch.float32)
    span = x.new_empty(plan.B, plan.segments, plan.H, dtype=torch.float32)
    partial = x.new_empty(plan.B, plan.segments, plan.H, plan.K, plan.K, dtype=torch.float32)
    return rows, rows.clone(), heads, heads.clone(), heads.clone(), partial, span


def block_backward(
    grad: Tensor, saved: list[Tensor], weights: list[Tensor], causal: bool, norm: str
) -> tuple[Tensor, list[Tensor]]:
    """-> gradient of x, and of each weight in its own dtype."""
    from lformer.ops.fused import mixer_backward

    x, w, plan = _prepare(saved[0], weights, causal, norm)
    dx, dw = mixer_backward.backward(grad.contiguous(), Saved(*saved)._replace(x=x), w, plan)
    return dx, [d.to(p.dtype) for d, p in zip(dw, weights, strict=True)]


fused_mixer_backward = torch.library.custom_op("lformer::fused_mixer_backward", block_backward, mutates_args=())


@fused_mixer_backward.register_fake
def _(grad: Tensor, saved: list[Tensor], weights: list[Tensor], causal: bool, norm: str) -> tuple[Tensor, list[Tensor]]:
    dx = torch.empty_like(saved[0], memory_format=torch.contiguous_format)
    return dx, [torch.empty_like(p, memory_format=torch.contiguous_format) for p in weights]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, deltas, weights, causal, norm = inputs
    x1, *rest = output[1:]
    ctx.save_for_backward(x, x1, deltas, *rest, *weights)
    ctx.mark_non_differentiable(x1, *rest)
    ctx.set_materialize_grads(False)
    ctx.causal, ctx.norm, ctx.kept = causal, norm, 3 + len(rest)


def _differentiate(ctx: Any, grad: Tensor | None, *_: Tensor | None) -> tuple[Any, ...]:
    tensors = ctx.saved_tensors  # asked for once, as checkpointing wants it
    saved, weights = list(tensors[: ctx.kept]), list(tensors[ctx.kept :])
    if grad is None:
        return None, None, [None] * len(weights), None, None
    dx, dw = fused_mixer_backward(grad, saved, weights, ctx.causal, ctx.norm)
    return dx, None, dw, None, None


fused_mixer.register_autograd(_differentiate, setup_context=_keep)


class _Block(torch.autograd.Function):
    """The same for an eager call."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, deltas: Tensor, causal: bool, norm: str, *weights: Tensor) -> Tensor:
        x2, x1, *rest = block_forward(x, deltas, list(weights), causal, norm)
        ctx.save_for_backward(x, x1, deltas, *rest, *weights)
        ctx.causal, ctx.norm, ctx.kept = causal, norm, 3 + len(rest)
        return x2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        tensors = ctx.saved_tensors  # asked for once, as checkpointing wants it
        dx, dw = block_backward(grad, list(tensors[: ctx.kept]), list(tensors[ctx.kept :]), ctx.causal, ctx.norm)
        return dx, None, None, None, *dw


# --- inference: each layer emits the gates of the next, the last one pools ---


def stack_forward(
    x: Tensor, deltas: Tensor, weights: list[Tensor], causal: bool, norm: str, lengths: Tensor | None, pool: bool
) -> Tensor:
    """As `stack`, with the weights of all layers in one list."""
    size = len(MixerWeights._fields)
    x, w, plan = _prepare(x, weights[:size], causal, norm)
    layers = [w, *(_contiguous(weights[n : n + size]) for n in range(size, len(weights), size))]
    if pool and lengths is None:
        lengths = torch.full((plan.B,), plan.L, device=x.device)
    gates, sums = launch.gates(x, deltas, w, plan)
    for n, w in enumerate(layers):
        last = n + 1 == len(layers)
        decay, cum, span = launch.decay(gates, sums, deltas, w.mu, plan)
        partial = launch.accumulate(x, decay, cum, w, plan)
        read = launch.read(
            x, deltas, decay, cum, partial, span, w, plan,
            following=None if last else layers[n + 1], pool_lengths=lengths if last and pool else None,
        )  # fmt: skip
        if read.pooled is not None:
            assert lengths is not None
            return launch.mean(read.pooled, lengths, x, plan)
        assert read.x2 is not None
        x = read.x2
        if read.gates is not None and read.sums is not None:
            gates, sums = read.gates, read.sums
    return x


fused_stack = torch.library.custom_op("lformer::fused_stack", stack_forward, mutates_args=())


@fused_stack.register_fake
def _(
    x: Tensor, deltas: Tensor, weights: list[Tensor], causal: bool, norm: str, lengths: Tensor | None, pool: bool
) -> Tensor:
    return x.new_empty(x.shape[0], x.shape[2]) if pool else torch.empty_like(x, memory_format=torch.contiguous_format)


# --- shared ---


def _prepare(x: Tensor, weights: list[Tensor], causal: bool, norm: str) -> tuple[Tensor, MixerWeights, Plan]:
    w = _contiguous(weights)
    return x.contiguous(), w, _plan(x, w, causal, norm)


def _contiguous(weights: list[Tensor]) -> MixerWeights:
    return MixerWeights(*(p.contiguous() for p in weights))


def _plan(x: Tensor, weights: MixerWeights, causal: bool, norm: str) -> Plan:
    return make_plan(x, weights, causal, norm, FORCED_CHUNKS)


def _pooled(x: Tensor, lengths: Tensor | None) -> Tensor:
    """(B, L, D) -> (B, D) mean of the rows, padding left out; 0 for an empty series."""
    if lengths is None:
        return x.mean(dim=1)
    valid = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
    return torch.where(valid[..., None], x, 0).sum(dim=1) / lengths.clamp(min=1)[:, None].to(x.dtype)
