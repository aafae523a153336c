"""What was measured on, and how fast its memory and its matrix products are."""

from __future__ import annotations

import platform
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from lformer import __version__
from lformer.allocator import keep_freed_pages
from lformer.bench.speed.timing import Budget, measure

Precision = Literal["tf32", "bf16"]
DTYPES: dict[Precision, torch.dtype] = {"tf32": torch.float32, "bf16": torch.bfloat16}


class Rates(NamedTuple):
    """What the device reaches on the simplest work there is."""

    copy: float  # bytes read and written per second by one large copy
    tf32: float  # FLOP per second of one large float32 product, in TF32 where the device has it
    bf16: float


def rates(device: str, size: int, copied: int, budget: Budget) -> Rates:
    """Measured: a copy of `copied` bytes, and products of two (size, size) matrices."""
    source = torch.empty(copied, dtype=torch.uint8, device=device).fill_(1)
    target = torch.empty_like(source)
    moved = 2 * copied / measure(lambda: target.copy_(source), device, budget).seconds
    flops = {}
    for name, dtype in DTYPES.items():
        a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
        out = torch.empty_like(a)
        flops[name] = 2 * size**3 / measure(partial(torch.mm, a, b, out=out), device, budget).seconds
    return Rates(copy=moved, tf32=flops["tf32"], bf16=flops["bf16"])


def described(device: str) -> dict[str, Any]:
    """Device, versions."""
    found: dict[str, Any] = {"cpu": processor()}
    if device == "cuda":
        found |= {"device": torch.cuda.get_device_name(), "cuda": torch.version.cuda, "triton": _version("triton")}
    return found | {
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "lformer": __version__,
    }


def prepared(device: str) -> dict[str, Any]:
    """As `described`, after freed pages of a CPU were told to stay in the process."""
    kept = device == "cpu" and keep_freed_pages()
    return described(device) | {"allocator": "freed pages kept" if kept else "system default"}


def processor() -> str:
    """Model name of the CPU where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
