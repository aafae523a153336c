# mypy: ignore-errors
"""Parts that the backward kernels of the mixer share, on one tile of rows, (T, D)."""

import triton
import triton.language as tl

from lformer.ops.fused.rows import load_rows, normalise, store_rows

SHIFT = tl.constexpr(0.25)  # of the rows h' = h + SHIFT in sums over rows, see `product`
LARGEST = tl.constexpr(2.0**14)  # what the largest operand of a float16 product is scaled to, below twice as much
ROOM = tl.constexpr(2.0**-22)  # keeps results of such products, times numbers up to 1, in the range of float16


@triton.jit
def narrow(x, OPERAND: tl.constexpr):
    """x as products take it."""
    if OPERAND == "fp16":
        return x.to(tl.float16)
    elif OPERAND == "bf16":
        return x.to(tl.bfloat16)
    else:
        return x.to(tl.float32)


@triton.jit
def product(a, b, OPERAND: tl.constexpr):
    """a b of `narrow` operands, accumulated in float32.

    In the place of TF32 operands stand float16 ones, which have the same 11 digits, take half the room and, unlike
    TF32 ones, may lie in shared memory either way round. Their range is short: what is not bounded by itself is scaled
    by a power of two, which loses nothing.
    """
    return tl.dot(a, b, input_precision="ieee")


@triton.jit
def power(peak, OPERAND: tl.constexpr):
    """The power of two that brings numbers up to `peak` to LARGEST; 1 where the operands have the range of float32."""
    if OPERAND == "fp16":
        exponent = tl.clamp(peak, 1e-24, 1e24).to(tl.int32, bitcast=True) & 0x7F800000
        return (0x7F000000 - exponent).to(tl.float32, bitcast=True) * LARGEST
    else:
        return tl.full(peak.shape, 1.0, tl.float32)


@triton.jit
def peak_power(peaks, count, PEAKS: tl.constexpr, OPERAND: tl.constexpr):
    """`power` of the largest of `count` numbers, at most PEAKS."""
    at = tl.arange(0, PEAKS)
    return power(tl.max(tl.load(peaks + at, mask=at < count, other=0.0), axis=0), OPERAND)


@triton.jit
def share_power(peaks, count, PEAKS: tl.constexpr, OPERAND: tl.constexpr):
    """The power of two that brings `count` numbers close below 1: few rows write much, and most operands are small."""
    return peak_power(peaks, count, PEAKS, OPERAND) / (2 * full(OPERAND)) if OPERAND == "fp16" else 1.0


@triton.jit
def room(OPERAND: tl.constexpr):
    return ROOM if OPERAND == "fp16" else 1.0


@triton.jit
def full(OPERAND: tl.constexpr):
    return LARGEST if OPERAND == "fp16" else 1.0


@triton.jit
def load_weight(weight, start, limit, IN: tl.constexpr, OUT: tl.constexpr):
    """Rows `start … start + OUT` of a (limit, IN) weight as an (OUT, IN) operand; 0 past `limit`."""
    out = start + tl.arange(0, OUT)
    at = out[:, None] * IN + tl.arange(0, IN)[None, :]
    return tl.load(weight + at, mask=out[:, None] < limit, other=0.0)


@triton.jit
def norm_backward(grad, unit, scale, D: tl.constexpr):
    """Gradient of the rows that `normalise` took, from that of the `unit` rows it returned; all (T, D)."""
    mean = tl.sum(grad, axis=1) / D
    along = tl.sum(grad * unit, axis=1) / D
    return scale * (grad - mean[:, None] - unit * along[:, None])


@triton.jit
def load_again(source, first, rows, inside, D: tl.constexpr):
    """Rows that were loaded before, in float32: a tile that waits for the end of a long step costs registers.

    The cache modifier, though it names the default, keeps the compiler from uniting this load with the first one.
    """
    at = first * D + rows[:, None] * D + tl.arange(0, D)[None, :]
    return tl.load(source + at, mask=inside[:, None], other=0.0, cache_modifier=".ca").to(tl.float32)


@triton.jit
def add_rows(dx, x, first, rows, inside, grad, D: tl.constexpr):
    """Add to rows of dx what the gradient of the normalised rows means for the rows x themselves."""
    unit, scale = normalise(load_again(x, first, rows, inside, D), D)
    after = load_again(dx, first, rows, inside, D) + norm_backward(grad, unit, scale, D)
    store_rows(dx, first, rows, inside, after, D)


