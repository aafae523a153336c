"""Launch the kernels at the two ends of a whole model, forwards and backwards; the mixers are between them.

The kernel that makes the gates of the first layer also embeds the rows, and the one that takes their mean is the head.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lformer.ops.fused import backward_ends, mixer_ends
from lformer.ops.fused import mixer_launch as launch
from lformer.ops.fused.launching import start
from lformer.ops.fused.plan import MixerWeights, Plan

HEAD_BLOCK = 64  # outputs at a time
HEAD_SERIES = 32  # of a program of the head's backward pass
WARP_ROWS = 16  # rows of a tile that one warp has
EMBED_ROWS = 32  # of a tile of the embedder's backward pass: more would not fit the registers of its four warps
EMBED_PROGRAMS = 396  # of that pass: three for each multiprocessor of an H200


class Affine(NamedTuple):
    """The parameters of an nn.Linear."""

    weight: Tensor  # (out, in)
    bias: Tensor  # (out,)


class Rows(NamedTuple):
    """What enters a layer."""

    x: Tensor  # (B, L, D)
    gates: Tensor  # (B, L, H) x̃
    sums: Tensor  # (B, S, H) what each segment adds to U


class Answers(NamedTuple):
    """What the head leaves."""

    answers: Tensor  # (B, O)
    mean: Tensor | None  # (B, D) of valid rows, where it was asked for


def embed(values: Tensor, deltas: Tensor, embedder: Affine, w: MixerWeights, x: Tensor, plan: Plan) -> Rows:
    """(B, L, C), (B, L) -> the rows, written to x, and of the layer of weights w their gates and sums."""
    C, width = values.shape[2], _width(values)
    tile = _tile_rows(plan, width)
    gates = x.new_empty(plan.B, plan.L, plan.H, dtype=torch.float32)
    sums = x.new_empty(plan.B, plan.segments, plan.H, dtype=torch.float32)
    start(
        mixer_ends.embed_kernel, (plan.B * plan.segments,),
        (
            values, deltas, embedder.weight, embedder.bias, w.norm1, w.norm1_bias, w.wg, w.bg, w.theta,
            x, gates, sums,
        ),
        (plan.L, plan.segments, plan.rows),
        C=C, WIDTH=width, D=plan.D, H=plan.H, T=tile, PRECISION=plan.precision,
        num_warps=tile // WARP_ROWS, num_stages=1,
    )  # fmt: skip
    return Rows(x, gates, sums)


def answers(pooled: Tensor, lengths: Tensor, head: Affine, like: Tensor, plan: Plan, keep: bool = False) -> Answers:
    """(B, S, D) sums of valid rows -> the head of their mean, in the dtype of `like`, and the mean to `keep`."""
    outputs = head.weight.shape[0]
    out = like.new_empty(plan.B, outputs)
    mean = like.new_empty(plan.B, plan.D) if keep else None
    start(
        mixer_ends.head_kernel, (plan.B,),
        (pooled, lengths, head.weight, head.bias, out if mean is None else mean, out), (plan.segments, outputs),
        D=plan.D, SEGMENTS=launch.power_of_two(plan.segments),
        BLOCK=min(HEAD_BLOCK, launch.power_of_two(outputs)), KEEP=keep, num_warps=4, **launch.early(plan, pooled),
    )  # fmt: skip
    return Answers(out, mean)


def answers_backward(grad: Tensor, mean: Tensor, weight: Tensor, plan: Plan) -> tuple[Tensor, Tensor]:
    """Gradient of the answers (B, O) -> that of the mean (B, D), and (…, O D + O) parts of `head_backward`."""
    outputs, programs = weight.shape[0], -(-plan.B // HEAD_SERIES)
    dmean = torch.empty_like(mean)
    g = mean.new_empty(programs, outputs * (plan.D + 1), dtype=torch.float32)
    start(
        backward_ends.head_backward, (programs,), (grad, mean, weight, dmean, g), (plan.B, outputs),
        D=plan.D, SERIES=HEAD_SERIES, BLOCK=min(HEAD_BLOCK, max(16, launch.power_of_two(outputs))),
        PRECISION=plan.precision, num_warps=4, num_stages=1,
    )  # fmt: skip
    return dmean, g


def embed_backward(
    values: Tensor, dx: Tensor, slope: Tensor, x: Tensor, gate: Tensor, g_gate: Tensor, most: int, plan: Plan
) -> Tensor:
    """B5 of the first layer, which fills g_gate -> (…, D C + D) parts of the embedder's gradient, `most` or fewer."""
    N, C = plan.B * plan.L, values.shape[2]
    programs = min(EMBED_PROGRAMS, most)
    g = slope.new_empty(programs, plan.D * (C + 1))
    start(
        backward_ends.embed_backward, (programs,), (x, dx, slope, gate, values, g_gate, g), (N,),
        C=C, WIDTH=_width(values), D=plan.D, H=plan.H, T=EMBED_ROWS, PRECISION=plan.precision,
        num_warps=4, num_stages=1,
    )  # fmt: skip
    return g


def _width(values: Tensor) -> int:
    """Channels of a tile, which a product takes."""
    return max(16, launch.power_of_two(values.shape[2]))


def _tile_rows(plan: Plan, width: int) -> int:
    """Rows of a tile of `embed`: 256 fill a multiprocessor that has one program, where the registers hold them."""
    alone = plan.precision == "tf32" and not plan.causal
    most = 256 if alone and plan.D + width <= 96 else 128
    return min(most, launch.power_of_two(plan.rows))
