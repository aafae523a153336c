"""From a table of observations: any order, duplicates named, bad tables refused with the place."""

import warnings
from collections.abc import Callable
from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from panel.made import NAN, long, same_panel, slow_rows, small

from lformer.panel import Panel


def test_a_table_in_any_order_becomes_series_sorted_by_id_and_time() -> None:
    panel = long(small())
    assert panel.ids.tolist() == ["a", "b"]
    assert panel.channels == ("x", "y")
    assert panel.lengths.tolist() == [2, 2]
    assert panel.shape == (2, 2, 2)
    (a_times, a_values), (b_times, b_values) = panel
    assert a_times.tolist() == [0.5, 1.5]
    np.testing.assert_array_equal(a_values, [[NAN, 4.0], [2.0, NAN]])
    assert b_times.tolist() == [1.0, 3.0]
    np.testing.assert_array_equal(b_values, [[3.0, NAN], [NAN, 1.0]])
    assert panel.values.dtype == np.float32
    assert panel.values[~panel.observed].tolist() == [0.0] * 4  # type: ignore[operator]


observations = st.lists(
    st.tuples(
        st.integers(-2, 3), st.integers(-3, 3), st.sampled_from("pqr"), st.sampled_from([NAN, 0.0, 1.5, -2.0, 7.25])
    ),
    min_size=1,
    max_size=40,
)


@given(observations, st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None)
def test_from_long_equals_a_slow_loop_and_does_not_depend_on_the_order(rows: list[Any], random: Any) -> None:
    table = pd.DataFrame(rows, columns=["id", "time", "channel", "value"])
    panel = long(table, on_duplicate="last")
    expected = slow_rows(table)
    assert panel.ids.tolist() == sorted(expected)
    for name, (clock, values) in zip(panel.ids.tolist(), panel, strict=True):
        assert clock.tolist() == sorted(expected[name])
        for time, row in zip(clock.tolist(), values, strict=True):
            found = {c: float(v) for c, v in zip(panel.channels, row, strict=True) if not np.isnan(v)}
            assert found == expected[name][time]
    once = table[~table.duplicated(["id", "time", "channel"])]
    order = list(range(len(once)))
    random.shuffle(order)
    same_panel(long(once.iloc[order]), long(once))


@given(observations)
@settings(max_examples=60, deadline=None)
def test_a_mean_of_duplicates_equals_a_slow_loop(rows: list[Any]) -> None:
    table = pd.DataFrame(rows, columns=["id", "time", "channel", "value"])
    mean = table.groupby(["id", "time", "channel"])["value"].mean().dropna()
    back = long(table, on_duplicate="mean").to_long()
    assert back.set_index(["id", "time", "channel"])["value"].to_dict() == pytest.approx(mean.to_dict())


def test_duplicates_are_named() -> None:
    table = pd.concat([small(), small().iloc[[0, 0, 1]]])
    with pytest.raises(
        ValueError, match=r"2 do: id 'a', time 1.5, channel 'x' \(2 times\); id 'b', time 3.0, channel 'y' \(3 times\)"
    ):
        long(table)
    many = pd.DataFrame({"id": 0, "time": [*range(8)] * 2, "channel": "x", "value": 1.0})
    with pytest.raises(ValueError, match=r"8 do: .*time 4, channel 'x' \(2 times\); and 3 more\. Choose with on_dup"):
        long(many)
    with pytest.raises(ValueError, match="on_duplicate must be one of error, mean, last, keep; got 'first'"):
        long(small(), on_duplicate="first")


def test_the_last_duplicate_is_the_last_in_the_table() -> None:
    table = pd.DataFrame({"id": 0, "time": [1.0, 0.0, 1.0], "channel": "x", "value": [5.0, 6.0, 4.0]})
    assert long(table, on_duplicate="last").values.ravel().tolist() == [6.0, 4.0]
    assert long(table, on_duplicate="mean").values.ravel().tolist() == [6.0, 4.5]


