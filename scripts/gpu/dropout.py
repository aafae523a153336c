"""Dropout inside the fused mixers on a GPU: errors against float64, draws of replayed steps, and what it costs.

python scripts/gpu/dropout.py [--quick]

Width 64, 2 layers, 4 heads, hidden width 176, 12 channels, pooled head. Errors are those of the answers and of every
gradient, against plain modules in float64 that drop exactly the same numbers; the rule allows twice the error of the
plain modules in the same precision plus four units of the last digit. A training step is forward pass, loss and
backward pass as one CUDA graph. Kernels are compiled ahead, by a process for each kind of model. `--quick` leaves
causal models out.
"""

from __future__ import annotations

import argparse
import copy
import multiprocessing
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lformer import IrregularBatch, LFormer, LFormerConfig
from lformer.cuda_graphs import capture_step
from lformer.draws import Draws, drawing_from
from lformer.nn.dropout import draw_seed
from lformer.ops import checks
from lformer.ops.dropout import CHANNEL, EMBEDDER, TIME, kept_factors, place

SHAPES = ((8, 16_384), (32, 128))  # B, L
SHARES = (0.1, 0.5)  # dropped, of those whose errors are looked at
SHARE, SEED, CHANNELS = 0.1, 7, 12
DEVICE = torch.device("cuda")


class Kind(NamedTuple):
    """Of a model and its precision."""

    bf16: bool
    causal: bool

    def __str__(self) -> str:
        return f"{'bf16' if self.bf16 else 'TF32'}{', causal' if self.causal else ''}"

    @property
    def ulp(self) -> float:
        return 2.0**-7 if self.bf16 else 2.0**-10

    def autocast(self) -> torch.autocast:
        # Without its cache: a graph would go on reading weights that are freed.
        return torch.autocast("cuda", torch.bfloat16, enabled=self.bf16, cache_enabled=False)


def build(kind: Kind, p: float, backend: str) -> LFormer:
    torch.manual_seed(0)
    norm = "prefix" if kind.causal else "sequence"
    config = LFormerConfig(
        inputs=CHANNELS, outputs=7, width=64, depth=2, heads=4, hidden=176, dropout=p, causal=kind.causal,
        gate_norm=norm, backend=backend,
    )  # fmt: skip
    return LFormer(config).to(DEVICE).train()


def series(B: int, L: int, dtype: torch.dtype = torch.float32) -> IrregularBatch:
    """Uneven times with ties, ragged lengths."""
    g = torch.Generator().manual_seed(1)
    intervals = torch.exp(2 * torch.randn(B, L, generator=g, dtype=torch.float64))
    intervals[:, 3::7] = 0.0
    lengths = torch.randint(L // 2, L + 1, (B,), generator=g)
    values, targets = (torch.randn(*shape, generator=g) for shape in ((B, L, CHANNELS), (B, 7)))
    batch = IrregularBatch.build(values, intervals.cumsum(1), lengths=lengths, targets=targets, dtype=dtype)
    return batch.to(DEVICE)


def objective(model: nn.Module, batch: IrregularBatch) -> Tensor:
    return (model(batch).float() - batch.targets).square().mean()


# --- errors ---


class Given(nn.Module):
    """In the place of a Dropout: multiplies with given factors, one after the other and over again."""

    def __init__(self, seed: int, places: Sequence[int], rows: int, width: int, p: float) -> None:
        super().__init__()
        self.factors = [kept_factors(seed, at, rows, width, p, DEVICE) for at in places]
        self.turn = 0

    def forward(self, x: Tensor) -> Tensor:
        factor = self.factors[self.turn % len(self.factors)]
        self.turn += 1
        return (x * factor.view(x.shape)).to(x.dtype)


def give(model: LFormer, seed: int, rows: int) -> None:
    """Have a plain model drop what the kernels do."""
    width, p = model.config.width, model.config.dropout
    model.dropout = Given(seed, [EMBEDDER], rows, width, p)
    for layer, block in enumerate(model.blocks):
        block.dropout = Given(seed, [place(layer, TIME), place(layer, CHANNEL)], rows, width, p)


def answers_and_gradients(model: LFormer, batch: IrregularBatch) -> dict[str, Tensor]:
    """In float64; gradients by module, as a handful of numbers has an error by luck."""
    y = model(batch)
    weight = torch.randint(-8, 9, y.shape, generator=torch.Generator().manual_seed(2)).to(y)  # exact in every dtype
    found = torch.autograd.grad((y * weight).sum(), list(model.parameters()))
    groups: dict[str, list[Tensor]] = defaultdict(list, answers=[y.detach().flatten()])
    for (name, _), gradient in zip(model.named_parameters(), found, strict=True):
        groups[name.rsplit(".", 1)[0].replace(".mu", ".gate")].append(gradient.flatten())
    return {name: torch.cat(parts).double() for name, parts in groups.items()}


def errors(kind: Kind, B: int, L: int, p: float) -> bool:
    """Print the worst of all errors over what the rule allows; True if it keeps the rule."""
    model, plain = build(kind, p, "fused"), build(kind, p, "parallel")
    torch.manual_seed(SEED)
    seed = int(draw_seed(DEVICE))
    give(plain, seed, B * L)
    exact = answers_and_gradients(copy.deepcopy(plain).double(), series(B, L, torch.float64))
    batch = series(B, L)
    with kind.autocast():
        assert model.explain(batch).name == "fused model", model.explain(batch)
        torch.manual_seed(SEED)
        fused, theirs = answers_and_gradients(model, batch), answers_and_gradients(plain, batch)
    scale = max(float(x.abs().max()) for name, x in exact.items() if name != "answers")
    worst, where = 0.0, ""
    for name, true in exact.items():
        ours, other = (float((x[name] - true).abs().max()) for x in (fused, theirs))
        unit = kind.ulp * float(true.abs().max())
        if name != "answers":
            unit = max(unit, torch.finfo(torch.float32).eps * scale)
        share = ours / (2 * other + 4 * unit)
        if not share <= worst:  # also where it is NaN
            worst, where = share, f"{name}: {ours:.2e}, plain {other:.2e}, largest {float(true.abs().max()):.2e}"
    print(f"| {kind} | {B} x {L} | {p} | {worst:.2f} | {where} | {'yes' if worst <= 1 else 'NO'} |", flush=True)
    return worst <= 1


# --- draws ---


def replays_draw_anew(kind: Kind, own: bool) -> bool:
    """A replayed step drops what an ordinary one would, from the generator of the process or of a run of its own."""
    model, batch, draws = build(kind, 0.5, "fused"), series(*SHAPES[1]), Draws(DEVICE)
    step = capture_step(model, objective)
    losses: dict[int, set[tuple[float, float]]] = defaultdict(set)
    with kind.autocast(), drawing_from(draws) if own else nullcontext():
        for seed in (0, 1, 0, 1, 0):  # ordinary and recorded, from then on replayed
            torch.manual_seed(seed)
            draws.seed(seed)
            losses[seed].add((round(float(step(batch)), 5), round(float(step(batch)), 5)))
        good = step.captured(batch)
    found = [loss for pairs in losses.values() for pair in pairs for loss in pair]
    good &= len(found) == len(set(found)) == 4  # one pair for each seed, whichever way it came about
    where = "a run of its own" if own else "the process"
    print(f"| {kind} | {where} | {'yes' if good else f'NO: {dict(losses)}'} |", flush=True)
    return good


# --- times ---


def recorded_step(model: LFormer, batch: IrregularBatch, kind: Kind) -> torch.cuda.CUDAGraph:
    weights = list(model.parameters())

    def step() -> None:
        with kind.autocast():
            loss = objective(model, batch)
        torch.autograd.grad(loss, weights)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    with checks.skip_value_checks():
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph):
            step()
    return graph


