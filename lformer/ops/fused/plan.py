"""How the fused kernels divide their rows, what a mixer needs and what it keeps. Imports no triton."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

from lformer.ops import checks
from lformer.ops.precision import tf32_allowed

# Of the mixers whose kernels make everything from one tile of rows in registers; wider ones take `layers.py`.
WIDTHS = (32, 64)
HEAD_SIZES = (16, 32, 64)
CAUSAL_HEAD_SIZES = (16,)  # those of a causal mixer that have run on long series on a GPU: "auto" takes no others
# Of fused layers: every multiple of LAYER_STEP up to LAYER_WIDEST, as rows of products begin at wide addresses then.
LAYER_STEP, LAYER_WIDEST = 16, 512
LAYER_HEAD_SIZES = (8, 16, 32, 64, 128)
CHUNK = 64  # rows; a multiple of what a tensor core takes
# Wanted per launch: two or one for each multiprocessor of an H200.
PROGRAMS = {"bf16": 264, "tf32": 132, "ieee": 132}
CAUSAL_PROGRAMS = 264
OPERANDS = {"tf32": "fp16", "bf16": "bf16", "ieee": "fp32"}  # of products backwards, see `operands.product`

SHARED_MEMORY = 227 * 1024  # bytes per block: the weights stay there
_has_triton = find_spec("triton") is not None


class MixerWeights(NamedTuple):
    """The parameters of one LiquidMixer, as its modules hold them; weights are (out, in)."""

    norm1: Tensor  # (D,) weight of the layer norm before the time mixer
    norm1_bias: Tensor  # (D,)
    wq: Tensor  # (D, D)
    bq: Tensor  # (D,)
    wk: Tensor  # (D, D), without the factor 1 / sqrt(K)
    bk: Tensor  # (D,)
    wv: Tensor  # (D, D)
    bv: Tensor  # (D,)
    wo: Tensor  # (D, D)
    bo: Tensor  # (D,)
    wg: Tensor  # (H, D)
    bg: Tensor  # (H,)
    theta: Tensor  # (H,) of mu = σ(theta), one per head also where it is shared
    wm: Tensor  # (D, D)
    norm2: Tensor  # (D,) weight of the layer norm before the channel mixer
    norm2_bias: Tensor  # (D,)
    w_up: Tensor  # (2F, D), W_1 above W_2
    w_down: Tensor  # (D, F)


class Affine(NamedTuple):
    """The parameters of an nn.Linear."""

    weight: Tensor  # (out, in)
    bias: Tensor  # (out,)


class Saved(NamedTuple):
    """What the forward pass of one mixer leaves for its backward pass; all float32 but x and x1."""

    x: Tensor  # (B, L, D)
    x1: Tensor  # (B, L, D) after the time mixer
    deltas: Tensor  # (B, L)
    gates: Tensor  # (B, L, H) x̃
    decay: Tensor  # (B, L, H) û
    cum: Tensor  # (B, L, H) running sum of û, inclusive: over the series; causal: within the chunk
    partial: Tensor  # (B, S, H, K, V) what each segment writes; causal: as it stands at the end of the segment
    span: Tensor  # (B, S, H) causal: total decay across the segment; otherwise left unwritten


class Plan(NamedTuple):
    """One call: rows of a series in chunks of `chunk`, `chunks` of them in each of `segments` segments.

    Mixers, the operator and the scans are planned alike: each has H memories of K times V numbers beside each other.
    """

    B: int
    L: int
    H: int  # heads; channels of a selective scan
    K: int  # size of a key; 1 in a selective scan
    V: int  # size of a value; states of a channel in a selective scan
    chunk: int
    chunks: int
    segments: int
    precision: str  # "bf16", "tf32", "tf32x3" or "ieee": of the operands of products
    F: int = 0  # hidden width of a mixer
    causal: bool = False
    norm: str = "sequence"  # or "prefix"

    @property
    def D(self) -> int:
        """Width of a mixer."""
        return self.H * self.K

    @property
    def rows(self) -> int:
        """Rows of a segment."""
        return self.chunk * self.chunks

    @property
    def needed(self) -> int:
        """Chunks of a series that hold rows."""
        return -(-self.L // self.chunk)

    @property
    def total_chunks(self) -> int:
        """Chunks of a series, the spare ones of its last segment included."""
        return self.chunks * self.segments

    @property
    def operand(self) -> str:
        """What the products of the backward pass take."""
        return OPERANDS[self.precision]


def make_plan(x: Tensor, weights: MixerWeights, causal: bool, norm: str, chunks: int = 0) -> Plan:
    """The plan of a mixer for rows x (B, L, D); `chunks` per segment are chosen if 0."""
    B, L, D = x.shape
    precision = rounding(x.dtype, x.is_cuda) or "ieee"
    needed = -(-L // CHUNK)
    if chunks == 0:
        programs = CAUSAL_PROGRAMS if causal else PROGRAMS[precision]
        chunks = -(-needed // max(1, programs // B))
    H, F = weights.theta.shape[0], weights.w_down.shape[1]
    return Plan(B, L, H, D // H, D // H, CHUNK, chunks, -(-needed // chunks), precision, F, causal, norm)


def rounding(dtype: torch.dtype, cuda: bool) -> str | None:
    """How products of rows are rounded by the fused mixer, or None if it does not take such rows."""
    if dtype == torch.bfloat16:
        return "bf16" if cuda else None
    if dtype != torch.float32:
        return None
    if cuda:
        return "tf32" if tf32_allowed() else None
    return "ieee"


def interpreted() -> bool:
    """True if Triton interprets its kernels, so that they run on CPU tensors."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def unsupported(D: int, H: int, causal: bool, norm: str) -> str:
    """Why a mixer of this shape has no kernels; empty if it has."""
    if D not in WIDTHS or D // H not in HEAD_SIZES:
        return f"width {D} with heads of {D // H}"
    if norm not in (("sequence", "prefix") if causal else ("sequence",)):
        return f'gate_norm="{norm}" with causal={causal}'
    return ""


def layers_unsupported(D: int, H: int, norm: str) -> str:
    """Why a mixer of this shape has no fused layers; empty if it has."""
    if D % LAYER_STEP or D > LAYER_WIDEST or D // H not in LAYER_HEAD_SIZES:
        return f"width {D} with heads of {D // H}"
    return f'gate_norm="{norm}"' if norm == "none" else ""


def blocked(device: torch.device, empty: bool) -> str:
    """Why no kernel of the fused mixer can be launched there, whatever it does; empty if one can."""
    if reason := layers_blocked(device, empty):
        return reason
    if device.type == "cuda" and _shared_memory(device) < SHARED_MEMORY:
        return f"its kernels need a GPU with {SHARED_MEMORY} bytes of shared memory per block"
    return ""


def layers_blocked(device: torch.device, empty: bool) -> str:
    """As `blocked`, of fused layers, which need less."""
    if not _has_triton:
        return "triton is not installed"
    if device.type != "cuda" and not interpreted():
        return f"it runs on {device}; the fused mixer runs on CUDA"
    if empty:
        return "there are no rows"
    if checks.exporting():
        return "an exported program holds plain PyTorch only"
    # A compiler cannot look at this stack and takes it for not empty.
    if not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None:
        return "torch.func cannot transform it"
    if device.type == "cuda" and torch.cuda.get_device_properties(device).major < 8:
        return "its kernels need a GPU of compute capability 8.0 or newer"
    return ""


def _shared_memory(device: torch.device) -> int:
    """Bytes that one block of a kernel may have."""
    return int(getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", 0))
