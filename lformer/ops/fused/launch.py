"""How the kernels are launched: one table of settings, and a start without the questions that Triton asks every time.

For every argument of every call Triton finds out what the code may rely on: the type, whether a pointer is a multiple
of 16 bytes, whether a number is 1 or a multiple of 16. With thirty arguments this takes longer than a small kernel. The
kernels here take tensors first, then numbers, then constants, so the same can be asked of all tensors at once, and the
answer finds the compiled kernel of an earlier call. Anything unusual goes the ordinary way.

Triton's settings for debugging count when a kernel is first started; hooks on launches always do.
"""

from __future__ import annotations

import sys
from functools import reduce
from operator import attrgetter, or_
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from triton import JITFunction
from triton.compiler import CompiledKernel

from lformer.ops.fused.plan import CHUNK, Plan

ALIGNMENT = 16  # bytes, and the number that Triton asks about
WIDE = 2**31  # from here on an int takes 64 bits

NOTICED = 2.0  # seconds of compiling after which a line tells what is going on
NOTICE = "lformer: compiling kernels for this GPU, once per machine and shape; `lformer warm` does it ahead.\n"

_dtype = attrgetter("dtype")
_compiling = 0.0  # seconds that first calls of kernels took so far
_known: dict[tuple[Any, ...], tuple[Any, tuple[Any, ...]]] = {}  # the compiled kernel and its constants in order


# --- settings ---


class Launch(NamedTuple):
    """How one kernel runs."""

    rows: int = CHUNK  # of a tile; a causal kernel of the mixer takes one chunk
    warps: int = 4
    stages: int = 1  # tiles on their way from memory at a time
    block: int = 64  # columns at a time, a power of two: of a memory in the operator, of the hidden layer in `read`
    narrowest: int = 64  # down to which the last columns of the hidden layer are taken apart; the rest is zeros
    keep: int = 2  # which weights of `read` stay in shared memory for all tiles: 2 all, 1 the time mixer's, 0 none

    @property
    def options(self) -> dict[str, int]:
        return {"T": self.rows, "num_warps": self.warps, "num_stages": self.stages}


ROUNDED, ALL = ("tf32", "bf16"), ("tf32", "bf16", "tf32x3", "ieee")

# By kernel, width and precision; what is missing takes the default. A tuning script may write here.
LAUNCHES: dict[tuple[str, int, str], Launch] = {
    # forwards
    ("read", 32, "tf32"): Launch(block=32, narrowest=32),
    ("read", 32, "bf16"): Launch(block=32, narrowest=32),
    ("read", 64, "tf32"): Launch(rows=128, warps=8, narrowest=16),
    # backwards
    **{("read_backward", width, p): Launch(rows=128, warps=8) for width in (32, 64) for p in ROUNDED},
    **{("write_backward", width, p): Launch(rows=128, warps=8) for width in (32, 64) for p in ROUNDED},
    # The operator, by the larger of K and V, rounded up to a power of two. A warp has 16 rows of a chunk: with more
    # than 4 of them some would do the work of others again.
    **{("operator", 16, p): Launch(block=16, stages=2) for p in ALL},
    **{("operator", 32, p): Launch(block=32, stages=2) for p in ALL},
    **{("operator", 64, p): Launch(block=32) for p in ALL},
    **{("operator", 128, p): Launch(block=32) for p in ALL},
    # What its gradients hold at once does not fit the registers of 4 warps.
    **{("operator gradients", width, p): Launch(block=32, warps=8) for width in (64, 128) for p in ALL},
}
DEFAULT = Launch()


def launch(kernel: str, plan: Plan) -> Launch:
    """The settings of a kernel of the mixer."""
    return LAUNCHES.get((kernel, plan.D, plan.precision), DEFAULT)


def early(plan: Plan, x: Tensor) -> dict[str, bool]:
    """Options of a kernel whose rows come from the kernel launched right before it, and none of whose weights does.

    Where TF32 is not causal, one program of `read` fills a multiprocessor, and who begins early only waits in the way.
    """
    begin = x.is_cuda and (plan.causal or plan.precision != "tf32")
    return {"EARLY": True, "launch_pdl": True} if begin else {"EARLY": False}


def grid(plan: Plan) -> tuple[int]:
    """One program for every segment."""
    return (plan.B * plan.segments,)


def row_counts(plan: Plan) -> tuple[int, int, int]:
    """Rows of a series, its segments, rows of a segment: what every forward kernel asks for."""
    return plan.L, plan.segments, plan.rows


def per_segment(x: Tensor, plan: Plan, *shape: int) -> Tensor:
    return x.new_empty(plan.B, plan.segments, *shape, dtype=torch.float32)


def row_stride(x: Tensor) -> int:
    """Between rows of x (B, L, ·) whose series follow each other; the stride of an axis of one entry means nothing."""
    return x.stride(1) if x.shape[1] > 1 else x.stride(0)


def power_of_two(n: int) -> int:
    """The smallest one that is not below n."""
    return 1 << (n - 1).bit_length()


def room_for(n: int) -> int:
    """A power of two that holds n numbers, the same for most n: for every other one kernels are compiled again."""
    return max(512, power_of_two(n))


# --- start ---


def start_kernel(
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
    began = perf_counter()
    compiled = kernel[grid](*tensors, *numbers, **constants)
    if known is None:
        count_compiling(perf_counter() - began)
    if usual and isinstance(compiled, CompiledKernel):
        names = kernel.arg_names[len(tensors) + len(numbers) :]
        _known[key] = compiled, tuple(constants[name] for name in names)


def count_compiling(seconds: float) -> None:
    """Say once per process that kernels are being compiled, if it takes long; those on the disk are loaded at once."""
    global _compiling
    before, _compiling = _compiling, _compiling + seconds
    if before < NOTICED <= _compiling:
        sys.stderr.write(NOTICE)


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
