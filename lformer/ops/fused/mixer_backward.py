"""Backward pass of one fused mixer: five steps, between which only small tensors and the gradient of x travel.

B1  channel mixer   x1, dx2 -> dx1
B2  reading         x, dx1 -> dx so far, E = dy · y, R
B3  writing         x, R -> more of dx, F = gradient of the write weight
B4  decay           E, F -> gradient of the gate
B5  gate            x -> the rest of dx
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from lformer.ops.fused.backward_channel import channel_backward
from lformer.ops.fused.backward_gates import decay_gradient, gate_gradient, segment_sums
from lformer.ops.fused.backward_read import read_backward
from lformer.ops.fused.backward_write import gate_backward, write_backward
from lformer.ops.fused.plan import CHUNK, MixerWeights, Plan, Saved


class Launch(NamedTuple):
    """How a kernel is launched."""

    T: int  # rows of a tile; of a causal kernel the plan's chunk
    num_warps: int
    num_stages: int = 1


LAUNCHES = {  # kernel, precision
    ("channel", "tf32"): Launch(128, 8),
    ("channel", "bf16"): Launch(128, 8),
    ("read", "tf32"): Launch(128, 8),
    ("read", "bf16"): Launch(128, 8),
    ("causal_read", "tf32"): Launch(CHUNK, 8),
    ("causal_read", "bf16"): Launch(CHUNK, 8),
    ("write", "tf32"): Launch(128, 8),
    ("write", "bf16"): Launch(128, 8),
    ("causal_write", "tf32"): Launch(CHUNK, 8),
    ("causal_write", "bf16"): Launch(CHUNK, 8),
    ("gate", "tf32"): Launch(64, 8),
    ("gate", "bf16"): Launch(64, 8),
}
PROGRAMS = 132  # of B1, which takes the rows of all series as one: one for each multiprocessor
GATE_PROGRAMS = 8 * PROGRAMS  # of B5, likewise, but it waits for memory
GROUP = 512  # rows that B1 takes through all slices of the hidden layer before the next ones
SLICE = 64  # hidden units of a slice
STEP = 256  # rows of a tile where a row is H numbers (B4)


def backward(grad: Tensor, saved: Saved, weights: MixerWeights, plan: Plan) -> tuple[Tensor, MixerWeights]:
    """(B, L, D) gradient of x2 -> (B, L, D) gradient of x, and the float32 gradients of the weights."""
    w = MixerWeights(*(weight.float() for weight in weights))
    hidden = Projection(w.norm2, w.norm2_bias, w.w_up, torch.zeros_like(w.w_up[:, 0]))
    dx, g_up, s_up, g_down = _channel(grad, saved.x1, hidden, w.w_down, plan)
    norm2, norm2_bias, w_up, _ = hidden.gradients(g_up, s_up)

    heads = _head_projection(w, plan)
    factors = Factors.of(saved.decay, saved.cum)
    e, reverse, dread, g_read, s_read, g_mix = _read(dx, saved, factors, heads, w.wm, plan)
    f, g_write, s_write = _write(dx, dread, reverse, saved, factors, heads, plan)
    del dread, factors
    slope, g_mu = _gates(e, f, saved, w.mu, plan)
    g_gate, s_gate = _gate(dx, slope, saved.x, heads, plan)
    G, s = torch.cat([g_read, g_write, g_gate]), torch.cat([s_read, s_write, s_gate])
    norm1, norm1_bias, weight, bias = heads.gradients(G, s)

    sizes = [plan.D] * 4 + [plan.H]
    (wq, wo, wk, wv, wg), (bq, bo, bk, bv, bg) = weight.split(sizes), bias.split(sizes)
    scale = _key_scale(plan)
    return dx, MixerWeights(
        norm1, norm1_bias, wq, bq, wk * scale, bk, wv, bv, wo, bo, wg, bg, g_mu, g_mix,
        norm2, norm2_bias, w_up, g_down,
    )  # fmt: skip


class Projection:
    """LN(x) Wᵀ + b as the kernels see it: x̂ (W γ)ᵀ + (b + W β), with x̂ the rows of mean 0 and variance 1.

    From G = Σ over rows of (gradient)ᵀ x̂ and s = Σ over rows of the gradient follow dW = G γ + s βᵀ, db = s,
    dγ = Σ_out W G and dβ = Wᵀ s.
    """

    def __init__(self, norm: Tensor, norm_bias: Tensor, weight: Tensor, bias: Tensor) -> None:
        """(in,), (in,), (out, in), (out,)"""
        self.norm, self.norm_bias, self.raw = norm, norm_bias, weight
        self.weight = weight * norm
        self.bias = bias + (weight * norm_bias).sum(dim=1)

    def gradients(self, G: Tensor, s: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(out, in), (out,) -> dγ, dβ, dW, db"""
        weight = torch.addcmul(s[:, None] * self.norm_bias, G, self.norm)
        return (self.raw * G).sum(dim=0), (self.raw * s[:, None]).sum(dim=0), weight, s


