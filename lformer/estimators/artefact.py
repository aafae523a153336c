"""A trained estimator as a folder: `model.safetensors` and `estimator.json`, plain numbers and text, no pickle.

Loading builds a class of a fixed list from plain values and runs no code of the folder. What training alone needs,
such as `history_` and the state of the optimiser, is not kept.
"""

from __future__ import annotations

import hashlib
import json
import operator
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as as_bytes
from sklearn.utils.validation import check_is_fitted

from lformer import __version__
from lformer.estimators.base import LFormerEstimator
from lformer.estimators.description import FORMAT, KINDS, build, describe, rebuild
from lformer.nn import LFormer
from lformer.nn.ensemble import Ensemble
from lformer.train import seeded

WEIGHTS, ESTIMATOR, COLUMNS = "model.safetensors", "estimator.json", "columns.json"


def save(estimator: LFormerEstimator, folder: str | Path, columns: Mapping[str, Any] | None = None) -> None:
    """Write a fitted estimator whole or not at all; an artefact that is there already is replaced.

    Args:
        estimator: fitted.
        folder: where to.
        columns: how its data lay in a table, for `lformer predict`; kept in `columns.json`.
    """
    check_is_fitted(estimator, "model_")
    tensors = estimator.model_.state_dict().items()
    weights = as_bytes({name: tensor.detach().cpu().contiguous() for name, tensor in tensors})
    found = {**describe(estimator), "sha256": hashlib.sha256(weights).hexdigest()}
    description = json.dumps(found, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    folder = free_place(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = folder.with_name(f".{folder.name}.{uuid4().hex}.part")
    part.mkdir()
    try:
        (part / WEIGHTS).write_bytes(weights)  # not `save_file`, which lets nobody else read the file
        (part / ESTIMATOR).write_text(description, encoding="utf-8")
        if columns is not None:
            (part / COLUMNS).write_text(json.dumps(dict(columns), indent=1, ensure_ascii=False) + "\n", "utf-8")
        _put(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def load(folder: str | Path) -> Any:
    """The estimator that `save` wrote: it predicts what it predicted then, on the same device to the last digit.

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
    folder = Path(folder)
    path = folder / ESTIMATOR
    found = read_json(folder, ESTIMATOR)
    _require_known(found, path)
    try:
        estimator, config = rebuild(found)
        members, sha256 = operator.index(found["members"]), str(found["sha256"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(
            f"{path} does not describe an estimator: {what}. Save the model again, or take it from a backup."
        ) from error
    estimator.model_ = _model(partial(build, config, members), folder / WEIGHTS, sha256)
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


def _require_known(found: dict[str, Any], path: Path) -> None:
    """The format and the class are ones that this version can read."""
    version, name = found.get("format"), found.get("class")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ValueError(f"{path} has no format number, so it does not describe an estimator of lformer.")
    versions = found.get("versions")
    writer = versions.get("lformer", "?") if isinstance(versions, dict) else "?"
    by = f"it was written by lformer {writer}, this is {__version__}"
    if version < FORMAT:
        raise ValueError(
            f"{path} has format {version}, which this version no longer reads: {by}. Fit and save it again."
        )
    if version > FORMAT:
        raise ValueError(
            f"{path} has format {version}, but this version reads up to {FORMAT}: {by}. Update: pip install -U lformer"
        )
    if not isinstance(name, str) or name not in KINDS:
        raise ValueError(f"{path} holds a {name!r}, but this version knows {', '.join(KINDS)}: {by}. Update lformer.")


def _model(build: Callable[[], LFormer | Ensemble], path: Path, sha256: str) -> LFormer | Ensemble:
    """A model with the weights of a file, which must have the right names, shapes and types and be the saved ones."""
    _require_file(path)
    stored = path.read_bytes()
    try:
        weights = from_bytes(stored)
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged ({error}). Save the model again, or take it from a backup.") from error
    try:
        with torch.device("meta"):  # shapes alone take no memory, however large a damaged file makes them
            shapes = _shapes(build().state_dict())
    except (ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"{path.with_name(ESTIMATOR)} has a config of no possible model: {error}") from error
    given = _shapes(weights)
    wrong = sorted(name for name in shapes.keys() | given.keys() if shapes.get(name) != given.get(name))
    if wrong:
        first = wrong[0]
        raise ValueError(
            f"{path} does not fit {ESTIMATOR} beside it in {len(wrong)} tensors; {first} must be "
            f"{shapes.get(first, 'absent')} and is {given.get(first, 'absent')}. Copy both files from one saved model."
        )
    if hashlib.sha256(stored).hexdigest() != sha256:
        raise ValueError(
            f"{path} is damaged, or not the file that was saved with {ESTIMATOR} beside it: its SHA-256 differs. Copy "
            "both files from one saved model."
        )
    with seeded(0):  # the caller's random numbers stay as they are
        model = build()
    model.load_state_dict(weights)
    return model.eval()


def _shapes(tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    return {name: f"{tuple(tensor.shape)} {tensor.dtype}" for name, tensor in tensors.items()}
