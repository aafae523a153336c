"""Start a Triton kernel. The second time, without the questions that Triton asks on every call.

For every argument of every call Triton finds out what the code may rely on: the type, whether a pointer is a multiple
of 16 bytes, whether a number is 1 or a multiple of 16. With thirty arguments this takes longer than a small kernel. The
kernels here take tensors first, then numbers, then constants, so the same can be asked of all tensors at once, and the
answer finds the compiled kernel of an earlier call. Anything unusual goes the ordinary way.

Triton's settings for debugging count when a kernel is first started; hooks on launches always do.
"""

from __future__ import annotations

from functools import reduce
from operator import attrgetter, or_
from typing import Any

import torch
from torch import Tensor
from triton import JITFunction
from triton.compiler import CompiledKernel

ALIGNMENT = 16  # bytes, and the number that Triton asks about
WIDE = 2**31  # from here on an int takes 64 bits

_dtype = attrgetter("dtype")
_known: dict[tuple[Any, ...], tuple[Any, tuple[Any, ...]]] = {}  # the compiled kernel and its constants in order


def start(
    kernel: Any, grid: tuple[int, ...], tensors: tuple[Tensor, ...], numbers: tuple[int | float, ...], **constants: Any
) -> None:
    """`kernel[grid](*tensors, *numbers, **constants)` on the device of the first tensor.

    Args:
        kernel: a Triton function whose parameters are tensors, then numbers, then constants.
        grid: one to three sizes.
        tensors, numbers: in the order of the parameters.
        constants: every `tl.constexpr` parameter, and num_warps, num_stages.
    """
    if not isinstance(kernel, JITFunction):  # the interpreter knows no devices
        kernel[grid](*tensors, *numbers, **constants)
        return
    device = tensors[0].get_device()
    if device == current_device():
        _start(kernel, grid, tensors, numbers, constants)
    else:
        with torch.cuda.device(device):
            _start(kernel, grid, tensors, numbers, constants)


def current_device() -> int:
    return torch.cuda.current_device()


def _start(
    kernel: Any, grid: tuple[int, ...], tensors: tuple[Tensor, ...], numbers: tuple[int | float, ...], constants: Any
) -> None:
    pointers = tuple(map(Tensor.data_ptr, tensors))
    key = call_key(kernel, tensors, numbers, constants)
    known = _known.get(key)
    usual = reduce(or_, pointers) % ALIGNMENT == 0 and not kernel.pre_run_hooks
    if usual and known is not None:
        compiled, values = known
        # Addresses in the place of tensors: that these are on a GPU was seen when the kernel was first started.
        compiled[(*grid, 1, 1)[:3]](*pointers, *numbers, *values)
        return
    compiled = kernel[grid](*tensors, *numbers, **constants)
    if usual and isinstance(compiled, CompiledKernel):
        names = kernel.arg_names[len(tensors) + len(numbers) :]
        _known[key] = compiled, tuple(constants[name] for name in names)


def call_key(
    kernel: Any, tensors: tuple[Tensor, ...], numbers: tuple[int | float, ...], constants: dict[str, Any]
) -> tuple[Any, ...]:
    """All that Triton makes a kernel of its own for, but the alignment of tensors.

    The kernel is named by its id, as its own hash is slow; it lives as long as what is compiled from it.
    """
    return (
        id(kernel),
        tuple(map(_dtype, tensors)),
        tuple(map(Tensor.get_device, tensors)),
        tuple(map(number_kind, numbers)),
        *constants,
        *constants.values(),
    )


def number_kind(number: int | float) -> Any:
    """What Triton compiles an int for: 1 itself, or whether it is a multiple of 16 and fits 32 bits; a float is any."""
    if type(number) is float:
        return float
    if type(number) is not int:
        return type(number), number
    if number == 1:
        return 1
    return number % ALIGNMENT == 0, -WIDE <= number < WIDE
