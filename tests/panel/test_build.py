"""From lists, arrays and flat parts, checked."""

import copy
import pickle
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pandas as pd
import pytest
from panel.made import NAN

from lformer.panel import Panel


def test_from_list_keeps_the_order_and_the_names() -> None:
    panel = Panel.from_list([([5.0], [[1.0]]), ([2.0, 3.0], [[2.0], [3.0]])], ids=["z", "a"], channels=["k"])
    assert panel.ids.tolist() == ["z", "a"]
    assert panel.channels == ("k",)
    assert [clock.tolist() for clock, _ in panel] == [[5.0], [2.0, 3.0]]
    mixed = Panel.from_list([([0], [1.0]), ([0], [2.0]), ([0], [3.0])], ids=["a", 1, ("b", 2)])
    assert mixed.ids.tolist() == ["a", 1, ("b", 2)]
    assert mixed.align({1: 10, ("b", 2): 20, "a": 30}).tolist() == [30, 10, 20]


def test_from_list_of_frames() -> None:
    frames = [
        pd.DataFrame({"u": [1.0, NAN], "v": [2.0, 3.0]}, index=[0.0, 2.0]),
        pd.DataFrame({"u": pd.array([1], dtype="Int64"), "v": pd.array([None], dtype="Float64")}, index=[7.0]),
    ]
    panel = Panel.from_list(frames)
    assert panel.channels == ("u", "v")
    np.testing.assert_array_equal(panel[0][1], [[1.0, 2.0], [NAN, 3.0]])
    np.testing.assert_array_equal(panel[1][1], [[1.0, NAN]])
    with pytest.raises(ValueError, match=r"series 1 has columns \['v', 'u'\]; expected \['u', 'v'\]"):
        Panel.from_list([frames[0], frames[1][["v", "u"]]])


def test_numbers_of_any_kind_mix_as_times_and_an_empty_series_fits_anywhere() -> None:
    panel = Panel.from_list([([0, 1], [1.0, 2.0]), ([0.5], [3.0]), ([], [])])
    assert panel.times.tolist() == [0.0, 1.0, 0.5]
    assert panel.lengths.tolist() == [2, 1, 0]
    day = np.array(["2020-01-01", "2020-01-02"], "datetime64[D]")
    assert Panel.from_list([([], []), (day, [1.0, 2.0])], unit="D").times.tolist() == [0.0, 1.0]
    with pytest.raises(ValueError, match=r"one kind of stamps.*position 0: int64; series at position 1: datetime64"):
        Panel.from_list([([0, 1], [1.0, 2.0]), (day, [1.0, 2.0])])


