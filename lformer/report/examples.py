"""The records that a report shows: one that was predicted well, a typical one, and the one with the largest error."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from lformer.doctor.words import number, percent, stamp
from lformer.estimators.asking import of_classes
from lformer.explain import Explanation, explain
from lformer.panel import Array, Panel
from lformer.panel.stamps import stamps
from lformer.parts import PanelPart
from lformer.report.facts import Example

ROLES = {"best": 0.02, "typical": 0.5, "worst": 1.0}  # share of predictions with errors that are no larger


def chosen(missed: Array) -> dict[str, int]:
    """Positions of a good, a typical and the worst prediction, by errors (n,); NaN is ignored, no position repeats."""
    order = np.argsort(missed, kind="stable")[: int(np.isfinite(missed).sum())]
    found: dict[str, int] = {}
    for role in ("worst", "best", "typical"):
        if len(order):
            place = round(ROLES[role] * (len(order) - 1))
            if (position := int(order[place])) not in found.values():
                found[role] = position
    return {role: found[role] for role in ROLES if role in found}


def of_series(estimator: Any, panel: Panel, told: Array, truth: Array, missed: Array) -> list[Example]:
    """Examples of predictions per series: predictions (n, K), truth (n, ...) and errors (n,)."""
    more = {} if of_classes(estimator) or told.shape[1] == 1 else {"output": 0}
    return [_example(role, estimator, panel, i, told[i], truth[i], more) for role, i in chosen(missed).items()]


def of_rows(estimator: Any, panel: Panel, told: Array, truth: Array, missed: Array) -> list[Example]:
    """Examples of predictions per row, series after series: predictions (N, K), truth (N, ...) and errors (N,)."""
    ends = np.cumsum(panel.lengths)
    found = []
    for role, n in chosen(missed).items():
        i = int(np.searchsorted(ends, n, side="right"))
        more: dict[str, Any] = {"at": int(n - (ends[i] - panel.lengths[i]))}
        if not of_classes(estimator) and told.shape[1] > 1:
            more["output"] = 0
        found.append(_example(role, estimator, panel, i, told[n], truth[n], more))
    return found


def of_values(estimator: Any, part: PanelPart, told: Array, asked: Array) -> list[Example]:
    """Examples of hidden values: predictions (M, C), and which of them count."""
    targets, panel, task = part.targets, part.panel, estimator.task_
    assert targets.first is not None
    assert targets.lengths is not None
    assert targets.times is not None
    missed = np.where(asked, np.abs(told - targets.values) / np.asarray(task.scale), np.nan)
    found = []
    for role, flat in chosen(missed.ravel()).items():
        query, c = divmod(flat, missed.shape[1])
        i = int(np.searchsorted(targets.first + targets.lengths, query, side="right"))
        at = stamps(targets.times[query], panel.origin[i], panel.unit)
        channel = panel.channels[c]
        asked_at = _in_zone(at, panel)
        why = _explained(estimator, panel, i, {"at": asked_at, "output": channel})
        when = stamp(at[()] if isinstance(at, np.ndarray) else at)
        words = f"{channel} {number(float(told[query, c]))} at {when}"
        found.append(_made(role, words, number(float(targets.values[query, c])), why, panel, asked_at))
    return found


def _example(role: str, estimator: Any, panel: Panel, i: int, told: Array, truth: Any, more: dict[str, Any]) -> Example:
    why = _explained(estimator, panel, i, more)
    where, asked = "", None
    if "at" in more:
        where = f" (row {more['at']})"
        asked = _in_zone(stamps(panel.times[panel.first[i] + more["at"]], panel.origin[i], panel.unit), panel)
    if of_classes(estimator):
        k = int(told.argmax())
        answer = f"{estimator.classes_.tolist()[k]}, with probability {percent(float(told[k]))}{where}"
        return _made(role, answer, str(truth), why, panel, asked)
    return _made(role, f"{number(float(told[0]))}{where}", number(float(truth[0])), why, panel, asked)


def _explained(estimator: Any, panel: Panel, i: int, more: dict[str, Any]) -> Explanation:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the page shows what remains unexplained
        return explain(estimator, panel, i, **more)


def _made(role: str, answer: str, truth: str, why: Explanation, panel: Panel, asked: Any = None) -> Example:
    clock = why.table["time"]
    since = (clock - clock.iloc[0]).to_numpy()
    times = since / np.timedelta64(1, "s") if since.dtype.kind == "m" else since.astype(np.float64)
    unit = "s" if since.dtype.kind == "m" else panel.unit
    return Example(role, answer, truth, why, unit, times, None if asked is None else _since(asked, clock.iloc[0]))


def _since(asked: Any, first: Any) -> float:
    """The time from one time stamp to another: in seconds for dates and durations, else as a number."""
    import pandas as pd

    if isinstance(first, pd.Timestamp | pd.Timedelta):
        return float((type(first)(asked) - first) / pd.Timedelta(1, "s"))
    return float(asked - first)


def _in_zone(at: Any, panel: Panel) -> Any:
    """A time stamp in the time zone of the panel, if it has one, as a query needs it."""
    if panel.zone is None:
        return at[()] if isinstance(at, np.ndarray) else at
    import pandas as pd

    return pd.Timestamp(at[()] if isinstance(at, np.ndarray) else at, tz="UTC").tz_convert(panel.zone)
