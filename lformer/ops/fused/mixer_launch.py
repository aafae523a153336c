"""Launch the forward kernels of the fused mixer: outputs, grids, and the written table of launch parameters."""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from lformer.ops.fused import mixer_forward as kernels
from lformer.ops.fused.launching import start
from lformer.ops.fused.mixer_causal import segment_kernel
from lformer.ops.fused.plan import MixerWeights, Plan


class Launch(NamedTuple):
    """How one kernel runs."""

    rows: int = 64  # of a tile; `segment` always takes one chunk
    warps: int = 4
    stages: int = 1  # tiles on their way from memory at a time
    widest: int = 64  # hidden columns of the channel mixer at a time, a power of two
    narrowest: int = 64  # down to which the last columns are taken apart; the rest is filled with zeros
    keep: int = 2  # which weights of `read` stay in shared memory for all tiles: 2 all, 1 the time mixer's, 0 none


# By kernel, width and precision; what is missing takes the default. A tuning script may write here.
LAUNCHES: dict[tuple[str, int, str], Launch] = {
    ("read", 32, "tf32"): Launch(widest=32, narrowest=32),
    ("read", 32, "bf16"): Launch(widest=32, narrowest=32),
    ("read", 64, "tf32"): Launch(rows=128, warps=8, narrowest=16),
    ("read", 128, "tf32"): Launch(warps=8, keep=0),
    ("read", 128, "bf16"): Launch(warps=8, keep=1),
    ("segment", 128, "tf32"): Launch(warps=8),
    ("segment", 128, "bf16"): Launch(warps=8),
    ("accumulate", 128, "tf32"): Launch(warps=8),
    ("accumulate", 128, "bf16"): Launch(warps=8),
}
DEFAULTS = {"gates": Launch(), "accumulate": Launch(), "segment": Launch(), "read": Launch()}
DECAY_ROWS = 512  # of a tile of `decay`, at most; it is narrow
INTERVAL_ROWS = 1024


class Decay(NamedTuple):
    """What follows from the gates of a layer; `mixer_forward.decay_kernel` says more."""

    decay: Tensor  # (B, L, H) û
    cum: Tensor  # (B, L, H) its running sum, causal: within the chunk
    span: Tensor  # (B, S, H) causal: the decay across each segment
    fall: Tensor  # (B, L, H) causal: e^{C - c}, C being the decay across the chunk
    rise: Tensor  # (B, L, H) causal: e^{c - C} w
    reach: Tensor  # (B, L, H) the running sum, causal: within the segment


class Reading(NamedTuple):
    """What the last kernel of a layer leaves; None where it was not asked for."""

    x2: Tensor | None  # (B, L, D)
    x1: Tensor | None  # (B, L, D)
    gates: Tensor | None  # (B, L, H) of the next layer
    sums: Tensor | None  # (B, S, H) of the next layer
    pooled: Tensor | None  # (B, S, D) sums of valid rows


