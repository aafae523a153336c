"""explain: what each observation of one series contributed to its answer, as a table and as a picture."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from lformer.estimators.base import LFormerEstimator, members_of
from lformer.explain.contributions import integrated_gradients, leave_one_out
from lformer.explain.plots import plot_record
from lformer.explain.question import question

if TYPE_CHECKING:
    import pandas as pd

Method = Literal["auto", "integrated-gradients", "leave-one-out"]
LARGE = 0.05  # of what is to be explained: a gap that is said


@dataclass(frozen=True, kw_only=True, eq=False)
class Explanation:
    """What the observations of one series contributed to one number of its answer.

    Attributes:
        id: of the series.
        what: the number that is explained: the log-odds of a class, a prediction, or a channel at a time.
        answer: that number.
        baseline: with integrated gradients, the answer if every observed value were the typical one of its channel;
            contributions add up to `answer - baseline`. None with leave-one-out, whose contributions do not add up.
        gap: what the contributions leave of `answer - baseline`, which is how exact they are; None likewise.
        method: "integrated-gradients" or "leave-one-out".
        table: id, time, channel, value, contribution: one row for each observation, and for nothing else.
    """

    id: Any
    what: str
    answer: float
    baseline: float | None
    gap: float | None
    method: str
    table: pd.DataFrame

    def __repr__(self) -> str:
        since = "" if self.baseline is None else f", {self.baseline:.4g} from typical values"
        return f"Explanation({self.id!r}: {self.what} = {self.answer:.4g}{since}; {len(self.table):,} observations)"

    def by_channel(self) -> pd.Series[float]:
        """The sum of the contributions of each channel, the largest first."""
        total = self.table.groupby("channel")["contribution"].sum()
        return total.reindex(total.abs().sort_values(ascending=False, kind="stable").index)

    def plot(self, channels: int = 6) -> Any:
        """The record, each observation as large as its contribution: ▲ raises the answer, ▼ lowers it.

        Args:
            channels: how many to draw, those with the largest contributions.

        Returns:
            The matplotlib figure; needs the extra `plots`.
        """
        return plot_record(self.table, f"{self.id}: {self.what} = {self.answer:.3g}", channels)


def explain(
    estimator: LFormerEstimator, X: Any, i: int = 0, *, at: Any = None, output: Any = None, method: Method = "auto"
) -> Explanation:
    """What each observation of series i contributed to its answer.

    What was not observed has no contribution, nor has padding. Two methods answer two questions:

    - "integrated-gradients": how much of the answer is due to each *value*, compared with a typical one of its channel?
      Contributions add up to the answer minus that of a record of typical values, at the same times. That something
      was measured at all is part of that baseline.
    - "leave-one-out": how would the answer change if this observation had not been made? Exact, but of two observations
      that say the same neither may seem to matter, so contributions do not add up. One prediction per observation.

    Args:
        estimator: fitted.
        X: series as in `predict`.
        i: position of the series in X.
        at: for points, the position of the row whose answer is explained, the last one if None; to interpolate or
            forecast, the time that is asked for.
        output: the class whose log-odds are explained, the predicted one if None; of several numbers, the position of
            one; to interpolate or forecast, the channel.
        method: "auto" is integrated gradients, and leave-one-out for two kinds of models: those that read each series
            on its own scale, which moves with the values, and so would what is typical; and those with `trees`, whose
            answers change in steps and have no gradient.

    Returns:
        An `Explanation` with a `table` and a `plot`.
    """
    if method not in get_args(Method):
        raise ValueError(f"method must be one of {', '.join(map(repr, get_args(Method)))}; got {method!r}.")
    asked = question(estimator, X, i, at, output)
    reason = _no_gradients(estimator)
    if method == "auto":
        method = "leave-one-out" if reason else "integrated-gradients"
    if reason and method == "integrated-gradients":
        raise ValueError(
            f"this model {reason}, so integrated gradients would not tell what a value does. "
            'Use method="leave-one-out".'
        )
    found = (leave_one_out if method == "leave-one-out" else integrated_gradients)(estimator.model_, asked)
    if found.misses(LARGE, asked.size):
        warnings.warn(
            f"the contributions to {asked.what} of series {asked.panel.ids.tolist()[0]!r} leave {found.gap:.3g} "
            f"unexplained: it changes abruptly between typical values and those of the record. Compare with "
            'method="leave-one-out".',
            stacklevel=2,
        )
    panel = asked.panel
    table = panel.to_long()
    seen = np.ones(panel.values.shape, bool) if panel.observed is None else panel.observed
    table["contribution"] = found.values[seen]  # row by row, as the table
    return Explanation(
        id=panel.ids.tolist()[0], what=asked.what, answer=found.answer, baseline=found.baseline, gap=found.gap,
        method=method, table=table,
    )  # fmt: skip


def _no_gradients(estimator: LFormerEstimator) -> str:
    """Why the gradients of a model do not say what a value does; empty if they do."""
    models = members_of(estimator.model_)
    if models[0].config.series_scale:
        return "reads each series on its own scale, which moves with the values"
    if any(model.trees is not None and float(model.trees.weight) > 0 for model in models):
        return "has trees, whose answers change in steps"
    return ""
