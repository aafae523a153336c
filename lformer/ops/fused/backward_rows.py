"""Parts that the backward kernels of the mixer share, on one tile of rows, (T, D)."""

import triton
import triton.language as tl

from lformer.ops.fused.rows import dot, normalise, store_rows


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
def split_parts(tile, T: tl.constexpr, D: tl.constexpr, H: tl.constexpr, PARTS: tl.constexpr):
    """(T, D) -> (PARTS H, T / PARTS, K)"""
    tile = tl.permute(tl.reshape(tile, (PARTS, T // PARTS, H, D // H)), (0, 2, 1, 3))
    return tl.reshape(tile, (PARTS * H, T // PARTS, D // H))


@triton.jit
def repeat_heads(tile, T: tl.constexpr, D: tl.constexpr, H: tl.constexpr, PARTS: tl.constexpr):
    """(T, D) -> (PARTS H, T, K), the same in every part."""
    tile = tl.permute(tl.reshape(tile, (T, H, D // H)), (1, 0, 2))
    return tl.reshape(tl.broadcast_to(tile[None], (PARTS, H, T, D // H)), (PARTS * H, T, D // H))


@triton.jit
def masked_attention(
    a, b, c, T: tl.constexpr, D: tl.constexpr, H: tl.constexpr, PAST: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """(keep ⊙ a bᵀ) c in every head, rows a, b, c (T, D); keep is i <= n for row n if PAST, else i >= n.

    The rows of a are divided into parts, so that parts and heads together are 8 products: one for each warp, which
    then holds the scores of no other.
    """
    PARTS: tl.constexpr = min(4, max(1, 8 // H))
    N: tl.constexpr = T // PARTS
    scores = dot(split_parts(a, T, D, H, PARTS), tl.permute(repeat_heads(b, T, D, H, PARTS), (0, 2, 1)), PRECISION)
    row = (tl.arange(0, PARTS * H) // H * N)[:, None, None] + tl.arange(0, N)[None, :, None]
    ahead = tl.arange(0, T)[None, None, :] - row
    scores = tl.where(ahead <= 0 if PAST else ahead >= 0, scores, 0.0)
    read = dot(scores, repeat_heads(c, T, D, H, PARTS), PRECISION)  # (PARTS H, N, K)
    read = tl.permute(tl.reshape(read, (PARTS, H, N, D // H)), (0, 2, 1, 3))
    return tl.reshape(read, (T, D))
