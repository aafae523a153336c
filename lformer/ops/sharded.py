"""Liquid gated attention on series that are cut along time: each process holds one stretch of their rows.

The functions are those of `lformer.ops`, with the same numbers, for rows that lie in several processes. The process of
rank r holds the rows after those of rank r - 1; a stretch may have any length, also none. What is exchanged has the
size of a memory and not of a series: the last gate of a stretch, its total decay, and what it leaves in memory.

With `D_r` the decay over stretch r and `M_r` what its rows leave at its end, had they begun with nothing:

    causal       rows of stretch r begin with    Σ_{j<r} e^{-(D_{j+1} + … + D_{r-1})} M_j
    non-causal   every row reads                 Σ_j e^{D_1 + … + D_j} M_j, faded to it from the start of the series

Each call is one all-gather forward and one reduce-scatter backward, so that every process of the group must make the
same calls in the same order, and ask for gradients where the others do. The loss that is differentiated is the sum of
the losses of all processes: the gradient of a row is whole at its process, that of a parameter is the sum over them.
Without a process group that was started, the process is alone and exchanges nothing.
"""

from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from lformer.ops import checks, gates, parallel
from lformer.ops.gates import GateNorm

Group: TypeAlias = "dist.ProcessGroup | None"  # a string: a torch without processes has no such class


def liquid_decay(
    gate: Tensor, deltas: Tensor, mu: Tensor, lengths: Tensor | None = None, group: Group = None
) -> Tensor:
    """`ops.liquid_decay` of a stretch: its first row is preceded by the last valid row of an earlier one.

    Args:
        gate: (B, L, H) projected gate values `x̃` of this stretch.
        deltas: (B, L) intervals since the row before, that of the first row since the stretch before; 0 on padding.
        mu: (H,) or (1,) weight of the earlier endpoint.
        lengths: (B,) valid rows of this stretch; all if None.
        group: the processes that hold the stretches, in order; all if None.

    Returns:
        (B, L, H) decay `u >= 0`, in float32 or wider.
    """
    B, L, H = gate.shape
    count = torch.full((B,), L, device=gate.device) if lengths is None else lengths
    gates_from_0 = torch.cat([gate.new_zeros(B, 1, H), gate], dim=1)
    last = gates_from_0.gather(1, count[:, None, None].expand(-1, 1, H)).squeeze(1)
    last_and_any = torch.cat([last, (count > 0)[:, None].to(last.dtype)], dim=1)
    gathered = all_gather(last_and_any, group)  # (R, B, H + 1)
    earlier = torch.arange(len(gathered), device=gate.device)[:, None] < place(group)[0]
    previous = latest(gathered[..., :-1], earlier & (gathered[..., -1] > 0))
    return gates.liquid_decay(gate, deltas, mu, previous)


def normalise_decay(u: Tensor, norm: GateNorm, group: Group = None) -> Tensor:
    """`ops.normalise_decay` of a stretch, (B, L, H) -> (B, L, H): sums are over all stretches, or the earlier ones."""
    if norm == "none" or place(group)[1] == 1:
        return gates.normalise_decay(u, norm)
    u = u.to(checks.wide_dtype(u))
    totals = all_gather(u.sum(dim=1).to(checks.exact_dtype(u.device)), group)  # (R, B, H)
    checks.total_fits(totals.sum(dim=0))
    if norm == "sequence":
        return gates.share(u, totals.sum(dim=0)[:, None]).to(u.dtype)
    return gates.normalise_decay(u, norm, totals[: place(group)[0]].sum(dim=0))


def liquid_gated_attention(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, causal: bool = False, group: Group = None
) -> Tensor:
    """`ops.liquid_gated_attention` of a stretch, in plain PyTorch (the backend "parallel").

    Args:
        q, k: (B, L, H, K) of the rows of this stretch.
        v: (B, L, H, V).
        decay: (B, L, H) `-log g >= 0`; 0 on padding.
        causal: whether a row reads only what came before it, here and in earlier stretches.
        group: the processes that hold the stretches, in order; all if None.

    Returns:
        (B, L, H, V) in the dtype of `v`.
    """
    checks.attention_shapes(q, k, v, decay, None)
    checks.decay_valid(decay)
    dtype = checks.wide_dtype(q, k, v, decay)
    run = _causal if causal else _noncausal
    with torch.autocast(q.device.type, enabled=False):
        y = run(q.to(dtype), k.to(dtype), v.to(dtype), decay.to(dtype), group).to(v.dtype)
    checks.finite_result(y, "the output of liquid_gated_attention")
    return y


