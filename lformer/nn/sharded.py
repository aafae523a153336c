"""ShardedLFormer: one batch of series, cut along time over several processes, so that length is bounded by all of them.

Each process holds a stretch of the rows of every series and runs the whole model on it. Rows of different stretches
meet in the time mixers, which exchange memories (see `lformer.ops.sharded`), and in the mean that answers per series
are made of. The numbers are those of one process with the whole series.
"""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lformer.batch import IrregularBatch
from lformer.nn.lformer import LFormer, LFormerConfig
from lformer.nn.query import check_answer
from lformer.ops import checks
from lformer.ops.sharded import Group, all_gather, latest, place


class Stretches(NamedTuple):
    """What every process knows of the stretches of all R processes."""

    first: Tensor  # (R, B) time of the first row
    last: Tensor  # (R, B) time of the last valid row
    start: Tensor  # (R, B) what the times are counted from
    lengths: Tensor  # (R, B) valid rows


class ShardedLFormer(nn.Module):
    """An `LFormer` on stretches: every process of the group calls it with its own rows of the same series.

    Args:
        model: answers per series or per row; rows "values" or "observed". All processes get the weights of the first.
        group: the processes that hold the stretches, in order of time; all if None.

    Every process calls `forward`, `backward` and `sum_gradients`, also one whose stretch is empty. Answers per row are
    those of its own rows, and the loss of the whole is the sum of the losses of all processes: divide by counts of the
    whole, not of the stretch. Answers per series are the same in every process, and so must the loss be; it counts
    once. Dropout draws numbers of its own in every process.

    Example:
        >>> model = ShardedLFormer(LFormer(LFormerConfig(inputs=3, outputs=2)))
        >>> batch = IrregularBatch.build(torch.randn(8, 50, 3), times=torch.rand(8, 50).cumsum(1))
        >>> model(batch.stretch(0, 50)).shape  # a process alone has all rows
        torch.Size([8, 2])
    """

    def __init__(self, model: LFormer, group: Group = None) -> None:
        super().__init__()
        if reason := explain(model.config):
            raise ValueError(f"this model cannot run on stretches of series: {reason}.")
        self.model, self.group = model, group
        if place(group)[1] > 1:
            for tensor in (*model.parameters(), *model.buffers()):
                dist.broadcast(tensor.detach(), group=group, group_src=0)

    def forward(self, stretch: IrregularBatch) -> Tensor:
        """Answer for the whole series, or for the rows of this stretch.

        Args:
            stretch: the rows that this process holds, as `IrregularBatch.stretch` cuts them, or built with the `t0` of
                the whole series. A series has its valid rows in any of the processes, in the order of their ranks.

        Returns:
            (B, O) of the whole series, the same in every process, or (B, L, O) of the rows of this stretch.
        """
        model, group = self.model, self.group
        check_answer(model.config.answer, stretch)
        found = _find(stretch, group)
        deltas = _intervals(model, stretch, found, place(group)[0])
        x = model.dropout(model.embedder(model.rows(stretch).rows, model.clock(stretch.times)))
        for mixer in model.blocks:
            x = mixer.sharded(x, deltas, stretch.lengths, group)
        if model.config.answer == "series":
            x = self._pool(x, stretch.lengths, found)
        answer: Tensor = model.head(x)
        checks.finite_result(answer, "the model's answer", "values or weights are")
        if model.config.answer == "series" and answer.requires_grad:
            size = place(group)[1]
            answer.register_hook(lambda gradient: gradient / size)  # every process has the whole loss
        return answer

    def sum_gradients(self) -> None:
        """Make the gradients of the parameters those of the whole: their sum over all processes. Once per step."""
        if place(self.group)[1] == 1:
            return
        found = [parameter.grad for parameter in self.parameters() if parameter.grad is not None]
        for _, alike in groupby(sorted(found, key=_kind), key=_kind):  # a message for each kind of number
            gradients = list(alike)
            message = torch.cat([gradient.flatten() for gradient in gradients])
            dist.all_reduce(message, group=self.group)
            for gradient, total in zip(gradients, message.split([g.numel() for g in gradients]), strict=True):
                gradient.copy_(total.view_as(gradient))

    def _pool(self, x: Tensor, lengths: Tensor, found: Stretches) -> Tensor:
        """(B, L, D) rows of this stretch -> (B, D or 3 D) of the whole series"""
        pool = self.model.pool
        kept = pool.add(pool.start(len(x), x), x, lengths).to(checks.exact_dtype(x.device))
        joined = pool.join(all_gather(kept, self.group), found.lengths)
        return pool(joined, found.lengths.sum(dim=0)).to(x.dtype)


