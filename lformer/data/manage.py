"""Get and maintain data sets: fetch, pack, verify, status."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from lformer.data import store
from lformer.data.dataset import Array, Card, Dataset, Extra, Remote
from lformer.data.download import Downloaded, discard, download
from lformer.data.files import DataError, Files

UNFIT = (ValueError, TypeError, LookupError, ArithmeticError)  # errors that unexpected content may raise

Say = Callable[[str], None]
Report = Callable[[str, int, int | None], None]  # file, bytes so far, bytes in all if known


@dataclass(frozen=True)
class Status:
    """Whether a data set is on this machine, and what is missing from it.

    Attributes:
        state: state of the main raw file.
        note: what is missing from it.
        path: path of the main raw file.
        extras: path of each extra file, None if it is missing.
    """

    state: Literal["complete", "partial", "absent", "generated", "damaged"]
    note: str = ""
    path: Path | None = None
    extras: Mapping[Extra, Path | None] = field(default_factory=dict)


@dataclass(frozen=True)
class RawFile:
    """A raw file to be written: its path, its arrays, and what is missing from the complete set."""

    path: Path
    arrays: dict[str, Array]
    lacks: str


def status(dataset: Dataset) -> Status:
    """The status of a data set; downloads nothing."""
    if not dataset.card.raw:
        return Status("generated")
    path = store.find_raw(dataset.card)
    extras = {extra: store.find_extra(extra) for extra in dataset.card.extras}
    if path is None:
        return Status("absent", extras=extras)
    try:
        with store.open_raw(path) as arrays:
            lacks = dataset.missing(arrays)
    except DataError as error:
        return Status("damaged", str(error), path, extras)
    except UNFIT as error:
        return Status("damaged", f"{path} does not hold the arrays of {dataset.card.name} ({error}).", path, extras)
    return Status("partial" if lacks else "complete", lacks, path, extras)


def fetch(dataset: Dataset, say: Say, report: Report = lambda name, done, total: None, *, again: bool = False) -> Path:
    """Download a data set from its source, verify and convert it, and store its raw file.

    An interrupted download is resumed. If the complete raw file exists, nothing happens, unless `again` is set: then
    earlier downloads and their recorded hashes are discarded first.
    """
    card = dataset.card
    here = status(dataset)
    if here.state == "generated":
        raise ValueError(f"{card.name} is generated when it is loaded; there is nothing to fetch.")
    if here.state == "complete" and here.path is not None and not again:
        say(f"{card.name} is already here: {here.path}")
        return here.path
    if not card.remotes:
        raise DataError(f"{card.name} has no address to download from. By hand: {card.by_hand}")
    folder = store.cache_home() / "downloads" / card.name
    with store.locked(f"fetch-{card.name}"):
        if again:
            store.forget(remote.url for remote in card.remotes)
            for remote in card.remotes:
                discard(remote, folder)
        try:
            came = [_download(remote, folder, card.name, say, report) for remote in card.remotes]
            raw = _read_downloads(dataset, folder, came)
        except DataError as error:
            raise DataError(f"{error} By hand: {card.by_hand}") from error
        path = _write(raw, say)
        _record(came, say)
    return path


def _download(remote: Remote, folder: Path, name: str, say: Say, report: Report) -> Downloaded:
    say(f"downloading {remote.url}")
    came = download(remote, folder, name, partial(report, remote.name))
    if came.verified != "first":
        say(f"{came.path.name} agrees with the {came.verified} hash")
    return came


def _read_downloads(dataset: Dataset, folder: Path, came: Sequence[Downloaded]) -> list[RawFile]:
    """Like `_read`; if it fails, files that were downloaded for the first time are removed, as they may be wrong."""
    try:
        return _read(dataset, Files(folder, {file.path.name for file in came}))
    except DataError as error:
        new = [file for file in came if file.verified == "first"]
        if not new:
            raise
        for file in new:
            file.path.unlink(missing_ok=True)
        names = ", ".join(file.path.name for file in new)
        raise DataError(f"{error} Removed: {names}. Run the command again to download them.") from error


def _record(came: Sequence[Downloaded], say: Say) -> None:
    """Record the hashes of files that have been read, which later downloads have to match."""
    for file in came:
        if file.verified == "first":
            store.record(file.remote.url, file.sha256)
            say(
                f"no hash of {file.path.name} is published and it was never downloaded here before, so it could not be "
                f"verified; its sha256 is recorded now: {file.sha256}"
            )


def pack(dataset: Dataset, path: str | Path, say: Say) -> Path:
    """Convert files as published by their owner, in a folder, an archive or alone, into raw files.

    Returns:
        The path of the main raw file, or of an extra one if the files contain only that.
    """
    return _write(_read(dataset, Files(path)), say)


def _read(dataset: Dataset, files: Files) -> list[RawFile]:
    """Make the raw files from the owner's files; raises an error if these have the wrong content."""
    card = dataset.card
    if dataset.pack is None:
        raise ValueError(f"{card.name} is generated when it is loaded; there is nothing to pack.")
    try:
        main, extras = _by_file(card, dataset.pack(files))
        raw = [RawFile(store.raw_home() / dataset.raw_name(main), main, dataset.missing(main))] if main else []
    except DataError:
        raise
    except UNFIT as error:
        raise DataError(
            f"{files.path} does not contain {card.name} as published by its owner ({type(error).__name__}: {error})."
        ) from error
    raw += [RawFile(store.raw_home() / extra.name, arrays, "") for extra, arrays in extras.items()]
    if not raw:
        raise DataError(f"{files.path} contains no files of {card.name}.")
    return raw


