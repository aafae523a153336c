"""Convert tables larger than memory into a panel on disk.

The table is read in pieces, three times in total. The first pass collects names only: which series there are, how many
rows each has, and which channels. The second pass distributes the rows over temporary files by series, so that each
file holds some of the series, in order of their names, and fits into memory. Finally, each file is laid out like any
other table, by `lay_out`, and appended to the panel. Rows with equal time stamps stay in the order of the table, so
that on_duplicate="last" gives the same result as in memory, and nothing larger than a piece is ever sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from glob import glob, has_magic
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd

from lformer.arrays import Array
from lformer.panel.core import OnDuplicate
from lformer.panel.disk import ArrayFile, describe, new_folder, read
from lformer.panel.long import NO_ROWS, check_names, coded, columns_to_read, numbers_in, places
from lformer.panel.missing import MissingValues, read_marks
from lformer.panel.rows import Fields, entries_of, in_order, lay_out, require_stamps, value_dtype, without_marks
from lformer.panel.stamps import as_stamps, require_fine, stored_dtype
from lformer.panel.tables import indexed, open_table, take_columns
from lformer.panel.zones import zone_of

READ = 2**20  # rows of the table read at once
ENTRIES = 2**24  # values, observed or not, laid out at once
FEWEST, MOST = 2**12, 2**22  # bounds on the rows of the table laid out at once

Piece = tuple[str, pd.DataFrame]  # name of the file, and some of its rows


class Source:
    """A table that can be read in pieces, repeatedly.

    Attributes:
        columns: names of all its columns.
    """

    def __init__(self, columns: Sequence[str], pieces: Callable[[Sequence[str]], Iterator[Piece]]) -> None:
        self.columns = list(columns)
        self._pieces = pieces

    def pieces(self, columns: Sequence[str]) -> Iterator[Piece]:
        """At least these columns of all rows, piece by piece, with categories replaced by their values."""
        for name, piece in self._pieces(columns):
            yield name, piece.assign(**{c: _plain(piece[c]) for c in columns if _is_categorical(piece[c])})


def _is_categorical(column: pd.Series[Any]) -> bool:
    return isinstance(column.dtype, pd.CategoricalDtype)


def _plain(column: pd.Series[Any]) -> pd.Series[Any]:
    return column.astype(column.cat.categories.dtype)


def from_parquet(
    files: Any,
    folder: str | Path,
    id: str,
    time: str,
    channel: str | None,
    value: str | Sequence[str] | None,
    channels: Sequence[str] | None,
    unit: str | None,
    static: Any,
    on_duplicate: OnDuplicate,
    missing_values: MissingValues,
    dtype: Any,
) -> Fields:
    """See `Panel.from_parquet`."""
    source = parquet_source(files_of(files))
    return build(source, folder, id, time, channel, value, channels, unit, static, on_duplicate, missing_values, dtype)


def build(
    source: Source,
    folder: str | Path,
    id: str,
    time: str,
    channel: str | None,
    value: str | Sequence[str] | None,
    channels: Sequence[str] | None = None,
    unit: str | None = None,
    static: Any = None,
    on_duplicate: OnDuplicate = "error",
    missing_values: MissingValues = None,
    dtype: Any = np.float32,
) -> Fields:
    """The fields of a panel on disk, from a table in pieces; arguments as in `Panel.from_long`."""
    dtype = value_dtype(dtype)
    check_names(id, time, channel, value)
    columns, _ = columns_to_read(source.columns, id, time, channel, value)
    covariates = None if static is None else indexed(static, id, "static")
    with new_folder(folder) as part:
        ids, rows, known = _survey(source, id, channel)
        place, names = places(columns if channel is None else known, channels)
        marks = read_marks(missing_values, names, dtype)
        if covariates is not None:
            covariates = in_order(covariates, ids)
        edges = _edges(rows, int(np.clip(ENTRIES // len(names), FEWEST, MOST)))
        with TemporaryDirectory(dir=part) as spill:
            lot = _scatter(source, Path(spill), ids, edges, id, time, channel, columns, known, dtype)
            with _Rows(part, dtype, len(names)) as written:
                for n, (low, high) in enumerate(pairwise(edges)):
                    held = np.fromfile(file := Path(spill) / str(n), lot.record)
                    file.unlink()
                    owner, clock, mine = held["owner"].astype(np.int64) - low, held["clock"].copy(), ids[low:high]
                    row, code, found = entries_of(held["value"].reshape(len(held), -1))
                    entries = row, place[code if channel is None else held["channel"][row]], found
                    entries = without_marks(entries, marks)
                    with _naming(f"series {mine[0]!s} to {mine[-1]!s}" if len(edges) > 2 else ""):
                        require_fine(lot.stored, clock, owner, f"the stamps of column {time!r}")
                        written.append(
                            lay_out(mine, owner, clock, entries, names, unit, None, on_duplicate, dtype, None)
                        )
        describe(part, {**written.fields(), "ids": ids, "static": covariates, "zone": lot.zone})
    return read(folder, verify=False)  # it has just been written


# -- first pass: which series and channels there are


def _survey(source: Source, id: str, channel: str | None) -> tuple[Array, Array, Any]:
    """Sorted ids, the number of table rows of each, and the sorted names of the channels."""
    series, what = _Names(), _Names()
    for name, piece in source.pieces([id] if channel is None else [id, channel]):
        with _naming(name):
            series.add(*coded(piece[id], id, "a series", sort=False))
            if channel is not None:
                what.add(*coded(piece[channel], channel, "a channel", sort=False))
    if series.found is None:
        raise ValueError(NO_ROWS)
    place, ids = coded(pd.Series(series.found), id, "a series")
    rows = np.empty(len(ids), np.int64)
    rows[place] = series.count
    known = [] if what.found is None else coded(pd.Series(what.found), str(channel), "a channel")[1]
    return np.asarray(ids), rows, known


class _Names:
    """Distinct names in order of appearance, and how often each occurs."""

    def __init__(self) -> None:
        self.found: pd.Index | None = None
        self.count = np.zeros(0, np.int64)

    def add(self, code: Array, known: Any) -> None:
        """Add the names `known`, where `code` holds an index into them for each occurrence."""
        if not len(code):
            return
        fresh, times = pd.Index(known), np.bincount(code, minlength=len(known))
        if self.found is None:
            self.found, self.count = fresh, times
            return
        where = self.found.get_indexer(fresh)
        if (new := where < 0).any():
            where[new] = len(self.found) + np.arange(int(new.sum()))
            self.found = self.found.append(fresh[new])
            self.count = np.concatenate([self.count, np.zeros(int(new.sum()), np.int64)])
        self.count[where] += times


def _edges(rows: Array, most: int) -> list[int]:
    """Boundaries of groups of series with about `most` rows each, including the end."""
    before = np.cumsum(rows) - rows
    return [*np.flatnonzero(np.diff(before // most, prepend=-1)).tolist(), len(rows)]


# -- second pass: distribute rows over the files of groups of series


@dataclass(frozen=True)
class _Lot:
    """The format of the temporary files.

    Attributes:
        record: dtype of one row: owner, clock, channel, value.
        stored: the original dtype of the time stamps.
        zone: their time zone.
    """

    record: np.dtype[Any]
    stored: Any
    zone: str | None


def _scatter(
    source: Source,
    spill: Path,
    ids: Array,
    edges: list[int],
    id: str,
    time: str,
    channel: str | None,
    columns: Sequence[str],
    known: Any,
    dtype: np.dtype[Any],
) -> _Lot:
    series, group = pd.Index(ids), np.repeat(np.arange(len(edges) - 1), np.diff(edges))
    group = group.astype(np.uint16 if len(edges) <= 2**16 else np.int64)  # 16-bit integers are sorted in one pass
    what = pd.Index(known)
    lot: _Lot | None = None
    for name, piece in source.pieces([id, time, *([] if channel is None else [channel]), *columns]):
        if not len(piece):
            continue
        with _naming(name):
            owner = _look_up(piece[id], id, series)
            clock = as_stamps(piece[time], f"column {time!r}")
            require_stamps(ids, owner, clock, piece.index)
            if lot is None:
                lot = _Lot(_record(len(ids), clock.dtype, channel, columns, dtype), *_kind(piece[time]))
            elif clock.dtype != lot.record["clock"] or zone_of(piece[time]) != lot.zone:
                raise ValueError(
                    f"stamps of all files must be of one type and time zone; column {time!r} has {piece[time].dtype} "
                    f"here, and {lot.record['clock']}, {lot.zone or 'no time zone'}, before. Convert one of them."
                )
            held = np.empty(len(piece), lot.record)
            held["owner"], held["clock"] = owner, clock
            if channel is None:
                for n, column in enumerate(columns):
                    held["value"][:, n] = numbers_in(piece[column], column, dtype)
            else:
                held["channel"] = _look_up(piece[channel], channel, what)
                held["value"] = numbers_in(piece[columns[0]], columns[0], dtype)
        belongs = group[owner]
        order = np.argsort(belongs, kind="stable")  # rows of a group stay in the order of the table
        held, ends = held[order], np.cumsum(np.bincount(belongs, minlength=len(edges) - 1))
        for n in np.flatnonzero(np.diff(ends, prepend=0)).tolist():
            with (spill / str(n)).open("ab") as stream:
                held[ends[n - 1] if n else 0 : ends[n]].tofile(stream)
    assert lot is not None
    return lot


def _look_up(column: pd.Series[Any], name: str, index: pd.Index) -> Array:
    """The position of each entry among all names; each distinct entry is looked up once."""
    code, known = coded(column, name, "one", sort=False)
    return index.get_indexer(pd.Index(known))[code]


def _record(n: int, clock: Any, channel: str | None, columns: Sequence[str], dtype: Any) -> np.dtype[Any]:
    owner = np.int32 if n < 2**31 else np.int64
    if channel is None:
        return np.dtype([("owner", owner), ("clock", clock), ("value", dtype, (len(columns),))])
    return np.dtype([("owner", owner), ("clock", clock), ("channel", np.int32), ("value", dtype)])


def _kind(stamps: pd.Series[Any]) -> tuple[Any, str | None]:
    return stored_dtype(stamps), zone_of(stamps)


# -- writing


class _Rows(ExitStack):
    """The rows of the panel, appended one group of series after another."""

    def __init__(self, part: Path, dtype: Any, width: int) -> None:
        super().__init__()
        self._times = self.enter_context(ArrayFile(part / "times.npy", np.float64))
        self._values = self.enter_context(ArrayFile(part / "values.npy", dtype, width))
        self._observed = self.enter_context(ArrayFile(part / "observed.npy", np.bool_, width))
        self._mask = part / "observed.npy"
        self._complete = True
        self._series: list[tuple[Array, Array]] = []
        self._notes: Fields = {}

    def append(self, fields: Fields) -> None:
        """Append the output of `lay_out` for some series."""
        seen = fields["observed"]
        self._complete &= seen is None
        self._times.append(fields["times"])
        self._values.append(fields["values"])
        self._observed.append(np.ones(fields["values"].shape, bool) if seen is None else seen)
        self._series.append((fields["lengths"], fields["origin"]))
        self._notes = {name: fields[name] for name in ("channels", "unit")}

    def fields(self) -> Fields:
        """The fields per series, once all rows are written; `observed` is dropped if everything was observed."""
        if self._complete:
            self._mask.unlink()
        lengths, origin = (np.concatenate(parts) for parts in zip(*self._series, strict=True))
        first = np.cumsum(lengths) - lengths
        return {"first": first, "lengths": lengths, "origin": origin, "scale": 1.0, "pad_to": None, **self._notes}


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Prefix errors raised inside with the name of the file or the series."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise type(error)(f"{name}: {error}" if name else str(error)) from error


# -- files


def parquet_rows(files: Sequence[Path]) -> int:
    """Total number of rows of the files, from their metadata."""
    return sum(_opened(file).metadata.num_rows for file in files)


def files_of(files: Any) -> list[Path]:
    """The files given by a path, a folder, a pattern or a list of these, each once, sorted by name."""
    several = files if isinstance(files, list | tuple) else [files]
    found: list[Path] = []
    for one in several:
        path = Path(one)
        if path.is_dir():
            found += sorted(path.glob("*.parquet"))
        elif path.exists() or not has_magic(str(one)):
            found.append(path)
        else:
            found += sorted(map(Path, glob(str(one), recursive=True)))
    if not found:
        raise FileNotFoundError(f"no Parquet file is called {', '.join(map(str, several))}.")
    return list(dict.fromkeys(found))


def parquet_source(files: Sequence[Path]) -> Source:
    """Parquet files as one table, with the columns of the first."""
    if find_spec("pyarrow") is None:
        raise ImportError(f'{files[0]} needs pyarrow to be read: pip install "lformer[data]"')
    return Source(_opened(files[0]).schema_arrow.names, lambda columns: _read(files, columns))


def _read(files: Sequence[Path], columns: Sequence[str]) -> Iterator[Piece]:
    import pyarrow as pa

    for file in files:
        opened = _opened(file)
        if lost := [c for c in columns if c not in opened.schema_arrow.names]:
            raise ValueError(f"{file} has no column {lost[0]!r}, unlike {files[0]}.")
        before = 0
        with opened:
            for batch in opened.iter_batches(READ, columns=list(columns)):
                table = take_columns(open_table(pa.Table.from_batches([batch]), str(file)), columns)
                table.index = pd.RangeIndex(before, before := before + len(table))
                yield str(file), table


def _opened(file: Path) -> Any:
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(file)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise ValueError(f"{file} cannot be read as Parquet: {error}.") from error
