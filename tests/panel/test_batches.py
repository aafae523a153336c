"""On into batches, other processes and other libraries."""

import copy
import pickle
import re

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from panel.made import NAN, long, random_series, same_batch, same_panel, small
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score, train_test_split

from lformer import IrregularBatch
from lformer.panel import Array, Panel, padded_rows, runs, take_rows


@given(st.integers(0, 10**6), st.sampled_from([torch.float32, torch.float64]))
@settings(max_examples=60, deadline=None)
def test_a_batch_equals_the_one_made_of_the_same_series(seed: int, dtype: torch.dtype) -> None:
    series = random_series(seed, n=5)
    panel = Panel.from_list(series)
    chosen = np.random.default_rng(seed).integers(0, 5, 4)
    expected = IrregularBatch.from_series([series[i] for i in chosen], dtype=dtype)
    same_batch(panel.batch(chosen, dtype), expected)
    flat = np.concatenate([t for t, _ in series]), np.concatenate([v for _, v in series])
    built = Panel.build(*flat, np.array([len(t) for t, _ in series]))
    same_batch(built.batch(chosen, dtype), expected)


@given(st.integers(0, 10**6), st.integers(1, 15))
@settings(max_examples=60, deadline=None)
def test_cut_series_equal_slices_of_them(seed: int, length: int) -> None:
    series = random_series(seed, n=4)
    panel = Panel.from_list(series, ids=list("abcd")).cut(length)
    pieces = [
        (name, t[a : a + length], v[a : a + length])
        for name, (t, v) in zip("abcd", series, strict=True)
        for a in range(0, max(len(t), 1), length)
    ]
    assert panel.ids.tolist() == [name for name, _, _ in pieces]
    assert panel.lengths.max() <= length
    batch = panel.batch()
    assert batch.values.shape[1] == length
    expected = IrregularBatch.from_series([*((t, v) for _, t, v in pieces), (range(length), np.ones((length, 3)))])
    for field in ("values", "times", "deltas", "observed", "lengths", "start"):
        assert torch.equal(getattr(batch, field), getattr(expected, field)[:-1]), field
    pd.testing.assert_frame_equal(panel.to_long(), Panel.from_list(series, ids=list("abcd")).to_long())


def test_a_cut_needs_a_length() -> None:
    with pytest.raises(ValueError, match="length must be at least 1; got 0"):
        Panel.from_list(random_series(0)).cut(0)


def test_batches_of_whole_numbers_and_calendar_stamps() -> None:
    values = [[1.0], [2.0], [3.0]]
    numbers = Panel.from_list([([5, 7, 8], values), ([3], [[4.0]])])
    same_batch(
        numbers.batch(), IrregularBatch.from_series([([5, 7, 8], np.float32(values)), ([3], np.float32([[4.0]]))])
    )
    days = np.array(["2020-01-01", "2020-01-02", "2020-01-05"], "datetime64[D]")
    batch = Panel.from_list([(days, values)], unit="h").batch()
    assert batch.times.tolist() == [[0, 24, 96]]
    assert batch.start.tolist() == [0]
    assert Panel.from_list([(days, values)], unit="h").cut(2).batch().start.tolist() == [0, 96]


def test_windows_may_share_their_rows() -> None:
    times, values = np.arange(10.0) ** 2, np.arange(20.0).reshape(10, 2)
    panel = Panel.build(times, values, np.full(8, 3), first=np.arange(8))
    expected = IrregularBatch.from_series([(times[i : i + 3], values[i : i + 3]) for i in range(8)])
    same_batch(panel.batch(), expected)
    same_batch(panel.compact().batch(), expected)
    same_batch(pickle.loads(pickle.dumps(panel)).batch(), expected)


def test_eight_bit_frames_are_scaled_as_they_leave() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (7, 4, 4, 2)).astype(np.uint8)
    panel = Panel.build(np.arange(7.0), frames, np.array([4, 3]), scale=1 / 255)
    batch = panel.batch()
    assert batch.values.shape == (2, 4, 4, 4, 2)
    assert batch.values.dtype == torch.float32
    torch.testing.assert_close(batch.values[1, :3], torch.from_numpy(frames[4:] / 255).float())
    assert not batch.values[1, 3].any()
    assert batch.observed.shape == batch.values.shape
    assert batch.observed[1].all(dim=(1, 2, 3)).tolist() == [True, True, True, False]
    np.testing.assert_allclose(panel[0][1], frames[:4] / 255, rtol=1e-6)
    assert panel.with_values(frames.astype(np.float32)).scale == 1.0
    with pytest.raises(ValueError, match=r"expected values of shape \(7, 4, 4, 2\); got \(7, 4\)"):
        panel.with_values(np.zeros((7, 4)))


