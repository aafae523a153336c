"""Compile the fused kernels of a model ahead, so that its first step does not wait for them.

Kernels are compiled for widths, heads and, roughly, the length and number of series; Triton keeps them on the disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from time import perf_counter

import torch

from lformer.batch import IrregularBatch
from lformer.nn import LFormer, LFormerConfig
from lformer.nn.fusion import expected
from lformer.ops import GateNorm
from lformer.ops.precision import tf32


def warm(width: int, heads: int, rows: int, series: int) -> Iterator[tuple[str, float]]:
    """One training step and one answer of every kind of model of this shape that has fused mixers or layers.

    Args:
        width, heads: of the model.
        rows: of a series.
        series: in a batch.

    Yields:
        what was compiled, and how many seconds it took.
    """
    if not torch.cuda.is_available():
        raise ValueError(
            "kernels are compiled for a GPU, and torch sees none here. Call it on the machine that trains."
        )
    for causal, bf16 in product((False, True), (False, True)):
        name = f"width {width}, {heads} heads, {'causal' if causal else 'not causal'}, {'bfloat16' if bf16 else 'TF32'}"
        began, configs = perf_counter(), _configs(width, heads, causal)
        with tf32():
            for config in configs:
                _step(config, rows, series, bf16)
        if configs:
            yield name, perf_counter() - began


def _configs(width: int, heads: int, causal: bool) -> list[LFormerConfig]:
    """With an embedder that is a kernel, and with one that gives rows to the mixers, as fused layers always get them;
    without dropout, and with it.

    Empty if there are no kernels.
    """
    norm: GateNorm = "prefix" if causal else "sequence"
    linear = LFormerConfig(inputs=8, outputs=2, width=width, heads=heads, causal=causal, gate_norm=norm)
    kinds = {"fused model": [linear, replace(linear, embedder="relu")], "fused layers": [linear]}
    return [replace(config, dropout=p) for config in kinds.get(expected(linear).name, []) for p in (0.0, 0.1)]


def _step(config: LFormerConfig, rows: int, series: int, bf16: bool) -> None:
    """A training step and an answer."""
    model = LFormer(config).cuda()
    times = torch.rand(series, rows, dtype=torch.float64).cumsum(1)
    batch = IrregularBatch.build(torch.randn(series, rows, config.inputs), times).to("cuda")
    with torch.autocast("cuda", torch.bfloat16, enabled=bf16):
        model(batch).float().square().mean().backward()
        with torch.no_grad():
            model.eval()(batch)
    torch.cuda.synchronize()
