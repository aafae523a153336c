"""One training step: gradients, clipping, Adam and averaging of weights, as separate operations or one CUDA graph."""

from __future__ import annotations

import warnings
from functools import partial

from torch import Tensor, nn

from lformer.batch import Source
from lformer.cuda_graphs import CapturedStep, RecordingError, capture_step, pad_to_bucket, recording
from lformer.parts import Share
from lformer.tasks import Task
from lformer.train.config import TrainConfig
from lformer.train.distributed import World
from lformer.train.gradients import Gradients, autocast, loss_of, worth_replaying
from lformer.train.updating import DeviceUpdate, Update


class TrainingStep:
    """Called with this process's share of a batch and the step number, returns the loss of the whole batch, ().

    A loss that is not finite changes no weights, neither in its own step nor, on CUDA, in later ones: there the loss is
    not waited for, and is only checked some steps later.

    Args:
        model: on the device of `world`.
        task: defines the loss.
        world: the processes that share each batch. Only a single process records its steps: several would have to
            exchange gradients within the recording.
        config: settings of the training.
        total: total number of steps of the run.
    """

    def __init__(self, model: nn.Module, task: Task, world: World, config: TrainConfig, total: int) -> None:
        self.model, self.task, self.world, self.config = model, task, world, config
        self.gradients = Gradients(
            model, task, world, precision=config.precision, piece_rows=config.piece_rows, mu_penalty=config.mu_penalty
        )
        self.recorded: CapturedStep | None = None
        if not recording.replays_on(world.device):
            self.update = Update(model, config, total)
            return
        self.update = update = DeviceUpdate(model, config, total)
        alone = world.size == 1 and config.piece_rows is None
        if config.replay and alone and getattr(model, "recordable", False):
            self.recorded = capture_step(model, partial(loss_of, task, penalty=self.gradients.penalty), update=update)

    def __call__(self, share: Share[Source], number: int) -> Tensor:
        self.update.begin(number)
        if self.recorded is not None and worth_replaying(share.batch, self.world.device):
            try:
                with autocast(self.config.precision, self.world.device):
                    return self.recorded(pad_to_bucket(share.batch, self.task.answer))
            except RecordingError as error:
                warnings.warn(f"steps are not replayed: {error}", stacklevel=2)
                self.recorded = None
        loss = self.gradients(share)
        self.update(loss)
        return loss

    def clear(self) -> None:
        """Release CUDA graphs and gradients, which take GPU memory."""
        self.recorded = None
        self.gradients.clear()
