"""Positions of the rows of series: one series after another, or padded side by side."""

from __future__ import annotations

import numpy as np

from lformer.arrays import Array


def runs(first: Array, lengths: Array) -> Array:
    """The positions `first[i], first[i] + 1, ...`, `lengths[i]` of them, for one run after another."""
    ends = np.cumsum(lengths)
    return np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(first - (ends - lengths), lengths)


def padded_rows(first: Array, lengths: Array, pad_to: int | None = None) -> tuple[Array, Array]:
    """(B, L) the row of every cell and whether it is valid; padding repeats the last valid row, or row 0."""
    longest = int(lengths.max(initial=0)) if pad_to is None else pad_to
    step = np.arange(longest)
    first = np.where(lengths > 0, first, 0)  # an empty run may lie after the last row
    rows = first[:, None] + np.minimum(step, np.maximum(lengths[:, None] - 1, 0))
    return rows, step < lengths[:, None]


def take_rows(flat: Array, rows: Array, valid: Array) -> Array:
    """(B, L, ...) rows of a flat array, 0 on padding."""
    if len(flat) == 0:
        return np.zeros((*rows.shape, *flat.shape[1:]), flat.dtype)
    padded = flat.take(rows, axis=0)
    if not valid.all():
        padded[~valid] = 0
    return padded