def explain(config: LFormerConfig) -> str:
    """Why a model cannot run on stretches; empty if it can. Whatever reads other rows must be a liquid mixer."""
    refused = {
        'answer="query"; queries would have to be merged into the stretch they fall into. Use "series" or "step"': (
            config.answer == "query"
        ),
        'rows="carried" (with neighbours and summaries) look into other stretches. Use "values" or "observed"': (
            config.rows == "carried"
        ),
        f'persistence="{config.persistence}" starts from observations in other stretches. Use "none"': (
            config.persistence != "none"
        ),
        f'distribution="{config.distribution}" is not built there. Use "point"': config.distribution != "point",
        "series_scale=True takes statistics over the whole series. Scale the values before": config.series_scale,
        'time_mixer="softmax" compares all pairs of rows. Use "liquid"': config.time_mixer != "liquid",
    }
    return next((reason for reason, holds in refused.items() if holds), "")


def _find(stretch: IrregularBatch, group: Group) -> Stretches:
    """Where all stretches lie in time; refuses those that do not belong together, in every process alike."""
    times, lengths = stretch.times, stretch.lengths
    sizes = all_gather(lengths.new_tensor([len(lengths)]), group)[:, 0]
    if int(sizes.max()) != int(sizes.min()):
        raise ValueError(f"every process must hold a stretch of the same series; they hold {sizes.tolist()} series.")
    clock = torch.cat([torch.zeros_like(stretch.start)[:, None], times], dim=1)  # of 0 rows, too
    ends = [clock.gather(1, n[:, None]).squeeze(1) for n in (lengths.clamp(max=1), lengths)]
    gathered = all_gather(torch.stack([*ends, stretch.start, lengths.to(clock.dtype)]), group)  # (R, 4, B)
    first, last, start, count = gathered.unbind(dim=1)
    found = Stretches(first, last, start, count.to(torch.int64))
    _require_order(found)
    return found


def _require_order(found: Stretches) -> None:
    """Refuse stretches of one series with different starts, and those that begin before an earlier one ends."""
    if not checks.readable(found.first):
        return
    there = found.lengths > 0
    starts = torch.where(there, found.start, latest(found.start, there))
    wrong = checks.first_bad(starts != starts[:1])
    if wrong is not None:
        raise ValueError(
            f"the stretches of series {wrong[1]} count time from {float(starts[0, wrong[1]])} (rank 0) and "
            f"{float(starts[wrong])} (rank {wrong[0]}). Build all of them with the t0 of the whole series."
        )
    ended = torch.where(there, found.last, -torch.inf).cummax(dim=0).values
    early = checks.first_bad(there[1:] & (found.first[1:] < ended[:-1]))
    if early is not None:
        raise ValueError(
            f"series {early[1]} begins in rank {early[0] + 1} before it ends in an earlier one. Give the stretches "
            "to the processes in order of time."
        )


def _intervals(model: LFormer, stretch: IrregularBatch, found: Stretches, rank: int) -> Tensor:
    """(B, L) deltas, as `LFormer.intervals` has them for the whole series; the first since the stretch before."""
    deltas, there = stretch.deltas, found.lengths > 0
    rows = torch.arange(deltas.shape[1], device=deltas.device)
    first = model.typical_first(deltas.dtype).expand(len(stretch))
    if model.config.first_interval == "typical" and not model.config.causal:
        begin, end = latest(found.first.flip(0), there.flip(0)), latest(found.last, there)
        mean = ((end - begin) / (found.lengths.sum(dim=0) - 1).clamp(min=1)).to(deltas.dtype)
        first = torch.where(mean > 0, mean, first)
    earlier = there & (torch.arange(len(there), device=there.device) < rank)[:, None]
    gap = (found.first[rank] - latest(found.last, earlier)).to(deltas.dtype)
    first = torch.where(earlier.any(dim=0), gap, first)
    return torch.where((rows == 0) & (stretch.lengths > 0)[:, None], first[:, None], deltas)


def _kind(tensor: Tensor) -> str:
    return f"{tensor.dtype} {tensor.device}"
