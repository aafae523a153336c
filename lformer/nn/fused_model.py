"""A whole LFormer as fused kernels, as far as it can be: mixers in one call, with the embedder and the head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from lformer.batch import IrregularBatch
from lformer.nn.embedder import Embedder
from lformer.nn.mixer import LiquidMixer, has_hooks, run_fused

if TYPE_CHECKING:
    from lformer.nn.lformer import LFormer
    from lformer.ops.fused.mixer_ends_launch import Affine

# Up to how many channels and outputs the fused kernels take the embedder and the head.
EMBEDDED, ANSWERED = 64, 1024


# --- all mixers in one call ---


def explain_stack(mixers: Sequence[LiquidMixer], x: Tensor, deltas: Tensor, is_query: Tensor | None) -> str:
    """Why the mixers run one by one, each fused where it can be; empty if all of them are one call."""
    for mixer in mixers:
        if reason := mixer.explain(x, deltas, is_query):
            return reason
    if any(has_hooks(mixer) for mixer in mixers):
        return "a mixer has hooks"
    if len({mixer.shape for mixer in mixers}) > 1:
        return "the mixers differ"
    return ""


def stacked(model: LFormer, x: Tensor, deltas: Tensor, lengths: Tensor) -> Tensor:
    """From the embedded rows to the answers; the call also takes the mean of the rows where it is wanted."""
    x = run_fused(model.blocks, x, deltas, lengths, pool=_wants_mean(model))
    return _answers(model, x, lengths)


def _wants_mean(model: LFormer) -> bool:
    return model.config.answer == "series" and model.pool.kind == "mean"


def _answers(model: LFormer, x: Tensor, lengths: Tensor) -> Tensor:
    """From the rows of the last mixer, or their mean where that is all the head wants."""
    if model.config.answer == "series" and not _wants_mean(model):
        x = model.pool(model.pool.add(model.pool.start(len(x), x), x, lengths), lengths)
    return model.head(x)


# --- with the embedder before and the head after them ---


def explain_embedding(model: LFormer, batch: IrregularBatch) -> str:
    """Why the embedder runs as a module, before the mixers; empty if their kernels embed the rows."""
    values, embedder = batch.values, model.embedder
    if torch.compiler.is_compiling():
        return "a compiler sees modules and operators"
    if torch.is_grad_enabled() and values.requires_grad:
        return "values require a gradient"
    if (model.training and model.dropout.p > 0) or has_hooks(model.dropout):
        return "dropout acts on the embedded rows"
    if batch.query_times is not None:
        return "rows of queries come among the others"
    if type(embedder) is not Embedder or embedder.time is not None or has_hooks(embedder):
        return "the embedder does more than a linear map"
    if not model.rows.plain or model.persistence is not None or model.config.distribution != "point":
        return "rows or answers are more than values"
    C = values.shape[2:]
    if tuple(C) != embedder.shape or len(C) > 1 or C[0] > EMBEDDED:
        return f"rows have the shape {tuple(C)}"
    if reason := _explain_linear(embedder.value, (model.config.width, C[0]), values):
        return f"the embedder {reason}"
    x, dtype = values, _row_dtype(values)  # of the rows only the dtype, the device and whether there are any is asked
    if dtype != values.dtype:
        x = values.new_empty(1, dtype=dtype).expand(values.shape)
    return explain_stack(model.blocks, x, batch.deltas, None)


def explain_head(model: LFormer, values: Tensor) -> str:
    """Why the head of embedded values runs as a module; empty if the kernel of the mean of the rows is the head."""
    if not _wants_mean(model):
        return "the head sees more than a mean"
    if type(model.head) is not nn.Sequential or len(model.head) != 1 or has_hooks(model.head):
        return "the head is not a single linear map"
    if model.config.outputs > ANSWERED:
        return f"the head has {model.config.outputs} outputs"
    reason = _explain_linear(model.head[0], (model.config.outputs, model.config.width), values)
    return f"the head {reason}" if reason else ""


def embedded(model: LFormer, batch: IrregularBatch) -> Tensor:
    """As `stacked`, from the values on."""
    from lformer.ops.fused.mixer import answer  # imports triton

    liquid, layers = model.blocks[0].liquid, [mixer.fused_weights() for mixer in model.blocks]
    embedder, head = _affine(model.embedder.value), None
    if not explain_head(model, batch.values):
        head = _affine(model.head[0])
        if _learning(*head) and not _learning(*embedder, *(p for w in layers for p in w)):
            head = None  # a head that learns alone needs nothing of what is kept for the others
    x = answer(
        batch.values, model.intervals(batch, None), embedder, layers, liquid.causal, liquid.gate_norm, batch.lengths,
        _row_dtype(batch.values), _wants_mean(model), head,
    )  # fmt: skip
    return _answers(model, x, batch.lengths) if head is None else x


def _learning(*parameters: Tensor) -> bool:
    return torch.is_grad_enabled() and any(p.requires_grad for p in parameters)


def _affine(linear: nn.Module) -> Affine:
    from lformer.ops.fused.mixer_ends_launch import Affine  # imports triton

    assert isinstance(linear, nn.Linear)
    return Affine(linear.weight, linear.bias)


def _row_dtype(values: Tensor) -> torch.dtype:
    """What a linear map makes of them: under autocast its dtype."""
    device = values.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else values.dtype


def _explain_linear(module: nn.Module, shape: tuple[int, int], values: Tensor) -> str:
    """Why a kernel cannot be this map in a model of such values; empty if it can. Its weight must have the shape."""
    if type(module) is not nn.Linear or module.weight.shape != shape or module.bias is None or has_hooks(module):
        return f"is not a bare linear map with a weight of {shape}"
    known, weight = (torch.float32, torch.bfloat16), module.weight
    same = weight.dtype == values.dtype or torch.is_autocast_enabled(values.device.type)
    if not same or weight.dtype not in known or values.dtype not in known or weight.device != values.device:
        return f"has weights of {weight.dtype} on {weight.device} for {values.dtype} on {values.device}"
    return ""