@pytest.mark.parametrize("make", ["long", "list", "array"])
def test_kept_duplicates_get_rows_of_their_own_and_a_warning_at_the_callers_line(make: str) -> None:
    times, values = [0.0, 1.0, 1.0, 1.0], [[1.0, NAN], [2.0, 7.0], [3.0, NAN], [4.0, 8.0]]
    table = pd.DataFrame(values, columns=["x", "y"]).assign(id=0, time=times)
    makers: dict[str, Callable[[], Panel]] = {
        "long": lambda: Panel.from_long(table, id="id", time="time", on_duplicate="keep"),
        "list": lambda: Panel.from_list([(times, values)], on_duplicate="keep"),
        "array": lambda: Panel.from_array([values], times, on_duplicate="keep"),
    }
    with pytest.warns(UserWarning, match="does not write") as caught:
        panel = makers[make]()
    assert caught[0].filename == __file__
    assert panel[0][0].tolist() == times
    np.testing.assert_array_equal(panel[0][1], [[1.0, NAN], [2.0, 7.0], [3.0, 8.0], [4.0, NAN]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Panel.from_list([([0.0, 1.0], [[1.0], [2.0]])], on_duplicate="keep")  # nothing to warn of


def test_rows_of_one_stamp_with_different_channels_are_no_duplicates() -> None:
    panel = Panel.from_list([([0.0, 1.0, 1.0], [[1.0, NAN], [NAN, 2.0], [3.0, NAN]])])
    assert panel.lengths.tolist() == [2]
    np.testing.assert_array_equal(panel[0][1], [[1.0, NAN], [3.0, 2.0]])


def test_a_wide_table_keeps_the_order_of_its_columns() -> None:
    table = pd.DataFrame({"z": [1.0, NAN], "time": [1, 0], "id": [5, 5], "a": [NAN, 3.0]})
    panel = Panel.from_long(table, id="id", time="time")
    assert panel.channels == ("z", "a")
    np.testing.assert_array_equal(panel[0][1], [[NAN, 3.0], [1.0, NAN]])
    assert Panel.from_long(table, id="id", time="time", value="a").channels == ("a",)
    picked = Panel.from_long(table, id="id", time="time", channels=["a", "new", "z"])
    np.testing.assert_array_equal(picked[0][1], [[3.0, NAN, NAN], [NAN, NAN, 1.0]])
    with pytest.raises(ValueError, match=r"channels \['z'\] are not among the ones listed: \['a'\]"):
        Panel.from_long(table, id="id", time="time", channels=["a"])


def test_channels_may_be_listed() -> None:
    panel = long(small(), channels=["y", "never", "x"])
    assert panel.channels == ("y", "never", "x")
    np.testing.assert_array_equal(panel[0][1], [[4.0, NAN, NAN], [NAN, NAN, 2.0]])
    numbered = long(small(channel=[10, 9, 9, 10]))
    assert numbered.channels == ("9", "10")  # sorted as numbers, not as text
    same_panel(long(numbered.to_long(), channels=numbered.channels), numbered)
    with pytest.raises(ValueError, match=r"channels \['x'\] are not among the ones listed: \['y', 'q'\]"):
        long(small(), channels=["y", "q"])
    with pytest.raises(ValueError, match=r"different names; duplicates: \['x'\]"):
        long(small(), channels=["x", "x", "y"])


def test_a_row_without_a_value_stays_a_row() -> None:
    panel = long(small(value=[1.0, NAN, 3.0, 4.0]))
    assert panel.lengths.tolist() == [2, 2]
    np.testing.assert_array_equal(panel[0][1], [[NAN, 4.0], [NAN, NAN]])


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([12, 3, 12, 3], [3, 12]),
        (pd.array([12, 3, 12, 3], dtype="Int64"), [3, 12]),
        (pd.array(["w", "v", "w", "v"], dtype="string"), ["v", "w"]),
        (pd.Categorical(["w", "v", "w", "v"], categories=["unused", "w", "v"]), ["w", "v"]),
        (pd.Categorical(["w", "v", "w", "v"]), ["v", "w"]),
        (pd.Series(["w", 1, "w", 1], dtype=object).to_numpy(), [1, "w"]),
        (pd.to_datetime(["2021", "2020", "2021", "2020"]), [datetime(2020, 1, 1), datetime(2021, 1, 1)]),
    ],
)
def test_ids_of_many_kinds(ids: Any, expected: list[Any]) -> None:
    panel = long(small(id=ids))
    assert panel.ids.tolist() == expected
    first = expected.index(pd.Series(ids).tolist()[1])
    assert panel[first][0].tolist() == [0.5, 1.5]
    target = pd.Series([1, 0], index=pd.Index(pd.unique(pd.Series(ids))))
    assert panel.align(target)[first] == 0
    assert long(small(id=ids), static=target.to_frame("s")).static["s"].tolist()[first] == 0  # type: ignore[index]


@pytest.mark.parametrize("backend", ["numpy_nullable", "pyarrow"])
def test_nullable_tables(backend: Any) -> None:
    table = small(value=[1.0, None, 3.0, 4.0], time=[3, 2, 1, 0])
    same_panel(long(table.convert_dtypes(dtype_backend=backend)), long(table))


@pytest.mark.parametrize(
    "value",
    [
        pd.array([1, None, 3, 4], dtype="Int64"),
        pd.array([1.0, None, 3.0, 4.0], dtype="Float64"),
        pd.Series([1, None, "3", 4.0], dtype=object).to_numpy(),
        ["1", None, "3", "4"],
        pd.Categorical([1.0, None, 3.0, 4.0]),
    ],
)
def test_values_of_many_kinds(value: Any) -> None:
    same_panel(long(small(value=value)), long(small(value=[1.0, NAN, 3.0, 4.0])))


def test_a_categorical_channel_is_in_the_order_of_its_categories() -> None:
    kinds = pd.Categorical(["y", "x", "x", "y"], categories=["y", "unused", "x"])
    assert long(small(channel=kinds)).channels == ("y", "x")


