# mypy: ignore-errors
"""Tiles that the kernels of all pieces share: rows (T, D) and weights, how they are loaded, rounded and multiplied."""

import triton
import triton.language as tl

# Lengths and counts change from batch to batch. By default a kernel is compiled once more for 1, multiples of 16 and
# other numbers, which takes seconds and gains nothing here.
kernel = triton.jit(
    do_not_specialize=[
        "L",
        "N",
        "S",
        "CHUNKS",
        "segment_rows",
        "length",
        "count",
        "segments",
        "outputs",
        "place",
        "dropped",
    ]
)

EPSILON = tl.constexpr(1e-5)  # of both layer norms
# 1 / (1 + 2^{-x / log 2}) by the approximate instructions, to a few units of the last digit
SIGMOID = tl.constexpr("""{
    .reg .f32 t;
    mul.f32 t, $1, 0fBFB8AA3B;
    ex2.approx.ftz.f32 t, t;
    add.f32 t, t, 0f3F800000;
    rcp.approx.ftz.f32 $0, t;
}""")


# A TF32 product drops the last 13 bits of float32 operands. Left to that, every operand would lean towards zero and the
# errors of a long sum would add up instead of cancelling; PyTorch's products round to nearest. Half of the last kept
# bit, added to the bits of the number, turns the cut into that.
HALF = tl.constexpr(0x1000)
KEPT_BITS = tl.constexpr(-0x2000)


@triton.jit
def wait_for_rows(EARLY: tl.constexpr):
    """Where a kernel that began EARLY, while the one before it still ran, waits for that one to end.

    Until here it may read weights alone. The next kernel may begin from here on, which does the same.
    """
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()


@triton.jit
def nearest(x, PRECISION: tl.constexpr):
    """x so that a product, which cuts, takes what is nearest to x. For use in products alone, and only once."""
    if PRECISION == "bf16":
        return x.to(tl.bfloat16)
    elif PRECISION == "tf32":
        return (x.to(tl.float32).to(tl.int32, bitcast=True) + HALF).to(tl.float32, bitcast=True)
    else:
        return x.to(tl.float32)


@triton.jit
def rounded(x, PRECISION: tl.constexpr):
    """x rounded as products take it; doing so again changes nothing. For operands that are kept or used twice."""
    if PRECISION == "tf32":
        bits = nearest(x, PRECISION).to(tl.int32, bitcast=True)
        return (bits & KEPT_BITS).to(tl.float32, bitcast=True)
    else:
        return nearest(x, PRECISION)


@triton.jit
def dot(a, b, PRECISION: tl.constexpr):
    """a b, accumulated in float32; both operands are rounded here as PRECISION says ("bf16", "tf32", "ieee")."""
    return dot_kept(nearest(a, PRECISION), nearest(b, PRECISION), PRECISION)


@triton.jit
def dot_add(a, b, sum, PRECISION: tl.constexpr):
    """sum + a b, as `dot`."""
    return dot_kept_add(nearest(a, PRECISION), nearest(b, PRECISION), sum, PRECISION)


@triton.jit
def dot_kept(a, b, PRECISION: tl.constexpr):
    """a b of operands that `rounded` has given: nothing is done to a weight that waits in shared memory."""
    if PRECISION == "bf16":
        return tl.dot(a, b)
    else:
        return tl.dot(a, b, input_precision=PRECISION)


@triton.jit
def dot_kept_add(a, b, sum, PRECISION: tl.constexpr):
    """sum + a b, as `dot_kept`."""
    if PRECISION == "bf16":
        return tl.dot(a, b, sum)
    else:
        return tl.dot(a, b, sum, input_precision=PRECISION)


@triton.jit
def load_rows(source, first, rows, inside, D: tl.constexpr):
    """Rows `first + rows` of (B L, D) as a (T, D) tile, 0 where not `inside`; `first` is an int64 row number."""
    at = rows[:, None] * D + tl.arange(0, D)[None, :]
    return tl.load(source + first * D + at, mask=inside[:, None], other=0.0)


