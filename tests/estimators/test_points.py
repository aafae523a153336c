"""LFormerPointClassifier and LFormerPointRegressor: an answer at every row of ragged, irregular, partly seen series."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from lformer import Panel
from lformer.estimators import LFormerPointClassifier, LFormerPointRegressor

SMALL: dict[str, Any] = {"width": 16, "heads": 1, "depth": 1, "lr": 0.02, "random_state": 0, "device": "cpu"}
Pairs = list[tuple[Any, Any]]


def jumps(n: int = 60, seed: int = 0) -> tuple[Pairs, list[Any], list[Any]]:
    """Rows labelled by the sign of a channel and by the gap before them; a second channel is noise, half missing.

    Returns the series, the labels, and numbers that follow the same rule.
    """
    rng = np.random.default_rng(seed)
    series, labels, numbers = [], [], []
    for _ in range(n):
        length = int(rng.integers(3, 14))
        gap = rng.choice([0.5, 4.0], length) * rng.uniform(0.9, 1.1, length)
        values = rng.standard_normal((length, 2))
        late = np.concatenate([[False], gap[1:] > 2])
        values[rng.random(length) < 0.5, 1] = np.nan
        series.append((np.cumsum(gap), values))
        labels.append(np.where(values[:, 0] > 0, np.where(late, "up late", "up"), "down"))
        numbers.append(100 + 10 * values[:, 0] + 20 * late)
    return series, labels, numbers


def test_sign_and_gap_tell_the_class() -> None:
    X, y, _ = jumps()
    model = LFormerPointClassifier(**SMALL, max_epochs=25).fit(X, y)
    unseen, truth, _ = jumps(seed=1)
    assert model.score(unseen, truth) > 0.85
    right = np.concatenate([p == t for p, t in zip(model.predict(unseen), truth, strict=True)])
    assert model.score(unseen, truth) == pytest.approx(right.mean())  # over points, not over series
    assert model.classes_.tolist() == ["down", "up", "up late"]
    proba = model.predict_proba(unseen)
    assert [p.shape for p in proba] == [(len(t), 3) for t in truth]
    assert all(np.allclose(p.sum(axis=1), 1) for p in proba)


def test_numbers_in_their_units_with_missing_targets() -> None:
    X, _, y = jumps()
    rng = np.random.default_rng(0)
    holes = [np.where(rng.random(len(t)) < 0.3, np.nan, t) for t in y]
    holes[5] = np.full(len(y[5]), np.nan)  # a series without any target
    model = LFormerPointRegressor(**SMALL, max_epochs=25).fit(X, holes)
    unseen, _, truth = jumps(seed=1)
    assert [p.shape for p in model.predict(unseen)] == [t.shape for t in truth]
    assert model.score(unseen, truth) > 0.8
    part = [np.where(np.arange(len(t)) == 1, np.nan, t) for t in truth]
    assert model.score(unseen, part) > 0.8


def test_missing_targets_teach_nothing() -> None:
    X, _, y = jumps()
    even = [np.where(np.arange(len(t)) % 2, np.nan, t) for t in y]
    model = LFormerPointRegressor(**SMALL, max_epochs=25).fit(X, even)
    known = np.concatenate([t[::2] for t in y])
    assert model.task_.shift[0] == pytest.approx(known.mean())
    assert model.task_.scale[0] == pytest.approx(known.std())
    odd = [np.where(np.arange(len(t)) % 2, t, np.nan) for t in y]
    assert model.score(X, odd) > 0.9  # targets of 0 there would have halved the answers, for an R² of 0.75


def test_several_outputs() -> None:
    X, _, y = jumps(30)
    both = [np.column_stack([t, -2 * t]) for t in y]
    both[0][:, 0] = np.nan
    model = LFormerPointRegressor(**SMALL, max_epochs=20).fit(X, both)
    assert [p.shape for p in model.predict(X)] == [t.shape for t in both]
    assert model.score(X, both) > 0.7
    with pytest.raises(ValueError, match=r"rows of shape \(2,\), as in fit; got \(\)"):
        model.score(X, y)


def test_order_of_series_batches_and_start_of_time_change_nothing() -> None:
    X, y, _ = jumps(30)
    model = LFormerPointClassifier(**SMALL, max_epochs=2).fit(X, y)
    expected = model.predict_proba(X)
    back = model.predict_proba(X[::-1])[::-1]
    moved = model.set_params(batch_size=4).predict_proba([(t + 1e5, v) for t, v in X])
    for one, two, three in zip(expected, back, moved, strict=True):
        assert np.allclose(one, two, atol=1e-5)
        assert np.allclose(one, three, atol=1e-4)


def test_arrays_tables_and_ids() -> None:
    rng = np.random.default_rng(0)
    array = rng.standard_normal((12, 6, 2))
    y = (array[:, :, 0] > 0).astype(int)
    lengths = rng.integers(2, 7, 12)
    for row, length in zip(array, lengths, strict=True):
        row[length:] = np.nan
    model = LFormerPointClassifier(**SMALL, max_epochs=1)
    for targets in (y, y.tolist(), pd.DataFrame(y)):
        told = model.fit(array, targets).predict(array)
        assert [len(p) for p in told] == lengths.tolist()
    flat = array[:4, :5, 0]
    flat[np.isnan(flat)] = 0.5
    assert [len(p) for p in model.fit(flat, y[:4, :5]).predict(flat)] == [5] * 4
    X, labels, _ = jumps(12)
    names = [f"p{i}" for i in range(12)]
    panel = Panel.from_list(X, ids=names)
    expected = model.fit(panel, labels).predict_proba(panel)
    by_id = dict(reversed(list(zip(names, labels, strict=True))))
    for targets in (by_id, pd.Series(by_id)):
        told = model.fit(panel, targets).predict_proba(panel)
        assert all(np.array_equal(a, b) for a, b in zip(told, expected, strict=True))


@pytest.mark.parametrize(
    ("kind", "break_it", "says"),
    [
        (LFormerPointClassifier, lambda y: [*y[:7], y[7][:-1], *y[8:]], r"series 7 has \d+ rows and \d+ targets"),
        (LFormerPointClassifier, lambda y: y[:-1], "got 15 for 16 series"),
        (LFormerPointClassifier, lambda y: None, "requires y"),
        (LFormerPointClassifier, lambda y: np.arange(16), r"series 0 has \d+ rows and a single target"),
        (LFormerPointClassifier, lambda y: [np.zeros(len(t), int) for t in y], "at least two classes; all"),
        (LFormerPointClassifier, lambda y: dict.fromkeys(range(14), 0), r"2 of 16 ids, among them \[14, 15\]"),
        (LFormerPointRegressor, lambda y: [np.full(len(t), np.nan) for t in y], "no observed value"),
        (LFormerPointRegressor, lambda y: [np.full(len(t), np.inf) for t in y], "infinity"),
        (LFormerPointRegressor, lambda y: [np.zeros((len(t), 1 + (len(t) > 5))) for t in y], "one shape"),
        (
            LFormerPointRegressor,
            lambda y: [np.full(len(t), np.nan if i else 1.0) for i, t in enumerate(y)],
            "at least 2 series",
        ),
    ],
)
def test_bad_targets_get_a_clear_answer(kind: Any, break_it: Any, says: str) -> None:
    X, labels, _ = jumps(16)
    with pytest.raises(ValueError, match=says):
        kind(**SMALL, max_epochs=1).fit(X, break_it(labels))
