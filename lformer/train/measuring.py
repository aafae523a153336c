"""Collect what metrics need from the batches of a validation: computed, or replayed from a recorded CUDA graph."""

from __future__ import annotations

import warnings
from functools import partial

from torch import nn

from lformer.batch import Source
from lformer.cuda_graphs import CapturedAnswers, RecordingError
from lformer.cuda_graphs.shapes import rounded_up
from lformer.evaluate import Kept, measured
from lformer.tasks import Task
from lformer.train.distributed import World
from lformer.train.gradients import worth_replaying


class Measuring:
    """Called with a batch, returns what each metric needs of it; if replayed, in a single launch.

    Args:
        model: on the device of `world`, in evaluation mode when this is called.
        task: the task.
        world: the processes that share the batches. Only a single process records, as in training.
        replay: whether to record on CUDA if the model allows it.
    """

    def __init__(self, model: nn.Module, task: Task, world: World, *, replay: bool) -> None:
        self.model, self.task, self.device = model, task, world.device
        self.recorded: CapturedAnswers[Kept] | None = None
        if replay and world.size == 1 and getattr(model, "recordable", False):
            self.recorded = CapturedAnswers(model, partial(measured, task))

    def __call__(self, batch: Source) -> Kept:
        if self.recorded is not None and worth_replaying(batch, self.device):
            try:
                kept = self.recorded(self._few_shapes(batch))
                return {name: rows.clone() for name, rows in kept.items()}
            except RecordingError as error:
                warnings.warn(f"validations are not replayed: {error}", stacklevel=2)
                self.clear()
        return measured(self.task, self.model, batch.to(self.device))

    def _few_shapes(self, batch: Source) -> Source:
        """The batch with more rows, but no more predictions, since some metrics concern those of the first half."""
        return batch if self.task.answer == "step" else batch.padded(rounded_up(batch.extent[0]), None, "series")

    def clear(self) -> None:
        """Release the CUDA graphs, which take GPU memory."""
        self.recorded = None
