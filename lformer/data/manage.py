"""Getting data sets and looking after them: fetch, pack, verify, status."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from lformer.data import store
from lformer.data.dataset import Dataset
from lformer.data.download import download
from lformer.data.files import DataError, Files

Say = Callable[[str], None]
Report = Callable[[str, int, int | None], None]  # file, bytes so far, bytes in all if known


@dataclass(frozen=True)
class Status:
    """Whether a data set is here, and what it lacks."""

    state: Literal["complete", "partial", "absent", "generated", "damaged"]
    note: str = ""
    path: Path | None = None


def status(dataset: Dataset) -> Status:
    """Look, without downloading anything."""
    if not dataset.card.raw:
        return Status("generated")
    path = store.find_raw(dataset.card)
    if path is None:
        return Status("absent")
    try:
        with store.open_raw(path) as arrays:
            lacks = dataset.missing(arrays)
    except DataError as error:
        return Status("damaged", str(error), path)
    return Status("partial" if lacks else "complete", lacks, path)


def fetch(dataset: Dataset, say: Say, report: Report = lambda name, done, total: None) -> Path:
    """Download a data set from its source, verify, convert, and put its raw file in place.

    A download that stopped goes on where it was. If the complete raw file is here, nothing happens.
    """
    card = dataset.card
    here = status(dataset)
    if here.state == "generated":
        raise ValueError(f"{card.name} is generated when it is loaded; there is nothing to fetch.")
    if here.state == "complete" and here.path is not None:
        say(f"{card.name} is here: {here.path}")
        return here.path
    if not card.remotes:
        raise DataError(f"{card.name} has no address to download from. By hand: {card.by_hand}")
    folder = store.cache_home() / "downloads" / card.name
    with store.locked(f"fetch-{card.name}"):
        for remote in card.remotes:
            say(f"downloading {remote.url}")
            try:
                file, verified = download(remote, folder, partial(report, remote.name))
            except DataError as error:
                raise DataError(f"{error} By hand: {card.by_hand}") from error
            say(_verified(file, verified))
        return pack(dataset, folder, say)


def _verified(file: Path, how: str) -> str:
    if how == "first":
        return (
            f"no hash of {file.name} is published and it was never downloaded here before, so it could not be "
            f"compared; its sha256 is recorded now: {store.digest(file)}"
        )
    return f"{file.name} agrees with the {how} hash"


def pack(dataset: Dataset, path: str | Path, say: Say) -> Path:
    """Convert files as their owner publishes them, in a folder, an archive or alone, into the raw file."""
    if dataset.pack is None:
        raise ValueError(f"{dataset.card.name} is generated when it is loaded; there is nothing to pack.")
    arrays = dataset.pack(Files(path))
    target = store.raw_home() / dataset.raw_name(arrays)
    store.write_raw(target, arrays)
    store.record(str(target), store.digest(target))
    lacks = dataset.missing(arrays)
    say(f"wrote {target}" + (f"; it is partial: {lacks}" if lacks else ""))
    return target


def verify(dataset: Dataset, say: Say) -> bool:
    """Read every array of the raw file, which checks it, and compare its hash with the one recorded here."""
    card = dataset.card
    if not card.raw:
        say(f"{card.name} is generated when it is loaded; there is nothing to verify.")
        return True
    path = store.raw_file(card)
    with store.open_raw(path) as arrays:
        for name in arrays.files:
            arrays[name]  # reading compares the checksum of the member
        lacks = dataset.missing(arrays)
    found, known = store.digest(path), store.recorded(str(path))
    if known is None:
        store.record(str(path), found)
        say(f"{path}: readable; sha256 recorded now: {found}")
    elif known != found:
        say(f"{path}: sha256 is {found}, but {known} was recorded. It has changed since.")
        return False
    else:
        say(f"{path}: readable, sha256 as recorded: {found}")
    if lacks:
        say(f"{card.name} is partial: {lacks}")
    return True
