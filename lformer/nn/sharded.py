"""ShardedLFormer: a batch of series, split along time over several processes, whose joint memory bounds the length.

Each process holds a stretch of the rows of every series and runs the whole model on it. Stretches interact in the time
mixers, which exchange memories (see `lformer.ops.sharded`), and in the mean used by predictions per series. The result
is that of one process with the whole series.
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
    """What every process knows about the stretches of all R processes."""

    first: Tensor  # (R, B) time of the first row
    last: Tensor  # (R, B) time of the last valid row
    start: Tensor  # (R, B) start of the series, to which times are relative
    lengths: Tensor  # (R, B) number of valid rows


class ShardedLFormer(nn.Module):
    """An `LFormer` on stretches of series: every process of the group calls it with its own rows of the same series.

    Args:
        model: predicts per series or per row, from rows "values" or "observed". All processes get the weights of the
            first.
        group: the processes that hold the stretches, in order of time; all processes if None.

    Every process must call `forward`, `backward` and `sum_gradients`, even if its stretch is empty. Predictions per row
    are those for its own rows, and the total loss is the sum of the losses of all processes: divide by counts over
    whole series, not over the stretch. Predictions per series are the same in every process, and so must be the loss,
    which counts once. Dropout draws different random numbers in every process.

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
        """Predict for the whole series, or for the rows of this stretch.

        Args:
            stretch: the rows that this process holds, cut by `IrregularBatch.stretch`, or built with the `t0` of the
                whole series. The valid rows of a series may be in any of the processes, in the order of their ranks.

        Returns:
            (B, O) for the whole series, the same in every process, or (B, L, O) for the rows of this stretch.
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
            answer.register_hook(lambda gradient: gradient / size)  # every process has the full loss
        return answer

    def sum_gradients(self) -> None:
        """Sum the gradients of the parameters over all processes. Call this once per step."""
        if place(self.group)[1] == 1:
            return
        found = [parameter.grad for parameter in self.parameters() if parameter.grad is not None]
        for _, alike in groupby(sorted(found, key=_kind), key=_kind):  # one message per dtype and device
            gradients = list(alike)
            message = torch.cat([gradient.flatten() for gradient in gradients])
            dist.all_reduce(message, group=self.group)
            for gradient, total in zip(gradients, message.split([g.numel() for g in gradients]), strict=True):
                gradient.copy_(total.view_as(gradient))

    def _pool(self, x: Tensor, lengths: Tensor, found: Stretches) -> Tensor:
        """(B, L, D) rows of this stretch -> (B, D or 3 D) for the whole series"""
        pool = self.model.pool
        kept = pool.add(pool.start(len(x), x), x, lengths).to(checks.exact_dtype(x.device))
        joined = pool.join(all_gather(kept, self.group), found.lengths)
        return pool(joined, found.lengths.sum(dim=0)).to(x.dtype)


def explain(config: LFormerConfig) -> str:
    """Why a model cannot run on stretches; empty if it can. Only liquid mixers may combine rows."""
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
        f'distribution="{config.distribution}" is not supported. Use "point"': config.distribution != "point",
        "series_scale=True takes statistics over the whole series. Scale the values before": config.series_scale,
        'time_mixer="softmax" compares all pairs of rows. Use "liquid"': config.time_mixer != "liquid",
    }
    return next((reason for reason, holds in refused.items() if holds), "")


def _find(stretch: IrregularBatch, group: Group) -> Stretches:
    """The times of all stretches; raises in every process if they do not belong together."""
    times, lengths = stretch.times, stretch.lengths
    sizes = all_gather(lengths.new_tensor([len(lengths)]), group)[:, 0]
    if int(sizes.max()) != int(sizes.min()):
        raise ValueError(f"every process must hold a stretch of the same series; they hold {sizes.tolist()} series.")
    clock = torch.cat([torch.zeros_like(stretch.start)[:, None], times], dim=1)  # also for 0 rows
    ends = [clock.gather(1, n[:, None]).squeeze(1) for n in (lengths.clamp(max=1), lengths)]
    gathered = all_gather(torch.stack([*ends, stretch.start, lengths.to(clock.dtype)]), group)  # (R, 4, B)
    first, last, start, count = gathered.unbind(dim=1)
    found = Stretches(first, last, start, count.to(torch.int64))
    _require_order(found)
    return found


def _require_order(found: Stretches) -> None:
    """Raise for stretches of a series with different starts, or that begin before an earlier one ends."""
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
    """(B, L) deltas as in `LFormer.intervals` for the whole series; the first one is since the previous stretch."""
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
