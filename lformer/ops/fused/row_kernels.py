# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""What lies between the matrix products of a mixer, one row after the other: kernels and their launches.

Naive form: `nn.mixer`, `nn.attention`. N rows of D channels; a row of a wider tensor may be any number of entries from
the next. Whatever the dtype of a tensor, kernels compute in float32.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from lformer.ops.fused.dropout import Drops, arguments, drop_rows, load_keys
from lformer.ops.fused.launch import power_of_two, start_kernel
from lformer.ops.fused.tiles import EPSILON

kernel = triton.jit(
    do_not_specialize=["N", "L", "S", "place", "dropped", "per_program", "segment_rows", "count"]
)  # which change from call to call
ONES = 16  # columns after those of normalised rows: a 1, then zeros; a product with them adds the bias
ELEMENTS = 4096  # of a tile
PROGRAMS = 792  # of a kernel that also sums over rows: 6 for each multiprocessor of an H200, which runs 3 at a time
HALF_RANGE = 1.0  # gradients in float16 are scaled so that the largest lies between this and twice this


# --- tiles ---


@triton.jit
def rows_at(first, T: tl.constexpr):
    """(T,) numbers of rows, in 64 bits, as is what they are multiplied to."""
    return tl.arange(0, T).to(tl.int64) + first


@triton.jit
def load_rows(source, rows, stride, limit, D: tl.constexpr, BD: tl.constexpr):
    """Rows of a tensor as a float32 (T, BD) tile, 0 from row `limit` and from column D on."""
    column = tl.arange(0, BD)
    inside = (rows < limit)[:, None] & (column < D)[None, :]
    return tl.load(source + rows[:, None] * stride + column[None, :], mask=inside, other=0.0).to(tl.float32)


@triton.jit
def store_rows(target, rows, stride, limit, tile, D: tl.constexpr, BD: tl.constexpr):
    column = tl.arange(0, BD)
    inside = (rows < limit)[:, None] & (column < D)[None, :]
    tl.store(target + rows[:, None] * stride + column[None, :], tile.to(target.dtype.element_ty), mask=inside)


@triton.jit
def load_vector(source, D: tl.constexpr, BD: tl.constexpr):
    """(D,) as a float32 row (1, BD)."""
    column = tl.arange(0, BD)
    return tl.load(source + column, mask=column < D, other=0.0).to(tl.float32)[None, :]


@triton.jit
def load_heads(source, rows, limit, H: tl.constexpr, K: tl.constexpr, BD: tl.constexpr):
    """Rows of (N, H) as a (T, BD) tile: every channel gets the number of its head."""
    head = tl.arange(0, BD) // K
    inside = (rows < limit)[:, None] & (head < H)[None, :]
    return tl.load(source + rows[:, None] * H + head[None, :], mask=inside, other=0.0).to(tl.float32)


@triton.jit
def unit_rows(x, D: tl.constexpr, BD: tl.constexpr):
    """(T, BD) -> rows of mean 0 and variance 1 over their first D channels, 0 behind, and (T, 1) 1 / deviation."""
    centred = tl.where((tl.arange(0, BD) < D)[None, :], x - (tl.sum(x, axis=1) / D)[:, None], 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=1) / D + EPSILON)[:, None]
    return centred * scale, scale


@triton.jit
def load_gradient(g, lengths, rows, limit, L, D: tl.constexpr, BD: tl.constexpr, POOLED: tl.constexpr):
    """Rows of g (N, D); POOLED, g (B, D) is that of every row of a series up to its length."""
    if POOLED:
        series, column = rows // L, tl.arange(0, BD)
        valid = (rows < limit) & (rows - series * L < tl.load(lengths + series, mask=rows < limit, other=0))
        inside = valid[:, None] & (column < D)[None, :]
        return tl.load(g + series[:, None] * D + column[None, :], mask=inside, other=0.0).to(tl.float32)
    else:
        return load_rows(g, rows, D, limit, D, BD)


