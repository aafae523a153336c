"""Gradient-boosted trees alongside a network: fitted on the training set, weighted on the validation set."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from lformer.baselines.boosting import LEAST, BoostingConfig, grow
from lformer.batch import IrregularBatch
from lformer.estimators.devices import series_at_once
from lformer.estimators.tree_start import best_line
from lformer.evaluate import evaluate, finish
from lformer.metrics import all_targets, targets_of
from lformer.nn import LFormer
from lformer.nn.trees import Trees
from lformer.panel import Array
from lformer.parts import PanelPart, Splits, sampled
from lformer.tasks import Task

ROUNDS, ROW_ROUNDS = 200, 60
# Trees of rows are larger and fewer than those that `BoostingConfig` has for rows, since each costs time in every
# prediction: on a validation fold of Human Activity the mixture is as accurate with these as with 100 deeper rounds.
ROW_RATE = 0.15
MIXES = np.linspace(0, 1, 11)
MOST_ROWS = 2**22  # in a larger training set, waves are not tried: they take about twenty microseconds per row
MOST_NUMBERS = 2**25  # in the table of a training set; of more rows, those of some series are drawn
WORTH = 1.01  # factor by which waves must reduce the loss


class Table(NamedTuple):
    """What trees are fitted on or applied to: n lines, one per series or row, with targets and weights."""

    features: Tensor  # (n, F)
    waves: Tensor  # (n, 4 C) optional features; no columns if waves are not tried
    targets: Tensor  # (n,) or (n, O)
    weights: Tensor  # of the same shape as the targets

    def columns(self, waves: bool) -> Tensor:
        """(n, W) features, with or without waves."""
        return torch.cat([self.features, self.waves], dim=1) if waves else self.features


class Fitted(NamedTuple):
    """Fitted trees, and their predictions for the validation set."""

    trees: Trees
    waves: bool  # whether they use the features from waves
    predictions: Tensor  # (n, O)


class TreeFitter:
    """Gradient-boosted trees alongside one network: compute their features, fit them, mix them with the network.

    Only the last step needs the trained network. The features from waves slow down every prediction, so they are used
    only if they reduce the loss enough.

    Args:
        model: the network, on the CPU; it may still be in training.
        task: the task.
        splits: trees are fitted on the training set, and weighted on the validation set.
        seed: of the trees.
        batch_size: series per batch on a CPU.
        device: where features and the predictions of the network are computed.
        rounds: trees per output; None for 200 on series, and 60 larger ones on rows.
    """

    def __init__(
        self,
        model: LFormer,
        task: Task,
        splits: Splits[PanelPart],
        seed: int,
        batch_size: int,
        device: torch.device,
        rounds: int | None = None,
    ) -> None:
        self.model, self.task, self.splits, self.seed = model, task, splits, seed
        self.batch_size, self.device = batch_size, device
        self.of_rows = model.config.answer == "step"
        self.rounds = rounds or (ROW_ROUNDS if self.of_rows else ROUNDS)
        self.train, self.some = sampled(splits.train), sampled(splits.validation)
        if self.of_rows:
            self.train = _affordable(self.train, model.config.in_table, seed)
        self.waves = model.config.summaries and not model.config.causal and _rows(self.train) <= MOST_ROWS

    @cached_property
    @torch.no_grad()
    def tables(self) -> tuple[Table, Table]:
        """Of the training and the validation set; they do not depend on the weights of the network."""
        model = self._there()
        return self._table(model, self.train), self._table(model, self.some)

    @cached_property
    @torch.no_grad()
    def fitted(self) -> list[Fitted]:
        """Trees without waves and, if these are tried, with them."""
        return [self._fit(waves) for waves in ((False, True) if self.waves else (False,))]

    @torch.no_grad()
    def mix(self) -> dict[str, float]:
        """Mix the best trees into the network, with the weight that is best on the validation set.

        Returns:
            Every metric of the mixture on the validation set.
        """
        model, task, (_, table) = self.model.eval(), self.task, self.tables
        model.set_trees(None)
        there = self._there()
        found = (self._lines(there(batch.to(self.device)).cpu(), batch) for batch in self._batches(self.some))
        network = torch.cat(list(found))
        losses = []
        for fitted in self.fitted:
            mixed = (torch.lerp(network, fitted.predictions, mix) for mix in MIXES.tolist())
            weighed = [_loss(prediction, table.targets, table.weights) for prediction in mixed]
            fitted.trees.weight.fill_(MIXES[int(np.argmin(weighed))])
            losses.append(min(weighed) * (WORTH if fitted.waves else 1))
        best = self.fitted[int(np.argmin(losses))]
        model.set_trees(best.trees, best.waves)
        if self.some is not self.splits.validation or self.of_rows:
            return evaluate(model, task, self.splits.validation, self.batch_size)
        mixture = iter(torch.lerp(network, best.predictions, best.trees.weight).split(self.batch_size))
        return finish(
            task,
            [
                {name: task.collect(name, prediction, batch) for name in task.metrics}
                for batch, prediction in zip(self.some.batches(self.batch_size), mixture, strict=True)
            ],
        )

    def _there(self) -> LFormer:
        """The model on the device for predictions."""
        return self.model if self.device.type == "cpu" else deepcopy(self.model).to(self.device).eval()

    def _batches(self, part: PanelPart) -> Iterator[IrregularBatch]:
        """All series, shortest first."""
        return part.batches(series_at_once(part, self.device, self.batch_size))

    def _lines(self, found: Tensor, batch: IrregularBatch) -> Tensor:
        """(B, ...) of the series of a batch as they are, or (B, L, ...) of their rows -> (n, ...) without padding."""
        return found[batch.valid] if self.of_rows else found

    def _table(self, model: LFormer, part: PanelPart) -> Table:
        tables: list[Table] = []
        for batch in self._batches(part):
            targets, counted = self.task.encode(targets_of(batch)), all_targets(batch)
            weights = torch.ones(len(batch)) if batch.weights is None else batch.weights
            weights = counted * weights.reshape(-1, *[1] * (counted.ndim - 1))
            columns = self._lines(model.tree_table(batch.to(self.device), self.waves).cpu(), batch)
            features, waves = columns.split([width := _without_waves(model), columns.shape[1] - width], dim=1)
            tables.append(Table(features, waves, self._lines(targets, batch), self._lines(weights, batch)))
        return Table(*(torch.cat(parts) for parts in zip(*tables, strict=True)))

    def _fit(self, waves: bool) -> Fitted:
        trees, (known, asked) = self.model.new_trees(self.rounds, waves), self.tables
        assert trees is not None
        config = BoostingConfig(
            inputs=1, outputs=trees.outputs, answer=self.model.config.answer, max_iter=self.rounds,
            max_leaf_nodes=trees.size.leaves, max_depth=trees.size.depth if self.of_rows else None,
            learning_rate=ROW_RATE if self.of_rows else None, random_state=self.seed % 2**31,
        )  # fmt: skip
        _fit(trees, known.columns(waves).double().numpy(), known.targets.numpy(), known.weights.numpy(), config)
        return Fitted(trees, waves, trees(asked.columns(waves)))


def _rows(part: PanelPart) -> int:
    return int(part.panel.lengths.sum())


def _affordable(part: PanelPart, features: int, seed: int) -> PanelPart:
    """The part or, if its rows with so many features are too large a table, some of its series at random."""
    share = MOST_NUMBERS / max(1, features * _rows(part))
    if share >= 1:
        return part
    return part.some(np.random.default_rng(seed).permutation(len(part))[: max(1, int(share * len(part)))])


def _without_waves(model: LFormer) -> int:
    return replace(model.config, waves=False).in_table


def _fit(trees: Trees, table: Array, targets: Array, weights: Array, config: BoostingConfig) -> None:
    """Fit trees with scikit-learn and copy them into the given, still empty, ones."""
    if targets.dtype.kind in "iub":
        used = weights > 0
        classes = np.unique(targets[used]).tolist()
        trees.base.fill_(np.log(LEAST))  # for classes without any series
        trees.base[classes] = 0.0
        if len(classes) > 1:
            grown: Any = grow("Classifier", table[used], targets[used], weights[used], config)
            _fill(trees, grown, classes[-1:] if len(classes) == 2 else classes)  # of two classes, the second's log odds
    else:
        for output in range(trees.outputs):
            used = weights[:, output] > 0
            some, y, weight = table[used], targets[used, output].astype(np.float64), weights[used, output]
            line = best_line(some, y, weight)
            grown = grow("Regressor", some, y - line.at(some), weight, config)
            _fill(trees, grown, [output])
            trees.base[output] += line.level
            trees.column[output], trees.slope[output], trees.middle[output] = line.column, line.slope, line.middle
    _clear_of_values(trees, table)


def _fill(trees: Trees, grown: Any, columns: list[int]) -> None:
    """Copy the trees of these outputs into the buffers; rounded thresholds send float32 numbers the same way."""
    trees.base[columns] = torch.from_numpy(grown._baseline_prediction.reshape(-1)).float()
    for round_, predictors in enumerate(grown._predictors):
        for column, predictor in zip(columns, predictors, strict=True):
            nodes, first = predictor.nodes, (round_ * trees.outputs + column) * trees.size.nodes
            at, inner = slice(first, first + len(nodes)), nodes["is_leaf"] == 0
            itself = np.arange(first, first + len(nodes))
            for name, numbers in (("left", nodes["left"]), ("right", nodes["right"])):
                getattr(trees, name)[at] = torch.from_numpy(np.where(inner, numbers.astype(np.int64) + first, itself))
            trees.feature[at] = torch.from_numpy(np.where(inner, nodes["feature_idx"], 0))
            trees.missing_left[at] = torch.from_numpy(nodes["missing_go_to_left"].astype(np.int64))
            trees.threshold[at] = torch.from_numpy(_rounded_down(np.where(inner, nodes["num_threshold"], 0.0)))
            trees.value[at] = torch.from_numpy(np.where(inner, 0.0, nodes["value"])).float()


def _clear_of_values(trees: Trees, table: Array) -> None:
    """Move each threshold halfway between the values of the table on both sides of it.

    scikit-learn puts many of them on a value itself, where the last bit of a feature would decide. Devices and exported
    graphs round that differently.
    """
    inner = trees.left.cpu().numpy() != np.arange(len(trees.left))
    feature, threshold = trees.feature.cpu().numpy(), trees.threshold.cpu().numpy().astype(np.float64)
    for column in np.unique(feature[inner]):
        values = np.unique(table[np.isfinite(table[:, column]), column])
        at = inner & (feature == column)
        above = np.searchsorted(values, threshold[at], side="right")
        between = (above > 0) & (above < len(values))
        low, high = values[np.clip(above - 1, 0, None)], values[np.clip(above, None, len(values) - 1)]
        threshold[at] = np.where(between, low + (high - low) / 2, threshold[at])
    trees.threshold.copy_(torch.from_numpy(_rounded_down(threshold)))


def _rounded_down(numbers: Array) -> Array:
    """The largest float32 that is not greater, and finite: what was below a threshold stays below it."""
    most = np.finfo(np.float32).max
    single = np.clip(numbers, -most, most).astype(np.float32)
    return np.where(single > numbers, np.nextafter(single, np.float32(-most)), single).astype(np.float32)


def _loss(answers: Tensor, targets: Tensor, weights: Tensor) -> float:
    """The mean cross-entropy for classes, or the mean squared error for numbers."""
    if targets.is_floating_point():
        losses = (answers - targets).square()
    else:
        losses = F.cross_entropy(answers, targets, reduction="none")
    return float((losses * weights).sum() / weights.sum())
