"""Neighbours of a row: a plain convolution on a regular grid, real intervals elsewhere, and nothing from the future."""

from typing import Any

import numpy as np
import pytest
import torch
from helpers import relative_error
from no_look import NoLook
from torch import Tensor

from lformer import IrregularBatch, LFormer, LFormerClassifier, LFormerConfig
from lformer.nn.neighbours import REACH, WIDE, offsets
from lformer.nn.rows import RowEncoder
from lformer.ops.checks import skip_value_checks

NAN = float("nan")


def encoder(C: int, neighbours: int, causal: bool = False, interval: float = 1.0) -> RowEncoder:
    made = RowEncoder(C, "carried", neighbours=neighbours, causal=causal).double()
    made.interval.fill_(interval)
    return made


def around(values: Tensor, times: Tensor, neighbours: int, causal: bool = False, interval: float = 1.0) -> Tensor:
    """(B, L, K, C) what rows show of their neighbours."""
    batch = IrregularBatch.build(values, times, dtype=torch.float64)
    C = values.shape[-1]
    rows = encoder(C, neighbours, causal, interval)(batch).rows
    K = len(offsets(neighbours, causal))
    return rows[..., -K * C :].unflatten(-1, (K, C))


def test_on_a_regular_grid_they_are_the_neighbouring_rows() -> None:
    values = torch.randn(2, 12, 3, dtype=torch.float64)
    shown = around(values, torch.arange(12.0), 2)
    for k, offset in enumerate(offsets(2, causal=False)):
        inside = range(max(0, -offset), min(12, 12 - offset))
        for n in inside:
            assert torch.allclose(shown[:, n, k], values[:, n + offset] - values[:, n])
        outside = sorted(set(range(12)) - set(inside))
        assert bool((shown[:, outside, k] == 0).all())


def test_a_linear_map_over_them_is_a_convolution() -> None:
    values = torch.randn(1, 30, 2, dtype=torch.float64)
    shown = around(values, torch.arange(30.0), 2)
    weight = torch.randn(1, 2, 5, dtype=torch.float64)
    expected = torch.nn.functional.conv1d(values.transpose(1, 2), weight)[0, 0]  # rows 2 to 27
    side = weight[0][:, [0, 1, 3, 4]]
    found = torch.einsum("lkc,ck->l", shown[0], side) + values[0] @ weight[0].sum(dim=1)
    assert relative_error(found[2:-2], expected) < 1e-12


def slowly(values: Tensor, times: Tensor, offset: float, n: int, c: int, causal: bool) -> float:
    """One entry from the definition, for a single series (L, C)."""
    upto = n + 1 if causal else len(times)
    seen = [i for i in range(upto) if not torch.isnan(values[i, c])]
    latest = [i for i in seen if i <= n]
    now = float(values[latest[-1], c]) if latest else 0.0
    at = float(times[n]) + offset
    if causal and n >= REACH - 1:  # further back than that it does not look
        at = max(at, float(times[n - REACH + 1]))
    before = [i for i in seen if float(times[i]) <= at]
    after = [i for i in seen if float(times[i]) > at]
    if before and float(times[before[-1]]) == at:
        return float(values[before[-1], c]) - now
    if not before or not after:
        return 0.0
    i, j = before[-1], after[0]
    way = (at - float(times[i])) / (float(times[j]) - float(times[i]))
    return float(values[i, c]) + way * float(values[j, c] - values[i, c]) - now


@pytest.mark.parametrize("causal", [False, True])
def test_uneven_times_and_missing_values_are_read_off_the_line(causal: bool) -> None:
    torch.manual_seed(1)
    L, C = 40, 2
    values = torch.randn(1, L, C, dtype=torch.float64)
    values[torch.rand(values.shape) < 0.4] = NAN
    times = (torch.rand(1, L, dtype=torch.float64) ** 3 * 2).cumsum(dim=1)
    shown = around(values, times, 3, causal, interval=0.7)
    steps = offsets(3, causal)
    interval = float(torch.tensor(0.7, dtype=torch.float64))
    for n in range(L):
        for k, offset in enumerate(steps):
            for c in range(C):
                expected = slowly(values[0], times[0], offset * interval, n, c, causal)
                assert abs(float(shown[0, n, k, c]) - expected) < 1e-9, (n, offset, c)


