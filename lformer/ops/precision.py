"""How float32 products on a GPU are rounded: the one setting of PyTorch that decides whether kernels may use TF32."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def tf32_allowed() -> bool:
    """True if float32 products on CUDA may round their operands to TF32."""
    return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")


# A compiler guards this setting itself, but cannot trace the question. `torch.compiler.assume_constant_result` does
# the same, and imports the whole compiler for it.
tf32_allowed._dynamo_marked_constant = True  # type: ignore[attr-defined]


@contextmanager
def tf32() -> Iterator[None]:
    """Inside, float32 products may run in TF32 on a GPU that has it."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
