# mypy: ignore-errors
"""Parts that the kernels of the mixer share: each works on one tile of rows, (T, D), and keeps float32."""

import triton
import triton.language as tl

EPSILON = tl.constexpr(1e-5)  # of both layer norms
# 1 / (1 + 2^{-x / log 2}) by the approximate instructions, to a few units of the last digit
SIGMOID = tl.constexpr("""{
    .reg .f32 t;
    mul.f32 t, $1, 0fBFB8AA3B;
    ex2.approx.ftz.f32 t, t;
    add.f32 t, t, 0f3F800000;
    rcp.approx.ftz.f32 $0, t;
}""")
SERIES = tl.constexpr(0.5)  # up to this decay 1 - e^{-û} is summed as a series


@triton.jit
def dot(a, b, PRECISION: tl.constexpr):
    """a b, accumulated in float32; the operands are rounded as PRECISION says ("bf16", "tf32", "ieee")."""
    if PRECISION == "bf16":
        return tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16))
    else:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision=PRECISION)


@triton.jit
def dot_add(a, b, sum, PRECISION: tl.constexpr):
    """sum + a b, as `dot`."""
    if PRECISION == "bf16":
        return tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16), sum)
    else:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), sum, input_precision=PRECISION)


@triton.jit
def load_rows(source, first, rows, inside, D: tl.constexpr):
    """Rows `first + rows` of (B L, D) as a (T, D) tile, 0 where not `inside`; `first` is an int64 row number."""
    at = rows[:, None] * D + tl.arange(0, D)[None, :]
    return tl.load(source + first * D + at, mask=inside[:, None], other=0.0)


@triton.jit
def store_rows(target, first, rows, inside, tile, D: tl.constexpr):
    at = rows[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(target + first * D + at, tile.to(target.dtype.element_ty), mask=inside[:, None])


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
def load_transposed(weight, start, limit, IN: tl.constexpr, OUT: tl.constexpr):
    """Rows `start … start + OUT` of a (limit, IN) weight as an (IN, OUT) operand; 0 past `limit`.

    The memory order stays that of the weight, so the summed index is the fast one, as TF32 products want it.
    """
    out = start + tl.arange(0, OUT)
    at = out[None, :] * IN + tl.arange(0, IN)[:, None]
    return tl.load(weight + at, mask=out[None, :] < limit, other=0.0)


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


@triton.jit
def write_weight(decay):
    """w = 1 - e^{-û} to the last digits, also where û is tiny and the difference would cancel."""
    s = decay
    series = s * (1 - s / 2 * (1 - s / 3 * (1 - s / 4 * (1 - s / 5 * (1 - s / 6 * (1 - s / 7 * (1 - s / 8)))))))
    return tl.where(decay < SERIES, series, 1 - tl.exp(-decay))


@triton.jit
def share(part, whole):
    """`part / whole` where there is anything to share, else 0: the rule of `ops.gates`."""
    something = whole >= 1.1754943508222875e-38  # the smallest normal float32
    return tl.where(something, part / tl.where(something, whole, 1.0), 0.0)


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
