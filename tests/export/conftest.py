"""Exported models of every kind, each made once for all tests of a file; ONNX needs the extra `export`.

Most of an export is the batch graph: tests of another write that alone. A graph that is written twice is traced once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from export.rewriting import quick_rewriting

from lformer import (
    LFormerClassifier,
    LFormerForecaster,
    LFormerInterpolator,
    LFormerPointClassifier,
    LFormerPointRegressor,
    LFormerRegressor,
)
from lformer.export.ask import AskGraph
from lformer.export.graphs import BatchGraph
from lformer.export.program import save_onnx, save_pt2, traced
from lformer.export.step import StepGraph

GRAPHS: dict[str, type[BatchGraph | StepGraph | AskGraph]] = {"batch": BatchGraph, "step": StepGraph, "ask": AskGraph}
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
        require_writer(to)
        return fitted(name).export(tmp_path_factory.mktemp("exported") / "model", to)

    return write


@pytest.fixture(autouse=True, scope="session")
def quickly() -> Iterator[None]:
    with quick_rewriting():
        yield


@cache
def program_of(model: Any, kind: str) -> tuple[Any, Any]:
    """One of `GRAPHS` of a fitted model, and its program."""
    graph = GRAPHS[kind](model).eval()
    return graph, traced(graph, graph.inputs)


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The file of one graph of a fitted model, as an export has it."""

    def write(model: Any, kind: str, to: str = "onnx") -> Path:
        require_writer(to)
        graph, program = program_of(model, kind)
        path = tmp_path_factory.mktemp("written") / f"{kind}.{to}"
        if to == "onnx":
            save_onnx(program, path, graph.inputs, graph.outputs)
        else:
            save_pt2(program, path)
        return path

    return write


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Any], Path]:
    """What an export has beside its graphs, which are empty files here."""

    def write(model: Any) -> Path:
        monkeypatch.setattr("lformer.export.traced", lambda *_: None)
        monkeypatch.setattr("lformer.export.save_pt2", lambda _, path: path.write_bytes(b""))
        folder: Path = model.export(tmp_path / "described", "pt2")
        return folder

    return write


def require_writer(to: str) -> None:
    if to == "onnx":
        pytest.importorskip("onnxscript", reason="ONNX is written with the extra `export`")
