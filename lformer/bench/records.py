"""One cell of a table is one run; its record is one sealed JSON file, written whole or not at all."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lformer import sealed

Record = dict[str, Any]
REQUIRED = ("cell", "status", "metrics")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What is run: a model on a data set by a protocol, with a seed.

    Attributes:
        dataset, task, split, scaling: as in `data.load`.
        model: "lformer" or a baseline.
        ablation: a part of LFormer exchanged; "" for none.
        variant: a recipe of ours; "" is the paper's.
        seed: of the split where the publication redraws it, of the order in training and of the weights.
        epochs: at most so many instead of the recipe's; None as the recipe says. Such a record is marked `smoke`.
    """

    dataset: str
    task: str
    model: str = "lformer"
    ablation: str = ""
    split: str = "published"
    scaling: str = "published"
    seed: int = 42
    epochs: int | None = None
    variant: str = ""

    @property
    def label(self) -> str:
        """The column of a table this belongs to."""
        return " ".join(self._names)

    @property
    def _names(self) -> list[str]:
        return [name for name in (self.model, self.variant, self.ablation) if name]

    def folder(self, root: Path) -> Path:
        """Where everything of this cell lies."""
        kind = [self.task, *(x for x in (self.split, self.scaling) if x != "published")]
        kind += [f"{self.epochs}epochs"] if self.epochs is not None else []
        return root / self.dataset / "-".join(kind) / "-".join(self._names) / f"seed{self.seed}"

    def path(self, root: Path) -> Path:
        """Its record."""
        return self.folder(root).with_suffix(".json")

    def __str__(self) -> str:
        return f"{self.dataset} {self.task} {self.label} seed {self.seed}"


@dataclass(frozen=True, kw_only=True)
class Trial(Cell):
    """A cell of a study that looks for good settings: no figure of a table, and never tested.

    Its folder is that of its study, so it never lies among the records of cells.

    Attributes:
        number: in the study, from 0.
        changes: fields of `model` and `train` that differ from the recipe.
    """

    number: int
    changes: dict[str, dict[str, Any]] = field(hash=False)

    def folder(self, root: Path) -> Path:
        """Where everything of this trial lies."""
        return root / "trials" / f"{self.number:04d}"

    def __str__(self) -> str:
        return f"{super().__str__()} trial {self.number}"


class RecordError(ValueError):
    """A record cannot be read, or is not what its place says."""


class RecordWarning(UserWarning):
    """A record was not what its place says, and its cell is run again."""


def write(record: Record, root: Path) -> Path:
    """Put a record in its place; on an error, such as a full disk, the one that was there stays."""
    path = cell_of(record["cell"]).path(root)
    sealed.write_json(path, record)
    return path


def read(path: Path) -> Record:
    """A record as it was written, of the cell whose place this is; what an older one does not say is as it was then."""
    try:
        record = sealed.read_json(path)
    except sealed.DamagedError as error:
        raise RecordError(str(error)) from error
    try:
        missing = [name for name in REQUIRED if name not in record]
        if missing:
            raise ValueError(f"it has no {', '.join(missing)}")
        cell = cell_of(record["cell"])
        place = cell.path(Path()).parts
    except (ValueError, TypeError) as error:
        raise RecordError(f"{path} is not a record: {error}.") from error
    if path.absolute().parts[-len(place) :] != place:
        raise RecordError(f"{path} is the record of another cell, {cell}.")
    return record | {"cell": cell_fields(cell)}


def finished(cell: Cell, root: Path) -> Record | None:
    """The record of a cell if it is there, whole and of this cell."""
    try:
        return _of(cell, root)
    except (FileNotFoundError, RecordError):
        return None


def set_damaged_aside(cell: Cell, root: Path) -> None:
    """Make room for a record where one lies that cannot be read, or is of another cell."""
    try:
        _of(cell, root)
    except FileNotFoundError:
        pass
    except RecordError as error:
        path = cell.path(root)
        aside = path.with_name(path.name + ".damaged")
        path.replace(aside)
        warnings.warn(
            f"{error} It was set aside as {aside.name}, and its cell is run again.", RecordWarning, stacklevel=2
        )


def _of(cell: Cell, root: Path) -> Record:
    record = read(path := cell.path(root))
    if record["cell"] != cell_fields(cell):  # two cells could share a place
        raise RecordError(f"{path} is the record of another cell, {record['cell']}.")
    return record


def read_all(root: Path) -> list[Record]:
    """Every record under a folder, in the order of their names."""
    try:
        return [read(path) for path in sorted(root.rglob("seed*.json"))]
    except RecordError as error:
        raise RecordError(f"{error} Delete it, and run its cell again.") from error


def grouped(records: Iterable[Record], *keys: str) -> Iterator[tuple[tuple[Any, ...], list[Record]]]:
    """Records that agree in some fields of their cell, seeds in order."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in sorted(records, key=lambda r: r["cell"]["seed"]):
        groups.setdefault(tuple(record["cell"][key] for key in keys), []).append(record)
    yield from groups.items()


def cell_fields(cell: Cell) -> dict[str, Any]:
    """As it stands in a record."""
    return asdict(cell)


def cell_of(fields: Mapping[str, Any]) -> Cell:
    """The other way round; a trial has a number."""
    return Trial(**fields) if "number" in fields else Cell(**fields)
