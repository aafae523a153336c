"""Exported models of every kind, each made once for all tests of a file; ONNX needs the extra `export`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lformer import (
    LFormerClassifier,
    LFormerForecaster,
    LFormerInterpolator,
    LFormerPointClassifier,
    LFormerPointRegressor,
    LFormerRegressor,
)

Series = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
SHIFT, SCALE = np.array([0.0, 50.0, 1000.0]), np.array([1.0, 10.0, 100.0])
SMALL: dict[str, Any] = {
    "width": 16, "heads": 2, "depth": 1, "max_epochs": 1, "device": "cpu", "random_state": 0,
}  # fmt: skip


def series(lengths: list[int], seed: int = 0) -> list[Series]:
    """Uneven times far from 0, ragged, 40 % of the values missing, some rows without any."""
    rng = np.random.default_rng(seed)
    found = []
    for n, length in enumerate(lengths):
        times = 1e6 * rng.random() + np.cumsum(rng.exponential(1.0, length) + 0.01)
        values = SHIFT + SCALE * (rng.normal(size=(length, 3)) + n % 2)
        values[rng.random((length, 3)) < 0.4] = np.nan
        values[0, 0] = 1.0
        if length > 4:
            values[3] = np.nan
        found.append((times, values))
    return found


def padded(given: list[Series]) -> dict[str, Any]:
    """What the batch graph takes of some series; on the padding stands what must not matter."""
    longest = max(len(times) for times, _ in given)
    values, times = np.full((len(given), longest, 3), 1e9), np.full((len(given), longest), -7.0)
    for n, (clock, rows) in enumerate(given):
        values[n, : len(clock)], times[n, : len(clock)] = rows, clock
    return {"values": values, "times": times, "lengths": np.array([len(clock) for clock, _ in given])}


X = series(list(range(4, 34)), seed=1)
LABELS = np.arange(len(X)) % 2
NUMBERS = [10 + 3 * np.nan_to_num(values[:, 0]) for _, values in X]
FITTED: dict[str, Callable[[], Any]] = {
    "classifier": lambda: LFormerClassifier(summaries=True, members=1, **SMALL).fit(X, np.where(LABELS, "b", "a")),
    "regressor": lambda: LFormerRegressor(members=1, **SMALL).fit(X, np.stack([5.0 * LABELS, 1.0 - LABELS], axis=1)),
    "points": lambda: LFormerPointClassifier(neighbours=0, members=2, **SMALL).fit(X, [n > 10 for n in NUMBERS]),
    "numbers": lambda: LFormerPointRegressor(**SMALL).fit(X, NUMBERS),
    "interpolator": lambda: LFormerInterpolator(**SMALL).fit(X),
    "forecaster": lambda: LFormerForecaster(horizon=5.0, series_scale=True, extrapolate="warn", **SMALL).fit(X),
    "stream": lambda: LFormerClassifier(streaming=True, members=1, **SMALL).fit(X, LABELS),
    "ensemble stream": lambda: LFormerRegressor(
        streaming=True, members=2, neighbours=2, summaries=True, missing_values={"2": -9.0}, **SMALL
    ).fit(X, 5.0 * LABELS),
    "stream of points": lambda: LFormerPointRegressor(streaming=True, neighbours=0, **SMALL | {"depth": 2}).fit(
        X, NUMBERS
    ),
    "streaming forecaster": lambda: LFormerForecaster(horizon=5.0, streaming=True, extrapolate="warn", **SMALL).fit(X),
    "streaming interpolator": lambda: LFormerInterpolator(
        streaming=True, neighbours=3, missing_values={"2": -9.0}, **SMALL | {"depth": 2, "max_epochs": 3}
    ).fit(X),
    "ensemble of forecasters": lambda: LFormerForecaster(
        horizon=5.0, streaming=True, members=2, uncertainty="gaussian", neighbours=2, **SMALL | {"max_epochs": 3}
    ).fit(X),
    "calibrated forecaster": lambda: (
        LFormerForecaster(horizon=5.0, streaming=True, uncertainty="gaussian", **SMALL)
        .fit(X)
        .calibrate(series(list(range(4, 34)), seed=2))
    ),
    "bare forecaster": lambda: LFormerForecaster(
        horizon=5.0, streaming=True, persistence=False, uncertainty="quantiles", **SMALL | {"max_epochs": 3}
    ).fit(X),
}


@cache
def fitted(name: str) -> Any:
    """One of `FITTED`, trained once in a process."""
    return FITTED[name]()


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The folder of an exported model, written once in a process."""

    @cache
    def write(name: str, to: str = "onnx") -> Path:
        if to == "onnx":
            pytest.importorskip("onnxscript", reason="ONNX is written with the extra `export`")
        return fitted(name).export(tmp_path_factory.mktemp("exported") / "model", to)

    return write
