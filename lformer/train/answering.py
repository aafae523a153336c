"""What a model answers in a validation: in the ordinary way, or by replay of what was recorded in an earlier one."""

from __future__ import annotations

import warnings
from functools import partial

from torch import Tensor, nn

from lformer.batch import IrregularBatch, Source
from lformer.cuda_graphs import CapturedAnswers, RecordingError, pad_to_bucket
from lformer.evaluate import answered
from lformer.tasks import Task
from lformer.train.distributed import World
from lformer.train.gradients import worth_replaying


class Answering:
    """Called with a batch: it on the device of the model, and the answer; both hold until the next call.

    Args:
        model: on the device of `world`, in evaluation mode whenever this is called.
        task: what is asked.
        world: the processes that share the batches. Only a process alone records, as in training.
        replay: record on CUDA if the model allows it.
    """

    def __init__(self, model: nn.Module, task: Task, world: World, *, replay: bool) -> None:
        self.model, self.task, self.device = model, task, world.device
        self.recorded: CapturedAnswers | None = None
        if replay and world.size == 1 and getattr(model, "recordable", False):
            self.recorded = CapturedAnswers(model, partial(answered, task))

    def __call__(self, batch: Source) -> tuple[IrregularBatch, Tensor]:
        if self.recorded is not None and worth_replaying(batch, self.device):
            try:
                return self.recorded(pad_to_bucket(batch, self.task.answer))
            except RecordingError as error:
                warnings.warn(f"validations are not replayed: {error}", stacklevel=2)
                self.clear()
        return answered(self.task, self.model, batch.to(self.device))

    def clear(self) -> None:
        """Let graphs go, which hold memory of the GPU."""
        self.recorded = None
