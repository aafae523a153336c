"""A clock that series share: found where there is one, told to the model, the same wherever it begins."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lformer
from lformer import LFormerClassifier, LFormerForecaster, LFormerInterpolator, LFormerPointClassifier, Panel
from lformer.panel.calendar import CLOCK_HARMONICS, Calendar, choose_clock

SMALL: dict[str, Any] = {"width": 8, "heads": 2, "depth": 1, "max_epochs": 1, "random_state": 0, "device": "cpu"}


def days(n: int = 40, seed: int = 0, begin: float = 0.0, spread: float = 4.0) -> Panel:
    """Series over a day of 24 hours, which begin at different times of it; rows and channels are missing."""
    rng = np.random.default_rng(seed)
    series = []
    for _ in range(n):
        times = np.sort(rng.uniform(spread * rng.random(), 24, rng.integers(6, 15)))
        values = rng.normal(size=(len(times), 2))
        values[rng.random(values.shape) < 0.3] = np.nan
        series.append((begin + times, values))
    return Panel.from_list(series)


# -- whether there is one


def test_series_that_begin_at_different_times_of_one_day_share_its_clock() -> None:
    found = choose_clock(days(), "auto")
    assert found is not None
    begins, length = found
    assert 0 <= begins < 4
    assert 23 < begins + length <= 24


def test_it_is_no_clock_if_all_begin_at_once_or_each_has_its_own() -> None:
    at_once = Panel.from_list([(t - t[0], v) for t, v in days()])
    apart = Panel.from_list([(t + 100 * n, v) for n, (t, v) in enumerate(days())])
    assert choose_clock(at_once, "auto") is None
    assert choose_clock(apart, "auto") is None
    assert choose_clock(days(), False) is None
    assert choose_clock(at_once, True) is not None


def test_dates_have_a_calendar_instead() -> None:
    stamps = [(np.datetime64("2024-01-01") + (3600 * t).astype("m8[s]"), v) for t, v in days()]
    dated = Panel.from_list(stamps)
    assert choose_clock(dated, "auto") is None
    with pytest.raises(ValueError, match="clock=True is for times that are numbers or durations; those of X are dates"):
        LFormerClassifier(clock=True, **SMALL).fit(dated, np.arange(40) % 2)


def test_a_choice_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match='clock must be True, False or "auto"; got 7'):
        LFormerClassifier(clock=7, **SMALL).fit(days(), np.arange(40) % 2)  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "told"), [
    (LFormerClassifier, True), (LFormerPointClassifier, True), (LFormerInterpolator, False), (LFormerForecaster, False),
])  # fmt: skip
def test_who_is_told_of_it(kind: Any, told: bool) -> None:
    X = days()
    labels: list[Any] = []
    if kind is LFormerClassifier:
        labels = [np.arange(40) % 2]
    elif kind is LFormerPointClassifier:
        labels = [[np.arange(n) % 2 for n in X.lengths]]
    assert (kind(**SMALL).fit(X, *labels).features_.marks.clock is not None) is told
    streaming = kind(**SMALL, streaming=True).fit(X, *labels)
    assert streaming.features_.marks.clock is None  # a stream outlives any clock


# -- what is told


def test_where_a_moment_stands() -> None:
    marks = Calendar(clock=(10.0, 20.0)).of(np.array([10.0, 15.0, 30.0, 1e6, -1e6]))
    assert marks.shape == (5, 1 + 2 * CLOCK_HARMONICS)
    assert marks[:, 0].tolist() == [-1.0, -0.5, 1.0, 2.0, -2.0]
    assert marks[1, 1:].tolist() == pytest.approx([1, 0], abs=1e-6)  # sine and cosine of a quarter
    assert np.abs(marks[:, 1:]).max() <= 1


def test_durations_are_numbers_of_their_unit() -> None:
    clock = Calendar(clock=(0.0, 24.0))
    assert np.array_equal(clock.of(np.array([6, 90], "m8[h]"), "h"), clock.of(np.array([6.0, 90.0])))


# -- what comes of it


def by_hour(n: int, seed: int) -> tuple[Panel, Any]:
    """The class is whether the value is high before noon or after; each series lacks a random part of the morning."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, n)
    series = []
    for label in labels:
        times = np.sort(rng.choice(np.arange(24.0), 7, replace=False))
        high = (times < 12) == bool(label)
        values = np.where(high, 1.0, -1.0)[:, None] + rng.normal(0, 1.5, (7, 1))
        series.append((times, values))
    return Panel.from_list(series), labels


def test_where_the_hour_decides_it_helps() -> None:
    (X, y), (Z, truth) = by_hour(160, 0), by_hour(300, 1)
    sizes = {**SMALL, "width": 16, "max_epochs": 30, "lr": 5e-3}
    told = LFormerClassifier(**sizes).fit(X, y)
    assert told.score(Z, truth) > LFormerClassifier(**sizes, clock=False).fit(X, y).score(Z, truth)


def test_wherever_the_clock_begins_answers_are_the_same() -> None:
    """Shifted in training and prediction alike, nothing changes; order and company of series never matter."""
    X, y = days(), np.arange(40) % 2
    fitted = LFormerClassifier(**SMALL).fit(X, y)
    answers = fitted.predict_proba(X)
    for begin in (-500.0, 4096.0):
        shifted = LFormerClassifier(**SMALL).fit(days(begin=begin), y)
        assert np.allclose(shifted.predict_proba(days(begin=begin)), answers, atol=1e-5)
    assert np.allclose(fitted.predict_proba(X[[7]]), answers[[7]], atol=1e-6)
    assert np.allclose(fitted.predict_proba(X[::-1]), answers[::-1], atol=1e-6)
    assert not np.allclose(fitted.predict_proba(days(begin=6.0)), answers, atol=1e-3)


def test_a_frame_of_origins_is_read_with_its_origins() -> None:
    """Times of a series may be written from an origin of its own: the sum counts."""
    X, y = days(), np.arange(40) % 2
    moved = replace(X, times=X.times - 3.0, origin=X.origin + 3.0)
    fitted = LFormerClassifier(**SMALL).fit(X, y)
    assert np.allclose(fitted.predict_proba(moved), fitted.predict_proba(X), atol=1e-5)


def test_it_is_saved(tmp_path: Path) -> None:
    X, y = days(), np.arange(40) % 2
    fitted = LFormerClassifier(**SMALL).fit(X, y)
    fitted.save(tmp_path / "model")
    again = lformer.load(tmp_path / "model")
    assert again.features_.marks == fitted.features_.marks
    assert np.array_equal(again.predict_proba(X), fitted.predict_proba(X))
