"""Prepared sets on disk: one file in the safetensors layout, mapped into memory rather than read.

Arrays lie in the file as they lie in memory, so opening one costs nothing, several processes share one copy, and no
code is ever executed. The file's name holds a hash of everything the set depends on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lformer import sealed
from lformer.data import store
from lformer.data.dataset import Array, Dataset, Request
from lformer.data.files import DataError
from lformer.panel import Panel
from lformer.parts import Prepared, Targets

if TYPE_CHECKING:
    import pandas as pd

LAYOUT = 1  # of these files; raise it when their content changes
DTYPES = {
    "F64": "<f8", "F32": "<f4", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1", "U8": "|u1", "BOOL": "|b1",
}  # fmt: skip
NAMES = {np.dtype(numpy): name for name, numpy in DTYPES.items()}
PANEL = ("times", "values", "observed", "first", "lengths", "ids", "origin")
TARGETS = ("values", "observed", "given", "times", "first", "lengths", "weights")


def fingerprint(dataset: Dataset, request: Request, files: Sequence[Path] = ()) -> str:
    """Hash of everything a prepared set depends on; the files are the raw ones, the main one first."""
    digests = [store.digest(file) for file in files]
    depends: dict[str, Any] = {
        "layout": LAYOUT,
        "name": dataset.card.name,
        "version": dataset.version,
        "request": {**asdict(request), "options": dict(request.options)},
        "raw": digests[0] if digests else None,
    }
    if len(digests) > 1:
        depends["extras"] = digests[1:]
    return hashlib.sha256(json.dumps(depends, sort_keys=True).encode()).hexdigest()[:16]


def place(name: str, task: str, fingerprint: str) -> Path:
    """Where a prepared set lies, or would lie."""
    return store.cache_home() / "prepared" / f"{name}-{task}-{fingerprint}.safetensors"


def save(path: Path, prepared: Prepared, partial: str) -> None:
    """Write a prepared set, whole or not at all."""
    panel, targets = prepared.panel, prepared.targets
    arrays: dict[str, Array] = {f"panel.{name}": getattr(panel, name) for name in PANEL}
    arrays |= {f"targets.{name}": getattr(targets, name) for name in TARGETS}
    arrays |= {name: getattr(prepared, name) for name in ("train", "validation", "test")}
    if panel.static is not None:
        arrays |= {f"static.{name}": _column(panel.static[name]) for name in panel.static.columns}
    notes: dict[str, Any] = {
        "channels": panel.channels, "unit": panel.unit, "scale": panel.scale, "pad_to": panel.pad_to,
        "at": targets.at, "partial": partial,
        "static": None if panel.static is None else [str(name) for name in panel.static.columns],
    }  # fmt: skip
    kept = {name: np.asarray(array) for name, array in arrays.items() if array is not None}
    notes["text"] = {name: array.tolist() for name, array in kept.items() if array.dtype.kind in "OUS"}
    shared = _shared({name: array for name, array in kept.items() if name not in notes["text"]})
    notes["same"] = {name: twin for name, twin in shared.items() if name != twin}
    sealed.write_whole(path, lambda part: write(part, {n: kept[n] for n in shared if shared[n] == n}, notes))


def load(path: Path) -> tuple[Prepared, str]:
    """A prepared set and what it lacks; an error if the file is damaged."""
    arrays, notes = read(path)
    arrays |= {name: np.asarray(values) for name, values in notes["text"].items()}
    arrays |= {name: arrays[twin] for name, twin in notes["same"].items()}
    static = None
    if notes["static"] is not None:
        import pandas as pd

        static = pd.DataFrame({name: arrays[f"static.{name}"] for name in notes["static"]}, index=arrays["panel.ids"])
    fields: dict[str, Any] = {name: arrays.get(f"panel.{name}") for name in PANEL}
    fields |= {name: notes[name] for name in ("unit", "scale", "pad_to")}
    panel = Panel(channels=tuple(notes["channels"]), static=static, **fields)
    asked: dict[str, Any] = {name: arrays.get(f"targets.{name}") for name in TARGETS}
    targets = Targets(at=notes["at"], **asked)
    parts = {name: arrays[name] for name in ("train", "validation", "test")}
    return Prepared(panel=panel, targets=targets, **parts), notes["partial"]


def _column(column: pd.Series[Any]) -> Array:
    """A column of static covariates; an unknown text is None, which JSON gives back as it was."""
    values: Array = column.to_numpy()
    if values.dtype.kind == "O":
        values = values.copy()
        values[column.isna()] = None
    return values


def _shared(arrays: dict[str, Array]) -> dict[str, str]:
    """For each name the first name of the same memory: reconstruction targets are the panel's own values."""
    seen: dict[tuple[Any, ...], str] = {}
    out = {}
    for name, array in arrays.items():
        where = (array.__array_interface__["data"][0], array.shape, array.dtype.str, array.strides)
        out[name] = seen.setdefault(where, name) if array.size else name
    return out


def write(path: Path, arrays: dict[str, Array], notes: dict[str, Any]) -> None:
    """Arrays and notes in the safetensors layout: length of the header, header, then the arrays, widest first."""
    order = sorted(arrays, key=lambda name: -arrays[name].dtype.itemsize)
    header: dict[str, Any] = {"__metadata__": {"lformer": json.dumps(notes)}}
    end = 0
    for name in order:
        array = arrays[name]
        if array.dtype not in NAMES:
            raise TypeError(f"{name} has dtype {array.dtype}; prepared sets hold {', '.join(DTYPES)}.")
        header[name] = {
            "dtype": NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [end, end + array.nbytes],
        }  # fmt: skip
        end += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            np.ascontiguousarray(arrays[name]).tofile(stream)


def read(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """Arrays, mapped from the file, and notes."""
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if not 0 < length <= size - 8:
                raise ValueError(f"a header of {length} bytes in a file of {size}")
            header = json.loads(stream.read(length))
        notes = json.loads(header.pop("__metadata__")["lformer"])
        arrays = {}
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            dtype, shape = np.dtype(DTYPES[entry["dtype"]]), tuple(entry["shape"])
            if not 0 <= begin <= end <= size - 8 - length or int(np.prod(shape)) * dtype.itemsize != end - begin:
                raise ValueError(f"{name} does not fit into the file")
            arrays[name] = (
                np.asarray(np.memmap(path, dtype, "r", 8 + length + begin, shape))
                if end > begin
                else np.zeros(shape, dtype)
            )
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged ({error}). Delete it; it will be made anew.") from error
    return arrays, notes