def test_those_of_a_long_dense_series_spread_over_it() -> None:
    torch.manual_seed(3)
    L = 300
    values = torch.randn(1, L, 2, dtype=torch.float64)
    values[torch.rand(values.shape) < 0.3] = NAN
    times = (torch.rand(1, L, dtype=torch.float64) * 0.2).cumsum(dim=1)
    made = encoder(2, 4, interval=0.1)
    made.span.fill_(0.1 * 27 * WIDE)
    shown = made(IrregularBatch.build(values, times, dtype=torch.float64)).rows[..., -16:].unflatten(-1, (8, 2))
    apart = [0.1 * k for k in (1, 3, 9, 27)]
    for n in range(0, L, 23):
        for k, offset in enumerate([*(-d for d in reversed(apart)), *apart]):
            for c in range(2):
                expected = slowly(values[0], times[0], offset, n, c, causal=False)
                assert abs(float(shown[0, n, k, c]) - expected) < 1e-6, (n, offset, c)  # `interval` is float32 rounded


@pytest.mark.parametrize(("causal", "persistence"), [(True, "none"), (False, "line")])
def test_streams_and_answers_from_the_line_keep_to_whole_intervals(causal: bool, persistence: str) -> None:
    torch.manual_seed(4)
    values, times = torch.randn(1, 50, 1, dtype=torch.float64), torch.rand(1, 50, dtype=torch.float64).cumsum(dim=1)
    batch = IrregularBatch.build(values, times, dtype=torch.float64)
    made = RowEncoder(1, "carried", persistence=persistence, neighbours=3, causal=causal).double()
    made.span.fill_(1.0)
    short = made(batch).rows[..., -3:]
    made.span.fill_(1000.0)
    assert torch.equal(made(batch).rows[..., -3:], short)


def streaming(neighbours: int = 3) -> LFormer:
    torch.manual_seed(0)
    config = LFormerConfig(
        inputs=2, outputs=2, rows="carried", neighbours=neighbours, causal=True, gate_norm="prefix", width=16, heads=2,
    )  # fmt: skip
    return LFormer(config).double().requires_grad_(False).eval()


def ragged() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(2)
    values = torch.randn(4, 50, 2, dtype=torch.float64)
    values[torch.rand(values.shape) < 0.4] = NAN
    gaps = torch.rand(4, 50, dtype=torch.float64) ** 4  # many rows within one typical interval, so `REACH` counts
    return values, gaps.cumsum(dim=1), torch.tensor([50, 33, 1, 17])


def test_whole_pieces_and_steps_agree() -> None:
    model, (values, times, lengths) = streaming(), ragged()
    model.rows.interval.fill_(1.5)
    batch = IrregularBatch.build(values, times, lengths=lengths, dtype=torch.float64)
    whole = model(batch)
    state = model.init_state(1)
    for n in range(50):
        delta = times[:1, n] - times[:1, n - 1] if n else torch.zeros(1, dtype=torch.float64)
        answer, state = model.step(values[:1, n], delta, state)
    assert relative_error(answer, whole[:1]) < 1e-12
    carried = None
    for start, stop in ((0, 7), (7, 8), (8, 50)):
        piece = IrregularBatch.build(
            values[:, start:stop], times[:, start:stop], lengths=(lengths - start).clamp(0, stop - start),
            t0=times[:, 0], dtype=torch.float64,
        )  # fmt: skip
        last, carried = model(piece, carried, return_state=True)
    assert relative_error(last, whole) < 1e-12


@pytest.mark.parametrize("causal", [False, True])
def test_padding_order_and_origin_change_nothing(causal: bool) -> None:
    values, times, lengths = ragged()
    rows = encoder(2, 3, causal)
    alone = [
        rows(IrregularBatch.build(values[i : i + 1, :n], times[i : i + 1, :n] + 1000, dtype=torch.float64)).rows[0]
        for i, n in enumerate(lengths.tolist())
    ]
    order = torch.tensor([2, 0, 3, 1])
    batch = IrregularBatch.build(values[order], times[order], lengths=lengths[order], dtype=torch.float64)
    together = rows(batch.padded(60)).rows
    for place, i in enumerate(order.tolist()):
        assert torch.allclose(together[place, : lengths[i]], alone[i], atol=1e-9)


def test_no_future_reaches_a_causal_row() -> None:
    values, times, _ = ragged()
    changed = values.clone()
    changed[:, 30:] = 100.0
    before, after = (around(v, times, 3, causal=True)[:, :30] for v in (values, changed))
    assert torch.equal(before, after)


