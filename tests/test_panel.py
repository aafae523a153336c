"""Panel: in from tables, lists and arrays, back again, some series of it, and on into batches."""

import copy
import pickle
import re
import warnings
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from datetime import date, datetime
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score, train_test_split

from lformer import IrregularBatch
from lformer.panel import Array, Panel, padded_rows, runs, take_rows
from lformer.panel.stamps import as_stamps

NAN = float("nan")


def long(table: Any, **options: Any) -> Panel:
    """`from_long` of a table with columns id, time, channel, value."""
    return Panel.from_long(table, **{"id": "id", "time": "time", "channel": "channel", "value": "value", **options})


def small(**columns: Any) -> pd.DataFrame:
    """Two series of two channels, deliberately out of order."""
    table = pd.DataFrame(
        {
            "id": ["b", "a", "b", "a"],
            "time": [3.0, 1.5, 1.0, 0.5],
            "channel": ["y", "x", "x", "y"],
            "value": [1.0, 2.0, 3.0, 4.0],
        },
        index=[70, 71, 72, 73],
    )
    return table.assign(**columns)


def random_series(seed: int, n: int = 9, C: int = 3, longest: int = 12) -> list[tuple[Array, Array]]:
    """Uneven times, ragged lengths from 0, missing values; some rows wholly unobserved."""
    rng = np.random.default_rng(seed)
    out = []
    for length in rng.integers(0, longest, n):
        values = rng.normal(size=(length, C)).astype(np.float32)
        values[rng.random((length, C)) < 0.4] = np.nan
        out.append((1000 * rng.random() + np.cumsum(rng.exponential(1.0, length)), values))
    return out


def same_batch(actual: IrregularBatch, expected: IrregularBatch) -> None:
    """Field by field, bit by bit, dtype by dtype."""
    for field in fields(IrregularBatch):
        ours, theirs = getattr(actual, field.name), getattr(expected, field.name)
        assert (ours is None) == (theirs is None), field.name
        if ours is not None:
            assert ours.dtype == theirs.dtype, field.name
            assert torch.equal(ours, theirs), field.name


def same_panel(actual: Panel, expected: Panel) -> None:
    """The same series, however their rows lie."""
    assert actual.ids.tolist() == expected.ids.tolist()
    assert (actual.channels, actual.unit, actual.pad_to) == (expected.channels, expected.unit, expected.pad_to)
    assert actual.lengths.tolist() == expected.lengths.tolist()
    for (ours, our_values), (theirs, their_values) in zip(actual, expected, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
        assert our_values.dtype == their_values.dtype
        np.testing.assert_array_equal(our_values, their_values)
    assert (actual.static is None) == (expected.static is None)
    if actual.static is not None:
        pd.testing.assert_frame_equal(actual.static, expected.static)


def slow_rows(table: pd.DataFrame) -> dict[Any, dict[Any, dict[str, float]]]:
    """id -> time -> channel -> value, the last one wins."""
    out: dict[Any, dict[Any, dict[str, float]]] = {}
    for name, time, channel, value in table.itertuples(index=False):
        row = out.setdefault(name, {}).setdefault(time, {})
        if value == value:
            row[channel] = value
    return out


# -- from_long


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
    with pytest.raises(ValueError, match="on_duplicate must be error, mean, last or keep; got 'first'"):
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
    with pytest.raises(ValueError, match=r"different names; twice: \['x'\]"):
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
    with pytest.raises(TypeError, match="pandas DataFrame; got dict"):
        long(dict(small()))
    with pytest.raises(ValueError, match="dtype must be floating; got int64"):
        long(small(), dtype=np.int64)


# -- times


@pytest.mark.parametrize("unit", ["ns", "us", "ms", "s", "min", "h", "D"])
@pytest.mark.parametrize("kind", ["datetime64", "timedelta64"])
def test_calendar_stamps_one_nanosecond_apart(kind: str, unit: str) -> None:
    first = 1_700_000_000_123_456_789
    stamps = np.array([first, first + 1, first + 3, first + 10**6], np.int64).astype(f"{kind}[ns]")
    panel = Panel.from_list([(stamps, np.ones((4, 1)))], unit=unit)
    scale = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9, "min": 6e10, "h": 3.6e12, "D": 8.64e13}[unit]
    np.testing.assert_allclose(panel.times, np.array([0, 1, 3, 10**6]) / scale, rtol=1e-15)
    assert panel.unit == unit
    np.testing.assert_array_equal(panel[0][0], stamps)
    assert panel[0][0].dtype == stamps.dtype


def test_whole_numbers_beyond_the_reach_of_float64_keep_their_differences() -> None:
    stamps = 2**60 + np.array([0, 1, 2, 7])
    panel = Panel.from_list([(stamps, np.ones((4, 1))), (stamps[1:], np.ones((3, 1)))])
    assert panel.batch().deltas.tolist() == [[0, 1, 1, 5], [0, 1, 5, 0]]
    assert panel[0][0].dtype == np.int64
    assert panel[0][0].tolist() == stamps.tolist()
    assert panel.cut(2).to_long()["time"].tolist() == [*stamps.tolist(), *stamps[1:].tolist()]


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.uint8, np.uint16, np.uint64])
def test_narrow_and_unsigned_stamps_do_not_overflow(dtype: Any) -> None:
    stamps = np.array([np.iinfo(dtype).min, 100, 120, 127], dtype)
    panel = Panel.from_list([(stamps, np.ones((4, 1)))])
    assert panel.times.tolist() == (stamps.astype(np.int64) - int(stamps[0])).tolist()
    assert panel[0][0].tolist() == stamps.tolist()


