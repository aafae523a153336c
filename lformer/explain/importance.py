"""channel_importance and time_importance: the loss of score without a channel, and without the true time stamps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.metrics import get_scorer

from lformer.estimators.asking import aligned, hidden, matched, of_points, of_records
from lformer.estimators.base import LFormerEstimator
from lformer.evaluate import evaluate
from lformer.explain.shuffling import evenly_spaced, permuted_intervals, swapped_channel, swapped_rows
from lformer.panel import Panel

if TYPE_CHECKING:
    import pandas as pd

Scoring = str | Callable[[Any, Any, Any], float] | None
EVEN, PERMUTED = "evenly spaced", "intervals permuted"


def channel_importance(
    estimator: LFormerEstimator,
    X: Any,
    y: Any = None,
    *,
    scoring: Scoring = None,
    repeats: int = 5,
    random_state: int = 0,
) -> pd.DataFrame:
    """Measure the loss of score when a channel is swapped between series.

    Every series gets the observations of the channel, values and time stamps, from another, randomly drawn series; the
    other channels stay the same. For predictions per row, and for interpolation and forecasting, rows stay where they
    are and only the values of the channel are swapped; targets remain the true values. Redundant channels can replace
    each other, so neither may seem important.

    Args:
        estimator: a fitted estimator.
        X, y: series and targets as in `score`, preferably not those used in training.
        scoring: a scikit-learn scorer name or function, where higher is better; `estimator.score` if None.
            Interpolators and forecasters only support None.
        repeats: number of times each channel is swapped.
        random_state: seed of the swaps.

    Returns:
        One row per channel, the most important first: `channel`, `loss` of score (mean over repeats), and `deviation`
        over the repeats, NaN for a single one. `attrs["score"]` is the score of the original series.
    """
    import pandas as pd

    panel, score = _scored(estimator, X, y, scoring)
    _check_repeats(repeats)
    if len(panel) < 2:
        raise ValueError("channels are swapped between series, so X must have at least 2.")
    swap = swapped_rows if of_points(estimator) or of_records(estimator) else swapped_channel
    whole = score(panel)
    draws = np.random.default_rng(random_state)
    donors = [_others(len(panel), draws) for _ in range(repeats)]  # the same for every channel
    rows = []
    for c, name in enumerate(panel.channels):
        losses = [whole - score(swap(panel, c, donor)) for donor in donors]
        rows.append({"channel": name, "loss": float(np.mean(losses)), "deviation": _deviation(losses)})
    table = pd.DataFrame(rows).sort_values("loss", ascending=False, kind="stable", ignore_index=True)
    table.attrs["score"] = whole
    return table


def time_importance(
    estimator: LFormerEstimator,
    X: Any,
    y: Any = None,
    *,
    scoring: Scoring = None,
    repeats: int = 5,
    random_state: int = 0,
) -> pd.DataFrame:
    """Measure the loss of score when time stamps carry less information.

    Rows keep their values and their order, and series keep their first and last time stamp. "evenly spaced" makes all
    intervals of a series equal; "intervals permuted" puts them into a random order.

    Args:
        estimator, X, y, scoring, random_state: as in `channel_importance`.
        repeats: number of permutations of the intervals.

    Returns:
        One row per change: `stamps`, `loss` of score (mean over repeats), and `deviation` over the repeats.
        `attrs["score"]` is the score with the true time stamps.
    """
    import pandas as pd

    panel, score = _scored(estimator, X, y, scoring)
    _check_repeats(repeats)
    whole = score(panel)
    draws = np.random.default_rng(random_state)
    permuted = [whole - score(permuted_intervals(panel, draws)) for _ in range(repeats)]
    rows = [
        {"stamps": EVEN, "loss": whole - score(evenly_spaced(panel)), "deviation": 0.0},
        {"stamps": PERMUTED, "loss": float(np.mean(permuted)), "deviation": _deviation(permuted)},
    ]
    table = pd.DataFrame(rows)
    table.attrs["score"] = whole
    return table


def _scored(estimator: Any, X: Any, y: Any, scoring: Scoring) -> tuple[Panel, Callable[[Panel], float]]:
    """The series to change, and a function that scores the estimator on the changed series."""
    if of_records(estimator):
        if scoring is not None:
            raise ValueError(f"{type(estimator).__name__} scores rows that it hides itself: leave out scoring.")
        part = hidden(estimator, X)
        panel = part.panel.compact()

        def of_hidden(changed: Panel) -> float:
            with estimator._answering() as model:
                told = evaluate(model, estimator.task_, replace(part, panel=changed), estimator.batch_size)
            return -told[estimator.task_.monitor]

        return panel, of_hidden
    panel, truth = matched(estimator, X), aligned(estimator, X, y)
    if scoring is None:
        return panel, lambda changed: float(estimator.score(changed, truth))
    scorer = get_scorer(scoring) if isinstance(scoring, str) else scoring
    return panel, lambda changed: float(scorer(estimator, changed, truth))


def _others(n: int, draws: np.random.Generator) -> Any:
    """(n,) a random permutation without fixed points."""
    order = draws.permutation(n)
    donor = np.empty(n, np.int64)
    donor[order] = np.roll(order, 1)
    return donor


def _deviation(losses: list[float]) -> float:
    """Standard deviation over the repeats; NaN if there was only one."""
    return float(np.std(losses, ddof=1)) if len(losses) > 1 else np.nan


def _check_repeats(repeats: int) -> None:
    if isinstance(repeats, bool) or not isinstance(repeats, int | np.integer) or repeats < 1:
        raise ValueError(f"repeats must be a whole number of at least 1; got {repeats!r}.")
