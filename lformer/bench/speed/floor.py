"""Third study: the least a layer must compute and move, counted, and how far from it we are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from lformer.bench.speed.cells import Cell, Work
from lformer.bench.speed.machine import Precision, Rates
from lformer.bench.speed.throughput import Rate

ITEM = {"tf32": 4, "bf16": 2}  # bytes of a number
HIDDEN = 2.75  # inner width of the channel mixer over the width, as `LFormerConfig` has it


class Count(NamedTuple):
    """Per token and layer."""

    flop: int
    bytes: int


def count(width: int, heads: int, work: Work = "forward", item: int = 4) -> Count:
    """The least work of one mixer for one row of `width` D, with H heads of K = D / H and inner width F = 2.75 D.

    FLOP, a multiplication and an addition being two:

        queries, keys, values, output gate     4 · 2 D²
        liquid gate, H numbers                 2 D H
        memory, kᵀ v of every head             2 D K
        read-out, q S of every head            2 D K
        W_m                                    2 D²
        SwiGLU, W_1 and W_2, then W_3          2 D · 2F + 2 F D

    Norms, gates, exponentials and residuals are some tens of operations per number and are not counted. A backward
    pass has two products for each of these (one for the input, one for the weight), so a training step has three
    times as many; what a kernel computes again rather than store comes on top and is not counted.

    Bytes: every row reads a memory into which all rows wrote, so a layer goes over its rows twice. It reads a row to
    write into the memory, reads it again to answer, and writes the result: 3 D numbers. Everything between can stay on
    the chip. Backward the sums run the other way, again twice over rows and gradients: 2 · 2 D numbers read, D
    written, 8 D in a training step. Gates and intervals, H + 1 numbers beside D, and weights are not counted.

    A batch small enough for the cache can beat the floor of its bytes, none that of its FLOP.

    Example:
        >>> count(64, 4)
        Count(flop=113152, bytes=768)
    """
    D, K, F = width, width // heads, round(HIDDEN * width)
    flop = 4 * 2 * D * D + 2 * D * heads + 2 * 2 * D * K + 2 * D * D + 2 * D * 2 * F + 2 * F * D
    return Count(flop, 3 * D * item) if work == "forward" else Count(3 * flop, 8 * D * item)


@dataclass(frozen=True)
class Distance:
    """A measurement beside the floor of its layers, where computing and moving overlap entirely."""

    what: str
    model: str
    precision: Precision
    batch: int
    length: int
    seconds: float
    compute: float  # seconds of the counted FLOP at the measured rate of matrix products
    move: float  # seconds of the counted bytes at the measured rate of a copy
    times: float  # how many times the floor it takes; the floor is the longer of the two


def distances(cells: Iterable[Cell], throughput: Iterable[Rate], rates: Rates, shape: dict[str, int]) -> list[Distance]:
    """Of every measurement of LFormer: `shape` has its width, heads and depth."""
    return [*_of_cells(cells, rates, shape), *_of_throughput(throughput, rates, shape)]


def _of_cells(cells: Iterable[Cell], rates: Rates, shape: dict[str, int]) -> Iterator[Distance]:
    for c in cells:
        if c.seconds is not None and c.model.startswith("lformer"):
            yield _distance(c.work, c.work, c.model, "tf32", c.batch, c.length, c.seconds, rates, shape)


def _of_throughput(throughput: Iterable[Rate], rates: Rates, shape: dict[str, int]) -> Iterator[Distance]:
    for r in throughput:
        if r.seconds is not None and r.model.startswith("lformer"):
            what = f"inference, {r.mode}"
            yield _distance(what, "forward", r.model, r.precision, r.batch, r.length, r.seconds, rates, shape)


def _distance(
    what: str, work: Work, model: str, precision: Precision, batch: int, length: int, seconds: float, rates: Rates,
    shape: dict[str, int],
) -> Distance:  # fmt: skip
    least = count(shape["width"], shape["heads"], work, ITEM[precision])
    tokens = batch * length * shape["depth"]
    compute, move = tokens * least.flop / getattr(rates, precision), tokens * least.bytes / rates.copy
    times = seconds / max(compute, move)
    return Distance(what, model, precision, batch, length, seconds, compute, move, times)
