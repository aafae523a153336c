"""What is no panel is refused in words, and nothing is taken for what it is not."""

from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from panel.made import NAN, is_ours, long, small

from lformer.panel import Panel, drop_observations, without_rows

DATES = np.array(["2020-01-01", "NaT"], "datetime64[s]")
ODD: list[Any] = [
    None, "text", b"bytes", 7, 2.5, {"a": 1}, {1, 2}, len, object(), [None], [["a"]], [10**400], [[[10**400]]],
    [[[Decimal("sNaN")]]], [1j, 2j], [[1j], [2j]], [[1.0], [1.0, 2.0]], pd.Series(["x", "y"]), DATES, DATES[:, None],
    np.ma.array([[1.0], [2.0]], mask=[[True], [False]]), np.ma.array([0.0, 1.0], mask=True), torch.ones(2).to_sparse(),
    torch.ones(2, 1, requires_grad=True), [np.inf, NAN], [[np.inf], [NAN]], [-1], [2.5], [1e39, 2e39], np.float64(3.0),
    np.zeros((2, 1), "V8"), [[0.0, 1.0], [2.0, 3.0]], slice(None),
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
def test_odd_things_get_an_answer_in_our_words(odd: Any) -> None:
    times, values = [0.0, 1.0], [[1.0], [2.0]]
    flat = {"times": np.array(times), "values": np.array(values), "lengths": [2]}
    table = {"id": "id", "time": "time"}
    made = Panel.from_list([(times, values)])
    calls = [lambda name=name: Panel.build(**flat | {name: odd}) for name in (
        "times", "values", "lengths", "observed", "first", "ids", "channels", "unit", "origin", "static", "scale",
    )]  # fmt: skip
    calls += [lambda name=name: Panel.from_list([(times, values)], **{name: odd}) for name in (
        "ids", "channels", "unit", "static", "on_duplicate", "dtype",
    )]  # fmt: skip
    calls += [lambda name=name: Panel.from_array([values], **{name: odd}) for name in ("times", "lengths")]
    calls += [lambda name=name: Panel.from_long(small(), **table | {name: odd}) for name in (
        "id", "time", "channel", "value", "channels",
    )]  # fmt: skip
    calls += [
        lambda: Panel.from_long(odd, **table), lambda: Panel.from_list(odd), lambda: Panel.from_list([odd]),
        lambda: Panel.from_list([(odd, values)]), lambda: Panel.from_list([(times, odd)]),
        lambda: Panel.from_array(odd), lambda: made.with_values(odd), lambda: made.cut(odd),
        lambda: made[[0]].batch(dtype=odd) and made,
    ]  # fmt: skip
    refused = 0
    for call in calls:
        try:
            panel = call()
        except (ValueError, TypeError) as error:
            refused += 1
            assert is_ours(error), error  # noqa: PT017 - some are taken
        else:
            assert np.isfinite(panel.values).all()
            batch = panel.batch()
            assert all(torch.isfinite(x).all() for x in (batch.values, batch.times, batch.deltas, batch.start))
    assert refused >= 20


@pytest.mark.parametrize(
    "values", [DATES, DATES.astype("datetime64[D]"), DATES - DATES[0], pd.to_datetime(["2020"] * 2)]
)
def test_dates_are_no_values(values: Any) -> None:
    times = [0.0, 1.0]
    for make in (
        lambda: Panel.from_list([(times, values)]),
        lambda: Panel.from_list([(times, pd.Series(values))]),
        lambda: Panel.from_list([pd.DataFrame({"a": values, "b": values}, index=times)]),
        lambda: Panel.from_array(np.asarray(values)[None]),
        lambda: Panel.build(np.array(times), np.asarray(values)[:, None], [2]),
    ):
        with pytest.raises(TypeError, match=r"must be numbers; got (datetime64|timedelta64)"):
            make()
    objects = np.array([*values], object)
    with pytest.raises((ValueError, TypeError), match="must be numbers"):
        Panel.from_list([(times, objects)])


def test_masked_arrays_are_refused_rather_than_unmasked() -> None:
    masked = np.ma.array([1.0, 2.0], mask=[False, True])
    for make in (
        lambda: Panel.from_list([([0.0, 1.0], masked)]),
        lambda: Panel.from_list([(masked, [1.0, 2.0])]),
        lambda: Panel.from_array(masked[None]),
        lambda: Panel.from_array([masked]),
        lambda: Panel.from_array([[1.0, 2.0]], masked),
        lambda: Panel.build(masked, np.ones((2, 1)), [2]),
        lambda: Panel.build(np.arange(2.0), masked[:, None], [2]),
    ):
        with pytest.raises(TypeError, match=r"must not be a masked array\. Write NaN where nothing was observed"):
            make()


def test_stamps_of_flat_parts_are_numbers_that_float64_holds() -> None:
    with pytest.raises(TypeError, match=r"times must be numbers; got datetime64\[s\]"):
        Panel.build(DATES, np.ones((2, 1)), [2])
    with pytest.raises(ValueError, match=r"whole numbers up to 2\*\*53; got 1152921504606846977. Subtract the first"):
        Panel.build(np.array([2**60, 2**60 + 1]), np.ones((2, 1)), [2])
    panel = Panel.build(np.array([0, 1]), np.ones((2, 1)), [2], origin=np.array([2**60]))
    assert panel[0][0].tolist() == [2**60, 2**60 + 1]
    assert Panel.build(np.array([0, 2**53]), np.ones((2, 1)), [2]).times.tolist() == [0.0, 2.0**53]


def test_origins_are_stamps_and_need_a_unit() -> None:
    flat = {"times": np.array([0.0, 1.0]), "values": np.ones((2, 1)), "lengths": [2]}
    day = np.array(["2020-01-01"], "datetime64[D]")
    assert Panel.build(**flat, origin=day, unit="h")[0][0].dtype == day.dtype
    assert Panel.build(**flat, origin=day).unit == "s"
    with pytest.raises(
        ValueError, match="unit must be one of ns, us, ms, s, min, h, D for calendar stamps; got 'week'"
    ):
        Panel.build(**flat, origin=day, unit="week")
    for origin in ([NAN], np.array(["NaT"], "datetime64[s]"), [0.0, 1.0]):
        with pytest.raises(ValueError, match="origin must be 1 stamps, one per series"):
            Panel.build(**flat, origin=origin)
    with pytest.raises(TypeError, match="origin must be numbers, datetime64 or timedelta64"):
        Panel.build(**flat, origin=["a"])


@pytest.mark.parametrize("lengths", [[2**62] * 4, [2**63 - 1, 2], [3], [1, 2]])
def test_lengths_cannot_overflow(lengths: list[int]) -> None:
    with pytest.raises(ValueError, match="lengths must be numbers from 0 that sum to the 2 rows"):
        Panel.build(np.arange(2.0), np.ones((2, 1)), lengths)


def test_runs_cannot_overflow() -> None:
    with pytest.raises(ValueError, match="runs within the 2 rows"):
        Panel.build(np.arange(2.0), np.ones((2, 1)), [1], first=[2**63 - 1])
    assert Panel.build(np.arange(2.0), np.ones((2, 1)), [0, 2], first=[2, 0]).lengths.tolist() == [0, 2]


def test_names_of_channels_are_a_list() -> None:
    for make in (
        lambda names: Panel.build(np.arange(2.0), np.ones((2, 2)), [2], channels=names),
        lambda names: Panel.from_list([([0.0, 1.0], np.ones((2, 2)))], channels=names),
        lambda names: Panel.from_array(np.ones((1, 2, 2)), channels=names),
    ):
        assert make(["n", "a"]).channels == ("n", "a")
        with pytest.raises(TypeError, match="channels must be a list of names; got 'na'"):
            make("na")  # a name, not two
        with pytest.raises(TypeError, match="channels must be a list of names; got 2"):
            make(2)
        with pytest.raises(ValueError, match=r"different names; duplicates: \['n'\]"):
            make(["n", "n"])


def test_tables_with_names_that_cannot_be_sorted_or_told_apart() -> None:
    for column in ("id", "channel"):
        for odd in ([[1], [2], [3], [4]], [object(), object(), object(), object()]):
            with pytest.raises(TypeError, match=f"column '{column}' must hold names that can be told apart and sorted"):
                long(small(**{column: pd.Series(odd, index=small().index)}))


@pytest.mark.parametrize(
    "odd", [10**400, Decimal("sNaN"), "low", 1j, np.datetime64("2020"), [1.0]], ids=lambda odd: type(odd).__name__
)
def test_the_first_value_that_is_no_number_is_named(odd: Any) -> None:
    values = pd.Series([1, None, "3", None], dtype=object, index=small().index)
    values.iloc[3] = odd
    with pytest.raises(ValueError, match="column 'value' must hold numbers; row 73 holds"):
        long(small(value=values))


def test_a_column_named_by_a_number_is_no_missing_channel() -> None:
    with pytest.raises(ValueError, match="no column 0; the table has 'id', 'time'"):
        long(small(), channel=0)
    with pytest.raises(TypeError, match="value must be the name of a column, or a list of names; got 7"):
        long(small(), channel=None, value=7)


def test_float32_stamps_of_a_tensor_are_looked_at_too() -> None:
    stamps = torch.tensor([1.7e9, 1.7e9 + 300, 1.7e9 + 600])
    for make in (
        lambda: Panel.from_list([(stamps, [1.0, 2.0, 3.0])]),
        lambda: Panel.from_array([[1.0, 2.0, 3.0]], stamps),
        lambda: Panel.from_list([([np.float32(1.7e9), np.float32(1.7e9 + 300)], [1.0, 2.0])]),
    ):
        with pytest.raises(ValueError, match=r"are float32 up to 1\.7e\+09, where the next number is 128 away"):
            make()


def test_narrow_stamps_that_are_not_finite_are_refused_without_a_warning() -> None:
    for stamps in ([0.0, np.inf, np.inf], [-np.inf, 0.0, 1.0], [0.0, NAN, 1.0]):
        with pytest.raises(ValueError, match="every observation needs a time"):
            Panel.from_list([(np.float32(stamps), [1.0, 2.0, 3.0])])


# -- times too far apart, values too large

HALF = float(np.finfo(np.float32).max) / 2


@pytest.mark.parametrize("stamps", [[0.0, 1e39], [-1e308, 1e308], [0.0, HALF, np.nextafter(HALF, np.inf)]])
def test_a_series_that_spans_more_than_float32_is_refused(stamps: list[float]) -> None:
    values = np.ones((len(stamps), 1))
    table = pd.DataFrame({"id": "p", "time": [3.0, *stamps], "x": 1.0}).assign(id=["o"] + ["p"] * len(stamps))
    for name, make in {
        "'p'": lambda: Panel.from_long(table, id="id", time="time"),
        "1": lambda: Panel.from_list([([3.0], [1.0]), (stamps, values)]),
        "0": lambda: Panel.from_array(values[None], stamps),
        "2": lambda: Panel.build(np.array([3.0, *stamps]), np.ones((len(stamps) + 1, 1)), [1, 0, len(stamps)]),
    }.items():
        with pytest.raises(ValueError, match=rf"times of series {name} span more than 1.7e\+38.* larger unit of time"):
            make()


def test_a_series_may_span_as_much_as_float32_holds() -> None:
    batch = Panel.from_list([([0.0, HALF], [1.0, 2.0]), ([1e300], [1.0])]).batch()
    assert batch.deltas.tolist() == [[0.0, HALF], [0.0, 0.0]]
    assert batch.start.tolist() == [0.0, 1e300]


def test_a_batch_refuses_values_that_its_dtype_cannot_hold() -> None:
    values = np.array([[1.0, 2.0], [3.0, -1e39], [5.0, 6.0]])
    wide = {
        "float": Panel.from_list([([0.0], values[:1]), ([4.5, 7.0], values[1:])], ids=["a", "b"], dtype=np.float64),
        "built": Panel.build(np.array([0.0, 4.5, 7.0]), values, [1, 2], ids=["a", "b"]),
    }
    for panel in wide.values():
        with pytest.raises(
            ValueError,
            match=r"float32 cannot hold an observed value: series 'b', time 4.5, channel '1' is -1e\+39. Use a larger",
        ):
            panel.batch()
        assert panel.batch([0]).values.tolist() == [[[1.0, 2.0]]]
        assert panel.batch(dtype=torch.float64).values[1, 0, 1] == -1e39
    dated = Panel.from_list(
        [(np.array(["2020-01-01", "2020-01-02"], "datetime64[D]"), values[:2])], dtype=np.float64, channels=["k", "na"]
    )
    with pytest.raises(ValueError, match=r"series 0, time 2020-01-02, channel 'na' is -1e\+39"):
        dated.batch()
    with pytest.raises(
        ValueError, match=r"float16 cannot hold an observed value: series 0, time 0.0, channel '0' is 70000"
    ):
        Panel.from_list([([0.0], [70000.0])]).batch(dtype=torch.float16)
    with pytest.raises(ValueError, match="float16 cannot hold the interval before a row: series 0, row 1, 70000"):
        Panel.from_list([([0.0, 70000.0], [1.0, 2.0])]).batch(dtype=torch.float16)
    frames = Panel.build(np.arange(1.0), np.full((1, 2, 2), 1e39), [1])
    with pytest.raises(ValueError, match=r"series 0, time 0.0, channel \[0, 0\] is 1e\+39"):
        frames.batch()
    scaled = Panel.build(np.arange(1.0), np.full((1, 1), 200, np.uint8), [1], scale=1e37)
    with pytest.raises(ValueError, match=r"is 2e\+39"):
        scaled.batch()
    assert Panel.build(
        np.arange(1.0), np.full((1, 1), 20, np.uint8), [1], scale=1e37
    ).batch().values.item() == np.float32(2e38)


def test_what_was_not_observed_may_be_too_large() -> None:
    values = np.array([[1.0], [1e39]])
    panel = Panel.build(np.arange(2.0), values, [2], observed=np.array([[True], [False]]))
    assert panel.batch().values.flatten().tolist() == [1.0, 0.0]


def test_batches_have_floating_dtypes_and_known_series() -> None:
    panel = Panel.from_list([([0.0], [1.0])] * 3)
    for dtype in (torch.int64, np.float32, "float32", None):
        with pytest.raises(TypeError, match="dtype must be a floating one of torch"):
            panel.batch(dtype=dtype)  # type: ignore[arg-type]
    for take in (panel.batch, panel.__getitem__):
        with pytest.raises(IndexError, match="there are 3 series; got positions from 0 to 3"):
            take([0, 3])
        with pytest.raises(IndexError, match="there are 3 series; got positions from -4 to -4"):
            take([-4])
        with pytest.raises(IndexError, match="there are 3 series; got a mask of 2"):
            take([True, False])


def test_other_values_must_be_finite() -> None:
    panel = Panel.from_list([([0.0, 1.0], [[1.0], [NAN]])], ids=["p"], channels=["k"])
    assert panel.with_values(np.array([[5.0], [0.0]])).batch().values.flatten().tolist() == [5.0, 0.0]
    with pytest.raises(ValueError, match=r"values must be finite in float64; series 'p', time 1.0, channel 'k' is not"):
        panel.with_values(np.array([[5.0], [NAN]]))
    with pytest.raises(ValueError, match=r"expected values of shape \(2, 1\); got \(1, 1\)"):
        panel.with_values(np.ones((1, 1)))


def test_the_mean_of_large_duplicates_is_finite() -> None:
    table = small(id="p", time=[0.0, 0.0, 0.0, 1.0], channel="x", value=[1.7e308, 1.6e308, 1.5e308, 3.0])
    assert long(table, on_duplicate="mean", dtype=np.float64).values.ravel().tolist() == pytest.approx([1.6e308, 3.0])


def test_targets_that_are_no_arrays_are_refused() -> None:
    panel = Panel.from_list([([0.0], [1.0])] * 2)
    with pytest.raises(ValueError, match="y must be an array, or nested lists of one length each"):
        panel.align([[1], [1, 2]], "y")
    assert panel.align(pd.Index([3, 4])).tolist() == [3, 4]


def test_rows_to_leave_out_are_told_by_a_mask() -> None:
    panel = Panel.from_list([([0.0, 1.0], [1.0, 2.0])])
    for hidden in (np.zeros(3, bool), np.zeros(2)):
        with pytest.raises(ValueError, match="hidden must be bool, one for each of the 2 rows"):
            without_rows(panel, hidden)
    for fraction in (-0.1, 1.1, NAN):
        with pytest.raises(ValueError, match="fraction must lie between 0 and 1; got"):
            drop_observations(panel, fraction, np.random.default_rng(0))


# -- anything in a table

cells = st.one_of(
    st.none(), st.booleans(), st.floats(), st.integers(-(10**45), 10**45), st.decimals(), st.complex_numbers(),
    st.sampled_from(["1", " 2 ", "nan", "", "x", "1e400", b"3", pd.NA, pd.NaT, np.float32(0.1)]),
    st.just(np.timedelta64(1, "s")),
)  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), cells), min_size=1, max_size=8))
@settings(max_examples=150, deadline=None)
def test_a_table_of_anything_is_refused_or_read_as_a_slow_loop_reads_it(rows: list[Any]) -> None:
    table = pd.DataFrame(rows, columns=["id", "time", "value"]).astype({"value": object}).assign(channel="x")
    expected: dict[tuple[int, int], float] = {}
    bad = False
    for i, t, cell in rows:
        try:
            number = NAN if cell is pd.NA or cell is pd.NaT or cell is None else float(cell)
        except (ValueError, TypeError, OverflowError):
            bad = True
            continue
        with np.errstate(over="ignore"):
            bad |= bool(np.isinf(np.float32(number))) or isinstance(cell, np.timedelta64)
        if number == number:
            expected[i, t] = float(np.float32(number)) if abs(number) < 1e38 else number
    try:
        panel = long(table, on_duplicate="last")
    except (ValueError, TypeError) as error:
        assert bad, error  # noqa: PT017 - others are taken
        return
    assert not bad
    found = panel.to_long()
    assert dict(
        zip(zip(found["id"], found["time"], strict=True), found["value"].astype(float), strict=True)
    ) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("value", [torch.tensor(0), np.array([[0, 3]])])
def test_what_cannot_be_a_name_is_refused_in_words(value: Any) -> None:
    with pytest.raises(TypeError, match="value must be the name of a column, or a list of names"):
        long(small(), channel=None, value=value)
