"""The calendar in the six estimators: found out, in any zone, in streams and saved models, and refused in words."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from estimators.every_estimator import POINTS, RECORDS, SERIES, SIX, SMALL, targets
from estimators.saved_models import changed
from sklearn.base import clone

from lformer import LFormerClassifier, LFormerForecaster, LFormerPointRegressor, Panel
from lformer.estimators import load


def visits(zone: str | None = None, n: int = 10, seed: int = 0, begin: str = "2024-03-20") -> Panel:
    """Two channels at uneven minutes over about three weeks, across the change to summer time in Europe; with gaps."""
    rng = np.random.default_rng(seed)
    series = []
    for _ in range(n):
        minutes = np.sort(rng.choice(60 * 24 * 20, rng.integers(6, 14), replace=False))
        minutes[-1] += 60 * 24 * 2
        stamps = pd.Timestamp(begin, tz=zone) + pd.to_timedelta(minutes, unit="min")
        values = 5 + rng.normal(size=(len(minutes), 2)) + np.sin(2 * np.pi * stamps.hour.to_numpy() / 24)[:, None]
        values[rng.random(values.shape) < 0.2] = np.nan
        values[0] = 5.0
        series.append((stamps, values))
    return Panel.from_list(series, channels=["k", "na"], unit="h")


def fit(kind: Any, X: Panel, **change: Any) -> Any:
    return kind(**{**SMALL, **change}).fit(X, targets(kind, X))


def told(model: Any, X: Panel, asked: Any = None) -> list[Any]:
    if isinstance(model, tuple(RECORDS)):
        asked = pd.DatetimeIndex(["2024-04-12 09:00", "2024-04-13 21:30"], tz=X.zone) if asked is None else asked
        return model.predict(X, asked)
    return [*(model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X))]


def near(one: list[Any], two: list[Any], tolerance: float = 1e-4) -> bool:
    return all(np.allclose(a, b, atol=tolerance) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("kind", SIX)
def test_all_six_see_hours_and_weekdays_of_the_zone(kind: Any) -> None:
    X = visits("Europe/Berlin")
    model = fit(kind, X)
    assert model.features_.marks.periods == ("hour", "weekday")
    assert model.features_.marks.zone == "Europe/Berlin"
    assert model.model_.config.marks == 12
    answers = told(model, X)
    assert near(answers[::-1], told(model, X[::-1]))
    assert near(answers, told(model.set_params(batch_size=3), X))
    other = Panel.from_list(
        [(t.tz_convert("Asia/Tokyo"), v) for t, v in _with_zone(X)], channels=X.channels, unit="min"
    )
    asked = pd.DatetimeIndex(["2024-04-12 16:00", "2024-04-14 04:30"], tz="Asia/Tokyo") if kind in RECORDS else None
    assert near(answers, told(model, other, asked), 1e-3)  # the same instants


def _with_zone(X: Panel) -> list[Any]:
    return [(pd.DatetimeIndex(t, tz="UTC").tz_convert(X.zone), v) for t, v in X]


@pytest.mark.parametrize("kind", SIX)
def test_without_a_calendar_dates_are_as_durations(kind: Any) -> None:
    X = visits("Europe/Berlin")
    off = fit(kind, X, calendar=False)
    assert off.model_.config.marks == 0
    hours = Panel.from_list([(t - t[0], v) for t, v in X], channels=X.channels, unit="h")
    plain = fit(kind, hours)
    if kind in SERIES + POINTS:
        for one, two in zip(told(off, X), told(plain, hours), strict=True):
            np.testing.assert_array_equal(one, two)
    days = fit(kind, X, calendar=("weekday",))
    assert (days.model_.config.marks, days.features_.marks.periods) == (6, ("weekday",))
    assert clone(days).calendar == ("weekday",)


def test_a_wall_clock_without_a_zone_is_taken_as_it_is() -> None:
    aware = visits("Europe/Berlin", begin="2024-05-03")  # no change of the clock within
    naive = Panel.from_list([(t.tz_localize(None), v) for t, v in _with_zone(aware)], channels=aware.channels, unit="h")
    one, two = (fit(LFormerClassifier, X) for X in (aware, naive))
    assert near(told(one, aware), told(two, naive), 1e-6)


def test_summer_time_moves_the_hours_but_not_the_intervals() -> None:
    X = visits("Europe/Berlin")
    utc = Panel.from_list([(t.tz_convert("UTC"), v) for t, v in _with_zone(X)], channels=X.channels, unit="h")
    np.testing.assert_array_equal(X.times, utc.times)
    there, here = (fit(LFormerPointRegressor, P) for P in (X, utc))
    assert not near(told(there, X), told(here, utc))
    part, other = (m._part(P, _nothing(P)).batch(np.arange(3)) for m, P in ((there, X), (here, utc)))
    for b in range(3):
        clock = _with_zone(X)[b][0]
        angle = 2 * np.pi * (clock.hour + clock.minute / 60).to_numpy() / 24
        np.testing.assert_allclose(part.marks[b, : len(clock), 0], np.sin(angle), atol=1e-5)
    assert not np.allclose(part.marks, other.marks)


def _nothing(X: Panel) -> Any:
    from lformer.parts import Targets

    return Targets(values=np.zeros(len(X)), at="series")


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
@pytest.mark.parametrize("kind", SERIES + POINTS)
def test_a_stream_says_what_predict_says(kind: Any, zone: str | None) -> None:
    X = visits(zone)
    model = fit(kind, X, streaming=True)
    assert model.model_.config.marks == 12
    whole = told(model, X)
    for i in (0, 3):
        stream = model.stream()
        stamps = X[i][0] if zone is None else _with_zone(X)[i][0].tz_convert("America/New_York")
        for time, values in zip(stamps, X[i][1], strict=True):
            last = stream.update(time, values)
        assert np.allclose(last, whole[i][-1] if kind in POINTS else whole[i], atol=1e-5)
    wrong = pd.Timestamp("2024-06-01") if zone else pd.Timestamp("2024-06-01", tz="UTC")
    with pytest.raises(ValueError, match=r"the stamps, such as .*, (have no|are in the) time zone"):
        model.stream().update(wrong, [1.0, 2.0])
    with pytest.raises(ValueError, match=r"must be dates, because the model was trained with calendar features"):
        model.stream().update(pd.Timedelta(hours=3), [1.0, 2.0])


@pytest.mark.parametrize("kind", SIX)
def test_a_saved_model_knows_the_calendar(kind: Any, tmp_path: Path) -> None:
    X = visits("Europe/Berlin")
    model = fit(kind, X, calendar=("hour", "weekday"))
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.features_.marks == model.features_.marks
    assert again.calendar == ("hour", "weekday")
    for one, two in zip(told(again, X), told(model, X), strict=True):
        np.testing.assert_array_equal(one, two)
    changed(tmp_path / "m", "features", "periods", to=["hour"])
    with pytest.raises(ValueError, match="marks of the model: 12 where the rest of the file needs 6"):
        load(tmp_path / "m")


def test_zones_that_do_not_go_together_are_refused_in_words() -> None:
    aware, naive = visits("Europe/Berlin"), visits()
    model = fit(LFormerForecaster, aware)
    with pytest.raises(
        ValueError, match=r"the times of X have no time zone, but those of training are in the time zone Europe/Berlin"
    ):
        model.predict(naive, ["2024-05-01"])
    with pytest.raises(ValueError, match=r"query_times of series 0 have no time zone.*tz_localize\('Europe/Berlin'\)"):
        model.predict(aware, pd.DatetimeIndex(["2024-05-01"]))
    model = fit(LFormerForecaster, naive)
    with pytest.raises(ValueError, match=r"the times of X are in the time zone Europe/Berlin, but those of training"):
        model.predict(aware, pd.DatetimeIndex(["2024-05-01"]))
    with pytest.raises(ValueError, match=r"query_times of series 0 are in the time zone UTC"):
        model.predict(naive, pd.DatetimeIndex(["2024-05-01"], tz="UTC"))
    lasting = Panel.from_list([(t - t[0], v) for t, v in naive], channels=naive.channels, unit="h")
    with pytest.raises(
        ValueError, match=r"the times of X must be dates, because the model was trained with calendar features"
    ):
        model.predict(lasting, [np.timedelta64(900, "h")])
    off = fit(LFormerForecaster, aware, calendar=False)  # instants are enough, but these are none
    with pytest.raises(ValueError, match=r"query_times of series 0 have no time zone, but the times of X are in the"):
        off.predict(aware, pd.DatetimeIndex(["2024-04-12"]))
    with pytest.raises(ValueError, match=r"query_times of series 0 are in the time zone UTC, but the times of X have"):
        off.predict(naive, pd.DatetimeIndex(["2024-04-12"], tz="UTC"))
    there, here = (off.predict(aware, pd.DatetimeIndex([f"2024-04-12 {t}"], tz=z)) for t, z in
                   (("12:00", "Europe/Berlin"), ("10:00", "UTC")))  # fmt: skip
    assert near(there, here)


@pytest.mark.parametrize("kind", SIX)
@pytest.mark.parametrize("calendar", [("week",), True, None, "weekday"])
def test_unknown_names_are_refused_by_fit(kind: Any, calendar: Any) -> None:
    X = visits()
    with pytest.raises(ValueError, match="calendar must"):
        fit(kind, X, calendar=calendar)


def test_names_need_dates() -> None:
    X = Panel.from_list([(np.arange(5.0), np.ones((5, 1)) * i) for i in range(6)])
    with pytest.raises(ValueError, match=r"calendar=\('hour',\) needs dates, but the times of X are numbers"):
        fit(LFormerClassifier, X, calendar=("hour",))
    assert fit(LFormerClassifier, X).model_.config.marks == 0


def test_an_ensemble_streams_with_the_calendar() -> None:
    X = visits()
    model = fit(LFormerClassifier, X, streaming=True, members=2)
    stream = model.stream()
    for time, values in zip(*X[1], strict=True):
        last = stream.update(time, values)
    assert np.allclose(last, model.predict_proba(X)[1], atol=1e-5)
