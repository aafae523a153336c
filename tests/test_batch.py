"""IrregularBatch: what it keeps, what it fills in, and what it refuses."""

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch
from helpers import irregular_arrays, irregular_batch, relative_error
from panel.made import is_ours

from lformer import IrregularBatch, LFormer, LFormerConfig, metrics
from lformer.batch import mean_interval, median_interval, median_span


def test_nan_means_not_observed_and_becomes_zero() -> None:
    batch = IrregularBatch.build([[[1.0, float("nan")], [float("nan"), 4.0]]], times=[[0.0, 2.5]])
    assert batch.observed.tolist() == [[[True, False], [False, True]]]
    assert batch.values.tolist() == [[[1.0, 0.0], [0.0, 4.0]]]


def test_observed_wins_over_values() -> None:
    seen = torch.tensor([[[True], [False], [True]]])
    batch = IrregularBatch.build([[[1.0], [7.0], [3.0]]], times=[0.0, 1.0, 5.0], observed=seen)
    assert batch.values.flatten().tolist() == [1.0, 0.0, 3.0]


def test_times_are_relative_to_the_first_stamp_and_padding_repeats_the_last() -> None:
    batch = IrregularBatch.build(torch.ones(2, 3, 1), times=[[5.0, 6.5, 9.0], [1.0, 4.0, -7.0]], lengths=[3, 2])
    assert batch.times.tolist() == [[0.0, 1.5, 4.0], [0.0, 3.0, 3.0]]
    assert batch.deltas.tolist() == [[0.0, 1.5, 2.5], [0.0, 3.0, 0.0]]
    assert batch.valid.tolist() == [[True, True, True], [True, True, False]]
    assert not batch.observed[1, 2].any()


def test_a_given_start_moves_the_origin_only() -> None:
    batch = IrregularBatch.build(torch.ones(1, 2, 1), times=[[5.0, 6.5]], t0=4.0, query_times=[[4.5]])
    assert batch.times.tolist() == [[1.0, 2.5]]
    assert batch.deltas.tolist() == [[0.0, 1.5]]
    assert batch.query_times is not None
    assert batch.query_times.tolist() == [[0.5]]


def test_epoch_seconds_keep_their_intervals() -> None:
    stamps = 1_700_000_000 + np.array([[0.0, 0.25, 300.5, 300.75]])
    batch = IrregularBatch.build(np.ones((1, 4, 1)), stamps)
    assert batch.deltas.tolist() == [[0.0, 0.25, 300.25, 0.25]]


def test_series_of_any_length_are_padded() -> None:
    pieces = [([3.0, 3.5, 9.0], torch.ones(3, 2)), ([1.0], torch.ones(1, 2)), ([], torch.ones(0, 2))]
    batch = IrregularBatch.from_series(pieces)
    assert batch.lengths.tolist() == [3, 1, 0]
    assert batch.values.sum(dim=(1, 2)).tolist() == [6.0, 2.0, 0.0]
    assert len(batch) == 3


def test_integers_are_times_and_empty_batches_are_allowed() -> None:
    assert IrregularBatch.build(torch.ones(1, 2, 1), times=np.array([[2, 5]])).deltas.tolist() == [[0.0, 3.0]]
    assert IrregularBatch.build(torch.ones(2, 0, 1), times=torch.ones(2, 0)).deltas.shape == (2, 0)


def test_moving_keeps_everything() -> None:
    batch = irregular_batch(query_times=torch.tensor([1001.0]), targets=torch.ones(4, 2))
    moved = batch.to("cpu")
    assert moved.query_times is not None
    assert moved.targets is not None
    assert moved.targets_observed is None
    assert torch.equal(moved.times, batch.times)
    assert moved.times.dtype == torch.float64


def test_intervals_of_a_batch() -> None:
    batch = IrregularBatch.from_series([([0.0, 1.0, 5.0], torch.ones(3, 1)), ([2.0], torch.ones(1, 1))])
    assert mean_interval(batch).tolist() == [2.5, 0.0]
    assert median_interval([batch]) == 1.0
    assert median_interval([IrregularBatch.from_series([([2.0], torch.ones(1, 1))])]) == 1.0


