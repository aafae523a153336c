"""One method on one set with one seed is one sealed record."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from lformer import sealed
from lformer.bench.records import RecordError

Record = dict[str, Any]
PartName = Literal["test", "folds"]
REQUIRED = ("cell", "kind", "measure", "scores", "errors", "fit_seconds", "predict_seconds", "data")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What is run.

    Attributes:
        set, method: names.
        part: scored on the "test" part, or on validation "folds" of the training part.
        seed: of the method, and of the set if that is redrawn.
    """

    set: str
    method: str
    part: PartName = "test"
    seed: int = 0

    def path(self, root: Path) -> Path:
        """Its record."""
        return root / self.part / self.set / self.method / f"seed{self.seed}.json"

    def __str__(self) -> str:
        return f"{self.set}, {self.method}, {self.part}, seed {self.seed}"


def write(cell: Cell, record: Record, root: Path) -> None:
    """Put a record in its place, whole or not at all."""
    sealed.write_json(cell.path(root), {"cell": asdict(cell), **record})


def read(path: Path) -> Record:
    """A record as it was written, in its place."""
    try:
        record = sealed.read_json(path)
        missing = [name for name in REQUIRED if name not in record]
        if missing:
            raise ValueError(f"{path} is not a record: it has no {', '.join(missing)}.")
        place = Cell(**record["cell"]).path(Path()).parts
    except (ValueError, TypeError) as error:
        raise RecordError(f"{error} Delete it, and run its cell again.") from error
    if path.absolute().parts[-len(place) :] != place:
        raise RecordError(f"{path} is the record of another cell, {Cell(**record['cell'])}. Delete it.")
    return record


def finished(cell: Cell, root: Path) -> bool:
    """Whether the record of a cell is there; one that is damaged is an error, and not run over."""
    path = cell.path(root)
    return path.exists() and bool(read(path))


def read_all(root: Path) -> list[Record]:
    """Every record under a folder, in the order of their names."""
    return [read(path) for path in sorted(root.rglob("seed*.json"))]
