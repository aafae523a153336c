# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""The two ends of a whole model: intervals and values to the first layer's rows, sums of rows to answers (paper IV-C).

Naive form: `nn.lformer.LFormer.intervals`, a linear `nn.embedder.Embedder`, the mean of `nn.predictor.Pool` and a
linear head. All are bound by memory and by launches. Rows are written once and not read again for their gates; a mean
of rows goes through the head without being read again; backwards the gradient of the rows meets the values and is not
stored. Like the kernels of the mixers the backward ones leave parts of the weight gradients, which `weights.sum_parts`
adds in a fixed order.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from lformer.ops.fused.dropout import Drops, arguments, drop, load_keys
from lformer.ops.fused.gate import GATE_COLUMNS, emit_gates, gate_parameters, through_gate
from lformer.ops.fused.launch import early, power_of_two, start_kernel
from lformer.ops.fused.operands import load_again, load_weight, norm_backward
from lformer.ops.fused.plan import Affine, MixerWeights, Plan
from lformer.ops.fused.tiles import (
    dot,
    dot_add,
    dot_kept,
    kernel,
    left,
    load_rows,
    load_vector,
    normalise,
    rounded,
    store_rows,
    store_tile,
    summed,
    tile_channels,
    tile_rows,
    wait_for_rows,
)

INTERVAL_ROWS = 1024
HEAD_BLOCK = 64  # outputs at a time
HEAD_SERIES = 32  # of a program of the head's backward pass
WARP_ROWS = 16  # rows of a tile that one warp has
EMBED_ROWS = 32  # of a tile of the embedder's backward pass: more would not fit the registers of its four warps
EMBED_PROGRAMS = 396  # of that pass: three for each multiprocessor of an H200


# --- before the first layer ---


@kernel
def intervals_kernel(
    deltas, times, lengths, first_interval, filled, L,
    BLOCK: tl.constexpr, TYPICAL: tl.constexpr, MEAN: tl.constexpr,
):  # fmt: skip
    """deltas (B, L) with the first interval of every series: `first_interval` if TYPICAL, the mean if MEAN, else 0."""
    series, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    count = tl.load(lengths + series)
    first = tl.load(first_interval).to(tl.float32) if TYPICAL else 0.0
    if MEAN:
        last = tl.load(times + series * L + tl.maximum(count, 1) - 1)
        mean = ((last - tl.load(times + series * L)) / tl.maximum(count - 1, 1)).to(tl.float32)
        first = tl.where(mean > 0, mean, first)
    first = tl.where(count > 0, first, 0.0)  # an empty series has no first row
    delta = tl.load(deltas + series * L + at, mask=at < L, other=0.0)
    tl.store(filled + series * L + at, tl.where(at == 0, first, delta), mask=at < L)


@triton.jit
def load_values(values, first, count, T: tl.constexpr, C: tl.constexpr, WIDTH: tl.constexpr):
    """Rows `first …` of (B L, C) as a float32 (T, WIDTH) tile, 0 from row `count` and from channel C on."""
    row, channel = tile_rows(T), tile_channels(WIDTH)
    inside = (row < count) & (channel < C)
    tile = tl.load(values + first * C + (row * C + channel), mask=inside, other=0.0).to(tl.float32)
    return tl.reshape(tl.permute(tile, (2, 3, 1, 4, 0, 5)), (T, WIDTH))


@triton.jit
def embedding(weight, C: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr, PRECISION: tl.constexpr):
    """W_e (D, C) as the (WIDTH, D) operand beside a `left`, filled up with zeros and rounded."""
    channel = summed(WIDTH, PRECISION)[:, None]
    at = tl.arange(0, D)[None, :] * C + channel
    return rounded(tl.load(weight + at, mask=channel < C, other=0.0), PRECISION)


