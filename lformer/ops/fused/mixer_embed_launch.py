"""A whole model in inference as fused kernels, from the values to the answers; the mixers are those of `mixer_launch`.

The kernel that makes the gates of the first layer also embeds the rows, and the one that takes their mean is the head.
`LFormer` decides what may run this way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lformer.ops import checks
from lformer.ops.fused import mixer, mixer_embed
from lformer.ops.fused import mixer_launch as launch
from lformer.ops.fused.launching import start
from lformer.ops.fused.plan import MixerWeights, Plan, make_plan

HEAD_BLOCK = 64  # outputs at a time
WARP_ROWS = 16  # rows of a tile that one warp has


class Affine(NamedTuple):
    """The parameters of an nn.Linear."""

    weight: Tensor  # (out, in)
    bias: Tensor  # (out,)


class Rows(NamedTuple):
    """What enters a layer."""

    x: Tensor  # (B, L, D)
    gates: Tensor  # (B, L, H) x̃
    sums: Tensor  # (B, S, H) what each segment adds to U


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
) -> Tensor:
    """Embedder, mixers, and the mean and the head where they are wanted; without gradients.

    Args:
        values: (B, L, C), float32 or bfloat16.
        deltas: (B, L) intervals; 0 on padding.
        embedder: (D, C), (D,).
        layers: weights of each mixer.
        causal, norm: of all mixers.
        lengths: (B,) valid rows; only the mean depends on it.
        dtype: of the rows and of the result, float32 or bfloat16.
        pool: take the mean over valid rows; 0 for an empty series.
        head: (O, D), (O,), applied to the mean.

    Returns:
        (B, L, D) rows, (B, D) their mean, or (B, O) answers.
    """
    checks.deltas_valid(deltas)
    deltas, lengths = deltas.to(torch.float32).contiguous(), lengths.contiguous()
    layers = [MixerWeights(*(p.contiguous() for p in w)) for w in layers]
    x = values.new_empty(*values.shape[:2], embedder.weight.shape[0], dtype=dtype)
    plan = make_plan(x, layers[0], causal, norm, mixer.FORCED_CHUNKS)
    rows = embed(values.contiguous(), deltas, _contiguous(embedder), layers[0], x, plan)
    read = mixer.run_layers(*rows, deltas, layers, plan, lengths if pool else None)
    result = read.x2 if read.pooled is None else read.pooled
    assert result is not None
    checks.finite_result(result, "the output of the fused mixer")
    if read.pooled is None:
        return result
    if head is None:
        return launch.mean(read.pooled, lengths, x, plan)
    return answers(read.pooled, lengths, _contiguous(head), x, plan)


def embed(values: Tensor, deltas: Tensor, embedder: Affine, w: MixerWeights, x: Tensor, plan: Plan) -> Rows:
    """(B, L, C), (B, L) -> the rows, written to x, and of the layer of weights w their gates and sums."""
    C = values.shape[2]
    width = max(16, launch.power_of_two(C))
    tile = _tile_rows(plan, width)
    gates = x.new_empty(plan.B, plan.L, plan.H, dtype=torch.float32)
    sums = x.new_empty(plan.B, plan.segments, plan.H, dtype=torch.float32)
    start(
        mixer_embed.embed_kernel, (plan.B * plan.segments,),
        (
            values, deltas, embedder.weight, embedder.bias, w.norm1, w.norm1_bias, w.wg, w.bg, w.theta,
            x, gates, sums,
        ),
        (plan.L, plan.segments, plan.rows),
        C=C, WIDTH=width, D=plan.D, H=plan.H, T=tile, PRECISION=plan.precision,
        num_warps=tile // WARP_ROWS, num_stages=1,
    )  # fmt: skip
    return Rows(x, gates, sums)


def answers(pooled: Tensor, lengths: Tensor, head: Affine, like: Tensor, plan: Plan) -> Tensor:
    """(B, S, D) sums of valid rows -> (B, O) the head of their mean, in the dtype of `like`."""
    outputs = head.weight.shape[0]
    out = like.new_empty(plan.B, outputs)
    start(
        mixer_embed.head_kernel, (plan.B,), (pooled, lengths, head.weight, head.bias, out), (plan.segments, outputs),
        D=plan.D, SEGMENTS=launch.power_of_two(plan.segments),
        BLOCK=min(HEAD_BLOCK, launch.power_of_two(outputs)), num_warps=4, **launch.early(plan, pooled),
    )  # fmt: skip
    return out


def _tile_rows(plan: Plan, width: int) -> int:
    """Rows of a tile of `embed`: 256 fill a multiprocessor that has one program, where the registers hold them."""
    alone = plan.precision == "tf32" and not plan.causal
    most = 256 if alone and plan.D + width <= 96 else 128
    return min(most, launch.power_of_two(plan.rows))


def _contiguous(affine: Affine) -> Affine:
    return Affine(affine.weight.contiguous(), affine.bias.contiguous())