VALUES, TIMES, LENGTHS = irregular_arrays(B=3, L=5, C=2, seed=0)
GOOD = torch.where(torch.isnan(VALUES), 0.0, VALUES)
SORTED = torch.arange(15.0).reshape(3, 5)


def with_entry(tensor: torch.Tensor, where: tuple[int, ...], value: float) -> torch.Tensor:
    changed = tensor.clone()
    changed[where] = value
    return changed


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"values": GOOD[..., 0]}, r"shape \(B, L, C\).*values\[\.\.\., None\]"),
        ({"times": SORTED[:, :4]}, r"times must have shape \(3, 5\)"),
        ({"times": with_entry(SORTED, (1, 3), 0.5)}, r"series 1 has times\[3\] = 0.5 after 7.0"),
        ({"times": with_entry(SORTED, (2, 0), float("nan"))}, r"finite; series 2 has times\[0\] = nan"),
        ({"values": with_entry(GOOD, (0, 4, 1), float("inf"))}, r"series 0, row 4, channel 1 is inf"),
        ({"observed": torch.ones(3, 5, 2)}, r"observed must be bool.*torch.float32"),
        ({"lengths": [5, 6, 1]}, r"lengths must be 3 numbers from 0 to 5; got \[5, 6, 1\]"),
        ({"t0": [1.0, 2.0]}, "t0 must be one finite number or 3 of them"),
        ({"query_times": torch.ones(2, 4)}, r"query_times must have shape \(3, Q\)"),
        ({"query_times": [float("nan")]}, r"series 0 has query_times\[0\] = nan"),
        ({"targets": torch.ones(2)}, "targets must have 3 rows"),
        ({"targets_observed": torch.ones(3, dtype=torch.bool)}, "shape of targets"),
        ({"targets": torch.ones(3), "targets_observed": torch.ones(3)}, "targets_observed must be bool"),
        ({"observed": np.ones((3, 5, 2), int)}, r"observed must be bool.*torch.int64 \(3, 5, 2\)"),
        ({"static": torch.ones(3)}, r"static must have shape \(3, S\), a row per series; got \(3,\)"),
        (
            {"static": [[1.0], [2.0], [float("nan")]]},
            "static must be finite in torch.float32; series 2, column 0 is nan",
        ),
        ({"lengths": [5, 5]}, r"lengths must be 3 numbers from 0 to 5; got \[5, 5\]"),
        ({"lengths": [5, -1, 1]}, r"got \[5, -1, 1\]"),
        ({"t0": float("nan")}, "t0 must be one finite number or 3 of them; got nan"),
    ],
)
def test_bad_input_is_named(arguments: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        IrregularBatch.build(**{"values": GOOD, "times": SORTED} | arguments)


def test_an_observed_nan_is_refused() -> None:
    with pytest.raises(ValueError, match=r"series 0, row 0, channel 0 is nan"):
        IrregularBatch.build([[[float("nan")]]], [[0.0]], observed=torch.ones(1, 1, 1, dtype=torch.bool))


def test_a_value_that_the_dtype_cannot_hold_is_refused() -> None:
    values = np.ones((2, 3, 2))
    values[1, 2, 0] = -1e39
    says = r"finite in torch.float32; series 1, row 2, channel 0 is -1e\+39. Mark it as not observed.* larger unit"
    with pytest.raises(ValueError, match=says):
        IrregularBatch.build(values, np.arange(3))
    with pytest.raises(ValueError, match=says):
        IrregularBatch.build(values.tolist(), np.arange(3))
    with pytest.raises(ValueError, match=says):
        IrregularBatch.from_series([(np.arange(3), one) for one in values])
    assert IrregularBatch.build(values, np.arange(3), dtype=torch.float64).values[1, 2, 0] == -1e39
    assert IrregularBatch.build(values, np.arange(3), lengths=[3, 2]).values.sum() == 10  # padding does not count
    hidden = IrregularBatch.build(values, np.arange(3), observed=values > 0)
    assert hidden.values[1, 2, 0] == 0
    with pytest.raises(ValueError, match=r"finite in torch.float16; series 0, row 0, channel 0 is 70000"):
        IrregularBatch.build([[[70000]]], [[0]], dtype=torch.float16)
    with pytest.raises(ValueError, match=r"series 0, row 0, channel \[1, 1\] is 1e\+300"):
        IrregularBatch.build([[[[0.0, 1.0], [2.0, 1e300]]]], [[0]])


def test_the_edges_of_float32() -> None:
    largest = float(np.finfo(np.float32).max)
    batch = IrregularBatch.build([[[largest], [-largest], [1e-60]]], [0, 1, 2])
    assert batch.values.flatten().tolist() == [largest, -largest, 0.0]
    with pytest.raises(ValueError, match=r"series 0, row 0, channel 0 is 3.40282357e\+38"):
        IrregularBatch.build([[[3.40282357e38]]], [0])


def test_covariates_that_the_dtype_cannot_hold_are_refused() -> None:
    with pytest.raises(ValueError, match=r"static must be finite in torch.float32; series 0, column 1 is 1e\+39"):
        IrregularBatch.build(np.ones((1, 1, 1)), [[0.0]], static=[[1.0, 1e39]])
    wide = IrregularBatch.build(np.ones((1, 1, 1)), [[0.0]], static=[[1.0, 1e39]], dtype=torch.float64)
    assert wide.static is not None
    assert wide.static.tolist() == [[1.0, 1e39]]


HALF = float(np.finfo(np.float32).max) / 2


@pytest.mark.parametrize(
    ("times", "more", "says"),
    [
        (
            [0.0, 1e39],
            {},
            r"times since the start of a series must not exceed 1.7e\+38; series 0 has times\[1\] = 1e\+39",
        ),
        ([-1e308, 1e308], {}, r"series 0 has times\[1\] = 1e\+308. Drop stamps that stand for missing ones"),
        ([-1e308, 1e308], {"dtype": torch.float64}, r"must not exceed 9e\+307; series 0 has times\[1\]"),
        ([0.0, 1.0], {"t0": -1e39}, r"series 0 has times\[0\] = 0.0"),
        ([0.0, 1.0], {"query_times": [2.0, -1e39]}, r"query_times since .*; series 0 has query_times\[1\] = -1e\+39"),
        ([0.0, 2 * HALF], {}, r"series 0 has times\[1\]"),
        ([-(2**63), 2**63 - 1], {}, r"must not exceed 4.6e\+18; series 0 has times\[1\] = 9223372036854775807"),
        (
            [0.0, 70000.0],
            {"dtype": torch.float16},
            "float16 cannot hold the interval before a row: series 0, row 1, 70000",
        ),
    ],
)
def test_times_too_far_apart_are_refused(times: list[float], more: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        IrregularBatch.build(np.ones((1, 2, 1)), [times], **more)


def test_times_as_far_apart_as_can_be() -> None:
    batch = IrregularBatch.build(np.ones((1, 2, 1)), [[-HALF, HALF]], t0=0.0, query_times=[HALF, -HALF])
    assert torch.isfinite(batch.deltas).all()
    assert IrregularBatch.build(np.ones((1, 2, 1)), [[0.0, 1e39]], dtype=torch.float64).deltas[0, 1] == 1e39
    assert IrregularBatch.build(np.ones((1, 2, 1)), [[0.0, 1e39]], lengths=[1]).times.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("t0", [None, 2**60, float(2**60), np.array([2**60])])
def test_whole_numbers_beyond_float64_keep_their_intervals(t0: object) -> None:
    stamps = np.array([[2**60, 2**60 + 1, 2**60 + 4, 7]])
    batch = IrregularBatch.build(
        np.ones((1, 4, 1)), stamps, lengths=[3], t0=t0, query_times=2**60 + np.array([[3, -1]])
    )
    assert batch.times.tolist() == [[0.0, 1.0, 4.0, 4.0]]
    assert batch.deltas.tolist() == [[0.0, 1.0, 3.0, 0.0]]
    assert batch.query_times is not None
    assert batch.query_times.tolist() == [[3.0, -1.0]]
    assert batch.times.dtype == batch.start.dtype == batch.query_times.dtype == torch.float64


def test_a_start_between_whole_numbers_is_kept() -> None:
    batch = IrregularBatch.build(np.ones((1, 2, 1)), [[1, 3]], t0=0.5, query_times=[2])
    assert batch.times.tolist() == [[0.5, 2.5]]
    assert batch.query_times is not None
    assert batch.query_times.tolist() == [[1.5]]


@pytest.mark.parametrize(
    "odd",
    [
        None, "text", b"bytes", 7, 2.5, True, {"a": 1}, {1, 2}, len, [None], [[None]], [["a"]], [[[Decimal("sNaN")]]],
        [[[10**400]]], [10**400], [[[1j]]], [1j], [[1.0], [1.0, 2.0]], pd.DataFrame({"a": ["x"]}), pd.Series(["x"]),
        np.array(["NaT"], "datetime64[s]"), np.ma.array([[[1.0]]], mask=True), np.ma.array([1.0], mask=True),
        torch.ones(1).to_sparse(), torch.ones(1, device="meta"), torch.tensor([1j]), torch.int64, [float("nan")],
        [np.inf], [[[np.inf]]], [-1], [2.5], np.zeros((1, 1, 1), "V8"),
    ],
)  # fmt: skip
def test_odd_things_get_an_answer_in_our_words(odd: object) -> None:
    good = {"values": np.ones((1, 2, 1)), "times": [[0.0, 1.0]]}
    batch = IrregularBatch.build(**good)
    names = ["values", "times", "observed", "lengths", "t0", "query_times", "static", "targets", "dtype"]
    calls = [lambda name=name: IrregularBatch.build(**good | {name: odd}) for name in names]
    calls += [
        lambda: IrregularBatch.from_series(odd),
        lambda: IrregularBatch.from_series([odd]),
        lambda: IrregularBatch.from_series([(odd, np.ones((2, 1)))]),
        lambda: IrregularBatch.from_series([([0.0, 1.0], odd)]),
        lambda: batch.with_queries(odd),
        lambda: batch.padded(odd),
        lambda: batch.padded(2, targets=odd),
    ]
    refused = 0
    for call in calls:
        try:
            made = call()
        except (ValueError, TypeError) as error:
            refused += 1
            assert is_ours(error), error  # noqa: PT017 - some are taken
        else:
            assert all(torch.isfinite(x).all() for x in (made.values, made.times, made.deltas, made.start))
    assert refused >= 10


def test_a_table_as_values_is_told_its_shape() -> None:
    with pytest.raises(ValueError, match=r"values must have shape \(B, L, C\).* got \(2, 2\)"):
        IrregularBatch.build(pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}), [0.0, 1.0])
    frame = pd.DataFrame({"a": [1.0, float("nan")], "b": [3.0, 4.0]}, index=[0.0, 2.5])
    batch = IrregularBatch.from_series([(frame.index, frame)])
    assert batch.times.tolist() == [[0.0, 2.5]]
    assert batch.observed.tolist() == [[[True, True], [False, True]]]


