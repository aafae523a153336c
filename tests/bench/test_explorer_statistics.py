"""The statistics of the explorer against SciPy, and against published tables of critical values."""

import math
import random

import numpy as np
import pytest
from scipy import stats

from lformer.bench.explorer import statistics
from lformer.bench.explorer.compare import cliques, largest_block

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("n", [2, 3, 5, 12])
def test_the_interval_of_a_mean_is_students(n: int) -> None:
    values = RNG.normal(size=n).tolist()
    low, high = stats.t.interval(0.95, n - 1, loc=np.mean(values), scale=stats.sem(values))
    assert statistics.reach(values) == pytest.approx((high - low) / 2)
    assert math.isnan(statistics.reach(values[:1]))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("n", [3, 5, 9])
def test_paired_tests_are_those_of_scipy(n: int, sign: int) -> None:
    a, b = RNG.normal(1.0, 1, n), RNG.normal(0.3, 1, n)
    found = statistics.paired(a.tolist(), b.tolist(), sign)
    assert found.t == pytest.approx(stats.ttest_rel(a, b).pvalue)
    assert found.wilcoxon == pytest.approx(stats.wilcoxon(a, b, method="exact").pvalue)
    assert found.difference == pytest.approx(sign * (a - b).mean())
    low, high = stats.ttest_rel(a, b).confidence_interval()
    assert found.reach == pytest.approx((high - low) / 2)
    assert found.wins == int((sign * (a - b) > 0).sum())


def test_ties_and_zeros_of_the_signed_rank_test_are_counted_out() -> None:
    # by hand: ranks 1.5, 1.5, 3 of 1, -1, 2; sums at most 1.5 in three of eight signs
    assert statistics.signed_rank([1.0, -1.0, 2.0]) == pytest.approx(2 * 3 / 8)
    assert statistics.signed_rank([0.0, 1.0, -1.0, 2.0]) == statistics.signed_rank([1.0, -1.0, 2.0])
    assert statistics.signed_rank([0.0, 0.0]) is None


def test_the_same_difference_in_every_seed_has_no_p() -> None:
    found = statistics.paired([0.3, 0.4, 0.5], [0.1, 0.2, 0.3], 1)
    assert found.t is None
    assert found.difference == pytest.approx(0.2)
    assert statistics.paired([1.0] * 3, [1.0] * 3, 1).t is None


def test_two_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 3 pairs; got 2"):
        statistics.paired([1.0, 2.0], [2.0, 3.0], 1)


def test_holm_is_the_textbooks() -> None:
    # Holm 1979 by hand: sorted 0.005, 0.011, 0.02, 0.04 times 4, 3, 2, 1
    assert statistics.holm([0.04, 0.005, 0.02, 0.011]) == pytest.approx([0.04, 0.02, 0.04, 0.033])
    assert statistics.holm([0.6, 0.9]) == [1.0, 1.0]
    assert statistics.holm([]) == []


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("n", "k"), [(3, 3), (4, 13), (12, 6)])
def test_friedman_is_that_of_scipy(n: int, k: int, ties: bool) -> None:
    costs = RNG.integers(0, 4, (n, k)) if ties else RNG.normal(size=(n, k))
    ranks = [statistics.shared_ranks(row.tolist()) for row in costs]
    assert np.allclose(ranks, stats.rankdata(costs, axis=1))
    found, known = statistics.friedman(ranks), stats.friedmanchisquare(*costs.T)
    assert (found.statistic, found.p) == pytest.approx((known.statistic, known.pvalue))


def test_systems_that_are_always_equal_do_not_differ() -> None:
    assert statistics.friedman([[2.0, 2.0, 2.0]] * 4) == (0.0, 1.0)
    with pytest.raises(ValueError, match="at least 2 cells and 3 systems; got 4 and 2"):
        statistics.friedman([[1.0, 2.0]] * 4)


@pytest.mark.parametrize(
    ("k", "q"),
    list(enumerate([1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164], start=2)),
)
def test_nemenyis_critical_values_are_the_printed_ones(k: int, q: float) -> None:
    """Demšar 2006, Table 5 (a)."""
    assert statistics.nemenyi(k, 20) == pytest.approx(q * math.sqrt(k * (k + 1) / 120), abs=6e-4)


def test_bars_join_all_that_lies_within_the_distance_and_nothing_else() -> None:
    rng = random.Random(1)
    for _ in range(50):
        means = sorted(rng.uniform(1, 8) for _ in range(8))
        bars = cliques(means, 2.0)
        for i in range(8):
            for j in range(i + 1, 8):
                joined = any(first <= i and j <= last for first, last in bars)
                assert joined is (means[j] - means[i] <= 2.0)


def test_the_block_has_no_gap_and_the_most_degrees_of_freedom() -> None:
    known = {
        "a": dict.fromkeys(["lformer", "x", "y", "z"], 1.0),
        "b": dict.fromkeys(["lformer", "x", "y", "z"], 1.0),
        "c": dict.fromkeys(["lformer", "x", "y"], 1.0),
        "d": dict.fromkeys(["p", "q", "r", "s", "t", "u"], 1.0),
        "e": dict.fromkeys(["p", "q", "r", "s", "t", "u"], 1.0),
    }
    assert largest_block(known) == (["a", "b", "c"], ["lformer", "x", "y"])  # 2 × 2, against 1 × 3; d, e without ours
    assert largest_block({}) == ([], [])
