"""Simple baselines on the same validation series, so that `fit` can report whether the model is worthwhile."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from lformer.baselines import BASELINES
from lformer.batch import IrregularBatch
from lformer.evaluate import evaluate
from lformer.parts import PanelPart, Splits, sampled
from lformer.scaling import Scale
from lformer.tasks import Task

# Simple baselines by task; those for forecasts need only the mean of each channel in training.
RULES = {
    "extrapolate": ("last-value", "series-mean"),
    "interpolate": ("last-value", "series-mean", "linear-interpolation"),
}


class LosesToNaiveWarning(UserWarning):
    """A simple baseline is better than the model on the validation series."""


class Constant(nn.Module):
    """The same prediction for every row: the log class frequencies, or the mean and presence of the targets."""

    def __init__(self, answer: Tensor) -> None:
        super().__init__()
        self.register_buffer("answer", answer)
        self.answer: Tensor

    def forward(self, batch: IrregularBatch) -> Tensor:
        """-> (B, L, O)"""
        return self.answer.expand(*batch.times.shape, -1)

    @classmethod
    def of(cls, part: PanelPart, task: Task) -> Constant:
        """Fit to the targets of a training set."""
        if task.name == "pretrain":
            return cls(_usual(part))
        targets = part.compact().targets
        if targets.values.dtype.kind in "iub":
            share = np.bincount(targets.values, minlength=task.outputs) + 0.5
            return cls(torch.from_numpy(np.log(share / share.sum())).float())
        return cls(torch.zeros(task.outputs))  # targets are scaled, so their mean is 0


def _usual(part: PanelPart) -> Tensor:
    """(2 C,) for each channel the mean, 0 for standardised values, and the log odds that it is observed in a row."""
    panel = part.panel.compact()
    rows = len(panel.times)
    seen = np.full(panel.values.shape[1], rows) if panel.observed is None else panel.observed.sum(axis=0)
    odds = (seen + 0.5) / (rows - seen + 0.5)
    return torch.from_numpy(np.concatenate([np.zeros(len(odds)), np.log(odds)])).float()


def naive(name: str, inputs: int, task: Task, **more: Any) -> Any:
    """A simple baseline from the registry, for a task with this many channels."""
    entry = BASELINES[name]
    return entry.model(entry.config(inputs=inputs, outputs=task.outputs, answer=task.answer, **more))


def in_deviations(part: PanelPart, task: Task, scale: Scale) -> tuple[PanelPart, Task]:
    """Series and targets scaled as in the model, for baselines that do not scale: 0 is the mean of a channel."""
    values = (part.targets.values - scale.shift) / scale.scale
    targets = replace(part.targets, values=values.astype(np.float32))
    return replace(part, panel=scale.apply(part.panel), targets=targets), replace(task, shift=(), scale=())


class Naive(NamedTuple):
    """The simple baselines, fitted on the training set; name and score are those of the best on the validation set."""

    name: str
    score: float  # the monitored metric
    rules: dict[str, Any]  # all baselines that were tried


def fit_naive(task: Task, splits: Splits[PanelPart], scale: Scale, batch_size: int) -> Naive:
    """Fit the baselines on the training set and compare them on the validation set; large sets are sampled."""
    train, validation = (sampled(part).compact() for part in (splits.train, splits.validation))
    spec = splits.spec
    rules: dict[str, Any]
    if task.name in RULES:
        (train, _), (validation, task) = (in_deviations(part, task, scale) for part in (train, validation))
        rules = {name: naive(name, task.outputs, task) for name in (*RULES[task.name], "linear")}
    elif task.answer == "step":
        rules = {"the class shares" if task.name == "classify-points" else "the mean": Constant.of(train, task)}
    else:
        rules = {"boosting": naive("boosting", spec.inputs, task, statics=spec.statics)}
    scores = {}
    for name, rule in rules.items():
        if not isinstance(rule, Constant):
            rule.fit(train, task)
        scores[name] = evaluate(rule, task, validation, batch_size)[task.monitor]
    best = (min if task.direction == "min" else max)(scores, key=lambda name: scores[name])
    return Naive(best, scores[best], rules)


def warn_if_it_loses(estimator: str, task: Task, score: float, naive: str, naive_score: float) -> bool:
    """Whether a baseline is better than the model; if so, warn with both scores."""
    loses = task.better(naive_score, score)
    if loses:
        warnings.warn(
            f"{estimator} loses to {naive} on the validation series: {task.monitor} {score:.4g} against "
            f"{naive_score:.4g}. Train longer (max_epochs), give it more series, or use the baseline.",
            LosesToNaiveWarning,
            stacklevel=5,  # the caller of `fit`
        )
    return loses