@triton.jit
def store_rows(target, first, rows, inside, tile, D: tl.constexpr):
    at = rows[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(target + first * D + at, tile.to(target.dtype.element_ty), mask=inside[:, None])


# --- tiles as tensor cores hold them ---
#
# A product leaves its (T, D) result in a fixed order: every warp has 16 rows, every lane 2 channels of each 8 in 2 of
# its rows. Rows that are loaded in this very order need no exchange through shared memory before they meet results of
# products, and no barrier, so that groups of warps may run apart: one multiplies while the other does the rest.
# Axes here: (4 lanes, 8 lanes, warps, 2, D / 8, 2), where b, a, w, r, g, e mean row 16 w + 8 r + a and channel
# 8 g + 2 b + e. The compiler gives the last axis to one lane and deals out the others from the first to the last.


@triton.jit
def tile_rows(T: tl.constexpr):
    """(1, 8, T / 16, 2, 1, 1) numbers of rows."""
    row = (
        tl.arange(0, 8)[:, None, None] + tl.arange(0, T // 16)[None, :, None] * 16 + tl.arange(0, 2)[None, None, :] * 8
    )
    return row[None, :, :, :, None, None]


@triton.jit
def tile_channels(D: tl.constexpr):
    """(4, 1, 1, 1, D / 8, 2) numbers of channels."""
    pair = tl.arange(0, 4)[:, None, None] * 2 + tl.arange(0, 2)[None, None, :]
    return (pair + tl.arange(0, D // 8)[None, :, None] * 8)[:, None, None, None, :, :]


@triton.jit
def load_tile(source, first, count, T: tl.constexpr, D: tl.constexpr):
    """Rows `first …` of (B L, D) as a float32 (T, D) tile, 0 from row `count` on; `first` is an int64 row number."""
    row = tile_rows(T)
    tile = tl.load(source + first * D + (row * D + tile_channels(D)), mask=row < count, other=0.0).to(tl.float32)
    return tl.reshape(tl.permute(tile, (2, 3, 1, 4, 0, 5)), (T, D))


@triton.jit
def store_tile(target, first, count, tile, T: tl.constexpr, D: tl.constexpr):
    row = tile_rows(T)
    tile = tl.permute(tl.reshape(tile, (T // 16, 2, 8, D // 8, 4, 2)), (4, 2, 0, 1, 3, 5))
    tl.store(target + first * D + (row * D + tile_channels(D)), tile.to(target.dtype.element_ty), mask=row < count)


@triton.jit
def load_tile_heads(source, first, count, T: tl.constexpr, H: tl.constexpr):
    """Rows of (B L, H) as (T / 16, 2, 8, H, 4), the same for the 4 lanes of a row; 0 from row `count` on."""
    row = tl.reshape(tile_rows(T), (8, T // 16, 2))[None, :, :, :, None] + tl.zeros((4, 1, 1, 1, 1), tl.int32)
    head = tl.arange(0, H)[None, None, None, None, :]
    return tl.permute(tl.load(source + first * H + (row * H + head), mask=row < count, other=0.0), (2, 3, 1, 4, 0))


@triton.jit
def store_tile_heads(target, first, count, tile, T: tl.constexpr, H: tl.constexpr):
    """The first H columns of a (T, N) tile as rows of (B L, H)."""
    N: tl.constexpr = tile.shape[1]
    row, head = tile_rows(T), tile_channels(N)
    tile = tl.permute(tl.reshape(tile, (T // 16, 2, 8, N // 8, 4, 2)), (4, 2, 0, 1, 3, 5))
    tl.store(target + first * H + (row * H + head), tile, mask=(row < count) & (head < H))


@triton.jit
def split_columns(tile):
    """(T, 2 N) -> its left and its right half, (T, N) each."""
    T: tl.constexpr = tile.shape[0]
    N: tl.constexpr = tile.shape[1] // 2
    return tl.split(tl.permute(tl.reshape(tile, (T, 2, N)), (0, 2, 1)))


@triton.jit
def join_columns(a, b):
    """(T, N) and (T, N) side by side -> (T, 2 N)."""
    T: tl.constexpr = a.shape[0]
    N: tl.constexpr = a.shape[1]
    return tl.reshape(tl.permute(tl.join(a, b), (0, 2, 1)), (T, 2 * N))


@triton.jit
def times_heads(tile, factor, T: tl.constexpr, D: tl.constexpr, H: tl.constexpr):
    """(T, D) times one number per row and head, as `load_tile_heads` gives them."""
    tile = tl.reshape(tile, (T // 16, 2, 8, H, D // H // 8, 4, 2))
    return tl.reshape(tile * factor[:, :, :, :, None, :, None], (T, D))


# A product takes its left operand in another order than that in which results come: lane b has channels b and b + 4 of
# each 8 in TF32, not 2 b and 2 b + 1. The order of a sum is free, so the channels are renamed instead of exchanged, and
# the right operand is loaded by the same names. In bfloat16 both orders are one.


@triton.jit
def summed(N: tl.constexpr, PRECISION: tl.constexpr):
    """(N,) which channel stands at each place of the summed index of a product whose left operand is a `left`."""
    at = tl.arange(0, N)
    if PRECISION == "tf32":
        return at // 8 * 8 + at % 4 * 2 + at // 4 % 2
    else:
        return at


@triton.jit
def left(tile, PRECISION: tl.constexpr):
    """(T, N) result of a product, or a tile -> the left operand of the next one, rounded; its channels are `summed`."""
    if PRECISION == "tf32":
        T: tl.constexpr = tile.shape[0]
        N: tl.constexpr = tile.shape[1]
        return tl.reshape(tl.permute(tl.reshape(nearest(tile, PRECISION), (T, N // 8, 4, 2)), (0, 1, 3, 2)), (T, N))
    else:
        return nearest(tile, PRECISION)


@triton.jit
def right(weight, start, limit, IN: tl.constexpr, OUT: tl.constexpr, PRECISION: tl.constexpr):
    """Rows `start … start + OUT` of a (limit, IN) weight as the (IN, OUT) operand beside a `left`, not yet rounded."""
    out = start + tl.arange(0, OUT)
    at = out[None, :] * IN + summed(IN, PRECISION)[:, None]
    return tl.load(weight + at, mask=out[None, :] < limit, other=0.0)


@triton.jit
def load_heads(source, first, rows, inside, D: tl.constexpr, H: tl.constexpr):
    """Rows of (B L, H) as a (T, D) tile: every channel gets the number of its head."""
    at = rows[:, None] * H + (tl.arange(0, D) // (D // H))[None, :]
    return tl.load(source + first * H + at, mask=inside[:, None], other=0.0)


@triton.jit
def load_vector(source, D: tl.constexpr):
    """(D,) as a float32 row (1, D)."""
    return tl.load(source + tl.arange(0, D)).to(tl.float32)[None, :]


@triton.jit
def normalise(x, D: tl.constexpr):
    """(T, D) -> (T, D) rows of mean 0 and variance 1, and (T, 1) the factor 1 / deviation that did it."""
    centred = x - (tl.sum(x, axis=1) / D)[:, None]
    variance = tl.sum(centred * centred, axis=1) / D
    scale = tl.rsqrt(variance + EPSILON)[:, None]
    return centred * scale, scale


@triton.jit
def layer_norm(x, weight, bias, D: tl.constexpr):
    """(T, D), (1, D), (1, D) -> (T, D)"""
    unit, _ = normalise(x, D)
    return unit * weight + bias


@triton.jit
def tanh(x):
    """The tanh instruction, to 2^-11: finer than bfloat16."""
    return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def sigmoid(x, PRECISION: tl.constexpr):
    """1 / (1 + e^{-x})"""
    if PRECISION == "bf16":
        return 0.5 * tanh(0.5 * x) + 0.5
    elif PRECISION == "tf32":
        return tl.inline_asm_elementwise(SIGMOID, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        return 1 / (1 + tl.exp(-x))


@triton.jit
def silu(x, PRECISION: tl.constexpr):
    """x σ(x)"""
    if PRECISION == "bf16":
        half = 0.5 * x
        return half * tanh(half) + half
    else:
        return x * sigmoid(x, PRECISION)


# --- memories ---


@triton.jit
def same_head(D: tl.constexpr, H: tl.constexpr):
    """(D, D) bool: whether two channels belong to one head."""
    head = tl.arange(0, D) // (D // H)
    return head[:, None] == head[None, :]


@triton.jit
def memory_offsets(D: tl.constexpr, H: tl.constexpr):
    """(D, D) offsets of a block-diagonal tile in (H, K, V) storage, K = V = D / H; right where `same_head` holds."""
    K: tl.constexpr = D // H
    at = tl.arange(0, D)
    return at[:, None] * K + (at % K)[None, :]


@triton.jit
def load_memory(source, D: tl.constexpr, H: tl.constexpr):
    """(H, K, V) as a block-diagonal (D, D) tile."""
    return tl.load(source + memory_offsets(D, H), mask=same_head(D, H), other=0.0)


@triton.jit
def store_memory(target, tile, D: tl.constexpr, H: tl.constexpr):
    """The diagonal blocks of a (D, D) tile as (H, K, V)."""
    tl.store(target + memory_offsets(D, H), tile, mask=same_head(D, H))
