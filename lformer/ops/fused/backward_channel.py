# mypy: ignore-errors
"""B1: backward of the channel mixer, x2 = x1 + [SiLU(h W_1ᵀ) ⊙ (h W_2ᵀ)] W_3ᵀ with h = LN(x1) (paper IV-C).

Two kernels: one for the rows, one for the weights. Both compute the hidden layer again, a slice at a time, and in the
orientation that leaves every result where the next product takes it from. The weights come from `fold_hidden`: the
norm is folded into W_1 and W_2, so h is the normalised row alone.
"""

import triton
import triton.language as tl

from lformer.ops.fused.backward_rows import (
    SHIFT,
    full,
    load_again,
    narrow,
    norm_backward,
    peak_power,
    power,
    product,
    room,
)
from lformer.ops.fused.rows import kernel, load_rows, load_vector, normalise, sigmoid, store_rows


@kernel
def channel_rows(
    x1,  # (N, D) rows of all series
    dx2,  # (N, D), or (B, D) of the mean over valid rows
    lengths,  # (B,) valid rows; only with POOLED
    hidden,  # (3, FP, D) W_1, W_2, W_3ᵀ as `fold_hidden` leaves them, narrow
    bias,  # (2, FP)
    scales,  # (3,)
    dx1,  # (N, D) out
    peaks,  # (2, programs) out: largest |dx1| and |dx2| among the rows of a program
    N,
    L,
    D: tl.constexpr,
    FP: tl.constexpr,
    T: tl.constexpr,
    SLICE: tl.constexpr,
    KEEP: tl.constexpr,
    POOLED: tl.constexpr,
    PRECISION: tl.constexpr,
    OPERAND: tl.constexpr,
):
    """Gradient of x1, tile by tile; KEEP holds the weights of all slices on chip."""
    own = tl.program_id(0).to(tl.int64)
    up, down, reach = tl.load(scales), tl.load(scales + 1), tl.load(scales + 2)
    kept = all_slices(hidden, D, FP, SLICE) if KEEP else ()
    highest = tl.zeros((T,), tl.float32)
    highest_out = tl.zeros((T,), tl.float32)
    rows = tl.arange(0, T)
    for turn in range(tl.cdiv(tl.cdiv(N, T) - tl.program_id(0), tl.num_programs(0))):
        first = (own + turn * tl.num_programs(0)) * T
        inside = rows < N - first
        unit, scale = normalise(load_rows(x1, first, rows, inside, D).to(tl.float32), D)
        h = narrow(unit, OPERAND)
        grad = load_gradient(dx2, lengths, first, rows, inside, L, D, POOLED, False)
        peak = tl.max(tl.abs(grad), axis=1)
        highest = tl.maximum(highest, peak)
        size = power(peak, OPERAND)[:, None]  # every row has its own: dx1 is as exact where it is small
        g = narrow(grad * size, OPERAND)
        dh = tl.zeros((T, D), tl.float32)
        for n in tl.static_range(FP // SLICE):
            w = kept[n] if KEEP else one_slice(hidden, n * SLICE, D, FP, SLICE)
            a = product(h, tl.trans(w[0]), OPERAND) * up + load_vector(bias + n * SLICE, SLICE)
            b = product(h, tl.trans(w[1]), OPERAND) * up + load_vector(bias + FP + n * SLICE, SLICE)
            dz = product(g, tl.trans(w[2]), OPERAND) * (1 / reach * room(OPERAND))
            s = sigmoid(a, PRECISION)
            silu = a * s
            dh = tl.dot(narrow(dz * b * (s + silu * (1 - s)), OPERAND), w[0], dh, input_precision="ieee")
            dh = tl.dot(narrow(dz * silu, OPERAND), w[1], dh, input_precision="ieee")
        dh *= (up * down * reach / room(OPERAND)) / size
        grad = load_gradient(dx2, lengths, first, rows, inside, L, D, POOLED, True)
        after = grad + norm_backward(dh, unit, scale, D)
        highest_out = tl.maximum(highest_out, tl.max(tl.abs(after), axis=1))
        store_rows(dx1, first, rows, inside, after, D)
    tl.store(peaks + own, tl.max(highest_out, axis=0))
    tl.store(peaks + tl.num_programs(0) + own, tl.max(highest, axis=0))


@kernel
def channel_weights(
    x1, dx2, lengths, hidden, bias, scales,  # as above
    peaks,  # (2, PEAKS) what `channel_rows` left
    g,  # (programs, 3, FP, D) out: Σ over rows of (da)ᵀ h', (db)ᵀ h', actᵀ dx2, with h' = h + SHIFT
    N,
    L,
    count,  # of peaks
    D: tl.constexpr, FP: tl.constexpr, T: tl.constexpr, SLICE: tl.constexpr, PEAKS: tl.constexpr,
    POOLED: tl.constexpr, PRECISION: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """One slice of the hidden layer, as columns (SLICE, T): so the sums over rows take them from registers."""
    start, own = tl.program_id(0) * SLICE, tl.program_id(1).to(tl.int64)
    up, down, reach = tl.load(scales), tl.load(scales + 1), tl.load(scales + 2)
    size = peak_power(peaks + count, count, PEAKS, OPERAND)
    w1, w2, w3 = one_slice(hidden, start, D, FP, SLICE)
    units = start + tl.arange(0, SLICE)
    # The products take h', whose shift would add to them the sums of the weights.
    b1 = (tl.load(bias + units) - tl.sum(w1.to(tl.float32), axis=1) * up * SHIFT)[:, None]
    b2 = (tl.load(bias + FP + units) - tl.sum(w2.to(tl.float32), axis=1) * up * SHIFT)[:, None]
    g1 = tl.zeros((SLICE, D), tl.float32)
    g2 = tl.zeros((SLICE, D), tl.float32)
    g3 = tl.zeros((SLICE, D), tl.float32)
    rows = tl.arange(0, T)
    for turn in range(tl.cdiv(tl.cdiv(N, T) - tl.program_id(1), tl.num_programs(1))):
        first = (own + turn * tl.num_programs(1)) * T
        inside = rows < N - first
        unit, _ = normalise(load_rows(x1, first, rows, inside, D).to(tl.float32), D)
        h = narrow(unit + SHIFT, OPERAND)
        grad = narrow(load_gradient(dx2, lengths, first, rows, inside, L, D, POOLED, False) * size, OPERAND)
        a = product(w1, tl.trans(h), OPERAND) * up + b1
        b = product(w2, tl.trans(h), OPERAND) * up + b2
        dz = product(w3, tl.trans(grad), OPERAND) * (1 / reach * room(OPERAND))
        s = sigmoid(a, PRECISION)
        silu = a * s
        g3 = tl.dot(narrow(silu * b * (1 / (reach * reach) * full(OPERAND)), OPERAND), grad, g3, input_precision="ieee")
        g1 = tl.dot(narrow(dz * b * (s + silu * (1 - s)), OPERAND), h, g1, input_precision="ieee")
        g2 = tl.dot(narrow(dz * silu, OPERAND), h, g2, input_precision="ieee")
    at = g + own * (3 * FP * D) + units[:, None] * D + tl.arange(0, D)[None, :]
    back = down * reach / room(OPERAND) / size
    tl.store(at, g1 * back)
    tl.store(at + FP * D, g2 * back)
    tl.store(at + 2 * FP * D, g3 * (reach * reach / full(OPERAND) / size))


@triton.jit
def load_gradient(
    dx2, lengths, first, rows, inside, L, D: tl.constexpr, POOLED: tl.constexpr, AGAIN: tl.constexpr
):  # fmt: skip
    """Rows of the gradient of x2 in float32, AGAIN as in `load_again`.

    With POOLED from that of the mean: every valid row has an equal share in it, padding none.
    """
    if POOLED:
        series = first // L
        row = (first - series * L).to(tl.int32) + rows
        further = row // L  # a tile may hold rows of several series
        count = tl.load(lengths + series + further, mask=inside, other=0)
        valid = inside & (row - further * L < count)
        at = (series + further)[:, None] * D + tl.arange(0, D)[None, :]
        mean = tl.load(dx2 + at, mask=valid[:, None], other=0.0, cache_modifier=".ca" if AGAIN else "")
        return mean.to(tl.float32) * (1 / tl.maximum(count, 1).to(tl.float32))[:, None]
    elif AGAIN:
        return load_again(dx2, first, rows, inside, D)
    else:
        return load_rows(dx2, first, rows, inside, D).to(tl.float32)


@triton.jit
def one_slice(hidden, start, D: tl.constexpr, FP: tl.constexpr, SLICE: tl.constexpr):
    """W_1, W_2, W_3ᵀ of units `start …`, each (SLICE, D)."""
    at = hidden + (start + tl.arange(0, SLICE))[:, None] * D + tl.arange(0, D)[None, :]
    return tl.load(at), tl.load(at + FP * D), tl.load(at + 2 * FP * D)


@triton.jit
def all_slices(hidden, D: tl.constexpr, FP: tl.constexpr, SLICE: tl.constexpr):
    slices = ()
    for n in tl.static_range(FP // SLICE):
        slices = slices + (one_slice(hidden, n * SLICE, D, FP, SLICE),)  # noqa: RUF005, a kernel knows no unpacking
    return slices
