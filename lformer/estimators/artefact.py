"""A trained estimator as a folder: `model.safetensors` and `estimator.json`, plain numbers and text, no pickle.

Loading builds a class of a fixed list from plain values and runs no code of the folder. What training alone needs,
such as `history_` and the state of the optimiser, is not kept.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as as_bytes
from sklearn.utils.validation import check_is_fitted

from lformer import __version__, tasks
from lformer.estimators.base import LFormerEstimator
from lformer.estimators.inputs import Features
from lformer.estimators.series import LFormerClassifier, LFormerRegressor
from lformer.nn import LFormer, LFormerConfig
from lformer.panel import Array
from lformer.tasks import Task

FORMAT = 1
WEIGHTS, ESTIMATOR, COLUMNS = "model.safetensors", "estimator.json", "columns.json"
CLASSES: dict[str, type[LFormerEstimator]] = {
    "LFormerClassifier": LFormerClassifier,
    "LFormerRegressor": LFormerRegressor,
}
FITTED = {  # class: what `fit` found out besides model, features and task
    "LFormerClassifier": ("classes_", "n_features_in_", "_is_table", "n_iter_"),
    "LFormerRegressor": ("center_", "spread_", "_flat", "n_features_in_", "_is_table", "n_iter_"),
}
TASKS: dict[str, Callable[[int], Task]] = {"classify": tasks.classify, "regress": tasks.regress}


def save(estimator: LFormerEstimator, folder: str | Path, columns: Mapping[str, Any] | None = None) -> None:
    """Write a fitted estimator whole or not at all; an artefact that is there already is replaced.

    Args:
        estimator: fitted.
        folder: where to.
        columns: how its data lay in a table, for `lformer predict`; kept in `columns.json`.
    """
    check_is_fitted(estimator, "model_")
    description = json.dumps(_describe(estimator), indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    folder = free_place(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = folder.with_name(f".{folder.name}.{uuid4().hex}.part")
    part.mkdir()
    try:
        weights = {name: tensor.detach().cpu().contiguous() for name, tensor in estimator.model_.state_dict().items()}
        (part / WEIGHTS).write_bytes(as_bytes(weights))  # not `save_file`, which lets nobody else read the file
        (part / ESTIMATOR).write_text(description, encoding="utf-8")
        if columns is not None:
            (part / COLUMNS).write_text(json.dumps(dict(columns), indent=1, ensure_ascii=False) + "\n", "utf-8")
        _put(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def load(folder: str | Path) -> Any:
    """The estimator that `save` wrote: it predicts what it predicted then, to the last digit.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> X, y = np.random.default_rng(0).random((8, 5, 2)), np.arange(8) % 2
        >>> model = LFormerClassifier(width=8, max_epochs=1).fit(X, y)
        >>> with tempfile.TemporaryDirectory() as home:
        ...     model.save(f"{home}/model")
        ...     bool((load(f"{home}/model").predict_proba(X) == model.predict_proba(X)).all())
        True
    """
    folder = Path(folder)
    path = folder / ESTIMATOR
    found = read_json(folder, ESTIMATOR)
    _require_known(found, path)
    try:
        estimator, config = _rebuild(found)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(
            f"{path} does not describe an estimator: {what}. Save the model again, or take it from a backup."
        ) from error
    estimator.model_ = _model(config, folder / WEIGHTS)
    return estimator


def free_place(folder: str | Path) -> Path:
    """The folder without links, if an artefact may be written there: it is new, empty, or an artefact itself."""
    folder = Path(folder).expanduser().resolve()
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; a model is saved as a folder. Choose another name.")
    others = (
        sorted({entry.name for entry in folder.iterdir()} - {WEIGHTS, ESTIMATOR, COLUMNS}) if folder.exists() else []
    )
    if others:
        raise ValueError(
            f"{folder} holds other things than a model ({', '.join(others[:3])}), which saving would delete. Choose "
            "another folder."
        )
    return folder


def read_json(folder: Path, name: str) -> dict[str, Any]:
    """An object of an artefact's JSON file, or an error that names the file."""
    path = folder / name
    _require_file(path)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged, not JSON ({error}). Save the model again.") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} must hold a JSON object; it holds a {type(found).__name__}. Save the model again.")
    return found


def _put(part: Path, folder: Path) -> None:
    """Rename the new folder into place; the old one stays aside until that is done."""
    old = folder.with_name(f".{folder.name}.{uuid4().hex}.old")
    replaced = folder.exists()
    if replaced:
        folder.rename(old)
    try:
        part.rename(folder)
    except OSError:
        if replaced:
            old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _require_file(path: Path) -> None:
    folder = path.parent
    if not folder.exists():
        raise FileNotFoundError(f"{folder} does not exist; expected the folder of a saved model.")
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; expected the folder that holds {ESTIMATOR} and {WEIGHTS}.")
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing, so {folder} is not a complete model. Save the model again, or copy the whole folder."
        )


