"""The scans on a GPU: errors against float64, the time of their kernels, and of training steps of the models on them.

python scripts/gpu/scan.py [--rows 32768] [--batch 8] [--sweep] [--profile]
Prints tables. A training step is forward pass, loss and backward pass in TF32; "graph" replays it as a CUDA graph.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from lformer import IrregularBatch
from lformer.baselines import BASELINES
from lformer.cuda_graphs import capture_step
from lformer.ops import checks
from lformer.ops.fused import scan as fused_scan
from lformer.ops.scan import linear_scan, selective_scan

SELECTIVE = {"u": 0, "delta": 1, "A": 2, "B": 3, "C": 4, "D": 5}
LINEAR = {"a": 0, "b": 1, "state": 2}


def selective_operands(B: int, L: int, E: int, N: int) -> list[Tensor]:
    """As a trained Mamba has them: steps between 1e-3 and 1, rates from 1 to N."""
    g = torch.Generator("cuda").manual_seed(0)
    u, b, c = (torch.randn(B, L, n, generator=g, device="cuda") for n in (E, N, N))
    delta = torch.exp(2 * torch.randn(B, L, E, generator=g, device="cuda") - 4)
    rates = -torch.arange(1.0, N + 1, device="cuda").repeat(E, 1)
    return [x.requires_grad_() for x in (u, delta, rates, b, c, torch.ones(E, device="cuda"))]


def linear_operands(B: int, L: int, P: int) -> list[Tensor]:
    """As S5 has them: another complex factor for every row."""
    g = torch.Generator("cuda").manual_seed(0)
    size = torch.exp(-torch.exp(2 * torch.randn(B, L, P, generator=g, device="cuda") - 4))
    a = torch.polar(size, torch.randn(B, L, P, generator=g, device="cuda"))
    b, state = (torch.randn(*shape, 2, generator=g, device="cuda") for shape in ((B, L, P), (B, P)))
    return [x.requires_grad_() for x in (a, torch.view_as_complex(b), torch.view_as_complex(state))]


# --- errors ---


def with_gradients(run: Callable[..., Tensor], operands: list[Tensor], backend: str) -> list[Tensor]:
    y = run(*operands, backend=backend)
    weights = torch.linspace(-1, 1, y.numel(), dtype=torch.float64, device="cuda").view(y.shape)
    real = torch.view_as_real(y).sum(-1) if y.is_complex() else y
    return [y.detach(), *torch.autograd.grad((weights.to(real.dtype) * real).sum(), operands)]


def errors(title: str, run: Callable[..., Tensor], operands: list[Tensor], names: dict[str, int]) -> bool:
    """Print the largest errors of both paths; True if the kernels keep the rule: twice plain PyTorch's plus 4 ulp."""
    wide = [x.detach().to(torch.complex128 if x.is_complex() else torch.float64).requires_grad_() for x in operands]
    found = {name: with_gradients(run, operands, name) for name in ("fused", "parallel")}
    exact = with_gradients(run, wide, "parallel")
    kept = True
    scale = max(float(x.abs().max()) for x in exact[1:])
    for n, name in enumerate(["y", *("d" + name for name in names)]):
        fused, plain = (float((found[path][n] - exact[n]).abs().max()) for path in ("fused", "parallel"))
        top = float(exact[n].abs().max())
        limit = 2 * plain + 4 * torch.finfo(torch.float32).eps * (top if n == 0 else max(top, scale))
        good = fused <= limit
        kept &= good
        print(f"| {title} | {name} | {top:.3g} | {fused:.2e} | {plain:.2e} | {'yes' if good else 'NO'} |")
    return kept


# --- times ---


def milliseconds(run: Callable[[], Any], times: int = 20) -> float:
    """Median of single runs, by CUDA events."""
    for _ in range(3):
        run()
    spans = []
    for _ in range(times):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        spans.append(begin.elapsed_time(end))
    return statistics.median(spans)


def scan_times(
    run: Callable[..., Tensor], operands: list[Tensor], backend: str, times: int = 20
) -> tuple[float, float]:
    """Of the forward pass, and of forward and backward pass."""
    weights = torch.ones_like(run(*operands, backend=backend))

    def step() -> None:
        torch.autograd.grad(run(*operands, backend=backend), operands, weights)

    with checks.skip_value_checks():
        with torch.no_grad():
            forward = milliseconds(lambda: run(*operands, backend=backend), times)
        return forward, milliseconds(step, times)


def objective(model: nn.Module, batch: IrregularBatch) -> Tensor:
    return (model(batch) - batch.targets).square().mean()


def model_times(name: str, B: int, L: int, **choices: Any) -> str:
    entry = BASELINES[name]
    torch.manual_seed(0)
    model = entry.model(entry.config(inputs=12, outputs=1, width=64, depth=2, **choices)).cuda()
    times = torch.rand(B, L, dtype=torch.float64).cumsum(1)
    batch = IrregularBatch.build(torch.randn(B, L, 12), times, targets=torch.randn(B, 1)).to("cuda")
    weights = list(model.parameters())

    def eager() -> None:
        with checks.skip_value_checks():
            torch.autograd.grad(objective(model, batch), weights)

    eager()
    torch.cuda.reset_peak_memory_stats()
    alone = milliseconds(eager)
    memory = torch.cuda.max_memory_allocated() / 2**30
    step = capture_step(model, objective)
    for _ in range(2):
        step(batch)
    replayed = milliseconds(lambda: step(batch)) if step.captured(batch) else float("nan")
    size = sum(p.numel() for p in weights)
    return f"| {name} {choices or ''} | {size:,} | {alone:.2f} | {replayed:.2f} | {memory:.2f} |"


