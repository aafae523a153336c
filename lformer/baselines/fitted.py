"""FittedAtOnce: models without trainable parameters, which learn all they know from one look at the training part."""

from __future__ import annotations

from typing import Protocol

from torch import nn

from lformer.nn.predictor import Answer
from lformer.parts import Part
from lformer.tasks import Task

READ = 64  # series at a time; no result depends on it


class AnswerConfig(Protocol):
    """What a configuration says of the answers of its model."""

    @property
    def outputs(self) -> int: ...
    @property
    def answer(self) -> Answer: ...


class FittedAtOnce(nn.Module):
    """A model that is fitted in one go instead of being trained: no parameters, no epochs, no validation part.

    Whoever runs models asks `issubclass(model, FittedAtOnce)` and calls `fit` where a trainer would have run. Answers
    have the shapes and the units of any other model, so `evaluate(model, task, part)` scores it alike.
    """

    def fit(self, part: Part, task: Task) -> None:
        """Learn from the series and targets of a training part."""
        raise NotImplementedError(f"{type(self).__name__} must say how it is fitted.")


def check_task(config: AnswerConfig, task: Task) -> None:
    """Refuse a task that asks for other answers than the model gives."""
    if (task.answer, task.outputs) != (config.answer, config.outputs):
        raise ValueError(
            f"{task.name} asks for {task.outputs} outputs per {task.answer}, and this model gives {config.outputs} per "
            f"{config.answer}. Build it with outputs={task.outputs}, answer={task.answer!r}."
        )
