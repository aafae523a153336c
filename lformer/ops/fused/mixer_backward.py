"""Backward pass of one fused mixer: five steps, between which only small tensors and the gradient of x travel.

B1  channel mixer   x1, dx2 -> dx1
B2  reading         x, dx1 -> dx so far, E = dy · y, R
B3  writing         x, R -> more of dx, F = gradient of the write weight
B4  decay           E, F -> gradient of the gate
B5  gate            x -> the rest of dx; in the first layer of a whole model also the gradient of the embedder

Sums over rows leave each program as its own part; parts are added in a fixed order, so results repeat to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lformer.ops.fused.backward_causal import causal_project, causal_read, causal_write
from lformer.ops.fused.backward_channel import channel_rows, channel_weights
from lformer.ops.fused.backward_gates import decay_gradient, gate_gradient, row_factors, segment_sums
from lformer.ops.fused.backward_read import query_gradients, read_backward
from lformer.ops.fused.backward_scratch import Counts, Scratch, make_scratch
from lformer.ops.fused.backward_weights import fold_weights, sum_parts, weight_gradients
from lformer.ops.fused.backward_write import gate_backward, write_backward
from lformer.ops.fused.launching import start
from lformer.ops.fused.mixer_ends_launch import embed_backward
from lformer.ops.fused.mixer_launch import power_of_two
from lformer.ops.fused.plan import CHUNK, MixerWeights, Plan, Saved


class Launch(NamedTuple):
    """How a kernel is launched."""

    T: int  # rows of a tile; of a causal kernel the plan's chunk
    num_warps: int
    num_stages: int = 1


LAUNCHES = {  # kernel, precision
    ("channel_rows", "tf32"): Launch(64, 4),
    ("channel_rows", "bf16"): Launch(64, 4),
    ("channel_weights", "tf32"): Launch(64, 4),
    ("channel_weights", "bf16"): Launch(64, 4),
    ("read", "tf32"): Launch(128, 8),
    ("read", "bf16"): Launch(128, 8),
    ("causal_read", "tf32"): Launch(CHUNK, 4),
    ("causal_read", "bf16"): Launch(CHUNK, 4),
    ("write", "tf32"): Launch(128, 8),
    ("write", "bf16"): Launch(128, 8),
    ("causal_write", "tf32"): Launch(CHUNK, 4),
    ("causal_write", "bf16"): Launch(CHUNK, 4),
    ("causal_project", "tf32"): Launch(CHUNK, 4),
    ("causal_project", "bf16"): Launch(CHUNK, 4),
    ("gate", "tf32"): Launch(64, 4),
    ("gate", "bf16"): Launch(64, 4),
}
PROGRAMS = 264  # of B1, which takes the rows of all series as one: two for each multiprocessor
GATE_PROGRAMS = 1056  # of B5, likewise, but it waits for memory
SLICE = 64  # hidden units of a slice
KEPT = 110 * 1024  # bytes of weights that stay on chip, so that two programs fit
STEP = 256  # rows of a tile where a row is H numbers (B4)
SUM_BLOCK = 64  # entries of a sum over parts that one program adds
OPERANDS = {"tf32": "fp16", "bf16": "bf16", "ieee": "fp32"}  # of products, see `backward_rows.product`
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


def scratch(x: Tensor, plan: Plan) -> Scratch:
    """For the layers of one pass, whose rows are like x (B, L, D)."""
    return make_scratch(x, plan, _counts(plan), DTYPES[OPERANDS[plan.precision]])


def backward(
    grad: Tensor,
    saved: Saved,
    w: MixerWeights,
    plan: Plan,
    s: Scratch,
    lengths: Tensor | None = None,
    values: Tensor | None = None,
    head: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The backward pass of one mixer.

    Args:
        grad: (B, L, D) gradient of x2, or, with lengths, (B, D) that of the mean over valid rows.
        saved: by the forward pass.
        w: contiguous weights.
        plan: of the forward pass.
        s: written over.
        lengths: (B,) valid rows of each series.
        values: (B, L, C) that were embedded as x.
        head: parts of the gradient of the head behind this mixer, see `answers_backward`.

    Returns:
        (B, L, D) gradient of x, and those of the weights, which `apart` takes apart, in the dtype of `wq`: after the
        mixer's those of the embedder, with values, and of the head, with its parts. With values that of x lacks what
        comes through the gate, as it goes no further.
    """
    _fold(w, s, plan)
    dx = _channel(grad, lengths, saved.x1, s, plan)
    _factors(saved, s, plan)
    (_causal if plan.causal else _whole)(dx, saved, w.wm, s, plan)
    _gates(saved, w.theta, s, plan)
    embedder = None
    if values is None:
        _gate(dx, saved.x, s, plan)
    else:
        embedder = embed_backward(values, dx, s.e, saved.x, s.gate, s.g_gate, s.counts.gate, plan)
    return dx, _gradients(s, embedder, head, w, plan)