# -- estimator.json


def _describe(estimator: LFormerEstimator) -> dict[str, Any]:
    name = type(estimator).__name__
    if CLASSES.get(name) is not type(estimator):
        raise ValueError(f"only {', '.join(CLASSES)} can be saved; got {type(estimator).__qualname__}.")
    features = estimator.features_
    return {
        "format": FORMAT,
        "lformer": __version__,
        "class": name,
        "parameters": {key: _plain(value, key) for key, value in estimator.get_params(deep=False).items()},
        "config": asdict(estimator.model_.config),
        "task": {"name": estimator.task_.name, "outputs": estimator.task_.outputs},
        "features": {
            "channels": list(features.channels),
            "shift": _plain(features.shift, "shift"),
            "scale": _plain(features.scale, "scale"),
            "interval": features.interval,
            "statics": [_describe_static(column, kind) for column, kind in features.statics.items()],
        },
        "fitted": {key: _plain(getattr(estimator, key), key) for key in FITTED[name]},
    }


def _describe_static(name: str, kind: tuple[float, float] | list[str]) -> dict[str, Any]:
    if isinstance(kind, tuple):
        return {"name": name, "mean": kind[0], "deviation": kind[1]}
    return {"name": name, "categories": kind}


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


def _require_known(found: dict[str, Any], path: Path) -> None:
    """The format and the class are ones that this version can read."""
    version, name = found.get("format"), found.get("class")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ValueError(f"{path} has no format number, so it does not describe an estimator of lformer.")
    by = f"it was written by lformer {found.get('lformer', '?')}, this is {__version__}"
    if version > FORMAT:
        raise ValueError(
            f"{path} has format {version}, but this version reads up to {FORMAT}: {by}. Update: pip install -U lformer"
        )
    if not isinstance(name, str) or name not in CLASSES:
        raise ValueError(f"{path} holds a {name!r}, but this version knows {', '.join(CLASSES)}: {by}. Update lformer.")


def _rebuild(found: dict[str, Any]) -> tuple[LFormerEstimator, LFormerConfig]:
    """The estimator without its model, and what the model must look like."""
    name = found["class"]
    estimator = CLASSES[name](**{key: _restored(value) for key, value in found["parameters"].items()})
    config = LFormerConfig(**found["config"])
    stored = found["features"]
    estimator.features_ = Features(
        channels=tuple(stored["channels"]),
        shift=_array(stored["shift"]),
        scale=_array(stored["scale"]),
        interval=float(stored["interval"]),
        statics=dict(_static(entry) for entry in stored["statics"]),
    )
    estimator.task_ = TASKS[found["task"]["name"]](found["task"]["outputs"])
    for key in FITTED[name]:
        setattr(estimator, key, _restored(found["fitted"][key]))
    _require_agreement(estimator, config)
    return estimator, config


def _static(entry: dict[str, Any]) -> tuple[str, tuple[float, float] | list[str]]:
    if "categories" in entry:
        return entry["name"], list(entry["categories"])
    return entry["name"], (float(entry["mean"]), float(entry["deviation"]))


def _require_agreement(estimator: Any, config: LFormerConfig) -> None:
    """Sizes that are written down more than once must be the same."""
    features, outputs = estimator.features_, estimator.task_.outputs
    answers = estimator.classes_ if isinstance(estimator, LFormerClassifier) else estimator.center_
    channels = len(features.channels)
    pairs = {
        "shift": (len(features.shift), channels),
        "scale": (len(features.scale), channels),
        "inputs of the model": (config.inputs, features.width),
        "outputs of the model": (config.outputs, outputs),
        "answers": (len(answers), outputs),
    }
    for name, (has, needs) in pairs.items():
        if has != needs:
            raise ValueError(f"{name}: {has} where the rest of the file needs {needs}")


# -- model.safetensors


def _model(config: LFormerConfig, path: Path) -> LFormer:
    """The model of a config with the weights of a file, which must fit to name, shape and type."""
    _require_file(path)
    try:
        weights = load_file(path)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is damaged ({error}). Save the model again, or take it from a backup.") from error
    try:
        with torch.device("meta"):  # shapes alone: nothing is drawn at random and no memory taken
            model = LFormer(config)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"{path.with_name(ESTIMATOR)} has a config of no possible model: {error}") from error
    needed, given = _shapes(model.state_dict()), _shapes(weights)
    wrong = sorted(name for name in needed.keys() | given.keys() if needed.get(name) != given.get(name))
    if wrong:
        first = wrong[0]
        raise ValueError(
            f"{path} does not fit {ESTIMATOR} beside it in {len(wrong)} tensors; {first} must be "
            f"{needed.get(first, 'absent')} and is {given.get(first, 'absent')}. Copy both files from one saved model."
        )
    model.load_state_dict(weights, assign=True)
    return model.eval()


def _shapes(tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    return {name: f"{tuple(tensor.shape)} {tensor.dtype}" for name, tensor in tensors.items()}