def _by_file(card: Card, packed: dict[str, Array]) -> tuple[dict[str, Array], dict[Extra, dict[str, Array]]]:
    """Packed arrays by the file they belong to: the main one, and extra ones without their prefix."""
    main = {name: array for name, array in packed.items() if "/" not in name}
    extras = {}
    for extra in card.extras:
        start = f"{extra.stem}/"
        if mine := {name.removeprefix(start): array for name, array in packed.items() if name.startswith(start)}:
            extras[extra] = mine
    return main, extras


def _write(raw: Sequence[RawFile], say: Say) -> Path:
    for file in raw:
        store.forget([str(file.path)])  # first: if the second step fails, no hash must be recorded for the file
        store.write_raw(file.path, file.arrays)
        store.record(str(file.path), store.digest(file.path))
        say(f"wrote {file.path}" + (f"; it is partial: {file.lacks}" if file.lacks else ""))
    return raw[0].path


def verify(dataset: Dataset, say: Say) -> bool:
    """Read every array of the raw files, which checks them, and compare hashes with the recorded ones."""
    card = dataset.card
    if not card.raw:
        say(f"{card.name} is generated when it is loaded; there is nothing to verify.")
        return True
    path = store.raw_file(card)
    with store.open_raw(path) as arrays:
        lacks = dataset.missing(arrays)
    good = _verify_file(path, say)
    for extra in card.extras:
        if (place := store.find_extra(extra)) is not None:
            good &= _verify_file(place, say)
        else:
            say(f"{extra.name} is missing; it is needed for split={' and '.join(map(repr, extra.splits))} only.")
    if lacks:
        say(f"{card.name} is partial: {lacks}")
    return good


def _verify_file(path: Path, say: Say) -> bool:
    with store.open_raw(path) as arrays:
        for name in arrays:
            arrays[name]  # reading compares the checksum of the member
    found, known = store.digest(path), store.recorded(str(path))
    if known is None:
        store.record(str(path), found)
        say(f"{path}: readable; sha256 recorded now: {found}")
    elif known != found:
        say(
            f"{path}: sha256 is {found}, but {known} was recorded in {store.hashes_file()}. The file has changed since "
            "then. Fetch or pack it again, unless you know why."
        )
        return False
    else:
        say(f"{path}: readable, sha256 as recorded: {found}")
    return True
