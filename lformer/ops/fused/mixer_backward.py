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
    ("causal_project", "tf32"): Launch(CHUNK, 8),
    ("causal_project", "bf16"): Launch(CHUNK, 8),
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
    """The weights as the kernels take them, see `fold_weights`."""

    hidden: Tensor  # (3, FP, D), FP = F filled up to whole slices
    hidden_bias: Tensor  # (2, FP)
    scales: Tensor  # (3,)
    heads: Tensor  # (4 D + H, D) q, o, k, v, gate
    heads_bias: Tensor  # (4 D + H,)


class Factors(NamedTuple):
    """Weights of rows in the memory, (B, L, H), see `row_factors`."""

    fade: Tensor
    growth: Tensor
    rise: Tensor
    peaks: Tensor  # (B, S)


def backward(grad: Tensor, saved: Saved, weights: MixerWeights, plan: Plan) -> tuple[Tensor, MixerWeights]:
    """(B, L, D) gradient of x2 -> (B, L, D) gradient of x, and those of the weights, a tensor each in its dtype."""
    w = MixerWeights(*(weight.contiguous() for weight in weights))
    folded = _fold(w, plan)
    dx, peaks, g_hidden = _channel(grad.contiguous(), saved.x1, folded, plan)

    factors = _factors(saved, plan)
    g_time = factors.peaks.new_empty(plan.B, plan.segments, 5, plan.D, plan.D)
    e, f = (_causal if plan.causal else _whole)(dx, peaks, g_time, saved, factors, folded, w.wm, plan)
    del factors
    slope, g_mu = _gates(e, f, saved, w.mu, plan)
    g_gate = _gate(dx, slope, saved.x, folded, plan)
    return dx, _gradients(g_hidden, g_time.flatten(0, 1), g_gate, g_mu.flatten(0, 1), w, plan)


def _key_scale(plan: Plan) -> float:
    """Of the weight of keys alone, as in `nn`."""
    return 1 / math.sqrt(plan.K)


def _launch(kernel: str, plan: Plan) -> dict[str, int]:
    return LAUNCHES.get((kernel, plan.precision), Launch(CHUNK, 4))._asdict()


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


def _padded(F: int) -> int:
    return -(-F // SLICE) * SLICE


def _fold(w: MixerWeights, plan: Plan) -> Folded:
    D, FP, rows, operand = plan.D, _padded(plan.F), 4 * plan.D + plan.H, OPERANDS[plan.precision]

    def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=w.wq.device)

    hidden = empty(3, FP, D, dtype=DTYPES[operand])
    folded = Folded(hidden, empty(2, FP), empty(3), empty(rows, D), empty(rows))
    fold_weights[(7,)](
        w.norm1, w.norm1_bias, w.wq, w.bq, w.wk, w.bk, w.wv, w.bv, w.wo, w.bo, w.wg, w.bg, w.norm2, w.norm2_bias,
        w.w_up, w.w_down, *folded, _key_scale(plan), plan.F, D=D, H=plan.H, FP=FP, SLICE=SLICE, OPERAND=operand,
    )  # fmt: skip
    return folded