@triton.jit
def head_sums(tile, T: tl.constexpr, D: tl.constexpr, H: tl.constexpr):
    """(T, D) -> (T, H): the sum over the channels of each head."""
    return tl.sum(tl.reshape(tile, (T, H, D // H)), axis=2)


@triton.jit
def scaled(tile, OPERAND: tl.constexpr):
    """A square tile as an operand, and what undoes its scale."""
    scale = power(tl.max(tl.max(tl.abs(tile), axis=1), axis=0), OPERAND)
    return narrow(tile * scale, OPERAND), 1 / scale


@triton.jit
def joint_product(a, b, OPERAND: tl.constexpr):
    """a b of square tiles to more digits than one operand has: each is the sum of two, what is lost is tiny."""
    a_high, a_unit = scaled(a, OPERAND)
    b_high, b_unit = scaled(b, OPERAND)
    a_low = narrow(a / a_unit - a_high.to(tl.float32), OPERAND)
    b_low = narrow(b / b_unit - b_high.to(tl.float32), OPERAND)
    result = product(a_low, b_high, OPERAND) + product(a_high, b_low, OPERAND) + product(a_high, b_high, OPERAND)
    return result * a_unit * b_unit


@triton.jit
def projection(w, bias, D: tl.constexpr, OPERAND: tl.constexpr):
    """(OUT, D), (OUT,) -> operand (D, OUT) and bias (1, OUT) for rows h', and what undoes their scale.

    No row h is longer than √D: results are scaled so that they fit into an operand.
    """
    scale = power(tl.max(tl.sqrt(tl.sum(w * w, axis=1) * D) + tl.abs(bias), axis=0), OPERAND)
    w = narrow(w * scale, OPERAND)
    # The shift of h' would add to the results the sums of the weights.
    return tl.trans(w), (bias * scale - tl.sum(w.to(tl.float32), axis=1) * SHIFT)[None, :], 1 / scale


@triton.jit
def load_projection(weight, bias, D: tl.constexpr, OPERAND: tl.constexpr):
    """`projection` of a (D, D) weight and its (D,) bias."""
    return projection(load_weight(weight, 0, D, D, D), tl.load(bias + tl.arange(0, D)), D, OPERAND)


@triton.jit
def shifted_rows(x, first, rows, inside, D: tl.constexpr, OPERAND: tl.constexpr):
    """Rows h' as an operand (T, D)."""
    unit, _ = normalise(load_rows(x, first, rows, inside, D).to(tl.float32), D)
    return narrow(unit + SHIFT, OPERAND)


@triton.jit
def load_head(weight, bias, head, D: tl.constexpr, K: tl.constexpr, OPERAND: tl.constexpr):
    """The part of one head in the `projection` of a (D, D) weight: (D, K), (1, K); the scale is that of all heads."""
    w, b = load_weight(weight, 0, D, D, D), tl.load(bias + tl.arange(0, D))
    scale = power(tl.max(tl.sqrt(tl.sum(w * w, axis=1) * D) + tl.abs(b), axis=0), OPERAND)
    w = narrow(load_weight(weight, head * K, D, D, K) * scale, OPERAND)
    b = tl.load(bias + head * K + tl.arange(0, K)) * scale
    return tl.trans(w), (b - tl.sum(w.to(tl.float32), axis=1) * SHIFT)[None, :], 1 / scale


@triton.jit
def masked_attention(
    a, b, c, row_weight, column_weight, T: tl.constexpr, PAST: tl.constexpr, OPERAND: tl.constexpr
):  # fmt: skip
    """(keep ⊙ ρ_n (a_n · b_i) γ_i) c of one head, operands (T, K) -> (T, K) float32; keep is i <= n, or else i >= n.

    The weights ρ, γ, (T,), are large and small numbers whose product, where it is kept, is small.
    """
    order = tl.arange(0, T)
    keep = order[:, None] >= order[None, :] if PAST else order[:, None] <= order[None, :]
    scores = product(a, tl.trans(b), OPERAND) * row_weight[:, None] * column_weight[None, :]
    return product(narrow(tl.where(keep, scores, 0.0), OPERAND), c, OPERAND)


@triton.jit
def score_room(K: tl.constexpr, OPERAND: tl.constexpr):
    """For scores: sums of K products of numbers below 2 LARGEST."""
    return 0.25 / (LARGEST * K) if OPERAND == "fp16" else 1.0


@triton.jit
def result_room(K: tl.constexpr, OPERAND: tl.constexpr):
    """Of what is read: a number below 2 LARGEST, times K products of two such numbers, weighted."""
    return score_room(K, OPERAND) / (4 * LARGEST) if OPERAND == "fp16" else 1.0


@triton.jit
def chunk_power(r_unit, T: tl.constexpr, OPERAND: tl.constexpr):
    """The larger of the units of what comes through R and through the T rows of the chunk."""
    return tl.maximum(r_unit, 2 * LARGEST * T) if OPERAND == "fp16" else 1.0
