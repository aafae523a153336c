"""Series that come in row by row: at every row the answer of a stream is that of the series so far."""

from datetime import UTC, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import pytest
from estimators.every_estimator import POINTS, RECORDS, SERIES, SMALL, fitted, records
from sklearn.exceptions import NotFittedError

from lformer import LFormerClassifier, LFormerPointRegressor, LFormerRegressor, Panel
from lformer.estimators import load, pretrain
from lformer.estimators.stream import Stream

NAN = float("nan")


def covariates(X: Panel, i: int) -> dict[str, Any]:
    assert X.static is not None
    return X.static.iloc[i].to_dict()


def prefix(X: Panel, i: int, rows: int) -> Panel:
    """One series, up to so many rows."""
    times, values = X[i]
    return Panel.from_list(
        [(times[:rows], values[:rows])], channels=X.channels, unit=X.unit or None, static=X[[i]].static, ids=X.ids[[i]]
    )


def expected(model: Any, X: Panel) -> Any:
    """The answer for the only series of X; for its last row, if there is one for each."""
    told = model.predict_proba(X)[0] if hasattr(model, "predict_proba") else model.predict(X)[0]
    return told[-1] if type(model) in POINTS else told


@pytest.mark.parametrize("dated", [False, True])
@pytest.mark.parametrize("kind", SERIES + POINTS)
def test_a_stream_says_at_every_row_what_predict_says_of_the_series_so_far(kind: Any, dated: bool) -> None:
    X = records(dated=dated)
    model = fitted(kind, X, streaming=True, depth=2)
    for i in (0, 1, 2):
        stream = model.stream(covariates(X, i))
        for n, (time, values) in enumerate(zip(*X[i], strict=True)):
            told = stream.update(time, values)
            wanted = expected(model, prefix(X, i, n + 1))
            assert np.shape(told) == np.shape(wanted)
            assert np.allclose(told, wanted, rtol=1e-5, atol=1e-5)
            assert stream.rows == n + 1


def test_the_stream_of_a_loaded_model_is_the_same(tmp_path: Any) -> None:
    X = records()
    model = fitted(LFormerRegressor, X, streaming=True)
    model.save(tmp_path / "m")
    streams = [m.stream(covariates(X, 0)) for m in (model, load(tmp_path / "m"))]
    for time, values in zip(*X[0], strict=True):
        one, two = (stream.update(time, values) for stream in streams)
        assert np.array_equal(one, two)


@pytest.fixture(scope="module")
def model() -> Any:
    rng = np.random.default_rng(0)
    X = [(np.cumsum(rng.exponential(2, 6)), rng.normal(i % 2, 1, (6, 2))) for i in range(16)]
    return LFormerClassifier(width=8, heads=1, max_epochs=2, random_state=0, streaming=True, device="cpu").fit(
        Panel.from_list(X, channels=["k", "na"]), np.arange(16) % 2
    )


def test_what_comes_at_one_stamp_is_one_row_in_whatever_pieces(model: Any) -> None:
    whole, pieces = model.stream(), model.stream()
    for time, row in [(1.0, [0.3, -1.0]), (2.5, [0.1, 0.2]), (9.0, [NAN, 4.0])]:
        first = pieces.update(time, {"na": row[1]})
        told = pieces.update(time, {"k": row[0]})
        assert np.allclose(told, whole.update(time, row), atol=1e-6)
        assert np.allclose(first, told) == bool(np.isnan(row[0]))
    assert pieces.rows == whole.rows == 3
    assert np.array_equal(pieces.update(9.0, [NAN, NAN]), told)
    with pytest.raises(ValueError, match=r"channel 'na' came already at time 9\.0, with 4; now it is 5"):
        pieces.update(9.0, [NAN, 5.0])
    assert np.allclose(pieces.update(10.0, [1.0, 1.0]), whole.update(10.0, [1.0, 1.0]), atol=1e-6)