def milliseconds(graph: torch.cuda.CUDAGraph, turns: int = 15, at_once: int = 5) -> float:
    """Of one replay: the median of several spans of a few."""
    graph.replay()
    spans = []
    for _ in range(turns):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(at_once):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        spans.append(begin.elapsed_time(end) / at_once)
    return statistics.median(spans)


def step_times(kind: Kind, B: int, L: int) -> Iterator[float]:
    """Fused without dropout, fused with it, plain with it."""
    batch = series(B, L)
    for p, backend in ((0.0, "fused"), (SHARE, "fused"), (SHARE, "parallel")):
        yield milliseconds(recorded_step(build(kind, p, backend), batch, kind))
        torch.cuda.empty_cache()


# --- all of it ---


def compile_kernels(kind: Kind, p: float) -> None:
    """In a process of its own: Triton keeps on the disk what it compiles."""
    torch.set_float32_matmul_precision("high")
    for shape in SHAPES:
        model, batch = build(kind, p, "fused"), series(*shape)
        with kind.autocast(), checks.skip_value_checks():
            loss = objective(model, batch)
        torch.autograd.grad(loss, list(model.parameters()))
    torch.cuda.synchronize()


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--quick", action="store_true", help="leave causal models out")
    kinds = [Kind(*kind) for kind in product((False, True), (False,) if asked.parse_args().quick else (False, True))]
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as processes:
        for compiled in [processes.submit(compile_kernels, kind, p) for kind, p in product(kinds, (0.0, SHARE))]:
            compiled.result()
    torch.set_float32_matmul_precision("high")
    print(torch.cuda.get_device_name(), torch.__version__)

    print("\n| model | rows | dropout | error over what is allowed | worst | within the rule |")
    print("| :-- | --: | --: | --: | :-- | :-- |")
    good = [errors(kind, *shape, p) for kind, shape, p in product(kinds, SHAPES, SHARES)]

    print("\n| model | generator of | replayed steps draw as ordinary ones |")
    print("| :-- | :-- | :-- |")
    good += [replays_draw_anew(kind, own) for kind, own in product(kinds, (False, True))]

    print(f"\nTraining step, ms; dropout {SHARE}")
    print("| model | rows | fused without | fused | plain | cost of dropout | plain / fused |")
    print("| :-- | --: | --: | --: | --: | --: | --: |")
    for kind, (B, L) in product(kinds, SHAPES):
        calm, dropped, plain = step_times(kind, B, L)
        print(
            f"| {kind} | {B} x {L} | {calm:.3f} | {dropped:.3f} | {plain:.3f} | {100 * (dropped / calm - 1):+.0f} % "
            f"| {plain / dropped:.1f} |",
            flush=True,
        )
    print("\nall within the rule" if all(good) else "\nSOMETHING IS NOT WITHIN THE RULE")


if __name__ == "__main__":
    main()
