# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""Channel mixer, x2 = x1 + [SiLU(h W_1ᵀ) ⊙ (h W_2ᵀ)] W_3ᵀ with h = LN(x1), and its backward pass (paper IV-C).

Naive form: `nn.mixer.SwiGLU` behind its norm. Forwards it is the end of `time_mixer.read_kernel`: rows do not leave the
chip in between. B1, its backward pass, has two kernels, one for the rows and one for the weights. Both compute the
hidden layer again, a slice at a time, and in the orientation that leaves every result where the next product takes it
from. Their weights come from `fold_up` and `fold_down`: the norm is folded into W_1 and W_2, so h is the normalised row
alone.
"""

from functools import cache
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

from lformer.ops.fused.dropout import CHANNEL, Drops, arguments, drop, load_keys, spread
from lformer.ops.fused.launch import launch, room_for, start_kernel
from lformer.ops.fused.operands import (
    LARGEST,
    SHIFT,
    full,
    load_again,
    load_weight,
    narrow,
    norm_backward,
    peak_power,
    power,
    product,
    room,
)
from lformer.ops.fused.plan import Plan
from lformer.ops.fused.tiles import (
    dot_kept,
    dot_kept_add,
    kernel,
    layer_norm,
    left,
    load_rows,
    load_vector,
    normalise,
    rounded,
    sigmoid,
    silu,
    split_columns,
    store_rows,
    summed,
)

if TYPE_CHECKING:
    from lformer.ops.fused.weights import Scratch

SLICE = 64  # hidden units of a slice of the backward pass
PROGRAMS = 264  # of B1, which takes the rows of all series as one: two for each multiprocessor
KEPT = 110 * 1024  # bytes of weights that stay on chip, so that two programs fit


# --- forwards: the end of the kernel that reads ---


@cache
def hidden_slices(F: int, widest: int, narrowest: int) -> tuple[tuple[int, int], ...]:
    """(start, width) of slices that cover F columns: powers of two from the widest to the narrowest."""
    slices, start, width = [], 0, widest
    while start < F:
        while width > narrowest and start + width > F:
            width //= 2
        slices.append((start, width))
        start += width
    return tuple(slices)


@triton.jit
def kept_slices(
    w_up, w_down, D: tl.constexpr, F: tl.constexpr, SLICES: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    """W_1 beside W_2 (D, 2 width) and W_3 (width, D) of every slice of the hidden width, zero past F."""
    weights = ()
    for n in tl.static_range(len(SLICES)):
        part = channel_slice(w_up, w_down, SLICES[n][0], SLICES[n][1], D, F, PRECISION)
        weights = weights + (part,)  # type: ignore[assignment]  # noqa: RUF005, kernels know no unpacking
    return weights


@triton.jit
def channel_slice(
    w_up, w_down, START: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr, F: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    out = tl.arange(0, 2 * WIDTH)
    place = (START + out % WIDTH + out // WIDTH * F)[None, :] * D + summed(D, PRECISION)[:, None]
    up = tl.load(w_up + place, mask=(START + out % WIDTH < F)[None, :], other=0.0)
    hidden = START + summed(WIDTH, PRECISION)
    place = tl.arange(0, D)[None, :] * F + hidden[:, None]
    down = tl.load(w_down + place, mask=(hidden < F)[:, None], other=0.0)
    return rounded(up, PRECISION), rounded(down, PRECISION)


@triton.jit
def mix_channels(
    x, kept, w_up, w_down, norm, norm_bias, keys, dropped, first,
    D: tl.constexpr, F: tl.constexpr, SLICES: tl.constexpr, KEEP: tl.constexpr, DROP: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """(T, D) -> x + [SiLU(h W_1) ⊙ (h W_2)] W_3 with h = LN(x), a slice of the hidden width at a time.

    With DROP some of what is added to the rows `first …` is left out.
    """
    total = tl.zeros_like(x) if DROP else x
    h = left(layer_norm(x, load_vector(norm, D), load_vector(norm_bias, D), D), PRECISION)
    for n in tl.static_range(len(SLICES)):
        if KEEP == 2:  # noqa: SIM108, only one branch is compiled
            weights = kept[n]
        else:
            weights = channel_slice(w_up, w_down, SLICES[n][0], SLICES[n][1], D, F, PRECISION)
        gate, value = split_columns(dot_kept(h, weights[0], PRECISION))
        total = dot_kept_add(left(silu(gate, PRECISION) * value, PRECISION), weights[1], total, PRECISION)
    if DROP:
        total = x + drop(total, keys, dropped, first, x.shape[0], D)
    return total


# --- B1 ---


@kernel
def channel_rows(
    x1,  # (N, D) rows of all series
    dx2,  # (N, D), or (B, D) of the mean over valid rows
    lengths,  # (B,) valid rows; only with POOLED
    hidden,  # (3, FP, D) W_1, W_2, W_3ᵀ as `fold_up` and `fold_down` leave them, narrow
    bias,  # (2, FP)
    scales,  # (3,)
    seed,  # () only with DROP
    dx1,  # (N, D) out
    peaks,  # (2, programs) out: no |dx1| and |dx2| is larger among the rows of a program, as the branches get them
    N,
    L,
    place,
    dropped,
    D: tl.constexpr,
    FP: tl.constexpr,
    T: tl.constexpr,
    SLICE: tl.constexpr,
    KEEP: tl.constexpr,
    POOLED: tl.constexpr,
    DROP: tl.constexpr,
    PRECISION: tl.constexpr,
    OPERAND: tl.constexpr,
):
    """Gradient of x1, tile by tile; KEEP holds the weights of all slices on chip.

    With DROP the branch gets what is kept of dx2, the residual all of it.
    """
    own = tl.program_id(0).to(tl.int64)
    up, down, reach = tl.load(scales), tl.load(scales + 1), tl.load(scales + 2)
    kept = all_slices(hidden, D, FP, SLICE) if KEEP else ()
    keys = load_keys(seed, place + CHANNEL) if DROP else ()
    highest = tl.zeros((T,), tl.float32)
    highest_out = tl.zeros((T,), tl.float32)
    rows = tl.arange(0, T)
    for turn in range(tl.cdiv(tl.cdiv(N, T) - tl.program_id(0), tl.num_programs(0))):
        first = (own + turn * tl.num_programs(0)) * T
        inside = rows < N - first
        unit, scale = normalise(load_rows(x1, first, rows, inside, D).to(tl.float32), D)
        h = narrow(unit, OPERAND)
        grad = load_gradient(dx2, lengths, first, rows, inside, L, D, POOLED, False)
        if DROP:
            grad = drop(grad, keys, dropped, first, T, D)
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
    highest_out = tl.max(highest_out, axis=0)
    tl.store(peaks + own, highest_out * spread(dropped) if DROP else highest_out)
    tl.store(peaks + tl.num_programs(0) + own, tl.max(highest, axis=0))


@kernel
def channel_weights(
    x1, dx2, lengths, hidden, bias, scales, seed,  # as above
    peaks,  # (2, PEAKS) what `channel_rows` left
    g,  # (programs, 3, FP, D) out: Σ over rows of (da)ᵀ h', (db)ᵀ h', actᵀ dx2, with h' = h + SHIFT
    N,
    L,
    count,  # of peaks
    place, dropped, D: tl.constexpr, FP: tl.constexpr, T: tl.constexpr, SLICE: tl.constexpr, PEAKS: tl.constexpr,
    POOLED: tl.constexpr, DROP: tl.constexpr, PRECISION: tl.constexpr, OPERAND: tl.constexpr,
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
    keys = load_keys(seed, place + CHANNEL) if DROP else ()
    rows = tl.arange(0, T)
    for turn in range(tl.cdiv(tl.cdiv(N, T) - tl.program_id(1), tl.num_programs(1))):
        first = (own + turn * tl.num_programs(1)) * T
        inside = rows < N - first
        unit, _ = normalise(load_rows(x1, first, rows, inside, D).to(tl.float32), D)
        h = narrow(unit + SHIFT, OPERAND)
        grad = load_gradient(dx2, lengths, first, rows, inside, L, D, POOLED, False)
        if DROP:
            grad = drop(grad, keys, dropped, first, T, D)
        grad = narrow(grad * size, OPERAND)
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
        slices = slices + (one_slice(hidden, n * SLICE, D, FP, SLICE),)  # type: ignore[assignment]  # noqa: RUF005, kernels know no unpacking
    return slices


# --- the weights of B1 ---


@triton.jit
def fold_up(
    weight, norm, norm_bias, out, out_bias, scales, F,
    D: tl.constexpr, FP: tl.constexpr, SLICE: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    gamma, beta = load_vector(norm, D), load_vector(norm_bias, D)
    largest = tl.full((), 0.0, tl.float32)
    bound = tl.full((), 0.0, tl.float32)
    for half in tl.static_range(2):
        for start in range(0, FP, SLICE):
            raw = load_weight(weight + half * F * D, start, F, D, SLICE).to(tl.float32)
            w, b = raw * gamma, tl.sum(raw * beta, axis=1)
            tl.store(out_bias + half * FP + start + tl.arange(0, SLICE), b)
            largest = tl.maximum(largest, tl.max(tl.max(tl.abs(w), axis=1), axis=0))
            # No row h is longer than √D.
            bound = tl.maximum(bound, tl.max(tl.sqrt(tl.sum(w * w, axis=1) * D) + tl.abs(b), axis=0))
    scale = power(largest, OPERAND)
    for half in tl.static_range(2):
        for start in range(0, FP, SLICE):
            w = load_weight(weight + half * F * D, start, F, D, SLICE).to(tl.float32) * gamma * scale
            at = (half * FP + start + tl.arange(0, SLICE))[:, None] * D + tl.arange(0, D)[None, :]
            tl.store(out + at, narrow(w, OPERAND))
    tl.store(scales, 1 / scale)
    if OPERAND == "fp16":
        tl.store(scales + 2, 1 / power(bound, OPERAND) * (2 * LARGEST))  # a power of two above the bound
    else:
        tl.store(scales + 2, 1.0)


@triton.jit
def fold_down(
    weight, out, scales, F, D: tl.constexpr, FP: tl.constexpr, SLICE: tl.constexpr, OPERAND: tl.constexpr
):  # fmt: skip
    largest = tl.full((), 0.0, tl.float32)
    for start in range(0, FP, SLICE):
        w = load_down(weight, start, F, D, SLICE)
        largest = tl.maximum(largest, tl.max(tl.max(tl.abs(w), axis=1), axis=0))
    scale = power(largest, OPERAND)
    for start in range(0, FP, SLICE):
        at = (start + tl.arange(0, SLICE))[:, None] * D + tl.arange(0, D)[None, :]
        tl.store(out + at, narrow(load_down(weight, start, F, D, SLICE) * scale, OPERAND))
    tl.store(scales, 1 / scale)


@triton.jit
def load_down(weight, start, F, D: tl.constexpr, SLICE: tl.constexpr):
    """Columns `start …` of a (D, F) weight, as (SLICE, D)."""
    unit = start + tl.arange(0, SLICE)
    at = tl.arange(0, D)[None, :] * F + unit[:, None]
    return tl.load(weight + at, mask=(unit < F)[:, None], other=0.0).to(tl.float32)


# --- launches ---


def padded_hidden(plan: Plan) -> int:
    """F filled up to whole slices."""
    return -(-plan.F // SLICE) * SLICE


def programs(plan: Plan) -> tuple[int, int]:
    """Of `channel_rows`, and of `channel_weights` for each slice."""
    N = plan.B * plan.L
    rows, hidden = (-(-N // launch(name, plan).rows) for name in ("channel_rows", "channel_weights"))
    return min(PROGRAMS, rows), min(max(1, PROGRAMS // (padded_hidden(plan) // SLICE)), hidden)


def backward(
    grad: Tensor, lengths: Tensor | None, x1: Tensor, s: "Scratch", plan: Plan, drops: Drops | None = None
) -> Tensor:
    """B1 -> (B, L, D) gradient of x1, to which the others add."""
    D, FP, N = plan.D, s.counts.FP, plan.B * plan.L
    random = arguments(drops, x1)
    known = (x1, grad, grad if lengths is None else lengths, s.hidden, s.hidden_bias, s.scales, random.seed)
    sizes = {
        "D": D, "FP": FP, "SLICE": SLICE, "POOLED": lengths is not None, "PRECISION": plan.precision,
        "OPERAND": plan.operand, **random.constant,
    }  # fmt: skip
    dx1 = torch.empty_like(x1)
    start_kernel(
        channel_rows, (s.counts.rows,), (*known, dx1, s.peaks), (N, plan.L, *random.numbers),
        KEEP=3 * FP * D * s.hidden.element_size() <= KEPT, **sizes, **launch("channel_rows", plan).options,
    )  # fmt: skip
    start_kernel(
        channel_weights, (FP // SLICE, s.counts.hidden), (*known, s.peaks, s.g_hidden),
        (N, plan.L, s.counts.rows, *random.numbers),
        PEAKS=room_for(s.counts.rows), **sizes, **launch("channel_weights", plan).options,
    )  # fmt: skip
    return dx1
