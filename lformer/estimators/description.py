"""`estimator.json`: a fitted estimator without its weights, as plain numbers and text, and back."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import sklearn
import torch

from lformer import __version__, tasks
from lformer.covariates import Covariates
from lformer.estimators.base import LFormerEstimator
from lformer.estimators.features import Features
from lformer.estimators.forecast import LFormerForecaster, LFormerInterpolator, record_task
from lformer.estimators.points import LFormerPointClassifier, LFormerPointRegressor
from lformer.estimators.series import LFormerClassifier, LFormerRegressor
from lformer.nn import LFormer, LFormerConfig
from lformer.nn.ensemble import Ensemble
from lformer.panel import Array
from lformer.tasks import Task

FORMAT = 2


class Kind(NamedTuple):
    """What loading must know of a class: its task for so many outputs, and what `fit` found out for its answers."""

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
        Kind(LFormerForecaster, partial(record_task, "extrapolate"), ()),
    )
}
FITTED = ("n_features_in_", "_is_table", "n_iter_")  # what `fit` finds out for every class


def describe(estimator: LFormerEstimator) -> dict[str, Any]:
    """Everything but the weights."""
    name = type(estimator).__name__
    if name not in KINDS or KINDS[name].estimator is not type(estimator):
        raise ValueError(f"only {', '.join(KINDS)} can be saved; got {type(estimator).__qualname__}.")
    features = estimator.features_
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
        "parameters": {key: _plain(value, key) for key, value in estimator.get_params(deep=False).items()},
        "config": asdict(estimator.model_.config),
        "members": len(estimator.model_.members) if isinstance(estimator.model_, Ensemble) else 0,
        "features": {
            "channels": list(features.channels),
            "known": _plain(features.known, "known"),
            "unit": features.unit,
            "calendar": features.calendar,
            "covariates": [_describe_static(column, coding) for column, coding in features.covariates.columns.items()],
        },
        "task": {"shift": list(estimator.task_.shift), "scale": list(estimator.task_.scale)},
        "fitted": {key: _plain(getattr(estimator, key), key) for key in (*KINDS[name].found, *FITTED)},
    }


def rebuild(found: dict[str, Any]) -> tuple[LFormerEstimator, LFormerConfig]:
    """The estimator without its model, and what the model must look like."""
    kind = KINDS[found["class"]]
    estimator = kind.estimator(**{key: _restored(value) for key, value in found["parameters"].items()})
    config = LFormerConfig(**found["config"])
    stored = found["features"]
    estimator.features_ = Features(
        channels=tuple(stored["channels"]),
        known=_array(stored["known"]),
        unit=str(stored["unit"]),
        calendar=bool(stored["calendar"]),
        covariates=Covariates(dict(_static(entry) for entry in stored["covariates"])),
    )
    shift, scale = ([float(number) for number in found["task"][name]] for name in ("shift", "scale"))
    estimator.task_ = replace(kind.task(config.outputs), shift=shift, scale=scale)
    for key in (*kind.found, *FITTED):
        setattr(estimator, key, _restored(found["fitted"][key]))
    _require_agreement(estimator, config)
    return estimator, config


def build(config: LFormerConfig, members: int) -> LFormer | Ensemble:
    """An untrained model of this shape; 0 members is one that is no ensemble."""
    models = [LFormer(config) for _ in range(max(members, 1))]
    return Ensemble(models) if members else models[0]


def _describe_static(name: str, kind: tuple[float, float] | list[str]) -> dict[str, Any]:
    if isinstance(kind, tuple):
        return {"name": name, "mean": kind[0], "deviation": kind[1]}
    return {"name": name, "categories": kind}


def _static(entry: dict[str, Any]) -> tuple[str, tuple[float, float] | list[str]]:
    if "categories" in entry:
        return entry["name"], list(entry["categories"])
    return entry["name"], (float(entry["mean"]), float(entry["deviation"]))


def _plain(value: Any, name: str) -> Any:
    """What JSON can hold and `_restored` brings back: numbers, text, arrays with their dtype, dicts as pairs."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and np.isfinite(value)):
        return value
    if isinstance(value, dict):
        return {"pairs": [[_plain(key, name), _plain(item, name)] for key, item in value.items()]}
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return {"dtype": value.dtype.str, "values": [_plain(item, name) for item in value]}
    raise ValueError(
        f"{name} cannot be saved: it must be a finite number, text, True, False or None; got {value!r}. Change it "
        f"first, for example with set_params({name}=None)."
    )


def _restored(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "pairs" in value:
        return {key: _restored(item) for key, item in value["pairs"]}
    return _array(value)


def _array(stored: dict[str, Any]) -> Array:
    """(n,) with the dtype it had: numbers, truth values, text, or Python objects that are one of these."""
    dtype = np.dtype(stored["dtype"])
    if dtype.kind not in "biufUO":
        raise ValueError(f"no array can have the type {stored['dtype']!r}")
    array = np.empty(len(stored["values"]), dtype)
    array[:] = stored["values"]
    return array


def _require_agreement(estimator: Any, config: LFormerConfig) -> None:
    """What is written down more than once must be the same."""
    features, channels = estimator.features_, len(estimator.features_.channels)
    pairs: dict[str, tuple[Any, Any]] = {
        "known": (len(features.known), channels),
        "inputs of the model": (config.inputs, channels),
        "static covariates of the model": (config.statics, features.covariates.width),
        "place of the answers": (config.answer, estimator.task_.answer),
    }
    if hasattr(estimator, "classes_"):
        pairs["classes_"] = (len(estimator.classes_), config.outputs)
    elif not estimator.task_.scale:
        raise ValueError("the scale of the answers is missing")
    for name, (has, needs) in pairs.items():
        if has != needs:
            raise ValueError(f"{name}: {has} where the rest of the file needs {needs}")
