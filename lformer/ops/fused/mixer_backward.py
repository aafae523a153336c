"""Backward pass of one fused mixer: five steps, between which only small tensors and the gradient of x travel.

B1  channel mixer   x1, dx2 -> dx1
B2  reading         x, dx1 -> dx so far, E = dy · y, R
B3  writing         x, R -> more of dx, F = gradient of the write weight
B4  decay           E, F -> gradient of the gate
B5  gate            x -> the rest of dx

Sums over rows leave each program as its own part; parts are added in a fixed order, so results repeat to the last bit.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from lformer.ops.fused.backward_causal import causal_project, causal_read, causal_write
from lformer.ops.fused.backward_channel import channel_rows, channel_weights
from lformer.ops.fused.backward_gates import decay_gradient, gate_gradient, row_factors, segment_sums
from lformer.ops.fused.backward_read import query_gradients, read_backward
from lformer.ops.fused.backward_weights import fold_weights, sum_parts, weight_gradients
from lformer.ops.fused.backward_write import gate_backward, write_backward
from lformer.ops.fused.launching import start
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


class Folded(NamedTuple):
    """The weights as the kernels take them, see `fold_weights`; the float32 ones are parts of one tensor."""

    hidden: Tensor  # (3, FP, D), FP = F filled up to whole slices
    hidden_bias: Tensor  # (2 FP,)
    scales: Tensor  # (3,)
    heads: Tensor  # (4 D D,) q, o, k, v; the gate follows
    heads_bias: Tensor  # (4 D + H,)
    gate: Tensor  # (H D,)


class Rows(NamedTuple):
    """Numbers that rows have for each head, (B, L, H), parts of one tensor."""

    fade: Tensor  # weights in the memory, see `row_factors`
    growth: Tensor
    rise: Tensor
    e: Tensor  # E; in the end its place is taken by the gradient before the sigmoid of the gate
    f: Tensor  # F


class Channels(NamedTuple):
    """What B1 leaves."""

    dx1: Tensor  # (B, L, D) gradient of x1, to which the others add
    peaks: Tensor  # (2, programs) of |dx1|, |dx2|
    parts: Tensor  # (…, 3, FP, D) of `channel_weights`


def backward(
    grad: Tensor, saved: Saved, w: MixerWeights, plan: Plan, lengths: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The backward pass of one mixer.

    Args:
        grad: (B, L, D) gradient of x2, or, with lengths, (B, D) that of the mean over valid rows.
        saved: by the forward pass.
        w: contiguous weights.
        plan: of the forward pass.
        lengths: (B,) valid rows of each series.

    Returns:
        (B, L, D) gradient of x, and those of the weights, which `apart` takes apart, in the dtype of `wq`.
    """
    folded = _fold(w, plan)
    channels = _channel(grad, lengths, saved.x1, folded, plan)
    dx = channels.dx1
    rows = Rows(*dx.new_empty(len(Rows._fields), *saved.cum.shape, dtype=torch.float32))
    shares = _factors(rows, saved, plan)
    g_time = shares.new_empty(plan.B, plan.segments, 5, plan.D, plan.D)
    (_causal if plan.causal else _whole)(channels, shares, g_time, saved, rows, folded, w.wm, plan)
    g_mu = _gates(rows, saved, w.theta, plan)
    g_gate = _gate(dx, rows.e, saved.x, folded, plan)
    return dx, _gradients(channels.parts, g_time, g_gate, g_mu, w, plan)


def apart(g: Tensor, w: MixerWeights) -> MixerWeights:
    """One after the other -> each in the shape of its weight."""
    parts = list(g.split_with_sizes([p.numel() for p in w]))
    for n, p in enumerate(w):
        if p.dim() > 1:
            parts[n] = parts[n].view_as(p)
    return MixerWeights(*parts)


def _key_scale(plan: Plan) -> float:
    """Of the weight of keys alone, as in `nn`."""
    return 1 / math.sqrt(plan.K)


def _launch(kernel: str, plan: Plan) -> dict[str, int]:
    launch = LAUNCHES.get((kernel, plan.precision), Launch(CHUNK, 4))
    if kernel == "causal_project" and plan.D > 64:
        launch = launch._replace(num_warps=8)  # else its sums would not fit the registers
    return launch._asdict()


def _room(n: int) -> int:
    """A power of two that holds n numbers, the same for most n: for every other one kernels are compiled anew."""
    return max(512, power_of_two(n))


