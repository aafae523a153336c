"""Thresholds of conformal prediction by hand, and their coverage where the truth is known."""

import warnings

import numpy as np
import pytest

from lformer.distributions import OTHERS
from lformer.estimators.conformal import TooFewSeriesWarning, calibrated, level_of, require_enough, thresholds
from lformer.estimators.normal_scores import normal_quantile, value_at, z_of

NO_EDGES = np.zeros(0)


def test_one_answer_per_series_is_plain_split_conformal() -> None:
    rng = np.random.default_rng(0)
    for n in (1, 9, 10, 57, 199):
        scores = rng.normal(size=n)
        found = thresholds(scores, np.arange(n))
        for level in (1, 500, 800, 900, 950, 999):
            rank = -(-level * (n + 1) // 1000)  # ⌈c (n + 1)⌉ in whole numbers
            assert found[level - 1] == (np.sort(scores)[rank - 1] if rank <= n else np.inf)


def test_answers_of_a_series_share_its_weight() -> None:
    """Two series: one with four large scores, one with a small one; each counts a third, and a third is infinite."""
    scores, owner = np.array([5.0, 6.0, 7.0, 8.0, 1.0]), np.array([0, 0, 0, 0, 1])
    found = thresholds(scores, owner)
    assert found[332] == 1.0
    assert found[333] == 5.0
    assert found[415] == 5.0  # 1/3 + 1/12 = 0.41667
    assert found[416] == 6.0
    assert found[665] == 8.0
    assert np.isinf(found[666])
    assert np.array_equal(thresholds(np.tile(scores, 3), np.tile(owner, 3)), found)  # more rows say no more
    assert np.array_equal(thresholds(np.append(scores, np.nan), np.append(owner, 2)), found)  # nothing to compare


def drawn(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of series that differ in length and in difficulty; long ones are the difficult ones."""
    lengths = rng.integers(1, 12, n)
    owner = np.repeat(np.arange(n), lengths)
    level = rng.normal(0, 1, n) + lengths / 6
    return level[owner] + 0.3 * rng.normal(size=len(owner)), owner


@pytest.mark.parametrize(("n", "coverage"), [(19, 0.9), (30, 0.8), (60, 0.95)])
def test_coverage_over_series_and_times_is_what_was_asked_for(n: int, coverage: float) -> None:
    """Over 4,000 draws of calibration series and of 20 new ones each; the margin is five deviations of the mean."""
    rng = np.random.default_rng(n)
    found, pooled = [], []
    for _ in range(4000):
        threshold = thresholds(*drawn(rng, n))[level_of(coverage) - 1]
        scores, owner = drawn(rng, 20)
        inside = (scores <= threshold).astype(float)
        found.append(np.mean(np.bincount(owner, inside) / np.bincount(owner)))
        pooled.append(inside.mean())
    margin = 5 * np.std(found) / np.sqrt(len(found))
    assert coverage - margin <= np.mean(found) <= coverage + 2 / (n + 1) + margin
    assert np.mean(pooled) < np.mean(found) - margin  # long series are difficult here, and have no larger say


def test_counting_rows_as_if_they_were_independent_would_lie() -> None:
    """What the scheme avoids: with all rows as one sample, coverage over series differs from what was asked for."""
    rng = np.random.default_rng(0)
    honest, naive = [], []
    for _ in range(1500):
        scores, owner = drawn(rng, 19)
        new, whose = drawn(rng, 20)
        for kept, threshold in ((honest, thresholds(scores, owner)[899]), (naive, np.quantile(scores, 0.9))):
            kept.append(np.mean(np.bincount(whose, new <= threshold) / np.bincount(whose)))
    assert np.mean(honest) >= 0.9 - 5 * np.std(honest) / np.sqrt(1500)
    assert np.mean(naive) != pytest.approx(np.mean(honest), abs=0.005)


def test_bins_with_few_series_join_their_neighbours() -> None:
    rng = np.random.default_rng(0)
    owner, ahead = np.repeat(np.arange(150), 3), np.tile([0.5, 1.5, 3.0], 150)
    scores = np.column_stack([ahead * rng.random(450), np.where(owner < 40, 1.0, np.nan)])
    found = calibrated(scores, owner, ahead, np.array([1.0, 2.0]))
    assert found.counts.tolist() == [[150, 150, 150], [40, 40, 40]]
    assert (np.diff(found.at(0.9)[0]) > 0.3).all()  # errors grow with the time ahead
    assert len(np.unique(found.at(0.9)[1])) == 1
    assert found.bins(np.array([0.0, 1.0, 1.1, 99.0])).tolist() == [0, 0, 1, 2]
    late = calibrated(scores[ahead < 2], owner[ahead < 2], ahead[ahead < 2], np.array([1.0, 2.0]))
    assert late.at(0.9)[0, 2] == late.at(0.9)[0, 1]  # nothing was asked so far ahead: as in the bin before


def test_a_coverage_that_is_too_much_is_said_and_never_lied_about() -> None:
    found = calibrated(np.arange(8.0)[:, None], np.arange(8), np.zeros(8), NO_EDGES)
    with pytest.raises(ValueError, match=r"coverage 0\.9 needs at least 9 calibration series .* output 0 \(8\)"):
        require_enough(found.at(0.9), found.counts, 0.9, ["output 0"], np.ones((1, 1), bool))
    both = np.column_stack([np.arange(30.0), np.where(np.arange(30) < 5, 1.0, np.nan)])
    found = calibrated(both, np.arange(30), np.zeros(30), NO_EDGES)
    with pytest.warns(TooFewSeriesWarning, match=r"channel b \(5\)\. .* infinite"):
        require_enough(found.at(0.9), found.counts, 0.9, ["a", "channel b"], np.ones((2, 1), bool))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        require_enough(found.at(0.9), found.counts, 0.9, ["a", "b"], np.array([[True], [False]]))
    for wrong in (0.0, 1.0, -1, 1.5, "0.9", True, float("nan")):
        with pytest.raises(ValueError, match=r"coverage must be a number from 0\.001 to 0\.999"):
            level_of(wrong)  # type: ignore[arg-type]


def quantiles(rng: np.random.Generator, n: int, outputs: int) -> np.ndarray:
    """(n, 15 O) medians and, around them, quantiles in order, some at the same place."""
    steps = rng.exponential(1.0, (n, 15, outputs)) * (rng.random((n, 15, outputs)) < 0.8)
    ordered = np.cumsum(steps, axis=1)
    return np.concatenate([ordered[:, [7]], ordered[:, :7], ordered[:, 8:]], axis=1).reshape(n, -1)


def test_z_and_back_for_every_kind() -> None:
    rng = np.random.default_rng(0)
    size = rng.uniform(0.5, 2, (40, 2))
    told = {
        "point": rng.normal(size=(40, 2)),
        "gaussian": rng.uniform(1, 2, (40, 4)),
        "quantiles": quantiles(rng, 40, 2),
    }
    for kind, answers in told.items():
        rising = []
        for z in (-4.0, -2.1, -0.7, 0.0, 0.2, 1.0, 2.3, 5.0):
            value = value_at(kind, answers, size, np.array(z))  # type: ignore[arg-type]
            back = z_of(kind, answers, size, value)  # type: ignore[arg-type]
            assert np.allclose(value_at(kind, answers, size, back), value)  # type: ignore[arg-type]
            assert (np.abs(back) <= abs(z) + 1e-9).all()  # the smallest of those that lie there
            rising.append(value)
        assert (np.diff(rising, axis=0) >= 0).all()
        assert np.isinf(value_at(kind, answers, size, np.array(np.inf))).all()  # type: ignore[arg-type]
    for k, level in enumerate(OTHERS):
        block = told["quantiles"][:, 2 * (k + 1) : 2 * (k + 2)]
        assert np.allclose(value_at("quantiles", told["quantiles"], size, np.array(normal_quantile(level))), block)