class Factors(NamedTuple):
    """Weights of rows in the memory, (B, L, H): exponentials that many channels share are taken once."""

    fade: Tensor  # e^{-c}, of reading
    growth: Tensor  # e^{c}
    rise: Tensor  # e^{c} w, of writing

    @staticmethod
    def of(decay: Tensor, cum: Tensor) -> Factors:
        growth = torch.exp(cum)
        return Factors(torch.exp(-cum), growth, growth * -torch.expm1(-decay))


def _head_projection(w: MixerWeights, plan: Plan) -> Projection:
    """All projections of the time mixer as one: q, o, k, v, gate."""
    scale = _key_scale(plan)  # of the weight alone, as in `nn`
    weight = torch.cat([w.wq, w.wo, w.wk * scale, w.wv, w.wg])
    return Projection(w.norm1, w.norm1_bias, weight, torch.cat([w.bq, w.bo, w.bk, w.bv, w.bg]))


def _key_scale(plan: Plan) -> float:
    return 1 / math.sqrt(plan.K)


def _launch(kernel: str, plan: Plan) -> dict[str, int]:
    return LAUNCHES.get((kernel, plan.precision), Launch(CHUNK, 4))._asdict()


def _channel(
    grad: Tensor, x1: Tensor, hidden: Projection, w_down: Tensor, plan: Plan
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """B1 -> gradient of x1; G and s of the hidden layer, (2F, D), (2F,); gradient of w_down."""
    D, F, N = plan.D, plan.F, plan.B * plan.L
    launch = _launch("channel", plan)
    programs = min(PROGRAMS, -(-N // GROUP))
    dx1 = torch.empty_like(x1)
    g_up = w_down.new_empty(programs, 2, D, F)
    g_bias = w_down.new_empty(programs, 2 * F)
    g_down = w_down.new_empty(programs, D, F)
    scratch = w_down.new_empty(programs, GROUP, D)
    channel_backward[(programs,)](
        x1, grad.contiguous(), hidden.weight, hidden.bias, w_down.contiguous(), dx1, g_up, g_bias, g_down, scratch,
        N, F, D=D, TILES=GROUP // launch["T"], SLICE=SLICE, PRECISION=plan.precision, **launch,
    )  # fmt: skip
    return dx1, g_up.sum(dim=0).mT.flatten(0, 1), g_bias.sum(dim=0), g_down.sum(dim=0)


def _read(
    dx: Tensor, saved: Saved, factors: Factors, heads: Projection, mix: Tensor, plan: Plan
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """B2, adds to dx -> E, R, dy (causal); G and s of q and o, (2D, D), (2D,); gradient of W_m."""
    B, S, D = plan.B, plan.segments, plan.D
    e = torch.empty_like(saved.gates)
    reverse = torch.empty_like(saved.partial)
    dread = torch.empty_like(dx) if plan.causal else dx[:0]
    g_weight, g_bias = e.new_empty(B, S, 3, D, D), e.new_empty(B, S, 2, D)
    memory = saved.partial if plan.causal else saved.partial.sum(dim=1)
    launch = _launch("causal_read" if plan.causal else "read", plan)
    read_backward[(B, S)](
        saved.x, dx, factors.fade, factors.rise, memory, saved.span, heads.weight, heads.bias, mix.contiguous(),
        dread, e, reverse, g_weight, g_bias, plan.L, plan.rows,
        D=D, H=plan.H, CAUSAL=plan.causal, PRECISION=plan.precision, **launch,
    )  # fmt: skip
    g_weight, g_bias = g_weight.sum(dim=1), g_bias.sum(dim=1)  # of each series
    G, s = g_weight.sum(dim=0), g_bias.sum(dim=0)
    g_query, s_query = G[0].mT, s[0]
    if not plan.causal:
        reverse, g_query, s_query = _query_gradients(g_weight[:, 0], g_bias[:, 0], memory, heads, plan)
    return e, reverse, dread, torch.cat([g_query, G[1].mT]), torch.cat([s_query, s[1]]), G[2]


def _query_gradients(
    Z: Tensor, z: Tensor, memory: Tensor, heads: Projection, plan: Plan
) -> tuple[Tensor, Tensor, Tensor]:
    """Z = Σ x̂ᵀ a (B, in, D), z = Σ a (B, D), memory S (B, H, K, V) -> R (B, H, K, V); G (D, in) and s (D,) of q.

    With a = e^{-c} dy, queries q = x̂ W_qᵀ + b_q have the gradient a Sᵀ, and R = Σ qᵀ a.
    """
    H, K, D = plan.H, plan.K, plan.D
    Z, z = Z.unflatten(2, (H, K)).permute(0, 2, 1, 3), z.unflatten(1, (H, K))  # (B, H, in, V), (B, H, V)
    weight, bias = heads.weight[:D].view(H, K, D), heads.bias[:D].view(H, K)
    reverse = weight @ Z + bias[:, :, None] * z[:, :, None, :]
    G = (memory @ Z.mT).sum(dim=0).flatten(0, 1)
    return reverse, G, (memory * z[:, :, None, :]).sum(dim=(0, 3)).flatten()


def _write(
    dx: Tensor, dread: Tensor, reverse: Tensor, saved: Saved, factors: Factors, heads: Projection, plan: Plan
) -> tuple[Tensor, Tensor, Tensor]:
    """B3, adds to dx -> F; G and s of k and v, (2D, D), (2D,)."""
    B, S, D, H = plan.B, plan.segments, plan.D, plan.H
    f = torch.empty_like(saved.gates)
    g_weight, g_bias = f.new_empty(B, S, 2, D, D), f.new_empty(B, S, 2, D)
    launch = _launch("causal_write" if plan.causal else "write", plan)
    write_backward[(B, S)](
        saved.x, dx, dread, factors.fade, factors.rise, factors.growth, reverse.contiguous(), saved.span,
        heads.weight, heads.bias, f, g_weight, g_bias, plan.L, plan.rows,
        D=D, H=H, CAUSAL=plan.causal, PRECISION=plan.precision, **launch,
    )  # fmt: skip
    return f, g_weight.sum(dim=(0, 1)).mT.flatten(0, 1), g_bias.sum(dim=(0, 1)).flatten()


def _gates(e: Tensor, f: Tensor, saved: Saved, mu: Tensor, plan: Plan) -> tuple[Tensor, Tensor]:
    """B4 -> (B, L, H) gradient before the sigmoid of the gate, (H,) gradient of mu."""
    grid, shape = (plan.B, plan.segments), (4, plan.B, plan.segments, plan.H)
    changes, budgets, shares, g_mu = torch.empty(shape, dtype=torch.float64, device=e.device)
    slope, gate_slope = torch.empty_like(e, dtype=torch.float64), torch.empty_like(e)
    known = (saved.decay, saved.gates, saved.deltas.float(), mu.contiguous())
    sizes = {"L": plan.L, "length": plan.rows, "H": plan.H, "T": STEP}
    several = {"SEGMENTS": 1 << (plan.segments - 1).bit_length(), "PREFIX": plan.norm == "prefix"}
    segment_sums[grid](e, f, *known, changes, budgets, **sizes)
    decay_gradient[grid](e, f, *known, changes, budgets, slope, shares, **sizes, **several)
    gate_gradient[grid](slope, *known, budgets, shares, gate_slope, g_mu, **sizes, **several)
    return gate_slope, g_mu.sum(dim=(0, 1)).float()


def _gate(dx: Tensor, slope: Tensor, x: Tensor, heads: Projection, plan: Plan) -> tuple[Tensor, Tensor]:
    """B5, adds to dx -> G and s of the gate, (H, D), (H,)."""
    N, D, H = plan.B * plan.L, plan.D, plan.H
    launch = _launch("gate", plan)
    programs = min(GATE_PROGRAMS, -(-N // launch["T"]))
    g_weight, g_bias = slope.new_empty(programs, H, D), slope.new_empty(programs, H)
    gate_backward[(programs,)](
        x, dx, slope, heads.weight[4 * D :], g_weight, g_bias, N,
        D=D, H=H, PRECISION=plan.precision, **launch,
    )  # fmt: skip
    return g_weight.sum(dim=0), g_bias.sum(dim=0)
