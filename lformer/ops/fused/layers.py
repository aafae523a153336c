"""Mixers of any width: products by cuBLAS, what lies between them in row kernels, the memory by the operator's kernels.

Naive form: `nn.mixer`. The kernels of `node.py` make everything from one tile of rows in registers, which ends at a
width of 64. Here every product is one call on all rows, with the weights of queries, keys, values, output gate and gate
side by side, and a pass reads and writes whole tensors; so what counts is how many, and how wide they are. Operands of
products are kept in the dtype that the product rounds them to: bfloat16, or float16 in the place of TF32, which has as
many digits. The residual stream and the gradients of q, k, v and o, which know no bound, keep the dtype of the rows.

In training a call is one node of the graph. A layer keeps what `Kept` lists and makes the rest again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lformer.ops import checks
from lformer.ops.dropout import CHANNEL, TIME, Dropping
from lformer.ops.fused import decays
from lformer.ops.fused import row_kernels as rows
from lformer.ops.fused.dropout import Drops, layer_drops
from lformer.ops.fused.operator import RowGradients, read_rows, read_rows_backward
from lformer.ops.fused.packed import Operands, pack, take_apart
from lformer.ops.fused.plan import MixerWeights
from lformer.ops.fused.row_kernels import ONES, Gradient
from lformer.ops.gates import GateNorm
from lformer.ops.parallel import largest_span
from lformer.ops.precision import tf32_allowed


class Settings(NamedTuple):
    """What a call is, beside its tensors."""

    causal: bool  # of all mixers, as the norm
    norm: GateNorm
    narrow: torch.dtype  # of what products take


class Kept(NamedTuple):
    """What one mixer leaves for its backward pass; N = B L rows, M as in `packed.py`."""

    x: Tensor  # (N, D)
    h: Tensor  # (N, D + ONES) its layer norm, narrow
    projected: Tensor  # (N, M) narrow
    decay: Tensor  # (B, L, H) of the rows that write
    budgets: Tensor  # (B, S, H) sums of u, for the way back to the gates; with queries decay once more
    y: Tensor  # (N, D) read from the memory, narrow
    memory: Tensor  # this and the next two: what the operator keeps
    before: Tensor
    total: Tensor
    x1: Tensor  # (N, D) after the time mixer
    h2: Tensor  # (N, D) its layer norm, narrow
    up: Tensor  # (N, 2F) narrow
    project: Tensor  # this and the next three: `Operands`
    w_mix: Tensor
    w_up: Tensor
    w_down: Tensor


class Call(NamedTuple):
    """The tensors that all layers share."""

    deltas: Tensor  # (B, L) float32
    is_query: Tensor | None  # (B, L) bool
    dropping: Dropping | None
    lengths: Tensor | None  # (B,) valid rows, whose mean is taken; None if the rows are wanted
    settings: Settings

    def drop(self, layer: int, branch: int) -> Drops | None:
        """At the end of the time mixer or of the channel mixer of a layer."""
        return layer_drops(self.dropping, layer, branch)


def stack(
    x: Tensor,
    deltas: Tensor,
    layers: Sequence[MixerWeights],
    causal: bool,
    norm: GateNorm,
    is_query: Tensor | None = None,
    lengths: Tensor | None = None,
    dropping: Dropping | None = None,
) -> Tensor:
    """Mixers one after the other.

    Args:
        x: (B, L, D) rows, float32 or bfloat16.
        deltas: (B, L) intervals; 0 on padding.
        layers: weights of each mixer.
        causal, norm: of all mixers.
        is_query: (B, L) bool, rows that only read.
        lengths: (B,) valid rows: return their mean in the place of the rows, 0 for an empty series.
        dropping: what is dropped of what either branch of a mixer adds.

    Returns:
        (B, L, D) or (B, D), in the dtype of x.
    """
    checks.deltas_valid(deltas)
    settings = Settings(causal or x.shape[1] == 1, norm, narrow_dtype(x))  # one row reads itself either way
    call = Call(deltas.to(torch.float32).contiguous(), is_query, dropping, lengths, settings)
    weights = [p for w in layers for p in w]
    if torch.is_grad_enabled() and (x.requires_grad or any(p.requires_grad for p in weights)):
        y: Tensor = _Stack.apply(x, call, *weights)
    else:
        with _as_given(x):
            y = run(x.contiguous(), call, _grouped(weights))
    checks.finite_result(y, "the output of the fused layers")
    return y


def narrow_dtype(x: Tensor) -> torch.dtype:
    """What products take of rows like x: float16 in the place of TF32."""
    return torch.float16 if x.dtype == torch.float32 and x.is_cuda and tf32_allowed() else x.dtype


class _Stack(torch.autograd.Function):
    """The call as one node."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, call: Call, *weights: Tensor) -> Tensor:
        kept: list[Kept] = []
        with _as_given(x):
            y = run(x.contiguous(), call, _grouped(weights), kept)
        ctx.call = call
        ctx.save_for_backward(*weights, *(t for k in kept for t in k))
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        tensors = ctx.saved_tensors  # asked for once, as checkpointing wants it
        size, depth = len(MixerWeights._fields), len(tensors) // (len(MixerWeights._fields) + len(Kept._fields))
        layers, of_layers = _grouped(tensors[: depth * size]), tensors[depth * size :]
        gradients: list[Tensor] = []
        (B, L), lengths = ctx.call.deltas.shape, ctx.call.lengths
        if lengths is None:
            g = Gradient(grad.contiguous().view(B * L, -1))
        else:
            g = Gradient(grad.float() / lengths.clamp(min=1)[:, None], lengths, L)
        peaks = grad.new_empty(1, dtype=torch.float32)
        if ctx.call.settings.narrow == torch.float16:
            peaks = torch.linalg.vector_norm(g.g, math.inf, dtype=torch.float32)[None]
        with _as_given(grad):
            for n in reversed(range(depth)):
                kept = Kept(*of_layers[n * len(Kept._fields) : (n + 1) * len(Kept._fields)])
                dx, peaks, found = backward(g, peaks, kept, layers[n], ctx.call, n)
                gradients = [*(d.to(p.dtype) for d, p in zip(found, layers[n], strict=True)), *gradients]
                g = Gradient(dx)
        return dx.view(B, L, -1), None, *gradients


