"""Mixers one after the other, with the embedder before and the head after them where they are in the call.

In training all of it is one node of the graph: an operator of PyTorch and its gradient take longer than the kernels of
a small batch, and between the values and the answers there is none. A layer goes back in five steps, between which only
small tensors and the gradient of x travel:

B1  channel mixer   x1, dx2 -> dx1
B2  reading         x, dx1 -> dx so far, E = dy · y, R
B3  writing         x, R -> more of dx, F = gradient of the write weight
B4  decay           E, F -> gradient of the gate
B5  gate            x -> the rest of dx; in the first layer of a whole model also the gradient of the embedder
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from lformer.ops import checks
from lformer.ops.dropout import Dropping
from lformer.ops.fused import causal, channel, ends, gate, time_mixer, weights
from lformer.ops.fused.dropout import Drops, layer_drops, row_drops
from lformer.ops.fused.ends import Rows
from lformer.ops.fused.plan import Affine, MixerWeights, Plan, Saved, make_plan
from lformer.ops.fused.weights import Scratch, apart, make_scratch

Group = TypeVar("Group", MixerWeights, Saved)
FORCED_CHUNKS = 0  # chunks per segment; 0 lets the plan choose, tests make many segments of few rows


class Settings(NamedTuple):
    """What a call is, beside its tensors."""

    causal: bool  # of all mixers, as the norm
    norm: str
    dtype: torch.dtype  # of the rows and of the result
    embeds: bool = False  # it begins with values
    answers: bool = False  # it ends with the head of the mean


class Model(NamedTuple):
    """The weights, contiguous."""

    layers: list[MixerWeights]
    embedder: Affine | None  # (D, C), (D,)
    head: Affine | None  # (O, D), (O,)

    def listed(self) -> list[Tensor]:
        """In the order of `call`."""
        return [p for w in self.layers for p in w] + [*(self.embedder or ()), *(self.head or ())]


class Outcome(NamedTuple):
    """What the kernels leave."""

    result: Tensor  # (B, O) answers, (B, D) mean or (B, L, D) rows
    mean: Tensor | None  # (B, D) that the head has taken, if it is to be kept
    plan: Plan


def call(
    source: Tensor,
    deltas: Tensor,
    lengths: Tensor | None,
    settings: Settings,
    weights: Sequence[Tensor],
    dropping: Dropping | None = None,
) -> Tensor:
    """From values or rows to answers, a mean or rows, as the settings say.

    Args:
        source: (B, L, C) values or (B, L, D) rows, float32 or bfloat16. Values get no gradient.
        deltas: (B, L) intervals; 0 on padding.
        lengths: (B,) valid rows, whose mean is taken; None if no mean is wanted.
        settings: see there.
        weights: of all layers, then weight and bias of the embedder and of the head, where they are in the call.
        dropping: what is left out in training; None if nothing is.

    Returns:
        (B, O), (B, D), 0 for the mean of an empty series, or (B, L, D).
    """
    checks.deltas_valid(deltas)
    deltas = deltas.to(torch.float32).contiguous()
    if torch.is_grad_enabled() and (source.requires_grad or any(p.requires_grad for p in weights)):
        y: Tensor = _Call.apply(source, deltas, lengths, settings, dropping, *weights)
    else:
        y = run(source.contiguous(), deltas, lengths, settings, model_of(weights, settings), dropping).result
    checks.finite_result(y, "the output of the fused mixer")
    return y


class _Call(torch.autograd.Function):
    """The call as one node."""

    @staticmethod
    def forward(
        ctx: Any,
        source: Tensor,
        deltas: Tensor,
        lengths: Tensor | None,
        settings: Settings,
        dropping: Dropping | None,
        *weights: Tensor,
    ) -> Tensor:
        model, source, kept = model_of(weights, settings), source.contiguous(), list[Saved]()
        result, mean, ctx.plan = run(source, deltas, lengths, settings, model, dropping, kept)
        ctx.settings = settings
        seed, *ctx.shares = (None,) if dropping is None else dropping
        values = source if settings.embeds else None
        ctx.save_for_backward(lengths, values, mean, seed, *(t for saved in kept for t in saved), *model.listed())
        return result

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        lengths, values, mean, seed, *tensors = ctx.saved_tensors  # asked for once, as checkpointing wants it
        dropping = None if seed is None else Dropping(seed, *ctx.shares)
        depth = len(tensors) // (len(Saved._fields) + len(MixerWeights._fields))
        kept = grouped(Saved, tensors[: depth * len(Saved._fields)])
        model = model_of(tensors[depth * len(Saved._fields) :], ctx.settings)
        grad, parts = grad.contiguous(), None
        if model.head is not None:
            grad, parts = ends.answers_backward(grad, mean, model.head.weight, ctx.plan)
        scratch = make_scratch(kept[0].x, ctx.plan)
        of_layers: list[Tensor] = []
        of_ends: list[Tensor] = []
        for n in reversed(range(depth)):
            first, last = n == 0, n == depth - 1
            grad, dw = backward(
                grad, kept[n], model.layers[n], ctx.plan, scratch,
                lengths if last else None, values if first else None, parts if last else None,
                layer_drops(dropping, n), row_drops(dropping) if first else None,
            )  # fmt: skip
            own = model._replace(
                layers=[model.layers[n]],
                embedder=model.embedder if first else None,
                head=model.head if last else None,
            )
            gradients = apart(dw, own.listed())
            size = len(MixerWeights._fields)
            of_layers, of_ends = [*gradients[:size], *of_layers], [*gradients[size:], *of_ends]
        return None if ctx.settings.embeds else grad, None, None, None, None, *of_layers, *of_ends


def run(
    source: Tensor,
    deltas: Tensor,
    lengths: Tensor | None,
    settings: Settings,
    model: Model,
    dropping: Dropping | None = None,
    kept: list[Saved] | None = None,
) -> Outcome:
    """The kernels; what the backward pass of each layer wants is put into `kept`, where it is given."""
    layers, embedder, head = model
    x = source if embedder is None else _room(source, embedder, settings.dtype)
    plan = plan_of(x, layers[0], settings.causal, settings.norm)
    if embedder is None:
        rows = Rows(x, *gate.make_gates(x, deltas, layers[0], plan))
    else:
        rows = ends.embed_rows(source, deltas, embedder, layers[0], x, plan, row_drops(dropping))
    read = _run_layers(rows, deltas, layers, plan, lengths, dropping, kept)
    if read.pooled is None or lengths is None:
        assert read.x2 is not None
        return Outcome(read.x2, None, plan)
    if head is None:
        return Outcome(ends.take_mean(read.pooled, lengths, x, plan), None, plan)
    return Outcome(*ends.make_answers(read.pooled, lengths, head, x, plan, keep=kept is not None), plan)


def _run_layers(
    rows: Rows,
    deltas: Tensor,
    layers: Sequence[MixerWeights],
    plan: Plan,
    lengths: Tensor | None,
    dropping: Dropping | None,
    kept: list[Saved] | None,
) -> time_mixer.Reading:
    """What the last layer leaves. Each one emits the gates of the next; with lengths the last one sums its rows."""
    x, gates, sums = rows
    for n, w in enumerate(layers):
        following = layers[n + 1] if n + 1 < len(layers) else None
        rates = gate.make_decay(gates, sums, deltas, w.theta, plan)
        if plan.causal:
            y, partial = causal.read_segments(x, rates, w, plan)
        else:
            y, partial = x, time_mixer.accumulate(x, rates.decay, rates.cum, w, plan)
        read = time_mixer.read_rows(
            x, y, deltas, rates, partial, w, plan, store_x1=kept is not None, following=following,
            pool_lengths=lengths if following is None else None, drops=layer_drops(dropping, n),
        )  # fmt: skip
        if kept is not None:
            assert read.x1 is not None
            kept.append(Saved(x, read.x1, deltas, gates, rates.decay, rates.cum, partial, rates.span))
        if following is not None:
            assert read.x2 is not None
            assert read.gates is not None
            assert read.sums is not None
            x, gates, sums = read.x2, read.gates, read.sums
    return read


def backward(
    grad: Tensor,
    saved: Saved,
    w: MixerWeights,
    plan: Plan,
    s: Scratch,
    lengths: Tensor | None = None,
    values: Tensor | None = None,
    head: Tensor | None = None,
    drops: Drops | None = None,
    embedded_drops: Drops | None = None,
) -> tuple[Tensor, Tensor]:
    """The backward pass of one mixer.

    Args:
        grad: (B, L, D) gradient of x2, or, with lengths, (B, D) that of the mean over valid rows.
        saved: by the forward pass.
        w: contiguous weights.
        plan: of the forward pass.
        s: written over.
        lengths: (B,) valid rows of each series.
        values: (B, L, C) that were embedded as x.
        head: parts of the gradient of the head behind this mixer, see `answers_backward`.
        drops: what the forward pass dropped of what the branches add.
        embedded_drops: and of the embedded rows.

    Returns:
        (B, L, D) gradient of x, and those of the weights, which `apart` takes apart, in the dtype of `wq`: after the
        mixer's those of the embedder, with values, and of the head, with its parts. With values that of x lacks what
        comes through the gate, as it goes no further.
    """
    weights.fold(w, s, plan)
    dx = channel.backward(grad, lengths, saved.x1, s, plan, drops)
    gate.factors(saved, s, plan)
    (causal if plan.causal else time_mixer).backward(dx, saved, w.wm, s, plan, drops)
    gate.decay_backward(saved, w.theta, s, plan)
    embedder = None
    if values is None:
        gate.rows_backward(dx, saved.x, s, plan)
    else:
        embedder = ends.embed_backward(values, dx, s.e, saved.x, s.gate, s.g_gate, s.counts.gate, plan, embedded_drops)
    return dx, weights.gradients(s, embedder, head, w, plan)


def model_of(weights: Sequence[Tensor], settings: Settings) -> Model:
    """From the order of `call`."""
    weights = [p.contiguous() for p in weights]
    size = len(weights) - 2 * (settings.embeds + settings.answers)
    embedder = Affine(*weights[size : size + 2]) if settings.embeds else None
    head = Affine(*weights[-2:]) if settings.answers else None
    return Model(grouped(MixerWeights, weights[:size]), embedder, head)


def grouped(kind: type[Group], tensors: Sequence[Tensor]) -> list[Group]:
    """A list of all layers -> one group for each."""
    size = len(kind._fields)
    return [kind(*tensors[n : n + size]) for n in range(0, len(tensors), size)]


def plan_of(x: Tensor, weights: MixerWeights, causal: bool, norm: str) -> Plan:
    return make_plan(x, weights, causal, norm, FORCED_CHUNKS)


def _room(values: Tensor, embedder: Affine, dtype: torch.dtype) -> Tensor:
    """For the embedded rows, (B, L, D)."""
    return values.new_empty(*values.shape[:2], embedder.weight.shape[0], dtype=dtype)
