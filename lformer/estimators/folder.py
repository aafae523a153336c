"""The folder of a saved model: `estimator.json` and the weights that it names, complete at every moment.

New weights are written first, under an unused name. Then `estimator.json` is replaced atomically, which activates the
new version. Finally, files that are no longer needed are deleted, along with the remains of killed saves.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lformer.sealed import DamagedError, read_json

if sys.platform != "win32":
    import fcntl

ESTIMATOR, WEIGHTS = "estimator.json", "model.safetensors"
PATTERNS = [WEIGHTS, f"model-{'[0-9a-f]' * 12}.safetensors"]  # weights in a new folder, and replaced ones
_WEIGHTS = r"model(-[0-9a-f]{12})?\.safetensors"
_OURS = re.compile(rf"({_WEIGHTS}|estimator\.json)(\.[a-z0-9_]+\.part)?")
HOUR = 3600


def is_weights(name: str) -> bool:
    """Whether this is a valid name for a file of weights."""
    return re.fullmatch(_WEIGHTS, name) is not None


def free_place(folder: str | Path) -> Path:
    """The resolved folder if a model may be saved there: it is new, empty, or holds nothing but a model."""
    folder = Path(folder).expanduser().resolve()
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; a model is saved as a folder. Choose another name.")
    others = sorted(entry.name for entry in _entries(folder) if entry.is_dir() or not _OURS.fullmatch(entry.name))
    if others:
        raise ValueError(
            f"{folder} contains files that do not belong to a model ({', '.join(others[:3])}) and must not be mixed "
            "with it. Choose another folder."
        )
    return folder


@contextmanager
def new_version(folder: Path) -> Iterator[str]:
    """The file name for the weights of a new version; afterwards only the active version is left.

    Saves may run at the same time: none ever touches what another one is writing, and the last one wins.
    """
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    place = _share(folder)
    try:
        spent = {_in_place(folder), name := _claim(folder)}
        try:
            yield name
        finally:
            _clean(folder, spent, everything=_alone(place))
    finally:
        _release(place)
        if new:
            with suppress(OSError):
                folder.rmdir()  # a failed save leaves nothing behind; fails if the folder is not empty


def _claim(folder: Path) -> str:
    """A name for weights that nobody else uses, now or later."""
    if not (folder / ESTIMATOR).exists():
        with suppress(FileExistsError):
            (folder / WEIGHTS).touch(exist_ok=False)
            return WEIGHTS
    return f"model-{secrets.token_hex(6)}.safetensors"


def _in_place(folder: Path) -> str | None:
    """The weights of the active version; empty if there is none, None if the files it needs cannot be determined."""
    try:
        return str(read_json(folder / ESTIMATOR)["weights"]["file"])
    except FileNotFoundError:
        return ""
    except (DamagedError, KeyError, TypeError, RecursionError, OSError):
        return None


def _clean(folder: Path, spent: set[str | None], everything: bool) -> None:
    """Delete our files that the active version does not need: `spent` ones, and those of killed saves.

    If another save may be running, `everything` is false, and only other files older than an hour are deleted.
    """
    if (needed := _in_place(folder)) is None:
        return
    files = {entry: about.st_mtime for entry in _entries(folder) if (about := _about(entry)) is not None}
    newest = max(files.values(), default=0)
    for entry, changed in files.items():
        if entry.name in (ESTIMATOR, needed) or not _OURS.fullmatch(entry.name):
            continue
        if everything or entry.name in spent or newest - changed > HOUR:
            with suppress(OSError):  # already deleted, or open in another process on a system that forbids deletion
                entry.unlink()


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.exists() else []


def _about(entry: Path) -> os.stat_result | None:
    try:
        return entry.stat()
    except OSError:
        return None


# --- detecting concurrent saves: each holds a shared lock on the folder, which ends with its process ---


def _share(folder: Path) -> int | None:
    """An open folder with a shared lock; None where the system or the file system does not support locks."""
    if sys.platform == "win32":
        return None
    try:
        place = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(place, fcntl.LOCK_SH)
    except OSError:
        os.close(place)
        return None
    return place


def _alone(place: int | None) -> bool:
    """Whether no other save is running; False if that cannot be determined."""
    if sys.platform == "win32" or place is None:
        return False
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _release(place: int | None) -> None:
    if sys.platform == "win32" or place is None:
        return
    fcntl.flock(place, fcntl.LOCK_UN)  # closing is not enough: a process forked meanwhile has the folder open too
    os.close(place)
