# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""The weights of a mixer side by side, as the products of `layers.py` take them, and their gradients taken apart.

Either is one launch: a program has 16 rows of one weight, as every width is a multiple of 16. Of M = 4 D + H rows,
filled up with zeros, those of q, k, v and o have D each; the column behind a weight is its bias, see
`row_kernels.ONES`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from lformer.ops.fused.launch import power_of_two, start_kernel
from lformer.ops.fused.plan import MixerWeights
from lformer.ops.fused.row_kernels import ONES, kernel

GATES = 16  # the columns of the gates are filled up to a multiple of so many: rows then begin where wide loads do
TILE = 16  # rows of a program


class Operands(NamedTuple):
    """The weights of a mixer as products take them."""

    project: Tensor  # (M, D + ONES) of q, k with its 1 / sqrt(K), v, o and gates; a column of biases
    mix: Tensor  # (D, D)
    up: Tensor  # (2F, D)
    down: Tensor  # (D, F)


@triton.jit
def copy_rows(source, target, rows, limit, width, factor, BC: tl.constexpr):
    """Rows of (limit, width), times a factor, in the dtype of the target."""
    column = tl.arange(0, BC)
    inside = (rows < limit)[:, None] & (column < width)[None, :]
    at = rows[:, None] * width + column[None, :]
    tile = tl.load(source + at, mask=inside, other=0.0).to(tl.float32) * factor
    tl.store(target + at, tile.to(target.dtype.element_ty), mask=inside)