def test_a_stamp_that_goes_back_is_refused_and_nothing_is_lost(model: Any) -> None:
    stream, other = model.stream(), model.stream()
    for s in (stream, other):
        s.update(5, [1.0, NAN])
    with pytest.raises(ValueError, match=r"time must not go back: 4\.5 is 0\.5 time units before the row that came"):
        stream.update(4.5, [1.0, 2.0])
    assert stream.rows == 1
    assert np.array_equal(stream.update(6, [0.0, 1.0]), other.update(6, [0.0, 1.0]))


def test_a_copy_goes_on_by_itself(model: Any) -> None:
    stream = model.stream()
    stream.update(0.0, [1.0, 2.0])
    branch = stream.copy()
    what_if = branch.update(1.0, [9.0, -9.0])
    told = stream.update(1.0, [0.0, 0.0])
    assert not np.allclose(what_if, told)
    assert (branch.rows, stream.rows) == (2, 2)
    assert isinstance(branch, Stream)


def test_an_unobserved_row_is_a_row(model: Any) -> None:
    stream = model.stream()
    stream.update(0.0, [1.0, 2.0])
    told = stream.update(3.0, {})
    series = Panel.from_list([([0.0, 3.0], [[1.0, 2.0], [NAN, NAN]])], channels=["k", "na"])
    assert np.allclose(told, model.predict_proba(series)[0], atol=1e-5)


@pytest.mark.parametrize(
    ("time", "values", "says"),
    [
        (NAN, [1.0, 2.0], "time must be one finite stamp"),
        ("2024-01-01", [1.0, 2.0], "time must be numbers, datetime64"),
        (np.datetime64("2024-01-01"), [1.0, 2.0], "time must be a number, as in training"),
        (1.0, [1.0], "values must be 2 finite numbers, one for each of k, na"),
        (1.0, [1.0, np.inf], "values must be 2 finite numbers"),
        (1.0, ["high", 1.0], "values must be numbers, NaN where nothing was observed: could not convert"),
        (1.0, {"ph": 7.4}, r"channels \['ph'\] are not among those of training: k, na"),
    ],
)
def test_bad_rows_get_a_clear_answer(model: Any, time: Any, values: Any, says: str) -> None:
    stream = model.stream()
    with pytest.raises((ValueError, TypeError), match=says):
        stream.update(time, values)
    assert stream.rows == 0


def test_dates_of_python_numpy_and_pandas_in_any_zone_are_instants() -> None:
    X = records(dated=True)
    model = fitted(LFormerClassifier, X, streaming=True)
    here = timezone(timedelta(hours=5))
    forms = [
        lambda t: t,
        lambda t: pd.Timestamp(t, tz="UTC"),
        lambda t: pd.Timestamp(t, tz="UTC").tz_convert("Asia/Tokyo"),
        lambda t: t.astype("datetime64[us]").item(),
        lambda t: t.astype("datetime64[us]").item().replace(tzinfo=UTC).astimezone(here),
    ]
    told = []
    for form in forms:
        stream = model.stream(covariates(X, 1))
        for time, values in zip(*X[1], strict=True):
            last = stream.update(form(time), values)
        told.append(last)
        with pytest.raises(ValueError, match=r"is 24 h before|is \d+\.\d+ h before"):
            stream.update(form(time) - pd.Timedelta(days=1), values)
    assert all(np.array_equal(told[0], other) for other in told)
    with pytest.raises(ValueError, match="time must be a date or a duration, one kind for a series"):
        stream.update(timedelta(days=3), values)
    with pytest.raises(ValueError, match="time must be a date or a duration"):
        model.stream(covariates(X, 1)).update(3.0, values)


def test_covariates_are_asked_for() -> None:
    model = fitted(LFormerPointRegressor, streaming=True)
    with pytest.raises(ValueError, match=r"the static covariates age, site; missing here: \['age', 'site'\]"):
        model.stream()
    with pytest.raises(ValueError, match=r"missing here: \['site'\]"):
        model.stream({"age": 40})
    with pytest.raises(ValueError, match="'age' was a number in training"):
        model.stream({"age": "old", "site": "north"})
    told = [model.stream({"age": 40, "site": site}).update(0.0, [1.0, 2.0]) for site in ("north", "nowhere")]
    assert told[0] != told[1]


