"""Rows of many series, as they came in, put in order of time and joined where they share a stamp."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lformer.estimators.incoming import Id, whose
from lformer.panel import Array


class Rows(NamedTuple):
    """Rows of n series: those of one after those of the other, each later than the one before it."""

    stamps: Array  # (M,)
    values: Array  # (M, C) NaN where nothing was observed
    owner: Array  # (M,) of which series
    first: Array  # (n,) where the rows of each begin
    length: Array  # (n,) how many it has
    of: Array  # (N,) in which row each of those that came in is


def in_order(owner: Array, stamps: Array, values: Array, series: int) -> tuple[Rows, Array]:
    """Sort rows, and join those of one series and stamp.

    Args:
        owner: (N,) to which of the series each belongs.
        stamps: (N,).
        values: (N, C).
        series: n, each with at least one row.

    Returns:
        The rows, and (N,) the order in which those given were gone through: of one stamp, as they came.
    """
    order = np.lexsort((stamps, owner))
    owner, stamps, values = owner[order], stamps[order], values[order]
    new = np.ones(len(owner), bool)
    new[1:] = (owner[1:] != owner[:-1]) | (stamps[1:] != stamps[:-1])
    of = np.empty(len(owner), np.int64)
    of[order] = np.cumsum(new) - 1
    if not new.all():
        begins = np.flatnonzero(new)
        owner, stamps, values = owner[begins], stamps[begins], np.fmax.reduceat(values, begins, axis=0)
    first = np.searchsorted(owner, np.arange(series))
    return Rows(stamps, values, owner, first, np.diff(np.append(first, len(owner))), of), order


def require_once(given: Array, rows: Rows, order: Array, names: Sequence[Id], channels: Sequence[str]) -> None:
    """Refuse a channel that came twice at one stamp of one series.

    Args:
        given: (N, C) values as they were given to `in_order`.
        rows: what it made of them.
        order: likewise.
        names: (n,) of the series.
        channels: (C,) names.
    """
    if len(rows.stamps) == len(given):
        return
    times = np.zeros(rows.values.shape, np.int64)
    np.add.at(times, rows.of, ~np.isnan(given))
    if not (times > 1).any():
        return
    where, c = (int(index[0]) for index in np.nonzero(times > 1))
    one, two = (given[n, c] for n in order if rows.of[n] == where and not np.isnan(given[n, c]))
    raise ValueError(
        f"channel {channels[c]!r} came already at time {rows.stamps[where]}, with {one:g}; now it is {two:g}"
        f"{whose(names[rows.owner[where]])}. Decide for one value before the update."
    )
