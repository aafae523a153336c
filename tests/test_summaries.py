"""Summary features from flat arrays: against a slow loop, and where there is nothing to summarise."""

from typing import Any

import numpy as np
import pytest

from lformer.summaries import KINDS, summarise

Array = np.ndarray[Any, Any]


def by_loop(t: Array, x: Array) -> list[float]:
    """Of the observations of one channel of one series."""
    if not len(x):
        return [0.0, *[np.nan] * 5]
    slope = np.nan if len(set(t)) == 1 else np.polyfit(t - t[0], x, 1)[0]
    return [len(x), x.mean(), x[-1], x.min(), x.max(), slope]


def ragged(seed: int, C: int = 3) -> tuple[Array, Array, Array, Array, int]:
    """Uneven times with ties, holes, and series without rows at the start, in the middle and at the end."""
    rng = np.random.default_rng(seed)
    lengths = np.concatenate([[0], rng.integers(0, 12, 8), [0, 1, 0]])
    owner = np.repeat(np.arange(len(lengths)), lengths)
    gaps = rng.exponential(1.0, len(owner)) * (rng.random(len(owner)) > 0.2)
    times = np.concatenate([1e5 + np.cumsum(gaps[owner == i]) for i in range(len(lengths))])
    values = rng.normal(size=(len(owner), C)).astype(np.float32)
    return owner, values, rng.random((len(owner), C)) < 0.5, times, len(lengths)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("all_seen", [True, False])
def test_it_equals_a_slow_loop(seed: int, all_seen: bool) -> None:
    owner, values, observed, times, n = ragged(seed)
    found = summarise(owner, values, None if all_seen else observed, times, n)
    assert found.shape == (n, 3, len(KINDS))
    for i in range(n):
        for c in range(3):
            seen = (owner == i) & (all_seen | observed[:, c])
            expected = by_loop(times[seen], values[seen, c].astype(np.float64))
            np.testing.assert_allclose(found[i, c], expected, rtol=1e-7, atol=1e-9)


def test_what_was_not_observed_is_not_read() -> None:
    owner, values, observed, times, n = ragged(0)
    other = np.where(observed, values, np.nan)
    np.testing.assert_array_equal(
        summarise(owner, other, observed, times, n), summarise(owner, values, observed, times, n)
    )


def test_observations_of_one_moment_have_no_slope() -> None:
    moment = np.full(3, 0.1)  # whose mean is not 0.1 after rounding
    found = summarise(np.zeros(3, int), np.array([[1.0], [5.0], [2.0]]), None, moment, 1)
    np.testing.assert_array_equal(found[0, 0], [3, 8 / 3, 2, 1, 5, np.nan])


def test_nothing_at_all() -> None:
    found = summarise(np.zeros(0, int), np.zeros((0, 2)), None, np.zeros(0), 3)
    assert found[..., 0].tolist() == [[0, 0]] * 3
    assert np.isnan(found[..., 1:]).all()