def _grouped(weights: Sequence[Tensor]) -> list[MixerWeights]:
    size = len(MixerWeights._fields)
    return [MixerWeights(*(p.contiguous() for p in weights[n : n + size])) for n in range(0, len(weights), size)]


def _as_given(x: Tensor) -> AbstractContextManager[Any]:
    """Products take what they are given, also under autocast."""
    device = x.device.type
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


# --- forwards ---


def run(x: Tensor, call: Call, layers: Sequence[MixerWeights], kept: list[Kept] | None = None) -> Tensor:
    """(B, L, D) -> (B, L, D), or (B, D) their mean; what the backward pass of each layer wants goes into `kept`."""
    shape, narrow = x.shape, call.settings.narrow
    x = x.view(-1, shape[-1])
    h = rows.norm(x, layers[0].norm1, layers[0].norm1_bias, narrow, ONES)
    for n, w in enumerate(layers):
        weights = pack(w, narrow)
        projected = product(h, weights.project.T)
        decay, budgets, reads = make_decay(gate_logits(projected, w, call), w.theta, call)
        if not call.settings.causal:
            checks.span_fits(decay, decay.dtype, largest_span(decay.dtype))
        q, k, v, o = split(projected, w, call)
        y, memory = read_rows(q, k, v, decay, call.settings.causal)
        y = y.view(x.shape)
        t = product(rows.gate_output(o, y, reads, w.theta.shape[0]), weights.mix.T)
        x1, h2 = rows.add_norm(x, t, call.drop(n, TIME), w.norm2, w.norm2_bias, narrow)
        up = product(h2, weights.up.T)
        t = product(rows.swiglu(up), weights.down.T)
        if kept is not None:
            kept.append(Kept(x, h, projected, decay, budgets, y, *memory, x1, h2, up, *weights))
        if n + 1 < len(layers):
            following = layers[n + 1]
            x, h = rows.add_norm(x1, t, call.drop(n, CHANNEL), following.norm1, following.norm1_bias, narrow, ONES)
    last = call.drop(len(layers) - 1, CHANNEL)
    if call.lengths is not None:
        return rows.add_mean(x1, t, last, call.lengths, shape[1])
    return rows.add(x1, t, last).view(shape)


