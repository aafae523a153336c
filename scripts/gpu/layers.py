"""Fused layers on a GPU: errors of outputs and all gradients against float64, times of training steps, where time goes.

python scripts/gpu/layers.py [--only errors | times | profile ...] [--quick]
Prints tables. A training step is forward pass, loss and backward pass of an LFormer with two layers and a pooled head;
"graph" replays it as a CUDA graph. Errors are found in several processes at once, as compiling takes longest. `--quick`
takes a third of the cases, and times long series alone.
"""

from __future__ import annotations

import argparse
import copy
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, NamedTuple

import torch
from scan import milliseconds, objective
from torch import Tensor, nn

from lformer import IrregularBatch, LFormer, LFormerConfig
from lformer.cuda_graphs import capture_step
from lformer.nn import LiquidGatedAttention, LiquidMixer, SwiGLU, fusion
from lformer.nn.fusion import kernel_weights
from lformer.ops import checks
from lformer.ops.dropout import Dropping, kept_factors, place

PARTS = ("errors", "times", "profile")
WORKERS = 12
DIGITS = {"tf32": 2.0**-10, "bf16": 2.0**-7, "float32": 2.0**-23}


# --- errors ---


class Case(NamedTuple):
    width: int
    heads: int
    causal: bool = False
    precision: str = "tf32"
    queries: bool = False
    dropout: float = 0.0
    rows: int = 1500

    def __str__(self) -> str:
        more = [name for name in ("causal", "queries", "dropout") if getattr(self, name)]
        return ", ".join([f"{self.width}, heads of {self.width // self.heads}", self.precision, *more])


SHAPES = [(128, h) for h in (16, 8, 4, 2, 1)] + [(256, h) for h in (8, 4, 2)]
CASES = [
    *(Case(D, H, causal) for D, H in SHAPES for causal in (False, True)),
    *(Case(D, H, causal, "bf16") for D, H in ((128, 16), (128, 4), (128, 1), (256, 4)) for causal in (False, True)),
    Case(64, 8),
    Case(64, 8, True),
    Case(64, 2, True),
    Case(64, 2, True, "bf16"),
    *(Case(128, 4, causal, queries=True, dropout=0.2) for causal in (False, True)),
    Case(128, 4, True, "bf16", True, 0.2),
    *(Case(128, 4, causal, "float32") for causal in (False, True)),
    Case(128, 4, False, rows=20_000),
    Case(128, 2, True, rows=20_000),
]


# Each of width, head, precision, queries, dropout and long series at least once.
QUICK = [
    Case(128, 4),
    Case(128, 4, True),
    Case(256, 8),
    Case(256, 8, True),
    Case(128, 16, True),
    Case(128, 1),
    Case(64, 8),
    Case(128, 4, True, "bf16"),
    Case(128, 4, False, "float32"),
    Case(128, 4, False, queries=True, dropout=0.2),
    Case(128, 4, True, queries=True, dropout=0.2),
    Case(128, 4, False, rows=20_000),
    Case(128, 2, True, rows=20_000),
]
QUICK_SHAPES = [(128, 4), (256, 8)]


class Kept(nn.Module):
    """Dropout of a layer as the kernels have it, at the end of its time mixer and of its channel mixer by turns."""

    def __init__(self, seed: int, layer: int, p: float) -> None:
        super().__init__()
        self.seed, self.layer, self.p, self.calls = seed, layer, p, 0

    def forward(self, x: Tensor) -> Tensor:
        at = place(self.layer, self.calls % 2)
        self.calls += 1
        return x * kept_factors(self.seed, at, x[..., 0].numel(), x.shape[-1], self.p, x.device).view(x.shape).to(x)


