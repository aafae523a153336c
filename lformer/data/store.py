"""Storage of data on disk: raw files, caches, hashes, atomic writes.

Raw files, one npz per source without pickled objects, are in the folder named by `LFORMER_DATA`, or else in `raw` of
the cache. The cache is the folder named by `LFORMER_CACHE`, or else `lformer` in the user's cache folder. It also holds
downloads, prepared sets and the recorded hashes.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from lformer import sealed
from lformer.data.dataset import Array, Card, Extra
from lformer.data.files import DataError
from lformer.data.npz import KINDS, Npz

START_OVER = "Delete it: hashes are then recorded again when files are next downloaded or verified."


class MissingDataError(FileNotFoundError):
    """Raised if a data set is not on this machine; says where it was searched for and how to get it."""


def cache_home() -> Path:
    """Folder of files that can be made or downloaded again."""
    if named := os.environ.get("LFORMER_CACHE"):
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or Path.home() / ".cache"
    return Path(base) / "lformer"


def raw_home() -> Path:
    """Folder of the raw files."""
    named = os.environ.get("LFORMER_DATA")
    return Path(named).expanduser() if named else cache_home() / "raw"


def find_raw(card: Card) -> Path | None:
    """The raw file of a data set, preferably a complete one; None if there is none."""
    places = [raw_home() / name for name in card.raw]
    return next((place for place in places if place.is_file()), None)


def raw_file(card: Card) -> Path:
    """Like `find_raw`, but a missing file is an error that says how to get it."""
    if (found := find_raw(card)) is not None:
        return found
    raise MissingDataError(
        f"{card.name} ({card.title}) was not found; looked for {' and '.join(card.raw)} in {raw_home()}. Get it with "
        f"`lformer data fetch {card.name}`. By hand: {card.by_hand} Or set LFORMER_DATA to a folder that has it."
    )


def find_extra(extra: Extra) -> Path | None:
    """An extra raw file; None if it is missing."""
    place = raw_home() / extra.name
    return place if place.is_file() else None


def raw_files(card: Card, split: str) -> tuple[Path, ...]:
    """The raw files that a split needs, the main one first; a missing file is an error that says how to get it."""
    if not card.raw:
        return ()
    return (raw_file(card), *(_extra_file(card, extra, split) for extra in card.extras_of(split)))


def _extra_file(card: Card, extra: Extra, split: str) -> Path:
    if (found := find_extra(extra)) is not None:
        return found
    raise MissingDataError(
        f"split={split!r} of {card.name} needs {extra.name} ({extra.content}), which is not in {raw_home()}. "
        f"By hand: {extra.by_hand} Or set LFORMER_DATA to a folder that has it."
    )


class RawArrays(Mapping[str, Array]):
    """The arrays of raw files, each read on access; those of an extra file are named "stem/name".

    An array that is damaged or missing is an error that names the file.
    """

    def __init__(self, files: Mapping[str, tuple[Path, Mapping[str, Array]]]) -> None:
        self._files = files  # by stem, which is "" for the main file

    def __getitem__(self, key: str) -> Array:
        stem, _, name = key.rpartition("/")
        path, arrays = self._files[stem]
        with _naming(path):
            return arrays[name]

    def __contains__(self, key: object) -> bool:
        return key in set(self)  # the default implementation would read the array

    def get(self, key: str, default: Any = None) -> Any:
        """The array, or the default if there is none with that name."""
        if key not in self:
            return default
        return self[key]

    def __iter__(self) -> Iterator[str]:
        for stem, (_, arrays) in self._files.items():
            yield from (f"{stem}/{name}" if stem else name for name in arrays)

    def __len__(self) -> int:
        return sum(len(arrays) for _, arrays in self._files.values())


@contextmanager
def open_raw(path: Path, *extras: Path) -> Iterator[RawArrays]:
    """Open a raw file and extra ones; a damaged file is an error that names it."""
    with ExitStack() as stack:
        files = {}
        for place in (path, *extras):
            with _naming(place):
                arrays = stack.enter_context(Npz(place))
            files["" if place is path else place.stem] = (place, arrays)
        yield RawArrays(files)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turn any error while reading a raw file into one that names the file."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:  # for a damaged archive, zipfile and numpy raise many kinds of errors
        if isinstance(error, OSError) and error.filename is not None:  # the file cannot be opened at all
            raise
        raise DataError(
            f"{path} is damaged or not a raw file of lformer ({error}). Delete it and get it again."
        ) from error


def write_raw(path: Path, arrays: dict[str, Array]) -> None:
    """Write a raw file atomically."""
    dtypes = {name: np.asarray(array).dtype for name, array in arrays.items()}
    foreign = [f"{name} ({dtype})" for name, dtype in dtypes.items() if dtype.kind not in KINDS]
    if foreign:
        raise TypeError(f"raw files hold plain numbers and text, not {', '.join(foreign)}.")
    sealed.write_whole(path, lambda part: _save_npz(part, arrays))


def _save_npz(part: Path, arrays: dict[str, Array]) -> None:
    with part.open("wb") as stream:  # an open file, because numpy would append a suffix to a path
        np.savez_compressed(stream, allow_pickle=False, **arrays)


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Let only one process at a time continue; the others wait."""
    folder = cache_home() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f"{name}.lock"):
        yield


def digest(path: Path, kind: str = "sha256") -> str:
    """Hexadecimal hash of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, kind).hexdigest()


def hashes_file() -> Path:
    """Path of the file in which hashes are recorded."""
    return cache_home() / "hashes.json"


def recorded(key: str) -> str | None:
    """The sha256 recorded for an address or a raw file when it was first downloaded or verified here."""
    return _hashes().get(key)


def record(key: str, sha256: str) -> None:
    """Record a sha256."""
    with locked("hashes"):
        sealed.write_json(hashes_file(), dict(sorted((_hashes() | {key: sha256}).items())))


def forget(keys: Iterable[str]) -> None:
    """Delete recorded hashes."""
    with locked("hashes"):
        known, lost = _hashes(), set(keys)
        if lost & known.keys():
            sealed.write_json(hashes_file(), {key: known[key] for key in sorted(known.keys() - lost)})


def _hashes() -> dict[str, str]:
    path = hashes_file()
    try:
        known = sealed.read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except sealed.DamagedError as error:
        raise DataError(f"{error} {START_OVER}") from error
    for key, found in known.items():
        if not isinstance(found, str) or not re.fullmatch("[0-9a-f]{64}", found):
            raise DataError(
                f"{path} is damaged: expected a sha256 for {key[:200]!r}, got {str(found)[:80]!r}. {START_OVER}"
            )
    return known