def intervals(
    deltas: Tensor, times: Tensor, lengths: Tensor, first_interval: Tensor, typical: bool, mean: bool
) -> Tensor:
    """(B, L) with the first interval of every series filled in."""
    filled = torch.empty_like(deltas)
    B, L = deltas.shape
    start(
        kernels.intervals_kernel, (B, -(-L // INTERVAL_ROWS)), (deltas, times, lengths, first_interval, filled), (L,),
        BLOCK=INTERVAL_ROWS, TYPICAL=typical, MEAN=mean, num_warps=4,
    )  # fmt: skip
    return filled


def mean(pooled: Tensor, lengths: Tensor, like: Tensor, plan: Plan) -> Tensor:
    """(B, S, D) sums of valid rows -> (B, D) their mean, in the dtype of `like`."""
    out = like.new_empty(plan.B, plan.D)
    start(
        kernels.mean_kernel, (plan.B,), (pooled, lengths, out), (plan.segments,),
        D=plan.D, SEGMENTS=power_of_two(plan.segments), num_warps=4,
    )  # fmt: skip
    return out


def gates(x: Tensor, deltas: Tensor, w: MixerWeights, plan: Plan) -> tuple[Tensor, Tensor]:
    """(B, L, D), (B, L) -> x̃ (B, L, H) and what each segment adds to U, (B, S, H)."""
    launch = _launch("gates", plan)
    x_tilde, sums = x.new_empty(plan.B, plan.L, plan.H, dtype=torch.float32), _per_segment(x, plan, plan.H)
    start(
        kernels.gates_kernel, _grid(plan),
        (x, deltas, w.norm1, w.norm1_bias, w.wg, w.bg, w.theta, x_tilde, sums), _lengths(plan),
        D=plan.D, H=plan.H, T=launch.rows, PRECISION=plan.precision, num_warps=launch.warps, num_stages=launch.stages,
    )  # fmt: skip
    return x_tilde, sums


def decay(x_tilde: Tensor, sums: Tensor, deltas: Tensor, theta: Tensor, plan: Plan) -> Decay:
    """(B, L, H), (B, S, H), (B, L), (H,) -> û and what follows from it."""
    u_hat, cum, span = torch.empty_like(x_tilde), torch.empty_like(x_tilde), _per_segment(x_tilde, plan, plan.H)
    fall, rise, reach = x_tilde.new_empty(3, *x_tilde.shape) if plan.causal else (cum, cum, cum)
    start(
        kernels.decay_kernel, _grid(plan),
        (x_tilde, deltas, theta, sums, u_hat, cum, span, fall, rise, reach), _lengths(plan),
        H=plan.H, T=min(DECAY_ROWS, power_of_two(plan.rows)), CHUNK=plan.chunk,
        SEGMENTS=power_of_two(plan.segments), CAUSAL=plan.causal, PREFIX=plan.norm == "prefix",
        num_warps=4, num_stages=1, **early(plan, x_tilde),
    )  # fmt: skip
    return Decay(u_hat, cum, span, fall, rise, reach)


def accumulate(x: Tensor, u_hat: Tensor, cum: Tensor, w: MixerWeights, plan: Plan) -> Tensor:
    """-> (B, S, H, K, V) what each segment writes, where every row reads the whole series."""
    launch = _launch("accumulate", plan)
    partial = _per_segment(x, plan, plan.H, plan.K, plan.K)
    start(
        kernels.accumulate_kernel, _grid(plan),
        (x, u_hat, cum, w.norm1, w.norm1_bias, w.wk, w.bk, w.wv, w.bv, partial),
        (1 / math.sqrt(plan.K), *_lengths(plan)),
        D=plan.D, H=plan.H, T=launch.rows, PRECISION=plan.precision,
        num_warps=launch.warps, num_stages=launch.stages, **early(plan, x),
    )  # fmt: skip
    return partial


def segment(x: Tensor, rates: Decay, w: MixerWeights, plan: Plan) -> tuple[Tensor, Tensor]:
    """-> (B, L, D) what each row of a causal mixer reads of its own segment, (B, S, H, K, V) what a segment leaves."""
    launch = _launch("segment", plan)
    y, partial = torch.empty_like(x), _per_segment(x, plan, plan.H, plan.K, plan.K)
    start(
        segment_kernel, _grid(plan),
        (
            x, rates.cum, rates.fall, rates.rise, w.norm1, w.norm1_bias, w.wq, w.bq, w.wk, w.bk, w.wv, w.bv,
            y, partial,
        ),
        (1 / math.sqrt(plan.K), *_lengths(plan)),
        D=plan.D, H=plan.H, T=plan.chunk, PREFIX=plan.norm == "prefix", PRECISION=plan.precision,
        num_warps=launch.warps, num_stages=launch.stages, **early(plan, x),
    )  # fmt: skip
    return y, partial


def read(
    x: Tensor,
    y: Tensor,
    deltas: Tensor,
    rates: Decay,
    partial: Tensor,
    w: MixerWeights,
    plan: Plan,
    *,
    store_x1: bool = False,
    following: MixerWeights | None = None,
    pool_lengths: Tensor | None = None,
) -> Reading:
    """-> x2; with `following` also the gates of the layer of those weights; with `pool_lengths` sums in x2's place.

    y is what `segment` gives; where the mixer is not causal, nothing looks at it.
    """
    launch = _launch("read", plan)
    after = w if following is None else following
    pool, emit = pool_lengths is not None, following is not None
    out = Reading(
        x2=None if pool else torch.empty_like(x),
        x1=torch.empty_like(x) if store_x1 else None,
        gates=torch.empty_like(rates.reach) if emit else None,
        sums=_per_segment(x, plan, plan.H) if emit else None,
        pooled=_per_segment(x, plan, plan.D) if pool else None,
    )
    x1, x2, lengths, pooled, gates, sums = (
        x if t is None else t  # where nothing is wanted the kernel touches nothing
        for t in (out.x1, out.x2, pool_lengths, out.pooled, out.gates, out.sums)
    )
    start(
        kernels.read_kernel, _grid(plan),
        (
            x, y, rates.reach, partial, rates.span, w.norm1, w.norm1_bias, w.wq, w.bq, w.wo, w.bo, w.wm,
            w.norm2, w.norm2_bias, w.w_up, w.w_down, x1, x2, lengths, pooled, deltas,
            after.norm1, after.norm1_bias, after.wg, after.bg, after.theta, gates, sums,
        ),
        _lengths(plan),
        D=plan.D, H=plan.H, F=plan.F, T=launch.rows,
        SLICES=hidden_slices(plan.F, launch.widest, launch.narrowest), KEEP=launch.keep, CAUSAL=plan.causal,
        STORE_X1=store_x1, POOL=pool, EMIT=emit, PRECISION=plan.precision,
        num_warps=launch.warps, num_stages=launch.stages, **early(plan, x),
    )  # fmt: skip
    return out


@cache
def hidden_slices(F: int, widest: int, narrowest: int) -> tuple[tuple[int, int], ...]:
    """(start, width) of slices that cover F columns: powers of two from the widest to the narrowest."""
    slices, start, width = [], 0, widest
    while start < F:
        while width > narrowest and start + width > F:
            width //= 2
        slices.append((start, width))
        start += width
    return tuple(slices)


def early(plan: Plan, x: Tensor) -> dict[str, bool]:
    """Options of a kernel whose rows come from the kernel launched right before it, and none of whose weights does.

    Where TF32 is not causal, one program of `read` fills a multiprocessor, and who begins early only waits in the way.
    """
    begin = x.is_cuda and (plan.causal or plan.precision != "tf32")
    return {"EARLY": True, "launch_pdl": True} if begin else {"EARLY": False}


def _launch(kernel: str, plan: Plan) -> Launch:
    return LAUNCHES.get((kernel, plan.D, plan.precision), DEFAULTS[kernel])


def _grid(plan: Plan) -> tuple[int]:
    return (plan.B * plan.segments,)


def _lengths(plan: Plan) -> tuple[int, int, int]:
    """Rows of a series, its segments, rows of a segment: what every kernel asks for."""
    return plan.L, plan.segments, plan.rows


def _per_segment(x: Tensor, plan: Plan, *shape: int) -> Tensor:
    return x.new_empty(plan.B, plan.segments, *shape, dtype=torch.float32)


def power_of_two(n: int) -> int:
    """The smallest one that is not below n."""
    return 1 << (n - 1).bit_length()
