"""Four sets of the time series archive that come with aeon, whole or with some of their rows dropped.

Once read, a set is kept in lformer's cache; a machine that has a copy of it needs no aeon.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lformer import sealed
from lformer.bench.defaults.problem import Problem
from lformer.data.store import cache_home
from lformer.hiding import random_rows
from lformer.panel import Array, Panel, without_rows


class Part(NamedTuple):
    """Series (L_i, C) and their classes (n,)."""

    series: list[Array]
    labels: Array


def problem(name: str, dropped: float) -> Problem:
    """A set of the archive without a share of the rows of each series, drawn once for training and test part.

    Args:
        name: as in `aeon.datasets.load_<name>`.
        dropped: which share.
    """
    train, test = (load(name, split) for split in ("train", "test"))
    lengths = {len(values) for values in (*train.series, *test.series)}
    return Problem(
        kind="series", measures=("accuracy", "log_loss"), train=_panel(train.series, dropped, seed=0),
        test=_panel(test.series, dropped, seed=1), labels=train.labels, truth=test.labels, steps=max(lengths),
        stretch=len(lengths) > 1,
    )  # fmt: skip


def _panel(series: Sequence[Array], dropped: float, seed: int) -> Panel:
    whole = Panel.from_list([(np.arange(len(values), dtype=np.float64), values) for values in series])
    return without_rows(whole, random_rows(whole, dropped, seed))


def load(name: str, split: str) -> Part:
    """From the cache, or else from aeon."""
    path = cache_home() / "archive" / f"{name}-{split}.npz"
    if not path.exists():
        series, labels = _from_aeon(name, split)
        sealed.write_whole(path, lambda part: _fill(part, series, labels))
    with np.load(path, allow_pickle=False) as held:
        ends = np.cumsum(held["lengths"])
        return Part(np.split(held["values"], ends[:-1]), held["labels"])


def _fill(path: Path, series: list[Array], labels: Array) -> None:
    with path.open("wb") as stream:
        lengths = np.array([len(values) for values in series])
        np.savez_compressed(stream, values=np.concatenate(series), lengths=lengths, labels=labels)


def _from_aeon(name: str, split: str) -> Part:
    try:
        from aeon import datasets
    except ImportError as error:
        raise ImportError(f"{name} comes with aeon; install it with: pip install 'lformer[adapters]'") from error
    series, labels = getattr(datasets, f"load_{name}")(split=split)
    return Part([np.asarray(values, np.float64).T for values in series], np.asarray(labels, np.str_))