def results(case: Case, blocks: list[LiquidMixer], dtype: torch.dtype, fused: bool) -> dict[str, Tensor]:
    from lformer.ops.fused.layers import stack

    g, B, L = torch.Generator().manual_seed(1), 3, case.rows
    norm: Any = "prefix" if case.causal else "sequence"
    x = torch.randn(B, L, case.width, generator=g, dtype=torch.float64)
    deltas = torch.exp(2 * torch.randn(B, L, generator=g, dtype=torch.float64))
    deltas[:, 3::7] = 0
    deltas[1, L // 2 :] = 0
    is_query = (torch.rand(B, L, generator=g) < 0.3).cuda() if case.queries else None
    weight = torch.randn(B, L, case.width, generator=g, dtype=torch.float64)
    seed = 12345678901234567
    dropping = Dropping(torch.tensor(seed, device="cuda"), case.dropout) if case.dropout else None
    modules = nn.ModuleList(copy.deepcopy(blocks)).to("cuda", dtype)
    rows = x.to("cuda", dtype).requires_grad_()
    deltas = deltas.to("cuda", torch.promote_types(dtype, torch.float32))
    if fused:
        layers = [kernel_weights(m) for m in modules]
        y = stack(rows, deltas, layers, case.causal, norm, is_query, dropping=dropping)
    else:
        y = rows
        for n, module in enumerate(modules):
            if dropping is not None:
                module.dropout = Kept(seed, n, case.dropout)
            y = module(y, deltas, is_query=is_query)
    (y * weight.to("cuda", dtype)).sum().backward()
    found: dict[str, list[Tensor]] = {"y": [y.detach()], "dx": [rows.grad]}
    for name, p in modules.named_parameters():
        part = name.split(".", 1)[1].rsplit(".", 1)[0].replace(".mu", ".gate")
        found.setdefault("d" + part, []).append(p.grad.flatten())
    return {name: torch.cat(parts).double() for name, parts in found.items()}


def errors(case: Case) -> tuple[str, bool]:
    """A line of the table, and whether the rule is kept: twice the error of plain PyTorch plus 4 ulp of the largest."""
    torch.set_float32_matmul_precision("high" if case.precision == "tf32" else "highest")
    torch.manual_seed(0)
    blocks = []
    for _ in range(2):
        norm: Any = "prefix" if case.causal else "sequence"
        time = LiquidGatedAttention(case.width, case.heads, causal=case.causal, gate_norm=norm, backend="parallel")
        blocks.append(LiquidMixer(case.width, time, SwiGLU(case.width, round(2.75 * case.width))).double())
        for p in blocks[-1].parameters():
            p.data += 0.1 * torch.randn_like(p)
    dtype = torch.bfloat16 if case.precision == "bf16" else torch.float32
    try:
        exact, plain, ours = (
            results(case, blocks, torch.float64, False),
            results(case, blocks, dtype, False),
            results(case, blocks, dtype, True),
        )
    except Exception as error:  # another case may still be right
        return f"| {case} | {type(error).__name__}: {str(error)[:200]} | | | | NO |", False
    scale = max(float(t.abs().max()) for name, t in exact.items() if name != "y")
    worst, line = 0.0, ""
    for name, truth in exact.items():
        top = float(truth.abs().max())
        ours_off, plain_off = (float((t[name] - truth).abs().max()) for t in (ours, plain))
        ulp = max(DIGITS[case.precision] * top, 0.0 if name == "y" else DIGITS["float32"] * scale)
        used = ours_off / (2 * plain_off + 4 * ulp)
        used = float("inf") if used != used else used
        if used >= worst:
            worst, line = used, f"{name} | {ours_off / top:.1e} | {plain_off / top:.1e} | {used:.2f}"
    return f"| {case} | {line} | {'yes' if worst <= 1 else 'NO'} |", worst <= 1


def all_errors(cases: list[Case], workers: int) -> bool:
    print("\n| width, rows | worst of all results | error, fused | error, plain | share of the limit | kept |")
    print("| :-- | :-- | --: | --: | --: | :-- |")
    kept = True
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for line, good in pool.map(errors, cases):
            print(line, flush=True)
            kept &= good
    return kept


# --- times ---


def make(B: int, L: int, width: int, heads: int, causal: bool, backend: str) -> tuple[LFormer, IrregularBatch]:
    torch.manual_seed(0)
    norm: Any = "prefix" if causal else "sequence"
    config = LFormerConfig(
        inputs=12, outputs=1, width=width, heads=heads, causal=causal, gate_norm=norm, backend=backend
    )
    model = LFormer(config).cuda()
    times = torch.rand(B, L, dtype=torch.float64).cumsum(1)
    batch = IrregularBatch.build(torch.randn(B, L, 12), times, targets=torch.randn(B, 1)).to("cuda")
    return model, batch


class Times(NamedTuple):
    path: str
    eager: float
    graph: float
    memory: float


def step_times(B: int, L: int, width: int, heads: int, causal: bool, backend: str, force_layers: bool = False) -> Times:
    before = fusion._explain_kernels
    if force_layers:
        fusion._explain_kernels = lambda *_: fusion.Obstacle("measured")
    try:
        model, batch = make(B, L, width, heads, causal, backend)
        weights, path = list(model.parameters()), model.explain(batch).name

        def eager() -> None:
            with checks.skip_value_checks():
                torch.autograd.grad(objective(model, batch), weights)

        eager()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        alone = milliseconds(eager)
        memory = torch.cuda.max_memory_allocated() / 2**30
        step = capture_step(model, objective)
        for _ in range(2):
            step(batch)
        replayed = milliseconds(lambda: step(batch)) if step.captured(batch) else float("nan")
        return Times(path, alone, replayed, memory)
    finally:
        fusion._explain_kernels = before
        torch.cuda.empty_cache()


def all_times(quick: bool) -> list[str]:
    torch.set_float32_matmul_precision("high")
    lines = []
    for B, L in ((8, 16_384), (32, 128))[: 1 if quick else 2]:
        for D, H in QUICK_SHAPES if quick else SHAPES:
            for causal in (False, True):
                ours, plain = (step_times(B, L, D, H, causal, backend) for backend in ("auto", "parallel"))
                lines.append(_line(B, L, D, H, causal, ours, plain))
                print(lines[-1], flush=True)
        for heads, causal in () if quick else ((4, False), (4, True), (8, False), (2, True)):
            plain = step_times(B, L, 64, heads, causal, "parallel")
            ways = [step_times(B, L, 64, heads, causal, "auto", force_layers=True)]
            if heads == 4:
                ways.append(step_times(B, L, 64, heads, causal, "auto"))
            for ours in ways:
                lines.append(_line(B, L, 64, heads, causal, ours, plain))
                print(lines[-1], flush=True)
    return lines


def _line(B: int, L: int, D: int, H: int, causal: bool, ours: Times, plain: Times) -> str:
    shape = f"{B} x {L:,}, width {D}, heads of {D // H}{', causal' if causal else ''}"
    eager, graph = plain.eager / ours.eager, plain.graph / ours.graph
    return (
        f"| {shape} | {ours.path} | {ours.eager:.2f} | {plain.eager:.2f} | {eager:.1f} | {ours.graph:.3f} "
        f"| {plain.graph:.3f} | {graph:.1f} | {ours.memory:.2f} | {plain.memory:.2f} |"
    )


def profiled(causal: bool) -> None:
    """The kernels of one training step at 8 x 16,384 rows of width 128."""
    from torch.profiler import ProfilerActivity, profile

    torch.set_float32_matmul_precision("high")
    model, batch = make(8, 16_384, 128, 4, causal, "auto")
    with checks.skip_value_checks():
        for _ in range(3):
            objective(model, batch).backward()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            objective(model, batch).backward()
            torch.cuda.synchronize()
    found = sorted(seen.key_averages(), key=lambda e: -e.self_device_time_total)
    total = sum(e.self_device_time_total for e in found)
    print(f"\n8 x 16,384, width 128, heads of 32, causal={causal}: {total / 1000:.2f} ms in kernels")
    print("| kernel | calls | microseconds | share |\n| :-- | --: | --: | --: |")
    for e in found[:28]:
        print(f"| {e.key[:90]} | {e.count} | {e.self_device_time_total:.0f} | {e.self_device_time_total / total:.1%} |")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts of it")
    asked.add_argument("--quick", action="store_true", help="fewer cases")
    asked.add_argument("--workers", type=int, default=WORKERS, help="processes that find errors")
    options = asked.parse_args()
    only = options.only
    print(torch.cuda.get_device_name(), torch.__version__, flush=True)
    kept = all_errors(QUICK if options.quick else CASES, options.workers) if "errors" in only else True
    if "profile" in only:
        for causal in (False, True):
            profiled(causal)
    lines = all_times(options.quick) if "times" in only else []
    if "errors" in only:
        print("\nall errors within the rule" if kept else "\nSOME ERRORS ARE TOO LARGE")
    if lines:
        print("\n| training step, TF32 | path | eager, ms | plain | times | graph, ms | plain | times | GiB | plain |")
        print("| :-- | :-- | --: | --: | --: | --: | --: | --: | --: | --: |")
        print("\n".join(lines))


if __name__ == "__main__":
    main()
