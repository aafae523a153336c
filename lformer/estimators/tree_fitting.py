"""Boosted trees beside a network: fitted to the training series, weighed by the validation series."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from lformer.baselines.boosting import LEAST, BoostingConfig, grow
from lformer.batch import IrregularBatch
from lformer.estimators.devices import series_at_once
from lformer.evaluate import evaluate, finish
from lformer.metrics import all_targets, targets_of
from lformer.nn import LFormer
from lformer.nn.summaries import table_width
from lformer.nn.trees import LEAVES, NODES, Trees
from lformer.panel import Array
from lformer.parts import PanelPart, Splits, sampled
from lformer.tasks import Task

ROUNDS = 200
MIXES = np.linspace(0, 1, 11)
HALF = 0.5  # of the variance, below which a line is nothing to start from
TINY = 1e-12  # of the squared size of a column, a variance that is rounding
MOST_ROWS = 2**22  # of the training part, beyond which waves, some twenty microseconds a row, are not tried
WORTH = 1.01  # by which factor the loss must be less with waves


class Lines(NamedTuple):
    """A line for each series of a part."""

    summaries: Tensor  # (n, F) what trees see
    waves: Tensor  # (n, 4 C) what they may see too; without columns where they are not tried
    targets: Tensor  # (n,) or (n, O)
    weights: Tensor  # likewise

    def table(self, waves: bool) -> Tensor:
        """(n, W)"""
        return torch.cat([self.summaries, self.waves], dim=1) if waves else self.summaries


class Told(NamedTuple):
    """What trees know of the series that they grow on, and of those that weigh them."""

    learned: Lines
    asked: Lines


class Grown(NamedTuple):
    """Trees that have grown, and what they say of the validation part."""

    trees: Trees
    waves: bool
    answers: Tensor  # (n, O)


class TreesBeside:
    """Boosted trees beside one network: read what they are told, grow them, mix them in.

    Only the last of these needs a trained network. What trees are told of waves takes its time in every prediction, so
    it must be worth it there.

    Args:
        model: what is trained, or will be; on the CPU.
        task: what is asked.
        splits: trees grow on the training part, and are weighed on the validation part.
        seed: of the trees.
        batch_size: series at a time, on a CPU.
        device: where tables are read and the network answers.
        rounds: how many trees for each output.
    """

    def __init__(
        self,
        model: LFormer,
        task: Task,
        splits: Splits[PanelPart],
        seed: int,
        batch_size: int,
        device: torch.device,
        rounds: int = ROUNDS,
    ) -> None:
        self.model, self.task, self.splits, self.seed, self.rounds = model, task, splits, seed, rounds
        self.batch_size, self.device = batch_size, device
        self.train, self.some = sampled(splits.train), sampled(splits.validation)
        self.waves = not model.config.causal and int(self.train.panel.lengths.sum()) <= MOST_ROWS

    @cached_property
    @torch.no_grad()
    def told(self) -> Told:
        """What trees are told of both parts; no weight of the network has a say in it."""
        model = self._there()
        return Told(self._lines(model, self.train), self._lines(model, self.some))

    @cached_property
    @torch.no_grad()
    def grown(self) -> list[Grown]:
        """Trees without waves and, if these are tried, trees with them."""
        return [self._grown(waves) for waves in ((False, True) if self.waves else (False,))]

    @torch.no_grad()
    def mix(self) -> dict[str, float]:
        """Mix the best of the trees into the network, with the weight that is best on the validation part.

        Returns:
            Every metric of both together on the validation part.
        """
        model, task, asked = self.model.eval(), self.task, self.told.asked
        model.set_trees(None)
        there = self._there()
        answers = torch.cat([there(batch.to(self.device)).cpu() for batch in self._batches(self.some)])
        losses = []
        for found in self.grown:
            mixed = (torch.lerp(answers, found.answers, mix) for mix in MIXES.tolist())
            weighed = [_loss(answer, asked.targets, asked.weights) for answer in mixed]
            found.trees.weight.fill_(MIXES[int(np.argmin(weighed))])
            losses.append(min(weighed) * (WORTH if found.waves else 1))
        best = self.grown[int(np.argmin(losses))]
        model.set_trees(best.trees, best.waves)
        if self.some is not self.splits.validation:
            return evaluate(model, task, self.splits.validation, self.batch_size)
        said = iter(torch.lerp(answers, best.answers, best.trees.weight).split(self.batch_size))
        return finish(
            task,
            [
                {name: task.collect(name, answer, batch) for name in task.metrics}
                for batch, answer in zip(self.some.batches(self.batch_size), said, strict=True)
            ],
        )

    def _there(self) -> LFormer:
        """The model where it answers."""
        return self.model if self.device.type == "cpu" else deepcopy(self.model).to(self.device).eval()

    def _batches(self, part: PanelPart) -> Iterator[IrregularBatch]:
        """Of all series, shortest first."""
        return part.batches(series_at_once(part, self.device, self.batch_size))

    def _lines(self, model: LFormer, part: PanelPart) -> Lines:
        found: list[Lines] = []
        width = table_width(model.config.inputs, model.config.statics, waves=False)
        for batch in self._batches(part):
            targets, counted = self.task.encode(targets_of(batch)), all_targets(batch)
            weights = torch.ones(len(batch)) if batch.weights is None else batch.weights
            weights = counted * weights.reshape(-1, *[1] * (counted.ndim - 1))
            table = model.summary_table(batch.to(self.device), self.waves).cpu()
            found.append(Lines(table[:, :width], table[:, width:], targets, weights))
        return Lines(*(torch.cat(parts) for parts in zip(*found, strict=True)))

    def _grown(self, waves: bool) -> Grown:
        trees, learned = self.model.new_trees(self.rounds, waves), self.told.learned
        assert trees is not None
        table = learned.table(waves).double().numpy()
        _grow(trees, table, learned.targets.numpy(), learned.weights.numpy(), self.seed)
        return Grown(trees, waves, trees(self.told.asked.table(waves)))


def _grow(trees: Trees, table: Array, targets: Array, weights: Array, seed: int) -> None:
    """Fill untouched trees with those of scikit-learn."""
    config = BoostingConfig(
        inputs=1, outputs=trees.outputs, max_iter=trees.rounds, max_leaf_nodes=LEAVES, random_state=seed % 2**31
    )
    if targets.dtype.kind in "iub":
        used = weights > 0
        classes = np.unique(targets[used]).tolist()
        trees.base.fill_(np.log(LEAST))  # of classes that no series has
        trees.base[classes] = 0.0
        if len(classes) > 1:
            grown: Any = grow("Classifier", table[used], targets[used], weights[used], config)
            _fill(trees, grown, classes[-1:] if len(classes) == 2 else classes)  # of two, what speaks for the second
    else:
        for output in range(trees.outputs):
            used = weights[:, output] > 0
            some, y, weight = table[used], targets[used, output].astype(np.float64), weights[used, output]
            line = best_line(some, y, weight)
            grown = grow("Regressor", some, y - line.at(some), weight, config)
            _fill(trees, grown, [output])
            trees.base[output] += line.level
            trees.column[output], trees.slope[output], trees.middle[output] = line.column, line.slope, line.middle


class Line(NamedTuple):
    """Level + slope · (column of a table - middle), where the column has a number."""

    level: float
    column: int
    slope: float
    middle: float

    def at(self, table: Array) -> Array:
        """(n, W) -> (n,)"""
        x = table[:, self.column]
        return np.asarray(self.level + self.slope * np.where(np.isfinite(x), x - self.middle, 0))


def best_line(table: Array, y: Array, weight: Array) -> Line:
    """The line through one column that explains most by least squares; the mean if none explains half of the variance.

    Example:
        >>> best_line(np.array([[5.0, 1.0], [4.0, 2.0], [5.0, np.nan]]), np.array([10.0, 20.0, 15.0]), np.ones(3))
        Line(level=15.0, column=1, slope=10.0, middle=1.5)
    """
    weight = weight / weight.sum()
    known = np.isfinite(table)
    part = weight @ known
    middle = (weight @ np.where(known, table, 0)) / np.where(part > 0, part, 1)
    level = float(weight @ y)
    x, rest = np.where(known, table - middle, 0), y - level
    spread, together = weight @ x**2, (weight * rest) @ x
    varies = spread > TINY * (1 + middle**2)
    slope = np.where(varies, together / np.where(varies, spread, 1), 0)
    explains = slope * together
    best = int(np.argmax(explains))
    if explains[best] < HALF * float(weight @ rest**2):
        return Line(level, 0, 0.0, 0.0)
    return Line(level, best, float(slope[best]), float(middle[best]))


def _fill(trees: Trees, grown: Any, columns: list[int]) -> None:
    """Copy the trees of these outputs into the buffers; thresholds so that float32 numbers go where they went."""
    trees.base[columns] = torch.from_numpy(grown._baseline_prediction.reshape(-1)).float()
    for round_, predictors in enumerate(grown._predictors):
        for column, predictor in zip(columns, predictors, strict=True):
            nodes, first = predictor.nodes, (round_ * trees.outputs + column) * NODES
            at, inner = slice(first, first + len(nodes)), nodes["is_leaf"] == 0
            itself = np.arange(first, first + len(nodes))
            for name, numbers in (("left", nodes["left"]), ("right", nodes["right"])):
                getattr(trees, name)[at] = torch.from_numpy(np.where(inner, numbers.astype(np.int64) + first, itself))
            trees.feature[at] = torch.from_numpy(np.where(inner, nodes["feature_idx"], 0))
            trees.missing_left[at] = torch.from_numpy(nodes["missing_go_to_left"].astype(np.int64))
            trees.threshold[at] = torch.from_numpy(_rounded_down(np.where(inner, nodes["num_threshold"], 0.0)))
            trees.value[at] = torch.from_numpy(np.where(inner, 0.0, nodes["value"])).float()


def _rounded_down(numbers: Array) -> Array:
    """The largest float32 that is not greater: what was below a threshold stays below it; finite."""
    most = np.finfo(np.float32).max
    single = np.clip(numbers, -most, most).astype(np.float32)
    return np.where(single > numbers, np.nextafter(single, np.float32(-most)), single).astype(np.float32)


def _loss(answers: Tensor, targets: Tensor, weights: Tensor) -> float:
    """The mean cross-entropy of classes, or squared error of numbers."""
    if targets.is_floating_point():
        losses = (answers - targets).square()
    else:
        losses = F.cross_entropy(answers, targets, reduction="none")
    return float((losses * weights).sum() / weights.sum())
