"""`estimator.json`: a fitted estimator without its weights as plain numbers and text, written and read.

Every value that is read is checked: a file written by hand can have a valid seal and still make no sense.
"""

from __future__ import annotations

import dataclasses
import platform
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from reprlib import repr as short
from typing import Any, NamedTuple

import numpy as np
import sklearn
import torch

from lformer import __version__, tasks
from lformer.covariates import Coding, Covariates
from lformer.estimators.base import LFormerEstimator
from lformer.estimators.calibrating import CalibratedEstimator
from lformer.estimators.conformal import Calibration
from lformer.estimators.features import Features
from lformer.estimators.folder import is_weights
from lformer.estimators.forecast import LFormerForecaster
from lformer.estimators.horizon import as_text, check_horizon, is_duration
from lformer.estimators.interpolate import LFormerInterpolator
from lformer.estimators.intervals import IntervalEstimator
from lformer.estimators.plain import (
    array,
    different,
    entries,
    fields,
    number,
    plain,
    positive,
    restored,
    text,
    texts,
    truth,
    whole,
)
from lformer.estimators.points import LFormerPointClassifier, LFormerPointRegressor
from lformer.estimators.pretraining import LFormerPretrainer
from lformer.estimators.records import record_task
from lformer.estimators.series import LFormerClassifier, LFormerRegressor
from lformer.nn import LFormerConfig
from lformer.nn.ensemble import Ensemble
from lformer.panel import Array, check_missing_values
from lformer.panel.calendar import HARMONICS, Calendar, check_calendar
from lformer.panel.stamps import UNITS
from lformer.panel.zones import read_zone
from lformer.tasks import Task

FORMAT = 6
PARTS = (
    "format", "class", "versions", "parameters", "config", "members", "features", "task", "fitted", "calibration",
    "columns", "weights",
)  # fmt: skip
MOST_EDGES = 16  # between the bins of a calibration
OPTIONAL_COLUMNS = ("channel", "value", "time_format", "time_zone")


class Kind(NamedTuple):
    """What loading needs to know of a class: its task for a number of outputs, and the attributes that `fit` sets."""

    estimator: type[LFormerEstimator]
    task: Callable[[int], Task]
    found: tuple[str, ...]


NUMBERS = ("_flat",)
KINDS = {
    kind.estimator.__name__: kind
    for kind in (
        Kind(LFormerClassifier, tasks.classify, ("classes_",)),
        Kind(LFormerRegressor, tasks.regress, NUMBERS),
        Kind(LFormerPointClassifier, partial(tasks.classify, answer="step"), ("classes_",)),
        Kind(LFormerPointRegressor, tasks.regress_points, NUMBERS),
        Kind(LFormerInterpolator, partial(record_task, "interpolate"), ()),
        Kind(LFormerForecaster, partial(record_task, "extrapolate"), ("reach_",)),
        Kind(LFormerPretrainer, tasks.pretrain, ()),
    )
}
FITTED = ("n_features_in_", "_is_table", "n_iter_")  # attributes that every class has after `fit`


class Stored(NamedTuple):
    """The file of the weights, with its checksum and size."""

    file: str
    sha256: str
    bytes: int


class Calibrated(NamedTuple):
    """A calibration without its thresholds, which are stored with the weights."""

    groups: int
    edges: tuple[float, ...]
    series: int


class Description(NamedTuple):
    """The content of `estimator.json`."""

    estimator: LFormerEstimator  # without its model
    config: LFormerConfig  # of the model, or of each member of an ensemble
    members: int  # of the ensemble; 0 for a single model
    calibration: Calibrated | None  # the calibration without its thresholds
    columns: dict[str, Any] | None  # layout of its data as a table
    weights: Stored


# --- to JSON ---