def _tile(D: int, elements: int = ELEMENTS) -> dict[str, int]:
    """Columns of a tile, a power of two, and how many rows of them it has."""
    columns = power_of_two(D)
    return {"D": D, "BD": columns, "T": max(1, elements // columns)}


def _grid(N: int, tile: dict[str, int]) -> tuple[int]:
    return (triton.cdiv(N, tile["T"]),)


# --- residual, dropout and layer norm ---


@kernel
def add_norm_kernel(
    x,  # (N, D)
    t,  # (N, D), if ADD
    seed,  # (1,)
    weight,  # (D,), as the next one if NORM
    bias,  # (D,)
    total,  # (N, D) out, if ADD: x + dropped t
    h,  # (N, D), then ONES columns if there are any; out, if NORM: its layer norm
    N, place, dropped, h_row,
    D: tl.constexpr, BD: tl.constexpr, T: tl.constexpr, ONES: tl.constexpr,
    ADD: tl.constexpr, NORM: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    rows = rows_at(tl.program_id(0) * T, T)
    tile = load_rows(x, rows, D, N, D, BD)
    if ADD:
        added = load_rows(t, rows, D, N, D, BD)
        if DROP:
            added = drop_rows(added, load_keys(seed, place), dropped, rows, BD)
        tile = (tile + added).to(total.dtype.element_ty)
        store_rows(total, rows, D, N, tile, D, BD)
        tile = tile.to(tl.float32)
    if NORM:
        unit, _ = unit_rows(tile, D, BD)
        store_rows(h, rows, h_row, N, unit * load_vector(weight, D, BD) + load_vector(bias, D, BD), D, BD)
        if ONES > 0:
            column = tl.arange(0, ONES)[None, :] + tl.zeros((T, 1), tl.int32)
            one = tl.where(column == 0, 1.0, 0.0)
            store_rows(h + D, rows, h_row, N, one, ONES, ONES)


def norm(x: Tensor, weight: Tensor, bias: Tensor, dtype: torch.dtype, ones: int = 0) -> Tensor:
    """Layer norm of rows (N, D) -> (N, D + ones) in `dtype`; the first of the columns behind is 1, the others 0."""
    N, D = x.shape
    h = x.new_empty(N, D + ones, dtype=dtype)
    _add_norm(x, None, None, (weight, bias), None, h, ones)
    return h


def add(x: Tensor, t: Tensor, drop: Drops | None) -> Tensor:
    """x + dropped t, (N, D)"""
    total = torch.empty_like(x)
    _add_norm(x, t, drop, None, total, None, 0)
    return total


def add_norm(
    x: Tensor, t: Tensor, drop: Drops | None, weight: Tensor, bias: Tensor, dtype: torch.dtype, ones: int = 0
) -> tuple[Tensor, Tensor]:
    """`add`, and `norm` of it."""
    N, D = x.shape
    total, h = torch.empty_like(x), x.new_empty(N, D + ones, dtype=dtype)
    _add_norm(x, t, drop, (weight, bias), total, h, ones)
    return total, h


def _add_norm(
    x: Tensor,
    t: Tensor | None,
    drop: Drops | None,
    affine: tuple[Tensor, Tensor] | None,
    total: Tensor | None,
    h: Tensor | None,
    ones: int,
) -> None:
    N, D = x.shape
    tile = _tile(D)
    dropping = arguments(drop, x)
    weight, bias = (x, x) if affine is None else affine
    tensors = (x, x if t is None else t, dropping.seed, weight, bias)
    start_kernel(
        add_norm_kernel, _grid(N, tile), (*tensors, x if total is None else total, x if h is None else h),
        (N, *dropping.numbers, D + ones),
        **tile, ONES=ones, ADD=t is not None, NORM=h is not None, **dropping.constant, num_warps=4,
    )  # fmt: skip


@kernel
def add_sum_kernel(
    x, t,  # (N, D)
    seed, lengths,  # (1,), (B,)
    sums,  # (B, S, D) out: of x + dropped t over valid rows
    L, S, segment_rows, place, dropped,
    D: tl.constexpr, BD: tl.constexpr, T: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    series, segment = (tl.program_id(0) // S).to(tl.int64), tl.program_id(0) % S
    start = segment * segment_rows
    end = tl.minimum(start + segment_rows, tl.load(lengths + series).to(tl.int32))
    total = tl.zeros((T, BD), tl.float32)
    for begin in range(start, end, T):
        rows, limit = rows_at(series * L + begin, T), series * L + end
        added = load_rows(t, rows, D, limit, D, BD)
        if DROP:
            added = drop_rows(added, load_keys(seed, place), dropped, rows, BD)
        total += load_rows(x, rows, D, limit, D, BD) + added
    column = tl.arange(0, BD)
    at = sums + (series * S + segment) * D + column
    tl.store(at, tl.sum(total, axis=0), mask=column < D)


def add_mean(x: Tensor, t: Tensor, drop: Drops | None, lengths: Tensor, L: int) -> Tensor:
    """Mean of `add` over the valid rows of each series, (N, D), (N, D), (B,) -> (B, D) like x; 0 if there is none."""
    B, D = lengths.shape[0], x.shape[1]
    tile = _tile(D, ELEMENTS // 2)
    segment_rows = triton.cdiv(triton.cdiv(L, max(1, PROGRAMS // B)), tile["T"]) * tile["T"]
    segments = triton.cdiv(L, segment_rows)
    sums, dropping = x.new_empty(B, segments, D, dtype=torch.float32), arguments(drop, x)
    start_kernel(
        add_sum_kernel, (B * segments,), (x, t, dropping.seed, lengths, sums),
        (L, segments, segment_rows, *dropping.numbers), **tile, **dropping.constant, num_warps=4,
    )  # fmt: skip
    return (sums.sum(dim=1) / lengths.clamp(min=1)[:, None]).to(x.dtype)


@kernel
def norm_backward_kernel(
    dh,  # (N, D) gradient of the layer norm, times scales[0]
    x,  # (N, D) its rows
    weight,  # (D,)
    g,  # (N, D) gradient of the rows that comes past the norm; POOLED as in `load_gradient`
    lengths,  # (B,), if POOLED
    scales,  # (2,) what gradients are multiplied by, and its inverse
    seed,  # (1,)
    dx,  # (N, D) out: gradient of the rows
    narrow,  # (N, D) out, if NARROW: where it is not dropped, times scales[0]
    parts,  # (P, 2, D) out: of the gradients of weight and bias
    peaks,  # (P,) out: largest entries of dx
    N, L, per_program, place, dropped,
    D: tl.constexpr, BD: tl.constexpr, T: tl.constexpr, NARROW: tl.constexpr, DROP: tl.constexpr,
    POOLED: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0).to(tl.int64)
    first = program * per_program
    limit = tl.minimum(first + per_program, N)
    scale, inverse = tl.load(scales), tl.load(scales + 1)
    factor = load_vector(weight, D, BD)
    to_weight = tl.zeros((T, BD), tl.float32)
    to_bias = tl.zeros((T, BD), tl.float32)
    peak = tl.zeros((T, BD), tl.float32)
    for start in range(first, limit, T):
        rows = rows_at(start, T)
        unit, deviation = unit_rows(load_rows(x, rows, D, limit, D, BD), D, BD)
        slope = load_rows(dh, rows, D, limit, D, BD)
        to_weight += slope * unit
        to_bias += slope
        slope *= factor
        along = tl.sum(slope * unit, axis=1)[:, None] / D
        slope = deviation * (slope - tl.sum(slope, axis=1)[:, None] / D - unit * along)
        out = load_gradient(g, lengths, rows, limit, L, D, BD, POOLED) + inverse * slope
        store_rows(dx, rows, D, limit, out, D, BD)
        inside = (rows < limit)[:, None] & (tl.arange(0, BD) < D)[None, :]
        peak = tl.maximum(peak, tl.where(inside, tl.abs(out), 0.0))
        if NARROW:
            if DROP:
                out = drop_rows(out, load_keys(seed, place), dropped, rows, BD)
            store_rows(narrow, rows, D, limit, out * scale, D, BD)
    column = tl.arange(0, BD)
    at = parts + program * 2 * D + column
    tl.store(at, tl.sum(to_weight, axis=0) * inverse, mask=column < D)
    tl.store(at + D, tl.sum(to_bias, axis=0) * inverse, mask=column < D)
    tl.store(peaks + program, tl.max(tl.max(peak, axis=1), axis=0))


class Gradient(NamedTuple):
    """Of rows: their own, or one for all valid rows of a series."""

    g: Tensor  # (N, D) or (B, D)
    lengths: Tensor | None = None  # (B,) valid rows, where a series has one gradient
    rows: int = 1  # L, of a series

    @property
    def operands(self) -> tuple[Tensor, Tensor]:
        """As kernels take it."""
        return self.g, self.g if self.lengths is None else self.lengths


class NormGradients(NamedTuple):
    """What goes back through a norm and the residual beside it."""

    dx: Tensor  # (N, D) like x
    narrow: Tensor  # (N, D) what goes into the product before the norm, scaled; dx itself if it is not wanted
    affine: Tensor  # (2, D) of weight and bias
    peaks: Tensor  # (P,) largest entries of dx


def norm_backward(
    dh: Tensor,
    x: Tensor,
    weight: Tensor,
    g: Gradient,
    scales: Tensor,
    drop: Drops | None = None,
    narrow: torch.dtype | None = None,
) -> NormGradients:
    """Of `norm` at rows x (N, D), from its gradient dh and that of the residual, g.

    With a dtype `narrow` also what the product before it gets, through the dropout between them.
    """
    N, D = x.shape
    tile = _tile(D, ELEMENTS // 2)
    per_program = triton.cdiv(triton.cdiv(N, PROGRAMS), tile["T"]) * tile["T"]
    programs = triton.cdiv(N, per_program)
    dx = torch.empty_like(x)
    out = dx if narrow is None else x.new_empty(N, D, dtype=narrow)
    parts, peaks = x.new_empty(programs, 2, D, dtype=torch.float32), x.new_empty(programs, dtype=torch.float32)
    dropping = arguments(drop, scales)
    start_kernel(
        norm_backward_kernel, (programs,),
        (dh, x, weight, *g.operands, scales, dropping.seed, dx, out, parts, peaks),
        (N, g.rows, per_program, *dropping.numbers),
        **tile, NARROW=narrow is not None, **dropping.constant, POOLED=g.lengths is not None, num_warps=4,
    )  # fmt: skip
    return NormGradients(dx, out, parts.sum(dim=0), peaks)


# --- gradients as products take them ---


@kernel
def scale_kernel(peaks, scales, count, BLOCK: tl.constexpr, HALF_RANGE: tl.constexpr):
    """One program: a power of two that takes the largest peak to between HALF_RANGE and twice that."""
    at = tl.arange(0, BLOCK)
    peak = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, count, BLOCK):
        peak = tl.maximum(peak, tl.load(peaks + start + at, mask=start + at < count, other=0.0))
    exponent = (tl.max(peak, axis=0).to(tl.int32, bitcast=True) >> 23) - 127
    exponent = tl.minimum(tl.maximum(exponent, -100), 100)  # of 0, inf and NaN too
    tl.store(scales, HALF_RANGE * tl.exp2(-exponent.to(tl.float32)))
    tl.store(scales + 1, tl.exp2(exponent.to(tl.float32)) / HALF_RANGE)


def gradient_scales(peaks: Tensor, narrow: torch.dtype) -> Tensor:
    """(2,) by what gradients with these largest entries (P,) are multiplied in `narrow`, and its inverse.

    float16 has the digits of TF32, but not the range. A power of two changes no digit.
    """
    scales = peaks.new_empty(2)
    if narrow != torch.float16:
        return scales.fill_(1.0)
    start_kernel(scale_kernel, (1,), (peaks, scales), (peaks.shape[0],), BLOCK=1024, HALF_RANGE=HALF_RANGE, num_warps=4)
    return scales


@kernel
def narrow_kernel(
    g, lengths, scales, seed, out, N, L, place, dropped,
    D: tl.constexpr, BD: tl.constexpr, T: tl.constexpr, DROP: tl.constexpr, POOLED: tl.constexpr,
):  # fmt: skip
    """g as in `load_gradient` -> out (N, D)"""
    rows = rows_at(tl.program_id(0) * T, T)
    tile = load_gradient(g, lengths, rows, N, L, D, BD, POOLED)
    if DROP:
        tile = drop_rows(tile, load_keys(seed, place), dropped, rows, BD)
    store_rows(out, rows, D, N, tile * tl.load(scales), D, BD)


def narrow_gradient(
    gradient: Gradient, like: Tensor, scales: Tensor, drop: Drops | None, narrow: torch.dtype
) -> Tensor:
    """Of rows `like` (N, D), behind dropout -> (N, D) scaled, in `narrow`."""
    if gradient.lengths is None and drop is None and gradient.g.dtype == narrow:  # then the scale is 1
        return gradient.g
    N, D = like.shape
    tile, out = _tile(D), like.new_empty(N, D, dtype=narrow)
    dropping = arguments(drop, scales)
    start_kernel(
        narrow_kernel, _grid(N, tile), (*gradient.operands, scales, dropping.seed, out),
        (N, gradient.rows, *dropping.numbers),
        **tile, **dropping.constant, POOLED=gradient.lengths is not None, num_warps=4,
    )  # fmt: skip
    return out


# --- output gate ---


@kernel
def gate_kernel(
    o,  # (N, D) before the sigmoid, rows o_row apart
    y,  # (N, D)
    reads,  # (N, H), if READS: what is left of y by the time of a query
    z,  # (N, D) out
    N, o_row,
    D: tl.constexpr, BD: tl.constexpr, T: tl.constexpr, H: tl.constexpr, READS: tl.constexpr,
):  # fmt: skip
    rows = rows_at(tl.program_id(0) * T, T)
    tile = tl.sigmoid(load_rows(o, rows, o_row, N, D, BD)) * load_rows(y, rows, D, N, D, BD)
    if READS:
        tile *= load_heads(reads, rows, N, H, D // H, BD)
    store_rows(z, rows, D, N, tile, D, BD)


def gate_output(o: Tensor, y: Tensor, reads: Tensor | None, heads: int) -> Tensor:
    """σ(o) y, times what is left of y where a row only reads: (N, D), (N, D), (N, H) -> (N, D) like y"""
    N, D = y.shape
    tile, z = _tile(D), torch.empty_like(y)
    start_kernel(
        gate_kernel, _grid(N, tile), (o, y, y if reads is None else reads, z), (N, o.stride(0)),
        **tile, H=heads, READS=reads is not None, num_warps=4,
    )  # fmt: skip
    return z


@kernel
def gate_backward_kernel(
    dz,  # (N, D)
    o, y, reads, z,  # as forwards; z is made again
    dy,  # (N, D) out
    do,  # (N, D) out, rows do_row apart
    dreads,  # (N, H) out, if READS
    N, o_row, do_row,
    D: tl.constexpr, BD: tl.constexpr, T: tl.constexpr, H: tl.constexpr, READS: tl.constexpr,
):  # fmt: skip
    rows = rows_at(tl.program_id(0) * T, T)
    slope = load_rows(dz, rows, D, N, D, BD)
    gate = tl.sigmoid(load_rows(o, rows, o_row, N, D, BD))
    read = load_rows(y, rows, D, N, D, BD)
    to_read = slope * gate
    if READS:
        K: tl.constexpr = D // H
        heads: tl.constexpr = BD // K
        head = tl.arange(0, heads)
        inside = (rows < N)[:, None] & (head < H)[None, :]
        change = tl.sum(tl.reshape(to_read * read, (T, heads, K)), axis=2)
        tl.store(dreads + rows[:, None] * H + head[None, :], change, mask=inside)
        left = load_heads(reads, rows, N, H, K, BD)
        read *= left
        to_read *= left
    store_rows(dy, rows, D, N, to_read, D, BD)
    store_rows(do, rows, do_row, N, slope * read * gate * (1 - gate), D, BD)
    store_rows(z, rows, D, N, gate * read, D, BD)


def gate_output_backward(
    dz: Tensor, o: Tensor, y: Tensor, reads: Tensor | None, do: Tensor, heads: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Of `gate_output`: fills do (N, D); returns dy (N, D), z again, and the gradient of `reads` (N, H)."""
    N, D = y.shape
    tile, dy, z = _tile(D), torch.empty_like(y), torch.empty_like(y)
    dreads = None if reads is None else torch.empty_like(reads)
    start_kernel(
        gate_backward_kernel, _grid(N, tile),
        (dz, o, y, y if reads is None else reads, z, dy, do, y if dreads is None else dreads),
        (N, o.stride(0), do.stride(0)), **tile, H=heads, READS=reads is not None, num_warps=4,
    )  # fmt: skip
    return dy, z, dreads


# --- SwiGLU ---


@kernel
def swiglu_kernel(up, s, N, F, T: tl.constexpr, BD: tl.constexpr):
    """up (N, 2F) -> s (N, F); one program has T rows and BD of the F columns."""
    rows = rows_at(tl.program_id(0) * T, T)
    column = tl.program_id(1) * BD + tl.arange(0, BD)
    inside = (rows < N)[:, None] & (column < F)[None, :]
    at = up + rows[:, None] * (2 * F) + column[None, :]
    a = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(at + F, mask=inside, other=0.0).to(tl.float32)
    tile = a * tl.sigmoid(a) * b
    tl.store(s + rows[:, None] * F + column[None, :], tile.to(s.dtype.element_ty), mask=inside)


def swiglu(up: Tensor) -> Tensor:
    """SiLU(a) b of a and b side by side: (N, 2F) -> (N, F)"""
    N, F = up.shape[0], up.shape[1] // 2
    s, tile = up.new_empty(N, F), _hidden_tile(F)
    start_kernel(swiglu_kernel, _hidden_grid(N, F, tile), (up, s), (N, F), **tile, num_warps=4)
    return s


@kernel
def swiglu_backward_kernel(ds, up, dup, s, N, F, T: tl.constexpr, BD: tl.constexpr):
    """ds (N, F), up (N, 2F) -> dup (N, 2F), and s (N, F) again"""
    rows = rows_at(tl.program_id(0) * T, T)
    column = tl.program_id(1) * BD + tl.arange(0, BD)
    inside = (rows < N)[:, None] & (column < F)[None, :]
    wide, narrow = rows[:, None] * (2 * F) + column[None, :], rows[:, None] * F + column[None, :]
    a = tl.load(up + wide, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(up + wide + F, mask=inside, other=0.0).to(tl.float32)
    slope = tl.load(ds + narrow, mask=inside, other=0.0).to(tl.float32)
    gate = tl.sigmoid(a)
    silu = a * gate
    to_a = slope * b * (gate + silu * (1 - gate))
    tl.store(dup + wide, to_a.to(dup.dtype.element_ty), mask=inside)
    tl.store(dup + wide + F, (slope * silu).to(dup.dtype.element_ty), mask=inside)
    tl.store(s + narrow, (silu * b).to(s.dtype.element_ty), mask=inside)


def swiglu_backward(ds: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    """Of `swiglu`, (N, F), (N, 2F) -> gradient of `up` (N, 2F), and s (N, F) again"""
    N, F = ds.shape
    dup, s, tile = torch.empty_like(up), torch.empty_like(ds), _hidden_tile(F)
    start_kernel(swiglu_backward_kernel, _hidden_grid(N, F, tile), (ds, up, dup, s), (N, F), **tile, num_warps=4)
    return dup, s


def _hidden_tile(F: int) -> dict[str, int]:
    """Of the hidden width, which is no power of two: 352 are 3 times 128, not 512."""
    columns = min(128, power_of_two(F))
    return {"T": ELEMENTS // 2 // columns, "BD": columns}


def _hidden_grid(N: int, F: int, tile: dict[str, int]) -> tuple[int, int]:
    return triton.cdiv(N, tile["T"]), triton.cdiv(F, tile["BD"])
