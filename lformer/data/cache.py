"""Prepared data sets on disk, in sealed files that are memory-mapped: see `lformer.data.mapped`.

The name of a file contains a hash of everything that the set depends on. What is read back is checked: by its seal, and
for errors that a faulty writer could have sealed.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lformer.data import store
from lformer.data.dataset import Array, Dataset, Request
from lformer.data.mapped import WRONG, damaged, read, write
from lformer.panel import Panel
from lformer.parts import Prepared, Targets

if TYPE_CHECKING:
    import pandas as pd

LAYOUT = 2  # of these files; raise it when their content changes
PANEL = ("times", "values", "observed", "first", "lengths", "ids", "origin")
TARGETS = ("values", "observed", "given", "times", "first", "lengths", "weights")
PARTS = ("train", "validation", "test")
LARGEST_TEXT = 2**30  # bytes of an array of text, in which every entry takes as much space as the longest
LONGEST_PADDING = 2**20  # rows; our data sets have at most some ten thousand
STALE = 24 * 3600  # seconds after which an unfinished file is abandoned


def fingerprint(dataset: Dataset, request: Request, files: Sequence[Path] = ()) -> str:
    """Hash of everything that a prepared set depends on, including its raw files, the main one first."""
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
    """Path of a prepared set in the cache, whether it exists or not."""
    return store.cache_home() / "prepared" / f"{name}-{task}-{fingerprint}.prepared"


def save(path: Path, prepared: Prepared, partial: str) -> None:
    """Write a prepared set atomically."""
    panel, targets = prepared.panel, prepared.targets
    arrays: dict[str, Array] = {f"panel.{name}": getattr(panel, name) for name in PANEL}
    arrays |= {f"targets.{name}": getattr(targets, name) for name in TARGETS}
    arrays |= {name: getattr(prepared, name) for name in PARTS}
    if panel.static is not None:
        arrays |= {f"static.{name}": _column(panel.static[name]) for name in panel.static.columns}
    notes: dict[str, Any] = {
        "channels": panel.channels, "unit": panel.unit, "scale": panel.scale, "pad_to": panel.pad_to,
        "at": targets.at, "partial": partial,
        "static": None if panel.static is None else [str(name) for name in panel.static.columns],
    }  # fmt: skip
    kept = {name: np.asarray(array) for name, array in arrays.items() if array is not None}
    notes["text"] = {name: array.tolist() for name, array in kept.items() if array.dtype.kind in "OU"}
    shared = _shared({name: array for name, array in kept.items() if name not in notes["text"]})
    notes["same"] = {name: twin for name, twin in shared.items() if name != twin}
    _sweep(path.parent)
    write(path, {name: kept[name] for name in shared if shared[name] == name}, notes)


def _sweep(folder: Path) -> None:
    """Remove files that killed writers left behind: the same name may never be written again."""
    for left in folder.glob("*.part"):
        with suppress(OSError):  # another process was faster, or we may not remove it
            if time.time() - left.stat().st_mtime > STALE:
                left.unlink()


def load(path: Path) -> tuple[Prepared, str]:
    """Read a prepared set and the note on what is missing from it; raises an error if the file is damaged."""
    arrays, notes = read(path)
    try:
        arrays |= {name: _text(name, values) for name, values in notes["text"].items()}
        arrays |= {name: arrays[twin] for name, twin in notes["same"].items()}
        prepared = _prepared(arrays, notes)
        _check_notes(notes)
        _check_panel(prepared.panel)
        _check_targets(prepared.targets, prepared.panel)
        for name in PARTS:
            _check_part(name, getattr(prepared, name), len(prepared.panel.lengths))
    except WRONG as error:
        raise damaged(path, error) from error
    return prepared, notes["partial"]


def _prepared(arrays: dict[str, Array], notes: dict[str, Any]) -> Prepared:
    needed = {"targets.values", *PARTS, *(f"panel.{name}" for name in PANEL if name != "observed")}
    if lost := needed - arrays.keys():
        raise ValueError(f"it lacks {', '.join(sorted(lost))}")
    static = None
    if notes["static"] is not None:
        import pandas as pd

        static = pd.DataFrame({name: arrays[f"static.{name}"] for name in notes["static"]}, index=arrays["panel.ids"])
    fields: dict[str, Any] = {name: arrays.get(f"panel.{name}") for name in PANEL}
    fields |= {name: notes[name] for name in ("unit", "scale", "pad_to")}
    panel = Panel(channels=tuple(notes["channels"]), static=static, **fields)
    asked: dict[str, Any] = {name: arrays.get(f"targets.{name}") for name in TARGETS}
    return Prepared(panel=panel, targets=Targets(at=notes["at"], **asked), **{name: arrays[name] for name in PARTS})


def _text(name: str, values: list[str | None]) -> Array:
    if not isinstance(values, list) or not all(value is None or isinstance(value, str) for value in values):
        raise ValueError(f"{name} must be a list of text")
    if 4 * len(values) * max((len(value) for value in values if value is not None), default=0) > LARGEST_TEXT:
        raise ValueError(f"{name} would take more than {LARGEST_TEXT:,} bytes")
    return np.asarray(values, None if values else str)


def _column(column: pd.Series[Any]) -> Array:
    """A column of static covariates; missing text is None, which JSON preserves."""
    values: Array = column.to_numpy()
    if values.dtype.kind == "O":
        values = values.copy()
        values[column.isna()] = None
    return values


def _shared(arrays: dict[str, Array]) -> dict[str, str]:
    """The first name that refers to the same memory, for each name: reconstruction targets are the panel's values."""
    seen: dict[tuple[Any, ...], str] = {}
    out = {}
    for name, array in arrays.items():
        where = (array.__array_interface__["data"][0], array.shape, array.dtype.str, array.strides)
        out[name] = seen.setdefault(where, name) if array.size else name
    return out