def describe(estimator: LFormerEstimator, columns: Mapping[str, Any] | None, weights: Stored) -> dict[str, Any]:
    """Everything except the weights."""
    name = type(estimator).__name__
    if name not in KINDS or KINDS[name].estimator is not type(estimator):
        raise ValueError(f"only {', '.join(KINDS)} can be saved; got {type(estimator).__qualname__}.")
    model, features = estimator.model_, estimator.features_
    return {
        "format": FORMAT,
        "class": name,
        "versions": {
            "lformer": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "scikit-learn": sklearn.__version__,
        },
        "parameters": {name: _parameter(estimator, name) for name in _kept(type(estimator))},
        "config": {key: plain(value, key) for key, value in dataclasses.asdict(model.config).items()},
        "members": len(model.members) if isinstance(model, Ensemble) else 0,
        "features": {
            "channels": list(features.channels),
            "known": plain(features.known, "known"),
            "unit": features.unit,
            "calendar": features.calendar,
            "covariates": [_describe_static(column, coding) for column, coding in features.covariates.columns.items()],
            "periods": list(features.marks.periods),
            "zone": features.marks.zone,
            "clock": None if features.marks.clock is None else list(features.marks.clock),
        },
        "task": {"shift": list(estimator.task_.shift), "scale": list(estimator.task_.scale)},
        "fitted": {key: plain(getattr(estimator, key), key) for key in (*KINDS[name].found, *FITTED)},
        "calibration": _describe_calibration(estimator.calibration_),
        "columns": None if columns is None else dict(columns),
        "weights": weights._asdict(),
    }


