"""Series with one kind of information removed: a channel swapped with other series, or less informative time stamps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lformer.panel import Array, Panel


def swapped_channel(panel: Panel, channel: int, donor: Array) -> Panel:
    """Series in which the observations of one channel come from other series, at the same times since the first row.

    Args:
        panel: n series, stored contiguously (`compact`).
        channel: index of the channel.
        donor: (n,) position of the series from which each one gets the channel.

    Rows without remaining observations are dropped, except the first one of a series.
    """
    own_values, own_seen = panel.values.copy(), _seen(panel).copy()
    given = _seen(panel)[:, channel]
    own_values[:, channel], own_seen[:, channel] = 0, False
    keep: Array = np.any(own_seen, axis=1)
    keep[panel.first[panel.lengths > 0]] = True
    owner = np.repeat(np.arange(len(panel)), panel.lengths)

    start = panel.first_times()
    taken = [
        np.flatnonzero(given[f : f + n]) + f for f, n in zip(panel.first[donor], panel.lengths[donor], strict=True)
    ]
    source = np.concatenate([*taken, np.zeros(0, np.int64)]).astype(np.int64)
    to = np.repeat(np.arange(len(panel)), [len(rows) for rows in taken])
    to_times = panel.times[source] - start[donor[to]] + start[to]
    new_values = np.zeros((len(source), *panel.values.shape[1:]), panel.values.dtype)
    new_seen = np.zeros(new_values.shape, bool)
    new_values[:, channel], new_seen[:, channel] = panel.values[source, channel], True

    owners = np.concatenate([owner[keep], to])
    times = np.concatenate([panel.times[keep], to_times])
    guest = np.repeat([False, True], [int(keep.sum()), len(to)])
    return _merged(
        panel, owners, times, guest, np.concatenate([own_values[keep], new_values]),
        np.concatenate([own_seen[keep], new_seen]),
    )  # fmt: skip


def _merged(panel: Panel, owner: Array, times: Array, guest: Array, values: Array, seen: Array) -> Panel:
    """Rows sorted by series and time; a swapped observation joins a row with the same time stamp if there is one."""
    order = np.lexsort([guest, times, owner])
    owner, times, guest, values, seen = owner[order], times[order], guest[order], values[order], seen[order]
    joins = np.zeros(len(owner), bool)
    joins[1:] = guest[1:] & ~guest[:-1] & (owner[1:] == owner[:-1]) & (times[1:] == times[:-1])
    host = np.flatnonzero(joins) - 1
    values[host], seen[host] = values[host] + values[joins], seen[host] | seen[joins]
    stay = ~joins
    lengths = np.bincount(owner[stay], minlength=len(panel))
    return replace(
        panel, times=times[stay], values=values[stay], observed=seen[stay], lengths=lengths,
        first=np.cumsum(lengths) - lengths,
    )  # fmt: skip


def swapped_rows(panel: Panel, channel: int, donor: Array) -> Panel:
    """Like `swapped_channel`, but rows stay where they are: each gets the value of the same row of another series.

    For series with predictions or queries at their rows. A shorter series is repeated.
    """
    source = np.concatenate(
        [
            first + np.arange(rows) % max(length, 1) if length else np.full(rows, -1)
            for rows, first, length in zip(panel.lengths, panel.first[donor], panel.lengths[donor], strict=True)
        ]
    ).astype(np.int64)
    values, seen = panel.values.copy(), _seen(panel).copy()
    values[:, channel] = np.where(source >= 0, panel.values[source, channel], 0)
    seen[:, channel] = np.where(source >= 0, _seen(panel)[source, channel], False)
    return replace(panel, values=values, observed=seen)


def evenly_spaced(panel: Panel) -> Panel:
    """The same rows in the same order over the same span, with equal intervals within each series."""
    step = np.arange(len(panel.times)) - np.repeat(panel.first, panel.lengths)
    start = panel.first_times()
    span = np.zeros(len(panel))
    filled = panel.lengths > 0
    span[filled] = panel.times[(panel.first + panel.lengths - 1)[filled]] - start[filled]
    interval = span / np.maximum(panel.lengths - 1, 1)
    return replace(panel, times=np.repeat(start, panel.lengths) + step * np.repeat(interval, panel.lengths))


def permuted_intervals(panel: Panel, rng: np.random.Generator) -> Panel:
    """The same rows in the same order over the same span, with the intervals of each series in random order."""
    owner = np.repeat(np.arange(len(panel)), panel.lengths)
    later = np.ones(len(owner), bool)
    later[panel.first[panel.lengths > 0]] = False
    gaps = np.diff(panel.times, prepend=0.0)[later]
    gaps = gaps[np.lexsort([rng.random(len(gaps)), owner[later]])]
    moved = np.zeros(len(owner))
    moved[later] = gaps
    total = np.cumsum(moved)
    since = total - np.repeat(total[panel.first * (panel.lengths > 0)], panel.lengths) if len(total) else total
    return replace(panel, times=np.repeat(panel.first_times(), panel.lengths) + since)


def _seen(panel: Panel) -> Array:
    """(N, C) bool"""
    return np.ones(panel.values.shape, bool) if panel.observed is None else panel.observed