def memory(backend: str, B: int = 32, L: int = 17_984, E: int = 64, N: int = 64) -> str:
    """Of one selective scan with its gradients, as S6 on the longest data set has it; all states would be 9.4 GB."""
    operands = selective_operands(B, L, E, N)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    rows = torch.cuda.memory_allocated() / 2**30
    with checks.skip_value_checks():
        torch.autograd.grad(selective_scan(*operands, backend=backend).sum(), operands)
    return f"| {backend} | {rows:.2f} | {torch.cuda.max_memory_allocated() / 2**30:.2f} |"


def profiled(B: int, L: int) -> None:
    from torch.profiler import ProfilerActivity, profile

    entry = BASELINES["mamba"]
    model = entry.model(entry.config(inputs=12, outputs=1, width=64, depth=2)).cuda()
    batch = IrregularBatch.build(
        torch.randn(B, L, 12), torch.rand(B, L).double().cumsum(1), targets=torch.randn(B, 1)
    ).to("cuda")
    with checks.skip_value_checks():
        for _ in range(3):
            objective(model, batch).backward()
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            objective(model, batch).backward()
            torch.cuda.synchronize()
    print(seen.key_averages().table(sort_by="cuda_time_total", row_limit=25, max_name_column_width=60))


def sweep(B: int, L: int) -> None:
    """How the selective scan is cut, forward and forward + backward."""
    operands = selective_operands(B, L, 128, 16)
    print("\n| chunk | channels | states a warp | programs | forward, ms | forward + backward, ms |")
    print("| --: | --: | --: | --: | --: | --: |")
    kept = {name: getattr(fused_scan, name) for name in ("CHUNK", "CHANNELS", "STATES", "PROGRAMS")}
    choices = itertools.product((16, 32, 64), (16, 32), (256, 512), (1056, 2112, 4224))
    for chunk, channels, states, programs in choices:
        if channels == 16 and states == 256 and chunk != 32:
            continue
        for name, value in zip(kept, (chunk, channels, states, programs), strict=True):
            setattr(fused_scan, name, value)
        forward, both = scan_times(selective_scan, operands, "fused", times=7)
        print(f"| {chunk} | {channels} | {states} | {programs} | {forward:.3f} | {both:.3f} |", flush=True)
    for name, value in kept.items():
        setattr(fused_scan, name, value)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--rows", type=int, default=32_768)
    asked.add_argument("--batch", type=int, default=8)
    asked.add_argument("--sweep", action="store_true", help="also try other launch settings of the selective scan")
    asked.add_argument("--profile", action="store_true", help="also list the kernels of a training step of Mamba")
    options = asked.parse_args()
    B, L = options.batch, options.rows
    print(torch.cuda.get_device_name(), torch.__version__)

    print("\n| scan | of | largest | error, fused | error, plain | within the rule |")
    print("| :-- | :-- | --: | --: | --: | :-- |")
    kept = True
    for b, n, e, s in ((2, 1, 5, 3), (2, 1000, 33, 16), (4, 4096, 128, 16), (2, 3001, 64, 64), (2, 1751, 64, 256)):
        kept &= errors(f"selective {b}, {n}, {e}, {s}", selective_scan, selective_operands(b, n, e, s), SELECTIVE)
    for b, n, p in ((2, 1, 3), (2, 1000, 33), (4, 4096, 64)):
        kept &= errors(f"linear {b}, {n}, {p}", linear_scan, linear_operands(b, n, p), LINEAR)
    print("all errors within the rule" if kept else "SOME ERRORS ARE TOO LARGE", flush=True)
    torch.set_float32_matmul_precision("high")  # only now: errors are compared with those of exact products

    print("\n| scan | path | forward, ms | forward + backward, ms |\n| :-- | :-- | --: | --: |")
    operands = selective_operands(B, L, 128, 16)
    states = linear_operands(B, L, 64)
    for path in ("fused", "parallel"):
        times = 20 if path == "fused" else 3
        for title, run, given in (
            ("selective, E=128, N=16", selective_scan, operands),
            ("linear, P=64", linear_scan, states),
        ):
            forward, both = scan_times(run, given, path, times)
            print(f"| {title} | {path} | {forward:.3f} | {both:.3f} |", flush=True)
    del operands, states

    print(f"\n| training step, B={B}, L={L:,} | parameters | eager, ms | graph, ms | peak memory, GiB |")
    print("| :-- | --: | --: | --: | --: |")
    for name, choices in (("mamba", {}), ("mamba", {"block": "gated"}), ("s6", {}), ("lru", {}), ("s5", {})):
        print(model_times(name, B, L, **choices), flush=True)
        torch.cuda.empty_cache()
    print("\n| selective scan, B=32, L=17,984, E=64, N=64 | operands, GiB | peak with gradients, GiB |")
    print("| :-- | --: | --: |")
    for path in ("fused", "parallel"):
        print(memory(path), flush=True)
        torch.cuda.empty_cache()
    if options.profile:
        profiled(B, L)
    if options.sweep:
        sweep(B, L)


if __name__ == "__main__":
    main()
