"""Many series at once, however their rows are cut into calls: the answers are those of `predict` on each so far."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from estimators.every_estimator import POINTS, RECORDS, SERIES, fitted, records
from estimators.test_stream import prefix

from lformer import (
    LFormerClassifier,
    LFormerForecaster,
    LFormerInterpolator,
    LFormerPointRegressor,
    LFormerRegressor,
    Panel,
)
from lformer.estimators.streams import Streams
from lformer.estimators.working import AT_ONCE

NAN = float("nan")


def long(X: Panel) -> tuple[Any, Any, Any]:
    """Ids, stamps and values of all rows, one series after the other."""
    times, values = (np.concatenate([one[n] for one in X]) for n in (0, 1))
    return np.repeat(X.ids, X.lengths), times, values


def told_of(model: Any, X: Panel) -> Any:
    """What it predicts for each row of a series so far: (N, ...), in the order of the rows of X."""
    found = []
    for i in range(len(X)):
        for n in range(int(X.lengths[i])):
            one = prefix(X, i, n + 1)
            told = model.predict_proba(one)[0] if hasattr(model, "predict_proba") else model.predict(one)[0]
            found.append(told[-1] if type(model) in POINTS else told)
    return np.array(found)


def cut(X: Panel, rng: np.random.Generator) -> list[Any]:
    """All rows in calls of any size, the rows of a series in their order, series interleaved."""
    left = {i: int(n) for i, n in enumerate(X.lengths)}
    first = np.cumsum(X.lengths) - X.lengths
    order = []
    while left:
        i = int(rng.choice(list(left)))
        order.append(first[i] + X.lengths[i] - left[i])
        left[i] -= 1
        left = {k: n for k, n in left.items() if n}
    calls = np.split(order, np.sort(rng.integers(0, len(order), 5)))
    return [rng.permutation(call) for call in calls]  # of one call, rows may come in any order


@pytest.mark.parametrize("dated", [False, True])
@pytest.mark.parametrize("kind", SERIES + POINTS)
def test_any_cutting_into_calls_gives_the_answers_of_predict(kind: Any, dated: bool) -> None:
    X = records(dated=dated)
    model = fitted(kind, X, streaming=True, depth=2)
    ids, times, values = long(X)
    wanted = told_of(model, X)
    for seed in range(3):
        streams, found = model.streams(), np.zeros_like(wanted)
        for call in cut(X, np.random.default_rng(seed)):
            found[call] = streams.update(ids[call], times[call], values[call], static=X.static)
        assert np.allclose(found, wanted, rtol=1e-5, atol=1e-5)
        assert len(streams) == len(X)
        assert streams.rows(X.ids).tolist() == X.lengths.tolist()


@pytest.mark.parametrize("change", [{"members": 2}, {"summaries": True}, {"neighbours": 2, "width": 12, "heads": 3}])
def test_ensembles_summaries_and_neighbours_stream_alike(change: Any) -> None:
    X = records(dated=True)
    model = fitted(LFormerClassifier, X, streaming=True, **change)
    ids, times, values = long(X)
    streams = model.streams()
    found = streams.update(ids, times, values, static=X.static)
    assert np.allclose(found, told_of(model, X), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", RECORDS)
def test_values_at_any_later_moment_are_those_of_predict(kind: Any) -> None:
    X = records()
    model = fitted(kind, X, streaming=True, depth=2, max_epochs=3, members=2)
    ids, times, values = long(X)
    streams = model.streams()
    assert streams.update(ids, times, values, static=X.static) is None
    asked = [X[i][0][~np.isnan(X[i][1]).all(axis=1)][-1] + 0.1 * (i + 1) for i in range(len(X))]
    wanted = [told[0] for told in model.predict(X, [[time] for time in asked])]
    assert np.allclose(streams.predict_at(X.ids, asked), wanted, rtol=1e-5, atol=1e-5)
    twice = streams.predict_at([X.ids[3], X.ids[1], X.ids[3]], [asked[3], asked[1], asked[3] + 0.2])
    assert np.allclose(twice[:2], [wanted[3], wanted[1]], rtol=1e-5, atol=1e-5)


def test_a_forecast_looks_ahead_as_far_as_training_did() -> None:
    streams = fitted(LFormerForecaster, streaming=True, horizon=1.0, extrapolate="error").streams()
    streams.update(["a", "b"], [0.0, 4.0], [[1.0, 2.0], [NAN, 1.0]], static={"age": [50, 60], "site": ["north", "süd"]})
    with pytest.raises(ValueError, match=r"forecasts are for times after the last row; series 'b' has a row at 0"):
        streams.predict_at(["a", "b"], 4.0)
    with pytest.raises(ValueError, match=r"1 of 2 series have queries further ahead than any in training"):
        streams.predict_at(["a", "b"], [0.5, 90.0])


def test_an_interpolator_is_asked_about_the_past_as_far_as_rows_are_kept() -> None:
    X = records()
    model = fitted(LFormerInterpolator, X, streaming=True, max_epochs=3)
    i = int(np.argmax(X.lengths))
    times, values = (a[~np.isnan(X[i][1]).all(axis=1)] for a in X[i])
    wide, narrow = model.streams(memory=20), model.streams()
    for streams in (wide, narrow):
        streams.update([X.ids[i]] * len(times), times, values, static=X.static)
    asked = [*((times[1:] + times[:-1]) / 2), times[0] - 0.3]
    wanted = model.predict(X[[i]], [asked])[0]
    assert np.allclose(wide.predict_at([X.ids[i]] * len(asked), asked), wanted, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match=rf"lies before the latest 2 rows that are kept .*\(series '{X.ids[i]}'\)"):
        narrow.predict_at([X.ids[i]], [asked[0]])


@pytest.mark.parametrize("kind", SERIES + POINTS)
def test_asked_between_rows_it_answers_as_for_an_empty_row(kind: Any) -> None:
    X = records()
    model = fitted(kind, X, streaming=True)
    ids, times, values = long(X)
    streams = model.streams()
    last = streams.update(ids, times, values, static=X.static)[np.cumsum(X.lengths) - 1]
    ends = np.array([t[-1] for t, _ in X])
    grown = Panel.from_list(
        [(np.append(t, t[-1] + 0.7), np.vstack([v, [NAN, NAN]])) for t, v in X],
        channels=X.channels,
        ids=X.ids,
        static=X.static,
    )
    told = model.predict_proba(grown) if hasattr(model, "predict_proba") else model.predict(grown)
    wanted = np.array([one[-1] for one in told]) if kind in POINTS else told
    assert np.allclose(streams.predict_at(X.ids, ends + 0.7), wanted, rtol=1e-5, atol=1e-5)
    assert np.array_equal(streams.predict_at(X.ids, ends), last)
    assert streams.rows().tolist() == X.lengths.tolist()
    with pytest.raises(ValueError, match=rf"predicts for incoming rows.*lies before .*\(series '{X.ids[0]}'\)"):
        streams.predict_at(X.ids, ends - 0.01)
    with pytest.raises(KeyError, match="series 'nobody' had no row yet"):
        streams.predict_at(["nobody"], 1.0)


@pytest.fixture(scope="module")
def model() -> Any:
    rng = np.random.default_rng(0)
    X = [(np.cumsum(rng.exponential(2, 6)), rng.normal(i % 2, 1, (6, 2))) for i in range(16)]
    return LFormerClassifier(width=8, heads=1, max_epochs=2, random_state=0, streaming=True, device="cpu").fit(
        Panel.from_list(X, channels=["k", "na"]), np.arange(16) % 2
    )


def rows(count: int, seed: int = 0) -> tuple[Any, Any]:
    """Uneven times and values with holes."""
    rng = np.random.default_rng(seed)
    values = rng.normal(0.5, 1, (count, 2))
    values[rng.random((count, 2)) < 0.3] = NAN
    return np.cumsum(rng.exponential(1.3, count)), values


def test_more_series_than_fit_into_one_step(model: Any) -> None:
    n = AT_ONCE + 37
    streams, wanted = model.streams(), model.streams()
    times, values = rows(2 * n)
    ids = np.concatenate([np.arange(n), np.random.default_rng(1).permutation(n)])
    found = streams.update(ids, times, values)
    one_by_one = [wanted.update(ids[part], times[part], values[part]) for part in np.array_split(np.arange(2 * n), 7)]
    assert np.allclose(found, np.concatenate(one_by_one), atol=1e-6)
    assert streams.ids == list(range(n))


def test_single_observations_join_rows(model: Any) -> None:
    ids, times = ["a", 7, "a", "a", 7], [1.0, 0.5, 1.0, 2.0, 0.5]
    streams, other = model.streams(), model.streams()
    found = streams.update(ids, times, [0.1, 0.2, 0.3, 0.4, 0.5], channels=["k", "na", "na", "k", "k"])
    wanted = other.update(["a", "a", 7], [1.0, 2.0, 0.5], [[0.1, 0.3], [0.4, NAN], [0.5, 0.2]])
    assert np.allclose(found, wanted[[0, 2, 0, 1, 2]], atol=1e-6)
    assert streams.rows(["a", 7]).tolist() == [2, 1]
    table = pd.DataFrame({"na": [0.3, NAN, 0.2], "k": [0.1, 0.4, 0.5]})
    assert np.allclose(model.streams().update(["a", "a", 7], [1.0, 2.0, 0.5], table), wanted, atol=1e-6)


def test_series_do_not_notice_each_other_nor_their_order(model: Any) -> None:
    times, values = rows(60)
    ids = np.random.default_rng(2).integers(0, 9, 60)
    together = model.streams().update(ids, times, values)
    for name in range(9):
        mine = ids == name
        alone = model.streams().update(ids[mine], times[mine] - 1000.0, values[mine])  # nor where their clock begins
        assert np.allclose(together[mine], alone, atol=1e-6)


def state_of(streams: Streams, name: Any) -> Any:
    return streams.rows([name]).tolist(), streams.copy().update([name], [1e4], [[0.3, -0.3]])


@pytest.mark.parametrize("memory", [1, 3, 8, 30])
def test_late_rows_are_merged_as_if_they_had_come_in_time(model: Any, memory: int) -> None:
    rng = np.random.default_rng(memory)
    for _ in range(4):
        count = int(rng.integers(2, 12))
        times, values = rows(count, int(rng.integers(99)))
        order = np.argsort(np.arange(count) + rng.uniform(0, memory, count))  # at most `memory` rows too late
        late, wanted = model.streams(late="merge", memory=memory), model.streams()
        wanted.update(["a"] * count, times, values)
        for part in np.array_split(order, int(rng.integers(1, 5))):
            late.update(["a"] * len(part), times[part], values[part])
        assert state_of(late, "a")[0] == [count]
        assert np.allclose(state_of(late, "a")[1], state_of(wanted, "a")[1], atol=1e-6)


def test_a_late_row_gets_the_answer_for_the_series_or_for_itself(model: Any) -> None:
    times, values = rows(5)
    late, wanted = model.streams(late="merge"), model.streams()
    late.update(["a"] * 4, times[[0, 1, 3, 4]], values[[0, 1, 3, 4]])
    final = wanted.update(["a"] * 5, times, values)[-1]
    assert np.allclose(late.update(["a"], times[[2]], values[[2]])[0], final, atol=1e-6)
    X = records()
    points = fitted(LFormerPointRegressor, X, streaming=True)
    t, v = X[1]
    late = points.streams(late="merge")
    keep = np.arange(len(t)) != 1
    late.update([X.ids[1]] * int(keep.sum()), t[keep], v[keep], static=X.static)
    told = late.update([X.ids[1]], t[[1]], v[[1]])
    assert np.allclose(told, points.predict(X[[1]])[0][1], rtol=1e-5, atol=1e-5)


def test_a_row_before_the_first_one_moves_the_start(model: Any) -> None:
    times, values = rows(4)
    late, wanted = model.streams(late="merge"), model.streams()
    late.update(["a"] * 3, times[1:], values[1:])
    late.update(["a"], times[:1], values[:1])
    wanted.update(["a"] * 4, times, values)
    assert np.allclose(state_of(late, "a")[1], state_of(wanted, "a")[1], atol=1e-6)


def test_late_rows_are_refused_or_counted_and_never_lost_silently(model: Any) -> None:
    times, values = rows(8)
    for late in ("refuse", "drop", "merge"):
        streams = model.streams(late=late, memory=2)
        streams.update(["b"] * 8 + ["a"], [*times, 0.0], [*values, [1.0, 2.0]])
        before = state_of(streams, "b")
        if late == "drop":
            told = streams.update(["a", "b", "b"], [1.0, times[2] + 0.01, times[7]], [[1, 1], [1, 1], [NAN, NAN]])
            assert streams.dropped == 1
            assert np.allclose(told[1], told[2], atol=1e-6)  # the answer as it stands
            assert streams.rows(["a", "b"]).tolist() == [2, 8]
        else:
            says = (
                rf"time must not go back: {times[0]} is .* before the row that came last, at {times[7]} \(series 'b'\)"
                if late == "refuse"
                else rf"a row at {times[0]} comes too late to be merged \(series 'b'\): of its 8 rows.*latest 2 can"
            )
            with pytest.raises(ValueError, match=says):
                streams.update(["a", "b"], [1.0, times[0]], [[1.0, 1.0], [1.0, 1.0]])
            assert streams.dropped == 0
            assert streams.rows(["a"]).tolist() == [1]  # nothing of the call was taken in
        assert np.array_equal(state_of(streams, "b")[1], before[1])


def test_a_channel_that_comes_twice_is_named(model: Any) -> None:
    streams = model.streams(late="merge")
    says = r"channel 'na' came already at time 3\.0, with 4; now it is 5 \(series 'x'\)"
    with pytest.raises(ValueError, match=says):
        streams.update(["y", "x", "x"], 3.0, [[1, 1], [NAN, 4.0], [1.0, 5.0]])
    assert len(streams) == 0
    streams.update(["x", "x"], [3.0, 6.0], [[NAN, 4.0], [1.0, 1.0]])
    with pytest.raises(ValueError, match=says):
        streams.update(["x"], [3.0], [[NAN, 5.0]])
    streams.update(["x"], [3.0], [[2.0, NAN]])
    assert streams.rows(["x"]).tolist() == [2]


def test_room_is_reused_and_grows_with_the_series_alone(model: Any) -> None:
    streams = model.streams()
    times, values = rows(40)
    streams.update(range(40), times, values)
    size = streams.slots.size
    for n in range(1, 60):
        streams.reset(range(40 * (n - 1), 40 * n))
        assert len(streams) == 0
        streams.update(range(40 * n, 40 * n + 40), times, values)
        for k in range(10):
            streams.update(range(40 * n, 40 * n + 40), times + 60 * (k + 1), values)
    assert streams.slots.size == size
    fresh = model.streams().update(range(40), times, values)
    streams.reset()
    assert np.allclose(streams.update(range(40), times, values), fresh, atol=1e-6)
    with pytest.raises(KeyError, match="series 99 had no row yet, or none since the last reset"):
        streams.reset([99])
    assert 3 in streams
    assert "3" not in streams
    assert repr(streams) == "Streams(LFormerClassifier, 40 series, late='refuse')"


@pytest.mark.parametrize(
    ("ids", "times", "values", "says"),
    [
        ([1.5], [1.0], [[1.0, 2.0]], r"ids must be strings or integers.*got 1\.5"),
        ([None], [1.0], [[1.0, 2.0]], "ids must be strings or integers"),
        (["a", "b"], [1.0], [[1.0, 2.0]] * 2, "times must be one stamp for each of 2 rows"),
        (["a", "b"], [1.0, NAN], [[1.0, 2.0]] * 2, r"time must be one finite stamp; got nan \(series 'b'\)"),
        (["a", "b"], [1.0, 2.0], [[1.0, 2.0], [1.0, np.inf]], r"values must be 2 finite.*\(series 'b'\)"),
        (["a", "b"], [1.0, 2.0], [[1.0, 2.0]], "values must be 2 finite numbers, one for each of k, na"),
        (["a"], [1.0], {"ph": [1.0]}, r"channels \['ph'\] are not among those of training"),
    ],
)
def test_bad_calls_get_a_clear_answer(model: Any, ids: Any, times: Any, values: Any, says: str) -> None:
    streams = model.streams()
    with pytest.raises((ValueError, TypeError), match=says):
        streams.update(ids, times, values)
    assert len(streams) == 0


def test_options_are_checked(model: Any) -> None:
    with pytest.raises(ValueError, match="late must be"):
        model.streams(late="ignore")
    with pytest.raises(ValueError, match="memory must be a whole number of at least 1"):
        model.streams(memory=0)
    assert model.streams().update([], [], np.zeros((0, 2))).shape == (0, 2)


def test_covariates_are_read_of_new_series_alone() -> None:
    X = records()
    model = fitted(LFormerRegressor, X, streaming=True)
    streams = model.streams()
    with pytest.raises(ValueError, match="the static covariates age, site; missing here"):
        streams.update(["p00"], [0.0], [[1.0, 2.0]])
    with pytest.raises(ValueError, match=r"static has no row for \['zz'\]"):
        streams.update(["zz"], [0.0], [[1.0, 2.0]], static=X.static)
    by_table = streams.update(["p00", "p01"], [0.0, 1.0], [[1.0, 2.0], [2.0, NAN]], static=X.static)
    columns = {name: X.static[name].tolist()[:2] for name in X.static}
    assert np.array_equal(model.streams().update(["p00", "p01"], [0.0, 1.0], [[1, 2], [2, NAN]], columns), by_table)
    streams.update(["p00"], [2.0], [[1.0, 2.0]])


def test_whole_numbers_and_fractions_dates_and_seconds_go_together(model: Any) -> None:
    one, two = model.streams(), model.streams()
    one.update(["a"], [3], [[1.0, 2.0]])
    one.update(["a"], [3.5], [[1.0, 2.0]])
    two.update(["a"], [3.0], [[1.0, 2.0]])
    two.update(["a"], [3.5], [[1.0, 2.0]])
    assert np.array_equal(state_of(one, "a")[1], state_of(two, "a")[1])
    large = model.streams()
    large.update(["a"], [2**60 + 1], [[1.0, 2.0]])
    with pytest.raises(ValueError, match="time must be of the type int64, as before"):
        large.update(["a"], [2.0**61], [[1.0, 2.0]])
    X = records(dated=True)
    dated = fitted(LFormerClassifier, X, streaming=True).streams()
    day = np.datetime64("2024-03-01", "s")
    dated.update(["p00"], np.array([day]), [[1.0, 2.0]], static=X.static)
    dated.update(["p00"], np.array([day + np.timedelta64(1, "ns")]), [[1.0, 2.0]])
    assert dated.rows(["p00"]).tolist() == [2]


@pytest.mark.parametrize("dated", [False, True])
def test_saved_streams_go_on_with_the_same_answers(dated: bool, tmp_path: Path) -> None:
    X = records(dated=dated)
    model = fitted(LFormerClassifier, X, streaming=True, members=2)
    ids, times, values = long(X)
    half = np.concatenate([np.arange(n) < n // 2 for n in X.lengths])
    streams = model.streams(late="drop", memory=3)
    streams.update(ids[half], times[half], values[half], static=X.static)
    streams.reset([X.ids[1]])
    streams.save(tmp_path / "s")
    streams.save(tmp_path / "s")  # in place of the first
    assert [file.name for file in (tmp_path / "s").iterdir()] == ["streams.sealed"]
    model.save(tmp_path / "m")
    from lformer.estimators import load

    for again in (model, load(tmp_path / "m")):
        for memory in (1, 3, 7):
            restored = again.streams(late="drop", memory=memory).load(tmp_path / "s")
            mine = model.streams(late="drop", memory=3).load(tmp_path / "s")
            assert restored.ids == streams.ids
            assert restored.rows().tolist() == streams.rows().tolist()
            rest = ~half & np.isin(ids, streams.ids)
            one, two = (s.update(ids[rest], times[rest], values[rest]) for s in (restored, mine))
            assert np.array_equal(one, two)
            assert np.array_equal(one, streams.copy().update(ids[rest], times[rest], values[rest]))


def test_a_saved_ring_merges_late_rows_as_far_as_it_was_kept(model: Any, tmp_path: Path) -> None:
    times, values = rows(9)
    streams, wanted = model.streams(late="merge", memory=3), model.streams()
    keep = np.arange(9) != 6
    streams.update(["a"] * 8, times[keep], values[keep])
    streams.save(tmp_path)
    wanted.update(["a"] * 9, times, values)
    wider = model.streams(late="merge", memory=8).load(tmp_path)
    with pytest.raises(ValueError, match="only the latest 3 can be taken back"):
        wider.update(["a"], [times[1] + 0.001], [[1.0, 1.0]])
    wider.update(["a"], times[[6]], values[[6]])
    assert np.allclose(state_of(wider, "a")[1], state_of(wanted, "a")[1], atol=1e-6)


def test_a_damaged_or_foreign_file_is_refused_in_words(model: Any, tmp_path: Path) -> None:
    times, values = rows(5)
    streams = model.streams()
    streams.update(["a", 1, "b", 2, "c"], times, values)
    streams.save(tmp_path)
    path = tmp_path / "streams.sealed"
    whole = path.read_bytes()
    fresh = model.streams()
    for n in (3, 20, 70, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:n] + bytes([whole[n] ^ 1]) + whole[n + 1 :])
        with pytest.raises(ValueError, match=r"streams.sealed is damaged"):
            fresh.load(tmp_path)
    path.write_bytes(whole[:-9])
    with pytest.raises(ValueError, match=r"is damaged: it holds"):
        fresh.load(tmp_path)
    path.write_bytes(whole)
    other = LFormerClassifier(width=8, heads=1, max_epochs=1, random_state=1, streaming=True, device="cpu").fit(
        Panel.from_list([(times, values), (times, values + 1)] * 4, channels=["k", "na"]), [0, 1] * 4
    )
    with pytest.raises(ValueError, match="holds streams of another model"):
        other.streams().load(tmp_path)
    with pytest.raises(FileNotFoundError, match="expected a folder into which streams were saved"):
        fresh.load(tmp_path / "nowhere")
    assert len(fresh) == 0
    assert fresh.load(tmp_path).ids == ["a", 1, "b", 2, "c"]
    model.streams().save(tmp_path)
    assert len(fresh.load(tmp_path)) == 0