def apart(g: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """One after the other -> each in the shape of its tensor."""
    parts = list(g.split_with_sizes([p.numel() for p in tensors]))
    for n, p in enumerate(tensors):
        if p.dim() > 1:
            parts[n] = parts[n].view_as(p)
    return parts


def _key_scale(plan: Plan) -> float:
    """Of the weight of keys alone, as in `nn`."""
    return 1 / math.sqrt(plan.K)


def _launch(kernel: str, plan: Plan) -> dict[str, int]:
    launch = LAUNCHES.get((kernel, plan.precision), Launch(CHUNK, 4))
    if kernel == "causal_project" and plan.D > 64:
        launch = launch._replace(num_warps=8)  # else its sums would not fit the registers
    return launch._asdict()


def _room(n: int) -> int:
    """A power of two that holds n numbers, the same for most n: for every other one kernels are compiled again."""
    return max(512, power_of_two(n))


def _counts(plan: Plan) -> Counts:
    N, FP = plan.B * plan.L, -(-plan.F // SLICE) * SLICE
    rows, hidden, gate = (-(-N // _launch(name, plan)["T"]) for name in ("channel_rows", "channel_weights", "gate"))
    slices = FP // SLICE
    return Counts(min(PROGRAMS, rows), min(max(1, PROGRAMS // slices), hidden), min(GATE_PROGRAMS, gate), FP)


def _fold(w: MixerWeights, s: Scratch, plan: Plan) -> None:
    start(
        fold_weights, (7,),
        (
            w.norm1, w.norm1_bias, w.wq, w.bq, w.wk, w.bk, w.wv, w.bv, w.wo, w.bo, w.wg, w.bg, w.norm2, w.norm2_bias,
            w.w_up, w.w_down, s.hidden, s.hidden_bias, s.scales, s.heads, s.heads_bias,
        ),
        (_key_scale(plan), plan.F),
        D=plan.D, H=plan.H, FP=s.counts.FP, SLICE=SLICE, OPERAND=OPERANDS[plan.precision],
    )  # fmt: skip


def _channel(grad: Tensor, lengths: Tensor | None, x1: Tensor, s: Scratch, plan: Plan) -> Tensor:
    """B1 -> (B, L, D) gradient of x1, to which the others add."""
    D, FP, N = plan.D, s.counts.FP, plan.B * plan.L
    known = (x1, grad, grad if lengths is None else lengths, s.hidden, s.hidden_bias, s.scales)
    sizes = {
        "D": D, "FP": FP, "SLICE": SLICE, "POOLED": lengths is not None, "PRECISION": plan.precision,
        "OPERAND": OPERANDS[plan.precision],
    }  # fmt: skip
    dx1 = torch.empty_like(x1)
    start(
        channel_rows, (s.counts.rows,), (*known, dx1, s.peaks), (N, plan.L),
        KEEP=3 * FP * D * s.hidden.element_size() <= KEPT, **sizes, **_launch("channel_rows", plan),
    )  # fmt: skip
    start(
        channel_weights, (FP // SLICE, s.counts.hidden), (*known, s.peaks, s.g_hidden), (N, plan.L, s.counts.rows),
        PEAKS=_room(s.counts.rows), **sizes, **_launch("channel_weights", plan),
    )  # fmt: skip
    return dx1


def _factors(saved: Saved, s: Scratch, plan: Plan) -> None:
    """Fill the weights in the memory and their peaks."""
    start(
        row_factors, (plan.B, plan.segments), (saved.decay, saved.cum, s.fade, s.growth, s.rise, s.shares),
        (plan.L, plan.rows), H=plan.H, T=STEP, CAUSAL=plan.causal,
    )  # fmt: skip


def _whole(dx: Tensor, saved: Saved, mix: Tensor, s: Scratch, plan: Plan) -> None:
    """B2 and B3 where every row reads the whole series; add to dx and fill g_time, E, F."""
    B, S, D, H, operand = plan.B, plan.segments, plan.D, plan.H, OPERANDS[plan.precision]
    lengths, heads = (plan.L, plan.rows), (s.heads, s.heads_bias)
    start(
        read_backward, (B, S), (saved.x, dx, s.peaks, s.fade, saved.partial, *heads, mix, s.e, s.g_time),
        (*lengths, s.counts.rows),
        D=D, H=H, PEAKS=_room(s.counts.rows), PRECISION=plan.precision, OPERAND=operand, **_launch("read", plan),
    )  # fmt: skip
    start(
        query_gradients, (B,), (saved.partial, *heads, s.reverse, s.g_time), (S,),
        D=D, H=H, PRECISION="ieee" if plan.precision == "ieee" else "tf32", num_warps=8,
    )  # fmt: skip
    start(
        write_backward, (B, S),
        (saved.x, dx, s.rise, s.growth, s.shares, s.reverse, *heads, s.f, s.g_time), lengths,
        D=D, H=H, SHARES=_room(B * S), OPERAND=operand, **_launch("write", plan),
    )  # fmt: skip


def _causal(dx: Tensor, saved: Saved, mix: Tensor, s: Scratch, plan: Plan) -> None:
    """B2 and B3 where a row reads the rows up to it; add to dx and fill g_time, E, F."""
    B, S, D, H, operand = plan.B, plan.segments, plan.D, plan.H, OPERANDS[plan.precision]
    lengths, grid, heads, several = (plan.L, plan.rows), (H, B, S), (s.heads, s.heads_bias), _room(B * S)
    projected = (saved.x, dx, s.da, s.db, s.units, s.chunk_units, *heads, s.g_time)
    project = {"D": D, "H": H, "PRECISION": plan.precision, "OPERAND": operand, **_launch("causal_project", plan)}
    start(
        causal_read, grid,
        (
            saved.x, dx, s.peaks, s.fade, s.rise, s.shares, saved.partial, saved.span, *heads, mix,
            s.dy, s.da, s.db, s.units, s.e, s.reverse, s.g_time,
        ),
        (*lengths, s.counts.rows),
        D=D, H=H, PEAKS=_room(s.counts.rows), SHARES=several, PRECISION=plan.precision, OPERAND=operand,
        **_launch("causal_read", plan),
    )  # fmt: skip
    start(causal_project, (B, S), projected, lengths, PART=0, **project)
    start(
        causal_write, grid,
        (
            saved.x, s.dy, s.fade, s.rise, s.growth, s.shares, s.reverse, saved.span, *heads,
            s.da, s.db, s.units, s.chunk_units, s.f,
        ),
        lengths, D=D, H=H, SHARES=several, PRECISION=plan.precision, OPERAND=operand,
        **_launch("causal_write", plan),
    )  # fmt: skip
    start(causal_project, (B, S), projected, lengths, PART=2, **project)


def _gates(saved: Saved, theta: Tensor, s: Scratch, plan: Plan) -> None:
    """B4: put the gradient before the sigmoid of the gate in E's place, and fill g_mu."""
    grid, lengths = (plan.B, plan.segments), (plan.L, plan.rows)
    known, sizes = (saved.decay, saved.gates, saved.deltas, theta), {"H": plan.H, "T": STEP}
    several = {"SEGMENTS": power_of_two(plan.segments), "PREFIX": plan.norm == "prefix"}
    start(segment_sums, grid, (s.e, s.f, *known, s.changes, s.budgets), lengths, **sizes)
    both = (s.e, s.f, *known, s.changes, s.budgets, s.slope, s.portions)
    start(decay_gradient, grid, both, lengths, **sizes, **several)
    start(gate_gradient, grid, (s.slope, *known, s.budgets, s.portions, s.e, s.g_mu), lengths, **sizes, **several)


def _gate(dx: Tensor, x: Tensor, s: Scratch, plan: Plan) -> None:
    """B5: add to dx and fill g_gate."""
    start(
        gate_backward, (s.counts.gate,), (x, dx, s.e, s.gate, s.g_gate), (plan.B * plan.L,),
        D=plan.D, H=plan.H, PRECISION=plan.precision, **_launch("gate", plan),
    )  # fmt: skip


def _gradients(s: Scratch, embedder: Tensor | None, head: Tensor | None, w: MixerWeights, plan: Plan) -> Tensor:
    """From the parts of the programs to the gradients of all weights, one after the other."""
    D, H, FP = plan.D, plan.H, s.counts.FP
    (embedders, embedder_size), (heads, head_size) = _counted(embedder), _counted(head)
    gates = embedders or s.counts.gate  # one kernel leaves both
    sizes = (3 * FP * D, 5 * D * D, H * D, H, embedder_size, head_size)
    numbers = [p.numel() for p in w]
    g = w.wq.new_empty(sum(numbers) + embedder_size + head_size)
    ends = (s.sums if parts is None else parts for parts in (embedder, head))
    start(
        sum_parts, (sum(-(-size // SUM_BLOCK) for size in sizes),),
        (s.g_hidden, s.g_time, s.g_gate, s.g_mu, *ends, w.theta, s.sums, g),
        (
            s.counts.hidden, plan.B * plan.segments, gates, embedders, heads, *sizes,
            sum(numbers[: w._fields.index("theta")]), sum(numbers),
        ),
        BLOCK=SUM_BLOCK,
    )  # fmt: skip
    start(
        weight_gradients, (2,),
        (s.sums, w.norm1, w.norm1_bias, w.wq, w.wk, w.wv, w.wo, w.wg, w.norm2, w.norm2_bias, w.w_up, g),
        (_key_scale(plan), plan.F), D=D, H=H, FP=FP, SLICE=SLICE,
    )  # fmt: skip
    return g


def _counted(parts: Tensor | None) -> tuple[int, int]:
    """How many there are, and their size."""
    return (0, 0) if parts is None else (parts.shape[0], parts.shape[1])
