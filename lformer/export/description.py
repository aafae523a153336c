"""`export.json`: everything that a caller of the graphs must know."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lformer import __version__
from lformer.distributions import LEVELS
from lformer.export.ask import AskGraph
from lformer.export.graphs import BatchGraph
from lformer.export.step import StepGraph
from lformer.export.subject import Subject, calibration_of, classes_of
from lformer.panel.calendar import CLOCK_HARMONICS, FAR, HARMONICS, Calendar

FORMAT = 2


def describe(
    subject: Subject,
    files: Mapping[str, tuple[Path, BatchGraph | StepGraph | AskGraph]],
    versions: Mapping[str, str],
) -> dict[str, Any]:
    """The content of `export.json`.

    Args:
        subject: the fitted estimator.
        files: graph -> its file and its module.
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
        "single": bool(getattr(subject, "_flat", False)),  # `predict` returns numbers rather than lists with one number
        "unit": features.unit,
        "dates": bool(features.calendar),  # time stamps were dates or durations, to be given in `unit`
        "reach": getattr(subject, "reach_", None),  # longest time after the last row in training
        "missing_values": _plain(subject.missing_values),
        "covariates": {name: _coding(coding) for name, coding in features.covariates.columns.items()},
        "calendar": _calendar(features.marks),
        **_sureness(subject),
        "graphs": {name: _graph(path, graph) for name, (path, graph) in files.items()},
        "versions": {
            "lformer": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            **versions,
        },
    }


def _graph(path: Path, graph: BatchGraph | StepGraph | AskGraph) -> dict[str, Any]:
    found: dict[str, Any] = {"file": path.name, "bytes": path.stat().st_size}
    found["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    rows = graph.inputs if isinstance(graph, BatchGraph) else graph.rows
    found |= {"inputs": [port.described() for port in rows], "outputs": [port.described() for port in graph.answers]}
    if isinstance(graph, StepGraph):
        found["state"] = [
            port.described() | {"next": port.next().name, "initial": start} for port, start in graph.state
        ]
    elif isinstance(graph, AskGraph):
        found["state"] = [port.described() for port in graph.state]
    return found


def _sureness(subject: Subject) -> dict[str, Any]:
    """The kind of uncertainty that is predicted, and the result of `calibrate`."""
    kind, calibration = subject.task_.distribution, calibration_of(subject)
    about: dict[str, Any] = {"distribution": kind, "levels": list(LEVELS) if kind == "quantiles" else None}
    if calibration is None:
        return about | {"calibration": None}
    finite = np.isfinite(calibration.thresholds).sum(axis=2) / (calibration.thresholds.shape[2] + 1)
    # For each output, or for all classes and then each, and for each bin of the time ahead.
    largest = {"edges": calibration.edges.tolist(), "largest_coverage": finite.tolist()}
    return about | {"calibration": {"series": int(calibration.series), **largest}}


def _calendar(calendar: Calendar) -> dict[str, Any]:
    """How marks are computed; README.md has the formulas."""
    if calendar.clock is not None:
        begins, length = calendar.clock
        return {"clock": {"begins": begins, "length": length, "harmonics": CLOCK_HARMONICS, "bound": FAR}}
    return {"zone": calendar.zone, "harmonics": {name: HARMONICS[name] for name in calendar.periods}}


def _coding(coding: Any) -> dict[str, Any]:
    if isinstance(coding, tuple):
        return {"mean": coding[0], "deviation": coding[1]}
    return {"categories": list(coding)}


def _plain(value: Any) -> Any:
    """The value in a form that JSON can represent."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
