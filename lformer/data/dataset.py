"""What the module of a data set provides: a card that describes the data, and a function that prepares them."""

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
    """A file at its original address. Hashes are those published by its owner, or by others who checked it."""

    url: str
    sha256: str | None = None
    md5: str | None = None

    @property
    def name(self) -> str:
        """The last part of the address."""
        return PurePosixPath(urlsplit(self.url).path).name


@dataclass(frozen=True, kw_only=True)
class Extra:
    """A raw file that some splits need in addition to the main one.

    Attributes:
        name: its path in the folder of raw files, such as "physionet2012/p12_splits.npz".
        content: description of its content.
        splits: the splits of the card that need it.
        by_hand: how to get it.
    """

    name: str
    content: str
    splits: tuple[str, ...]
    by_hand: str

    @property
    def stem(self) -> str:
        """The prefix of its arrays: "p12_splits" in `raw["p12_splits/record_id"]`."""
        return PurePosixPath(self.name).stem


@dataclass(frozen=True, kw_only=True)
class Card:
    """Description of a data set.

    Attributes:
        name: name for `data.load(name)`.
        title: title given by its owner.
        page: web page with a description.
        licence: name of the licence, or what is known about it.
        citation: the publication to cite.
        series: number of series of the complete set.
        length: rows of a series, in words if they differ.
        channels: number of channels, with a description if they are not plain numbers.
        tasks: the tasks it can be used for; the first is the default.
        metrics: by task, or task and split ("extrapolate tpatchgnn"), the metrics to show in a table if they are not
            those usual for the task; the first selects the epoch.
        splits: rules that split it; the first is the default.
        scalings: ways to scale its values; the first is the default.
        options: further options, each with its choices, the default first; numbers may also take other values.
        variants: named sets of options.
        flaw: known errors of the data themselves, or "".
        raw: names of its npz file; the first is that of the complete one, which `fetch` writes.
        extras: further raw files, for some of the splits.
        remotes: files that `fetch` downloads.
        by_hand: how to get it without `fetch`: what to download, and what to give to `pack`.
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
        """The metrics to show for a task on a split; empty if they are those usual for the task."""
        return self.metrics.get(f"{task} {split}", self.metrics.get(task, ()))

    def extras_of(self, split: str) -> tuple[Extra, ...]:
        """The further raw files that a split needs."""
        return tuple(extra for extra in self.extras if split in extra.splits)


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options with which a data set is loaded, checked against its card."""

    task: str
    seed: int
    split: str
    scaling: Scaling
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A data set: its card, and the functions that make it.

    Attributes:
        card: see `Card`.
        prepare: function from the raw arrays and the request to the prepared set. The arrays of an extra file have its
            stem as a prefix; a generated set gets no arrays.
        draw: replaces `prepare` for a set whose points are redrawn in every epoch; returns its `Splits`.
        check: raises a ValueError for a combination of options that does not exist, such as a split that is for one
            task only.
        pack: function from the owner's files to the raw arrays, with the prefixes of `prepare`; None if there is
            nothing to download.
        missing: function that says what is missing from some raw arrays, "" if nothing.
        name_raw: for a data set with several forms, function that returns the card's raw name for some arrays.
        version: version of `prepare`; increase it when its result changes, so that cached results are made again.
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
        """The raw name of the card under which these arrays are stored."""
        return self.card.raw[0] if self.name_raw is None else self.name_raw(arrays)
