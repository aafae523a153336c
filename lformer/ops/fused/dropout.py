# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
"""Dropout of rows inside the kernels: what a branch adds, or embedded rows, and the gradients that come back.

Naive form: `ops.dropout`, which says what is drawn. Nothing is stored: the backward kernels draw the same numbers
again. Without dropout (DROP is False) none of this is compiled.
"""

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from lformer.ops import dropout

TIME, CHANNEL = tl.constexpr(dropout.TIME), tl.constexpr(dropout.CHANNEL)
LEVELS = tl.constexpr(dropout.LEVELS)
FIRST = tl.constexpr(dropout.FIRST)
SECOND = tl.constexpr(dropout.SECOND)
GOLDEN = tl.constexpr(dropout.GOLDEN)
WORD = tl.constexpr(dropout.WORD)


@triton.jit
def load_keys(seed, place):
    """() int64, a place in the model -> two numbers of 32 bits."""
    bits = tl.load(seed)
    low, high = (bits & WORD).to(tl.uint32), ((bits >> 32) & WORD).to(tl.uint32)
    first_key = mixed(low ^ mixed(place.to(tl.uint32) * GOLDEN + 1, 0), 0)
    return first_key, mixed(high ^ first_key, 0)


@triton.jit
def mixed(x, between):
    x = (x ^ (x >> 16)) * FIRST
    x = (x ^ (x >> 15) ^ between) * SECOND
    return x ^ (x >> 15)


@triton.jit
def drop(tile, keys, dropped, first, T: tl.constexpr, D: tl.constexpr):
    """Rows `first …` of (B L, D) as a (T, D) tile -> those that stay, times LEVELS / (LEVELS - dropped), others 0."""
    return drop_rows(tile, keys, dropped, first + tl.arange(0, T), D)


@triton.jit
def drop_rows(tile, keys, dropped, rows, D: tl.constexpr):
    """As `drop`, of rows with the numbers (T,)."""
    row = mixed(rows.to(tl.uint32) + keys[0], 0)
    channel = tl.arange(0, D)
    word = mixed(row[:, None] ^ (channel // 2).to(tl.uint32)[None, :], (row * GOLDEN + keys[1])[:, None])
    draw = (word >> (channel % 2 * 16).to(tl.uint32)[None, :]) & (LEVELS - 1)
    return tl.where(draw.to(tl.int32) >= dropped, tile * spread(dropped), 0.0)


@triton.jit
def spread(dropped):
    """What numbers that stay are multiplied with, so that the mean stays."""
    return 1 / (1 - dropped.to(tl.float32) / LEVELS)


class Drops(NamedTuple):
    """What kernels drop of one layer, or of embedded rows."""

    seed: Tensor  # () int64
    place: int  # of a branch of the layer, the first one for kernels that drop in both, or of the embedded rows
    dropped: int  # of LEVELS


class Arguments(NamedTuple):
    """Of a kernel that may drop: a tensor, two numbers and a constant."""

    seed: Tensor
    numbers: tuple[int, int]  # place, dropped
    constant: dict[str, bool]


def arguments(drops: Drops | None, like: Tensor) -> Arguments:
    """Where nothing is dropped the kernel looks at none of them, and any tensor will do."""
    if drops is None:
        return Arguments(like, (0, 0), {"DROP": False})
    return Arguments(drops.seed, (drops.place, drops.dropped), {"DROP": True})


def layer_drops(dropping: dropout.Dropping | None, layer: int, branch: int = dropout.TIME) -> Drops | None:
    """Of the mixer `layer`, from one of its branches on."""
    return None if dropping is None else _drops(dropping.seed, dropout.place(layer, branch), dropping.branches)


def row_drops(dropping: dropout.Dropping | None) -> Drops | None:
    """Of the embedded rows."""
    return None if dropping is None else _drops(dropping.seed, dropout.EMBEDDER, dropping.rows)


def _drops(seed: Tensor, place: int, share: float) -> Drops | None:
    dropped = dropout.levels(share)
    return Drops(seed, place, dropped) if dropped else None
