"""The fused mixer as functions of tensors: one block, or the whole depth in one call.

`torch.compile` sees custom operators. An eager call goes around them: what an operator checks on every call, with some
twenty parameters, takes longer than the kernels of a small batch. Values are checked as the plain path checks them; the
kernels never look.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from lformer.ops import checks
from lformer.ops.fused import mixer_backward
from lformer.ops.fused import mixer_launch as launch
from lformer.ops.fused.plan import MixerWeights, Plan, Saved, make_plan

Group = TypeVar("Group", MixerWeights, Saved)
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
    weights = [p for w in layers for p in w]
    learning = torch.is_grad_enabled() and (x.requires_grad or any(p.requires_grad for p in weights))
    if not torch.compiler.is_compiling():
        if learning:
            y = _Stack.apply(x, deltas, lengths, causal, norm, pool, *weights)
        else:
            y = stack_forward(x, deltas, weights, causal, norm, lengths, pool)
    elif learning:
        y = x
        for w in layers:
            y = fused_mixer(y, deltas, list(w), causal, norm)[0]
        if pool:
            y = _pooled(y, lengths)
    else:
        y = fused_stack(x, deltas, weights, causal, norm, lengths, pool)
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


# --- training in a compiled graph: one block, everything kept that its backward pass wants ---


def block_forward(
    x: Tensor, deltas: Tensor, weights: list[Tensor], causal: bool, norm: str
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """-> x2, and x1, gates, decay, cum, partial, span of `Saved`."""
    x, layers, plan = _prepare(x, weights, causal, norm)
    kept: list[Saved] = []
    x2 = _run(x, deltas, layers, plan, None, kept)
    _, x1, _, gates, decay, cum, partial, span = kept[0]
    return x2, x1, gates, decay, cum, partial, span


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
) -> tuple[Tensor, Tensor]:
    """-> gradient of x, and those of the weights as `mixer_backward.backward` gives them."""
    x, layers, plan = _prepare(saved[0], weights, causal, norm)
    return mixer_backward.backward(grad.contiguous(), Saved(*saved)._replace(x=x), layers[0], plan)


fused_mixer_backward = torch.library.custom_op("lformer::fused_mixer_backward", block_backward, mutates_args=())


@fused_mixer_backward.register_fake
def _(grad: Tensor, saved: list[Tensor], weights: list[Tensor], causal: bool, norm: str) -> tuple[Tensor, Tensor]:
    dx = torch.empty_like(saved[0], memory_format=torch.contiguous_format)
    return dx, MixerWeights(*weights).wq.new_empty(sum(p.numel() for p in weights))


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
    gradients = mixer_backward.apart(dw, MixerWeights(*weights))
    return dx, None, [d.to(p.dtype) for d, p in zip(gradients, weights, strict=True)], None, None


fused_mixer.register_autograd(_differentiate, setup_context=_keep)


# --- training in an eager call: all layers in one node of the graph ---


class _Stack(torch.autograd.Function):
    """As `stack`, with the weights of all layers one after the other."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        deltas: Tensor,
        lengths: Tensor | None,
        causal: bool,
        norm: str,
        pool: bool,
        *weights: Tensor,
    ) -> Tensor:
        x, layers, ctx.plan = _prepare(x, weights, causal, norm)
        lengths = _valid_rows(lengths, x) if pool else None
        kept: list[Saved] = []
        y = _run(x, deltas, layers, ctx.plan, lengths, kept)
        ctx.save_for_backward(lengths, *(t for saved in kept for t in saved), *(p for w in layers for p in w))
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        lengths, *tensors = ctx.saved_tensors  # asked for once, as checkpointing wants it
        depth = len(tensors) // (len(Saved._fields) + len(MixerWeights._fields))
        kept = _grouped(Saved, tensors[: depth * len(Saved._fields)])
        layers = _grouped(MixerWeights, tensors[depth * len(Saved._fields) :])
        grad = grad.contiguous()
        gradients: tuple[Tensor, ...] = ()
        for saved, w in zip(reversed(kept), reversed(layers), strict=True):
            grad, dw = mixer_backward.backward(grad, saved, w, ctx.plan, lengths)
            lengths = None  # only the rows of the last layer are pooled
            gradients = (*mixer_backward.apart(dw, w), *gradients)
        return grad, None, None, None, None, None, *gradients