def test_batches_of_nothing() -> None:
    panel = Panel.from_list([([], np.zeros((0, 2))), ([1.0], [[1.0, 2.0]]), ([], np.zeros((0, 2)))])
    assert panel[[0, 2]].batch().values.shape == (2, 0, 2)
    assert panel.batch([2, 1]).values.tolist() == [[[0.0, 0.0]], [[1.0, 2.0]]]
    assert panel.batch([2, 1]).start.tolist() == [0.0, 1.0]
    assert panel[[]].batch().values.shape == (0, 0, 2)
    empty = Panel.build(np.zeros(0), np.zeros((0, 2)), np.array([0, 0])).cut(3)
    assert empty.batch().values.shape == (2, 3, 2)
    assert empty.batch().times.tolist() == [[0.0] * 3] * 2
    assert not empty.batch().observed.any()
    assert np.isnan(empty.to_array()[0]).all()


def test_runs_and_padded_rows_equal_slow_loops() -> None:
    rng = np.random.default_rng(3)
    lengths, flat = rng.integers(0, 6, 20), rng.normal(size=(60, 2))
    first = np.array([rng.integers(0, 61 - length) for length in lengths])
    assert runs(first, lengths).tolist() == [
        f + k for f, length in zip(first, lengths, strict=True) for k in range(length)
    ]
    rows, valid = padded_rows(first, lengths)
    taken = take_rows(flat, rows, valid)
    assert taken.shape == (20, lengths.max(), 2)
    for i, (f, length) in enumerate(zip(first, lengths, strict=True)):
        np.testing.assert_array_equal(taken[i, :length], flat[f : f + length])
        assert not taken[i, length:].any()
        assert valid[i].tolist() == [k < length for k in range(lengths.max())]
        assert (rows[i, length:] == (f + length - 1 if length else 0)).all()
    assert padded_rows(first, lengths, 9)[0].shape == (20, 9)


# -- other processes, other libraries


def test_a_small_view_of_a_large_panel_pickles_small() -> None:
    rng = np.random.default_rng(0)
    panel = Panel.build(np.tile(np.arange(50.0), 400), rng.normal(size=(20_000, 5)), np.full(400, 50))
    whole, view = len(pickle.dumps(panel)), panel[[7, 300, 7]]
    assert len(pickle.dumps(view)) < whole / 50
    for back in (pickle.loads(pickle.dumps(view)), copy.copy(view), copy.deepcopy(view)):
        same_panel(back, view)
        assert len(back.times) == 150
        same_batch(back.batch(), view.batch())
    most = panel[:390]
    assert pickle.loads(pickle.dumps(most)).first.tolist() == most.first.tolist()


def test_panels_travel_through_joblib() -> None:
    panel = Panel.from_list(random_series(5))
    lengths = joblib.Parallel(n_jobs=2, backend="threading")(
        joblib.delayed(lambda p: p.lengths.tolist())(panel[i : i + 3]) for i in (0, 3, 6)
    )
    assert [length for part in lengths for length in part] == panel.lengths.tolist()
    assert joblib.hash(panel) == joblib.hash(Panel.from_list(random_series(5)))


class ByLength(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Says whether a series is long, after checking that panel and target arrived together."""

    def fit(self, X: Panel, y: Array) -> "ByLength":
        """Learn nothing."""
        assert isinstance(X, Panel)
        assert X.align(dict(zip(X.ids.tolist(), y, strict=True))).tolist() == np.asarray(y).tolist()
        self.classes_ = np.unique(y)
        return self

    def predict(self, X: Panel) -> Array:
        """1 if longer than five rows."""
        return (X.lengths > 5).astype(int)


def test_scikit_learn_cuts_panels() -> None:
    panel = Panel.from_list(random_series(6, n=30), ids=[f"s{i:02d}" for i in range(30)])
    y = (panel.lengths > 5).astype(int)
    train, test, y_train, y_test = train_test_split(panel, y, test_size=0.3, random_state=0, stratify=y)
    assert isinstance(train, Panel)
    assert (len(train), len(test)) == (21, 9)
    assert set(train.ids) | set(test.ids) == set(panel.ids)
    assert (train.lengths > 5).astype(int).tolist() == y_train.tolist()
    assert (test.lengths > 5).astype(int).tolist() == y_test.tolist()
    for splitter in (KFold(5, shuffle=True, random_state=0), StratifiedKFold(3)):
        assert cross_val_score(ByLength(), panel, y, cv=splitter).tolist() == [1.0] * splitter.get_n_splits()
        held = [i for _, part in splitter.split(panel, y) for i in panel[part].ids]
        assert sorted(held) == sorted(panel.ids)


def test_errors_do_not_show_numpy_types() -> None:
    with pytest.raises(ValueError, match="series 3, row") as caught:
        long(small(id=[3, 3, 4, 4], time=[NAN, 1.0, 2.0, 3.0]))
    assert not re.search(r"np\.\w+\(", str(caught.value))
