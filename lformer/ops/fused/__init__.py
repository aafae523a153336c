"""Liquid gated attention as Triton kernels: what they can take. Importing this page alone does not import triton."""

from importlib.util import find_spec

import torch
from torch import Tensor

from lformer.ops import checks
from lformer.ops.fused.plan import interpreted
from lformer.ops.precision import tf32_allowed

WIDEST = 128  # the largest K and V
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_has_triton = find_spec("triton") is not None


def unsupported(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, state: Tensor | None = None) -> str:
    """Why the fused kernels cannot take these tensors here; empty if they can."""
    if not _has_triton:
        return "triton is not installed"
    if q.device.type == "cuda":
        if torch.cuda.get_device_properties(q.device).major < 8:
            return "they need a GPU of compute capability 8.0 or newer"
    elif not interpreted():
        return f"the tensors are on {q.device.type}, and they run on cuda"
    for x in (q, k, v, decay):  # a state in float64 is added in plain PyTorch
        if x.dtype not in DTYPES:
            return f"they do not take {str(x.dtype).removeprefix('torch.')}"
    if max(q.shape[-1], v.shape[-1]) > WIDEST:
        return f"keys of {q.shape[-1]} and values of {v.shape[-1]} entries are wider than {WIDEST}"
    if checks.exporting():
        return "an exported program holds plain PyTorch only"
    # The same private question as in `checks.readable`, which a compiler cannot be asked.
    if not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None:
        return "torch.func cannot transform them"
    return ""


def scan_unsupported(*operands: Tensor) -> str:
    """Why the fused scans cannot take these operands here; empty if they can."""
    if not _has_triton:
        return "triton is not installed"
    if not operands[0].is_cuda and not interpreted():
        return f"the tensors are on {operands[0].device.type}, and they run on cuda"
    for x in operands:
        if x.dtype not in (torch.float32, torch.complex64):
            return f"they do not take {str(x.dtype).removeprefix('torch.')}"
    if torch.compiler.is_compiling() or checks.exporting():
        return "compiled and exported programs hold plain PyTorch only"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "torch.func cannot transform them"
    return ""


def rounds(*operands: Tensor) -> bool:
    """True if products of these operands are rounded anyway: all in half precision, or TF32 allowed for float32."""
    return tf32_allowed() or all(x.dtype in (torch.bfloat16, torch.float16) for x in operands)
