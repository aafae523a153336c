"""The six estimators, each with series and targets it can be fitted on."""

import warnings
from copy import copy
from typing import Any

import numpy as np
import pandas as pd

from lformer import (
    LFormerClassifier,
    LFormerForecaster,
    LFormerInterpolator,
    LFormerPointClassifier,
    LFormerPointRegressor,
    LFormerRegressor,
    Panel,
)

SERIES = [LFormerClassifier, LFormerRegressor]
POINTS = [LFormerPointClassifier, LFormerPointRegressor]
RECORDS = [LFormerInterpolator, LFormerForecaster]
SIX = SERIES + POINTS + RECORDS
SMALL: dict[str, Any] = {"width": 8, "heads": 2, "depth": 1, "max_epochs": 1, "random_state": 3, "device": "cpu"}


def records(n: int = 12, seed: int = 0, dated: bool = False) -> Panel:
    """Two asynchronous channels with gaps, ragged lengths, and statics: a number with a hole, a text with one."""
    rng = np.random.default_rng(seed)
    series: list[tuple[Any, Any]] = []
    for _ in range(n):
        length = int(rng.integers(3, 9))
        values = rng.normal(3.1, 0.7, (length, 2))
        values[rng.random((length, 2)) < 0.3] = np.nan
        values[0, 0] = 3.0
        times = np.sort(rng.random(length)) * 7.3 + rng.normal()
        stamps = np.datetime64("2024-02-28T23:00:00", "ms") + (3.6e6 * times).astype("timedelta64[ms]")
        series.append((stamps if dated else times, values))
    ids = [f"p{i:02d}" for i in range(n)]
    static = pd.DataFrame({"age": rng.normal(50, 9, n), "site": (["north", "süd", None] * n)[:n]}, index=ids)
    static.loc["p02", "age"] = np.nan
    return Panel.from_list(series, channels=["k", "na"], ids=ids, static=static, unit="h" if dated else None)


def targets(kind: Any, X: Panel) -> Any:
    """Something to fit on; None for those who take their targets from the series."""
    rng = np.random.default_rng(1)
    n, lengths = len(X), X.lengths.tolist()
    if kind is LFormerClassifier:
        return np.array(["well", "ill", "größer"] * n)[:n]
    if kind is LFormerRegressor:
        return rng.normal(100, 9, (n, 2))
    if kind is LFormerPointClassifier:
        return [rng.choice(["low", "high"], length) for length in lengths]
    return [rng.normal(-5, 2, length) for length in lengths] if kind is LFormerPointRegressor else None


def fitted(kind: Any, X: Panel | None = None, **change: Any) -> Any:
    """A model that has seen little."""
    X = records() if X is None else X
    change = {"extrapolate": "warn"} | change if kind is LFormerForecaster else change
    return kind(**{**SMALL, **change}).fit(X, targets(kind, X))


def answers(model: Any, X: Any) -> list[Any]:
    """All that a model says about X."""
    if isinstance(model, LFormerInterpolator | LFormerForecaster):
        if isinstance(model, LFormerForecaster):
            model = copy(model).set_params(extrapolate="warn")
        dated = isinstance(X, Panel) and X.origin.dtype.kind == "M"
        asked = np.array([np.datetime64("2024-03-09"), np.datetime64("2024-03-01T12:00")]) if dated else [40.0, 12.5]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".* further ahead than any in training")
            return [*model.predict(X, asked), np.array(model.score(X))]
    proba = [*model.predict_proba(X)] if hasattr(model, "predict_proba") else []
    return [*model.predict(X), *proba]


def same(one: list[Any], two: list[Any]) -> bool:
    """Equal to the last digit, types and all."""
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in zip(one, two, strict=True)]
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)


def close(one: list[Any], two: list[Any]) -> bool:
    numbers = [(a, b) for a, b in zip(one, two, strict=True) if np.asarray(a).dtype.kind == "f"]
    return all(np.allclose(a, b, atol=1e-4, rtol=1e-5) for a, b in numbers)
