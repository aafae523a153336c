"""Read the weights of a saved model; everything is checked before memory of their size is allocated."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from torch import Tensor
from torch.overrides import TorchFunctionMode

from lformer.estimators.conformal import GRID, Calibration
from lformer.estimators.description import Calibrated, Description
from lformer.estimators.folder import ESTIMATOR
from lformer.nn import LFormer, LFormerConfig
from lformer.nn.ensemble import Ensemble
from lformer.sealed import DamagedError

LARGEST = 2**24  # maximum bytes of a header
THRESHOLDS, COUNTS = "calibration.thresholds", "calibration.counts"
NAMES = {  # names of dtypes in safetensors
    torch.float16: "F16", torch.bfloat16: "BF16", torch.float32: "F32", torch.float64: "F64", torch.int64: "I64",
}  # fmt: skip
POSITIVE = ("rows.scale", "rows.interval", "rows.span", "own.typical", "season.ridge")  # buffers that must be positive
ADVICE = "Copy the whole folder of the saved model again, or take it from a backup."


def read_model(path: Path, described: Description) -> tuple[LFormer | Ensemble, Calibration | None]:
    """The described model, with the weights of a file, which must be the one that was saved with it.

    The thresholds of a calibration are in the same file, so that both always come from the same `save`.
    """
    stored = described.weights
    with path.open("rb") as stream:
        held = os.fstat(stream.fileno()).st_size
        if held != stored.bytes:
            raise _other(path, f"it holds {held:,} bytes where {stored.bytes:,} were written")
        _require_fit(_header(stream, path, held), described, path)
        stream.seek(0)
        content = stream.read()
    if hashlib.sha256(content).hexdigest() != stored.sha256:
        raise _other(path, "its SHA-256 differs")
    try:
        tensors = from_bytes(content)
    except (SafetensorError, ValueError, RuntimeError) as error:
        raise DamagedError(f"{path} is damaged ({error}). {ADVICE}") from error
    calibration = take_calibration(tensors, described.calibration)
    if reason := unsound(tensors, described.config) or unsound_calibration(calibration):
        raise ValueError(f"{path} does not hold the weights of a fitted model: {reason}. {ADVICE}")
    with _Unfilled():
        model = _build(described.config, described.members)
    model.load_state_dict(tensors)
    return model.eval(), calibration


def _other(path: Path, why: str) -> DamagedError:
    return DamagedError(f"{path} is damaged, or not the file saved with {ESTIMATOR} beside it: {why}. {ADVICE}")


def unsound(tensors: Mapping[str, Tensor], config: LFormerConfig) -> str:
    """What makes these weights invalid for a fitted model; empty if nothing."""
    for name, tensor in tensors.items():
        *front, last = name.split(".")
        part = ".".join([*front[-1:], last])
        if part in ("rows.low", "rows.high"):  # infinite where there is no bound
            low, high = (tensors[".".join([*front, end])] for end in ("low", "high"))
            if not bool((low <= high).all()):
                return f"{'.'.join(front)} has a low that is above its high, or not a number"
        elif not bool(torch.isfinite(tensor).all()):
            return f"{name} is not finite"
        elif (part in POSITIVE or last == "first_interval") and (tensor <= 0).any():
            return f"{name} is not greater than 0"
    return unsound_trees(tensors, config.in_table)


def unsound_trees(tensors: Mapping[str, Tensor], columns: int) -> str:
    """What makes these trees invalid: a column beyond the table, or a node that does not exist; empty if nothing."""
    for name, tensor in tensors.items():
        tree, _, last = name.rpartition(".")
        if tree.rpartition(".")[2] != "trees":
            continue
        limit = {"left": tensor.numel(), "right": tensor.numel(), "feature": columns, "column": columns}.get(last)
        if limit is not None and bool(((tensor < 0) | (tensor >= limit)).any()):
            return f"{name} points to a node or column that does not exist"
    return ""


def calibration_tensors(found: Calibration | None) -> dict[str, Tensor]:
    """The tensors of a calibration that are stored with the weights, by name."""
    if found is None:
        return {}
    return {THRESHOLDS: torch.from_numpy(found.thresholds.copy()), COUNTS: torch.from_numpy(found.counts.copy())}


def take_calibration(tensors: dict[str, Tensor], described: Calibrated | None) -> Calibration | None:
    """The described calibration, whose tensors are removed from those of the model."""
    if described is None:
        return None
    found, counts = (tensors.pop(name).numpy() for name in (THRESHOLDS, COUNTS))
    return Calibration(thresholds=found, counts=counts, edges=np.array(described.edges), series=described.series)


def unsound_calibration(found: Calibration | None) -> str:
    """What makes these thresholds invalid; empty if nothing."""
    if found is None:
        return ""
    rising = found.thresholds[..., :-1] <= found.thresholds[..., 1:]  # False where one is not a number
    if not rising.all() or not bool((found.thresholds >= 0).all()):
        return "the thresholds of its calibration are negative, or do not increase"
    if not bool(((found.counts >= 0) & (found.counts <= found.series)).all()):
        return f"its calibration counts more than its {found.series} series, or a negative number"
    return ""


def _header(stream: BinaryIO, path: Path, size: int) -> dict[str, str]:
    """Name -> shape and type of every tensor of a file in safetensors format, without reading the tensors."""
    length = int.from_bytes(stream.read(8), "little")
    if not 2 <= length <= min(size - 8, LARGEST):
        raise DamagedError(f"{path} is damaged: a header of {length:,} bytes in a file of {size:,}. {ADVICE}")
    try:
        found = json.loads(stream.read(length), object_pairs_hook=_once)
        return {name: _shape(about["shape"], about["dtype"]) for name, about in found.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DamagedError(f"{path} is damaged: its header is invalid ({error!r}). {ADVICE}") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _shape(sizes: Iterable[Any], dtype: object) -> str:
    return f"({', '.join(str(size) for size in sizes)}) {dtype}"


def _require_fit(header: dict[str, str], described: Description, path: Path) -> None:
    """Check that the described model has exactly the tensors of the file, in shape and type."""
    config, members = described.config, described.members
    if reason := _impossible(config, members, len(header), described.weights.bytes):
        raise ValueError(f"{path} does not fit {ESTIMATOR} beside it: {reason}. {ADVICE}")
    try:
        with torch.device("meta"):  # shapes only, without allocating memory
            state = _build(config, members).state_dict()
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise ValueError(f"{path.with_name(ESTIMATOR)} has a config of an impossible model: {error}") from error
    shapes = {name: _shape(tensor.shape, NAMES.get(tensor.dtype, tensor.dtype)) for name, tensor in state.items()}
    if (calibrated := described.calibration) is not None:
        bins = len(calibrated.edges) + 1
        shapes[THRESHOLDS] = _shape((calibrated.groups, bins, GRID - 1), "F64")
        shapes[COUNTS] = _shape((calibrated.groups, bins), "I64")
    wrong = sorted(name for name in shapes.keys() | header.keys() if shapes.get(name) != header.get(name))
    if wrong:
        first = wrong[0]
        raise ValueError(
            f"{path} does not fit {ESTIMATOR} beside it in {len(wrong)} tensors; {first[:80]} must be "
            f"{shapes.get(first, 'absent')} and is {header.get(first, 'absent')[:80]}. {ADVICE}"
        )


def _impossible(config: LFormerConfig, members: int, tensors: int, size: int) -> str:
    """Why a file with this many tensors and bytes cannot hold the weights of such a model; empty if it can.

    Every layer has at least one tensor, and there are at least as many weights as channels, outputs or the width.
    """
    layers = config.depth + config.head_layers + (config.embedder_layers if config.embedder == "mlp" else 0)
    if layers * max(members, 1) > tensors:
        return f"a model of {layers} layers and {max(members, 1)} members has more than {tensors} tensors"
    for name in ("inputs", "outputs", "statics", "marks", "neighbours", "width", "heads", "hidden", "trees"):
        if (getattr(config, name) or 0) > size:
            return f"a model with {name} = {getattr(config, name)} has more than {size:,} bytes of weights"
    return ""


def _build(config: LFormerConfig, members: int) -> LFormer | Ensemble:
    """An untrained model of this shape; 0 members is a single model rather than an ensemble."""
    models = [LFormer(config) for _ in range(max(members, 1))]
    return Ensemble(models) if members else models[0]


class _Unfilled(TorchFunctionMode):
    """Build modules without initialising their weights, which are loaded afterwards, or using the global generator."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if getattr(func, "__module__", None) == "torch.nn.init":
            return None
        return func(*args, **(kwargs or {}))
