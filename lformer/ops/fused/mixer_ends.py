# mypy: ignore-errors
"""The two ends of a whole model: values to the first layer's rows, and sums of rows to answers (paper IV-C).

Both are bound by memory and by launches. Rows are written once and not read again for their gates; a mean of rows goes
through the head without being read again. Imports triton alone.
"""

import triton
import triton.language as tl

from lformer.ops.fused.mixer_forward import GATE_COLUMNS, emit_gates, gate_parameters
from lformer.ops.fused.rows import (
    dot_kept,
    kernel,
    left,
    load_vector,
    rounded,
    store_tile,
    summed,
    tile_channels,
    tile_rows,
    wait_for_rows,
)


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
    values, deltas, embedder, embedder_bias, norm, norm_bias, wg, bg, theta, x, gates, sums, L, S, segment_rows,
    C: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr, H: tl.constexpr, T: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """values (B, L, C) -> x = values W_eᵀ + b_e (B, L, D), and of its layer gates (B, L, H), sums (B, S, H).

    WIDTH is a power of two, at least 16, that holds C.
    """
    series, segment = (tl.program_id(0) // S).to(tl.int64), tl.program_id(0) % S
    start = segment * segment_rows
    end = tl.minimum(start + segment_rows, L)
    ahead = load_values(values, series * L + start, end - start, T, C, WIDTH)
    embed, shift = embedding(embedder, C, WIDTH, D, PRECISION), load_vector(embedder_bias, D)
    weight, bias, mu = gate_parameters(wg, bg, theta, norm, norm_bias, D, H, PRECISION)
    total = tl.zeros((T, GATE_COLUMNS), tl.float32)
    for at in range(start, end, T):
        first = series * L + at
        count = end - at
        seen = left(ahead, PRECISION)
        ahead = load_values(values, first + T, count - T, T, C, WIDTH)  # on its way while this one is worked on
        tile = dot_kept(seen, embed, PRECISION) + shift
        store_tile(x, first, count, tile, T, D)
        stored = tile.to(x.dtype.element_ty).to(tl.float32)  # as the layer will read it
        total += emit_gates(
            stored, first, count, L - at, deltas, weight, bias, mu, gates, T, D, H, PRECISION
        )  # fmt: skip
    head = tl.arange(0, GATE_COLUMNS)
    tl.store(sums + tl.program_id(0).to(tl.int64) * H + head, tl.sum(total, axis=0), mask=head < H)


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
