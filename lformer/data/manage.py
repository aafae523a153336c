"""Getting data sets and looking after them: fetch, pack, verify, status."""

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

UNFIT = (ValueError, TypeError, LookupError, ArithmeticError)  # what content raises that nobody thought of

Say = Callable[[str], None]
Report = Callable[[str, int, int | None], None]  # file, bytes so far, bytes in all if known


@dataclass(frozen=True)
class Status:
    """Whether a data set is here, and what it lacks.

    Attributes:
        state: of the main raw file.
        note: what it lacks.
        path: where it is.
        extras: for each extra file, where it is, None if it is not here.
    """

    state: Literal["complete", "partial", "absent", "generated", "damaged"]
    note: str = ""
    path: Path | None = None
    extras: Mapping[Extra, Path | None] = field(default_factory=dict)


@dataclass(frozen=True)
class RawFile:
    """A raw file to be written: where, its arrays, and what they lack of the complete set."""

    path: Path
    arrays: dict[str, Array]
    lacks: str


def status(dataset: Dataset) -> Status:
    """Look, without downloading anything."""
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
    """Download a data set from its source, verify, convert, and put its raw file in place.

    A download that stopped goes on where it was. If the complete raw file is here, nothing happens, unless it is to be
    done `again`: then earlier downloads and the hashes recorded of them are forgotten first.
    """
    card = dataset.card
    here = status(dataset)
    if here.state == "generated":
        raise ValueError(f"{card.name} is generated when it is loaded; there is nothing to fetch.")
    if here.state == "complete" and here.path is not None and not again:
        say(f"{card.name} is here: {here.path}")
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
    """As `_read`; if that fails, files that were never seen before are removed: they may not be what they should."""
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
    """Now that they have been read, later downloads shall be equal."""
    for file in came:
        if file.verified == "first":
            store.record(file.remote.url, file.sha256)
            say(
                f"no hash of {file.path.name} is published and it was never downloaded here before, so it could not be "
                f"compared; its sha256 is recorded now: {file.sha256}"
            )


def pack(dataset: Dataset, path: str | Path, say: Say) -> Path:
    """Convert files as their owner publishes them, in a folder, an archive or alone, into the raw files.

    Returns:
        The main one; an extra one if the files are for nothing else.
    """
    return _write(_read(dataset, Files(path)), say)


def _read(dataset: Dataset, files: Files) -> list[RawFile]:
    """The raw files that the owner's files make; an error if they are not what they should be."""
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
            f"{files.path} does not hold {card.name} as its owner publishes it ({type(error).__name__}: {error})."
        ) from error
    raw += [RawFile(store.raw_home() / extra.name, arrays, "") for extra, arrays in extras.items()]
    if not raw:
        raise DataError(f"{files.path} holds nothing of {card.name}.")
    return raw


def _by_file(card: Card, packed: dict[str, Array]) -> tuple[dict[str, Array], dict[Extra, dict[str, Array]]]:
    """Packed arrays by the file they belong to: the main one, and extra ones without the stem in the names."""
    main = {name: array for name, array in packed.items() if "/" not in name}
    extras = {}
    for extra in card.extras:
        start = f"{extra.stem}/"
        if mine := {name.removeprefix(start): array for name, array in packed.items() if name.startswith(start)}:
            extras[extra] = mine
    return main, extras


def _write(raw: Sequence[RawFile], say: Say) -> Path:
    for file in raw:
        store.forget([str(file.path)])  # first: should the second step fail, the file is one that was never seen here
        store.write_raw(file.path, file.arrays)
        store.record(str(file.path), store.digest(file.path))
        say(f"wrote {file.path}" + (f"; it is partial: {file.lacks}" if file.lacks else ""))
    return raw[0].path


def verify(dataset: Dataset, say: Say) -> bool:
    """Read every array of the raw files, which checks them, and compare hashes with those recorded here."""
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
            say(f"{extra.name} is not here; it is needed for split={' and '.join(map(repr, extra.splits))} only.")
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
            f"{path}: sha256 is {found}, but {known} was recorded in {store.hashes_file()}. It has changed since; get "
            "or pack it again unless you know why."
        )
        return False
    else:
        say(f"{path}: readable, sha256 as recorded: {found}")
    return True