# --- inference ---


def stack_forward(
    x: Tensor, deltas: Tensor, weights: list[Tensor], causal: bool, norm: str, lengths: Tensor | None, pool: bool
) -> Tensor:
    """As `stack`, with the weights of all layers in one list."""
    x, layers, plan = _prepare(x, weights, causal, norm)
    return _run(x, deltas, layers, plan, _valid_rows(lengths, x) if pool else None)


fused_stack = torch.library.custom_op("lformer::fused_stack", stack_forward, mutates_args=())


@fused_stack.register_fake
def _(
    x: Tensor, deltas: Tensor, weights: list[Tensor], causal: bool, norm: str, lengths: Tensor | None, pool: bool
) -> Tensor:
    return x.new_empty(x.shape[0], x.shape[2]) if pool else torch.empty_like(x, memory_format=torch.contiguous_format)


# --- shared ---


def _run(
    x: Tensor,
    deltas: Tensor,
    layers: Sequence[MixerWeights],
    plan: Plan,
    lengths: Tensor | None,
    kept: list[Saved] | None = None,
) -> Tensor:
    """The kernels of all layers, and with lengths the mean of their rows; `kept` as in `run_layers`."""
    gates, sums = launch.gates(x, deltas, layers[0], plan)
    read = run_layers(x, gates, sums, deltas, layers, plan, lengths, kept)
    if read.pooled is not None and lengths is not None:
        return launch.mean(read.pooled, lengths, x, plan)
    assert read.x2 is not None
    return read.x2


def run_layers(
    x: Tensor,
    gates: Tensor,
    sums: Tensor,
    deltas: Tensor,
    layers: Sequence[MixerWeights],
    plan: Plan,
    lengths: Tensor | None,
    kept: list[Saved] | None = None,
) -> launch.Reading:
    """What the last layer leaves. Each one emits the gates of the next; with lengths the last one sums its rows.

    What the backward pass of a layer wants is put into `kept`, where it is given.
    """
    for n, w in enumerate(layers):
        following = layers[n + 1] if n + 1 < len(layers) else None
        decay, cum, span = launch.decay(gates, sums, deltas, w.theta, plan)
        partial = launch.accumulate(x, decay, cum, w, plan)
        read = launch.read(
            x, deltas, decay, cum, partial, span, w, plan, store_x1=kept is not None, following=following,
            pool_lengths=lengths if following is None else None,
        )  # fmt: skip
        if kept is not None:
            assert read.x1 is not None
            kept.append(Saved(x, read.x1, deltas, gates, decay, cum, partial, span))
        if following is not None:
            assert read.x2 is not None
            assert read.gates is not None
            assert read.sums is not None
            x, gates, sums = read.x2, read.gates, read.sums
    return read


def _prepare(x: Tensor, weights: Sequence[Tensor], causal: bool, norm: str) -> tuple[Tensor, list[MixerWeights], Plan]:
    layers = _grouped(MixerWeights, [p.contiguous() for p in weights])
    return x.contiguous(), layers, _plan(x, layers[0], causal, norm)


def _grouped(kind: type[Group], tensors: Sequence[Tensor]) -> list[Group]:
    """A list of all layers -> one group for each."""
    size = len(kind._fields)
    return [kind(*tensors[n : n + size]) for n in range(0, len(tensors), size)]


def _valid_rows(lengths: Tensor | None, x: Tensor) -> Tensor:
    """(B,) all rows if no lengths are given."""
    return torch.full((x.shape[0],), x.shape[1], device=x.device) if lengths is None else lengths.contiguous()


def _plan(x: Tensor, weights: MixerWeights, causal: bool, norm: str) -> Plan:
    return make_plan(x, weights, causal, norm, FORCED_CHUNKS)


def _pooled(x: Tensor, lengths: Tensor | None) -> Tensor:
    """(B, L, D) -> (B, D) mean of the rows, padding left out; 0 for an empty series."""
    if lengths is None:
        return x.mean(dim=1)
    valid = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
    return torch.where(valid[..., None], x, 0).sum(dim=1) / lengths.clamp(min=1)[:, None].to(x.dtype)
