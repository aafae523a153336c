"""A panel on disk: a folder of plain arrays, memory-mapped rather than read, and a sealed description.

    times.npy, values.npy, observed.npy        one entry per row
    first.npy, lengths.npy, origin.npy         one entry per series
    ids.npy, or ids.json if they are text      likewise
    static.json                                static covariates, if there are any
    panel.json                                 channels, unit etc.; size and SHA-256 of each file

The folder is renamed to its final name when it is complete. Nothing in it is ever executed: arrays are plain numpy
files, which other programs can read too.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.lib import format as npy

from lformer import sealed
from lformer.arrays import Array

if TYPE_CHECKING:
    import pandas as pd

    from lformer.panel.core import Panel

VERSION = 1
DESCRIPTION = "panel.json"
IDS, STATIC = "ids.json", "static.json"
BY_ROW = ("times", "values", "observed")
BY_SERIES = ("first", "lengths", "origin", "ids")
NOTES = ("channels", "unit", "scale", "pad_to", "zone")
WRONG = (ValueError, TypeError, LookupError, AttributeError, OverflowError)  # errors caused by invalid content
STEP = 2**20  # rows written at once


class ArrayFile:
    """An `.npy` file that grows along its first axis inside a `with` block."""

    def __init__(self, path: Path, dtype: Any, *sides: int) -> None:
        self._stream = path.open("wb")
        self._dtype, self._sides, self._rows = np.dtype(dtype), sides, 0
        self._write_header()

    def _write_header(self) -> None:
        """The header has the same length for any number of rows: numpy leaves room for it to grow."""
        fields = {
            "descr": npy.dtype_to_descr(self._dtype), "fortran_order": False, "shape": (self._rows, *self._sides),
        }  # fmt: skip
        npy.write_array_header_1_0(self._stream, fields)

    def append(self, array: Array) -> None:
        """Append an array (k, *sides)."""
        if array.dtype != self._dtype or array.shape[1:] != self._sides:
            raise ValueError(f"expected {self._dtype} (k, {self._sides}); got {array.dtype} {array.shape}.")
        self._stream.write(np.ascontiguousarray(array).view(np.uint8).data)  # dates have no buffer interface
        self._rows += len(array)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Write the header with the final number of rows."""
        with self._stream:
            self._stream.seek(0)
            self._write_header()
            self._stream.flush()
            os.fsync(self._stream.fileno())


@contextmanager
def new_folder(folder: str | Path) -> Iterator[Path]:
    """A folder to fill, which gets its final name at the end; after an error nothing is left."""
    place = Path(folder).resolve()
    if place.exists() and not (place.is_dir() and not any(place.iterdir())):
        raise FileExistsError(f"{folder} already exists. Delete it, open it with Panel.open, or choose another.")
    place.parent.mkdir(parents=True, exist_ok=True)
    part = Path(mkdtemp(dir=place.parent, prefix=f"{place.name}.", suffix=".part"))
    try:
        yield part
        part.chmod(0o755)
        part.replace(place)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def write(panel: Panel, folder: str | Path) -> None:
    """See `Panel.save`. Rows that belong to none of the series are left out if they are the majority."""
    first = panel.first
    rows: Iterator[Array | slice]
    if panel.wasteful:
        first, rows = np.cumsum(panel.lengths) - panel.lengths, (piece.rows() for piece in panel.pieces(STEP))
    else:
        rows = (slice(start, start + STEP) for start in range(0, len(panel.times), STEP))
    with new_folder(folder) as part:
        flat: dict[str, Array] = {name: array for name in BY_ROW if (array := getattr(panel, name)) is not None}
        with ExitStack() as stack:
            files = {
                name: stack.enter_context(ArrayFile(part / f"{name}.npy", array.dtype, *array.shape[1:]))
                for name, array in flat.items()
            }
            for some in rows:
                for name, file in files.items():
                    file.append(flat[name][some])
        describe(part, {name: getattr(panel, name) for name in (*BY_SERIES, *NOTES, "static")} | {"first": first})


def describe(part: Path, fields: dict[str, Any]) -> None:
    """Write everything that is not per row, and the description last."""
    for name in BY_SERIES:
        array = fields[name]
        if name == "ids" and array.dtype.kind == "O":
            sealed.write_json(part / IDS, {"ids": _plain_ids(array)})
            continue
        with ArrayFile(part / f"{name}.npy", array.dtype) as file:
            file.append(array)
    if fields["static"] is not None:
        sealed.write_json(part / STATIC, {"columns": _columns(fields["static"])})
    files = {path.name: [path.stat().st_size, _digest(path)] for path in sorted(part.iterdir())}
    notes = {name: list(fields[name]) if name == "channels" else fields[name] for name in NOTES}
    sealed.write_json(part / DESCRIPTION, {"format": "lformer panel", "version": VERSION, **notes, "files": files})


