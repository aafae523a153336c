"""The gradients of a training step: of a batch, of its pieces, or of the shares of several processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from lformer.batch import IrregularBatch, Source
from lformer.cuda_graphs import recording
from lformer.evaluate import as_precise
from lformer.nn.lformer import LFormer
from lformer.ops.checks import skip_value_checks
from lformer.parts import Share
from lformer.tasks import Task
from lformer.train import pieces
from lformer.train.config import Precision
from lformer.train.distributed import World
from lformer.train.penalty import MuPenalty

LAUNCH_BOUND = 2**19  # rows of a batch; beyond, kernels take longer than their launches, and CUDA graphs gain nothing


class Gradients:
    """Compute the loss of a batch, (), from this process's share of it.

    Afterwards the parameters have the gradients of the whole batch, and of no other.

    Args:
        model: on the device of `world`.
        task: defines the loss.
        world: the processes that share each batch.
        precision: as in `TrainConfig`.
        piece_rows, mu_penalty: as in `TrainConfig`.
    """

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        world: World,
        *,
        precision: Precision,
        piece_rows: int | None = None,
        mu_penalty: float = 0.0,
    ) -> None:
        self.model, self.task, self.world, self.precision = model, task, world, precision
        self.piece_rows = piece_rows
        self.penalty = MuPenalty(model, mu_penalty) if mu_penalty else None
        self.shared: DistributedDataParallel | None = None
        if piece_rows is not None:
            if world.size > 1:
                raise ValueError("piece_rows is for one process; several divide the series of a batch, whole.")
            pieces.check_pieces(model, task, piece_rows)
        elif world.size > 1:
            # Static graph: the set of used weights never changes, so no process waits for unused ones.
            self.shared = DistributedDataParallel(_Objective(model, task, self.penalty), static_graph=True)

    def __call__(self, share: Share[Source]) -> Tensor:
        if self.shared is not None:
            return self._shared(self.shared, share.batch, share.counts)
        return self._ordinary(share.batch)

    def _ordinary(self, source: Source) -> Tensor:
        self.model.zero_grad()
        batch = source.to(self.world.device)
        if self.piece_rows is not None:
            assert isinstance(self.model, LFormer)
            batch = as_precise(batch, self.model)
            loss = pieces.gradients(self.model, self.task, batch, self.piece_rows, self._computing)
            if self.penalty is None:
                return loss
            (penalty := self.penalty()).backward()  # once for all pieces of the batch
            return loss + penalty.detach()
        with self._computing():
            loss = loss_of(self.task, self.model, batch, self.penalty)
        loss.backward()
        return loss.detach()

    @contextmanager
    def _computing(self) -> Iterator[None]:
        with autocast(self.precision, self.world.device), skip_value_checks():  # the loss is checked
            yield

    def _shared(self, objective: DistributedDataParallel, source: Source, counts: bool) -> Tensor:
        """The loss of the whole batch, of which this process has some of the series.

        The mean over all targets is not the mean of the means of the shares, so each share is weighted by its number of
        targets. A share that does not count has weight 0: every process must take part, even if the batch has too few
        series. DDP averages the gradients over the processes, hence the factor.
        """
        size, device = self.world.size, self.world.device
        batch = source.to(device)
        targets = int(self.task.weight(batch)) if counts else 0
        weight = targets / max(1, int(self.world.total(torch.tensor(targets, device=device))))
        objective.zero_grad()
        with autocast(self.precision, device), skip_value_checks():
            loss = objective(batch) * weight
        (size * loss).backward()
        return self.world.total(loss.detach())

    def clear(self) -> None:
        """Release the gradients, which take GPU memory."""
        self.shared = None
        self.model.zero_grad()


class _Objective(nn.Module):
    """From a batch to its loss, as the single call that DDP wraps."""

    def __init__(self, model: nn.Module, task: Task, penalty: MuPenalty | None = None) -> None:
        super().__init__()
        self.model, self.task, self.penalty = model, task, penalty

    def forward(self, batch: IrregularBatch) -> Tensor:
        """-> ()"""
        return loss_of(self.task, self.model, batch, self.penalty)


def loss_of(task: Task, model: nn.Module, batch: IrregularBatch, penalty: MuPenalty | None = None) -> Tensor:
    """The loss of the task, or the model's own, `model.training_loss(task, batch)`, such as a likelihood."""
    batch = as_precise(batch, model)
    own: Callable[[Task, IrregularBatch], Tensor] | None = getattr(model, "training_loss", None)
    loss = task.loss(task.predict(model, batch), batch) if own is None else own(task, batch)
    return loss if penalty is None else loss + penalty()


def worth_replaying(batch: Source, device: torch.device) -> bool:
    """Whether launching the kernels for such a batch takes longer than running them."""
    return recording.cells(batch) <= LAUNCH_BOUND and recording.can_replay(batch, device)


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[Any]:
    """In this context, a model computes in bfloat16 where that is safe, if the precision is "bf16"."""
    # Without the cache, a weight used twice is cast twice, and its gradients are summed in float32.
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False) if precision == "bf16" else nullcontext()
