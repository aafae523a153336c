"""One stream of millions of rows: how far it drifts from the whole series, what it keeps in memory, what a row costs.

    python scripts/attack/stream.py --rows 10_000_000

The step of a default causal model is compiled ahead of time, as a loop of PyTorch calls would take hours for as many
rows: the same step, so the same sums. The truth is the same model in float64 over the whole series. For comparison
the estimators' stream, as users call it, takes the first rows one by one.
"""

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, cast

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn

from lformer import IrregularBatch
from lformer.nn import LFormer, LFormerConfig
from lformer.nn.lformer import State

PIECE = 10_000  # rows that are drawn, and given to the float64 model, at once
CHANNELS = 3
Step = Callable[[Tensor, Tensor, list[Tensor]], tuple[Tensor, list[Tensor]]]


def pieces(rows: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Values (1, PIECE, C), three of ten missing, and times (1, PIECE) at uneven intervals over six decades."""
    generator = torch.Generator().manual_seed(0)
    now = torch.zeros(1, 1, dtype=torch.float64)
    for _ in range(0, rows, PIECE):
        values = 1 + torch.randn(1, PIECE, CHANNELS, generator=generator, dtype=torch.float64)
        values[torch.rand(values.shape, generator=generator) < 0.3] = torch.nan
        gaps = 10 ** (6 * torch.rand(1, PIECE, generator=generator, dtype=torch.float64) - 3)
        times = now + gaps.cumsum(dim=1)
        now = times[:, -1:]
        yield values, times


def compiled(model: LFormer) -> Step:
    """`model.step` as a library of machine code."""
    state = model.init_state(1)
    flat, shape = pytree.tree_flatten(state)

    class OneStep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, values: Tensor, delta: Tensor, *flat: Tensor) -> tuple[Tensor, ...]:
            answer, after = self.model.step(values, delta, pytree.tree_unflatten(list(flat), shape))
            return answer, *pytree.tree_flatten(after)[0]

    example = (torch.zeros(1, CHANNELS, dtype=torch.float64), torch.zeros(1, dtype=torch.float64), *flat)
    program = torch.export.export(OneStep().eval(), example)
    folder = tempfile.mkdtemp()
    library = cast(Any, torch._inductor).aoti_compile_and_package(program, package_path=f"{folder}/step.pt2")
    run = cast(Any, torch._inductor).aoti_load_package(library)

    def step(values: Tensor, delta: Tensor, kept: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        answer, *after = run(values, delta, *kept)
        return answer, after

    return step


def memory() -> int:
    """Bytes that this process holds at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@torch.no_grad()
def main(rows: int, out: Path | None) -> None:
    """Print and keep one line for every power of ten."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = LFormerConfig(
        inputs=CHANNELS, outputs=2, rows="carried", embedder="mlp", pooling="mean_last_max", causal=True,
        gate_norm="prefix",
    )  # fmt: skip
    model = LFormer(config).requires_grad_(False).eval()
    exact = deepcopy(model).double()
    step, truth = compiled(model), cast(State | None, None)
    kept = pytree.tree_flatten(model.init_state(1))[0]
    done, spent, last, found = 0, 0.0, torch.zeros(1, 1, dtype=torch.float64), []
    start: Tensor | None = None
    marks = {10**n for n in range(4, 12)} | {3 * 10**n for n in range(4, 12)} | {rows}
    for values, times in pieces(rows):
        start = times[:, 0] if start is None else start
        last = times[:, :1] if done == 0 else last
        deltas = torch.diff(times, dim=1, prepend=last)
        last = times[:, -1:]
        began = time.perf_counter()
        for n in range(PIECE):
            answer, kept = step(values[:, n], deltas[:, n], kept)
        spent += time.perf_counter() - began
        batch = IrregularBatch.build(values, times, t0=start, dtype=torch.float64)
        expected, truth = exact(batch, truth, return_state=True)
        done += PIECE
        if done in marks:
            drift = float((answer - expected).abs().max() / expected.abs().max())
            found.append({"rows": done, "drift": drift, "microseconds": 1e6 * spent / done, "bytes": memory()})
            print(json.dumps(found[-1]), flush=True)
    if out is not None:
        out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=lambda text: int(text.replace("_", "")), default=10_000_000)
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    main(arguments.rows, arguments.out)
