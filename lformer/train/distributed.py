"""Several processes that train one model: each takes its share of every batch, and all take the same step.

They are started by `torchrun --nproc-per-node 4 script.py` or by `TrainConfig(devices=4)`; a process group created with
`torch.distributed.init_process_group` is used as well. A single process is a world of size one, and exchanges nothing.
"""

from __future__ import annotations

import atexit
import gc
import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lformer.devices import choose
from lformer.evaluate import Measure, collect, finish
from lformer.parts import DealingPart, Part, Turn
from lformer.tasks import Task

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """The rank of this process, the number of processes, and its device."""

    device: torch.device
    rank: int = 0
    size: int = 1

    @property
    def turn(self) -> Turn:
        """Rank and size, for distributing work in turns."""
        return self.rank, self.size

    def total(self, tensor: Tensor) -> Tensor:
        """The sum of a tensor over all processes."""
        if self.size > 1:
            dist.all_reduce(tensor := tensor.clone())
        return tensor

    def anywhere(self, flag: bool) -> bool:
        """Whether the flag is set in any process, so that all of them take the same decision."""
        return flag if self.size == 1 else bool(self.total(torch.tensor(float(flag), device=self.device)) > 0)

    def agreed(self, value: T) -> T:
        """The value of the first process, in all processes."""
        if self.size == 1:
            return value
        told: list[Any] = [value]
        dist.broadcast_object_list(told, src=0)
        agreed: T = told[0]
        return agreed

    def gathered(self, value: T) -> list[T]:
        """The values of all processes, by rank, in every process."""
        everyone: list[Any] = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(everyone, value)
        return everyone

    def by_first(self, make: Callable[[], T]) -> T:
        """Run `make` in the first process, and return its result, or raise its error, in all processes."""
        made: T | None = None
        failed: Exception | None = None
        if self.rank == 0:
            try:
                made = make()
            except Exception as error:  # the others are waiting, and must be told
                failed = error
        made, failed = self.agreed((made, failed))
        if failed is not None:
            raise failed
        return cast(T, made)

    def share_buffers(self, model: nn.Module) -> None:
        """Copy the buffers of the first process to all: gradients are exchanged, but running means, say, are not."""
        if self.size > 1:
            for buffer in model.buffers():
                dist.broadcast(buffer, src=0)


def join(device: str = "auto") -> World:
    """The processes this one was started with, and its device, see `choose`; on CUDA each process has its own."""
    if not dist.is_available():
        return World(choose(device))
    if not dist.is_initialized() and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        _begin(device)
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return World(choose(device))
    world = World(choose(device, _local_rank()), dist.get_rank(), dist.get_world_size())
    if world.device.type == "cuda":
        torch.cuda.set_device(world.device)  # objects are exchanged through the current device
    return world


def meet(file: Path, rank: int, size: int, device: str = "auto") -> None:
    """Join a group of `size` processes on this machine by means of a common file, which must not exist yet."""
    _begin(device, init_method=file.absolute().as_uri(), rank=rank, world_size=size)


def _begin(device: str, **how: Any) -> None:
    on_cuda = choose(device, _local_rank()).type == "cuda"
    dist.init_process_group("nccl" if on_cuda else "gloo", **how)
    # Not after each run: the next run would find stale data of this one in the file.
    atexit.register(_leave)


def evaluate(
    model: nn.Module,
    task: Task,
    part: Part | DealingPart,
    batch_size: int,
    world: World,
    measure: Measure | None = None,
) -> dict[str, float]:
    """Every metric of the task over a data set, whose batches the processes take in turn; the same result in all."""
    everyone = world.gathered(collect(model, task, part, batch_size, world.turn, measure))
    return finish(task, [kept for turn in zip_longest(*everyone) for kept in turn if kept is not None])


def _leave() -> None:
    """Destroy the process group.

    Objects such as DDP that reference it in a cycle are collected first: their threads would outlive the group and
    abort the process.
    """
    gc.collect()
    dist.destroy_process_group()


def _local_rank() -> int:
    """The rank of this process on this machine, from torchrun, or else its rank modulo the number of GPUs."""
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    rank = dist.get_rank() if dist.is_initialized() else int(os.environ.get("RANK", "0"))
    return rank % max(1, torch.cuda.device_count())
