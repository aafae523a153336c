"""Tabular: models of scikit-learn on a table of features, with a line for each series or for each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from lformer.baselines.fitted import READ, FittedAtOnce, check_task
from lformer.baselines.neighbourhood import Neighbourhood
from lformer.batch import IrregularBatch
from lformer.metrics import all_targets, targets_of
from lformer.nn.attention import one_of
from lformer.nn.predictor import Answer
from lformer.nn.query import check_answer
from lformer.panel import Array
from lformer.parts import Part
from lformer.summaries import summarise
from lformer.tasks import Task

Kind = Literal["classes", "numbers"]
LEAST = 1e-9  # probability of a class that was ruled out or not seen: its logarithm stays finite


@dataclass(frozen=True, kw_only=True)
class TabularConfig:
    """What a table is made of.

    Attributes:
        inputs: C, observed channels per row.
        outputs: numbers per answer: classes, or targets.
        answer: "series", or "step" for an answer at every row.
        statics: S, numbers of static covariates, further features, from `batch.static`.
    """

    inputs: int
    outputs: int
    answer: Answer = "series"
    statics: int = 0

    def __post_init__(self) -> None:
        one_of("answer", self.answer, Answer)
        if self.answer == "query":
            raise ValueError(
                f'{type(self).__name__} describes whole series or rows: answer must be "series" or "step"; got "query".'
            )
        for name, least in (("inputs", 1), ("outputs", 1), ("statics", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}; got {getattr(self, name)}.")


class Tabular(FittedAtOnce):
    """Features to answers. A subclass brings `learned`, and `series` if it does not read summaries.

    Series are described by the summary features of each channel (`lformer.summaries`), rows by those beside them
    (`Neighbourhood`, which looks ahead too). Classes get their log-probabilities (B, K) or (B, L, K); numbers are
    predicted one by one, in the units of the task, (B, O) or (B, L, O). What is learned lives outside `state_dict`: to
    keep it, pickle the model.
    """

    def __init__(self, config: TabularConfig) -> None:
        super().__init__()
        self.config = config
        self.neighbourhood = Neighbourhood()
        self.classes: list[int] = []  # those seen in training; empty if the answers are numbers
        self.models: list[Any] = []  # one for all classes, or one for each number

    def learned(self, kind: Kind, table: Array, y: Array, weight: Array) -> Any:
        """A fitted model of scikit-learn, from a table (n, F), NaN where there is nothing to say, and (n,) each."""
        raise NotImplementedError(f"{type(self).__name__} must say how it learns from a table.")

    def extra_repr(self) -> str:
        c = self.config
        return f"inputs={c.inputs}, outputs={c.outputs}, answer={c.answer!r}, statics={c.statics}"

    def fit(self, part: Part, task: Task) -> None:
        """Learn from all lines whose target counts."""
        check_task(self.config, task)
        self.look(part)
        tables, answers, counts, weights = [], [], [], []
        for batch in part.batches(READ):
            tables.append(self.features(batch))
            answers.append(self._lines(task.encode(targets_of(batch)), batch))
            counts.append(self._lines(all_targets(batch), batch))
            weights.append(np.ones(len(batch)) if batch.weights is None else batch.weights.cpu().numpy())
            if self.config.answer == "step":
                weights[-1] = np.repeat(weights[-1], batch.lengths.cpu().numpy())
        table, y, counted, weight = (np.concatenate(parts) for parts in (tables, answers, counts, weights))
        if not counted.any():
            raise ValueError("no target of the training part counts, so there is nothing to learn from.")
        if y.dtype.kind in "iub":
            self.classes = np.unique(y[counted]).tolist()
            # a model needs a choice; with one class there is none, and its probability is 1
            some = len(self.classes) > 1
            self.models = [self.learned("classes", table[counted], y[counted], weight[counted])] if some else []
        else:
            self.classes = []
            self.models = [
                self.learned("numbers", table[seen], target[seen], weight[seen])
                for target, seen in zip(y.T, counted.T, strict=True)
            ]

    def look(self, part: Part) -> None:
        """Learn what must be known of the training series before they can be described."""
        if self.config.answer == "step":
            self.neighbourhood.fit(lambda: part.batches(READ))

    def forward(self, batch: IrregularBatch) -> Tensor:
        """(B, O) or (B, L, O), O log-probabilities or numbers; 0 on padding."""
        if not self.models and not self.classes:
            raise RuntimeError(f"{type(self).__name__} has learned nothing yet: call fit(part, task) first.")
        table = self.features(batch)
        found = self._log_probabilities(table) if self.classes else self._numbers(table)
        answers = torch.from_numpy(found).to(batch.values)
        if self.config.answer == "series":
            return answers
        at_rows = answers.new_zeros(*batch.times.shape, self.config.outputs)
        at_rows[batch.valid] = answers
        return at_rows

    def features(self, batch: IrregularBatch) -> Array:
        """(B, F) of series or (N, F) of the valid rows, NaN where there is nothing to say."""
        check_answer(self.config.answer, batch)
        if batch.values.flatten(2).shape[2] != self.config.inputs:  # each pixel of a frame is a channel
            raise ValueError(
                f"the model was built for rows of shape {(self.config.inputs,)}; got {tuple(batch.values.shape[2:])}."
            )
        whole = self.config.answer == "series"
        found = self.series(batch) if whole else self.neighbourhood.table(batch)
        S = self.config.statics
        if not S:
            return found
        if batch.static is None or batch.static.shape[1:] != (S,):
            has = "none" if batch.static is None else tuple(batch.static.shape[1:])
            raise ValueError(f"the model needs {S} numbers of static covariates; the batch has {has}.")
        static = batch.static.double().cpu().numpy()
        if not whole:
            static = np.repeat(static, batch.lengths.cpu().numpy(), axis=0)
        return np.concatenate([found, static], axis=1, dtype=found.dtype)

    def series(self, batch: IrregularBatch) -> Array:
        """(B, 6 C) float64, a line for each series."""
        owner = np.repeat(np.arange(len(batch)), batch.lengths.cpu().numpy())
        tensors = (batch.values.flatten(2), batch.observed.flatten(2), batch.times)
        rows, seen, times = (tensor[batch.valid].cpu().numpy() for tensor in tensors)
        return summarise(owner, rows, seen, times, len(batch)).reshape(len(batch), -1)

    def _lines(self, targets: Tensor, batch: IrregularBatch) -> Array:
        """Targets (B, ...) or (B, L, ...), a line for each of the table."""
        lines: Array = (targets if self.config.answer == "series" else targets[batch.valid]).cpu().numpy()
        return lines

    def _numbers(self, table: Array) -> Array:
        """(N, O)"""
        return np.column_stack([model.predict(table) for model in self.models])

    def _log_probabilities(self, table: Array) -> Array:
        """(N, K), finite for every class."""
        found = np.full((len(table), self.config.outputs), LEAST)
        found[:, self.classes] = probabilities(self.models[0], table) if self.models else 1.0
        found = np.maximum(found, LEAST)
        return np.log(found / found.sum(axis=1, keepdims=True))


def probabilities(model: Any, table: Array) -> Array:
    """(N, K) what a classifier says of its classes; where it has only scores, their softmax, in the same order."""
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(table))
    scores = np.asarray(model.decision_function(table))
    scores = np.stack([-scores / 2, scores / 2], axis=1) if scores.ndim == 1 else scores
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))
