"""Several files as one table, and tables larger than memory, for `lformer fit`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from lformer.cli import plan, read_table
from lformer.cli.common import UsageError, say
from lformer.doctor import Form
from lformer.doctor.dates import read_stamps
from lformer.doctor.ids import read_ids
from lformer.panel import Panel
from lformer.panel.big import Piece, Source, build, files_of, parquet_rows, parquet_source

SHARE = 0.25  # of the memory of the machine; the series of a larger table are stored on disk
# Memory limit of a container on Linux, in either version of control groups.
CONTAINER = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def tables_of(given: Sequence[Path]) -> tuple[Path, ...]:
    """The files of paths, folders and patterns."""
    try:
        return tuple(files_of(list(given)))
    except FileNotFoundError as error:
        raise UsageError(str(error)) from error


@contextmanager
def place_on_disk(request: plan.Request, wanted: Path | None, out: Path) -> Iterator[Path | None]:
    """Where to store the series: in a folder if one is wanted, in a temporary one if the table is large, else None."""
    if wanted is None and not _is_large(request.files):
        yield None
        return
    if strange := [file for file in request.files if file.suffix.lower() != ".parquet"]:
        raise UsageError(f"--on-disk is for Parquet, which can be read in pieces; got {strange[0]}. Convert it first.")
    if request.task is not None and request.task.of_points:
        raise UsageError(
            f"--task {request.task} keeps the target of every row in memory, so the table must fit into memory, too."
        )
    if wanted is not None:
        if wanted.exists():
            raise UsageError(f"--on-disk {wanted} already exists. Delete it, or choose another folder.")
        yield wanted
        return
    out.resolve().parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=out.resolve().parent, prefix="series-", ignore_cleanup_errors=True) as folder:
        say("The table is large for this machine's memory: its series are stored on disk. --on-disk FOLDER keeps them.")
        yield Path(folder) / "panel"


def plan_on_disk(request: plan.Request, folder: Path) -> plan.Plan:
    """Like `plan.plan`, for a table that need not fit into memory, with the series stored in a folder."""
    columns, source = request.columns, _source(request.files, request.columns, request.form)
    once = request.once
    value = columns["value"]
    if value is None:
        value = [name for name in source.columns if name not in (columns["id"], columns["time"], *once)]
    names = [columns["id"], columns["time"], columns["channel"], *([value] if isinstance(value, str) else value), *once]
    read_table.require_columns(pd.DataFrame(columns=source.columns), [name for name in names if name], request.file)
    parts = plan.take_apart(request, _once_per_id(source, [columns["id"], *once]))
    fields = build(
        source, folder, columns["id"], columns["time"], columns["channel"], value, static=parts.covariates,
        on_duplicate=columns["on_duplicate"], missing_values=request.missing,
    )  # fmt: skip
    return plan.planned(request, parts, Panel(**fields))


def _source(files: Sequence[Path], columns: dict[str, Any], form: Form) -> Source:
    """Parquet files, with ids and time stamps as `lformer fit` reads them."""
    plain, id, time = parquet_source(files), columns["id"], columns["time"]

    def pieces(wanted: Sequence[str]) -> Iterator[Piece]:
        for name, piece in plain.pieces(wanted):
            read = {id: read_ids(piece[id], form.id_type, f"{name}, column {id!r}")}
            if time in wanted:
                read[time] = read_stamps(piece[time], form, f"{name}, column {time!r}")
            yield name, piece.assign(**read)

    return Source(plain.columns, pieces)


def _once_per_id(source: Source, columns: list[str]) -> pd.DataFrame:
    """The contents of columns that are the same in all rows of an id, without the repetitions."""
    return pd.concat(
        [piece[columns].drop_duplicates() for _, piece in source.pieces(columns)], ignore_index=True
    ).drop_duplicates()


def _is_large(files: Sequence[Path]) -> bool:
    """Whether Parquet files would take more than their share of memory, at 8 bytes for every cell."""
    memory = _memory()
    if memory is None or not all(file.suffix.lower() == ".parquet" and file.is_file() for file in files):
        return False
    return 8 * parquet_rows(files) * len(parquet_source(files).columns) > SHARE * memory


def _memory() -> int | None:
    """Bytes of memory of this machine, or of the container this runs in; None if unknown."""
    found: list[int] = []
    with suppress(AttributeError, ValueError, OSError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for file in CONTAINER:
        with suppress(ValueError, OSError):  # not there, or "max"
            found.append(int(file.read_text()))
    return min(found, default=None)
