"""The batch graph says what the estimator says, in onnxruntime, for series of any number and length."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from export.conftest import SCALE, Series, fitted, padded, series

onnxruntime = pytest.importorskip("onnxruntime", reason="runs with the extra `export`")

WHOLE = ["classifier", "regressor", "points", "numbers", "interpolator", "forecaster"]  # exports of this graph alone
SIZES = [
    [1],
    [1] * 5,
    [2],
    [7, 3],
    [300, 1, 40],
    [12, 5, 9, 30, 6],
]  # of the series; traced with three of up to 11 rows


def session(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def asked(name: str, given: list[Series], count: int) -> np.ndarray[Any, Any] | None:
    """(B, Q) times of a model that is asked at some: after the last row, or anywhere and in no order."""
    rng = np.random.default_rng(count)
    if name in ("forecaster", "streaming forecaster"):
        return np.stack([times[-1] + 0.1 + 4 * rng.random(count) for times, _ in given])
    if name != "interpolator":
        return None
    return np.stack([times[0] - 1 + (2 + times[-1] - times[0]) * rng.random(count) for times, _ in given])


def said(model: Any, given: list[Series], queries: Any) -> list[np.ndarray[Any, Any]]:
    """What the estimator says of each series."""
    if queries is not None:
        return list(model.predict(given, list(queries)))
    return list(model.predict_proba(given) if hasattr(model, "predict_proba") else model.predict(given))


@pytest.mark.parametrize("name", [*WHOLE, "stream", "streaming forecaster"])
def test_onnxruntime_says_what_the_estimator_says(
    name: str, exported: Callable[..., Path], written: Callable[..., Path]
) -> None:
    model = fitted(name)
    running = session(exported(name) / "model.onnx" if name in WHOLE else written(model, "batch"))
    in_channels = name in ("interpolator", "streaming forecaster", "forecaster")
    for lengths in SIZES:
        given = series(lengths, seed=len(lengths))
        for count in (1, 6) if in_channels else (1,):
            queries = asked(name, given, count)
            feeds = padded(given) | ({} if queries is None else {"query_times": queries})
            found = running.run(None, feeds)[0]
            for n, answer in enumerate(said(model, given, queries)):
                got = (
                    found[n]
                    if name in ("classifier", "regressor", "stream") or in_channels
                    else found[n, : len(answer)]
                )
                error = np.abs(got.reshape(answer.shape) - answer) / (SCALE if in_channels else 1.0)
                assert error.max() < 1e-5, (lengths, n)


@pytest.mark.parametrize("name", ["numbers", "forecaster"])
def test_a_model_that_does_not_stream_has_no_step_graph(name: str, exported: Callable[..., Path]) -> None:
    assert json.loads((exported(name) / "export.json").read_text())["graphs"].keys() == {"batch"}
    assert not (exported(name) / "step.onnx").exists()


@pytest.mark.parametrize("name", ["numbers", "interpolator"])
def test_no_axis_that_should_be_free_is_fixed(name: str, exported: Callable[..., Path]) -> None:
    folder = exported(name)
    about = json.loads((folder / "export.json").read_text())["graphs"]["batch"]
    found = {value.name: tuple(value.shape) for value in session(folder / "model.onnx").get_inputs()}
    assert found == {port["name"]: tuple(port["axes"]) for port in about["inputs"]}
    assert found["values"] == ("batch", "length", 3)


@pytest.mark.parametrize("name", ["classifier", "interpolator"])
def test_padding_order_size_of_a_batch_and_the_origin_change_nothing(name: str, exported: Callable[..., Path]) -> None:
    running, given = session(exported(name) / "model.onnx"), series([9, 4, 21], seed=5)
    queries = asked(name, given, 4)
    feeds = padded(given) | ({} if queries is None else {"query_times": queries})
    whole = running.run(None, feeds)[0]
    longer = {
        key: np.concatenate([array, np.full_like(array[:, :6], 3.0)], axis=1) if key in ("values", "times") else array
        for key, array in feeds.items()
    }
    shifted = {key: array + 4096.0 if "times" in key else array for key, array in feeds.items()}
    for other, back in (
        (longer, slice(None)),
        (shifted, slice(None)),
        ({key: array[::-1].copy() for key, array in feeds.items()}, slice(None, None, -1)),
    ):
        assert np.abs(running.run(None, other)[0][back] - whole).max() < 1e-5 * np.abs(whole).max()
    for n in range(3):
        alone = running.run(None, {key: array[n : n + 1] for key, array in feeds.items()})[0][0]
        assert np.abs(alone - whole[n]).max() < 1e-5 * np.abs(whole).max()