def split(projected: Tensor, w: MixerWeights, call: Call) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(N, M) -> views: q, k, v (B, L, H, K), and o (N, D) before its sigmoid"""
    H, D = w.wg.shape
    q, k, v, o = (projected[:, n * D : (n + 1) * D] for n in range(4))
    q, k, v = (t.view(*call.deltas.shape, H, -1) for t in (q, k, v))
    return q, k, v, o


def product(a: Tensor, b: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """a b, accumulated in float32; the result in `dtype` or like a."""
    if dtype is None or dtype == a.dtype:
        return torch.mm(a, b)
    return torch.mm(a, b, out_dtype=dtype) if a.is_cuda else torch.mm(a.to(dtype), b.to(dtype))


def gate_logits(projected: Tensor, w: MixerWeights, call: Call) -> Tensor:
    """(N, M) -> (B, L, H), a view: x̃ before its sigmoid"""
    H, D = w.wg.shape
    return projected[:, 4 * D : 4 * D + H].view(*call.deltas.shape, H)


def make_decay(logits: Tensor, theta: Tensor, call: Call) -> tuple[Tensor, Tensor, Tensor | None]:
    """(B, L, H), (H,) -> decay (B, L, H), the budgets of `Kept`; with queries (N, H) what they find left of a memory"""
    prefix = call.settings.norm == "prefix"
    if call.is_query is None:
        return *decays.make_decay(logits, call.deltas, theta, prefix), None
    decay, reads = decays.make_query_decay(logits, call.deltas, theta, call.is_query, prefix)
    return decay, decay, reads


# --- backwards ---


def backward(
    g: Gradient, peaks: Tensor, kept: Kept, w: MixerWeights, call: Call, layer: int
) -> tuple[Tensor, Tensor, MixerWeights]:
    """The backward pass of one mixer.

    Args:
        g: gradient of its result.
        peaks: (P,) largest entries of it; anything where nothing is scaled.
        kept: by the forward pass.
        w: contiguous weights.
        call: of the forward pass.
        layer: its number.

    Returns:
        (N, D) gradient of x, (P,) its largest entries, and those of the weights.
    """
    narrow, heads = call.settings.narrow, w.theta.shape[0]
    weights = Operands(kept.project, kept.w_mix, kept.w_up, kept.w_down)
    scales = rows.gradient_scales(peaks, narrow)
    dt = rows.narrow_gradient(g, kept.x1, scales, call.drop(layer, CHANNEL), narrow)
    dup, s = rows.swiglu_backward(product(dt, weights.down), kept.up)
    d_down = product(dt.T, s, torch.float32)
    d_up = product(dup.T, kept.h2, torch.float32)
    at_x1 = rows.norm_backward(
        product(dup, weights.up), kept.x1, w.norm2, g, scales, call.drop(layer, TIME), narrow
    )  # fmt: skip
    del dup, s

    # The gradients of q, k, v and o, side by side as these are, in the dtype of the rows: one that writes after a long
    # silence gathers those of all rows that read it.
    logits = gate_logits(kept.projected, w, call)
    reads = None if call.is_query is None else make_decay(logits, w.theta, call)[2]
    dprojected = kept.x.new_empty(kept.projected.shape)
    (q, k, v, o), (dq, dk, dv, do) = split(kept.projected, w, call), split(dprojected, w, call)
    dz = product(at_x1.narrow, weights.mix)
    dy, z, dreads = rows.gate_output_backward(dz, o, kept.y, reads, do, heads)
    d_mix = product(at_x1.narrow.T, z, torch.float32)
    to = RowGradients(dq, dk, dv, torch.empty_like(kept.decay))
    memory = (kept.memory, kept.before, kept.total)
    read_rows_backward(q, k, v, kept.decay, memory, dy.view(v.shape), to, call.settings.causal)
    d_theta = gates_backward(logits, w.theta, kept, to.ddecay, dreads, dprojected[:, 4 * w.wm.shape[0] :], call)

    d_project = product(dprojected.T, kept.h.to(dprojected.dtype), torch.float32)
    dh = product(dprojected, weights.project[:, : w.wm.shape[0]].to(dprojected.dtype))
    at_x = rows.norm_backward(dh, kept.x, w.norm1, Gradient(at_x1.dx), scales)
    found = Operands(d_project, d_mix, d_up, d_down)
    return at_x.dx, at_x.peaks, take_apart(found, at_x.affine, at_x1.affine, d_theta, scales, w)


def gates_backward(
    logits: Tensor, theta: Tensor, kept: Kept, ddecay: Tensor, dreads: Tensor | None, dlogits: Tensor, call: Call
) -> Tensor:
    """Of `make_decay`: fills dlogits (N, M - 4 D), with zeros behind the heads; returns the gradient of theta, (H,)."""
    prefix = call.settings.norm == "prefix"
    if call.is_query is None or dreads is None:
        return decays.decay_backward(logits, call.deltas, theta, kept.decay, kept.budgets, ddecay, dlogits, prefix)
    return decays.query_decay_backward(
        logits, call.deltas, theta, call.is_query, ddecay, dreads, dlogits, prefix
    )  # fmt: skip
