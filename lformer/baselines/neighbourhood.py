"""Rows as lines of a table: each row of a series, those beside it, and means of those around it.

Between its observations a channel follows the straight line, before and after them it stays; one that was never
observed in a series is at its mean over the training series. Of frames, and of rows with very many channels, the
leading principal components of the training rows stand for the channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from lformer.batch import IrregularBatch
from lformer.panel import Array

PLACES = (-8, -4, -2, -1, 0, 1, 2, 4, 8)  # rows away from a row, of those that count among its features
REACHES = (4, 16)  # rows around a row, over which means and deviations are taken
MOST = 64  # channels that are read as they are
COMPONENTS = 24  # that stand for more of them


class Neighbourhood:
    """Rows and what is beside them, as features, with what must be known of the training series.

    Per channel or component there are the values at `PLACES`, the mean and deviation of the rows within each of
    `REACHES`, and, of channels, the time to the nearest observation; then the times to the rows at `PLACES`.

    Example:
        >>> batch = IrregularBatch.build([[[1.0], [2.0], [4.0]]], [[0.0, 1.0, 3.0]])
        >>> rows = Neighbourhood()
        >>> rows.fit(lambda: [batch])
        >>> rows.table(batch)[:, [3, 4, 5]].tolist()
        [[1.0, 1.0, 2.0], [1.0, 2.0, 4.0], [2.0, 4.0, 4.0]]
    """

    mean: Array  # (C,) of the observations in training
    components: Array | None  # (C, K); None if channels are read as they are

    def fit(self, batches: Callable[[], Iterable[IrregularBatch]]) -> None:
        """Learn means and, of many channels, components, from what `batches` gives; it is asked at most twice."""
        self.mean = observed_mean(batches())
        self.components = None
        if len(self.mean) > MOST:
            spread = np.zeros((len(self.mean), len(self.mean)))
            for batch in batches():
                rows = np.concatenate([self._whole(values) for _, values in clocks(batch)])
                spread += rows.T @ rows
            self.components = np.linalg.eigh(spread)[1][:, ::-1][:, :COMPONENTS]

    def table(self, batch: IrregularBatch) -> Array:
        """(N, F) float32, a line for each valid row, series after series."""
        return np.concatenate([self._lines(times, values) for times, values in clocks(batch)])

    def _lines(self, times: Array, values: Array) -> Array:
        """(L, F) of one series."""
        apart = beside(times[:, None], PLACES) - times[:, None]
        if self.components is None:
            full, ages = along(times, values, times, self.mean), to_nearest(times, values)
        else:
            full, ages = self._whole(values) @ self.components, np.empty((len(times), 0))
        around = [moments(full, reach) for reach in REACHES]
        return np.concatenate([beside(full, PLACES), *around, ages, apart], axis=1, dtype=np.float32)

    def _whole(self, values: Array) -> Array:
        """(L, C) away from the mean, 0 where nothing was observed."""
        return np.nan_to_num(values - self.mean)


def observed_mean(batches: Iterable[IrregularBatch]) -> Array:
    """(C,) over all observations; 0 of a channel that has none."""
    sums = [(np.nansum(x, axis=0), (~np.isnan(x)).sum(axis=0)) for batch in batches for _, x in clocks(batch)]
    total, count = (np.sum(parts, axis=0) for parts in zip(*sums, strict=True))
    return np.asarray(total / np.maximum(count, 1))


def clocks(batch: IrregularBatch) -> list[tuple[Array, Array]]:
    """Of each series times (L,) since its start and values (L, C), NaN where nothing was observed, without padding."""
    times = batch.times.cpu().numpy()
    values = np.where(batch.observed.cpu().numpy(), batch.values.double().cpu().numpy(), np.nan)
    values = values.reshape(*values.shape[:2], -1)  # each pixel of a frame is a channel
    return [(times[i, :n], values[i, :n]) for i, n in enumerate(batch.lengths.tolist())]


def along(times: Array, values: Array, at: Array, mean: Array) -> Array:
    """(Q, C) on the line between the observations (L,), (L, C) at times (Q,)."""
    found = np.empty((len(at), values.shape[1]))
    for c in range(values.shape[1]):
        seen = ~np.isnan(values[:, c])
        found[:, c] = np.interp(at, times[seen], values[seen, c]) if seen.any() else mean[c]
    return found


def beside(rows: Array, places: Sequence[int]) -> Array:
    """(L, F) -> (L, P F), the rows so many places away; the first or last one where there is none.

    Example:
        >>> beside(np.array([[1], [2], [3]]), (-1, 0)).tolist()
        [[1, 1], [1, 2], [2, 3]]
    """
    at = np.arange(len(rows))[:, None] + np.asarray(places)
    return np.asarray(rows[np.clip(at, 0, len(rows) - 1)].reshape(len(rows), len(places) * rows.shape[1]))


def moments(rows: Array, reach: int) -> Array:
    """(L, F) -> (L, 2 F), mean and deviation of the rows at most `reach` places away."""
    L = len(rows)
    first, behind = np.maximum(np.arange(L) - reach, 0), np.minimum(np.arange(L) + reach + 1, L)
    middle = rows.mean(axis=0) if L else 0.0  # so that squares do not cancel
    sums = np.cumsum(np.concatenate([np.zeros((1, 2 * rows.shape[1])), np.hstack([a := rows - middle, a**2])]), axis=0)
    mean, square = np.split((sums[behind] - sums[first]) / (behind - first)[:, None], 2, axis=1)
    return np.hstack([mean + middle, np.sqrt(np.maximum(square - mean**2, 0))])


def to_nearest(times: Array, values: Array) -> Array:
    """(L, C), the time between each row and the nearest observation of each channel; NaN of one that has none."""
    found = np.full(values.shape, np.nan)
    for c in range(values.shape[1]):
        if len(seen := times[~np.isnan(values[:, c])]):
            after = np.searchsorted(seen, times).clip(0, len(seen) - 1)
            found[:, c] = np.minimum(np.abs(seen[after] - times), np.abs(times - seen[(after - 1).clip(0)]))
    return found