@pytest.mark.parametrize("lengths", [[2.5], [2.0], [float("nan")], [True], ["2"]])
def test_lengths_are_whole_numbers(lengths: list[object]) -> None:
    with pytest.raises(TypeError, match="lengths must be whole numbers; got"):
        IrregularBatch.build(np.ones((1, 3, 1)), [0.0, 1.0, 2.0], lengths=lengths)


def test_a_batch_does_not_change_with_the_arrays_it_was_made_of() -> None:
    lengths, start, static = np.array([2, 1]), np.array([0.0, 1.0]), np.ones((2, 1), np.float32)
    values, times = np.ones((2, 2, 1), np.float32), np.array([[1.0, 2.0], [1.0, 2.0]])
    batch = IrregularBatch.build(values, times, lengths=lengths, t0=start, static=static)
    kept = batch.to("cpu")
    for array in (lengths, start, static, values, times):
        array[:] = 77
    assert batch.static is not None
    assert batch.lengths.tolist() == [2, 1]
    assert batch.start.tolist() == [0.0, 1.0]
    assert batch.static.flatten().tolist() == [1.0, 1.0]
    assert torch.equal(kept.values, torch.tensor([[[1.0], [1.0]], [[1.0], [0.0]]]))


def test_series_of_different_dtypes_are_not_cut_down_to_the_first() -> None:
    batch = IrregularBatch.from_series([([0], [[1]]), ([0.25, 1.5], [[1.5], [float("nan")]])])
    assert batch.values.flatten().tolist() == [1.0, 0.0, 1.5, 0.0]
    assert batch.observed.flatten().tolist() == [True, False, True, False]
    assert batch.times.tolist() == [[0.0, 0.0], [0.0, 1.25]]