def _padded(F: int) -> int:
    return -(-F // SLICE) * SLICE


def _fold(w: MixerWeights, plan: Plan) -> Folded:
    D, FP, rows, operand = plan.D, _padded(plan.F), 4 * plan.D + plan.H, OPERANDS[plan.precision]
    hidden = w.wq.new_empty(3, FP, D, dtype=DTYPES[operand])
    sizes = [4 * D * D, plan.H * D, 2 * FP, 4, rows]  # each begins at a multiple of 16 bytes
    heads, gate, hidden_bias, scales, heads_bias = w.wq.new_empty(sum(sizes), dtype=torch.float32).split(sizes)
    start(
        fold_weights, (7,),
        (
            w.norm1, w.norm1_bias, w.wq, w.bq, w.wk, w.bk, w.wv, w.bv, w.wo, w.bo, w.wg, w.bg, w.norm2, w.norm2_bias,
            w.w_up, w.w_down, hidden, hidden_bias, scales, heads, heads_bias,
        ),
        (_key_scale(plan), plan.F), D=D, H=plan.H, FP=FP, SLICE=SLICE, OPERAND=operand,
    )  # fmt: skip
    return Folded(hidden, hidden_bias, scales, heads, heads_bias, gate)


def _channel(grad: Tensor, lengths: Tensor | None, x1: Tensor, folded: Folded, plan: Plan) -> Channels:
    """B1"""
    D, FP, N = plan.D, folded.hidden.shape[1], plan.B * plan.L
    pooled = lengths is not None
    known = (x1, grad, grad if lengths is None else lengths, folded.hidden, folded.hidden_bias, folded.scales)
    sizes = {
        "D": D, "FP": FP, "SLICE": SLICE, "POOLED": pooled, "PRECISION": plan.precision,
        "OPERAND": OPERANDS[plan.precision],
    }  # fmt: skip

    launch = _launch("channel_rows", plan)
    programs = min(PROGRAMS, -(-N // launch["T"]))
    dx1, peaks = torch.empty_like(x1), folded.scales.new_empty(2, programs)
    keep = folded.hidden.numel() * folded.hidden.element_size() <= KEPT
    start(channel_rows, (programs,), (*known, dx1, peaks), (N, plan.L), KEEP=keep, **sizes, **launch)

    launch = _launch("channel_weights", plan)
    slices = FP // SLICE
    parts = min(max(1, PROGRAMS // slices), -(-N // launch["T"]))
    g = folded.scales.new_empty(parts, 3, FP, D)
    start(
        channel_weights, (slices, parts), (*known, peaks, g), (N, plan.L, programs),
        PEAKS=_room(programs), **sizes, **launch,
    )  # fmt: skip
    return Channels(dx1, peaks, g)


def _factors(rows: Rows, saved: Saved, plan: Plan) -> Tensor:
    """Fill the weights in the memory -> (B, S) their peaks."""
    peaks = rows.fade.new_empty(plan.B, plan.segments)
    start(
        row_factors, (plan.B, plan.segments), (saved.decay, saved.cum, rows.fade, rows.growth, rows.rise, peaks),
        (plan.L, plan.rows), H=plan.H, T=STEP, CAUSAL=plan.causal,
    )  # fmt: skip
    return peaks


def _whole(
    channels: Channels, shares: Tensor, g: Tensor, saved: Saved, rows: Rows, folded: Folded, mix: Tensor, plan: Plan
) -> None:
    """B2 and B3 where every row reads the whole series; add to dx and fill g, E, F."""
    B, S, D, H, operand = plan.B, plan.segments, plan.D, plan.H, OPERANDS[plan.precision]
    dx, peaks, lengths = channels.dx1, channels.peaks, (plan.L, plan.rows)
    reverse = saved.partial.new_empty(B, H, plan.K, plan.K)
    start(
        read_backward, (B, S),
        (saved.x, dx, peaks, rows.fade, saved.partial, folded.heads, folded.heads_bias, mix, rows.e, g),
        (*lengths, peaks.shape[1]),
        D=D, H=H, PEAKS=_room(peaks.shape[1]), PRECISION=plan.precision, OPERAND=operand,
        **_launch("read", plan),
    )  # fmt: skip
    start(
        query_gradients, (B,), (saved.partial, folded.heads, folded.heads_bias, reverse, g), (S,),
        D=D, H=H, PRECISION="ieee" if plan.precision == "ieee" else "tf32", num_warps=8,
    )  # fmt: skip
    start(
        write_backward, (B, S),
        (saved.x, dx, rows.rise, rows.growth, shares, reverse, folded.heads, folded.heads_bias, rows.f, g), lengths,
        D=D, H=H, SHARES=_room(B * S), OPERAND=operand, **_launch("write", plan),
    )  # fmt: skip


def _causal(
    channels: Channels, shares: Tensor, g: Tensor, saved: Saved, rows: Rows, folded: Folded, mix: Tensor, plan: Plan
) -> None:
    """B2 and B3 where a row reads the rows up to it; add to dx and fill g, E, F."""
    B, S, D, H, operand = plan.B, plan.segments, plan.D, plan.H, OPERANDS[plan.precision]
    dx, peaks, lengths, grid = channels.dx1, channels.peaks, (plan.L, plan.rows), (H, B, S)
    reverse = torch.empty_like(saved.partial)
    dy, da, db = dx.new_empty(3, *dx.shape, dtype=DTYPES[operand])  # da, db: dq, do and then dk, dv
    units, chunk_units = g.new_empty(5), g.new_empty(B, plan.total_chunks, H)
    heads, several = (folded.heads, folded.heads_bias), _room(B * S)
    projected = (saved.x, dx, da, db, units, chunk_units, *heads, g)
    project = {"D": D, "H": H, "PRECISION": plan.precision, "OPERAND": operand, **_launch("causal_project", plan)}
    start(
        causal_read, grid,
        (
            saved.x, dx, peaks, rows.fade, rows.rise, shares, saved.partial, saved.span, *heads, mix,
            dy, da, db, units, rows.e, reverse, g,
        ),
        (*lengths, peaks.shape[1]),
        D=D, H=H, PEAKS=_room(peaks.shape[1]), SHARES=several, PRECISION=plan.precision, OPERAND=operand,
        **_launch("causal_read", plan),
    )  # fmt: skip
    start(causal_project, (B, S), projected, lengths, PART=0, **project)
    start(
        causal_write, grid,
        (
            saved.x, dy, rows.fade, rows.rise, rows.growth, shares, reverse, saved.span, *heads,
            da, db, units, chunk_units, rows.f,
        ),
        lengths, D=D, H=H, SHARES=several, PRECISION=plan.precision, OPERAND=operand,
        **_launch("causal_write", plan),
    )  # fmt: skip
    start(causal_project, (B, S), projected, lengths, PART=2, **project)


def _gates(rows: Rows, saved: Saved, theta: Tensor, plan: Plan) -> Tensor:
    """B4: put the gradient before the sigmoid of the gate in E's place -> (B, S, H) parts of that of mu."""
    grid, shape = (plan.B, plan.segments), (4, plan.B, plan.segments, plan.H)
    changes, budgets, shares, g_mu = theta.new_empty(shape, dtype=torch.float64)
    slope = torch.empty_like(rows.e, dtype=torch.float64)
    known, lengths = (saved.decay, saved.gates, saved.deltas, theta), (plan.L, plan.rows)
    sizes = {"H": plan.H, "T": STEP}
    several = {"SEGMENTS": power_of_two(plan.segments), "PREFIX": plan.norm == "prefix"}
    start(segment_sums, grid, (rows.e, rows.f, *known, changes, budgets), lengths, **sizes)
    both = (rows.e, rows.f, *known, changes, budgets, slope, shares)
    start(decay_gradient, grid, both, lengths, **sizes, **several)
    start(gate_gradient, grid, (slope, *known, budgets, shares, rows.e, g_mu), lengths, **sizes, **several)
    return g_mu


def _gate(dx: Tensor, slope: Tensor, x: Tensor, folded: Folded, plan: Plan) -> Tensor:
    """B5, adds to dx -> (…, H, D) parts of `gate_backward`."""
    N, D, H = plan.B * plan.L, plan.D, plan.H
    launch = _launch("gate", plan)
    programs = min(GATE_PROGRAMS, -(-N // launch["T"]))
    g = slope.new_empty(programs, H, D)
    start(
        gate_backward, (programs,), (x, dx, slope, folded.gate, g), (N,), D=D, H=H, PRECISION=plan.precision, **launch
    )
    return g


def _gradients(hidden: Tensor, time: Tensor, gate: Tensor, mu: Tensor, w: MixerWeights, plan: Plan) -> Tensor:
    """From the parts of the programs to the gradients of all weights, one after the other."""
    D, H, FP = plan.D, plan.H, hidden.shape[2]
    sizes = (3 * FP * D, 5 * D * D, H * D, H)
    counts = (hidden.shape[0], plan.B * plan.segments, gate.shape[0])
    numbers = [p.numel() for p in w]
    g, sums = w.wq.new_empty(sum(numbers)), hidden.new_empty(sum(sizes[:3]))
    start(
        sum_parts, (sum(-(-size // SUM_BLOCK) for size in sizes),), (hidden, time, gate, mu, w.theta, sums, g),
        (*counts, *sizes, sum(numbers[: w._fields.index("theta")])), BLOCK=SUM_BLOCK,
    )  # fmt: skip
    start(
        weight_gradients, (2,),
        (sums, w.norm1, w.norm1_bias, w.wq, w.wk, w.wv, w.wo, w.wg, w.norm2, w.norm2_bias, w.w_up, g),
        (_key_scale(plan), plan.F), D=D, H=H, FP=FP, SLICE=SLICE,
    )  # fmt: skip
    return g
