"""`export.json`: all that a caller of the graphs must know, and `example.json`: what they say of a made-up example."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from lformer import __version__
from lformer.export.graphs import BatchGraph, batch_output
from lformer.export.ports import Port
from lformer.export.step import StepGraph
from lformer.export.subject import Subject, classes_of, members_of
from lformer.panel.calendar import CLOCK_HARMONICS, FAR, HARMONICS, Calendar

FORMAT = 1
SIZES = {"batch": 3, "length": 12, "queries": 2}  # of the example


def describe(
    subject: Subject, files: Mapping[str, tuple[Path, nn.Module]], versions: Mapping[str, str]
) -> dict[str, Any]:
    """What `export.json` says.

    Args:
        subject: the fitted estimator.
        files: graph -> its file and what it holds.
        versions: of the packages that wrote it.
    """
    features, config = subject.features_, subject.model_.config
    return {
        "format": FORMAT,
        "estimator": type(subject).__name__,
        "task": subject.task_.name,
        "answer": config.answer,
        "channels": list(features.channels),
        "classes": classes_of(subject),
        "single": bool(getattr(subject, "_flat", False)),  # `predict` gives numbers, not lists of one
        "unit": features.unit,
        "dates": bool(features.calendar),  # stamps were dates or durations, to be counted in `unit`
        "reach": getattr(subject, "reach_", None),  # how far after the last row training asked
        "missing_values": _plain(subject.missing_values),
        "covariates": {name: _coding(coding) for name, coding in features.covariates.columns.items()},
        "calendar": _calendar(features.marks),
        "graphs": {name: _graph(subject, path, graph) for name, (path, graph) in files.items()},
        "versions": {
            "lformer": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            **versions,
        },
    }


def example(subject: Subject, graphs: Mapping[str, nn.Module]) -> dict[str, Any]:
    """Uneven, ragged series with gaps, in the units of training, and what the graphs say of them in PyTorch."""
    batch = graphs["batch"]
    assert isinstance(batch, BatchGraph)
    given = {port.name: _made_up(port, subject) for port in batch.inputs}
    with torch.no_grad():
        answers = batch(*map(torch.from_numpy, given.values()))
    found: dict[str, Any] = {"inputs": {name: _nested(array) for name, array in given.items()}}
    found["answers"] = _nested(answers.numpy())
    if (step := graphs.get("step")) is not None:
        assert isinstance(step, StepGraph)
        found["step_answers"] = _nested(_stepped(step, given))
    return found


def initial(step: StepGraph, batch: int) -> dict[str, np.ndarray[Any, Any]]:
    """The state of so many series before their first rows."""
    shapes = {port: [batch if axis == "batch" else axis for axis in port.axes] for port, _ in step.state}
    return {port.name: np.broadcast_to(np.array(start, port.dtype), shapes[port]).copy() for port, start in step.state}


def _stepped(step: StepGraph, given: Mapping[str, Any]) -> Any:
    """(L, O), the answers after each row of the first series."""
    state, rows = initial(step, 1), int(given["lengths"][0])
    told = []
    for n in range(rows):
        now = {"values": given["values"][:1, n], "times": given["times"][:1, n]}
        now |= {name: given[name][:1] for name in ("static",) if name in given}
        now |= {name: given[name][:1, n] for name in ("marks",) if name in given}
        ordered = [torch.from_numpy(np.ascontiguousarray((now | state)[port.name])) for port in step.inputs]
        with torch.no_grad():
            answer, *after = step(*ordered)
        told.append(answer[0].numpy())
        state = {port.name: tensor.numpy() for (port, _), tensor in zip(step.state, after, strict=True)}
    return np.stack(told)


def _made_up(port: Port, subject: Subject) -> np.ndarray[Any, Any]:
    """One input of the example: three series of 12, 7 and 1 rows."""
    rng = np.random.default_rng(sum(map(ord, port.name)))
    shape = [SIZES[axis] if isinstance(axis, str) else axis for axis in port.axes]
    interval = _interval(subject)
    times = np.cumsum(interval * np.random.default_rng(0).exponential(1.0, (SIZES["batch"], SIZES["length"])), axis=1)
    lengths = np.array([12, 7, 1])
    if port.name == "lengths":
        return lengths
    if port.name == "times":
        return 1e4 * interval + times
    if port.name == "query_times":
        ahead = min(interval, getattr(subject, "reach_", np.inf)) / 2
        return 1e4 * interval + times[np.arange(3), lengths - 1][:, None] + ahead * np.array([0.5, 1.0])
    if port.name == "values":
        rows = members_of(subject)[0].rows
        found = rows.shift.double().numpy() + rows.scale.double().numpy() * rng.normal(size=shape)
        found[:, 1:][rng.random((shape[0], shape[1] - 1, *shape[2:])) < 0.3] = np.nan
        return found
    return rng.normal(size=shape).astype(port.dtype)


def _interval(subject: Subject) -> float:
    """A typical one between rows."""
    return float(members_of(subject)[0].rows.interval)


def _graph(subject: Subject, path: Path, graph: nn.Module) -> dict[str, Any]:
    assert isinstance(graph, BatchGraph | StepGraph)
    output = batch_output(subject)
    found: dict[str, Any] = {"file": path.name, "bytes": path.stat().st_size}
    found["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    if isinstance(graph, BatchGraph):
        return found | {"inputs": [port.described() for port in graph.inputs], "outputs": [output.described()]}
    rows = graph.inputs[: len(graph.inputs) - len(graph.state)]
    state = [
        port._replace(about="").described() | {"next": f"next_{port.name}", "initial": start}
        for port, start in graph.state
    ]
    answer = output._replace(axes=("batch", output.axes[-1]))
    return found | {"inputs": [port.described() for port in rows], "outputs": [answer.described()], "state": state}


def _calendar(calendar: Calendar) -> dict[str, Any]:
    """How marks are made; README.md says it in formulas."""
    if calendar.clock is not None:
        begins, length = calendar.clock
        return {"clock": {"begins": begins, "length": length, "harmonics": CLOCK_HARMONICS, "bound": FAR}}
    return {"zone": calendar.zone, "harmonics": {name: HARMONICS[name] for name in calendar.periods}}


def _coding(coding: Any) -> dict[str, Any]:
    if isinstance(coding, tuple):
        return {"mean": coding[0], "deviation": coding[1]}
    return {"categories": list(coding)}


def _plain(value: Any) -> Any:
    """What JSON can hold."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _nested(array: Any) -> Any:
    """An array as lists, null for NaN."""
    if array.ndim == 0:
        number = array.item()
        return None if number != number else number
    return [_nested(np.asarray(one)) for one in array]
