"""Liquid gated attention as functions that autograd and torch.compile know, and the launches behind them.

Naive form: `ops.reference`; in plain PyTorch `ops.parallel`. The kernels are in `operator_kernels.py`, both ways.

`torch.compile` sees custom operators; an eager call goes around them, for their checks take longer than small kernels.
Deterministic: no atomics, and sums over programs are taken in a fixed order that does not depend on the batch.

`read_rows` and `read_rows_backward` are the same passes without autograd, from an empty memory, for `layers.py`.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.library import custom_op

from lformer.ops.fused import operator_kernels as kernels
from lformer.ops.fused.launch import LAUNCHES, Launch, power_of_two, row_stride, start_kernel
from lformer.ops.fused.plan import Plan, interpreted
from lformer.ops.precision import tf32_allowed

Launched = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]  # by each of the four passes
P = ParamSpec("P")
T = TypeVar("T")


# Triton 3.6 compiles a causal chunk of 64 rows in bfloat16 to wrong numbers and wrong addresses on Hopper; with 32 rows
# it takes other instructions and is right.
BFLOAT16_CHUNK = 32
FAR = 2**24  # between rows that far apart, offsets within a chunk could leave 32 bits
CARRY = 256  # entries of a memory that one program carries through the segments
GROUP = 16  # chunks whose decay one program sums
BLOCK = 1024  # chunks that are summed over at once


def attention(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, state: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """(B, L, H, K), (B, L, H, K), (B, L, H, V), (B, L, H), (B, H, K, V) -> (B, L, H, V) like v, (B, H, K, V)."""
    if v.numel() == 0:
        return torch.zeros_like(v), state
    form = CAUSAL if causal or q.shape[1] == 1 else WHOLE  # one row reads itself either way
    operands = (q, k, v, decay, state)
    if torch.compiler.is_compiling():
        return form.operator(*operands)[:2]
    if torch.is_grad_enabled() and any(x.requires_grad for x in operands):
        return _Eager.apply(form, *operands)
    return form.forward(*operands)[:2]


# --- the plan of a call ---


def make_plan(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Plan:
    """About as many segments as chunks in each, so that neither the walk within nor the one between them is long."""
    B, L, H, K = q.shape
    V, precision = v.shape[-1], _precision(q, k, v)
    chunk = BFLOAT16_CHUNK if causal and precision == "bf16" else _settings(K, V, precision).rows
    needed, chunks = _parts(L, chunk), 1
    while chunks * chunks < needed:
        chunks *= 2
    return Plan(B, L, H, K, V, chunk, chunks, _parts(needed, chunks), precision, causal=causal)


def _settings(K: int, V: int, precision: str, gradients: bool = False) -> Launch:
    width = max(_padded(K), _padded(V))
    usual = LAUNCHES["operator", width, precision]
    return LAUNCHES.get(("operator gradients", width, precision), usual) if gradients else usual


def _block(plan: Plan) -> int:
    """Columns of a memory that are worked on at once."""
    return min(_settings(plan.K, plan.V, plan.precision).block, _padded(plan.V))


def _shape(plan: Plan, gradients: bool = False) -> dict[str, int]:
    """What every kernel is compiled for: widths, and the powers of two they are padded to; and how it runs."""
    settings = _settings(plan.K, plan.V, plan.precision, gradients)
    return {
        "K": plan.K, "V": plan.V, "BK": _padded(plan.K), "BV": _block(plan), "T": plan.chunk,
        "num_warps": settings.warps, "num_stages": settings.stages,
    }  # fmt: skip


def _parts(length: int, size: int) -> int:
    """How many parts of `size` hold `length`."""
    return (length + size - 1) // size


def _padded(width: int) -> int:
    return max(16, power_of_two(width))


def _precision(*operands: Tensor) -> str:
    """How products take their operands: as bfloat16 if all are, else as PyTorch takes those of float32.

    Where PyTorch keeps all digits, each operand is split into two TF32 parts: float32 to its last digits, on tensor
    cores. Products in float32 itself would not fit the registers.
    """
    if all(x.dtype == torch.bfloat16 for x in operands):
        return "bf16"
    if tf32_allowed():
        return "tf32"
    return "ieee" if interpreted() else "tf32x3"


def _start(
    kernel: Any,
    programs: int,
    rows: tuple[Tensor, ...],
    others: tuple[Tensor, ...],
    numbers: tuple[int, ...],
    **constants: Any,
) -> None:
    """A kernel that takes rows (B, L, H[, ·]), other tensors, the strides of the rows, numbers and constants."""
    rows = tuple(map(_as_taken, rows))
    strides = [stride for x in rows for stride in x.stride()[:3]]
    start_kernel(kernel, (programs,), (*rows, *others), (*strides, *numbers), **constants)


def _as_taken(x: Tensor) -> Tensor:
    """Rows as kernels take them: with the last axis of four contiguous."""
    far = x.stride(1) >= FAR and x.shape[1] > 1
    return x.contiguous() if far or (x.dim() == 4 and x.stride(-1) != 1) else x


def _on_its_device(launch: Callable[P, T]) -> Callable[P, T]:
    """Kernels start on the current device; this makes it that of the first operand."""

    @wraps(launch)
    def run(*operands: P.args, **options: P.kwargs) -> T:
        with torch.cuda.device_of(operands[0]):
            return launch(*operands, **options)

    return run


def _empty(like: Tensor, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """What a kernel will fill."""
    return torch.empty(shape, dtype=dtype, device=like.device)


class RowGradients(NamedTuple):
    """Where gradients of rows go.

    Those of q and k are as far apart, from series to series as from row to row; heads lie beside each other.
    """

    dq: Tensor  # (B, L, H, K)
    dk: Tensor  # (B, L, H, K)
    dv: Tensor  # (B, L, H, V)
    ddecay: Tensor  # (B, L, H), contiguous

    @property
    def row_strides(self) -> tuple[int, int]:
        return row_stride(self.dq), row_stride(self.dv)


def _row_gradients(*operands: Tensor) -> RowGradients:
    return RowGradients(*(_empty(x, *x.shape, dtype=x.dtype) for x in operands))


# --- causal ---


class Scan(NamedTuple):
    """The memory before every chunk, in two parts: written since its segment began, and at that beginning."""

    inside: Tensor  # (B, N, H, K, V)
    since: Tensor  # (B, N, H) decay since the segment began, float64
    starts: Tensor  # (B, S, H, K, V)


def _scan(x: Tensor, z: Tensor, decay: Tensor, state: Tensor, plan: Plan, backwards: bool) -> tuple[Scan, Tensor]:
    """All memories that the products of x and z leave, and the last one."""
    B, H, K, V, N, S = plan.B, plan.H, plan.K, plan.V, plan.needed, plan.segments
    inside, since = _empty(x, B, N, H, K, V), _empty(x, B, N, H, dtype=torch.float64)
    ends, spans = _empty(x, B, S, H, K, V), _empty(x, B, S, H, dtype=torch.float64)
    starts, final = _empty(x, B, S, H, K, V), _empty(x, B, H, K, V)
    _start(
        kernels.scan_segments, B * S * H * _parts(V, _block(plan)), (x, z, decay), (inside, since, ends, spans),
        (plan.L, H, N, S, plan.chunks), **_shape(plan), BACKWARDS=backwards, PRECISION=_precision(x, z),
    )  # fmt: skip
    start_kernel(
        kernels.carry_segments, (B * H * _parts(K * V, CARRY),), (ends, spans, state.contiguous(), starts, final),
        (H, S, K * V), BLOCK=CARRY, BACKWARDS=backwards,
    )  # fmt: skip
    return Scan(inside, since, starts), final


@_on_its_device
def causal_forward(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, state: Tensor) -> Launched:
    """Output, final state, and the memories that the backward pass needs."""
    plan = make_plan(q, k, v, causal=True)
    B, L, H, N, S = plan.B, plan.L, plan.H, plan.needed, plan.segments
    scan, final = _scan(k, v, decay, state, plan, backwards=False)
    y = _empty(q, B, L, H, plan.V, dtype=v.dtype)
    _start(
        kernels.read_chunk, B * N * H, (q, k, v, decay), (*scan, y), (L, H, N, S, plan.chunks),
        **_shape(plan), PRECISION=plan.precision,
    )  # fmt: skip
    return y, final, *scan


causal_operator = custom_op("lformer::causal_attention", causal_forward, mutates_args=())


@causal_operator.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, state: Tensor) -> Launched:
    plan = make_plan(q, k, v, causal=True)
    B, L, H, K, V, N, S = plan.B, plan.L, plan.H, plan.K, plan.V, plan.needed, plan.segments
    since = _empty(q, B, N, H, dtype=torch.float64)
    memories = (_empty(q, B, N, H, K, V), since, _empty(q, B, S, H, K, V))
    return _empty(q, B, L, H, V, dtype=v.dtype), _empty(q, B, H, K, V), *memories


@_on_its_device
def causal_backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    inside: Tensor,
    since: Tensor,
    starts: Tensor,
    dy: Tensor,
    dfinal: Tensor,
) -> Launched:
    """Gradients of q, k, v, decay and state."""
    to = _row_gradients(q, k, v, decay)
    dstate = _causal_gradients_of_rows(q, k, v, decay, Scan(inside, since, starts), dy, dfinal, to)
    return *to, dstate


def _causal_gradients_of_rows(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, scan: Scan, dy: Tensor, dfinal: Tensor, to: RowGradients
) -> Tensor:
    """Fills `to`; returns the gradient of the state."""
    plan = make_plan(q, k, v, causal=True)
    pulls, dstate = _scan(q, dy, decay, dfinal, plan, backwards=True)
    _start(
        kernels.chunk_gradients, plan.B * plan.needed * plan.H, (q, k, v, decay, dy), (*scan, *pulls, *to),
        (*to.row_strides, plan.L, plan.H, plan.needed, plan.segments, plan.chunks),
        **_shape(plan, gradients=True), PRECISION=plan.precision,
    )  # fmt: skip
    return dstate


causal_backward_operator = custom_op("lformer::causal_attention_backward", causal_backward, mutates_args=())


@causal_backward_operator.register_fake
def _(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    inside: Tensor,
    since: Tensor,
    starts: Tensor,
    dy: Tensor,
    dfinal: Tensor,
) -> Launched:
    dq, dk, dv, ddecay = _row_gradients(q, k, v, decay)
    return dq, dk, dv, ddecay, _empty(q, *dfinal.shape)


# --- non-causal ---


@_on_its_device
def whole_forward(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, state: Tensor) -> Launched:
    """Output, final state, memory relative to the middle, and the exponents: before each chunk and in total."""
    plan = make_plan(q, k, v, causal=False)
    before, total = _exponents(decay, plan)
    fade = _fade(total)
    memory = fade * state.contiguous() + _sum(k, v, decay, before, total, plan, backwards=False)
    y = _read_whole(q, decay, before, total, memory, plan, v.dtype)
    return y, fade * memory, memory, before, total


def _exponents(decay: Tensor, plan: Plan) -> tuple[Tensor, Tensor]:
    """(B, L, H) -> decay before each chunk, (B, N, H), and in total, (B, H)"""
    B, H, N = plan.B, plan.H, plan.needed
    totals = _empty(decay, B, N, H, dtype=torch.float64)
    programs = B * H * _parts(N, GROUP)
    _start(kernels.sum_chunks, programs, (decay,), (totals,), (plan.L, H, N), T=plan.chunk, GROUP=GROUP)
    return _sum_before(totals, backwards=False)


def _read_whole(
    q: Tensor, decay: Tensor, before: Tensor, total: Tensor, memory: Tensor, plan: Plan, dtype: torch.dtype
) -> Tensor:
    """-> (B, L, H, V)"""
    B, L, H, N = plan.B, plan.L, plan.H, plan.needed
    y = _empty(q, B, L, H, plan.V, dtype=dtype)
    _start(
        kernels.read_whole, B * N * H, (q, decay), (before, total, memory, y), (L, H, N),
        **_shape(plan), PRECISION=plan.precision,
    )  # fmt: skip
    return y


def _sum_before(x: Tensor, backwards: bool) -> tuple[Tensor, Tensor]:
    """(B, N, H) -> sums of the entries before each one, and of all, (B, H)."""
    B, N, H = x.shape
    before, total = torch.empty_like(x), _empty(x, B, H, dtype=x.dtype)
    start_kernel(kernels.sum_before, (B * H,), (x, before, total), (H, N), BLOCK=BLOCK, BACKWARDS=backwards)
    return before, total


def _fade(total: Tensor) -> Tensor:
    """(B, H) -> (B, H, 1, 1): from the middle of the series to its end."""
    return torch.exp(-total / 2).float()[..., None, None]


def _sum(x: Tensor, z: Tensor, decay: Tensor, before: Tensor, total: Tensor, plan: Plan, backwards: bool) -> Tensor:
    """(B, H, K, V) the weighted products of x and z, summed over the series."""
    B, H, K, V, S = plan.B, plan.H, plan.K, plan.V, plan.segments
    sums = _empty(x, B, S, H, K, V)
    _start(
        kernels.sum_segments, B * S * H * _parts(V, _block(plan)), (x, z, decay), (before, total, sums),
        (plan.L, H, plan.needed, S, plan.chunks), **_shape(plan), BACKWARDS=backwards, PRECISION=_precision(x, z),
    )  # fmt: skip
    return sums[:, 0] if S == 1 else sums.sum(dim=1)


whole_operator = custom_op("lformer::whole_attention", whole_forward, mutates_args=())


@whole_operator.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, state: Tensor) -> Launched:
    plan = make_plan(q, k, v, causal=False)
    B, L, H, K, V, N = plan.B, plan.L, plan.H, plan.K, plan.V, plan.needed
    exponents = (_empty(q, B, N, H, dtype=torch.float64), _empty(q, B, H, dtype=torch.float64))
    return _empty(q, B, L, H, V, dtype=v.dtype), _empty(q, B, H, K, V), _empty(q, B, H, K, V), *exponents


@_on_its_device
def whole_backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    memory: Tensor,
    before: Tensor,
    total: Tensor,
    dy: Tensor,
    dfinal: Tensor,
) -> Launched:
    """Gradients of q, k, v, decay and state."""
    plan, to = make_plan(q, k, v, causal=False), _row_gradients(q, k, v, decay)
    fade = _fade(total)
    pull = fade * dfinal.contiguous() + _sum(q, dy, decay, before, total, plan, backwards=True)
    final = (dfinal.double() * (fade * memory).double()).sum(dim=(-2, -1))  # <dS_L, S_L>
    _whole_gradients_of_rows(q, k, v, decay, (memory, before, total), dy, pull, final, plan, to)
    return *to, fade * pull


def _whole_gradients_of_rows(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    kept: tuple[Tensor, Tensor, Tensor],
    dy: Tensor,
    pull: Tensor,
    final: Tensor,
    plan: Plan,
    to: RowGradients,
) -> None:
    """Fills `to`, from the gradient of the memory, `pull` (B, H, K, V), and <dS_L, S_L>, `final` (B, H)."""
    B, L, H, N = plan.B, plan.L, plan.H, plan.needed
    memory, before, total = kept
    slopes, changes = _empty(q, B, L, H), _empty(q, B, N, H, dtype=torch.float64)
    _start(
        kernels.whole_gradients, B * N * H, (q, k, v, decay, dy),
        (before, total, memory, pull, *to[:3], slopes, changes), (*to.row_strides, L, H, N),
        **_shape(plan, gradients=True), PRECISION=plan.precision,
    )  # fmt: skip
    later, _ = _sum_before(changes, backwards=True)
    start_kernel(kernels.add_later, (B * N * H,), (slopes, later, final, to.ddecay), (L, H, N), T=plan.chunk)


whole_backward_operator = custom_op("lformer::whole_attention_backward", whole_backward, mutates_args=())


@whole_backward_operator.register_fake
def _(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    memory: Tensor,
    before: Tensor,
    total: Tensor,
    dy: Tensor,
    dfinal: Tensor,
) -> Launched:
    dq, dk, dv, ddecay = _row_gradients(q, k, v, decay)
    return dq, dk, dv, ddecay, _empty(q, *dfinal.shape)


# --- without autograd, from an empty memory ---


@_on_its_device
def read_rows(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, causal: bool
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    """(B, L, H, V) like v, and what `read_rows_backward` wants. Not causal, a series has more than one row."""
    if causal:
        y, _, *scan = causal_forward(q, k, v, decay, _empty_memory(q, v))
        return y, Scan(*scan)
    plan = make_plan(q, k, v, causal=False)
    before, total = _exponents(decay, plan)
    memory = _sum(k, v, decay, before, total, plan, backwards=False)
    return _read_whole(q, decay, before, total, memory, plan, v.dtype), (memory, before, total)


@_on_its_device
def read_rows_backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor,
    kept: tuple[Tensor, Tensor, Tensor],
    dy: Tensor,
    to: RowGradients,
    causal: bool,
) -> None:
    """Fills `to` from the gradient of the rows that were read, dy (B, L, H, V)."""
    if causal:
        _causal_gradients_of_rows(q, k, v, decay, Scan(*kept), dy, _empty_memory(q, v), to)
        return
    plan = make_plan(q, k, v, causal=False)
    pull = _sum(q, dy, decay, kept[1], kept[2], plan, backwards=True)
    final = q.new_zeros(plan.B, plan.H, dtype=torch.float64)
    _whole_gradients_of_rows(q, k, v, decay, kept, dy, pull, final, plan, to)


def _empty_memory(q: Tensor, v: Tensor) -> Tensor:
    """(B, H, K, V)"""
    B, _, H, K = q.shape
    return q.new_zeros(B, H, K, v.shape[-1], dtype=torch.float32)


# --- what autograd keeps and calls ---


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    """Operands and memories; y, the final state and the initial one are not needed again."""
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*output[2:])
    ctx.save_for_backward(*inputs[:4], *output[2:])


def _gradients_wanted(ctx: Any, dy: Tensor | None, dfinal: Tensor | None) -> tuple[Tensor, ...]:
    """What the forward pass kept, and the gradients of its two results, zeros where nothing depends on them."""
    q, _, v = ctx.saved_tensors[:3]
    B, _, H, K = q.shape
    dy = torch.zeros_like(v) if dy is None else dy
    dfinal = q.new_zeros(B, H, K, v.shape[-1], dtype=torch.float32) if dfinal is None else dfinal
    return *ctx.saved_tensors, dy, dfinal


def _causal_gradients(ctx: Any, dy: Tensor | None, dfinal: Tensor | None, *_: None) -> tuple[Tensor, ...]:
    return causal_backward_operator(*_gradients_wanted(ctx, dy, dfinal))


def _whole_gradients(ctx: Any, dy: Tensor | None, dfinal: Tensor | None, *_: None) -> tuple[Tensor, ...]:
    return whole_backward_operator(*_gradients_wanted(ctx, dy, dfinal))


causal_operator.register_autograd(_causal_gradients, setup_context=_keep)
whole_operator.register_autograd(_whole_gradients, setup_context=_keep)


class Form(NamedTuple):
    """One of the two forms: its passes as plain functions, and as the operator that a compiler sees."""

    forward: Callable[..., Launched]
    backward: Callable[..., Launched]
    operator: Callable[..., Launched]


CAUSAL = Form(causal_forward, causal_backward, causal_operator)
WHOLE = Form(whole_forward, whole_backward, whole_operator)


class _Eager(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, form: Form, *operands: Tensor) -> tuple[Tensor, Tensor]:
        output = form.forward(*operands)
        ctx.form = form
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*operands[:4], *output[2:])
        return output[:2]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor | None, dfinal: Tensor | None) -> tuple[Tensor | None, ...]:
        return None, *ctx.form.backward(*_gradients_wanted(ctx, dy, dfinal))
