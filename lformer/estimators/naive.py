"""What a user would try first, on the same validation series, so that a fit can say whether it was worth while."""

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

# Simple rules by task; those of a forecast need nothing of the training series but the mean of a channel.
RULES = {
    "extrapolate": ("last-value", "series-mean"),
    "interpolate": ("last-value", "series-mean", "linear-interpolation"),
}


class LosesToNaiveWarning(UserWarning):
    """On the validation series a simple rule is better than the model."""


class Constant(nn.Module):
    """The same answer at every row: the classes' log shares in training, or the mean and presence of the targets."""

    def __init__(self, answer: Tensor) -> None:
        super().__init__()
        self.register_buffer("answer", answer)
        self.answer: Tensor

    def forward(self, batch: IrregularBatch) -> Tensor:
        """-> (B, L, O)"""
        return self.answer.expand(*batch.times.shape, -1)

    @classmethod
    def of(cls, part: PanelPart, task: Task) -> Constant:
        """From the targets of a training part."""
        if task.name == "pretrain":
            return cls(_usual(part))
        targets = part.compact().targets
        if targets.values.dtype.kind in "iub":
            share = np.bincount(targets.values, minlength=task.outputs) + 0.5
            return cls(torch.from_numpy(np.log(share / share.sum())).float())
        return cls(torch.zeros(task.outputs))  # targets are scaled, so their mean is 0


def _usual(part: PanelPart) -> Tensor:
    """(2 C,) the mean of each channel, 0 as values are scaled, and the log odds that it was observed in a row."""
    panel = part.panel.compact()
    rows = len(panel.times)
    seen = np.full(panel.values.shape[1], rows) if panel.observed is None else panel.observed.sum(axis=0)
    odds = (seen + 0.5) / (rows - seen + 0.5)
    return torch.from_numpy(np.concatenate([np.zeros(len(odds)), np.log(odds)])).float()


def naive(name: str, inputs: int, task: Task, **more: Any) -> Any:
    """A simple rule of the registry for a task on so many channels."""
    entry = BASELINES[name]
    return entry.model(entry.config(inputs=inputs, outputs=task.outputs, answer=task.answer, **more))


def in_deviations(part: PanelPart, task: Task, scale: Scale) -> tuple[PanelPart, Task]:
    """Series and targets scaled as the model scales them, for rules that do not: 0 is the mean of a channel."""
    values = (part.targets.values - scale.shift) / scale.scale
    targets = replace(part.targets, values=values.astype(np.float32))
    return replace(part, panel=scale.apply(part.panel), targets=targets), replace(task, shift=(), scale=())


class Naive(NamedTuple):
    """What one would try first, fitted on the training part; the best of it on the validation part."""

    name: str
    score: float  # the monitored metric
    rules: dict[str, Any]  # all that were tried


def fit_naive(task: Task, splits: Splits[PanelPart], scale: Scale, batch_size: int) -> Naive:
    """Fit on the training part and compare on the validation part what one would try first; on some of large ones."""
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
    """Whether a simple rule is better; if so the user is told what it would have reached."""
    loses = task.better(naive_score, score)
    if loses:
        warnings.warn(
            f"{estimator} loses to {naive} on the validation series: {task.monitor} {score:.4g} against "
            f"{naive_score:.4g}. Train longer (max_epochs), give it more series, or use the simple rule.",
            LosesToNaiveWarning,
            stacklevel=5,  # whoever called `fit`
        )
    return loses
