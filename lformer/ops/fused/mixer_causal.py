# mypy: ignore-errors
"""The forward kernel of a causal mixer in which rows read and write: chunk by chunk, one segment at a time.

A segment starts from an empty memory. Its rows read what it wrote up to them; what earlier segments wrote is the same
for all of them but for its decay, and `mixer_forward.read_kernel` adds it. Operands are those of the backward pass,
where their units are explained: float16 ones in the place of TF32. Imports triton alone.
"""

import triton
import triton.language as tl

from lformer.ops.fused.backward_rows import (
    LARGEST,
    SHIFT,
    affine,
    bias_operand,
    column_weights,
    full,
    load_weight,
    masked,
    narrow,
    power,
    product,
    split_rows,
    times_rows,
)
from lformer.ops.fused.mixer_forward import tile_decay
from lformer.ops.fused.rows import (
    join_columns,
    kernel,
    load_tile,
    load_tile_heads,
    load_vector,
    normalise,
    same_head,
    split_columns,
    store_memory,
    store_tile,
    times_heads,
    wait_for_rows,
)


@kernel
def segment_kernel(
    x, cum, fall, rise, norm, norm_bias, wq, bq, wk, bk, wv, bv, y, partial, key_scale, L, S, segment_rows,
    D: tl.constexpr, H: tl.constexpr, T: tl.constexpr, PREFIX: tl.constexpr, PRECISION: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """x (B, L, D), cum, fall, rise (B, L, H) -> y (B, L, D) what rows read of their segment; partial (B, S, H, K, V).

    Memory and factors are those of the end of a chunk. Where a chunk decays by 1 at most, or operands have the range of
    float32, the factors are multiplied into q and k; else (WIDE) into the scores, in float32.
    """
    OPERAND: tl.constexpr = "fp16" if PRECISION == "tf32" else ("bf16" if PRECISION == "bf16" else "fp32")
    WIDE: tl.constexpr = PREFIX and OPERAND == "fp16"
    PREFETCH: tl.constexpr = not WIDE and D < 128  # where the registers hold the next rows too
    K: tl.constexpr = D // H
    series, segment = (tl.program_id(0) // S).to(tl.int64), tl.program_id(0) % S
    start = segment * segment_rows
    end = tl.minimum(start + segment_rows, L)
    query, q_unit = folded_projection(wq, bq, norm, norm_bias, 1.0, score_size(K, OPERAND), D, OPERAND)
    key, k_unit = folded_projection(wk, bk, norm, norm_bias, key_scale, score_size(K, OPERAND), D, OPERAND)
    value, v_unit = folded_projection(wv, bv, norm, norm_bias, 1.0, 1.0, D, OPERAND)
    wait_for_rows(EARLY)
    memory = tl.zeros((D, D), tl.float32)
    share = tl.full((), 1.0, tl.float32)
    sofar = tl.full((), 0.0, tl.float32)
    order = tl.arange(0, T)
    past = order[:, None] >= order[None, :]

    ahead = load_tile(x, series * L + start, end - start, T, D)
    for at in range(start, end, T):
        first = series * L + at
        count = end - at
        h = narrow(normalise(ahead, D)[0] + SHIFT, OPERAND)
        if PREFETCH:
            ahead = load_tile(x, first + T, count - T, T, D)  # on its way while this one is worked on
        total = tile_decay(cum, first, tl.minimum(T, count), H)
        falls = load_tile_heads(fall, first, count, T, H)
        rises = load_tile_heads(rise, first, count, T, H)
        # Most rows write little: written with this factor, it stays in the range of an operand, and so does the memory.
        before, share = share, chunk_share(total, OPERAND)
        size = memory_size(sofar, K, OPERAND)
        sofar += tl.max(total, axis=0)
        across = tl.exp(-tl.reshape(tl.broadcast_to(total[:, None], (H, K)), (D,))) * (share / before)
        memory = memory * tl.where(same_head(D, H), across[:, None], 0.0)
        s = narrow(memory * (size / share), OPERAND)
        q = affine(h, query, OPERAND)
        if not WIDE:
            q = times_heads(q, falls, T, D, H)
        q = narrow(q, OPERAND)
        k = affine(h, key, OPERAND)
        written = narrow(times_heads(k, rises * share, T, D, H), OPERAND)
        k = narrow(k, OPERAND) if WIDE else written
        v = narrow(affine(h, value, OPERAND), OPERAND)
        read = product(q, s, OPERAND)
        if WIDE:
            read = times_heads(read, falls * (share / size), T, D, H)
        else:
            # Times 1, which the compiler cannot know: a result that became a sum right away would keep products apart.
            read = read * (share / size * tl.where(at < 0, 0.0, 1.0))
        after, rows = (), split_rows(falls * share, H)
        reads, qs, ks, vs = split_heads(read, H), split_heads(q, H), split_heads(k, H), split_heads(v, H)
        for n in tl.static_range(H):
            scores = product(qs[n], tl.trans(ks[n]), OPERAND)
            if WIDE:
                scores = times_rows(scores, rows[n]) * column_weights(rise, first, count, n, T, H)
            scores = masked(scores, past, PRECISION, OPERAND)
            part = tl.dot(scores, vs[n], reads[n], input_precision="ieee")
            after = after + (part,)  # noqa: RUF005, a kernel knows no unpacking
        store_tile(y, first, count, join_heads(after, H) * (q_unit * k_unit * v_unit / share), T, D)
        memory = tl.dot(tl.trans(written), v, memory, input_precision="ieee")
        if not PREFETCH:
            ahead = load_tile(x, first + T, count - T, T, D)
    store_memory(partial + tl.program_id(0).to(tl.int64) * D * K, memory * (k_unit * v_unit / share), D, H)


@triton.jit
def folded_projection(
    weight, bias, norm, norm_bias, scale, size, D: tl.constexpr, OPERAND: tl.constexpr
):  # fmt: skip
    """A (D, D) weight, times `scale`, and its bias, behind a layer norm -> operands of `affine`, what undoes them.

    No normalised row is longer than √D: results are scaled to LARGEST times `size`.
    """
    w = load_weight(weight, 0, D, D, D).to(tl.float32) * scale
    b = tl.load(bias + tl.arange(0, D)).to(tl.float32) + tl.sum(w * load_vector(norm_bias, D), axis=1)
    w = w * load_vector(norm, D)
    factor = power(tl.max(tl.sqrt(tl.sum(w * w, axis=1) * D) + tl.abs(b), axis=0), OPERAND) * size
    operand = narrow(w * factor, OPERAND)
    # What the rounded weights make of the shift of h' is taken back to the last digit. An error that is the same in all
    # rows does not average out in the memory, and the gradient of mu in "prefix" would show it.
    shifted = b * factor - tl.sum(operand.to(tl.float32), axis=1) * SHIFT
    return (tl.trans(operand), bias_operand(shifted, OPERAND)), 1 / factor


@triton.jit
def score_size(K: tl.constexpr, OPERAND: tl.constexpr):
    """Of q and k, over LARGEST, so that sums of K products of them are operands."""
    return (2.0**-10 if K == 16 else 2.0**-11) if OPERAND == "fp16" else 1.0


@triton.jit
def chunk_share(total, OPERAND: tl.constexpr):
    """The power of two that brings write weights close below 1, from the decay (H,) across their chunk."""
    if OPERAND == "fp16":
        return power(tl.clamp(tl.max(total, axis=0), 2.0**-40, 1.0), OPERAND) / (2 * full(OPERAND))
    else:
        return tl.full((), 1.0, tl.float32)


@triton.jit
def memory_size(sofar, K: tl.constexpr, OPERAND: tl.constexpr):
    """The power of two that makes a memory an operand: its weights sum up to at most the decay `sofar`, and to 1."""
    if OPERAND == "fp16":
        return power(tl.clamp(sofar, 2.0**-40, 1.0), OPERAND) / (4 * LARGEST * LARGEST * score_size(K, OPERAND))
    else:
        return tl.full((), 1.0, tl.float32)


@triton.jit
def split_heads(tile, H: tl.constexpr):
    """(T, D) -> H tiles (T, K). Which head a channel belongs to is a matter of registers, so nothing moves."""
    if H == 1:
        return (tile,)
    else:
        a, b = split_columns(tile)
        return split_heads(a, H // 2) + split_heads(b, H // 2)


@triton.jit
def join_heads(parts, H: tl.constexpr):
    """H tiles (T, K) -> (T, D)"""
    if H == 1:
        return parts[0]
    else:
        return join_columns(join_heads(parts[: H // 2], H // 2), join_heads(parts[H // 2 :], H // 2))