def test_floating_stamps_come_back_bit_by_bit() -> None:
    stamps = np.random.default_rng(0).random(500).cumsum() * 1e5 + 0.1
    panel = Panel.from_list([(stamps, np.ones((500, 1)))])
    np.testing.assert_array_equal(panel[0][0], stamps)
    np.testing.assert_array_equal(np.concatenate([clock for clock, _ in panel.cut(7)]), stamps)
    np.testing.assert_array_equal(panel.to_long()["time"], stamps)


@pytest.mark.parametrize("resolution", ["s", "ms", "us"])
def test_decades_of_calendar_stamps_come_back_exactly(resolution: str) -> None:
    steps = np.random.default_rng(0).integers(1, 10**5, 20_000).cumsum()  # about 30 years if seconds
    stamps = np.datetime64("1985-03-07T01:02:03", resolution) + steps.astype("timedelta64[s]")
    stamps = stamps + np.arange(len(stamps)).astype(f"timedelta64[{resolution}]")
    for unit in ("us", "s", "D"):
        back = Panel.from_list([(stamps, np.ones((len(stamps), 1)))], unit=unit)[0][0]
        assert back.dtype == stamps.dtype
        np.testing.assert_array_equal(back, stamps)


def test_dates_outside_the_reach_of_nanoseconds() -> None:
    stamps = np.array(["1492-10-12", "1969-07-20", "2999-12-31"], "datetime64[s]")
    panel = Panel.from_list([(stamps, np.ones((3, 1)))], unit="D")
    days = [(day - date(1492, 10, 12)).days for day in (date(1492, 10, 12), date(1969, 7, 20), date(2999, 12, 31))]
    assert panel.times.tolist() == days
    np.testing.assert_array_equal(panel[0][0], stamps)


def test_time_zones_count_as_instants() -> None:
    stamps = pd.to_datetime(["2024-03-31 00:30", "2024-03-31 01:30", "2024-03-31 03:30", "2024-03-31 04:30"])
    berlin = stamps.tz_localize("Europe/Berlin")  # the clock is put forward at two
    values = [[1.0], [2.0], [3.0], [4.0]]
    for clock in (berlin, pd.Series(berlin), pd.Series(berlin).astype("timestamp[us, tz=Europe/Berlin][pyarrow]")):
        panel = Panel.from_list([(clock, values)], unit="min")
        assert panel.times.tolist() == [0, 60, 120, 180]
        assert panel[0][0][0] == np.datetime64("2024-03-30T23:30")
    assert Panel.from_list([(stamps, values)], unit="min").times.tolist() == [0, 60, 180, 240]
    frame = pd.DataFrame({"v": [1.0, 2.0, 3.0, 4.0]}, index=berlin)
    assert Panel.from_list([frame], unit="h").times.tolist() == [0, 1, 2, 3]
    table = pd.DataFrame({"id": 0, "time": berlin[::-1], "v": 1.0})
    assert Panel.from_long(table, id="id", time="time", unit="h").times.tolist() == [0, 1, 2, 3]


def test_months_are_counted_in_days() -> None:
    months = np.array(["2020-01", "2020-02", "2020-03"], "datetime64[M]")
    assert Panel.from_list([(months, [1.0, 2.0, 3.0])], unit="D").times.tolist() == [0, 31, 60]
    with pytest.raises(TypeError, match=r"a unit of fixed length, such as timedelta64\[s\]; got timedelta64\[M\]"):
        as_stamps(np.array([1, 2], "timedelta64[M]"), "times")


def test_units_of_stamps() -> None:
    day = np.array(["2020-01-01", "2020-01-02"], "datetime64[D]")
    assert Panel.from_list([(day, [1.0, 2.0])]).times.tolist() == [0, 86400]
    assert Panel.from_list([(day, [1.0, 2.0])]).unit == "s"
    with pytest.raises(
        ValueError, match="unit must be one of ns, us, ms, s, min, h, D for calendar stamps; got 'week'"
    ):
        Panel.from_list([(day, [1.0, 2.0])], unit="week")
    assert Panel.from_list([([0, 1], [1.0, 2.0])], unit="week").unit == "week"
    assert Panel.from_list([([0, 1], [1.0, 2.0])]).unit == ""


def test_a_span_of_more_than_64_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="span more than 64-bit numbers can hold"):
        Panel.from_list([(np.array([-(2**63), 2**63 - 1]), [1.0, 2.0])])


# -- from_list, from_array, build


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
        ([np.zeros((5, 2))], {}, r"series 0 must be a pair \(times, values\) or a DataFrame; got ndarray"),
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


# -- some series


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
    with pytest.raises(ValueError, match=r"static must have one row per id; twice: \['a'\]"):
        long(small(), static=pd.concat([static, static.loc[["a"]]]))
    with pytest.raises(TypeError, match="static must be a DataFrame indexed by id; got dict"):
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
    with pytest.raises(ValueError, match=r"one entry per id; twice: \['a'\]"):
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


# -- on into batches


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