def test_nor_does_a_later_row_of_the_same_stamp() -> None:
    times = torch.tensor([[0.0, 1.0, 1.0]], dtype=torch.float64)
    found = [
        around(torch.tensor([[[1.0], [NAN], [last]]], dtype=torch.float64), times, 1, causal=True, interval=0.5)[0, 1]
        for last in (5.0, -5.0)
    ]
    assert torch.equal(*found)


@pytest.mark.parametrize(("neighbours", "rows"), [(-1, "carried"), (3, "values")])
def test_what_makes_no_sense_is_refused(neighbours: int, rows: str) -> None:
    with pytest.raises(ValueError, match='neighbours must be at least 0, and 0 unless rows="carried"'):
        LFormerConfig(inputs=1, outputs=1, neighbours=neighbours, rows=rows)  # type: ignore[arg-type]


def test_queries_show_theirs_beside_the_line() -> None:
    """On the line between observations, around the time asked for, compared with the line there."""
    torch.manual_seed(3)
    L, K, interval = 30, 2, 0.5
    values = torch.randn(1, L, 1, dtype=torch.float64)
    times = (torch.rand(1, L, dtype=torch.float64) * 2).cumsum(dim=1)
    times = times - times[:, :1]
    asked = torch.rand(1, 12, dtype=torch.float64) * (times[0, -1] + 3)
    encoder = RowEncoder(1, "carried", persistence="line", neighbours=K).double()
    encoder.interval.fill_(interval)
    batch = IrregularBatch.build(values, times, dtype=torch.float64).with_queries(asked)
    shown = encoder.queries(batch, encoder(batch))[0, :, -2 * K :]
    clock, known = times[0].numpy(), values[0, :, 0].numpy()
    for n, moment in enumerate(asked[0].tolist()):
        level = np.interp(moment, clock, known)
        for k, step in enumerate(offsets(K, causal=False)):
            at = moment + step * interval
            inside = clock[0] <= at <= clock[-1]
            expected = np.interp(at, clock, known) - level if inside else 0.0
            assert abs(float(shown[n, k]) - expected) < 1e-9, (n, step)


def test_answers_from_the_latest_value_do_not_become_the_line_to_the_next() -> None:
    """Neighbours read the future; where answers start from is another question."""
    values, times = torch.tensor([[[1.0], [5.0]]]).double(), torch.tensor([[0.0, 2.0]]).double()
    batch = IrregularBatch.build(values, times, dtype=torch.float64).with_queries(torch.tensor([[1.0]]).double())
    config = LFormerConfig(
        inputs=1, outputs=1, answer="query", rows="carried", neighbours=2, persistence="latest", width=8, heads=2
    )
    with torch.no_grad():
        assert float(LFormer(config).double().eval()(batch)) == 1.0


@pytest.mark.parametrize("given", ["4", -1, 2.5, "many"])
def test_an_estimator_names_a_number_of_neighbours_that_is_none(given: Any) -> None:
    with pytest.raises(ValueError, match='neighbours must be "auto" or a whole number of at least 0; got'):
        LFormerClassifier(neighbours=given).fit(np.zeros((4, 5)), [0, 1, 0, 1])


@pytest.mark.parametrize(("channels", "expected"), [(16, 4), (17, 0)])
def test_of_many_channels_rows_show_none(channels: int, expected: int) -> None:
    X = np.random.default_rng(0).normal(size=(8, 5, channels))
    fitted = LFormerClassifier(width=8, heads=2, depth=1, max_epochs=1, random_state=0).fit(X, np.arange(8) % 2)
    assert fitted.model_.config.neighbours == expected


@pytest.mark.parametrize("causal", [False, True])
def test_a_recordable_step_brings_no_numbers_along(causal: bool) -> None:
    config = LFormerConfig(
        inputs=2, outputs=1, rows="carried", neighbours=4, causal=causal, gate_norm="prefix" if causal else "sequence",
        width=8, heads=2,
    )  # fmt: skip
    values = torch.randn(3, 20, 2)
    values[:, ::3, 0] = NAN
    batch = IrregularBatch.build(values, torch.rand(3, 20).cumsum(1), lengths=torch.tensor([20, 7, 12]))
    model = LFormer(config)
    with skip_value_checks(), NoLook():
        model(batch).sum().backward()
