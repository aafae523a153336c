"""What a notebook shows of a panel: well-formed, escaped, of any panel there is."""

from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from panel.made import NAN, random_series

from lformer.panel import Array, Panel
from lformer.panel.axis import duration, figure, number_ticks, stamp_ticks
from lformer.panel.picture import COLUMNS, facts

SVG = "{http://www.w3.org/2000/svg}"


def parsed(panel: Panel) -> ElementTree.Element:
    """The page as a tree, which only well-formed HTML has."""
    return ElementTree.fromstring(panel._repr_html_())


def words(panel: Panel) -> list[str]:
    """All texts of the page, in their order."""
    return [text for text in parsed(panel).itertext() if text.strip()]


def dots(panel: Panel) -> list[int]:
    """How many observations are drawn as dots in each lane that has any."""
    return [
        path.get("d", "").count("M") for path in parsed(panel).iter(f"{SVG}path") if path.get("stroke-width") == "4"
    ]


def series(n: int, C: int, missing: float = 0.3) -> tuple[Array, Array]:
    """Uneven times and partly missing values."""
    rng = np.random.default_rng(n)
    values = rng.normal(size=(n, C))
    values[rng.random((n, C)) < missing] = NAN
    return np.cumsum(rng.exponential(1.0, n)), values


def test_figures_beside_the_picture_of_the_first_series() -> None:
    clock = pd.to_datetime(["2024-03-01 06:00", "2024-03-01 06:10", "2024-03-01 06:20", "2024-03-04 00:00"])
    panel = Panel.from_list(
        [(clock, [[1.0, NAN], [2.0, 5.0], [NAN, 6.0], [-3.5, 7.0]]), (clock[:1], [[2.0, 2.0]])],
        ids=["first", "second"],
        channels=["sodium", "pulse"],
        unit="h",
        static=pd.DataFrame({"age": [1, 2]}, index=["first", "second"]),
    )
    assert facts(panel) == [
        ("series", "2"),
        ("rows", "5"),
        ("rows per series", "1 to 4, median 2.5"),
        ("channels", "2"),
        ("observed", "80 %"),
        ("from", "2024-03-01 06:00:00"),
        ("to", "2024-03-04"),
        ("typical interval", "10 min"),
        ("covariates", "1"),
    ]
    found = words(panel)
    assert "first series: first, 4 rows" in found
    assert [word for word in found if word.endswith(" Mar")] == ["2 Mar", "3 Mar", "4 Mar"]
    for word in ("sodium", "pulse", "-3.5", "2", "5", "7"):
        assert word in found
    assert dots(panel) == [3, 3]


@pytest.mark.parametrize("seed", range(3))
def test_a_dot_for_every_observation_of_the_first_series(seed: int) -> None:
    panel = Panel.from_list(random_series(seed))
    first = next(values for times, values in panel if len(times))
    assert dots(panel) == [int(n) for n in np.isfinite(first).sum(axis=0) if n]
    assert words(panel).count("not observed") == int((~np.isfinite(first).any(axis=0)).sum())


def test_observations_lie_where_their_time_and_value_say() -> None:
    panel = Panel.from_list([([0.0, 1.0, 4.0], [2.0, 10.0, 4.0])])
    (path,) = [p for p in parsed(panel).iter(f"{SVG}path") if p.get("stroke-width") == "4"]
    points = [tuple(map(float, part.removesuffix("h0").split())) for part in (path.get("d") or "").split("M")[1:]]
    x, y = np.array(points).T
    np.testing.assert_allclose((x - x[0]) / (x[2] - x[0]), [0, 0.25, 1], atol=1e-3)
    np.testing.assert_allclose((y - y[0]) / (y[1] - y[0]), [0, 1, 0.25], atol=2e-2)
    assert y[1] < y[0]  # large values are at the top


EVIL = '<script>alert("&")</script>'


def test_names_are_escaped() -> None:
    panel = Panel.from_list([([0.0], [[1.0]])], ids=[EVIL + "\x07"], channels=[EVIL], unit="<b>")
    html = panel._repr_html_()
    assert "<script" not in html
    assert "<b>" not in html.replace("<b>Panel</b>", "")
    assert "\x07" not in html
    assert EVIL in words(panel)  # the full name of the channel, as its tooltip


@pytest.mark.parametrize("dated", [False, True])
def test_panels_without_series_rows_or_values(dated: bool) -> None:
    times: Any = pd.to_datetime(["2024-05-01 12:00"]) if dated else [3.5]
    one = Panel.from_list([(times, [[1.0, NAN]])])
    assert ("2024-05-01 12:00:00" if dated else "3.5") in words(one)
    assert words(one).count("not observed") == 1
    assert dots(one) == [1]
    for empty in (one[:0], Panel.build(np.zeros(0), np.zeros((0, 2)), [0, 0])):
        assert [name for name, _ in facts(empty)][-1] == "channels"
        assert not list(parsed(empty).iter(f"{SVG}svg"))
    nothing = Panel.from_list([(times, [[NAN, NAN]])])
    assert words(nothing).count("not observed") == 2
    assert ("observed", "0 %") in facts(nothing)
    late = Panel.from_list([([], np.zeros((0, 1))), ([2.0, 3.0], [[1.0], [2.0]])], ids=["a", "b"])
    assert "first series: b, 2 rows" in words(late)  # the first that has any
    assert "svg" in Panel.from_array(np.zeros((1, 2, 0)), times=[0.0, 1.0], lengths=[2])._repr_html_()  # no channel