def read(folder: str | Path, verify: bool = True) -> dict[str, Any]:
    """The fields of a panel, see `Panel.open`."""
    place = Path(folder)
    if not place.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}; `panel.save(folder)` writes one.")
    if not (place / DESCRIPTION).is_file():
        raise ValueError(f"{folder} is not a panel, or not a complete one: it has no {DESCRIPTION}. Write it again.")
    try:
        notes = sealed.read_json(place / DESCRIPTION)
        if notes.get("format") != "lformer panel" or notes["version"] != VERSION:
            raise ValueError(f"its format is {notes.get('format')!r}, version {notes.get('version')}; known: {VERSION}")
        for name, (size, digest) in notes["files"].items():
            _check_file(place, name, size, digest if verify else None)
        fields = {name: notes[name] for name in NOTES} | {"channels": tuple(notes["channels"])}
        names = [name for name in (*BY_ROW, *BY_SERIES) if f"{name}.npy" in notes["files"]]
        fields |= {"observed": None} | {name: _mapped(place / f"{name}.npy") for name in names}
        if IDS in notes["files"]:
            fields["ids"] = _objects(sealed.read_json(place / IDS)["ids"])
        fields["static"] = None
        if STATIC in notes["files"]:
            fields["static"] = _table(sealed.read_json(place / STATIC)["columns"], fields["ids"])
        _check_shapes(fields)
    except WRONG as error:
        raise sealed.DamagedError(f"{folder} is damaged ({error}). Write it again.") from error
    return fields


def _check_file(place: Path, name: str, size: int, digest: str | None) -> None:
    path = place / name
    if path.parent != place or not path.is_file():
        raise ValueError(f"{name} is not there")
    if path.stat().st_size != size:
        raise ValueError(f"{name} holds {path.stat().st_size:,} bytes where {size:,} were written")
    if digest is not None and digest != _digest(path):
        raise ValueError(f"{name} was changed since it was written: its sha256 differs")


def _check_shapes(fields: dict[str, Any]) -> None:
    """Check that arrays fit together and series lie within the rows, so that later reads stay in bounds."""
    times, values, observed = (fields[name] for name in BY_ROW)
    first, lengths, origin, ids = (fields[name] for name in BY_SERIES)
    fit = {
        "times": times.dtype == np.float64 and times.ndim == 1,
        "values": values.ndim >= 2 and len(values) == len(times) and values.shape[-1] == len(fields["channels"]),
        "observed": observed is None or (observed.dtype == bool and observed.shape == values.shape),
        "lengths": lengths.dtype == np.int64 and lengths.ndim == 1 and bool((lengths >= 0).all()),
    }
    if all(fit.values()):
        fit["first"] = first.dtype == np.int64 and first.shape == lengths.shape
        fit["ids"], fit["origin"] = ids.shape == lengths.shape, origin.shape == lengths.shape
        fit["first"] = fit["first"] and bool(((first >= 0) & (first <= len(times) - lengths)).all())
    if wrong := [name for name, good in fit.items() if not good]:
        raise ValueError(f"{', '.join(wrong)} cannot belong to a panel")


def _mapped(path: Path) -> Array:
    """A memory-mapped array of numbers, dates or text; numpy refuses object arrays, which it would have to unpickle."""
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if not array.flags.c_contiguous:
        raise ValueError(f"{path.name} has its columns one after the other")
    return array.view(np.ndarray)


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# -- names and covariates


def _plain_ids(ids: Array) -> list[Any]:
    strange = next((one for one in ids.tolist() if not isinstance(one, str | int | float)), None)
    if strange is not None:
        raise TypeError(f"ids on disk are text or numbers; got {strange!r}, a {type(strange).__name__}.")
    return ids.tolist()


def _objects(entries: list[Any]) -> Array:
    array = np.empty(len(entries), object)
    array[:] = entries
    return array


def _columns(static: pd.DataFrame) -> list[dict[str, Any]]:
    """Each column as JSON: numbers, booleans, text, or categories of text."""
    import pandas as pd

    found = []
    for name in static.columns:
        column = static[name]
        if isinstance(column.dtype, pd.CategoricalDtype):
            kind = {"dtype": "category", "categories": column.cat.categories.tolist(), "ordered": column.cat.ordered}
            values: list[Any] = column.cat.codes.tolist()
        else:
            kind = {"dtype": str(column.dtype)}
            values = column.astype(object).where(column.notna(), None).tolist()
        if not isinstance(name, str) or not all(one is None or isinstance(one, str | int | float) for one in values):
            raise TypeError(f"covariates on disk are numbers, text or categories, with a name; {name!r} is not.")
        found.append({"name": name, "values": values, **kind})
    return found


def _table(columns: list[dict[str, Any]], ids: Array) -> pd.DataFrame:
    import pandas as pd

    found = {}
    for column in columns:
        if column["dtype"] == "category":
            names, ordered = pd.Index(column["categories"]), column["ordered"]
            values: Any = pd.Categorical.from_codes(column["values"], names, ordered=ordered)
        else:
            values = pd.array(column["values"], dtype=column["dtype"])
        found[column["name"]] = values
    return pd.DataFrame(found, index=pd.Index(ids))