@triton.jit
def place_rows(
    weight, bias, project, rows, first, limit, factor,
    D: tl.constexpr, ONES: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Rows of (limit, D), times a factor, and their biases, at row `first` of `project`; zeros from `limit` on."""
    column = tl.arange(0, BC)
    inside = (rows < limit)[:, None] & (column < D)[None, :]
    tile = tl.load(weight + rows[:, None] * D + column[None, :], mask=inside, other=0.0).to(tl.float32) * factor
    shift = tl.load(bias + rows, mask=rows < limit, other=0.0).to(tl.float32)
    tile = tl.where((column == D)[None, :], shift[:, None], tile)
    at = project + (first + rows)[:, None] * (D + ONES) + column[None, :]
    tl.store(at, tile.to(project.dtype.element_ty), mask=(column < D + ONES)[None, :])


@kernel
def pack_kernel(
    wq, bq, wk, bk, wv, bv, wo, bo, wg, bg, wm, w_up, w_down,  # of `MixerWeights`
    project, mix, up, down,  # of `Operands`, out
    F, key_scale,
    D: tl.constexpr, H: tl.constexpr, M: tl.constexpr, ONES: tl.constexpr, T: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0) * T
    rows = first + tl.arange(0, T)
    if first < D:
        place_rows(wq, bq, project, rows, 0, D, 1.0, D, ONES, BC)
    elif first < 2 * D:
        place_rows(wk, bk, project, rows - D, D, D, key_scale, D, ONES, BC)
    elif first < 3 * D:
        place_rows(wv, bv, project, rows - 2 * D, 2 * D, D, 1.0, D, ONES, BC)
    elif first < 4 * D:
        place_rows(wo, bo, project, rows - 3 * D, 3 * D, D, 1.0, D, ONES, BC)
    elif first < M:
        place_rows(wg, bg, project, rows - 4 * D, 4 * D, H, 1.0, D, ONES, BC)
    elif first < M + D:
        copy_rows(wm, mix, rows - M, D, D, 1.0, BC)
    elif first < M + 2 * D:
        copy_rows(w_down, down, rows - M - D, D, F, 1.0, BC)
    else:
        copy_rows(w_up, up, rows - M - 2 * D, 2 * F, D, 1.0, BC)


def pack(w: MixerWeights, narrow: torch.dtype) -> Operands:
    """In the dtype that products take; what has it already stays as it is."""
    (H, D), F = w.wg.shape, w.w_down.shape[1]
    M = 4 * D + -(-H // GATES) * GATES
    same = all(p.dtype == narrow for p in (w.wm, w.w_up, w.w_down))
    project = w.wq.new_empty(M, D + ONES, dtype=narrow)
    rest = [p if same else torch.empty_like(p, dtype=narrow) for p in (w.wm, w.w_up, w.w_down)]
    linear = (w.wq, w.bq, w.wk, w.bk, w.wv, w.bv, w.wo, w.bo, w.wg, w.bg, w.wm, w.w_up, w.w_down)
    start_kernel(
        pack_kernel, (triton.cdiv(M if same else M + 2 * D + 2 * F, TILE),), (*linear, project, *rest),
        (F, 1 / math.sqrt(D // H)),
        D=D, H=H, M=M, ONES=ONES, T=TILE, BC=power_of_two(max(D + ONES, 1 if same else F)), num_warps=8,
    )  # fmt: skip
    return Operands(project, *rest)


@kernel
def take_apart_kernel(
    project, mix, up, down,  # gradients of `Operands`, float32
    norm1, norm2,  # (2, D) of weight and bias
    theta,  # (H,)
    scales,  # (2,) see `row_kernels.gradient_scales`
    flat,  # out: gradients of `MixerWeights`, in their order
    F, key_scale,
    D: tl.constexpr, H: tl.constexpr, M: tl.constexpr, ONES: tl.constexpr, T: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    first, column = tl.program_id(0) * T, tl.arange(0, BC)
    rows, inverse = first + tl.arange(0, T), tl.load(scales + 1)
    linear: tl.constexpr = D * D + D
    gates = flat + 2 * D + 4 * linear
    to_theta = gates + H * D + H
    to_mix = to_theta + H
    to_norm2 = to_mix + D * D
    to_up = to_norm2 + 2 * D
    to_down = to_up + 2 * F * D
    if first < M:
        part = first // D
        part = tl.minimum(part, 4)
        within, limit = rows - part * D, tl.where(part < 4, D, H)
        inside = (within < limit)[:, None] & (column < D)[None, :]
        factor = tl.where(part == 1, key_scale, 1.0) * inverse
        tile = tl.load(project + rows[:, None] * (D + ONES) + column[None, :], mask=inside, other=0.0) * factor
        shift = tl.load(project + rows * (D + ONES) + D, mask=within < limit, other=0.0) * inverse
        weight = flat + 2 * D + part * linear
        tl.store(weight + within[:, None] * D + column[None, :], tile.to(flat.dtype.element_ty), mask=inside)
        tl.store(weight + limit * D + within, shift.to(flat.dtype.element_ty), mask=within < limit)
    elif first < M + D:
        copy_rows(mix, to_mix, rows - M, D, D, inverse, BC)
    elif first < M + 2 * D:
        copy_rows(down, to_down, rows - M - D, D, F, inverse, BC)
    elif first < M + 2 * D + 2 * F:
        copy_rows(up, to_up, rows - M - 2 * D, 2 * F, D, inverse, BC)
    else:  # the norms have been scaled already
        row = tl.arange(0, T)
        copy_rows(norm1, flat, row, 2, D, 1.0, BC)
        copy_rows(norm2, to_norm2, row, 2, D, 1.0, BC)
        copy_rows(theta, to_theta, row, 1, H, inverse, BC)


def take_apart(
    found: Operands, norm1: Tensor, norm2: Tensor, theta: Tensor, scales: Tensor, w: MixerWeights
) -> MixerWeights:
    """Gradients of `Operands`, (2, D) of either norm and (H,) of theta -> of all weights, without what scaled them."""
    (H, D), F, M = w.wg.shape, w.w_down.shape[1], found.project.shape[0]
    flat = w.wq.new_empty(sum(p.numel() for p in w))
    start_kernel(
        take_apart_kernel, (triton.cdiv(M + 2 * D + 2 * F, TILE) + 1,), (*found, norm1, norm2, theta, scales, flat),
        (F, 1 / math.sqrt(D // H)), D=D, H=H, M=M, ONES=ONES, T=TILE, BC=power_of_two(max(D, F)), num_warps=8,
    )  # fmt: skip
    return MixerWeights(*(d.view(p.shape) for d, p in zip(flat.split([p.numel() for p in w]), w, strict=True)))
