"""Figures that were not measured in the run they stand beside, and say so."""

from __future__ import annotations

from typing import NamedTuple

from lformer.bench.speed.cells import Cell
from lformer.bench.speed.throughput import Rate

MARK = " ‡"  # after the name of a model
NOTE = "‡ not of this run: Mamba by its own CUDA kernels, measured elsewhere on one H200, in TF32 unless said."

MAMBA_LENGTHS = (
    Cell("mamba" + MARK, "training step", 8, 32_768, 14.6e-3, int(2.3 * 2**30)),
    Cell("mamba" + MARK, "training step", 8, 131_072, 53.7e-3, int(9.2 * 2**30)),
)
MAMBA_THROUGHPUT = (
    Rate("mamba" + MARK, "tf32", "replay", 16, 4096, None, 1.17e-3, 13_700.0),
    Rate("mamba" + MARK, "bf16", "replay", 16, 4096, None, 0.74e-3, 21_500.0),
)


class Published(NamedTuple):
    parameters: int
    series_per_second: float


# Batch 16, 4,096 rows, on an RTX 4090; precision and warm-up are not given (paper, efficiency, table of throughput).
PAPER = {
    "r-ode": Published(34_560, 2.46),
    "transformer": Published(101_380, 257.95),
    "mamba": Published(66_690, 8_974.65),
    "lformer-plain": Published(103_860, 4_652.90),
}