def test_arrays_of_unusual_layout_are_taken() -> None:
    values = np.arange(4.0).reshape(1, 4, 1)
    frozen = values.copy()
    frozen.flags.writeable = False
    for given in (frozen, values.astype(">f8"), values[:, ::-1][:, ::-1], values.astype(np.longdouble)):
        assert IrregularBatch.build(given, np.arange(4)).values.flatten().tolist() == [0.0, 1.0, 2.0, 3.0]


# -- queries


@pytest.mark.parametrize(
    "asked", [[0.5, 2.0], np.array([0.5, 2.0]), torch.tensor([0.5, 2.0]), np.float16([[0.5, 2.0]] * 2)]
)
def test_queries_of_any_array(asked: object) -> None:
    batch = IrregularBatch.build(np.ones((2, 1, 1)), [[3.0], [4.0]]).with_queries(asked)
    assert batch.query_times is not None
    assert batch.query_times.dtype == torch.float64
    assert batch.query_times.tolist() == [[0.5, 2.0], [0.5, 2.0]]
    assert batch.query_times.is_contiguous()
    assert batch.with_queries([1, 2, 3]).query_times.tolist() == [[1.0, 2.0, 3.0]] * 2
    assert batch.with_queries([]).query_times.shape == (2, 0)


@pytest.mark.parametrize(
    ("asked", "kind", "says"),
    [
        ([0.5, float("nan")], ValueError, r"query_times must be finite; series 0 has query_times\[1\] = nan"),
        ([[0.5], [float("-inf")]], ValueError, r"series 1 has query_times\[0\] = -inf"),
        (np.ones((3, 2)), ValueError, r"query_times must have shape \(2, Q\) or \(Q,\); got \(3, 2\)"),
        (np.ones((2, 2, 1)), ValueError, r"got \(2, 2, 1\)"),
        (0.5, ValueError, r"query_times must have shape \(2, Q\) or \(Q,\); got \(\)"),
        ([1e39], ValueError, r"query_times since the start of a series must not exceed 1.7e\+38; series 0"),
        ([True, False], TypeError, "query_times must be numbers; got bool"),
        ([["a"], ["b"]], TypeError, "query_times must be numbers; got <U1"),
        (None, TypeError, "query_times must be numbers; got object, such as None"),
    ],
)
def test_bad_queries_are_refused(asked: object, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        IrregularBatch.build(np.ones((2, 1, 1)), [[3.0], [4.0]]).with_queries(asked)


def empty_and_full(origin: float, **more: object) -> IrregularBatch:
    """A series of three rows and one of none, asked at four times."""
    times = torch.tensor([[0.0, 0.5, 2.0], [7.0, 8.0, 9.0]]) + origin
    asked = torch.tensor([[0.25, 1.0, 3.0, 0.0], [0.5, 4.0, 1.0, 0.0]]).double() + origin
    values = torch.randn(2, 3, 2, generator=torch.Generator().manual_seed(0))
    return IrregularBatch.build(values, times.double(), lengths=[3, 0], query_times=asked, dtype=torch.float64, **more)


@pytest.mark.parametrize("embedding", ["sinusoidal", "relative"])
@pytest.mark.parametrize("causal", [False, True])
def test_an_empty_series_does_not_depend_on_the_origin_or_on_other_queries(embedding: str, causal: bool) -> None:
    config = LFormerConfig(
        inputs=2, outputs=3, width=16, heads=2, answer="query", time_embedding=embedding, causal=causal
    )
    model = LFormer(config).double()
    here, there = model(empty_and_full(0.0)), model(empty_and_full(1000.0))
    assert relative_error(there, here) < 1e-9
    batch = empty_and_full(1000.0)
    assert batch.query_times is not None
    assert batch.query_times[1].tolist() == [0.0] * 4  # there is nothing to count from
    fewer = model(batch.with_queries(batch.query_times[:, 1:2]))
    assert relative_error(fewer, here[:, 1:2]) < 1e-9


def test_an_empty_series_with_a_start_is_asked_since_then() -> None:
    for origin in (0.0, 1000.0):
        batch = empty_and_full(origin, t0=origin - 1)
        assert batch.query_times is not None
        assert batch.query_times[1].tolist() == [1.5, 5.0, 2.0, 1.0]
        assert batch.times[1].tolist() == [0.0] * 3


# -- some of the series, more padding


def test_some_series_of_a_batch() -> None:
    batch = irregular_batch(B=4, targets=torch.arange(4.0))
    for index, expected in (
        (slice(1, 3), [1, 2]),
        ([3, 0, -1], [3, 0, 3]),
        (np.array([2], np.uint8), [2]),
        (torch.tensor([True, False, False, True]), [0, 3]),
        (np.array([], int), []),
    ):
        some = batch[index]
        assert some.targets is not None
        assert some.targets.tolist() == expected
        assert torch.equal(some.values, batch.values[expected])


@pytest.mark.parametrize(
    ("index", "kind", "says"),
    [
        (1, TypeError, r"series are taken by slice, positions or mask, as in batch\[2:3\]; got 1"),
        ([[0]], TypeError, "series are taken by slice"),
        ([0.5], TypeError, "which series to take must be positions or mask; got float64"),
        ("a", TypeError, "positions or mask"),
        ((0, 1), None, ""),
        ([0, 4], IndexError, r"there are 4 series; got positions \[0, 4\]"),
        ([-5], IndexError, "there are 4 series"),
        ([True, False], IndexError, "there are 4 series; got a mask of 2"),
    ],
)
def test_what_is_no_index_of_a_batch_is_refused(index: object, kind: type[Exception] | None, says: str) -> None:
    batch = irregular_batch(B=4)
    if kind is None:
        assert len(batch[index]) == 2
        return
    with pytest.raises(kind, match=says):
        batch[index]


def test_medians_of_nothing() -> None:
    nothing = IrregularBatch.build(torch.zeros(2, 0, 3), torch.zeros(2, 0))
    assert mean_interval(nothing).tolist() == [0.0, 0.0]
    for batches in ([], [nothing]):
        assert median_interval(batches) == 1.0
        assert median_span(batches) == 0.0
    assert median_span([nothing, irregular_batch(B=1)]) > 0


def test_calendar_stamps_ask_for_a_unit() -> None:
    stamps = np.array([["2020-01-01", "2020-01-02"]], dtype="datetime64[s]")
    with pytest.raises(TypeError, match="timedelta64"):
        IrregularBatch.build(np.ones((1, 2, 1)), stamps)
    with pytest.raises(TypeError, match="must be numbers"):
        IrregularBatch.build(np.ones((1, 2, 1)), [["a", "b"]])


def test_bad_series_are_named() -> None:
    good = ([0.0, 1.0], torch.ones(2, 3))
    with pytest.raises(ValueError, match=r"series 1 must be a pair.*\(2,\) and \(3, 3\)"):
        IrregularBatch.from_series([good, ([0.0, 1.0], torch.ones(3, 3))])
    with pytest.raises(ValueError, match="series 1 has"):
        IrregularBatch.from_series([good, ([0.0, 1.0], torch.ones(2, 4))])
    with pytest.raises(ValueError, match="empty list"):
        IrregularBatch.from_series([])
    with pytest.raises(
        ValueError, match=r"series 1 must be a pair of times \(L,\) and values \(L, C\); got \[1, 2, 3\]"
    ):
        IrregularBatch.from_series([good, [1, 2, 3]])
    with pytest.raises(ValueError, match="series 0 must be a pair"):
        IrregularBatch.from_series(np.ones((2, 3)))
    with pytest.raises(TypeError, match="values of series 1 must be numbers; got object, such as None"):
        IrregularBatch.from_series([good, ([0.0, 1.0], None)])
    assert len(IrregularBatch.from_series(one for one in [good, good])) == 2


@pytest.mark.parametrize("at", ["series", "step", "query"])
def test_more_padding_changes_no_answer_and_no_loss(at: str) -> None:
    model = LFormer(LFormerConfig(inputs=2, outputs=3, width=16, heads=2, answer=at)).double()
    generator = torch.Generator().manual_seed(0)
    batch = irregular_batch(B=3, L=11, C=2)
    if at == "query":
        batch = batch.with_queries(torch.rand(3, 5, generator=generator) * 300)
    shape = {"series": (3, 3), "step": (3, 11, 3), "query": (3, 5, 3)}[at]
    seen = None if at == "series" else torch.rand(shape, generator=generator) > 0.4
    batch = replace(batch, targets=torch.randn(shape, generator=generator), targets_observed=seen, targets_given=seen)
    longer = batch.padded(16, 8, at)
    assert longer.values.shape == (3, 16, 2)
    assert torch.equal(longer.valid[:, :11], batch.valid)
    assert not longer.valid[:, 11:].any()
    assert torch.equal(longer.times[:, 11:], batch.times[:, -1:].expand(3, 5))
    if longer.query_times is not None:
        assert torch.equal(longer.query_times[:, 5:], batch.query_times[:, -1:].expand(3, 3))
    expected, answer = model(batch), model(longer)
    cut = answer if at == "series" else answer[:, : shape[1]]
    assert relative_error(cut, expected) < 1e-12
    loss = [metrics.mean_loss(metrics.squared(model(b), b.targets), b) for b in (batch, longer)]
    assert relative_error(loss[1], loss[0]) < 1e-12


def test_padding_keeps_what_needs_none_and_refuses_less() -> None:
    batch = irregular_batch(L=7, targets=torch.ones(4))
    same = batch.padded(7, 9)
    assert same.query_times is None
    assert same.targets is batch.targets
    assert same.targets_observed is None
    for name in ("values", "times", "deltas", "observed", "lengths", "start"):
        assert getattr(same, name) is getattr(batch, name)
    nothing = IrregularBatch.build(torch.zeros(2, 0, 3), torch.zeros(2, 0)).padded(4)
    assert nothing.times.tolist() == [[0.0] * 4] * 2
    with pytest.raises(ValueError, match="7 rows and 0 queries cannot be padded to 6 and 0, which is less"):
        batch.padded(6)
    with pytest.raises(TypeError, match=r"rows must be a whole number; got 8\.5"):
        batch.padded(8.5)
    with pytest.raises(ValueError, match="targets must be one of series, step, query; got 'rows'"):
        batch.padded(8, targets="rows")
    with pytest.raises(ValueError, match="7 rows and 2 queries cannot be padded to 7 and 1, which is less"):
        batch.with_queries(torch.ones(4, 2)).padded(7, 1)


def test_targets_that_all_counted_count_as_before_when_rows_are_added() -> None:
    batch = irregular_batch(L=7, targets=torch.ones(4, 7, 2)).padded(9, targets="step")
    assert batch.targets_observed is not None
    assert batch.targets_observed[:, :7].all()
    assert not batch.targets_observed[:, 7:].any()
