"""The step graph says what a stream says after every row, of one series and of many, from the state before it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from export.conftest import fitted, series

from lformer.export.example import initial
from lformer.export.step import StepGraph

STREAMS = ["stream", "ensemble stream", "stream of points"]


def follow(step: Callable[..., Any], state: dict[str, Any], given: list[Any], rows: int) -> np.ndarray[Any, Any]:
    """(rows, B, O), what a graph says after each row."""
    told = []
    for n in range(rows):
        values = np.stack([values[n] for _, values in given])
        answer, state = step(values, np.array([times[n] for times, _ in given]), state)
        told.append(answer)
    return np.stack(told)


def streamed(model: Any, given: list[Any], rows: int) -> np.ndarray[Any, Any]:
    told = []
    for times, values in given:
        stream = model.stream()
        told.append([np.atleast_1d(stream.update(times[n], values[n])) for n in range(rows)])
    return np.swapaxes(np.array(told), 0, 1)


def eager(graph: StepGraph) -> Callable[..., Any]:
    @torch.no_grad()
    def step(values: Any, times: Any, state: dict[str, Any]) -> Any:
        answer, *after = graph(*map(torch.from_numpy, (values, times, *state.values())))
        names = [port.name for port, _ in graph.state]
        return answer.numpy(), {name: tensor.numpy() for name, tensor in zip(names, after, strict=True)}

    return step


@pytest.mark.parametrize("name", STREAMS)
def test_the_lean_step_is_the_step_of_the_model(name: str) -> None:
    """Over more rows than a row looks back at; with marks for missing values, and rows without any."""
    model, given = fitted(name), series([60, 60, 60], seed=3)
    given[0][1][7, 2] = -9.0
    graph = StepGraph(model).eval()
    found = follow(eager(graph), initial(graph, 3), given, 60)
    assert np.abs(found - streamed(model, given, 60)).max() < 1e-5


def test_a_series_far_longer_than_its_memory_keeps_its_digits() -> None:
    """The memory divided by the product of all gates neither overflows nor drifts."""
    model = fitted("stream")
    rng = np.random.default_rng(0)
    times = np.cumsum(np.where(rng.random(2000) < 0.01, 1e4, 1.0) * rng.exponential(1.0, 2000))
    given = [(1e6 + times, series([2000], seed=8)[0][1])]
    graph = StepGraph(model).eval()
    found = follow(eager(graph), initial(graph, 1), given, 2000)
    assert np.abs(found[-1] - model.predict_proba(given)).max() < 1e-5


@pytest.mark.parametrize("name", STREAMS)
def test_onnxruntime_streams_as_the_estimator_does(name: str, written: Callable[..., Path]) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="runs with the extra `export`")
    model = fitted(name)
    graph = StepGraph(model).eval()
    running = onnxruntime.InferenceSession(written(model, "step"), providers=["CPUExecutionProvider"])

    def step(values: Any, times: Any, state: dict[str, Any]) -> Any:
        answer, *after = running.run(None, {"values": values, "times": times, **state})
        return answer, {port.name: tensor for (port, _), tensor in zip(graph.state, after, strict=True)}

    for size in (1, 4):
        given = series([40] * size, seed=size)
        found = follow(step, initial(graph, size), given, 40)
        assert np.abs(found - streamed(model, given, 40)).max() < 1e-5