def _describe_calibration(found: Calibration | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {"groups": len(found.counts), "edges": [float(edge) for edge in found.edges], "series": found.series}


def _kept(kind: type[LFormerEstimator]) -> list[str]:
    """The parameters that are saved: a fitted model no longer needs the one it was pre-trained from."""
    return [name for name in kind._get_param_names() if name != "pretrained"]


def _parameter(estimator: LFormerEstimator, name: str) -> Any:
    value = getattr(estimator, name)
    return as_text(value) if name == "horizon" and is_duration(value) else plain(value, name)


def _describe_static(name: str, coding: Coding) -> dict[str, Any]:
    if isinstance(coding, tuple):
        return {"name": name, "mean": coding[0], "deviation": coding[1]}
    return {"name": name, "categories": coding}


# --- from JSON ---


def rebuild(found: dict[str, Any]) -> Description:
    """The description in a file of this format and of a known class; raises a ValueError that says what is invalid."""
    fields(found, "it", PARTS)
    kind = KINDS[found["class"]]
    estimator, config = _unfitted(kind.estimator, found["parameters"]), _config(found["config"])
    estimator.features_ = _features(found["features"])
    estimator.task_ = _task(kind, config, found["task"])
    for key, value in fields(found["fitted"], "fitted", (*kind.found, *FITTED)).items():
        setattr(estimator, key, _READ_FITTED[key](value, key))
    _require_agreement(estimator, config)
    return Description(
        estimator,
        config,
        whole(found["members"], "members"),
        _calibration(kind, config, found["calibration"]),
        _columns(found["columns"]),
        _weights(found["weights"]),
    )


def _unfitted(kind: type[LFormerEstimator], stored: Any) -> LFormerEstimator:
    """The estimator with its parameters; those that prediction reads are checked here, the others by `fit`."""
    given = {key: restored(value, key) for key, value in fields(stored, "parameters", _kept(kind)).items()}
    whole(given["batch_size"], "batch_size", least=1)
    if given["device"] not in ("auto", "cpu", "gpu"):
        raise ValueError(f'device must be "auto", "cpu" or "gpu"; got {short(given["device"])}')
    try:
        check_missing_values(given["missing_values"])
    except TypeError as error:
        raise ValueError(str(error).removesuffix(".")) from None
    if given.get("horizon") is not None:
        _check_horizon(given["horizon"])
    if "hidden" in given and not 0 < number(given["hidden"], "hidden") < 1:
        raise ValueError(f"hidden must lie between 0 and 1; got {given['hidden']}")
    check_calendar(given["calendar"])
    if not 0 <= number(given.get("hidden_channels", 0), "hidden_channels") < 1:
        raise ValueError(f"hidden_channels must be at least 0 and below 1; got {given['hidden_channels']}")
    return kind(**given)


def _check_horizon(stored: Any) -> None:
    if not isinstance(stored, str):
        positive(stored, "horizon")
        return
    try:
        check_horizon(stored)
    except ValueError as error:
        raise ValueError(str(error).removesuffix(".")) from None


_READ_CONFIG: dict[str, Callable[[Any, str], Any]] = {  # by the type of an attribute; any other type is text
    "int": whole,
    "int | None": lambda value, name: None if value is None else whole(value, name, least=1),
    "float": number,
    "bool": truth,
}


def _config(stored: Any) -> LFormerConfig:
    types = {field.name: str(field.type) for field in dataclasses.fields(LFormerConfig)}
    for key, value in fields(stored, "config", types).items():
        _READ_CONFIG.get(types[key], text)(value, key)
    return LFormerConfig(**stored)


def _features(stored: Any) -> Features:
    stored = fields(
        stored, "features", ("channels", "known", "unit", "calendar", "covariates", "periods", "zone", "clock")
    )
    known = array(stored["known"], "known")
    if known.dtype.kind != "b" or not known.any():
        raise ValueError("known must be truth values, at least one of them true")
    unit, calendar = text(stored["unit"], "unit"), truth(stored["calendar"], "calendar")
    if calendar and unit not in UNITS:
        raise ValueError(f"unit must be one of {', '.join(UNITS)} for calendar stamps; got {short(unit)}")
    covariates = [_static(entry) for entry in entries(stored["covariates"], "covariates")]
    different([name for name, _ in covariates], "the names of covariates")
    return Features(
        channels=tuple(texts(stored["channels"], "channels")),
        known=known,
        unit=unit,
        calendar=calendar,
        covariates=Covariates(dict(covariates)),
        marks=_marks(stored["periods"], stored["zone"], stored["clock"], calendar),
    )


def _marks(periods: Any, zone: Any, clock: Any, calendar: bool) -> Calendar:
    names = texts(periods, "periods")
    for name in names:
        if name not in HARMONICS:
            raise ValueError(f"periods must be among {', '.join(HARMONICS)}; got {short(name)}")
    if names and not calendar:
        raise ValueError("periods need dates as time stamps, but these are numbers")
    if zone is not None:
        read_zone(text(zone, "zone"))
    if clock is None:
        return Calendar(tuple(names), zone)
    if names:
        raise ValueError("clock must be null where there are periods")
    if len(entries(clock, "clock")) != 2:
        raise ValueError(f"clock must be two numbers, when it begins and how long it is; got {short(clock)}")
    return Calendar(clock=(number(clock[0], "clock"), positive(clock[1], "the length of the clock")))


def _static(entry: Any) -> tuple[str, Coding]:
    if isinstance(entry, dict) and "categories" in entry:
        entry = fields(entry, "a covariate", ("name", "categories"))
        return text(entry["name"], "the name of a covariate"), texts(entry["categories"], "categories")
    entry = fields(entry, "a covariate", ("name", "mean", "deviation"))
    name, mean = text(entry["name"], "the name of a covariate"), number(entry["mean"], "the mean of a covariate")
    return name, (mean, positive(entry["deviation"], "the deviation of a covariate"))


def _task(kind: Kind, config: LFormerConfig, stored: Any) -> Task:
    stored = fields(stored, "task", ("shift", "scale"))
    shift = [number(one, "shift") for one in entries(stored["shift"], "shift")]
    scale = [positive(one, "scale") for one in entries(stored["scale"], "scale")]
    if bool(scale) == ("classes_" in kind.found):
        raise ValueError("the scale of the predictions is missing" if not scale else "classes have no scale")
    task = kind.task(config.outputs)
    if config.distribution != "point":
        if not issubclass(kind.estimator, IntervalEstimator):
            raise ValueError(f"{kind.estimator.__name__} predicts no distribution; got {config.distribution!r}")
        task = tasks.distributed(task, config.distribution)
    return replace(tasks.in_own_units(task) if config.series_scale else task, shift=shift, scale=scale)


def _calibration(kind: Kind, config: LFormerConfig, stored: Any) -> Calibrated | None:
    """Each output has a threshold; for classes there is also one over all classes."""
    if stored is None:
        return None
    stored = fields(stored, "calibration", Calibrated._fields)
    groups = config.outputs + ("classes_" in kind.found)
    if not issubclass(kind.estimator, CalibratedEstimator) or whole(stored["groups"], "groups") != groups:
        raise ValueError(f"a calibration of {short(stored['groups'])} groups where the rest of the file needs {groups}")
    edges = tuple(positive(edge, "edges") for edge in entries(stored["edges"], "edges"))
    if list(edges) != sorted(set(edges)) or len(edges) > MOST_EDGES:
        raise ValueError(f"edges must rise, and be at most {MOST_EDGES}; got {short(edges)}")
    return Calibrated(groups, edges, whole(stored["series"], "series", least=1))


def _classes(stored: Any, name: str) -> Array:
    classes = array(stored, name)
    if len(different(classes.tolist(), name)) < 2:
        raise ValueError(f"{name} must be at least two; got {short(classes.tolist())}")
    return classes


_READ_FITTED: dict[str, Callable[[Any, str], Any]] = {
    "classes_": _classes,
    "_flat": truth,
    "reach_": positive,
    "n_features_in_": partial(whole, least=1),
    "_is_table": truth,
    "n_iter_": whole,
}


def _columns(stored: Any) -> dict[str, Any] | None:
    """Names of columns and the formats of ids and time stamps: strings, lists of them, or None."""
    if stored is None:
        return None
    if not isinstance(stored, dict):
        raise ValueError(f"columns must be an object or null; got {short(stored)}")
    for key, value in stored.items():
        if key == "static" or (key == "value" and isinstance(value, list)):
            [text(one, key) for one in entries(value, key)]
        elif key in ("id", "time", "on_duplicate", "id_type") or (key in OPTIONAL_COLUMNS and value is not None):
            text(value, key)
        elif key not in OPTIONAL_COLUMNS:
            raise ValueError(f"columns has an entry {short(key)}, which this version does not know")
    return stored


def _weights(stored: Any) -> Stored:
    stored = Stored(**fields(stored, "weights", Stored._fields))
    if not is_weights(text(stored.file, "the file of the weights")):
        raise ValueError(f"weights must be in a file such as model.safetensors; got {short(stored.file)}")
    if not re.fullmatch("[0-9a-f]{64}", text(stored.sha256, "sha256")):
        raise ValueError(f"sha256 must be 64 hexadecimal digits; got {short(stored.sha256)}")
    whole(stored.bytes, "bytes")
    return stored


def _require_agreement(estimator: Any, config: LFormerConfig) -> None:
    """Check that values stored in several places agree."""
    features, channels = estimator.features_, len(estimator.features_.channels)
    pairs: dict[str, tuple[Any, Any]] = {
        "known": (len(features.known), channels),
        "inputs of the model": (config.inputs, channels),
        "rows of the model": (config.rows, "carried"),
        "static covariates of the model": (config.statics, features.covariates.width),
        "marks of the model": (config.marks, features.marks.width),
        "place of the answers": (config.answer, estimator.task_.answer),
    }
    if hasattr(estimator, "classes_"):
        pairs["classes_"] = (len(estimator.classes_), config.outputs)
    elif getattr(estimator, "_flat", False) or config.answer == "query":
        pairs["outputs of the model"] = (config.outputs, channels if config.answer == "query" else 1)
    elif isinstance(estimator, LFormerPretrainer):
        pairs["outputs of the model"] = (config.outputs, 2 * channels)
    for name, (has, needs) in pairs.items():
        if has != needs:
            raise ValueError(f"{name}: {has} where the rest of the file needs {needs}")
