"""Launch settings of the fused kernels on a GPU: other entries of their tables, tried one by one and then together.

python scripts/gpu/tune.py OUT [--stage compile | time | profile] [--only inference training ...]
    [--seconds 100] [--workers 14]

A variant is an entry of `LAUNCHES` (`lformer/ops/fused/launch.py`) in the place of the one that is there. All are
compiled first, in processes that run the work once, so that the GPU is then timed alone. Prints a table of times by
graph replay, and the time with the fastest entry of every kernel; less than one per cent is noise. `--stage` does one
half alone; what was compiled is named in OUT/compiled.json, the table is OUT/tune.txt. `--seconds` are those of a
stage, after which nothing new begins. `--stage profile` tells how long each kernel runs as it is, and tries nothing.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch
from layers import make
from scan import milliseconds, objective

from lformer.cuda_graphs import capture, capture_step
from lformer.ops import checks


class Work(NamedTuple):
    """What is timed."""

    batch: int
    rows: int
    width: int = 64
    heads: int = 4
    causal: bool = False
    trains: bool = True
    bf16: bool = False


WORKS = {
    "inference": Work(16, 4096, trains=False),
    "inference, bf16": Work(16, 4096, trains=False, bf16=True),
    "training": Work(8, 131_072),
    "training, causal": Work(8, 131_072, causal=True),
    "layers": Work(8, 16_384, 128),
    "layers, causal": Work(8, 16_384, 128, causal=True),
    "wide layers": Work(8, 16_384, 256, 8),
}
WHOLE = ("inference", "inference, bf16", "training", "training, causal")
Variant = tuple[tuple[Any, ...], dict[str, int]]  # an entry, and what is other there


def variants(name: str) -> list[Variant]:
    """What is tried, entry by entry in the order of their worth."""
    work, found = WORKS[name], list[Variant]()
    precision = "bf16" if work.bf16 else "tf32"

    def add(kernel: str, *choices: tuple[int, int, int], key: Any = None, **more: int) -> None:
        """Rows, warps and stages."""
        entry = key or (kernel, work.width, precision)
        found.extend((entry, {"rows": r, "warps": w, "stages": s, **more}) for r, w, s in choices)

    if name.startswith("inference"):
        add("read", (64, 4, 1), (128, 8, 1), (128, 4, 1), (64, 8, 1), (256, 8, 1))
        add("accumulate", (64, 4, 1), (128, 4, 1), (128, 8, 1), (64, 8, 1), (64, 4, 2), (256, 8, 1))
    elif name == "training":
        add("channel_weights", (64, 4, 1), (64, 4, 2), (128, 8, 1), (64, 8, 1), (128, 4, 1))
        add("channel_rows", (64, 4, 1), (64, 4, 2), (128, 8, 1), (64, 8, 1))
        add("read_backward", (128, 8, 1), (128, 8, 2), (64, 4, 1), (64, 8, 1))
        add("write_backward", (128, 8, 1), (128, 8, 2), (64, 4, 1), (64, 8, 1))
        add("gate_backward", (64, 4, 1), (64, 4, 2), (128, 8, 1), (32, 4, 1), (128, 4, 1))
    elif name == "training, causal":
        for kernel in ("causal_read", "causal_write", "segment"):
            add(kernel, (64, 4, 1), (64, 4, 2), (64, 8, 1))
        add("causal_project", (64, 4, 1), (64, 4, 2), (128, 8, 1), (128, 4, 1))
    else:
        head = work.width // work.heads
        for kernel in ("operator", "operator gradients"):
            key = (kernel, head, precision)
            add(kernel, (64, 4, 1), (64, 4, 2), (64, 4, 3), (64, 8, 1), (64, 8, 2), (64, 2, 2), key=key, block=head)
            if kernel == "operator":  # both cut a series alike
                add(kernel, (128, 4, 1), (128, 8, 1), (128, 8, 2), (32, 2, 2), (32, 4, 2), key=key, block=head)
    return found


@contextmanager
def replaced(variant: Variant | None) -> Iterator[None]:
    """Inside, one entry of a table is another one."""
    from lformer.ops.fused import launch  # imports triton

    if variant is None:
        yield
        return
    key, change = variant
    table: dict[Any, Any] = launch.LAUNCHES
    before = table.get(key)
    table[key] = (before or launch.DEFAULT)._replace(**change)
    try:
        yield
    finally:
        if before is None:
            del table[key]
        else:
            table[key] = before


def prepared(work: Work) -> tuple[Any, Any]:
    torch.set_float32_matmul_precision("high")
    model, batch = make(work.batch, work.rows, work.width, work.heads, work.causal, "auto")
    return (model if work.trains else model.eval()), batch


def rounding(work: Work) -> Any:
    return torch.autocast("cuda", torch.bfloat16, enabled=work.bf16)


def run_once(model: Any, batch: Any, work: Work) -> None:
    with checks.skip_value_checks(), rounding(work):
        if work.trains:
            torch.autograd.grad(objective(model, batch), list(model.parameters()))
        else:
            with torch.no_grad():
                model(batch)
    torch.cuda.synchronize()


def compiled(name: str, variant: Variant | None) -> str:
    """Run the work once, which leaves its kernels on the disk; why it cannot run, or nothing."""
    work = WORKS[name]
    try:
        with replaced(variant):
            run_once(*prepared(work), work)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:80]}"
    return ""


def replayed(model: Any, batch: Any, work: Work, times: int = 15) -> float:
    """Milliseconds of the work as a CUDA graph."""
    if not work.trains:
        with rounding(work):
            fast = capture(model)
            fast(batch)
            held = fast.inputs(batch)
            return milliseconds(lambda: fast(held, copy=False), 4 * times)
    step = capture_step(model, objective)
    for _ in range(2):
        step(batch)
    return milliseconds(lambda: step(batch), times)


def search(name: str, known: dict[Any, str], until: float, say: Callable[[str], None]) -> None:
    """The best entry of every kernel; `known` are variants that were compiled, and why some do not run."""
    work = WORKS[name]
    model, batch = prepared(work)
    before = replayed(model, batch, work)
    say(f"\n{name}: {before:.4f} ms, again {replayed(model, batch, work):.4f}\n| entry | setting | ms | gain |")
    say("| :-- | :-- | --: | --: |")
    best: dict[Any, tuple[float, Variant]] = {}
    for variant in variants(name):
        key, change = variant
        setting = ", ".join(f"{field} {value}" for field, value in change.items())
        reason = known.get((name, str(variant)), "not compiled in time")
        if not reason and time.monotonic() < until:
            try:
                with replaced(variant):
                    spent = replayed(model, batch, work)
                best[key] = min(best.get(key, (before, variant)), (spent, variant), key=lambda found: found[0])
                say(f"| {key} | {setting} | {spent:.4f} | {before - spent:.4f} |")
                continue
            except Exception as error:
                reason = f"{type(error).__name__}: {str(error)[:80]}"
        say(f"| {key} | {setting} | {reason or 'no time'} | |")
        torch.cuda.empty_cache()
    won = [variant for spent, variant in best.values() if spent < 0.99 * before]
    with ExitStack() as stack:
        for variant in won:
            stack.enter_context(replaced(variant))
        together = replayed(model, batch, work) if won else before
    say(f"{name}: {before:.4f} ms as it is, {together:.4f} with " + ("; ".join(map(str, won)) or "nothing else"))
    del model, batch
    torch.cuda.empty_cache()


def profile(name: str, times: int = 5) -> None:
    """Microseconds that each kernel takes in one round of the work."""
    work = WORKS[name]
    model, batch = prepared(work)
    for _ in range(3):
        run_once(model, batch, work)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        for _ in range(times):
            run_once(model, batch, work)
    rows = sorted(
        (event for event in seen.key_averages() if event.device_time_total), key=lambda e: -e.device_time_total
    )
    whole = sum(event.device_time_total for event in rows) / times
    print(
        f"\n{name}: {1e-3 * whole:.3f} ms in kernels\n| kernel | calls | microseconds | share |",
        "\n| :-- | --: | --: | --: |",
        sep="",
    )
    for event in rows[:24]:
        spent = event.device_time_total / times
        print(f"| {event.key[:70]} | {event.count / times:.0f} | {spent:.1f} | {spent / whole:.1%} |", flush=True)


def compile_all(names: list[str], workers: int, until: float, say: Callable[[str], None]) -> dict[Any, str]:
    began, known, asked = time.monotonic(), dict[Any, str](), {}
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    for name in names:
        asked[pool.submit(compiled, name, None)] = (name, "None")
    longest = max(len(variants(name)) for name in names)
    for n in range(longest):  # a little of everything, should the time be over
        for name in names:
            for variant in variants(name)[n : n + 1]:
                asked[pool.submit(compiled, name, variant)] = (name, str(variant))
    try:
        for done in as_completed(asked, timeout=max(1.0, until - began)):
            known[asked[done]] = done.result()
    except TimeoutError:
        say("compiling was cut short")
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
    say(f"{len(known)} of {len(asked)} compiled in {time.monotonic() - began:.0f} s")
    return known


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("out", type=Path, help="a folder")
    asked.add_argument(
        "--stage", choices=("compile", "time", "profile"), help="one of them; the first two if not given"
    )
    asked.add_argument("--only", nargs="+", choices=list(WORKS), default=list(WORKS))
    asked.add_argument("--seconds", type=float, default=100.0)
    asked.add_argument("--workers", type=int, default=14)
    options = asked.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.stage == "profile":
        for name in options.only:
            profile(name)
        return
    began, notes = time.monotonic(), options.out / "compiled.json"
    if options.stage != "time":
        known = compile_all(options.only, options.workers, began + options.seconds, print)
        notes.write_text(json.dumps([[*key, reason] for key, reason in known.items()]))
    if options.stage == "compile":
        return
    found = {(name, variant): reason for name, variant, reason in json.loads(notes.read_text())}
    with (options.out / "tune.txt").open("w") as target:

        def say(line: str) -> None:
            print(line, flush=True)
            print(line, file=target, flush=True)

        say(f"{torch.cuda.get_device_name()} {torch.__version__}")
        end = time.monotonic() + options.seconds
        for n, name in enumerate(options.only):
            now = time.monotonic()
            search(name, found, now + (end - now) / (len(options.only) - n), say)


if __name__ == "__main__":
    main()
