"""A saved estimator: a folder with the weights in safetensors and the rest in `estimator.json`, without pickle.

Loading builds a class from a fixed list out of plain values and never runs code from the folder. What only training
needs, such as `history_` and the state of the optimiser, is not saved.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from reprlib import repr as short
from typing import Any

from safetensors.torch import save as as_bytes
from sklearn.utils.validation import check_is_fitted

from lformer import __version__
from lformer.estimators.base import LFormerEstimator
from lformer.estimators.description import FORMAT, KINDS, Description, Stored, describe, rebuild
from lformer.estimators.folder import ESTIMATOR, WEIGHTS, free_place, new_version
from lformer.estimators.weights import calibration_tensors, read_model, unsound, unsound_calibration
from lformer.sealed import DamagedError, json_text, parse_json, write_text, write_whole

LARGEST = 2**24  # bytes of estimator.json
TRIES, PAUSE = 100, 0.05  # attempts to read a folder while another process saves to it; longest pause in seconds


def save(estimator: LFormerEstimator, folder: str | Path, columns: Mapping[str, Any] | None = None) -> None:
    """Save a fitted estimator atomically; a model that is already there is replaced.

    The folder holds a complete model at every moment, however the process ends, and other processes may load it
    meanwhile. The thresholds of a calibration are saved too.

    Args:
        estimator: a fitted estimator.
        folder: where to save it.
        columns: the layout of its data as a table, for `lformer predict`.
    """
    check_is_fitted(estimator, "model_")
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in estimator.model_.state_dict().items()}
    if reason := unsound(tensors, estimator.model_.config):
        raise ValueError(f"the model cannot be saved: {reason}. Fit it again.")
    if reason := unsound_calibration(estimator.calibration_):
        raise ValueError(f"the model cannot be saved: {reason}. Calibrate it again.")
    weights = as_bytes(tensors | calibration_tensors(estimator.calibration_))
    stored = Stored(WEIGHTS, hashlib.sha256(weights).hexdigest(), len(weights))
    _require_loadable(json_text(describe(estimator, columns, stored)))
    folder = free_place(folder)
    with new_version(folder) as name:
        text = json_text(describe(estimator, columns, stored._replace(file=name)))
        write_whole(folder / name, lambda part: _fill(part, weights))
        write_text(folder / ESTIMATOR, text)


def load(folder: str | Path) -> Any:
    """Load an estimator that `save` wrote; on the same device, its predictions are identical to the last digit.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from lformer import LFormerClassifier
        >>> X, y = np.random.default_rng(0).random((8, 5, 2)), np.arange(8) % 2
        >>> model = LFormerClassifier(width=8, max_epochs=1).fit(X, y)
        >>> with tempfile.TemporaryDirectory() as home:
        ...     model.save(f"{home}/model")
        ...     bool((load(f"{home}/model").predict_proba(X) == model.predict_proba(X)).all())
        True
    """
    return load_with_columns(folder)[0]


def load_with_columns(folder: str | Path) -> tuple[Any, dict[str, Any] | None]:
    """The estimator, and the layout of its data as a table if `save` was given one."""
    folder = Path(folder)
    for n in range(TRIES):
        text = _read(folder)
        try:
            described = _described(text, folder / ESTIMATOR)
            estimator = described.estimator
            estimator.model_, estimator.calibration_ = read_model(_file(folder, described.weights.file), described)
            return estimator, described.columns
        except (OSError, ValueError):
            if _read(folder) == text:
                raise
        time.sleep(min(n / 1000, PAUSE))  # it was replaced by another version while it was read
    raise ValueError(f"{folder} was saved again {TRIES} times while it was read. Load it while nothing saves there.")


def _fill(part: Path, content: bytes) -> None:
    part.write_bytes(content)


def _require_loadable(text: str) -> None:
    """Refuse to save what `load` would refuse."""
    size = len(text.encode())
    if size > LARGEST:
        raise ValueError(f"the model cannot be saved: {ESTIMATOR} would hold {size:,} bytes of at most {LARGEST:,}.")
    try:
        rebuild(parse_json(text, ESTIMATOR))
    except ValueError as error:
        raise ValueError(f"the model cannot be saved: {error}.") from error


def _read(folder: Path) -> bytes:
    """The current content of `estimator.json`."""
    path = _file(folder, ESTIMATOR)
    with path.open("rb") as stream:
        text = stream.read(LARGEST + 1)
    if len(text) > LARGEST:
        raise ValueError(f"{path} holds more than {LARGEST:,} bytes, so it does not describe an estimator of lformer.")
    return text


def _file(folder: Path, name: str) -> Path:
    if not folder.exists():
        raise FileNotFoundError(f"{folder} does not exist; expected the folder of a saved model.")
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; expected the folder that holds {ESTIMATOR} and {WEIGHTS}.")
    if not (folder / name).is_file():
        raise FileNotFoundError(
            f"{folder / name} is missing, so {folder} is not a complete model. Save the model again, or copy the whole "
            "folder."
        )
    return folder / name


def _described(text: bytes, path: Path) -> Description:
    """The description in the file, if it is undamaged, of a format that this version reads, and valid."""
    try:
        found = parse_json(text, str(path))
    except (DamagedError, RecursionError) as error:
        _refuse_other_format(text, path)  # another format may use another seal
        what = error if isinstance(error, DamagedError) else f"{path} is damaged: it is nested too deeply."
        raise DamagedError(f"{what} Save the model again, or take it from a backup.") from error
    _require_known(found, path)
    try:
        return rebuild(found)
    except ValueError as error:
        raise ValueError(
            f"{path} does not describe an estimator: {error}. Save the model again, or take it from a backup."
        ) from error


def _refuse_other_format(text: bytes, path: Path) -> None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return
    if isinstance(found, dict) and isinstance(found.get("format"), int) and found["format"] != FORMAT:
        _require_known(found, path)


def _require_known(found: dict[str, Any], path: Path) -> None:
    """Raise unless this version can read the format and the class."""
    version, name = found.get("format"), found.get("class")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ValueError(f"{path} has no format number, so it does not describe an estimator of lformer.")
    versions = found.get("versions")
    writer = versions.get("lformer", "?") if isinstance(versions, dict) else "?"
    by = f"it was written by lformer {short(writer)}, this is {__version__}"
    if version < FORMAT:
        raise ValueError(
            f"{path} has format {version}, which this version no longer reads: {by}. Fit and save it again."
        )
    if version > FORMAT:
        raise ValueError(
            f"{path} has format {short(version)}, but this version reads up to {FORMAT}: {by}. Update: "
            "pip install -U lformer"
        )
    if not isinstance(name, str) or name not in KINDS:
        known = ", ".join(KINDS)
        raise ValueError(f"{path} holds a {short(name)}, but this version knows {known}: {by}. Update lformer.")
