"""explain: the contribution of each observation of a series to its prediction, as a table and as a plot."""

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
LARGE = 0.05  # gap that causes a warning, as a share of what is explained


@dataclass(frozen=True, kw_only=True, eq=False)
class Explanation:
    """The contributions of the observations of one series to one number of its prediction.

    Attributes:
        id: id of the series.
        what: the number that is explained: the log-odds of a class, a predicted number, or a channel at a query time.
        answer: the value of that number.
        baseline: with integrated gradients, the value if every observed value were the typical one of its channel;
            contributions add up to `answer - baseline`. None with leave-one-out, whose contributions are not additive.
        gap: the part of `answer - baseline` that the contributions leave unexplained, a measure of their accuracy; None
            with leave-one-out.
        method: "integrated-gradients" or "leave-one-out".
        table: id, time, channel, value, contribution: one row per observation.
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
        """Plot the series, with markers whose size is the contribution: ▲ raises the prediction, ▼ lowers it.

        Args:
            channels: maximum number of channels to plot, those with the largest contributions.

        Returns:
            The matplotlib figure; requires the extra `plots`.
        """
        return plot_record(self.table, f"{self.id}: {self.what} = {self.answer:.3g}", channels)


def explain(
    estimator: LFormerEstimator, X: Any, i: int = 0, *, at: Any = None, output: Any = None, method: Method = "auto"
) -> Explanation:
    """Compute the contribution of each observation of series i to its prediction.

    Padding and values that were not observed have no contribution. The two methods answer two different questions:

    - "integrated-gradients": how much of the prediction is due to each *value*, compared with a typical value of its
      channel? Contributions add up to the prediction minus that for a series of typical values at the same times. The
      fact that something was measured at all is part of that baseline.
    - "leave-one-out": how would the prediction change if this observation had not been made? This is exact, but of two
      redundant observations neither may seem to matter, so contributions do not add up. It takes one prediction per
      observation.

    Args:
        estimator: a fitted estimator.
        X: series as in `predict`.
        i: position of the series in X.
        at: for point estimators, the position of the row whose prediction is explained, the last one if None; for
            interpolators and forecasters, the query time.
        output: the class whose log-odds are explained, the predicted one if None; for several predicted numbers, the
            position of one; for interpolators and forecasters, the channel.
        method: "auto" is integrated gradients, except for two kinds of models for which it is leave-one-out: those that
            read each series on its own scale, because that scale, and with it the typical value, changes with the
            values; and those with `trees`, which are piecewise constant and have no gradient.

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
            f"this model {reason}, so integrated gradients would not show the effect of a value. "
            'Use method="leave-one-out".'
        )
    found = (leave_one_out if method == "leave-one-out" else integrated_gradients)(estimator.model_, asked)
    if found.misses(LARGE, asked.size):
        warnings.warn(
            f"the contributions to {asked.what} of series {asked.panel.ids.tolist()[0]!r} leave {found.gap:.3g} "
            f"unexplained: it changes abruptly between typical and observed values. Compare with "
            'method="leave-one-out".',
            stacklevel=2,
        )
    panel = asked.panel
    table = panel.to_long()
    seen = np.ones(panel.values.shape, bool) if panel.observed is None else panel.observed
    table["contribution"] = found.values[seen]  # in the row order of the table
    return Explanation(
        id=panel.ids.tolist()[0], what=asked.what, answer=found.answer, baseline=found.baseline, gap=found.gap,
        method=method, table=table,
    )  # fmt: skip


def _no_gradients(estimator: LFormerEstimator) -> str:
    """Why the gradients of a model do not show the effect of a value; empty if they do."""
    models = members_of(estimator.model_)
    if models[0].config.series_scale:
        return "reads each series on its own scale, which moves with the values"
    if any(model.trees is not None and float(model.trees.weight) > 0 for model in models):
        return "has trees, which are piecewise constant"
    return ""
