"""Getting data sets and looking after them: fetch, pack, verify, status."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from lformer.data import store
from lformer.data.dataset import Array, Card, Dataset, Extra
from lformer.data.download import download
from lformer.data.files import DataError, Files

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
    return Status("partial" if lacks else "complete", lacks, path, extras)


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
    """Convert files as their owner publishes them, in a folder, an archive or alone, into the raw files.

    Returns:
        The main one; an extra one if the files are for nothing else.
    """
    if dataset.pack is None:
        raise ValueError(f"{dataset.card.name} is generated when it is loaded; there is nothing to pack.")
    main, extras = _by_file(dataset.card, dataset.pack(Files(path)))
    written = []
    if main:
        written.append(store.raw_home() / dataset.raw_name(main))
        _write(written[-1], main, dataset.missing(main), say)
    for extra, arrays in extras.items():
        written.append(store.raw_home() / extra.name)
        _write(written[-1], arrays, "", say)
    return written[0]


def _by_file(card: Card, packed: dict[str, Array]) -> tuple[dict[str, Array], dict[Extra, dict[str, Array]]]:
    """Packed arrays by the file they belong to: the main one, and extra ones without the stem in the names."""
    main = {name: array for name, array in packed.items() if "/" not in name}
    extras = {}
    for extra in card.extras:
        start = f"{extra.stem}/"
        if mine := {name.removeprefix(start): array for name, array in packed.items() if name.startswith(start)}:
            extras[extra] = mine
    return main, extras


def _write(target: Path, arrays: dict[str, Array], lacks: str, say: Say) -> None:
    store.write_raw(target, arrays)
    store.record(str(target), store.digest(target))
    say(f"wrote {target}" + (f"; it is partial: {lacks}" if lacks else ""))


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
        say(f"{path}: sha256 is {found}, but {known} was recorded. It has changed since.")
        return False
    else:
        say(f"{path}: readable, sha256 as recorded: {found}")
    return True