def test_of_many_channels_the_first_few_are_shown() -> None:
    panel = Panel.from_list([series(30, 200)])
    assert "first series: 0, 30 rows; 6 of 200 channels" in words(panel)
    assert ("channels", "200") in facts(panel)
    assert len(dots(panel)) == 6
    assert len(panel._repr_html_()) < 20_000


def test_a_long_series_is_thinned_and_keeps_its_extremes() -> None:
    times, values = series(50_000, 1, missing=0.0)
    values[20_000], values[30_000] = 99.0, -99.0
    panel = Panel.from_list([(times, values)])
    assert len(panel._repr_html_()) < 20_000
    assert {"99", "-99"} <= set(words(panel))
    (path,) = [p for p in parsed(panel).iter(f"{SVG}path") if p.get("stroke-linejoin")]
    points = np.array([list(map(float, one.split())) for one in (path.get("d") or "").removeprefix("M").split("L")])
    assert len(points) <= 2 * COLUMNS
    assert np.ptp(points[:, 1]) == pytest.approx(34.0, abs=0.2)  # from the bottom of the lane to its top


def test_frames_numbers_of_any_size_and_durations() -> None:
    times, _ = series(12, 1)
    frames = Panel.build(times, np.random.default_rng(0).random((12, 8, 6)), [12])
    assert "8 × 6 each" in words(frames)
    assert dots(frames) == [12]
    huge = Panel.from_list([(1e9 * times, np.linspace(-3e38, 3e38, 12))])
    assert {"3e+38", "-3e+38"} <= set(words(huge))
    spans = Panel.from_list([(pd.to_timedelta([0, 90, 600], unit="s"), [1.0, 2.0, 3.0])], unit="min")
    assert ("to", "10 min") in facts(spans)
    assert "time in min" in words(spans)
    whole = Panel.from_list([(np.array([2**62, 2**62 + 10]), [1.0, 2.0])])
    assert "svg" in whole._repr_html_()


def test_the_clock_on_the_wall_is_that_of_the_zone() -> None:
    clock = pd.date_range("2024-03-31 00:00", periods=49, freq="5min", tz="Europe/Berlin")
    panel = Panel.from_list([(clock, np.arange(49.0))], unit="h")
    found = words(panel)
    assert [word for word in found if word.endswith(":00") and len(word) == 5] == ["01:00", "03:00", "04:00", "05:00"]
    assert ("time zone", "Europe/Berlin") in facts(panel)
    assert ("to", "2024-03-31 05:00:00") in facts(panel)
    assert stamp_ticks(clock.tz_localize(None).to_numpy()[:1], None) == [(0.5, "2024-03-31 00:00:00")]
    assert [round(at, 3) for at, _ in stamp_ticks(clock.tz_convert(None).to_numpy(), "Europe/Berlin")] == [
        0, 0.25, 0.5, 0.75, 1,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("first", "last", "labels"),
    [
        ("1981-03-04", "2012-11-01", ["1990", "2000", "2010"]),
        ("2023-10-04", "2024-11-20", ["Jan 2024", "Apr 2024", "Jul 2024", "Oct 2024"]),
        ("2024-02-05", "2024-03-20", ["11 Feb", "21 Feb", "1 Mar", "11 Mar"]),
        ("2024-02-28", "2024-03-08", ["29 Feb", "1 Mar", "3 Mar", "5 Mar", "7 Mar"]),
        ("2024-02-28T20:00", "2024-02-29T14:00", ["21:00", "29 Feb", "03:00", "06:00", "09:00", "12:00"]),
        ("2024-02-28T23:59:50", "2024-02-29T00:00:10", ["23:59:50", "23:59:55", "29 Feb", "00:00:05", "00:00:10"]),
        ("2024-02-28T12:00:00", "2024-02-28T12:00:00.4", [f"12:00:00.{k}00" for k in range(5)]),
        ("0800-01-01", "2024-01-01", ["1000", "2000"]),
    ],
)
def test_ticks_of_a_calendar(first: str, last: str, labels: list[str]) -> None:
    assert [label for _, label in stamp_ticks(np.array([first, last], "datetime64[us]"), None)] == labels


def test_ticks_of_numbers_and_words_for_lengths() -> None:
    assert [label for _, label in number_ticks(np.array([0.13, 0.98]))] == ["0.2", "0.4", "0.6", "0.8"]
    assert [label for _, label in number_ticks(np.array([-2.0, 9e6]))] == [
        "0", "2e+06", "4e+06", "6e+06", "8e+06",
    ]  # fmt: skip
    assert number_ticks(np.array([7.0])) == [(0.5, "7")]
    assert [duration(s) for s in (0.0, 2e-9, 3e-5, 0.25, 59.0, 60.0, 5400.0, 86_400.0, 1e7)] == [
        "0 s", "2 ns", "30 us", "250 ms", "59 s", "1 min", "1.5 h", "1 day", "115.7 days",
    ]  # fmt: skip
    assert [figure(x) for x in (0.0, 1234.5, 123_456.7, 1.5e9, -2e-5, 0.25)] == [
        "0", "1,234", "123,457", "1.5e+09", "-2e-05", "0.25",
    ]  # fmt: skip
