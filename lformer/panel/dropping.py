"""Remove rows or observations from panels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lformer.arrays import Array
from lformer.panel.core import Panel
from lformer.panel.own_numbers import OwnNumbers


def without_rows(panel: Panel, hidden: Array) -> Panel:
    """The panel without some of its rows, (N,) bool; a series may lose all of them."""
    if hidden.shape != panel.times.shape or hidden.dtype != bool:
        raise ValueError(f"hidden must be bool, one for each of the {len(panel.times)} rows; got {hidden.shape}.")
    shown = ~hidden
    before = np.concatenate([[0], np.cumsum(shown)])  # number of remaining rows before each row
    first, ends = before[panel.first], before[panel.first + panel.lengths]
    return replace(
        panel,
        times=panel.times[shown],
        values=panel.values[shown],
        observed=None if panel.observed is None else panel.observed[shown],
        first=first,
        lengths=ends - first,
    )


def drop_observations(
    panel: Panel, fraction: float, rng: np.random.Generator | OwnNumbers, *, keep_rows: bool = False
) -> Panel:
    """Drop observations at random: whole rows and, with several channels, single observations and whole channels.

    A share `fraction` of the single observations and of the channels is dropped; the share of rows varies between
    series, from 0 to three times `fraction`. For frames, only whole rows are dropped. A row in which nothing is left is
    removed, except the first one of a series; with `keep_rows` it stays, with nothing observed. With `OwnNumbers`, what
    a series loses does not depend on the other series.

    Example:
        >>> panel = Panel.from_list([(range(100), np.ones((100, 2)))])
        >>> left = drop_observations(panel, 0.2, np.random.default_rng(0))
        >>> len(left.times) < 100 and bool(left.observed.any())
        True
    """
    panel = panel.compact()
    left, kept = what_is_left(panel, fraction, rng, keep_rows=keep_rows)
    shown = replace(panel, values=np.where(left, panel.values, 0), observed=left)
    return shown if kept is None else without_rows(shown, ~kept)


def what_is_left(
    panel: Panel, fraction: float, rng: np.random.Generator | OwnNumbers, *, keep_rows: bool = False
) -> tuple[Array, Array | None]:
    """What `drop_observations` leaves of a compact panel: observations (N, *C) and rows (N,), bool; None for all."""
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction must lie between 0 and 1; got {fraction}.")
    observed = np.ones(panel.values.shape, bool) if panel.observed is None else panel.observed
    owner = np.repeat(np.arange(len(panel)), panel.lengths)
    draw = rng if isinstance(rng, OwnNumbers) else _OneStream(rng, len(panel))
    rows = draw.of_rows(panel.lengths) < (3 * fraction * draw.of_series())[owner]
    dropped: Array = np.broadcast_to(rows.reshape(-1, *(1,) * (observed.ndim - 1)), observed.shape)
    if observed.ndim == 2 and observed[:1].size > 1:  # dropping the only channel would leave nothing
        channels = draw.of_series(*observed.shape[1:]) < fraction
        dropped = dropped | channels[owner] | (draw.of_rows(panel.lengths, *observed.shape[1:]) < fraction)
    left = observed & ~dropped
    if keep_rows:
        return left, None
    kept: Array = np.asarray(left.any(axis=tuple(range(1, left.ndim))))
    kept[panel.first[panel.lengths > 0]] = True
    return left, kept


class _OneStream:
    """Random numbers for a whole panel from one generator: faster, but those of a series depend on the other series."""

    def __init__(self, rng: np.random.Generator, series: int) -> None:
        self._rng, self._series = rng, series

    def of_series(self, *sides: int) -> Array:
        return self._rng.random((self._series, *sides))

    def of_rows(self, lengths: Array, *sides: int) -> Array:
        return self._rng.random((int(lengths.sum()), *sides), np.float32 if sides else np.float64)
