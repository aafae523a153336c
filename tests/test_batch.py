"""IrregularBatch: what it keeps, what it fills in, and what it refuses."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import irregular_arrays, irregular_batch, relative_error

from lformer import IrregularBatch, LFormer, LFormerConfig, metrics
from lformer.batch import mean_interval, median_interval


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
        ({"times": with_entry(SORTED, (1, 3), 0.5)}, r"row 1 has times\[3\] = 0.5 after 7.0"),
        ({"times": with_entry(SORTED, (2, 0), float("nan"))}, r"finite; row 2 has times\[0\] = nan"),
        ({"values": with_entry(GOOD, (0, 4, 1), float("inf"))}, r"series 0, row 4, channel 1 is inf"),
        ({"observed": torch.ones(3, 5, 2)}, r"observed must be bool.*torch.float32"),
        ({"lengths": [5, 6, 1]}, r"lengths must be 3 numbers from 0 to 5; got \[5, 6, 1\]"),
        ({"t0": [1.0, 2.0]}, "t0 must be one finite number or 3 of them"),
        ({"query_times": torch.ones(2, 4)}, r"query_times must have shape \(3, Q\)"),
        ({"query_times": [float("nan")]}, r"row 0 has query_times\[0\] = nan"),
        ({"targets": torch.ones(2)}, "targets must have 3 rows"),
        ({"targets_observed": torch.ones(3, dtype=torch.bool)}, "shape of targets"),
    ],
)
def test_bad_input_is_named(arguments: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        IrregularBatch.build(**{"values": GOOD, "times": SORTED} | arguments)


def test_an_observed_nan_is_refused() -> None:
    with pytest.raises(ValueError, match=r"series 0, row 0, channel 0 is nan"):
        IrregularBatch.build([[[float("nan")]]], [[0.0]], observed=torch.ones(1, 1, 1, dtype=torch.bool))


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
    with pytest.raises(ValueError, match="7 rows and 2 queries cannot be padded to 7 and 1, which is less"):
        batch.with_queries(torch.ones(4, 2)).padded(7, 1)


def test_targets_that_all_counted_count_as_before_when_rows_are_added() -> None:
    batch = irregular_batch(L=7, targets=torch.ones(4, 7, 2)).padded(9, targets="step")
    assert batch.targets_observed is not None
    assert batch.targets_observed[:, :7].all()
    assert not batch.targets_observed[:, 7:].any()
