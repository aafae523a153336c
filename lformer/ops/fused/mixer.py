"""The fused mixer as functions of tensors: one block, the whole depth in one call, or a whole model.

`torch.compile` sees custom operators. An eager call goes around them: what an operator checks on every call, with some
twenty parameters, takes longer than the kernels of a small batch. Values are checked as the plain path checks them; the
kernels never look.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lformer.ops.dropout import Dropping
from lformer.ops.fused import ends
from lformer.ops.fused.node import Model, Settings, backward, call, model_of, plan_of, run
from lformer.ops.fused.plan import Affine, MixerWeights, Saved
from lformer.ops.fused.weights import apart, make_scratch


def mixer(x: Tensor, deltas: Tensor, weights: MixerWeights, causal: bool, norm: str) -> Tensor:
    """One LiquidMixer: rows x (B, L, D) and intervals (B, L) -> (B, L, D). `nn.fusion` tells what it takes."""
    return stack(x, deltas, [weights], causal, norm)


def stack(
    x: Tensor,
    deltas: Tensor,
    layers: Sequence[MixerWeights],
    causal: bool,
    norm: str,
    lengths: Tensor | None = None,
    pool: bool = False,
    dropping: Dropping | None = None,
) -> Tensor:
    """Mixers one after the other.

    Args:
        x: (B, L, D) rows, float32 or bfloat16.
        deltas: (B, L) intervals; 0 on padding.
        layers: weights of each mixer.
        causal, norm: of all mixers.
        lengths: (B,) valid rows, all if None; only the pooled mean depends on it.
        pool: return the mean over valid rows, (B, D), in the place of the rows; 0 for an empty series.
        dropping: what is left out of what each mixer adds, in an eager call alone; None if nothing is.

    Returns:
        (B, L, D) or (B, D), in the dtype of x.
    """
    weights = [p for w in layers for p in w]
    if not torch.compiler.is_compiling():
        rows = _valid_rows(lengths, x) if pool else None
        return call(x, deltas, rows, Settings(causal, norm, x.dtype), weights, dropping)
    if dropping is not None:
        raise NotImplementedError("the operators of a compiled graph drop nothing; an eager call does.")
    deltas = deltas.to(torch.float32).contiguous()
    if not (torch.is_grad_enabled() and (x.requires_grad or any(p.requires_grad for p in weights))):
        return fused_stack(x, deltas, weights, causal, norm, lengths, pool)
    for w in layers:
        x = fused_mixer(x, deltas, list(w), causal, norm)[0]
    return _pooled(x, lengths) if pool else x


def answer(
    values: Tensor,
    deltas: Tensor,
    embedder: Affine,
    layers: Sequence[MixerWeights],
    causal: bool,
    norm: str,
    lengths: Tensor,
    dtype: torch.dtype,
    pool: bool,
    head: Affine | None = None,
    dropping: Dropping | None = None,
) -> Tensor:
    """Embedder, mixers, and the mean and the head where they are wanted, in an eager call.

    Args:
        values: (B, L, C), float32 or bfloat16; they get no gradient.
        deltas: (B, L) intervals; 0 on padding.
        embedder: (D, C), (D,).
        layers: weights of each mixer.
        causal, norm: of all mixers.
        lengths: (B,) valid rows; only the mean depends on it.
        dtype: of the rows and of the result, float32 or bfloat16.
        pool: take the mean over valid rows; 0 for an empty series.
        head: (O, D), (O,), applied to the mean.
        dropping: what is left out of the embedded rows and of what each mixer adds; None if nothing is.

    Returns:
        (B, L, D) rows, (B, D) their mean, or (B, O) answers.
    """
    settings = Settings(causal, norm, dtype, embeds=True, answers=head is not None)
    weights = Model(list(layers), embedder, head).listed()
    return call(values, deltas, lengths.contiguous() if pool else None, settings, weights, dropping)


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
    return ends.fill_intervals(deltas.contiguous(), times.contiguous(), lengths, first_interval, typical, mean)


fused_intervals = torch.library.custom_op("lformer::fused_intervals", first_intervals, mutates_args=())


@fused_intervals.register_fake
def _(deltas: Tensor, times: Tensor, lengths: Tensor, first_interval: Tensor, typical: bool, mean: bool) -> Tensor:
    return torch.empty_like(deltas, memory_format=torch.contiguous_format)


# --- training in a compiled graph: one block, everything kept that its backward pass wants ---


def block_forward(
    x: Tensor, deltas: Tensor, weights: list[Tensor], causal: bool, norm: str
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """-> x2, and x1, gates, decay, cum, partial, span of `Saved`."""
    settings, kept = Settings(causal, norm, x.dtype), list[Saved]()
    x2 = run(x.contiguous(), deltas, None, settings, model_of(weights, settings), kept=kept).result
    _, x1, _, gates, decay, cum, partial, span = kept[0]
    return x2, x1, gates, decay, cum, partial, span


fused_mixer = torch.library.custom_op("lformer::fused_mixer", block_forward, mutates_args=())


@fused_mixer.register_fake
def _(
    x: Tensor, deltas: Tensor, weights: list[Tensor], causal: bool, norm: str
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    plan = plan_of(x, MixerWeights(*weights), causal, norm)
    rows = torch.empty_like(x, memory_format=torch.contiguous_format)
    heads = x.new_empty(plan.B, plan.L, plan.H, dtype=torch.float32)
    span = x.new_empty(plan.B, plan.segments, plan.H, dtype=torch.float32)
    partial = x.new_empty(plan.B, plan.segments, plan.H, plan.K, plan.K, dtype=torch.float32)
    return rows, rows.clone(), heads, heads.clone(), heads.clone(), partial, span


def block_backward(
    grad: Tensor, saved: list[Tensor], weights: list[Tensor], causal: bool, norm: str
) -> tuple[Tensor, Tensor]:
    """-> gradient of x, and those of the weights as `node.backward` gives them."""
    x, w = saved[0].contiguous(), MixerWeights(*(p.contiguous() for p in weights))
    plan = plan_of(x, w, causal, norm)
    scratch = make_scratch(x, plan)
    return backward(grad.contiguous(), Saved(*saved)._replace(x=x), w, plan, scratch)


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
    gradients = apart(dw, MixerWeights(*weights))
    return dx, None, [d.to(p.dtype) for d, p in zip(gradients, weights, strict=True)], None, None


fused_mixer.register_autograd(_differentiate, setup_context=_keep)


# --- inference in a compiled graph: all layers ---


def stack_forward(
    x: Tensor, deltas: Tensor, weights: list[Tensor], causal: bool, norm: str, lengths: Tensor | None, pool: bool
) -> Tensor:
    """As `stack`, with the weights of all layers in one list."""
    settings, rows = Settings(causal, norm, x.dtype), _valid_rows(lengths, x) if pool else None
    return run(x.contiguous(), deltas, rows, settings, model_of(weights, settings)).result


fused_stack = torch.library.custom_op("lformer::fused_stack", stack_forward, mutates_args=())


@fused_stack.register_fake
def _(
    x: Tensor, deltas: Tensor, weights: list[Tensor], causal: bool, norm: str, lengths: Tensor | None, pool: bool
) -> Tensor:
    return x.new_empty(x.shape[0], x.shape[2]) if pool else torch.empty_like(x, memory_format=torch.contiguous_format)


def _valid_rows(lengths: Tensor | None, x: Tensor) -> Tensor:
    """(B,) all rows if no lengths are given."""
    return torch.full((x.shape[0],), x.shape[1], device=x.device) if lengths is None else lengths.contiguous()


def _pooled(x: Tensor, lengths: Tensor | None) -> Tensor:
    """(B, L, D) -> (B, D) mean of the rows, padding left out; 0 for an empty series."""
    if lengths is None:
        return x.mean(dim=1)
    valid = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
    return torch.where(valid[..., None], x, 0).sum(dim=1) / lengths.clamp(min=1)[:, None].to(x.dtype)
