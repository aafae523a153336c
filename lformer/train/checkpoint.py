"""Checkpoints: the state of a run on disk, written after every epoch and read when the run is resumed.

A folder holds two of them, `last.ckpt` and the previous one, `previous.ckpt`. Whatever ends a run, including a kill or
a full disk, at least one of them is intact; a damaged one is set aside, and the run continues from the other.
"""

from __future__ import annotations

import errno
import io
import warnings
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, TypedDict, cast

import torch
from torch import Tensor

from lformer import sealed
from lformer.sealed import DamagedError

LAST, PREVIOUS = "last.ckpt", "previous.ckpt"
NEXT = "next.ckpt"  # complete, and about to be renamed to the last
FULL = (errno.ENOSPC, errno.EDQUOT)  # errors of a full disk

_unsaved: set[Path] = set()  # folders of runs that continue without being saved


class CheckpointWarning(UserWarning):
    """A run can only be resumed from an earlier epoch."""


class Checkpoint(TypedDict):
    """Everything a run needs to continue after its last complete epoch; consists of tensors, numbers and text only."""

    run: str  # identifies the run
    epoch: int
    seconds: float  # total time of the run so far, over all interruptions
    history: list[dict[str, float]]
    model: dict[str, Tensor]
    best: dict[str, Tensor]  # weights of the best epoch so far
    average: dict[str, Tensor]
    optimiser: dict[str, Any]


FIELDS = {
    "run": str, "epoch": int, "seconds": float, "history": list, "model": dict, "best": dict, "average": dict,
    "optimiser": dict,
}  # fmt: skip


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Save a checkpoint as the last one; the last one becomes the previous one.

    A full disk does not end the run: it causes a single warning until there is space again.
    """
    content = io.BytesIO()  # torch.save to a file hides errors of the system behind its own
    torch.save(checkpoint, content)

    def fill(stream: BinaryIO) -> None:
        stream.write(content.getbuffer())

    last = folder / LAST
    try:
        sealed.write_blob(folder / NEXT, fill)
        with suppress(FileNotFoundError):  # the first
            last.replace(folder / PREVIOUS)
        (folder / NEXT).replace(last)
    except OSError as error:
        if error.errno not in FULL:
            error.filename = str(last)
            raise
        if folder not in _unsaved:
            _unsaved.add(folder)
            where = _place(checkpoint["epoch"] - 1)
            warnings.warn(
                f"{last} could not be written ({error.strerror}). The run goes on; should it be interrupted before "
                f"there is room, it can be resumed only {where}.",
                CheckpointWarning,
                stacklevel=2,
            )
    else:
        _unsaved.discard(folder)


def load(folder: Path | None, run: str) -> Checkpoint | None:
    """The newest intact checkpoint in a folder, which must be of this run; None if there is none."""
    if folder is None:
        return None
    _unsaved.discard(folder)
    _sweep(folder)
    found: Checkpoint | None = None
    damaged: list[str] = []
    for path in (folder / NEXT, folder / LAST, folder / PREVIOUS):
        try:
            found = read(path)
            break
        except FileNotFoundError:
            continue
        except DamagedError as error:
            aside = path.with_name(path.name + ".damaged")
            path.replace(aside)
            damaged.append(f"{error} It was set aside as {aside.name}")
    for text in damaged:
        where = _place(found["epoch"] if found else -1)
        warnings.warn(f"{text}, and the run goes on {where}.", CheckpointWarning, stacklevel=2)
    if found is not None and found["run"] != run:
        raise ValueError(
            f"{path} belongs to another run: other data, task, seed, settings or model. Choose another folder, or "
            "delete it."
        )
    return found


def newest(folder: Path) -> Checkpoint | None:
    """The newest intact checkpoint in a folder, of any run; None if there is none."""
    for path in (folder / NEXT, folder / LAST, folder / PREVIOUS):
        with suppress(FileNotFoundError, DamagedError):
            return read(path)
    return None


def seconds_spent(folder: Path) -> float:
    """Seconds that an interrupted run in this folder has taken so far; 0 if there is none."""
    found = newest(folder)
    return 0.0 if found is None else found["seconds"]


def read(path: Path) -> Checkpoint:
    """Read a checkpoint; raises an error that names the file if it is damaged. No code in it is executed."""
    try:
        sealed.check_blob(path)
        with path.open("rb") as stream:
            _refuse_packed(stream, path)
            stream.seek(sealed.SEAL.size)
            found = torch.load(stream, weights_only=True, map_location="cpu")
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        raise DamagedError(f"{path} is damaged: {error.strerror}.") from error  # a failing disk
    except (DamagedError, MemoryError):
        raise
    except Exception as error:  # PyTorch raises errors of many types for invalid files
        raise DamagedError(f"{path} is damaged: PyTorch cannot read it ({type(error).__name__}).") from error
    if fault := _fault(found):
        raise DamagedError(f"{path} is damaged: {fault}.")
    return cast(Checkpoint, found)


def _refuse_packed(stream: BinaryIO, path: Path) -> None:
    """Raise if the file is compressed: PyTorch stores tensors uncompressed, so such a file is not a checkpoint."""
    with zipfile.ZipFile(stream) as archive:  # which accepts data before the archive, such as our seal
        members = archive.infolist()
    packed = any(member.compress_type != zipfile.ZIP_STORED for member in members)
    if packed or sum(member.file_size for member in members) > path.stat().st_size:
        raise DamagedError(f"{path} is damaged: it is compressed, which checkpoints are not.")


def discard(folder: Path) -> None:
    """Delete the checkpoints of a finished run, and its folder unless it contains something else, such as a log."""
    _sweep(folder)
    for path in folder.glob("*.ckpt*"):
        path.unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


def _sweep(folder: Path) -> None:
    """Delete unfinished files of killed processes."""
    for part in folder.glob("*.part"):
        part.unlink(missing_ok=True)


def _place(epoch: int) -> str:
    return f"after epoch {epoch}" if epoch >= 0 else "from the start"


def _fault(found: Any) -> str:
    """What is wrong with the content of a checkpoint; "" if nothing is."""
    if not isinstance(found, dict) or found.keys() != FIELDS.keys():
        return f"it must hold {', '.join(FIELDS)}"
    for name, kind in FIELDS.items():
        if not isinstance(found[name], kind):
            return f"its {name} must be of type {kind.__name__}, not {type(found[name]).__name__}"
    history, model, best = found["history"], found["model"], found["best"]
    rows = [row if isinstance(row, dict) else {} for row in history]
    if not rows or [row.get("epoch") for row in rows] != list(range(found["epoch"] + 1)):
        return f"its history must have a row for each epoch from 0 to {found['epoch']}"
    if not all(isinstance(value, int | float) for row in rows for value in row.values()):
        return "its history must hold numbers"
    if model.keys() != best.keys() or not all(isinstance(x, Tensor) for x in [*model.values(), *best.values()]):
        return "its weights must be tensors of the same names"
    if not found["average"].keys() <= model.keys() or not all(isinstance(x, Tensor) for x in found["average"].values()):
        return "its averaged weights must be tensors named as those of the model"
    if not found["optimiser"].keys() >= {"state", "param_groups"}:
        return "its optimiser must have a state and param_groups"
    return ""