# -- what makes a file a valid prepared set


def _check_notes(notes: dict[str, Any]) -> None:
    scale, pad_to, static = notes["scale"], notes["pad_to"], notes["static"]
    good = {
        "channels": _is_text(notes["channels"]),
        "unit": isinstance(notes["unit"], str),
        "scale": type(scale) in (int, float) and math.isfinite(scale) and scale > 0,
        "pad_to": pad_to is None or type(pad_to) is int,
        "at": notes["at"] in ("series", "rows", "queries"),
        "partial": isinstance(notes["partial"], str),
        "static": static is None or (_is_text(static) and len(set(static)) == len(static)),
    }
    for name, fine in good.items():
        if not fine:
            raise ValueError(f"its note {name} says {str(notes[name])[:80]}")


def _is_text(names: Any) -> bool:
    return isinstance(names, list) and all(isinstance(name, str) for name in names)


def _check_panel(panel: Panel) -> None:
    n, rows = len(panel.lengths), len(panel.times)
    _check_array("panel.times", panel.times, (rows,), "f")
    _check_array("panel.values", panel.values, (rows, *panel.values.shape[1:]), "fiub")
    if panel.values.ndim < 2 or panel.values.shape[-1] != len(panel.channels):
        raise ValueError(f"panel.values have shape {panel.values.shape} and {len(panel.channels)} channels")
    if panel.observed is not None:
        _check_array("panel.observed", panel.observed, panel.values.shape, "b")
    _check_array("panel.ids", panel.ids, (n,), "fiubOU")
    _check_array("panel.origin", panel.origin, (n,), "fiu")
    _check_runs("panel", panel.first, panel.lengths, n, rows)
    if panel.pad_to is not None and not int(panel.lengths.max(initial=1)) <= panel.pad_to <= LONGEST_PADDING:
        raise ValueError(f"panel.pad_to is {panel.pad_to}, and the longest series has {panel.lengths.max(initial=0)}")


def _check_targets(targets: Targets, panel: Panel) -> None:
    n = len(panel.lengths)
    count = {"series": n, "rows": len(panel.times), "queries": len(targets.times if targets.times is not None else ())}
    _check_array("targets.values", targets.values, (count[targets.at], *targets.values.shape[1:]), "fiub")
    for name, array in (("observed", targets.observed), ("given", targets.given)):
        if array is not None:
            _check_array(f"targets.{name}", array, targets.values.shape, "b")
    if targets.weights is not None:
        _check_array("targets.weights", targets.weights, (n,), "f")
    if targets.at == "queries":
        if targets.times is None or targets.first is None or targets.lengths is None:
            raise ValueError("its queries have no times or belong to no series")
        _check_array("targets.times", targets.times, (count["queries"],), "f")
        _check_runs("targets", targets.first, targets.lengths, n, count["queries"])


def _check_runs(name: str, first: Array, lengths: Array, n: int, rows: int) -> None:
    """Check that each of the n series is a run of existing rows."""
    _check_array(f"{name}.first", first, (n,), "iu")
    _check_array(f"{name}.lengths", lengths, (n,), "iu")
    if n and bool(((first < 0) | (lengths < 0) | (first > rows) | (lengths > rows - first)).any()):
        raise ValueError(f"{name}.first and {name}.lengths reach beyond its {rows} rows")


def _check_part(name: str, members: Array, n: int) -> None:
    _check_array(name, members, (members.size,), "iu")
    if len(members) and not 0 <= int(members.min()) <= int(members.max()) < n:
        raise ValueError(f"{name} names series beyond the {n} there are")


def _check_array(name: str, array: Array, shape: tuple[int, ...], kinds: str) -> None:
    if array.shape != shape or array.dtype.kind not in kinds:
        raise ValueError(f"{name} is {array.dtype} {array.shape} where {shape} was expected")
