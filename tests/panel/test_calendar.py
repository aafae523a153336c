"""The calendar as numbers: by hand, across daylight saving, in batches, and where training series can show it."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from lformer import Panel
from lformer.panel.calendar import HARMONICS, NO_CALENDAR, Calendar, check_calendar, choose
from lformer.parts import PanelPart, Targets

ALL = Calendar(tuple(HARMONICS))


def utc(*dates: str) -> Any:
    return np.array(dates, "datetime64[us]")


def test_hours_and_days_of_the_year_by_hand() -> None:
    hour = Calendar(("hour",)).of(utc("2024-05-01T00:00", "2024-05-01T06:00", "2024-05-01T18:00"))
    assert hour.dtype == np.float32
    np.testing.assert_allclose(hour[:, 0], [0, 1, -1], atol=1e-6)  # the sine of the day
    np.testing.assert_allclose(hour[:, 3], [1, 0, 0], atol=1e-6)  # its cosine
    year = Calendar(("year",)).of(utc("2023-01-01", "2023-07-02T12:00", "2024-07-02", "2024-12-31"))
    np.testing.assert_allclose(year[:3, 2], [1, -1, -1], atol=1e-6)  # half of a year of 365 and of 366 days
    assert 0.999 < year[3, 2] < 1


@pytest.mark.parametrize("zone", [None, "Europe/Berlin", "America/New_York"])
def test_any_weekly_pattern_is_linear_in_the_weekday(zone: str | None) -> None:
    days = pd.date_range("2023-12-20", periods=60, freq="D", tz=zone) + pd.Timedelta(hours=13)
    marks = Calendar(("weekday",), zone).of(days.tz_localize(None).to_numpy() if zone is None else _instants(days))
    pattern = np.random.default_rng(0).normal(size=7)[days.day_of_week]
    x = np.column_stack([np.ones(60), marks])
    fitted = x @ np.linalg.lstsq(x, pattern, rcond=None)[0]
    np.testing.assert_allclose(fitted, pattern, atol=1e-5)


def _instants(days: pd.DatetimeIndex) -> Any:
    return days.tz_convert("UTC").tz_localize(None).to_numpy()


def test_nine_on_the_wall_is_nine_in_summer_and_in_winter() -> None:
    nine = pd.DatetimeIndex(["2024-03-30 09:00", "2024-03-31 09:00", "2024-10-26 09:00", "2024-10-28 09:00"])
    hours = Calendar(("hour",), "Europe/Berlin").of(_instants(nine.tz_localize("Europe/Berlin")))
    np.testing.assert_array_equal(hours, np.tile(Calendar(("hour",)).of(nine.to_numpy())[:1], (4, 1)))
    late = _instants(pd.DatetimeIndex(["2024-05-05 23:30"]).tz_localize("America/New_York"))  # Monday in UTC
    there, here = (Calendar(("weekday",), zone).of(late) for zone in ("America/New_York", None))
    assert not np.allclose(there, here)
    np.testing.assert_array_equal(there, Calendar(("weekday",)).of(utc("2024-05-05")))


def test_a_batch_tells_of_each_row_and_query_what_its_date_says() -> None:
    rng = np.random.default_rng(0)
    series = []
    for n in (4, 0, 7, 1):
        hours = np.sort(rng.uniform(0, 400, n))
        stamps = pd.Timestamp("2024-03-28", tz="Europe/Berlin") + pd.to_timedelta(np.rint(3600 * hours), unit="s")
        series.append((stamps if n else pd.DatetimeIndex([], tz="Europe/Berlin"), rng.normal(size=(n, 1))))
    panel = Panel.from_list(series, unit="h")
    calendar = Calendar(("hour", "weekday", "year"), panel.zone)
    asked = np.array([3.5, 1000.0, -30.25, 77.0])
    targets = Targets(
        values=np.zeros((4, 1), np.float32), at="queries", times=asked,
        first=np.array([0, 2, 2, 3]), lengths=np.array([2, 0, 1, 1]),
    )  # fmt: skip
    part = PanelPart(panel, targets, np.arange(4), 0, calendar=calendar)
    batch = part.batch(np.array([2, 0, 3, 1]))
    assert batch.marks is not None
    assert batch.query_marks is not None
    assert batch.marks.shape == (4, 7, 16)
    assert batch.query_marks.shape == (4, 2, 16)
    for b, i in enumerate((2, 0, 3)):
        stamps = _instants(series[i][0])
        np.testing.assert_allclose(batch.marks[b, : len(stamps)], calendar.of(stamps), atol=1e-6)
        assert (batch.marks[b, len(stamps) :] == batch.marks[b, len(stamps) - 1]).all()  # as the times of padding
        begins, count = int(targets.first[i]), int(targets.lengths[i])  # type: ignore[index]
        moments = stamps[0] + pd.to_timedelta(np.rint(3600 * asked[begins : begins + count]), unit="s").to_numpy()
        np.testing.assert_allclose(batch.query_marks[b, :count], calendar.of(moments), atol=1e-6)
    assert PanelPart(panel, targets, np.arange(4), 0).batch(np.arange(2)).marks is None


def test_queries_within_a_day_are_told_apart_though_stamps_are_days() -> None:
    panel = Panel.from_list([(np.array(["2024-01-01", "2024-01-03"], "datetime64[D]"), np.ones((2, 1)))], unit="D")
    marks = Calendar(("hour",)).marks(panel, np.array([0]), np.array([[0.25, 0.5]]))
    np.testing.assert_allclose(marks[0, :, 0], [1, 0], atol=1e-6)


def dated(days: float, step_hours: float, n: int = 6, zone: str | None = None, begin: str = "2023-01-02") -> Panel:
    stamps = pd.date_range(begin, periods=int(24 * days / step_hours) + 1, freq=pd.Timedelta(hours=step_hours), tz=zone)
    return Panel.from_list([(stamps, np.ones((len(stamps), 1)))] * n, unit="h")


@pytest.mark.parametrize(
    ("panel", "periods"),
    [
        (dated(0.9, 1), ()),
        (dated(3, 1), ("hour",)),
        (dated(3, 24), ()),  # midnight each day
        (dated(30, 24), ("weekday",)),
        (dated(30, 24 * 7), ()),  # Mondays alone
        (dated(30, 6), ("hour", "weekday")),
        (dated(800, 24), ("weekday", "year")),
        (dated(40, 24, zone="Europe/Berlin", begin="2023-03-01"), ("weekday", "hour")),  # every 24 hours, so not at one
        (Panel.from_list([(np.arange(900.0), np.ones((900, 1)))], unit="D"), ()),
        (Panel.from_list([(np.arange(900).astype("timedelta64[D]"), np.ones((900, 1)))], unit="D"), ()),
        (Panel.from_list([(pd.DatetimeIndex([]), np.ones((0, 1)))], unit="D"), ()),
    ],
)
def test_auto_takes_what_the_series_can_show(panel: Panel, periods: tuple[str, ...]) -> None:
    found = choose(panel, "auto")
    assert set(found.periods) == set(periods)
    assert found.periods == tuple(name for name in HARMONICS if name in periods)
    assert found.zone == (panel.zone if periods else None)
    assert choose(panel, False) == NO_CALENDAR
    assert found.width == sum(2 * HARMONICS[name] for name in periods)


def test_most_series_must_be_long_enough() -> None:
    short, long = ([one] for one in (dated(3, 24, n=1)[0], dated(30, 24, n=1)[0]))
    assert choose(Panel.from_list(2 * short + long), "auto").periods == ()
    assert choose(Panel.from_list(short + 2 * long), "auto").periods == ("weekday",)


@pytest.mark.parametrize(
    ("calendar", "says"),
    [
        (("week",), r"calendar must name periods among 'hour', 'weekday', 'year'; got 'week'"),
        (("hour", 3), "got 3"),
        (True, r'calendar must be "auto", False or a tuple of names among .*; got True'),
        (None, "got None"),
        ("weekday", "got 'weekday'"),
    ],
)
def test_other_names_are_refused_in_words(calendar: Any, says: str) -> None:
    for refuse in (check_calendar, lambda c: choose(dated(30, 24), c)):
        with pytest.raises(ValueError, match=says):
            refuse(calendar)


def test_names_may_come_in_any_order_and_need_dates() -> None:
    assert choose(dated(3, 24), ["year", "hour"]).periods == ("hour", "year")
    assert choose(dated(3, 24), ()).width == 0
    numbers = Panel.from_list([([0.0, 1.0], np.ones((2, 1)))])
    with pytest.raises(ValueError, match=r"calendar=\('hour',\) needs dates, but the times of X are numbers"):
        choose(numbers, ("hour",))
    durations = Panel.from_list([(np.arange(3).astype("timedelta64[D]"), np.ones((3, 1)))])
    with pytest.raises(ValueError, match="but the times of X are durations"):
        choose(durations, ("weekday",))
    assert choose(numbers, ()).width == 0
