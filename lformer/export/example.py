"""`example.json`: uneven, ragged series with gaps, in the units of training, and the outputs of the graphs for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lformer.export.ask import AskGraph
from lformer.export.graphs import BatchGraph
from lformer.export.ports import Port
from lformer.export.step import StepGraph
from lformer.export.subject import Subject, calibration_of, members_of

Graphs = Mapping[str, BatchGraph | StepGraph | AskGraph]
Arrays = dict[str, np.ndarray[Any, Any]]
SIZES = {"batch": 3, "length": 12, "queries": 2}
COVERAGE = 900  # thousandths, if there are enough calibration series for it


def example(subject: Subject, graphs: Graphs) -> dict[str, Any]:
    """Inputs, and PyTorch's outputs by name.

    `low` is for whole series, `step_low` after each row of the first series, `ask_low` from the state after its last
    row.
    """
    batch, step, ask = graphs["batch"], graphs.get("step"), graphs.get("ask")
    given = {port.name: _made_up(port, subject) for port in batch.inputs}
    found: dict[str, Any] = {"inputs": {name: _nested(array) for name, array in given.items()}}
    found |= {name: _nested(array) for name, array in _run(batch, given).items()}
    if step is None:
        return found
    assert isinstance(step, StepGraph)
    told, state = _stepped(step, given)
    found |= {f"step_{name}": _nested(array) for name, array in told.items()}
    if ask is not None:
        assert isinstance(ask, AskGraph)
        first = {port.name: given[port.name][:1] if port.axes else given[port.name] for port in ask.rows}
        found |= {f"ask_{name}": _nested(array[0]) for name, array in _run(ask, first | state).items()}
    return found


def initial(step: StepGraph, batch: int) -> Arrays:
    """The state of this many series before their first rows."""
    shapes = {port: [batch if axis == "batch" else axis for axis in port.axes] for port, _ in step.state}
    return {port.name: np.broadcast_to(np.array(start, port.dtype), shapes[port]).copy() for port, start in step.state}


def _stepped(step: StepGraph, given: Arrays) -> tuple[Arrays, Arrays]:
    """(L, ...) outputs after each row of the first series, and its state after the last."""
    state, told = initial(step, 1), []
    for n in range(int(given["lengths"][0])):
        now = {port.name: _of_row(given, port.name, n) for port in step.rows}
        after = _run(step, now | state)
        told.append({port.name: after[port.name][0] for port in step.answers})
        state = {port.name: after[port.next().name] for port, _ in step.state}
    return {port.name: np.stack([one[port.name] for one in told]) for port in step.answers}, state


def _of_row(given: Arrays, name: str, n: int) -> np.ndarray[Any, Any]:
    """The input of the step graph for row n of the first series."""
    if name == "coverage":
        return given[name]
    return given[name][:1] if name == "static" else given[name][:1, n]


@torch.no_grad()
def _run(graph: BatchGraph | StepGraph | AskGraph, given: Arrays) -> Arrays:
    ordered = [torch.from_numpy(np.array(given[port.name])) for port in graph.inputs]
    tensors: tuple[Tensor, ...] = graph(*ordered)
    return {port.name: tensor.numpy() for port, tensor in zip(graph.outputs, tensors, strict=True)}


def _made_up(port: Port, subject: Subject) -> np.ndarray[Any, Any]:
    """One input: three series with 12, 7 and 1 rows."""
    rng = np.random.default_rng(sum(map(ord, port.name)))
    shape = [SIZES[axis] if isinstance(axis, str) else axis for axis in port.axes]
    rows = members_of(subject)[0].rows
    interval = float(rows.interval)
    times = np.cumsum(interval * np.random.default_rng(0).exponential(1.0, (SIZES["batch"], SIZES["length"])), axis=1)
    lengths = np.array([12, 7, 1])
    if port.name == "lengths":
        return lengths
    if port.name == "times":
        return 1e4 * interval + times
    if port.name == "query_times":
        ahead = min(interval, getattr(subject, "reach_", np.inf)) / 2
        return 1e4 * interval + times[np.arange(3), lengths - 1][:, None] + ahead * np.array([0.5, 1.0])
    if port.name == "coverage":
        return _coverage(subject)
    if port.name == "values":
        found = rows.shift.double().numpy() + rows.scale.double().numpy() * rng.normal(size=shape)
        found[:, 1:][rng.random((shape[0], shape[1] - 1, *shape[2:])) < 0.3] = np.nan
        return found
    return rng.normal(size=shape).astype(port.dtype)


def _coverage(subject: Subject) -> np.ndarray[Any, Any]:
    """() the largest coverage up to `COVERAGE` without infinite thresholds, if there is one."""
    finite = np.isfinite(calibration_of(subject).thresholds).all(axis=(0, 1))
    enough = int(finite[:COVERAGE].sum())  # thresholds rise with the coverage
    return np.array((enough or COVERAGE) / 1000)


def _nested(array: Any) -> Any:
    """An array as nested lists, with null for numbers that are not finite."""
    if array.ndim == 0:
        number = array.item()
        return number if np.isfinite(number) else None
    return [_nested(np.asarray(one)) for one in array]
