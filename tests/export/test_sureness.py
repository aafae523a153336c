"""Graphs say how sure a model is as the estimator does: deviations, quantiles, intervals and sets of any coverage."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from export.conftest import GRAPHS, SMALL, Series, X, padded, series

from lformer import (
    LFormerClassifier,
    LFormerForecaster,
    LFormerInterpolator,
    LFormerPointClassifier,
    LFormerPointRegressor,
    LFormerRegressor,
)
from lformer.distributions import LEVELS
from lformer.export.ask import AskGraph
from lformer.export.example import initial
from lformer.export.graphs import BatchGraph
from lformer.export.step import StepGraph

HELD = series([5 + n % 20 for n in range(120)], seed=11)
NEW = series([9, 6, 17, 1, 30], seed=12)
TRAINED = SMALL | {"max_epochs": 3}


def target(given: list[Series]) -> np.ndarray[Any, Any]:
    """(n, 2) two numbers of each series."""
    return np.array([[np.nanmean(v[:, 0]), len(t) / 5 + n % 3] for n, (t, v) in enumerate(given)])


def labels(given: list[Series]) -> np.ndarray[Any, Any]:
    return np.array(["abc"[n % 3] for n in range(len(given))])


def rows(given: list[Series]) -> list[np.ndarray[Any, Any]]:
    return [10 + 3 * np.nan_to_num(values[:, 0]) + np.sin(times) for times, values in given]


def row_labels(given: list[Series]) -> list[np.ndarray[Any, Any]]:
    return [(n > 10).astype(int) for n in rows(given)]


MODELS: dict[str, Callable[[], Any]] = {
    "regressor, gaussian, two members": lambda: (
        LFormerRegressor(streaming=True, uncertainty="gaussian", members=2, **TRAINED)
        .fit(X, target(X)).calibrate(HELD, target(HELD))
    ),
    "regressor, quantiles": lambda: (
        LFormerRegressor(uncertainty="quantiles", members=1, **TRAINED).fit(X, target(X)).calibrate(HELD, target(HELD))
    ),
    "regressor of one number": lambda: (
        LFormerRegressor(members=1, **TRAINED).fit(X, target(X)[:, 0]).calibrate(HELD, target(HELD)[:, 0])
    ),
    "numbers of rows, quantiles": lambda: (
        LFormerPointRegressor(streaming=True, uncertainty="quantiles", **TRAINED)
        .fit(X, rows(X)).calibrate(HELD, rows(HELD))
    ),
    "classifier": lambda: (
        LFormerClassifier(streaming=True, members=1, **TRAINED).fit(X, labels(X)).calibrate(HELD, labels(HELD))
    ),
    "classes of rows": lambda: (
        LFormerPointClassifier(**TRAINED).fit(X, row_labels(X)).calibrate(HELD, row_labels(HELD))
    ),
    "forecaster on own scales": lambda: (
        LFormerForecaster(horizon=6.0, series_scale=True, extrapolate="warn", **TRAINED).fit(X).calibrate(HELD)
    ),
    "streaming forecaster, gaussian": lambda: (
        LFormerForecaster(horizon=6.0, streaming=True, uncertainty="gaussian", members=2, extrapolate="warn", **TRAINED)
        .fit(X).calibrate(HELD)
    ),
    "streaming forecaster": lambda: (
        LFormerForecaster(horizon=6.0, streaming=True, extrapolate="warn", **TRAINED).fit(X).calibrate(HELD)
    ),
    "streaming interpolator, quantiles": lambda: (
        LFormerInterpolator(streaming=True, uncertainty="quantiles", **TRAINED).fit(X).calibrate(HELD)
    ),
}  # fmt: skip
ASKED = [name for name in MODELS if "forecaster" in name or "interpolator" in name]
STREAMS = [name for name in MODELS if "streaming" in name or name.split(",")[0] in ("classifier", "numbers of rows")]


@cache
def model_of(name: str) -> Any:
    return MODELS[name]()


@torch.no_grad()
def run(graph: Any, given: dict[str, Any]) -> dict[str, Any]:
    told = graph.eval()(*(torch.from_numpy(np.array(given[port.name])) for port in graph.inputs))
    return {port.name: tensor.numpy() for port, tensor in zip(graph.outputs, told, strict=True)}


def queries(given: list[Series]) -> list[np.ndarray[Any, Any]]:
    """In every bin of the time ahead."""
    return [times[-1] + np.array([0.3, 1.0, 2.4, 5.5]) for times, _ in given]


def asked(name: str, given: list[Series]) -> tuple[Any, ...]:
    return (given, queries(given)) if name in ASKED else (given,)


def compare(found: Any, told: Any, scale: Any) -> None:
    """(..., O) of a graph with what the estimator says, without the last axis if that is 1; in deviations `scale`."""
    told = np.reshape(told, np.shape(found))
    finite = np.isfinite(told)
    assert (finite == np.isfinite(found)).all()
    assert (found[~finite] == told[~finite]).all()
    with np.errstate(invalid="ignore"):
        assert (np.abs(found - told) / scale)[finite].max(initial=0.0) < 1e-5


def check(name: str, found: dict[str, Any], given: list[Series], coverage: float, last: bool = False) -> None:
    """What a graph said of some series, of each row or of the last one alone, with what the estimator says."""
    model = model_of(name)
    pick = (lambda one: np.asarray(one)[-1]) if last else np.asarray
    by_rows = "rows" in name

    def each(told: Any) -> list[Any]:
        return [pick(one) if by_rows else np.asarray(one) for one in told]

    def cut(output: str, n: int) -> Any:
        mine = found[output][n]
        return mine if last or not by_rows else mine[: len(given[n][0])]

    if "sets" in found:
        for output, by_class in (("sets", False), ("sets_by_class", True)):
            told = model.predict_set(given, coverage=coverage, by_class=by_class)
            assert all((cut(output, n) == one).all() for n, one in enumerate(each(told)))
        return
    scale = np.array(model.task_.scale)
    for n, ends in enumerate(each(model.predict_interval(*asked(name, given), coverage=coverage))):
        for k, output in enumerate(("low", "high")):
            compare(cut(output, n), ends[..., k], scale)
    if "deviations" in found:
        for n, one in enumerate(each(model.predict(*asked(name, given), return_std=True)[1])):
            compare(cut("deviations", n), one, scale)
    if "quantiles" in found:
        for n, one in enumerate(each(model.predict_quantiles(*asked(name, given), q=LEVELS))):
            compare(cut("quantiles", n), one, scale[:, None])


@pytest.mark.filterwarnings("ignore::lformer.estimators.forecast.ExtrapolationWarning")
@pytest.mark.parametrize("name", MODELS)
def test_the_batch_graph_says_how_sure_the_estimator_is(name: str) -> None:
    graph = BatchGraph(model_of(name))
    feeds = padded(NEW) | ({"query_times": np.stack(queries(NEW))} if name in ASKED else {})
    for coverage in (0.5, 0.8004, 0.97):
        check(name, run(graph, feeds | {"coverage": np.array(coverage)}), NEW, coverage)


@pytest.mark.filterwarnings("ignore::lformer.estimators.forecast.ExtrapolationWarning")
@pytest.mark.parametrize("name", ["regressor, gaussian, two members", *STREAMS])
def test_streaming_graphs_say_how_sure_the_estimator_is_of_the_series_so_far(name: str) -> None:
    model, given, coverage = model_of(name), series([18, 18], seed=21), np.array(0.85)
    step = StepGraph(model)
    ask = AskGraph(model) if name in ASKED else None
    state = initial(step, 2)
    for n in range(18):
        row = {"values": np.stack([v[n] for _, v in given]), "times": np.array([t[n] for t, _ in given])}
        told = run(step, row | state | {"coverage": coverage})
        state = {port.name: told[port.next().name] for port, _ in step.state}
        so_far = [(times[: n + 1], values[: n + 1]) for times, values in given]
        if ask is not None:
            told = run(ask, {"query_times": np.stack(queries(so_far)), "coverage": coverage, **state})
        if n in (0, 5, 17):
            check(name, told, so_far, 0.85, last=True)


# Of the forecaster without its batch graph, the slowest to write: test_folder has that of one that is calibrated.
@pytest.mark.filterwarnings("ignore::lformer.estimators.forecast.ExtrapolationWarning")
@pytest.mark.parametrize(
    ("name", "to", "kinds"),
    [
        ("streaming forecaster, gaussian", "onnx", ["step", "ask"]),
        ("numbers of rows, quantiles", "onnx", ["batch", "step"]),
        ("classifier", "onnx", ["batch", "step"]),
        ("numbers of rows, quantiles", "pt2", ["batch", "step"]),
    ],
)
def test_exported_graphs_say_how_sure_the_estimator_is(
    name: str, to: str, kinds: list[str], written: Callable[..., Path]
) -> None:
    """The batch graph and what answers of the stream, outside of lformer."""
    model = model_of(name)
    running = {kind: outside(written(model, kind, to), GRAPHS[kind](model)) for kind in kinds}
    coverage = {"coverage": np.array(0.85)}
    if "batch" in running:
        check(name, running["batch"](padded(NEW) | coverage), NEW, 0.85)
    given, step = [(times[:2], values[:2]) for times, values in series([5, 5], seed=3)], StepGraph(model)
    state = initial(step, 2)
    for n in range(2):
        row = {"values": np.stack([v[n] for _, v in given]), "times": np.array([t[n] for t, _ in given])}
        told = running["step"](row | state | coverage)
        state = {port.name: told[port.next().name] for port, _ in step.state}
    if name in ASKED:
        told = running["ask"]({"query_times": np.stack(queries(given)), **coverage, **state})
    check(name, told, given, 0.85, last=True)


def outside(path: Path, graph: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """What runs the file of a graph without lformer."""
    names = [port.name for port in graph.outputs]
    if path.suffix == ".onnx":
        onnxruntime = pytest.importorskip("onnxruntime", reason="runs with the extra `export`")
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        wanted = [port.name for port in graph.inputs]
        return lambda given: dict(zip(names, session.run(names, {name: given[name] for name in wanted}), strict=True))
    program = torch.export.load(path).module()

    @torch.no_grad()
    def run(given: dict[str, Any]) -> dict[str, Any]:
        told = program(*(torch.from_numpy(np.array(given[port.name])) for port in graph.inputs))
        return {key: tensor.numpy() for key, tensor in zip(names, told, strict=True)}

    return run


@pytest.mark.parametrize("name", STREAMS)
def test_an_export_describes_what_its_graphs_say(name: str, described: Callable[[Any], Path]) -> None:
    folder = described(model_of(name))
    about, example = (json.loads((folder / f"{file}.json").read_text()) for file in ("export", "example"))
    assert about["calibration"]["series"] == len(HELD)
    for kind, prefix in (("batch", ""), ("step", "step_"), ("ask", "ask_")):
        for port in about["graphs"].get(kind, {"outputs": []})["outputs"]:
            assert prefix + port["name"] in example
            assert f"`{port['name']}`" in (folder / "README.md").read_text()


def test_a_coverage_that_nobody_can_promise_is_infinite() -> None:
    """0.99 needs 99 series of each class; more than 0.999 is never promised, and never taken for less."""
    for name, ends in (("regressor of one number", True), ("classifier", False)):
        graph = BatchGraph(model_of(name))
        for coverage in (0.9991, 1.0, 7.0):
            found = run(graph, padded(NEW) | {"coverage": np.array(coverage)})
            assert (found["low"] == -np.inf).all() and (found["high"] == np.inf).all() if ends else found["sets"].all()


def test_members_that_differ_are_less_sure_together_also_when_asked() -> None:
    """The deviation of a mixture, not the mean of deviations."""
    model = model_of("streaming forecaster, gaussian")
    times, values = NEW[2]
    ensemble, state = model.model_, model.model_.init_state(1)
    with torch.no_grad():
        gaps = np.diff(times, prepend=times[0])
        for row, gap in zip(values, gaps, strict=True):
            state = ensemble.advance(torch.from_numpy(row[None]), torch.tensor([gap]), state)
        told = ensemble.ask(torch.tensor([[times[-1] - times[0] + 1.0]]), state)[0, 0]
        alone = torch.stack(
            [
                m.ask(torch.tensor([[times[-1] - times[0] + 1.0]]), s)[0, 0]
                for m, s in zip(ensemble.models, state, strict=True)
            ]
        )
    means, deviations = alone.chunk(2, dim=1)
    expected = (deviations.square().mean(dim=0) + means.var(dim=0, correction=0)).sqrt()
    assert (means.std(dim=0) > 0).all()
    assert torch.allclose(told[3:], expected)
