"""Numbers that stand for missing values, whichever way series come in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from lformer.panel import Panel

NAN = np.nan
TIMES = [0.0, 0.4, 3.1, 7.7]
MARKED = np.array([[1.0, -1.0], [-9999.0, 2.0], [3.0, -9999.0], [-1.0, 0.5]])


def wide(values: Any) -> pd.DataFrame:
    return pd.DataFrame({"id": "a", "t": TIMES, "k": np.asarray(values)[:, 0], "na": np.asarray(values)[:, 1]})


def by_all_means(missing_values: Any, values: Any = MARKED, dtype: Any = np.float32) -> list[Panel]:
    """One series by a wide and a long table, a list, an array, and afterwards."""
    table, given = wide(values), {"missing_values": missing_values, "dtype": dtype}
    long = table.melt(["id", "t"], var_name="what", value_name="x")
    names = ["k", "na"]
    return [
        Panel.from_long(table, id="id", time="t", **given),
        Panel.from_long(long, id="id", time="t", channel="what", value="x", **given),
        Panel.from_list([(TIMES, values)], channels=names, **given),
        Panel.from_array(np.asarray(values)[None], times=TIMES, channels=names, **given),
        Panel.from_list([(TIMES, values)], channels=names, dtype=dtype).with_missing(missing_values),
    ]


@pytest.mark.parametrize(
    ("missing_values", "expected"),
    [
        (None, MARKED),
        (NAN, MARKED),
        ([], MARKED),
        (-9999, [[1, -1], [NAN, 2], [3, NAN], [-1, 0.5]]),
        (np.int64(-9999), [[1, -1], [NAN, 2], [3, NAN], [-1, 0.5]]),
        ([-9999, -1.0], [[1, NAN], [NAN, 2], [3, NAN], [NAN, 0.5]]),
        (np.array([-9999.0, NAN]), [[1, -1], [NAN, 2], [3, NAN], [-1, 0.5]]),
        ({"k": -1}, [[1, -1], [-9999, 2], [3, -9999], [NAN, 0.5]]),
        ({"k": (-9999, -1), "na": -9999}, [[1, -1], [NAN, 2], [3, NAN], [NAN, 0.5]]),
    ],
)
def test_marks_count_as_missing_whichever_way_series_come_in(missing_values: Any, expected: Any) -> None:
    for panel in by_all_means(missing_values):
        np.testing.assert_array_equal(panel[0][1], np.asarray(expected, np.float32))
        assert panel.lengths.tolist() == [4]  # a row of which nothing is left stays a row
        assert panel.observed is None or not panel.values[~panel.observed].any()


def test_a_zero_that_was_not_observed_is_no_mark() -> None:
    for panel in by_all_means(0, [[1, NAN], [0, 2], [NAN, 0], [NAN, 0.5]]):
        np.testing.assert_array_equal(panel[0][1], np.float32([[1, NAN], [NAN, 2], [NAN, NAN], [NAN, 0.5]]))


def test_numbers_are_compared_in_the_dtype_of_the_panel() -> None:
    values = [[0.1, 1e30], [np.float32(0.1), 2.0], [0.3, 4.0], [0.1 + 1e-12, 1.0]]
    for panel in by_all_means([0.1, 1e30], values):
        assert panel.observed is not None
        assert panel.observed.tolist() == [[False, False], [False, True], [True, True], [False, True]]
    for panel in by_all_means([0.1, 1e30], values, np.float64):
        assert panel.observed is not None
        assert panel.observed.tolist() == [[False, False], [True, True], [True, True], [True, True]]


def test_a_mark_that_float32_cannot_hold() -> None:
    table = wide([[1.7e308, 1.0], [2.0, 2.0], [3.0, 3.0], [4.0, 4.0]])
    with pytest.raises(ValueError, match="must be finite in float32"):
        Panel.from_long(table, id="id", time="t")
    panel = Panel.from_long(table, id="id", time="t", missing_values=1.7e308)
    np.testing.assert_array_equal(panel[0][1][:, 0], [NAN, 2, 3, 4])


def test_a_mark_beside_a_value_is_no_duplicate() -> None:
    table = pd.DataFrame({"id": ["a", "a"], "t": [0.5, 0.5], "what": ["k", "k"], "x": [-9.0, 4.0]})
    long: Any = {"id": "id", "time": "t", "channel": "what", "value": "x"}
    with pytest.raises(ValueError, match="must not occur twice"):
        Panel.from_long(table, **long)
    assert Panel.from_long(table, **long, missing_values=-9)[0][1].tolist() == [[4.0]]


def test_rows_of_marks_at_the_end_of_an_array_are_padding() -> None:
    array = np.array([[[1.0], [-9.0], [2.0], [-9.0]], [[5.0], [-9.0], [-9.0], [-9.0]]])
    assert Panel.from_array(array, missing_values=-9).lengths.tolist() == [3, 1]
    assert Panel.from_array(array).lengths.tolist() == [4, 4]


def test_whole_numbers_are_compared_by_what_they_are_worth() -> None:
    panel = Panel.build(np.arange(3.0), np.array([[0], [51], [255]], np.uint8), np.array([3]), scale=0.2)
    np.testing.assert_array_equal(panel.with_missing(51.0)[0][1], np.float32([[0.0], [10.2], [NAN]]))


def test_series_without_a_mark_are_not_copied() -> None:
    panel = Panel.from_list([(TIMES, MARKED)])
    assert panel.with_missing(77) is panel
    assert np.shares_memory(panel.with_missing(None).values, panel.values)


@pytest.mark.parametrize("wrong", ["-9999", True, [True], 1j, ["x"], {"k": "x"}, {"k": None, "na": [[1]]}, 10**400])
def test_what_is_no_number_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="missing_values must be a number, a list of numbers, or a mapping"):
        Panel.from_list([(TIMES, MARKED)], channels=["k", "na"], missing_values=wrong)


def test_a_channel_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match=r"names channels \['cl'\], which are not among those of the series: k, na"):
        by_all_means({"cl": -1})
    panel = Panel.from_list([(TIMES, MARKED)], channels=["k", "na"])
    assert panel.with_missing({"cl": -1, "k": -1}, some=True)[0][1][3, 0] != panel[0][1][3, 0]


def test_channels_without_a_name_go_by_position() -> None:
    for key in (1, "1"):
        mapping: Any = {key: -1}
        assert np.isnan(Panel.from_list([(TIMES, MARKED)], missing_values=mapping)[0][1][0, 1])
