"""Question: one number of the prediction for one series, which can then be explained."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from lformer.estimators.asking import matched, of_classes, of_points, of_records, queried, unasked
from lformer.estimators.base import LFormerEstimator
from lformer.panel import Panel
from lformer.parts import PanelPart
from lformer.tasks import Task


@dataclass(frozen=True, kw_only=True)
class Question:
    """The number to explain.

    Attributes:
        part: the series, with its query if there is one.
        task: the task the model was trained for.
        what: the number in words, such as "log-odds of 'ill'".
        output: index of the model output; for a classifier the class.
        row: index of the row, if there is one prediction per row.
    """

    part: PanelPart
    task: Task
    what: str
    output: int
    row: int | None = None

    @property
    def panel(self) -> Panel:
        return self.part.panel

    @property
    def size(self) -> float:
        """A large difference of this number: 1 for log-odds, else the standard deviation of the target in training."""
        return float(self.task.scale[self.output]) if self.task.scale else 1.0

    def of(self, outputs: Tensor) -> Tensor:
        """Model outputs, (B, O), (B, L, O) or (B, 1, O) -> (B,), in log-odds or in units of the target"""
        if self.row is not None:
            outputs = outputs[:, self.row]
        elif outputs.dim() == 3:
            outputs = outputs[:, 0]
        if not self.task.scale:
            others = [k for k in range(outputs.shape[1]) if k != self.output]
            return outputs[:, self.output] - outputs[:, others].logsumexp(dim=1)
        return self.task.decode(outputs)[:, self.output]

    def copies(self, panel: Panel) -> PanelPart:
        """The same question for other series, all of which are variations of this one."""
        one, n = self.part, len(panel)
        zero = np.zeros(n, np.int64)
        static = None if one.static is None else one.static[zero]
        return replace(one, panel=panel, members=zero, static=static)  # `members`: all get the query of the first one


def question(estimator: LFormerEstimator, X: Any, i: int, at: Any, output: Any) -> Question:
    """The number that `explain` is to explain."""
    panel = matched(estimator, X)
    if isinstance(i, bool) or not isinstance(i, int | np.integer) or not -len(panel) <= i < len(panel):
        raise IndexError(f"i must be the position of one of the {len(panel)} series of X; got {i!r}.")
    panel = panel[[int(i) % len(panel)]].compact()
    if not panel.lengths[0]:
        raise ValueError(f"series {panel.ids.tolist()[0]!r} has no rows, so there is nothing to explain.")
    task = estimator.task_
    if of_records(estimator):
        if at is None:
            raise ValueError("at is missing: give the time whose value is to be explained, as in query_times.")
        part = queried(estimator, panel, [pd.Index([at])])  # an Index keeps a time zone
        channel = _channel(estimator, output)
        return Question(part=part, task=task, what=f"{estimator.features_.channels[channel]} at {at}", output=channel)
    part, row = unasked(estimator, panel), None
    if of_points(estimator):
        row = _row(at, int(panel.lengths[0]))
    elif at is not None:
        raise ValueError(f"{type(estimator).__name__} predicts for whole series: leave out at.")
    place = "" if row is None else f" at row {row}"
    if of_classes(estimator):
        k = _class(estimator, panel, row, output)
        return Question(part=part, task=task, what=f"log-odds of {_plain(estimator, k)!r}{place}", output=k, row=row)
    number = _number(output, task.outputs)
    what = ("prediction" if task.outputs == 1 else f"output {number}") + place
    return Question(part=part, task=task, what=what, output=number, row=row)


def _channel(estimator: LFormerEstimator, output: Any) -> int:
    names = estimator.features_.channels
    if output is None and len(names) == 1:
        return 0
    if output not in names:
        shown = f"{', '.join(names[:8])}{', ...' if len(names) > 8 else ''}"
        raise ValueError(f"output must be the channel whose value is to be explained, one of {shown}; got {output!r}.")
    return names.index(output)


def _row(at: Any, rows: int) -> int:
    at = rows - 1 if at is None else at
    if isinstance(at, bool) or not isinstance(at, int | np.integer) or not -rows <= at < rows:
        raise IndexError(f"at must be the position of one of the {rows} rows of the series; got {at!r}.")
    return int(at) % rows


def _class(estimator: Any, panel: Panel, row: int | None, output: Any) -> int:
    """The position of a class; that of the predicted one if None."""
    classes = estimator.classes_.tolist()
    if output is None:
        probability = estimator.predict_proba(panel)[0]
        return int((probability if row is None else probability[row]).argmax())
    if output not in classes:
        raise ValueError(f"output must be one of the classes {classes[:8]}; got {output!r}.")
    return classes.index(output)


def _plain(estimator: Any, k: int) -> Any:
    return estimator.classes_.tolist()[k]


def _number(output: Any, outputs: int) -> int:
    if output is None and outputs == 1:
        return 0
    if isinstance(output, bool) or not isinstance(output, int | np.integer) or not 0 <= output < outputs:
        raise ValueError(f"output must be the position of one of the {outputs} predicted numbers; got {output!r}.")
    return int(output)
