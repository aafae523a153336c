"""Some series of a panel, covariates and targets by id, and back to tables, lists and arrays."""

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from panel.made import NAN, long, random_series, same_batch, same_panel, small

from lformer import IrregularBatch
from lformer.panel import Panel


@pytest.mark.parametrize(
    "index",
    [
        slice(2, 7),
        slice(None, None, -2),
        [3, 1, 3, -1],
        np.array([4, 0], np.uint8),
        np.arange(9) % 2 == 0,
        [True, False] * 4 + [True],
        (np.array([2, 5]), ...),
        (slice(1, 3), ...),
        [],
        np.zeros(9, bool),
        pd.Index([1, 2]),
    ],
)
def test_taking_some_series(index: Any) -> None:
    series = random_series(1)
    static = pd.DataFrame({"age": np.arange(9)}, index=[f"s{i}" for i in range(9)])
    panel = Panel.from_list(series, ids=list(static.index), static=static)
    plain = index[0] if isinstance(index, tuple) else index
    chosen = np.arange(9)[plain if isinstance(plain, slice) else np.asarray(plain, None if len(plain) else int)]
    taken = panel[index]
    assert taken.ids.tolist() == [f"s{i}" for i in chosen]
    assert taken.static is not None
    assert taken.static["age"].tolist() == chosen.tolist()
    assert taken.values.base is panel.values.base  # no row was copied
    for (times, values), i in zip(taken, chosen, strict=True):
        np.testing.assert_array_equal(times, series[i][0])
        np.testing.assert_array_equal(values, series[i][1])
    if not isinstance(plain, slice) and len(chosen):
        same_batch(panel.batch(plain), taken.batch())


def test_taking_one_series() -> None:
    series = random_series(2)
    panel = Panel.from_list(series)
    for i in (0, 4, -1, np.int64(3)):
        np.testing.assert_array_equal(panel[i][0], series[i][0])
        np.testing.assert_array_equal(panel[i][1], series[i][1])
    for i in (9, -10):
        with pytest.raises(IndexError, match=f"there are 9 series; got index {i}"):
            panel[i]


@pytest.mark.parametrize("index", ["s1", [0.5], [[1]], (1, 2), (1, ..., 2), (slice(None), 0), True, None])
def test_what_is_no_index_is_refused(index: Any) -> None:
    with pytest.raises(TypeError, match=r"series are taken by position|indexed by series alone"):
        Panel.from_list(random_series(1))[index]


def test_a_mask_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(IndexError):
        Panel.from_list(random_series(1))[[True, False]]


def test_static_covariates_go_by_id() -> None:
    static = pd.DataFrame({"age": [30, 40, 50]}, index=["c", "b", "a"])
    panel = long(small(), static=static)
    assert panel.static is not None
    assert panel.static["age"].tolist() == [50, 40]
    assert panel.cut(1).static["age"].tolist() == [50, 50, 40, 40]  # type: ignore[index]
    assert pickle.loads(pickle.dumps(panel[1:])).static["age"].tolist() == [40]
    with pytest.raises(ValueError, match=r"static has no row for 1 of 2 ids, among them \['b'\]; index it by id"):
        long(small(), static=static.drop("b"))
    with pytest.raises(ValueError, match=r"static must have one row per id; duplicates: \['a'\]"):
        long(small(), static=pd.concat([static, static.loc[["a"]]]))
    with pytest.raises(TypeError, match=r"static must be a DataFrame of pandas or polars, .*; got dict"):
        long(small(), static={"a": 1, "b": 2})


def test_a_target_is_aligned_by_id_and_never_by_position() -> None:
    panel = long(small())
    assert panel.align(pd.Series([1, 0, 5], index=["b", "a", "other"])).tolist() == [0, 1]
    assert panel.align({"b": "sick", "a": "well"}).tolist() == ["well", "sick"]
    frame = pd.DataFrame({"u": [1.0, 2.0], "v": [3.0, 4.0]}, index=["b", "a"])
    assert panel.align(frame).tolist() == [[2.0, 4.0], [1.0, 3.0]]
    assert panel.align([7, 8]).tolist() == [7, 8]
    assert panel.align(pd.Series([True, False], index=["b", "a"])).dtype == bool
    numbered = Panel.from_list([([0.0], [1.0])] * 3)
    assert numbered[[2, 0]].align(pd.Series([10, 11, 12])).tolist() == [12, 10]
    assert numbered.align(pd.Series([12, 10, 11], index=[2, 0, 1])).tolist() == [10, 11, 12]
    with pytest.raises(ValueError, match=r"y has no entry for 1 of 2 ids, among them \['b'\]. It is aligned by id"):
        panel.align({"a": 1}, name="y")
    with pytest.raises(ValueError, match=r"target has no entry for 2 of 2 ids, among them \['a', 'b'\]"):
        panel.align(pd.Series([1, 0]))
    with pytest.raises(ValueError, match=r"one entry per id; duplicates: \['a'\]"):
        panel.align(pd.Series([1, 0, 2], index=["a", "b", "a"]))
    with pytest.raises(ValueError, match=r"one entry for each of the 2 series; got shape \(3,\)"):
        panel.align([1, 2, 3])
    with pytest.raises(ValueError, match=r"got shape \(\)"):
        panel.align(1)
    assert panel.cut(1).align({"a": 0, "b": 1}).tolist() == [0, 0, 1, 1]


# -- back


@pytest.mark.parametrize("seed", range(4))
def test_round_trips(seed: int) -> None:
    panel = Panel.from_list(random_series(seed), ids=[f"s{i}" for i in range(9)], channels=["k", "na", "glu"])
    shuffled = panel[np.random.default_rng(seed).permutation(9)]
    back = Panel.from_list(shuffled.to_list(), ids=shuffled.ids.tolist(), channels=shuffled.channels)
    same_panel(back, shuffled)
    values, times = panel.to_array()
    assert values.shape == panel.shape
    again = Panel.from_array(values, times, ids=panel.ids.tolist(), channels=panel.channels)
    same_batch(again.batch(), IrregularBatch.from_series([(t - t[:1], v) for t, v in panel]))
    table = shuffled.to_long()
    assert list(table.columns) == ["id", "time", "channel", "value"]
    assert len(table) == int((~np.isnan(values)).sum())
    observed = [(t[~np.isnan(v).all(1)], v[~np.isnan(v).all(1)]) for t, v in panel]
    filled = [i for i in range(9) if len(observed[i][0])]
    same_panel(
        long(table.sample(frac=1, random_state=seed), channels=panel.channels),
        Panel.from_list([observed[i] for i in filled], ids=[f"s{i}" for i in filled], channels=panel.channels),
    )


def test_to_array_marks_padding_and_begins_at_each_first_row() -> None:
    panel = Panel.from_list([([5.0, 7.5], [[1.0], [NAN]]), ([], np.zeros((0, 1))), ([3.0], [[2.0]])])
    values, times = panel.to_array()
    np.testing.assert_array_equal(times, [[0.0, 2.5], [NAN, NAN], [0.0, NAN]])
    np.testing.assert_array_equal(values[..., 0], [[1.0, NAN], [NAN, NAN], [2.0, NAN]])
    assert panel.cut(4).to_array()[0].shape == (3, 4, 1)


def test_to_long_of_frames_is_refused() -> None:
    frames = Panel.build(np.arange(2.0), np.zeros((2, 4, 4, 1), np.uint8), np.array([2]))
    with pytest.raises(ValueError, match=r"one number per channel; these values have shape \(4, 4, 1\)"):
        frames.to_long()