@kernel
def embed_kernel(
    values, deltas, embedder, embedder_bias, norm, norm_bias, wg, bg, theta, seed, x, gates, sums, L, S, segment_rows,
    place, dropped, C: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr, H: tl.constexpr, T: tl.constexpr,
    DROP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """values (B, L, C) -> x = values W_eᵀ + b_e (B, L, D), and of its layer gates (B, L, H), sums (B, S, H).

    WIDTH is a power of two, at least 16, that holds C. DROP leaves out some of x.
    """
    series, segment = (tl.program_id(0) // S).to(tl.int64), tl.program_id(0) % S
    start = segment * segment_rows
    end = tl.minimum(start + segment_rows, L)
    ahead = load_values(values, series * L + start, end - start, T, C, WIDTH)
    embed, shift = embedding(embedder, C, WIDTH, D, PRECISION), load_vector(embedder_bias, D)
    weight, bias, mu = gate_parameters(wg, bg, theta, norm, norm_bias, D, H, PRECISION)
    total = tl.zeros((T, GATE_COLUMNS), tl.float32)
    keys = load_keys(seed, place) if DROP else ()
    for at in range(start, end, T):
        first = series * L + at
        count = end - at
        seen = left(ahead, PRECISION)
        ahead = load_values(values, first + T, count - T, T, C, WIDTH)  # on its way while this one is worked on
        tile = dot_kept(seen, embed, PRECISION) + shift
        if DROP:
            tile = drop(tile, keys, dropped, first, T, D)
        store_tile(x, first, count, tile, T, D)
        stored = tile.to(x.dtype.element_ty).to(tl.float32)  # as the layer will read it
        total += emit_gates(
            stored, first, count, L - at, deltas, weight, bias, mu, gates, T, D, H, PRECISION
        )  # fmt: skip
    head = tl.arange(0, GATE_COLUMNS)
    tl.store(sums + tl.program_id(0).to(tl.int64) * H + head, tl.sum(total, axis=0), mask=head < H)


@kernel
def embed_backward_kernel(
    x,  # (N, D) rows of all series
    dx,  # (N, D) gradient of x but for what comes through the gate
    slope,  # (N, H) gradient before the sigmoid of the gate
    weight,  # (H, D) folded
    values,  # (N, C)
    seed,  # () only with DROP
    g_gate,  # (programs, H, D) out: Σ slopeᵀ h'
    g_embedder,  # (programs, D C + D) out: Σ dxᵀ values, then Σ dx
    N,
    place,
    dropped,
    C: tl.constexpr,
    WIDTH: tl.constexpr,
    D: tl.constexpr,
    H: tl.constexpr,
    T: tl.constexpr,
    DROP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """`gate.gate_backward` of the first layer, whose dx ends here: it meets the values and is not stored.

    WIDTH is a power of two, at least 16, that holds C.
    """
    own = tl.program_id(0).to(tl.int64)
    rows, head, channel, seen = tl.arange(0, T), tl.arange(0, 16), tl.arange(0, D), tl.arange(0, WIDTH)
    w = load_weight(weight, 0, H, D, 16)
    g = tl.zeros((16, D), tl.float32)
    g_weight = tl.zeros((WIDTH, D), tl.float32)
    g_bias = tl.zeros((D,), tl.float32)
    keys = load_keys(seed, place) if DROP else ()
    for turn in range(tl.cdiv(tl.cdiv(N, T) - tl.program_id(0), tl.num_programs(0))):
        first = (own + turn * tl.num_programs(0)) * T
        inside = rows < N - first
        g, dh = through_gate(x, slope, w, g, first, rows, inside, D, H, PRECISION)
        unit, scale = normalise(load_again(x, first, rows, inside, D), D)
        grad = load_again(dx, first, rows, inside, D) + norm_backward(dh, unit, scale, D)
        if DROP:
            grad = drop(grad, keys, dropped, first, T, D)
        at = first * C + rows[:, None] * C + seen[None, :]
        given = tl.load(values + at, mask=inside[:, None] & (seen < C)[None, :], other=0.0)
        g_weight = dot_add(tl.trans(given), grad, g_weight, PRECISION)
        g_bias += tl.sum(grad, axis=0)
    at = head[:, None] * D + channel[None, :]
    tl.store(g_gate + own * (H * D) + at, g, mask=(head < H)[:, None])
    g_embedder += own * (D * (C + 1))
    tl.store(g_embedder + channel[None, :] * C + seen[:, None], g_weight, mask=(seen < C)[:, None])
    tl.store(g_embedder + D * C + channel, g_bias)


# --- after the last layer ---


@kernel
def mean_kernel(pooled, lengths, mean, S, D: tl.constexpr, SEGMENTS: tl.constexpr):
    """pooled (B, S, D) sums of valid rows -> mean (B, D), 0 for an empty series; SEGMENTS as in `gate.decay_kernel`."""
    series, parts, channels = tl.program_id(0).to(tl.int64), tl.arange(0, SEGMENTS)[:, None], tl.arange(0, D)
    part = tl.load(pooled + (series * S + parts) * D + channels[None, :], mask=parts < S, other=0.0)
    count = tl.maximum(tl.load(lengths + series), 1).to(tl.float32)
    tl.store(mean + series * D + channels, (tl.sum(part, axis=0) / count).to(mean.dtype.element_ty))


@kernel
def head_kernel(
    pooled, lengths, weight, bias, mean, answers, S, outputs,
    D: tl.constexpr, SEGMENTS: tl.constexpr, BLOCK: tl.constexpr, KEEP: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """pooled (B, S, D) sums of valid rows -> answers (B, O) = mean W_hᵀ + b_h; the mean of an empty series is 0.

    The mean is rounded to the dtype of the rows, which the answers have too; KEEP stores it, (B, D), for the backward
    pass. The products are exact float32. SEGMENTS is a power of two that holds S.
    """
    series, parts, channels = tl.program_id(0).to(tl.int64), tl.arange(0, SEGMENTS)[:, None], tl.arange(0, D)
    wait_for_rows(EARLY)
    part = tl.load(pooled + (series * S + parts) * D + channels[None, :], mask=parts < S, other=0.0)
    count = tl.maximum(tl.load(lengths + series), 1).to(tl.float32)
    whole = (tl.sum(part, axis=0) / count).to(answers.dtype.element_ty)
    if KEEP:
        tl.store(mean + series * D + channels, whole)
    whole = whole.to(tl.float32)[None, :]
    for start in range(0, outputs, BLOCK):
        out = start + tl.arange(0, BLOCK)
        used = out < outputs
        row = tl.load(weight + out[:, None] * D + channels[None, :], mask=used[:, None], other=0.0).to(tl.float32)
        answer = tl.sum(row * whole, axis=1) + tl.load(bias + out, mask=used, other=0.0).to(tl.float32)
        tl.store(answers + series * outputs + out, answer.to(answers.dtype.element_ty), mask=used)


@kernel
def head_backward_kernel(
    grad,  # (B, O) of the answers
    mean,  # (B, D)
    weight,  # (O, D)
    dmean,  # (B, D) out
    g,  # (programs, O D + O) out: Σ gradᵀ mean, then Σ grad
    count,  # B
    outputs,  # O
    D: tl.constexpr,
    SERIES: tl.constexpr,
    BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """SERIES of the batch a program, BLOCK outputs at a time."""
    own = tl.program_id(0).to(tl.int64)
    first, rows, channel = own * SERIES, tl.arange(0, SERIES), tl.arange(0, D)
    inside = rows < count - first
    pooled = load_rows(mean, first, rows, inside, D).to(tl.float32)
    total = tl.zeros((SERIES, D), tl.float32)
    g_weight = g + own * outputs * (D + 1)
    for start in range(0, outputs, BLOCK):
        out = start + tl.arange(0, BLOCK)
        used = out < outputs
        at = (first + rows)[:, None] * outputs + out[None, :]
        slope = tl.load(grad + at, mask=inside[:, None] & used[None, :], other=0.0).to(tl.float32)
        total += dot(slope, load_weight(weight, start, outputs, D, BLOCK), PRECISION)
        at = out[:, None] * D + channel[None, :]
        tl.store(g_weight + at, dot(tl.trans(slope), pooled, PRECISION), mask=used[:, None])
        tl.store(g_weight + outputs * D + out, tl.sum(slope, axis=0), mask=used)
    store_rows(dmean, first, rows, inside, total, D)


# --- launches ---


class Rows(NamedTuple):
    """What enters a layer."""

    x: Tensor  # (B, L, D)
    gates: Tensor  # (B, L, H) x̃
    sums: Tensor  # (B, S, H) what each segment adds to U


class Answers(NamedTuple):
    """What the head leaves."""

    answers: Tensor  # (B, O)
    mean: Tensor | None  # (B, D) of valid rows, where it was asked for


def fill_intervals(
    deltas: Tensor, times: Tensor, lengths: Tensor, first_interval: Tensor, typical: bool, mean: bool
) -> Tensor:
    """(B, L) with the first interval of every series filled in."""
    filled = torch.empty_like(deltas)
    B, L = deltas.shape
    start_kernel(
        intervals_kernel, (B, -(-L // INTERVAL_ROWS)), (deltas, times, lengths, first_interval, filled), (L,),
        BLOCK=INTERVAL_ROWS, TYPICAL=typical, MEAN=mean, num_warps=4,
    )  # fmt: skip
    return filled


def take_mean(pooled: Tensor, lengths: Tensor, like: Tensor, plan: Plan) -> Tensor:
    """(B, S, D) sums of valid rows -> (B, D) their mean, in the dtype of `like`."""
    out = like.new_empty(plan.B, plan.D)
    start_kernel(
        mean_kernel, (plan.B,), (pooled, lengths, out), (plan.segments,),
        D=plan.D, SEGMENTS=power_of_two(plan.segments), num_warps=4,
    )  # fmt: skip
    return out


def embed_rows(
    values: Tensor,
    deltas: Tensor,
    embedder: Affine,
    w: MixerWeights,
    x: Tensor,
    plan: Plan,
    drops: Drops | None = None,
) -> Rows:
    """(B, L, C), (B, L) -> the rows, written to x, and of the layer of weights w their gates and sums."""
    C, width = values.shape[2], _width(values)
    tile, random = _tile_rows(plan, width), arguments(drops, x)
    gates = x.new_empty(plan.B, plan.L, plan.H, dtype=torch.float32)
    sums = x.new_empty(plan.B, plan.segments, plan.H, dtype=torch.float32)
    start_kernel(
        embed_kernel, (plan.B * plan.segments,),
        (
            values, deltas, embedder.weight, embedder.bias, w.norm1, w.norm1_bias, w.wg, w.bg, w.theta,
            random.seed, x, gates, sums,
        ),
        (plan.L, plan.segments, plan.rows, *random.numbers),
        C=C, WIDTH=width, D=plan.D, H=plan.H, T=tile, PRECISION=plan.precision, **random.constant,
        num_warps=tile // WARP_ROWS, num_stages=1,
    )  # fmt: skip
    return Rows(x, gates, sums)


def make_answers(
    pooled: Tensor, lengths: Tensor, head: Affine, like: Tensor, plan: Plan, keep: bool = False
) -> Answers:
    """(B, S, D) sums of valid rows -> the head of their mean, in the dtype of `like`, and the mean to `keep`."""
    outputs = head.weight.shape[0]
    out = like.new_empty(plan.B, outputs)
    mean = like.new_empty(plan.B, plan.D) if keep else None
    start_kernel(
        head_kernel, (plan.B,),
        (pooled, lengths, head.weight, head.bias, out if mean is None else mean, out), (plan.segments, outputs),
        D=plan.D, SEGMENTS=power_of_two(plan.segments),
        BLOCK=min(HEAD_BLOCK, power_of_two(outputs)), KEEP=keep, num_warps=4, **early(plan, pooled),
    )  # fmt: skip
    return Answers(out, mean)


def answers_backward(grad: Tensor, mean: Tensor, weight: Tensor, plan: Plan) -> tuple[Tensor, Tensor]:
    """Gradient of the answers (B, O) -> that of the mean (B, D), and (…, O D + O) parts of `head_backward_kernel`."""
    outputs, programs = weight.shape[0], -(-plan.B // HEAD_SERIES)
    dmean = torch.empty_like(mean)
    g = mean.new_empty(programs, outputs * (plan.D + 1), dtype=torch.float32)
    start_kernel(
        head_backward_kernel, (programs,), (grad, mean, weight, dmean, g), (plan.B, outputs),
        D=plan.D, SERIES=HEAD_SERIES, BLOCK=min(HEAD_BLOCK, max(16, power_of_two(outputs))),
        PRECISION=plan.precision, num_warps=4, num_stages=1,
    )  # fmt: skip
    return dmean, g


def embed_backward(
    values: Tensor,
    dx: Tensor,
    slope: Tensor,
    x: Tensor,
    gate: Tensor,
    g_gate: Tensor,
    most: int,
    plan: Plan,
    drops: Drops | None = None,
) -> Tensor:
    """B5 of the first layer, which fills g_gate -> (…, D C + D) parts of the embedder's gradient, `most` or fewer."""
    N, C = plan.B * plan.L, values.shape[2]
    programs, random = min(EMBED_PROGRAMS, most), arguments(drops, x)
    g = slope.new_empty(programs, plan.D * (C + 1))
    start_kernel(
        embed_backward_kernel, (programs,), (x, dx, slope, gate, values, random.seed, g_gate, g),
        (N, *random.numbers),
        C=C, WIDTH=_width(values), D=plan.D, H=plan.H, T=EMBED_ROWS, PRECISION=plan.precision,
        **random.constant, num_warps=4, num_stages=1,
    )  # fmt: skip
    return g


def _width(values: Tensor) -> int:
    """Channels of a tile, which a product takes."""
    return max(16, power_of_two(values.shape[2]))


def _tile_rows(plan: Plan, width: int) -> int:
    """Rows of a tile of `embed`: 256 fill a multiprocessor that has one program, where the registers hold them."""
    alone = plan.precision == "tf32" and not plan.causal
    most = 256 if alone and plan.D + width <= 96 else 128
    return min(most, power_of_two(plan.rows))
