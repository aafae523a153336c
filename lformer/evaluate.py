"""What a model says about a whole part, and how good it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from lformer.batch import IrregularBatch, Source
from lformer.devices import device_of
from lformer.ops.checks import skip_value_checks
from lformer.parts import ALONE, DealingPart, Part, Turn, batches_in_turn
from lformer.tasks import Task

Kept = dict[str, Tensor]  # of one batch, by metric
Measure = Callable[[Source], Kept]


@torch.no_grad()
def predict(model: nn.Module, task: Task, part: Part, batch_size: int = 64) -> list[Tensor]:
    """The answer for every series of a part, in its order, without padding, on the CPU."""
    answers: dict[int, Tensor] = {}
    device = device_of(model)
    with _answering(model):
        for source in part.batches(batch_size):
            batch, prediction = answered(task, model, source.to(device))
            index = range(len(answers), len(answers) + len(batch)) if batch.index is None else batch.index.tolist()
            lengths = batch.lengths.tolist() if task.answer == "step" else [prediction.shape[1]] * len(batch)
            cut = [p[:n] if prediction.dim() > 2 else p for p, n in zip(prediction.cpu(), lengths, strict=True)]
            _require_finite(index, cut)
            answers.update(zip(index, cut, strict=True))
    return [answers[i] for i in sorted(answers)]


@torch.no_grad()
def evaluate(model: nn.Module, task: Task, part: Part, batch_size: int = 64) -> dict[str, float]:
    """Every metric of the task over a whole part."""
    return finish(task, collect(model, task, part, batch_size))


@torch.no_grad()
def collect(
    model: nn.Module,
    task: Task,
    part: Part | DealingPart,
    batch_size: int = 64,
    turn: Turn = ALONE,
    measure: Measure | None = None,
) -> list[Kept]:
    """What the metrics keep of each batch of a part; with a turn (1, 3) of every third, beginning with the second.

    A batch is the same whoever takes it, and so is what is kept of it: put together again in their order, batches that
    were dealt out give the figures of one process to the last digit. `measure` does what `measured` does.
    """
    device = device_of(model)
    with _answering(model):
        kept = [
            measured(task, model, batch.to(device)) if measure is None else measure(batch)
            for batch in batches_in_turn(part, batch_size, turn)
        ]
    return [{name: rows.cpu() for name, rows in of_batch.items()} for of_batch in kept]  # a GPU is waited for once


def finish(task: Task, kept: Iterable[Kept]) -> dict[str, float]:
    """Every metric, from what was kept of all batches of a part."""
    found: dict[str, list[Tensor]] = {name: [torch.zeros(0, 2, dtype=torch.float64)] for name in task.metrics}
    for of_batch in kept:
        for name, rows in of_batch.items():
            found[name].append(rows)
    return {name: task.metrics[name].finish(torch.cat(rows)) for name, rows in found.items()}


@contextmanager
def _answering(model: nn.Module) -> Iterator[None]:
    """Inside, the model is in evaluation mode."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def measured(task: Task, model: nn.Module, batch: IrregularBatch) -> Kept:
    """What each metric keeps of a batch on the device of a model."""
    batch, output = answered(task, model, batch)
    return {name: task.collect(name, output, batch) for name in task.metrics}


def answered(task: Task, model: nn.Module, batch: IrregularBatch) -> tuple[IrregularBatch, Tensor]:
    """A batch on the device of a model, as precise as the model, and its answer."""
    batch = as_precise(batch, model)
    with skip_value_checks():
        return batch, task.predict(model, batch).float()


def _require_finite(index: Iterable[int], answers: list[Tensor]) -> None:
    bad = [series for series, answer in zip(index, answers, strict=True) if not bool(torch.isfinite(answer).all())]
    if bad:
        raise OverflowError(
            f"the model's answer is not finite for {len(bad)} series of a batch, the first at position {bad[0]}: its "
            "values are far from those of training, or the weights are inf or NaN. Look at that series, or train again."
        )


def as_precise(batch: IrregularBatch, model: nn.Module) -> IrregularBatch:
    """The batch with float64 values if the model is float64, whatever it was read as."""
    first = next(model.parameters(), None)
    if first is None or first.dtype != torch.float64:
        return batch
    return replace(batch, values=batch.values.double(), deltas=batch.deltas.double())