@pytest.mark.parametrize(
    ("series", "options", "message"),
    [
        ([], {}, "at least one series; got an empty list"),
        ([([0.0, 1.0], [[1.0]])], {}, r"series 0 must be a pair .* got shapes \(2,\) and \(1, 1\)"),
        (
            [np.zeros((5, 2))],
            {},
            r"series 0 must be a pair .*; got a numpy ndarray of shape \(5, 2\) .*Panel.from_list",
        ),
        ([([0.0], [["x"]])], {"ids": ["p"]}, "values of series 'p' must be numbers"),
        ([([0.0], [[[1.0]]])], {}, r"must have shape \(L, C\) or \(L,\); got \(1, 1, 1\)"),
        ([([0.0], [[1.0]]), ([0.0], [[1.0, 2.0]])], {}, "series 0 has 1, series 1 has 2"),
        ([([0.0, 2.0, 1.0], [1.0, 2.0, 3.0])], {}, "series 0 has 1.0 in row 2 after 2.0. Sort its rows"),
        ([([0.0], [1.0]), ([0.0, NAN], [1.0, 2.0])], {}, "needs a time; series 1, row 1 has nan"),
        ([([0.0], [float("-inf")])], {}, "series 0, time 0.0, channel '0' is -inf"),
        ([([0.0], [1.0])] * 2, {"ids": ["a", "a"]}, r"ids must differ; \['a'\] occur more than once"),
        ([([0.0], [1.0])] * 2, {"ids": ["a"]}, "ids must be 2 names, one per series; got 1"),
        ([([0.0], [1.0])] * 2, {"ids": ["a", None]}, "ids must name every series; the one at position 1 has none"),
        ([([0.0], [1.0])], {"channels": ["a", "b"]}, "values have 1 channels, but 2 names were given"),
        ([([0.0], [[1.0, 2.0]])], {"channels": ["a", "a"]}, "channels must have different names"),
        ([([0.0, 0.0], [1.0, 2.0])], {"ids": ["p"]}, r"1 do: id 'p', time 0.0, channel '0' \(2 times\)"),
    ],
)
def test_bad_lists_are_refused(series: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Panel.from_list(series, **options)


def test_one_observation_and_a_series_of_nothing() -> None:
    panel = Panel.from_list([([4.0], [[1.0]]), ([1.0, 2.0], [[NAN], [NAN]])])
    batch = panel.batch()
    assert batch.lengths.tolist() == [1, 2]
    assert batch.observed[..., 0].tolist() == [[True, False], [False, False]]
    assert repr(panel) == "Panel(2 series, 1 channel, 3 rows, 33.3 % observed)"
    assert repr(panel[:1]) == "Panel(1 series, 1 channel, 1 row, 100 % observed)"
    assert repr(panel[[]]) == "Panel(0 series, 1 channel, 0 rows, 0 % observed)"
    assert repr(Panel.from_list([([4.0], [1.0])], unit="h")) == (
        "Panel(1 series, 1 channel, 1 row, 100 % observed, times in h)"
    )


def test_padding_of_an_array_is_told_by_values_or_by_times() -> None:
    values = np.array([[1.0, NAN, NAN], [NAN, 2.0, 3.0], [NAN, NAN, NAN]])
    assert Panel.from_array(values).lengths.tolist() == [1, 3, 0]
    shared = Panel.from_array(values, [0.0, 0.5, 4.0])
    assert shared.lengths.tolist() == [1, 3, 0]
    assert shared[1][0].tolist() == [0.0, 0.5, 4.0]
    own = np.array([[0.0, 1.0, NAN], [5.0, 6.0, 7.0], [NAN, NAN, NAN]])
    assert Panel.from_array(values, own).lengths.tolist() == [2, 3, 0]  # a row with a time is a row
    assert Panel.from_array(values[:2], own[:2]).lengths.tolist() == [2, 3]
    assert Panel.from_array(values[1:2], own[1:2]).lengths.tolist() == [3]
    assert Panel.from_array(values, [0.0, 0.5, 4.0], lengths=[2, 3, 1]).lengths.tolist() == [2, 3, 1]
    stamps = np.array([["2020-01-01", "2020-01-03", "NaT"]], "datetime64[D]")
    assert Panel.from_array(values[:1], stamps, unit="D").times.tolist() == [0.0, 2.0]
    assert Panel.from_array(values[..., None], own).shape == (3, 3, 1)


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        (np.zeros((0, 3, 1)), {}, r"at least one series; got values of shape \(0, 3, 1\)"),
        ([[["x"]]], {}, "values must be numbers"),
        ([1.0], {}, r"must have shape \(n, L, C\) or \(n, L\); got \(1,\)"),
        ([[1.0, 2.0]], {"times": [[0.0, 1.0, 2.0]]}, r"must have shape \(1, 2\) or \(2,\) beside values \(1, 2, 1\)"),
        ([[1.0, 2.0]], {"times": [[0.0, NAN]]}, "needs a time; series 0, row 1 has nan"),
        ([[1.0, 2.0]], {"times": [[0.0, float("inf")]]}, "needs a time; series 0, row 1 has inf"),
        ([[1.0, 2.0]], {"times": [[3.0, 0.0]]}, "series 0 has 0.0 after 3.0. .*NaN or NaT as the time of padding"),
        ([[1.0, 2.0]], {"lengths": [3]}, r"lengths must be 1 numbers from 0 to 2; got \[3\]"),
        ([[1.0, 2.0]], {"lengths": [-1]}, r"lengths must be 1 numbers from 0 to 2; got \[-1\]"),
        ([[1.0, 2.0]], {"lengths": [1.5]}, "lengths must be whole numbers, one per series; got float64"),
        ([[1.0, 2.0]], {"ids": ["a", "b"]}, "ids must be 1 names, one per series; got 2"),
        ([[1.0, 2.0]], {"channels": []}, "values have 1 channels, but 0 names were given"),
    ],
)
def test_bad_arrays_are_refused(values: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Panel.from_array(values, **options)


def test_build_checks_what_it_is_given() -> None:
    times, values = np.array([0.0, 1.0, 0.5]), np.array([[1.0], [NAN], [3.0]])
    panel = Panel.build(times, values, [2, 1])
    assert panel.observed is not None
    assert panel.observed.ravel().tolist() == [True, False, True]
    assert panel.values.ravel().tolist() == [1.0, 0.0, 3.0]
    assert panel.first.tolist() == [0, 2]
    assert (panel.ids.tolist(), panel.channels) == ([0, 1], ("0",))
    everything = Panel.build(times, values, [2, 1], observed=np.array([[True], [False], [False]]))
    assert everything.values.ravel().tolist() == [1.0, 0.0, 0.0]
    assert Panel.build(times, np.ones((3, 1)), [2, 1], observed=np.ones((3, 1), bool)).observed is None
    counts = np.array([[7], [8], [9]], np.uint8)
    assert Panel.build(times, counts, [2, 1], observed=~np.isnan(values)).values.ravel().tolist() == [7, 0, 9]
    assert Panel.build(times, counts, [2, 1]).observed is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"times": np.zeros(2)}, r"shapes \(N,\) and \(N, C\), one row per stamp; got \(2,\) and \(3, 1\)"),
        ({"values": np.zeros(3)}, r"got \(3,\) and \(3,\)"),
        ({"lengths": np.array([2, 2])}, "lengths must be numbers from 0 that sum to the 3 rows; they sum to 4"),
        ({"lengths": np.array([4, -1])}, "lengths must be numbers from 0"),
        ({"lengths": np.array([1.5, 1.5])}, "lengths must be whole numbers"),
        ({"first": np.array([0, 3])}, "first and lengths must describe runs within the 3 rows"),
        ({"first": np.array([0, -1])}, "first and lengths must describe runs within the 3 rows"),
        ({"first": np.array([0])}, "first and lengths must describe runs"),
        ({"ids": ["a"]}, "ids must be 2 names, one per series"),
        ({"channels": ["a", "b"]}, "values have 1 channels, but 2 names were given"),
        ({"times": np.array([0.0, NAN, 0.0])}, "times must be finite; series 0 has nan"),
        ({"times": np.array([1.0, 0.0, 0.0]), "ids": ["p", "q"]}, "series 'p' has 0.0 after 1.0"),
        ({"values": np.array([[1.0], [np.inf], [1.0]])}, r"row 1, channel \[0\] is inf"),
        ({"values": np.array([[1.0], [NAN], [1.0]]), "observed": np.ones((3, 1), bool)}, r"row 1, .* is nan"),
        ({"observed": np.ones((3, 2), bool)}, r"shape of values, \(3, 1\), True = observed; got bool \(3, 2\)"),
        ({"observed": np.ones((3, 1))}, "got float64"),
        (
            {"static": pd.DataFrame({"s": [1]})},
            "static must have one row for each of the 2 series, in their order; got 1",
        ),
        ({"origin": np.zeros(3)}, r"origin must be 2 stamps, one per series; got shape \(3,\)"),
    ],
)
def test_bad_parts_are_refused(change: dict[str, Any], message: str) -> None:
    arguments = {"times": np.array([0.0, 1.0, 0.5]), "values": np.ones((3, 1)), "lengths": np.array([2, 1])}
    with pytest.raises(ValueError, match=message):
        Panel.build(**{**arguments, **change})


def test_build_refuses_values_that_are_no_numbers() -> None:
    with pytest.raises(TypeError, match="values must be numbers; got"):
        Panel.build(np.zeros(1), np.array([["x"]]), np.array([1]))


def test_a_panel_cannot_be_changed() -> None:
    rows = [(np.arange(3.0), np.ones((3, 1)))]
    names = np.array(["a"])
    panel = Panel.from_list(rows, ids=names)
    rows[0][0][0], rows[0][1][0], names[0] = 99.0, 99.0, "b"
    assert (panel.times[0], panel.values[0, 0], panel.ids[0]) == (0.0, 1.0, "a")
    for one in (panel, panel[:1], panel.cut(2), pickle.loads(pickle.dumps(panel)), copy.deepcopy(panel)):
        for name in ("times", "values", "first", "lengths", "ids", "origin"):
            with pytest.raises(ValueError, match="read-only"):
                getattr(one, name)[...] = getattr(one, name)[0]
    with pytest.raises(FrozenInstanceError):
        panel.unit = "h"  # type: ignore[misc]
