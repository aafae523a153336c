"""Boosting: gradient-boosted trees on summary features, what most people would try first on a table of series."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from lformer.baselines.fitted import READ, FittedAtOnce, check_task
from lformer.batch import IrregularBatch
from lformer.metrics import all_targets, targets_of
from lformer.nn.attention import one_of
from lformer.nn.predictor import Answer
from lformer.nn.query import check_answer
from lformer.panel import Array
from lformer.parts import Part
from lformer.summaries import summarise
from lformer.tasks import Task

LEAST = 1e-9  # probability of a class that the trees rule out or have not seen: its logarithm stays finite


@dataclass(frozen=True, kw_only=True)
class BoostingConfig:
    """Small trees and a slow rate: summary features are many and noisy, and series often few.

    Attributes:
        inputs: C, observed channels per row.
        outputs: numbers per answer: classes, or targets.
        answer: "series", the only one there is.
        statics: S, numbers of static covariates, further features, from `batch.static`.
        learning_rate, max_iter, max_leaf_nodes, l2_regularization, max_features, random_state: see
            `sklearn.ensemble.HistGradientBoostingClassifier`.
        min_samples_leaf: at most; a twentieth of the series where they are few.
    """

    inputs: int
    outputs: int
    answer: Answer = "series"
    statics: int = 0
    learning_rate: float = 0.05
    max_iter: int = 200
    max_leaf_nodes: int = 8
    min_samples_leaf: int = 40
    l2_regularization: float = 10.0
    max_features: float = 0.3
    random_state: int = 0

    def __post_init__(self) -> None:
        one_of("answer", self.answer, Answer)
        if self.answer != "series":
            raise ValueError(f'boosting reads summaries of whole series: answer must be "series"; got {self.answer!r}.')
        for name, least in (("inputs", 1), ("outputs", 1), ("statics", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}; got {getattr(self, name)}.")


class Boosting(FittedAtOnce):
    """Histogram gradient boosting on the summary features of each channel (`lformer.summaries`).

    Classes get their log-probabilities (B, K); numbers are predicted by one ensemble of trees per output, in the units
    of the task (B, O). The trees are scikit-learn's and live outside `state_dict`: to keep them, pickle the model.
    """

    def __init__(self, config: BoostingConfig) -> None:
        super().__init__()
        self.config = config
        self.classes: list[int] = []  # those seen in training; empty if the answers are numbers
        self.trees: list[Any] = []

    def extra_repr(self) -> str:
        return f"inputs={self.config.inputs}, outputs={self.config.outputs}, statics={self.config.statics}"

    def fit(self, part: Part, task: Task) -> None:
        """Grow the trees."""
        check_task(self.config, task)
        tables, answers, counts, weights = [], [], [], []
        for batch in part.batches(READ):
            tables.append(self.features(batch))
            answers.append(task.encode(targets_of(batch)).cpu().numpy())
            counts.append(all_targets(batch).cpu().numpy())
            weights.append(np.ones(len(batch)) if batch.weights is None else batch.weights.cpu().numpy())
        table, y, counted, weight = (np.concatenate(parts) for parts in (tables, answers, counts, weights))
        if y.dtype.kind in "iub":
            table, y, weight = table[counted], y[counted], weight[counted]
            self.classes = np.unique(y).tolist()
            # trees need a choice; with one class there is none, and its probability is 1
            self.trees = [grow("Classifier", table, y, weight, self.config)] if len(self.classes) > 1 else []
        else:
            self.classes = []
            self.trees = [
                grow("Regressor", table[seen], target[seen], weight[seen], self.config)
                for target, seen in zip(y.T, counted.T, strict=True)
            ]

    def forward(self, batch: IrregularBatch) -> Tensor:
        """(B, K) log-probabilities, or (B, O) numbers."""
        if not self.trees and not self.classes:
            raise RuntimeError("Boosting has learned nothing yet: call fit(part, task) first.")
        table = self.features(batch)
        answers = self._log_probabilities(table) if self.classes else self._numbers(table)
        return torch.from_numpy(answers).to(batch.values)

    def features(self, batch: IrregularBatch) -> Array:
        """(B, 6 C + S) float64, NaN where there is nothing to say."""
        check_answer("series", batch)
        values, observed = batch.values.flatten(2), batch.observed.flatten(2)  # each pixel of a frame is a channel
        if values.shape[2] != self.config.inputs:
            raise ValueError(
                f"the model was built for rows of shape {(self.config.inputs,)}; got {tuple(batch.values.shape[2:])}."
            )
        owner = np.repeat(np.arange(len(batch)), batch.lengths.cpu().numpy())
        rows, seen, times = (tensor[batch.valid].cpu().numpy() for tensor in (values, observed, batch.times))
        found = summarise(owner, rows, seen, times, len(batch)).reshape(len(batch), -1)
        S = self.config.statics
        if not S:
            return found
        if batch.static is None or batch.static.shape[1:] != (S,):
            has = "none" if batch.static is None else tuple(batch.static.shape[1:])
            raise ValueError(f"the model needs {S} numbers of static covariates; the batch has {has}.")
        return np.concatenate([found, batch.static.double().cpu().numpy()], axis=1)

    def _numbers(self, table: Array) -> Array:
        """(B, O)"""
        return np.column_stack([trees.predict(table) for trees in self.trees])

    def _log_probabilities(self, table: Array) -> Array:
        """(B, K), finite for every class."""
        found = np.full((len(table), self.config.outputs), LEAST)
        found[:, self.classes] = self.trees[0].predict_proba(table) if self.trees else 1.0
        found = np.maximum(found, LEAST)
        return np.log(found / found.sum(axis=1, keepdims=True))


def grow(
    kind: Literal["Classifier", "Regressor"], table: Array, y: Array, weight: Array, config: BoostingConfig
) -> Any:
    """scikit-learn's trees on (n, F) features, NaN where there is nothing to say, with targets and weights (n,)."""
    from sklearn import ensemble

    if not len(y):
        raise ValueError("no target of the training part counts, so there is nothing to learn from.")
    table = np.where(np.isnan(table).all(axis=0), 0.0, table)  # scikit-learn cannot bin a feature without values
    return getattr(ensemble, f"HistGradientBoosting{kind}")(
        learning_rate=config.learning_rate,
        max_iter=config.max_iter,
        max_leaf_nodes=config.max_leaf_nodes,
        min_samples_leaf=max(1, min(config.min_samples_leaf, len(y) // 20)),
        l2_regularization=config.l2_regularization,
        max_features=config.max_features,
        early_stopping=False,
        random_state=config.random_state,
    ).fit(table, y, None if (weight == 1).all() else weight)  # weights that say nothing cost ten times as long
