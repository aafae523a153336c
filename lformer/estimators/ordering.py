"""Sort incoming rows of many series by time, and join those with the same time stamp."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lformer.estimators.incoming import Id, whose
from lformer.panel import Array


class Rows(NamedTuple):
    """Rows of n series: series after series, each in order of strictly increasing time."""

    stamps: Array  # (M,)
    values: Array  # (M, C) NaN where nothing was observed
    owner: Array  # (M,) the series of each row
    first: Array  # (n,) first row of each series
    length: Array  # (n,) number of rows of each series
    of: Array  # (N,) the row that each incoming row has become part of


def in_order(owner: Array, stamps: Array, values: Array, series: int) -> tuple[Rows, Array]:
    """Sort rows by series and time, and join those with the same series and time stamp.

    Args:
        owner: (N,) the series of each row.
        stamps: (N,).
        values: (N, C).
        series: n, each with at least one row.

    Returns:
        The rows, and (N,) the order in which the incoming rows were sorted, stable for equal time stamps.
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
    """Raise if a channel has two values at the same time stamp of a series.

    Args:
        given: (N, C) values as given to `in_order`.
        rows: the rows it returned.
        order: the order it returned.
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
