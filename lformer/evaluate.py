"""What a model says about a whole part, and how good it is."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from lformer.batch import IrregularBatch
from lformer.data import Part
from lformer.ops.checks import skip_value_checks
from lformer.tasks import Task


@torch.no_grad()
def predict(model: nn.Module, task: Task, part: Part, batch_size: int = 64) -> list[Tensor]:
    """The answer for every series of a part, in its order, without padding, on the CPU."""
    answers: dict[int, Tensor] = {}
    for batch, prediction in _answers(model, task, part, batch_size):
        index = range(len(answers), len(answers) + len(batch)) if batch.index is None else batch.index.tolist()
        lengths = batch.lengths.tolist() if task.answer == "step" else [prediction.shape[1]] * len(batch)
        cut = [p[:n] if prediction.dim() > 2 else p for p, n in zip(prediction.cpu(), lengths, strict=True)]
        answers.update(zip(index, cut, strict=True))
    return [answers[i] for i in sorted(answers)]


@torch.no_grad()
def evaluate(model: nn.Module, task: Task, part: Part, batch_size: int = 64) -> dict[str, float]:
    """Every metric of the task over a whole part."""
    sums = dict.fromkeys(task.metrics, torch.zeros(2, dtype=torch.float64))
    for batch, prediction in _answers(model, task, part, batch_size):
        for name, metric in task.metrics.items():
            sums[name] = sums[name] + metric.sums(prediction, batch).to(sums[name].device)
    return {name: metric.finish(sums[name]) for name, metric in task.metrics.items()}


def _answers(model: nn.Module, task: Task, part: Part, batch_size: int) -> Iterator[tuple[IrregularBatch, Tensor]]:
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    try:
        for batch in part.batches(batch_size):
            moved = batch.to(device)
            with skip_value_checks():
                prediction = task.predict(model, moved).float()
            yield moved, prediction
    finally:
        model.train(was_training)
