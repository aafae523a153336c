"""Several processes that train one model: each takes its share of every batch, and all take the same step.

`torchrun --nproc-per-node 4 script.py` starts them, or `TrainConfig(devices=4)`; whoever has called
`torch.distributed.init_process_group` is also found. A process alone is a world of one, and exchanges nothing.
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
    """Which process this is, out of how many, and its device."""

    device: torch.device
    rank: int = 0
    size: int = 1

    @property
    def turn(self) -> Turn:
        """Whose turn it is where something is dealt out."""
        return self.rank, self.size

    def total(self, tensor: Tensor) -> Tensor:
        """The sum of a tensor over all processes."""
        if self.size > 1:
            dist.all_reduce(tensor := tensor.clone())
        return tensor

    def anywhere(self, flag: bool) -> bool:
        """Whether it holds in any process; so that all of them turn the same way."""
        return flag if self.size == 1 else bool(self.total(torch.tensor(float(flag), device=self.device)) > 0)

    def agreed(self, value: T) -> T:
        """The value that the first process has, in all of them."""
        if self.size == 1:
            return value
        told: list[Any] = [value]
        dist.broadcast_object_list(told, src=0)
        agreed: T = told[0]
        return agreed

    def gathered(self, value: T) -> list[T]:
        """The values of all processes, by rank, in every one of them."""
        everyone: list[Any] = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(everyone, value)
        return everyone

    def by_first(self, make: Callable[[], T]) -> T:
        """What the first process makes, in all of them, or the error it ends in."""
        made: T | None = None
        failed: Exception | None = None
        if self.rank == 0:
            try:
                made = make()
            except Exception as error:  # the others wait, and must hear of it
                failed = error
        made, failed = self.agreed((made, failed))
        if failed is not None:
            raise failed
        return cast(T, made)

    def share_buffers(self, model: nn.Module) -> None:
        """Give all processes the buffers of the first. Gradients are exchanged; running means, say, are not."""
        if self.size > 1:
            for buffer in model.buffers():
                dist.broadcast(buffer, src=0)


def join(device: str = "auto") -> World:
    """The processes this one was started with, each with a device as `choose` has it, on CUDA one of its own."""
    if not dist.is_available():
        return World(choose(device))
    if not dist.is_initialized() and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        _begin(device)
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return World(choose(device))
    world = World(choose(device, _local_rank()), dist.get_rank(), dist.get_world_size())
    if world.device.type == "cuda":
        torch.cuda.set_device(world.device)  # objects are exchanged by way of the current device
    return world


def meet(file: Path, rank: int, size: int, device: str = "auto") -> None:
    """Make this process one of `size` on this machine that know of the same file, which is not there yet."""
    _begin(device, init_method=file.absolute().as_uri(), rank=rank, world_size=size)


def _begin(device: str, **how: Any) -> None:
    on_cuda = choose(device, _local_rank()).type == "cuda"
    dist.init_process_group("nccl" if on_cuda else "gloo", **how)
    # Not after each run: the next one would meet what this one has left at the meeting point.
    atexit.register(_leave)


def evaluate(
    model: nn.Module,
    task: Task,
    part: Part | DealingPart,
    batch_size: int,
    world: World,
    measure: Measure | None = None,
) -> dict[str, float]:
    """Every metric of the task over a whole part, whose batches the processes take in turn; the same in all of them."""
    everyone = world.gathered(collect(model, task, part, batch_size, world.turn, measure))
    return finish(task, [kept for turn in zip_longest(*everyone) for kept in turn if kept is not None])


def _leave() -> None:
    """End the group. What still holds it in a circle, as DDP does, goes first: its threads would outlive the group,
    and end the process by an abort."""
    gc.collect()
    dist.destroy_process_group()


def _local_rank() -> int:
    """Which of the processes on this machine; torchrun says so, others are counted round the GPUs."""
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    rank = dist.get_rank() if dist.is_initialized() else int(os.environ.get("RANK", "0"))
    return rank % max(1, torch.cuda.device_count())
