"""What a source file brings: a card that says what the data are, and a function that prepares them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Literal
from urllib.parse import urlsplit

import numpy as np

from lformer.data.files import Files
from lformer.parts import Prepared
from lformer.tasks import TASKS

Array = np.ndarray[Any, Any]
Raw = Mapping[str, Array]

Scaling = Literal["published", "none", "standard", "minmax", "robust"]


@dataclass(frozen=True, kw_only=True)
class Remote:
    """A file at its original place. Hashes are those its owner, or others who checked it, have published."""

    url: str
    sha256: str | None = None
    md5: str | None = None

    @property
    def name(self) -> str:
        """The last part of the address."""
        return PurePosixPath(urlsplit(self.url).path).name


@dataclass(frozen=True, kw_only=True)
class Extra:
    """A raw file that some splits need beside the main one.

    Attributes:
        name: where it lies among the raw files, such as "physionet2012/p12_splits.npz".
        content: what it holds, in words.
        splits: which of the card's splits need it.
        by_hand: how to get it.
    """

    name: str
    content: str
    splits: tuple[str, ...]
    by_hand: str

    @property
    def stem(self) -> str:
        """What stands before the names of its arrays: "p12_splits" in `raw["p12_splits/record_id"]`."""
        return PurePosixPath(self.name).stem


@dataclass(frozen=True, kw_only=True)
class Card:
    """What a person wants to know of a data set before using it.

    Attributes:
        name: as in `data.load(name)`.
        title: as its owner calls it.
        page: where it is described.
        licence: name of the licence, or what is known of it.
        citation: the publication to cite.
        series: how many series the complete set has.
        length: rows of a series, in words if they differ.
        channels: in words if they are not plain numbers.
        tasks: what it can be used for; the first is the default.
        metrics: by task, or task and split ("extrapolate tpatchgnn"), what a table prints of it where that is not what
            the task usually prints; the first selects.
        splits: rules by which it is cut; the first is the default.
        scalings: how values may be scaled; the first is the default.
        options: of its own, each with its choices, the default first; numbers may take others too.
        variants: named sets of options.
        flaw: what is wrong with the set itself, "" if nothing is known.
        raw: names under which its npz is looked for; the first is the complete one, and the one `fetch` writes.
        extras: further raw files, for some of the splits.
        remotes: what `fetch` downloads.
        by_hand: how to get it without `fetch`: what to download and what `pack` then wants.
    """

    name: str
    title: str
    page: str
    licence: str
    citation: str
    series: int
    length: str
    channels: str
    tasks: tuple[str, ...]
    metrics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    splits: tuple[str, ...] = ("published",)
    scalings: tuple[Scaling, ...] = ("published",)
    options: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    flaw: str = ""
    raw: tuple[str, ...] = ()
    extras: tuple[Extra, ...] = ()
    remotes: tuple[Remote, ...] = ()
    by_hand: str = ""

    def __post_init__(self) -> None:
        if unknown := set(self.tasks) - TASKS.keys():
            raise ValueError(f"{self.name}: unknown tasks {unknown}.")
        if lost := {split for extra in self.extras for split in extra.splits} - set(self.splits):
            raise ValueError(f"{self.name}: extra files for unknown splits {lost}.")

    def metrics_of(self, task: str, split: str) -> tuple[str, ...]:
        """What a table prints of a task on a split; empty if that is what the task usually prints."""
        return self.metrics.get(f"{task} {split}", self.metrics.get(task, ()))

    def extras_of(self, split: str) -> tuple[Extra, ...]:
        """The further raw files that a split needs."""
        return tuple(extra for extra in self.extras if split in extra.splits)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What was asked of a data set, checked against its card."""

    task: str
    seed: int
    split: str
    scaling: Scaling
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """One source, or one set of it.

    Attributes:
        card: see `Card`.
        prepare: from the raw arrays and the request to the prepared set; a generator gets no arrays. Those of an extra
            file have its stem before their names.
        draw: in place of `prepare`, for a set whose points are redrawn in every epoch: gives its `Splits`.
        check: raises a ValueError if a request asks for what the card offers, but not together, such as a split that
            exists for one task only.
        pack: from the owner's files to the raw arrays, those of an extra file named as in `prepare`; None if there is
            nothing to download.
        missing: what these raw arrays lack of the complete set, "" if nothing.
        name_raw: for a source with several forms, under which of the card's raw names packed arrays are kept.
        version: of `prepare`; raise it when its result changes, so that cached results are made again.
    """

    card: Card
    prepare: Callable[[Raw, Request], Prepared] | None = None
    draw: Callable[[Request], Any] | None = None
    check: Callable[[Request], None] = lambda request: None
    pack: Callable[[Files], dict[str, Array]] | None = None
    missing: Callable[[Raw], str] = lambda raw: ""
    name_raw: Callable[[Raw], str] | None = None
    version: int = 1

    def raw_name(self, arrays: Raw) -> str:
        """Under which of the card's raw names these arrays are kept."""
        return self.card.raw[0] if self.name_raw is None else self.name_raw(arrays)