def test_values_keep_the_asked_precision() -> None:
    value = [1 + 1e-12, 2.0, 3.0, 4.0]
    assert long(small(value=value), dtype=np.float64)[1][1][1, 1] == 1 + 1e-12
    for panel in (
        Panel.from_list([([0.0], [[1 + 1e-12]])], dtype=np.float64),
        Panel.from_array([[[1 + 1e-12]]], dtype=np.float64),
    ):
        assert panel.values.item() == 1 + 1e-12
        assert panel.batch(dtype=torch.float64).values.item() == 1 + 1e-12


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"value": [1.0, "n/a", 3.0, 4.0]}, "column 'value' must hold numbers; row 71 holds 'n/a'"),
        ({"value": pd.to_datetime(["2020"] * 4)}, "column 'value' must hold numbers; it holds datetime64"),
        (
            {"value": [1.0, 2.0, float("inf"), 4.0]},
            "must be finite in float32; series 'b', time 1.0, channel 'x' is inf",
        ),
        ({"value": [1.0, 2.0, 1e300, 4.0]}, "finite in float32; series 'b', time 1.0, channel 'x' is inf"),
        ({"time": [3.0, NAN, 1.0, 0.5]}, "needs a time; series 'a', row 71 of the table has nan"),
        ({"time": [3.0, float("inf"), 1.0, 0.5]}, "needs a time; series 'a', row 71 of the table has inf"),
        ({"time": pd.to_datetime(["2020", None, "2021", "2022"])}, "series 'a', row 71 of the table has NaT"),
        ({"time": pd.array([3, None, 1, 0], dtype="Int64")}, "series 'a', row 71 of the table has nan"),
        ({"id": ["b", None, "b", "a"]}, "'id' must name a series in every row; row 71 has none"),
        ({"channel": ["y", None, "x", "y"]}, "'channel' must name a channel in every row; row 71 has none"),
        (
            {"time": np.array([0, 1, 2, 2**63 + 1], np.uint64)},
            "column 'time' must be below 2.*63; got 9223372036854775809",
        ),
    ],
)
def test_bad_tables_are_refused_with_the_place(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        long(small(**columns))


@pytest.mark.parametrize(
    ("stamps", "found"),
    [
        ([True, False, True, False], "bool, such as np.True_"),
        (["1", "2", "3", "4"], "such as '1'"),
        (pd.Series([1, 2.0, "x", None], dtype=object).to_numpy(), "object, such as 1"),
        (
            pd.Series(
                [pd.Timestamp("2020", tz="UTC"), pd.Timestamp("2020", tz="Asia/Tokyo")] * 2, dtype=object
            ).to_numpy(),
            r"several time zones with pandas.to_datetime\(..., utc=True\)",
        ),
        (pd.period_range("2020", periods=4, freq="D"), "Period"),
        (np.array([1j, 2, 3, 4]), "complex128"),
    ],
)
def test_stamps_of_no_clock_are_refused(stamps: Any, found: str) -> None:
    with pytest.raises(TypeError, match=f"column 'time' must be numbers, datetime64 or timedelta64; got .*{found}"):
        long(small(time=stamps))


def test_wrong_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="no column 'who', 'when'; the table has 'id', 'time', 'channel', 'value'"):
        long(small(), id="who", time="when")
    with pytest.raises(ValueError, match="no column 'lab'"):
        long(small(), channel="lab")
    with pytest.raises(ValueError, match="no column 'u'"):
        Panel.from_long(small(), id="id", time="time", value=["value", "u"])
    with pytest.raises(ValueError, match="column 'channel' must hold numbers; row 70 holds 'y'"):
        Panel.from_long(small(), id="id", time="time")
    with pytest.raises(ValueError, match="value must name the column of the values"):
        long(small(), value=None)
    with pytest.raises(ValueError, match="no column holds values: the table has only 'id' and 'time'"):
        Panel.from_long(small()[["id", "time"]], id="id", time="time")
    with pytest.raises(ValueError, match="more than one column 'value'"):
        long(pd.concat([small(), small()[["value"]]], axis=1))
    with pytest.raises(ValueError, match="at least one series; the table has no rows"):
        long(small().iloc[:0])
    with pytest.raises(TypeError, match=r"the table must be a DataFrame of pandas or polars, .*; got dict"):
        long(dict(small()))
    with pytest.raises(ValueError, match="dtype must be floating, of at most 64 bits; got int64"):
        long(small(), dtype=np.int64)


@pytest.mark.parametrize("n", [2**16, 2**16 + 1, 70_000])
def test_tables_of_more_series_than_16_bits_count(n: int) -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 4, n)
    owner = np.repeat(np.arange(n), lengths)
    times = np.arange(len(owner)) % 5 + 5.0 * np.arange(len(owner))  # increasing, so also along every series
    table = pd.DataFrame({"id": owner, "time": times, "x": np.arange(len(owner), dtype=float)})
    panel = Panel.from_long(table.iloc[rng.permutation(len(table))], id="id", time="time", dtype=np.float64)
    assert panel.ids.tolist() == list(range(n))
    assert panel.lengths.tolist() == lengths.tolist()
    assert panel.times.tolist() == times.tolist()
    assert panel.values[:, 0].tolist() == table["x"].tolist()