def _causal(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, group: Group) -> Tensor:
    """The stretch as if nothing had been before it, and what its rows read of the earlier ones."""
    exact = decay.to(checks.exact_dtype(decay.device))
    y, left = _from_nothing(q, k, v, decay)
    memories, decays = _gather_memories(left, exact.sum(dim=1), group)
    rank = place(group)[0]
    # Sums over the stretches between j and this one, never differences of a running sum: see `parallel`.
    after = torch.cat([decays[1:rank], torch.zeros_like(decays[:1])])[:rank]
    between = after.flip(0).cumsum(dim=0).flip(0)
    state = (torch.exp(-between)[..., None, None] * memories[:rank]).sum(dim=0)
    return y + torch.exp(-exact.cumsum(dim=1)).to(q.dtype)[..., None] * parallel.read(q, state.to(q.dtype))


def _from_nothing(q: Tensor, k: Tensor, v: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
    """What the rows of a stretch read of one another, and what they leave: (B, L, H, V), (B, H, K, V)."""
    if q.shape[1] == 0:  # nothing, but a function of the operands: the backward exchange waits for every process
        return v, parallel.outer_sum(k, v)
    nothing = v.new_zeros(q.shape[0], *q.shape[2:], v.shape[-1])
    return parallel.attention(q, k, v, decay, nothing, causal=True)


def _noncausal(q: Tensor, k: Tensor, v: Tensor, decay: Tensor, group: Group) -> Tensor:
    """One memory for all rows, with weights relative to the middle of the whole series, as `parallel` has them.

    What a stretch sends is relative to its own end, where no weight exceeds 1.
    """
    exact = decay.to(checks.exact_dtype(decay.device))
    c, own = exact.mT.cumsum(dim=-1).mT, exact.sum(dim=1)  # (B, L, H), (B, H)
    written = k * (torch.exp(c - own[:, None]) * -torch.expm1(-exact)).to(k.dtype)[..., None]
    memories, decays = _gather_memories(parallel.outer_sum(written, v), own, group)
    checks.span_fits(decays.movedim(0, 1), q.dtype, parallel.largest_span(q.dtype))
    middle = decays.sum(dim=0) / 2
    memory = (torch.exp(decays.cumsum(dim=0) - middle)[..., None, None] * memories).sum(dim=0)
    since_middle = (decays[: place(group)[0]].sum(dim=0) - middle)[:, None] + c
    return parallel.read(q * torch.exp(-since_middle).to(q.dtype)[..., None], memory.to(q.dtype))


def _gather_memories(left: Tensor, decay: Tensor, group: Group) -> tuple[Tensor, Tensor]:
    """(B, H, K, V), (B, H) of this stretch -> (R, B, H, K, V), (R, B, H) of all, in one message, in float64."""
    message = torch.cat([left.flatten(2).to(decay.dtype), decay[..., None]], dim=-1)
    gathered = all_gather(message, group)
    return gathered[..., :-1].unflatten(-1, left.shape[2:]), gathered[..., -1]


# --- between processes ---


def place(group: Group = None) -> tuple[int, int]:
    """Rank of this process in the group, and how many there are; (0, 1) where none was started."""
    if not dist.is_available() or not dist.is_initialized():
        return 0, 1
    return dist.get_rank(group), dist.get_world_size(group)


def all_gather(tensor: Tensor, group: Group = None) -> Tensor:
    """(...) -> (R, ...), the tensors of all processes, of one shape. Its gradient is the sum over all of them."""
    return tensor[None] if place(group)[1] == 1 else _AllGather.apply(tensor, group)


class _AllGather(torch.autograd.Function):
    """All-gather, whose adjoint is a reduce-scatter."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: Group) -> Tensor:
        ctx.group = group
        gathered = tensor.new_empty(place(group)[1], *tensor.shape)
        dist.all_gather(list(gathered.unbind()), tensor.contiguous(), group=group)
        return gathered

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        own = gradient.new_empty(gradient.shape[1:])
        dist.reduce_scatter(own, list(gradient.contiguous().unbind()), group=ctx.group)
        return own, None


def latest(gathered: Tensor, there: Tensor) -> Tensor:
    """(R, B, ...), (R, B) bool -> (B, ...), the entry of the last process where `there` holds; 0 where none does."""
    R, B, *rest = gathered.shape
    which = (torch.arange(1, R + 1, device=there.device)[:, None] * there).amax(dim=0)  # 0: none
    entries = torch.cat([torch.zeros_like(gathered[:1]), gathered])
    index = which.reshape(1, B, *(1 for _ in rest)).expand(1, B, *rest)
    return entries.gather(0, index).squeeze(0)