@pytest.mark.parametrize("kind", SERIES + POINTS)
def test_a_model_that_reads_the_whole_series_says_how_to_get_one_that_streams(kind: Any) -> None:
    with pytest.raises(ValueError, match=rf"Fit it again with {kind.__name__}\(streaming=True\)"):
        fitted(kind).set_params(streaming=True).stream()
    with pytest.raises(NotFittedError):
        kind(streaming=True).stream()


@pytest.mark.parametrize("dated", [False, True])
@pytest.mark.parametrize("kind", RECORDS)
def test_values_between_and_after_the_rows_are_those_of_predict_on_the_series_so_far(kind: Any, dated: bool) -> None:
    X = records(dated=dated)
    model = fitted(kind, X, streaming=True, depth=2, max_epochs=3)
    later = np.timedelta64(7, "m") if dated else 0.12
    for i in (0, 1, 2):
        stream = model.stream(covariates(X, i))
        with pytest.raises(ValueError, match="has had no row yet"):
            stream.predict_at(X[i][0][0])
        for n, (time, values) in enumerate(zip(*X[i], strict=True)):
            rows = stream.rows
            assert stream.update(time, values) is None
            assert stream.rows == rows + (not np.isnan(values).all())  # as `predict`, which leaves out empty rows
            told = stream.predict_at(time + later)
            assert np.array_equal(told, stream.predict_at(time + later))  # a question changes nothing
            assert np.allclose(told, model.predict(prefix(X, i, n + 1), [time + later])[0][0], rtol=1e-5, atol=1e-5)


def test_a_pretrainer_says_that_it_has_no_answers() -> None:
    with pytest.raises(ValueError, match="LFormerPretrainer makes no predictions: fit an estimator from it"):
        pretrain(records(), streaming=True, **SMALL).stream()


@pytest.mark.filterwarnings("ignore:Channels never observed")
def test_a_channel_that_training_never_saw_is_left_out() -> None:
    rng = np.random.default_rng(0)
    X = [(np.sort(rng.random(5)), np.column_stack([rng.normal(size=5), np.full(5, np.nan)])) for _ in range(12)]
    model = LFormerClassifier(width=8, heads=1, depth=1, max_epochs=1, streaming=True, device="cpu", random_state=0)
    model.fit(X, np.arange(12) % 2)
    streams = [model.stream(), model.stream()]
    for time, values in zip(*X[0], strict=True):
        plain, other = (s.update(time, [values[0], new]) for s, new in zip(streams, (np.nan, 50.0), strict=True))
    assert np.array_equal(plain, other)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_a_stream_has_a_time_zone_in_all_rows_or_in_none(zone: str) -> None:
    """Of a model that knows no hours: its series are too short to show any."""
    X = records(dated=True)
    live = fitted(LFormerClassifier, X, streaming=True)
    assert not live.features_.marks.periods
    naive = pd.Timestamp("2024-02-28 23:00")
    for first, second in ((naive, (naive + pd.Timedelta("2h")).tz_localize(zone)),
                          (naive.tz_localize(zone), naive + pd.Timedelta("2h"))):  # fmt: skip
        stream = live.stream(covariates(X, 0))
        before = stream.update(first, [3.0, NAN])
        with pytest.raises(
            ValueError, match=r"a time zone in all rows of a stream or in none: .* has .*, the row before"
        ):
            stream.update(second, [3.0, 3.1])
        assert stream.rows == 1
        again = live.stream(covariates(X, 0))
        assert np.array_equal(before, again.update(first, [3.0, NAN]))  # nothing was taken in
        later = first + pd.Timedelta("2h")
        assert np.array_equal(stream.update(later, [3.0, 3.1]), again.update(later, [3.0, 3.1]))
