"""How float32 products on a GPU are rounded: the one setting of PyTorch that decides whether kernels may use TF32."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import torch


def tf32_allowed() -> bool:
    """True if float32 products on CUDA may round their operands to TF32."""
    return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")


# A compiler guards this setting itself, but cannot trace the question. `torch.compiler.assume_constant_result` does
# the same, and imports the whole compiler for it.
tf32_allowed._dynamo_marked_constant = True  # type: ignore[attr-defined]


_door = Lock()
_found: list[str] = []  # by those who are inside `tf32` now, in whatever thread


@contextmanager
def tf32() -> Iterator[None]:
    """Inside, float32 products may run in TF32 on a GPU that has it.

    The setting belongs to the process, so of several threads the last to leave puts back what the first found.
    """
    with _door:
        _found.append(torch.get_float32_matmul_precision())
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        with _door:
            torch.set_float32_matmul_precision(_found[0] if len(_found) == 1 else "high")
            _found.pop()
