"""Step and ask graph say what a stream of forecaster or interpolator says, and `predict` of the series so far."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from export.conftest import SCALE, SMALL, fitted, series

from lformer import LFormerForecaster, LFormerInterpolator, Panel
from lformer.export.ask import AskGraph
from lformer.export.example import initial
from lformer.export.step import StepGraph

ASKED = ["streaming forecaster", "streaming interpolator", "ensemble of forecasters", "bare forecaster"]
AHEAD = np.array([3.0, 0.4, 1.7])  # after a row, in no order
Run = Callable[[dict[str, Any]], dict[str, Any]]


def eager(graph: StepGraph | AskGraph) -> Run:
    @torch.no_grad()
    def run(given: dict[str, Any]) -> dict[str, Any]:
        told = graph(*(torch.from_numpy(np.array(given[port.name])) for port in graph.inputs))
        return {port.name: tensor.numpy() for port, tensor in zip(graph.outputs, told, strict=True)}

    return run


def in_onnxruntime(path: Path) -> Run:
    onnxruntime = pytest.importorskip("onnxruntime", reason="runs with the extra `export`")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    wanted, given_out = [port.name for port in session.get_inputs()], [port.name for port in session.get_outputs()]
    return lambda given: dict(zip(given_out, session.run(None, {name: given[name] for name in wanted}), strict=True))


def in_torch(path: Path, graph: StepGraph | AskGraph) -> Run:
    program = torch.export.load(path).module()

    @torch.no_grad()
    def run(given: dict[str, Any]) -> dict[str, Any]:
        told = program(*(torch.from_numpy(np.array(given[port.name])) for port in graph.inputs))
        return {port.name: tensor.numpy() for port, tensor in zip(graph.outputs, told, strict=True)}

    return run


def follow(model: Any, step: Run, ask: Run, given: list[Any], rows: int, ahead: Any = AHEAD) -> np.ndarray[Any, Any]:
    """(rows, B, Q, C), what the graphs say of moments after each row."""
    names = [port.name for port, _ in StepGraph(model).state]
    state, told = initial(StepGraph(model), len(given)), []
    for n in range(rows):
        times = np.array([times[n] for times, _ in given])
        after = step({"values": np.stack([values[n] for _, values in given]), "times": times, **state})
        state = {name: after[f"next_{name}"] for name in names}
        told.append(ask({"query_times": times[:, None] + ahead, **state})["answers"])
    return np.stack(told)


def streamed(model: Any, given: list[Any], rows: int, ahead: Any = AHEAD) -> np.ndarray[Any, Any]:
    told = []
    for times, values in given:
        stream, mine = model.stream(), []
        for n in range(rows):
            stream.update(times[n], values[n])
            mine.append([stream.predict_at(times[n] + more) for more in ahead])
        told.append(mine)
    return np.swapaxes(np.array(told), 0, 1)


def difference(found: Any, told: Any) -> float:
    """In deviations of the channels."""
    return float((np.abs(found - told) / SCALE).max())


@pytest.mark.filterwarnings("ignore::lformer.estimators.forecast.ExtrapolationWarning")
@pytest.mark.parametrize("name", ASKED)
def test_the_lean_ask_is_what_a_stream_says(name: str) -> None:
    """Over more rows than a row looks back at; with marks for missing values, and rows without any, which count not."""
    model, given = fitted(name), series([40, 40], seed=3)
    given[0][1][7, 2] = -9.0
    given[1][1][11] = [np.nan, np.nan, -9.0]
    found = follow(model, eager(StepGraph(model).eval()), eager(AskGraph(model).eval()), given, 40)
    assert difference(found, streamed(model, given, 40)) < 1e-5


@pytest.mark.parametrize(("name", "to"), [*((name, "onnx") for name in ASKED), ("streaming interpolator", "pt2")])
def test_exported_graphs_say_what_predict_says_of_the_series_so_far(
    name: str, to: str, written: Callable[..., Path]
) -> None:
    """Of any number of series, at any number of times."""
    model = fitted(name)
    if to == "onnx":
        step, ask = in_onnxruntime(written(model, "step")), in_onnxruntime(written(model, "ask"))
    else:
        step = in_torch(written(model, "step", to), StepGraph(model))
        ask = in_torch(written(model, "ask", to), AskGraph(model))
    for size, ahead in ((1, AHEAD[:1]), (4, np.linspace(0.1, 3.5, 7))):
        given = series([20] * size, seed=size)
        found = follow(model, step, ask, given, 20, ahead)
        for n in (0, 1, 6, 19):
            so_far = [(times[: n + 1], values[: n + 1]) for times, values in given]
            told = model.predict(so_far, [times[-1] + ahead for times, _ in so_far])
            assert difference(found[n], np.stack(told)) < 1e-5, n


@pytest.mark.parametrize("name", ASKED)
def test_an_export_has_all_three_graphs_and_an_example(name: str, described: Callable[[Any], Path]) -> None:
    folder = described(fitted(name))
    graphs = json.loads((folder / "export.json").read_text())["graphs"]
    assert list(graphs) == ["batch", "step", "ask"]
    example = json.loads((folder / "example.json").read_text())
    for name in ("answers", *(port["name"] for port in graphs["ask"]["outputs"])):
        assert len(example[name][0]) == len(example[f"ask_{name}"])
        assert name in (folder / "README.md").read_text()


def test_a_row_without_observations_leaves_the_state_as_it_is() -> None:
    """As if it had never come, also before the first and with another stamp."""
    model, (times, values) = fitted("streaming interpolator"), series([25], seed=5)[0]
    empty = np.isnan(values).all(axis=1)
    assert empty.any()
    step, ask = eager(StepGraph(model).eval()), eager(AskGraph(model).eval())
    begun = (np.concatenate([[times[0] - 9.0], times]), np.concatenate([np.full((1, 3), np.nan), values]))
    whole = follow(model, step, ask, [begun], 26)[-1]
    kept = follow(
        model, step, ask, [(times[~empty], values[~empty])], int((~empty).sum()), times[-1] - times[~empty][-1] + AHEAD
    )
    assert (whole == kept[-1]).all()


def test_what_lies_before_the_last_row_is_not_told() -> None:
    """NaN, before any row, too: the state of an earlier row is what knows it. At the row itself there is an answer."""
    model, given = fitted("streaming interpolator"), series([12, 12], seed=6)
    step, ask = eager(StepGraph(model).eval()), eager(AskGraph(model).eval())
    found = follow(model, step, ask, given, 12, np.array([-0.005, 0.0]))
    counts = np.stack([~np.isnan(values).all(axis=1) for _, values in given], axis=1)  # (rows, B), others are left out
    assert 12 < counts.sum() < 24
    assert np.isnan(found[counts][:, 0]).all()
    assert np.isfinite(found[:, :, 1]).all()
    before = ask({"query_times": np.array([[3.0]]), **initial(StepGraph(model), 1)})["answers"]
    assert np.isnan(before).all()


def test_a_long_series_keeps_its_digits() -> None:
    model, rng = fitted("streaming interpolator"), np.random.default_rng(0)
    times = 1e6 + np.cumsum(np.where(rng.random(1500) < 0.01, 1e3, 1.0) * rng.exponential(1.0, 1500))
    values = series([1500], seed=8)[0][1]
    step, ask = eager(StepGraph(model).eval()), eager(AskGraph(model).eval())
    found = follow(model, step, ask, [(times, values)], 1500)[-1, 0]
    assert difference(found, model.predict([(times, values)], [times[-1] + AHEAD])[0]) < 1e-5


def test_marks_and_covariates_are_inputs() -> None:
    """Dates with a calendar, categories and a number that may be missing; coded as the batch graph has them."""
    rng = np.random.default_rng(0)
    tables = [
        pd.DataFrame({"id": n, "time": pd.Timestamp("2024-03-29") + pd.to_timedelta(np.sort(72 * rng.random(k)), "h"),
                      "a": rng.normal(size=k), "b": np.where(rng.random(k) < 0.4, np.nan, rng.normal(size=k))})
        for n, k in enumerate(rng.integers(6, 12, 24))
    ]  # fmt: skip
    static = pd.DataFrame({"age": rng.normal(60, 9, 24), "site": rng.choice(["x", "y"], 24)}, index=range(24))
    static.loc[0, "age"] = np.nan
    panel = Panel.from_long(pd.concat(tables), id="id", time="time", value=["a", "b"], static=static, unit="h")
    kinds: list[Any] = [
        LFormerInterpolator(calendar=("hour",), streaming=True, **SMALL),
        LFormerForecaster(calendar=("hour",), streaming=True, persistence=False, horizon="12h", **SMALL),
    ]
    for model in kinds:
        model.fit(panel)
        step, ask = eager(StepGraph(model).eval()), eager(AskGraph(model).eval())
        for n in (0, 5):
            stamps = tables[n]["time"].to_numpy()
            asked = stamps[-1] + np.array([30, 200]).astype("timedelta64[m]")
            hours, at = ((x - np.datetime64("1970-01-01")) / np.timedelta64(1, "h") for x in (stamps, asked))
            marks, query_marks = (model.features_.marks.of(x, "h").astype(np.float32) for x in (stamps, asked))
            coded = model.features_.static(panel[n : n + 1])
            state = initial(StepGraph(model), 1)
            for r in range(len(stamps)):
                row = tables[n][["a", "b"]].to_numpy()[r : r + 1]
                after = step(
                    {"values": row, "times": hours[r : r + 1], "static": coded, "marks": marks[None, r], **state}
                )
                state = {name: after[f"next_{name}"] for name in state}
            told = ask({"query_times": at[None], "static": coded, "query_marks": query_marks[None], **state})["answers"]
            assert np.abs(told[0] - model.predict(panel[n : n + 1], [asked])[0]).max() < 1e-5
