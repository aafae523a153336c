"""Series with one thing taken away keep everything else."""

import numpy as np
import pandas as pd
from estimators.every_estimator import records

from lformer import Panel
from lformer.explain.shuffling import evenly_spaced, permuted_intervals, swapped_channel, swapped_rows


def long(panel: Panel, since: bool = False) -> pd.DataFrame:
    """One observation per row, times as numbers, from the first row of each series if asked for."""
    table = panel.to_long()
    start = dict(zip(panel.ids.tolist(), panel.first_times() + panel.origin.astype(float), strict=True))
    table["time"] = table["time"] - table["id"].map(start) * since
    return table


def test_a_swapped_channel_is_that_of_the_donor_and_the_others_stay() -> None:
    X = records(seed=3).compact()
    donor = np.roll(np.arange(len(X)), 1)
    swapped = swapped_channel(X, 1, donor)
    before, after = long(X), long(swapped)
    keep = [frame[frame["channel"] == "k"].reset_index(drop=True) for frame in (before, after)]
    pd.testing.assert_frame_equal(*keep)
    start, since = X.first_times(), long(X)
    for i, name in enumerate(X.ids):
        given = since[(since["id"] == X.ids[donor[i]]) & (since["channel"] == "na")]
        got = after[(after["id"] == name) & (after["channel"] == "na")]
        np.testing.assert_allclose(got["time"] - start[i], given["time"] - start[donor[i]], atol=1e-12)
        np.testing.assert_array_equal(got["value"], given["value"])


def test_rows_hold_something_and_stamps_are_not_twice() -> None:
    X = records(seed=3).compact()
    X = Panel.build(np.round(X.times), X.values, X.lengths, observed=X.observed, ids=X.ids, channels=X.channels)
    swapped = swapped_channel(X, 0, np.roll(np.arange(len(X)), 5))
    swapped._check_times()
    assert swapped.observed is not None
    empty = ~swapped.observed.any(axis=1)
    assert set(np.flatnonzero(empty)) <= set(swapped.first.tolist())
    for i in range(len(X)):
        mine, new = X[i][0], swapped[i][0]
        assert max(map(mine.tolist().count, new.tolist()), default=0) <= max(map(mine.tolist().count, mine.tolist()))


def test_with_itself_as_donor_a_series_stays() -> None:
    X = records(seed=3).compact()
    pd.testing.assert_frame_equal(long(swapped_channel(X, 0, np.arange(len(X)))), long(X))


def test_swapped_rows_keep_every_stamp() -> None:
    X = records(seed=3).compact()
    donor = np.roll(np.arange(len(X)), 1)
    swapped = swapped_rows(X, 1, donor)
    np.testing.assert_array_equal(swapped.times, X.times)
    np.testing.assert_array_equal(swapped.lengths, X.lengths)
    for i in range(len(X)):
        (_, old), (_, new), (_, given) = X[i], swapped[i], X[int(donor[i])]
        np.testing.assert_array_equal(new[:, 0], old[:, 0])
        np.testing.assert_array_equal(new[:, 1], given[np.arange(len(new)) % len(given), 1])


def test_even_and_permuted_intervals_keep_rows_order_and_ends() -> None:
    X = records(seed=3)[[4, 2, 7]].compact()
    for changed in (evenly_spaced(X), permuted_intervals(X, np.random.default_rng(0))):
        changed._check_times()
        np.testing.assert_array_equal(changed.values, X.values)
        ends = X.first + X.lengths - 1
        np.testing.assert_allclose(changed.times[X.first], X.times[X.first], atol=1e-12)
        np.testing.assert_allclose(changed.times[ends], X.times[ends], atol=1e-12)
        assert not np.allclose(changed.times, X.times)
    for i, (stamps, _) in enumerate(evenly_spaced(X)):
        np.testing.assert_allclose(np.diff(stamps), np.diff(stamps).mean())
        moved = permuted_intervals(X, np.random.default_rng(0))[i][0]
        np.testing.assert_allclose(np.sort(np.diff(moved)), np.sort(np.diff(X[i][0])), atol=1e-12)


def test_series_of_one_row_or_none_are_left_alone() -> None:
    X = Panel.build([3.0, 5.0, 9.0], np.ones((3, 1)), [1, 0, 2, 0])
    for changed in (evenly_spaced(X), permuted_intervals(X, np.random.default_rng(0))):
        np.testing.assert_array_equal(changed.times, X.times)
    swapped = swapped_channel(X, 0, np.array([1, 2, 3, 0]))
    assert swapped.lengths.tolist() == [1, 2, 1, 1]
    assert swapped_rows(X, 0, np.array([1, 2, 3, 0])).observed.any(axis=1).tolist() == [False, False, False]  # type: ignore[union-attr]
