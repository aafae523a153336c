"""Times of every kind: differences are exact, and stamps come back as they were."""

from datetime import date
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lformer.panel import Panel
from lformer.panel.stamps import as_stamps


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


def rounded(gap: float, start: float = 2.0**24) -> np.ndarray[Any, Any]:
    """float32 stamps of a size at which the next number is 2 away; half of their gaps are far larger than `gap`."""
    return np.float32(start + np.cumsum([0.0, gap, gap, 4000.0, gap, 6000.0, gap]))


@pytest.mark.parametrize("start", [2.0**24, -(2.0**25) + 2])
def test_float32_stamps_are_refused_from_a_twentieth_of_their_gaps_on(start: float) -> None:
    values = np.ones(7)
    table = pd.DataFrame({"id": 0, "time": rounded(40, start), "x": values})
    assert Panel.from_list([(rounded(40, start), values)]).lengths.tolist() == [7]
    assert Panel.from_array(values[None], rounded(40, start)).lengths.tolist() == [7]
    assert Panel.from_long(table, id="id", time="time").lengths.tolist() == [7]
    for make in (
        lambda: Panel.from_list([(rounded(38, start), values)]),
        lambda: Panel.from_array(values[None], rounded(38, start)),
        lambda: Panel.from_long(table.assign(time=rounded(38, start)), id="id", time="time"),
    ):
        with pytest.raises(ValueError, match="where the next number is 2 away; with gaps of about 38 they have been"):
            make()
    assert Panel.from_list([(rounded(38, start).astype(np.float64), values)]).lengths.tolist() == [7]


def test_gaps_of_float32_stamps_are_those_within_a_series() -> None:
    """The first stamp of each series is far from the last of the one before, which says nothing about rounding."""
    fine, coarse = rounded(40), rounded(10)[:2]
    table = pd.DataFrame({"id": [0] * 7 + [1] * 2, "time": np.concatenate([fine, coarse]), "x": 1.0})
    assert Panel.from_long(table, id="id", time="time").lengths.tolist() == [7, 2]
    one_each = pd.DataFrame({"id": range(7), "time": np.float32(2.0**24 + 2 * np.arange(7)), "x": 1.0})
    assert Panel.from_long(one_each, id="id", time="time").lengths.tolist() == [1] * 7
    half = pd.DataFrame({"id": 0, "time": np.float16([2048, 2050, 2052]), "x": 1.0})
    with pytest.raises(ValueError, match="are float16 up to 2052, where the next number is 2 away"):
        Panel.from_long(half, id="id", time="time")