def _channel(grad: Tensor, x1: Tensor, folded: Folded, plan: Plan) -> tuple[Tensor, Tensor, Tensor]:
    """B1 -> gradient of x1, peaks of its size, parts (…, 3, FP, D) of `channel_weights`."""
    D, FP, N = plan.D, folded.hidden.shape[1], plan.B * plan.L
    known = (x1, grad, folded.hidden, folded.hidden_bias, folded.scales)
    sizes = {"D": D, "FP": FP, "SLICE": SLICE, "PRECISION": plan.precision, "OPERAND": OPERANDS[plan.precision]}

    launch = _launch("channel_rows", plan)
    programs = min(PROGRAMS, -(-N // launch["T"]))
    dx1, peaks = torch.empty_like(x1), folded.scales.new_empty(2, programs)
    keep = folded.hidden.numel() * folded.hidden.element_size() <= KEPT
    channel_rows[(programs,)](*known, dx1, peaks, N, KEEP=keep, **sizes, **launch)

    launch = _launch("channel_weights", plan)
    slices = FP // SLICE
    parts = min(max(1, PROGRAMS // slices), -(-N // launch["T"]))
    g = folded.scales.new_empty(parts, 3, FP, D)
    channel_weights[(slices, parts)](
        *known, peaks, g, N, programs, PEAKS=_power_of_two(programs), **sizes, **launch
    )  # fmt: skip
    return dx1, peaks[1], g


def _factors(saved: Saved, plan: Plan) -> Factors:
    fade, growth, rise = torch.empty((3, *saved.cum.shape), dtype=torch.float32, device=saved.cum.device)
    factors = Factors(fade, growth, rise, fade.new_empty(plan.B, plan.segments))
    row_factors[(plan.B, plan.segments)](
        saved.decay, saved.cum, *factors, plan.L, plan.rows, H=plan.H, T=STEP, CAUSAL=plan.causal
    )
    return factors


def _whole(
    dx: Tensor, peaks: Tensor, g: Tensor, saved: Saved, factors: Factors, folded: Folded, mix: Tensor, plan: Plan
) -> tuple[Tensor, Tensor]:
    """B2 and B3 where every row reads the whole series; add to dx and fill g -> E, F."""
    B, S, D, H, operand = plan.B, plan.segments, plan.D, plan.H, OPERANDS[plan.precision]
    e, f = torch.empty_like(saved.gates), torch.empty_like(saved.gates)
    reverse = saved.partial.new_empty(B, H, plan.K, plan.K)
    read_backward[(B, S)](
        saved.x, dx, peaks, factors.fade, saved.partial, folded.heads, folded.heads_bias, mix, e, g,
        plan.L, plan.rows, peaks.shape[0],
        D=D, H=H, PEAKS=_power_of_two(peaks.shape[0]), PRECISION=plan.precision, OPERAND=operand,
        **_launch("read", plan),
    )  # fmt: skip
    query_gradients[(B,)](
        saved.partial, folded.heads, folded.heads_bias, reverse, g, S,
        D=D, H=H, PRECISION="ieee" if plan.precision == "ieee" else "tf32", num_warps=8,
    )  # fmt: skip
    write_backward[(B, S)](
        saved.x, dx, factors.rise, factors.growth, factors.peaks, reverse, folded.heads, folded.heads_bias, f, g,
        plan.L, plan.rows, D=D, H=H, SHARES=_power_of_two(B * S), OPERAND=operand, **_launch("write", plan),
    )  # fmt: skip
    return e, f


def _causal(
    dx: Tensor, peaks: Tensor, g: Tensor, saved: Saved, factors: Factors, folded: Folded, mix: Tensor, plan: Plan
) -> tuple[Tensor, Tensor]:
    """B2 and B3 where a row reads the rows up to it; add to dx and fill g -> E, F."""
    B, S, D, H, operand = plan.B, plan.segments, plan.D, plan.H, OPERANDS[plan.precision]
    grid, L, length = (H, B, S), plan.L, plan.rows
    e, f, reverse = torch.empty_like(saved.gates), torch.empty_like(saved.gates), torch.empty_like(saved.partial)
    dy, dq, do, dk, dv = (torch.empty_like(dx, dtype=DTYPES[operand]) for _ in range(5))
    units, chunk_units = e.new_empty(5), e.new_empty(B, plan.total_chunks, H)
    heads, several = (folded.heads, folded.heads_bias), _power_of_two(B * S)
    causal_read[grid](
        saved.x, dx, peaks, factors.fade, factors.rise, factors.peaks, saved.partial, saved.span, *heads, mix,
        dy, dq, do, units, e, reverse, g, L, length, peaks.shape[0],
        D=D, H=H, PEAKS=_power_of_two(peaks.shape[0]), SHARES=several, PRECISION=plan.precision, OPERAND=operand,
        **_launch("causal_read", plan),
    )  # fmt: skip
    causal_write[grid](
        saved.x, dy, factors.fade, factors.rise, factors.growth, factors.peaks, reverse, saved.span, *heads,
        dk, dv, units, chunk_units, f, L, length,
        D=D, H=H, SHARES=several, OPERAND=operand, **_launch("causal_write", plan),
    )  # fmt: skip
    causal_project[(B, S)](
        saved.x, dx, dq, do, dk, dv, units, chunk_units, folded.heads, g, L, length,
        D=D, H=H, OPERAND=operand, **_launch("causal_project", plan),
    )  # fmt: skip
    return e, f


def _gates(e: Tensor, f: Tensor, saved: Saved, mu: Tensor, plan: Plan) -> tuple[Tensor, Tensor]:
    """B4 -> (B, L, H) gradient before the sigmoid of the gate, (B, S, H) parts of that of mu."""
    grid, shape = (plan.B, plan.segments), (4, plan.B, plan.segments, plan.H)
    changes, budgets, shares, g_mu = torch.empty(shape, dtype=torch.float64, device=e.device)
    slope, gate_slope = torch.empty_like(e, dtype=torch.float64), torch.empty_like(e)
    known = (saved.decay, saved.gates, saved.deltas, mu)
    sizes = {"L": plan.L, "length": plan.rows, "H": plan.H, "T": STEP}
    several = {"SEGMENTS": _power_of_two(plan.segments), "PREFIX": plan.norm == "prefix"}
    segment_sums[grid](e, f, *known, changes, budgets, **sizes)
    decay_gradient[grid](e, f, *known, changes, budgets, slope, shares, **sizes, **several)
    gate_gradient[grid](slope, *known, budgets, shares, gate_slope, g_mu, **sizes, **several)
    return gate_slope, g_mu


def _gate(dx: Tensor, slope: Tensor, x: Tensor, folded: Folded, plan: Plan) -> Tensor:
    """B5, adds to dx -> (…, H, D) parts of `gate_backward`."""
    N, D, H = plan.B * plan.L, plan.D, plan.H
    launch = _launch("gate", plan)
    programs = min(GATE_PROGRAMS, -(-N // launch["T"]))
    g = slope.new_empty(programs, H, D)
    gate_backward[(programs,)](
        x, dx, slope, folded.heads[4 * D :], g, N, D=D, H=H, PRECISION=plan.precision, **launch
    )  # fmt: skip
    return g


def _gradients(hidden: Tensor, time: Tensor, gate: Tensor, mu: Tensor, w: MixerWeights, plan: Plan) -> MixerWeights:
    """From the parts of the programs, (…, size), to the gradients."""
    g = MixerWeights(*map(torch.empty_like, w))
    parts = (hidden, time, gate, mu)
    sums = [torch.empty_like(part[0]) for part in parts[:3]]
    sizes = [part[0].numel() for part in parts]
    blocks = sum(-(-size // SUM_BLOCK) for size in sizes)
    sum_parts[(blocks,)](*parts, *sums, g.mu, *(part.shape[0] for part in parts[:3]), *sizes, BLOCK=SUM_BLOCK)
    weight_gradients[(2,)](
        *sums, w.norm1, w.norm1_bias, w.wq, w.wk, w.wv, w.wo, w.wg, w.norm2, w.norm2_bias, w.w_up,
        g.norm1, g.norm1_bias, g.wq, g.bq, g.wk, g.bk, g.wv, g.bv, g.wo, g.bo, g.wg, g.bg, g.wm,
        g.norm2, g.norm2_bias, g.w_up, g.w_down,
        _key_scale(plan), plan.F, D=plan.D, H=plan.H, FP=hidden.shape[2], SLICE=SLICE,
    )  # fmt: skip
    return g
