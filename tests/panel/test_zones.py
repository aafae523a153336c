"""Time zones: a panel remembers the one its stamps came in, and the clock on the wall there is told."""

from datetime import UTC, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import pytest
from panel.made import long, same_panel, small

from lformer import Panel
from lformer.panel.zones import common_zone, name_of, read_zone, wall_clock, zone_of

BERLIN = pd.DatetimeIndex(["2024-03-30 12:00", "2024-03-31 12:00", "2024-04-01 12:00"]).tz_localize("Europe/Berlin")


@pytest.mark.parametrize(
    ("stamps", "name"),
    [
        (BERLIN, "Europe/Berlin"),
        (pd.Series(BERLIN), "Europe/Berlin"),
        (BERLIN.tz_convert("UTC"), "UTC"),
        (BERLIN.tz_convert(timezone(timedelta(hours=-3, minutes=-30))), "UTC-03:30"),
        (BERLIN.tz_localize(None), None),
        (np.array(["2024-01-01"], "datetime64[s]"), None),
        ([1.0, 2.0], None),
    ],
)
def test_stamps_of_any_form_name_their_zone(stamps: Any, name: str | None) -> None:
    assert zone_of(stamps) == name
    if name is not None:
        noon = pd.Timestamp("2024-07-01", tz=read_zone(name))
        assert noon.utcoffset() == pd.Timestamp("2024-07-01", tz=stamps.dtype.tz).utcoffset()


def test_a_column_of_arrow_names_its_zone() -> None:
    pytest.importorskip("pyarrow")
    assert zone_of(pd.Series(BERLIN).astype("timestamp[us, tz=Europe/Berlin][pyarrow]")) == "Europe/Berlin"
    assert zone_of(pd.Series(BERLIN).astype("timestamp[us, tz=+02:00][pyarrow]")) == "UTC+02:00"


def test_a_zone_without_a_name_is_said_to_count_as_utc() -> None:
    tz = pytest.importorskip("dateutil.tz")
    assert zone_of(pd.DatetimeIndex(["2024-03-30"]).tz_localize(tz.gettz("Europe/Berlin"))) == "Europe/Berlin"
    with pytest.warns(UserWarning, match=r"tzstr.* has no name that can be stored, so hours and days are in UTC"):
        assert name_of(tz.tzstr("EST5EDT")) == "UTC"


@pytest.mark.parametrize("name", ["Middle/Earth", "", "../etc/passwd", "UTC+99:00", "UTC+1", 3, None, "\x00"])
def test_names_that_are_none_are_refused_in_words(name: Any) -> None:
    with pytest.raises(ValueError, match=r"zone must be the name of a time zone, such as 'Europe/Berlin'"):
        read_zone(name)


def test_series_of_one_panel_share_a_zone_or_are_told_in_utc() -> None:
    assert common_zone(["Asia/Tokyo", "Asia/Tokyo"]) == "Asia/Tokyo"
    assert common_zone(["Asia/Tokyo", "Europe/Berlin"]) == "UTC"
    assert common_zone(["Asia/Tokyo", None]) == "UTC"
    assert common_zone([None, None]) is None
    assert common_zone([]) is None


def test_the_clock_on_the_wall_is_put_forward_and_back() -> None:
    spring = np.array(["2024-03-31T00:59", "2024-03-31T01:00"], "datetime64[us]")
    autumn = np.array([["2024-10-27T00:59", "2024-10-27T01:00"]], "datetime64[us]")
    assert wall_clock(spring, "Europe/Berlin").astype("datetime64[m]").astype(str).tolist() == [
        "2024-03-31T01:59", "2024-03-31T03:00",
    ]  # fmt: skip
    assert wall_clock(autumn, "Europe/Berlin").astype("datetime64[m]").astype(str).tolist() == [
        ["2024-10-27T02:59", "2024-10-27T02:00"]
    ]
    assert wall_clock(spring, None) is spring
    assert wall_clock(spring, "UTC") is spring
    assert wall_clock(spring[:0], "Europe/Berlin").shape == (0,)


def test_a_panel_from_a_table_a_list_or_an_array_remembers_the_zone() -> None:
    table = small(
        time=pd.DatetimeIndex(["2024-03-31 03:30", "2024-03-31", "2024-03-30", "2024-03-29"], tz="Europe/Berlin")
    )
    panel = long(table, unit="h")
    assert panel.zone == "Europe/Berlin"
    assert panel[[0]].zone == panel.compact().zone == panel.cut(1).zone == "Europe/Berlin"
    back = panel.to_long()
    assert str(back["time"].dtype.tz) == "Europe/Berlin"
    again = long(back, unit="h")
    same_panel(again, panel)
    assert again.zone == panel.zone
    assert back["time"].sort_values().tolist() == table["time"].sort_values().tolist()

    values = np.ones((3, 1))
    assert Panel.from_list([(BERLIN, values), (BERLIN[:2], values[:2])]).zone == "Europe/Berlin"
    assert Panel.from_list([(BERLIN, values), (BERLIN.tz_convert("UTC"), values)]).zone == "UTC"
    assert Panel.from_list([pd.DataFrame(values, index=BERLIN), pd.DataFrame(values[:0], index=BERLIN[:0])]).zone
    assert Panel.from_array(np.ones((2, 3)), times=BERLIN).zone == "Europe/Berlin"
    assert Panel.from_array(np.ones((2, 3))).zone is None
    assert Panel.from_list([(BERLIN.tz_localize(None), values)]).zone is None


def test_a_built_panel_takes_a_zone_for_dates_alone() -> None:
    dates = np.array(["2024-01-01", "2024-01-05"], "datetime64[s]")
    made = Panel.build(np.zeros(2), np.ones((2, 1)), np.ones(2, int), origin=dates, unit="h", zone="Asia/Tokyo")
    assert made.zone == "Asia/Tokyo"
    assert made.to_long()["time"].iloc[0] == pd.Timestamp("2024-01-01 09:00", tz="Asia/Tokyo")
    with pytest.raises(ValueError, match="zone='Asia/Tokyo' is for dates"):
        Panel.build(np.zeros(2), np.ones((2, 1)), np.ones(2, int), zone="Asia/Tokyo")
    with pytest.raises(ValueError, match="zone must be the name of a time zone"):
        Panel.build(np.zeros(2), np.ones((2, 1)), np.ones(2, int), origin=dates, unit="h", zone="Nowhere")


def test_utc_of_python_is_utc() -> None:
    assert zone_of(pd.DatetimeIndex(["2024-01-01"], tz=UTC)) == "UTC"
