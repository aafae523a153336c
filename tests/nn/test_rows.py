"""The rows a model reads: by hand, in one piece, in pieces and one by one, exported and transformed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import irregular_arrays, relative_error
from torch import Tensor, nn

from lformer import IrregularBatch, LFormer, LFormerConfig
from lformer.nn.rows import RowEncoder, fit_clock

KINDS = pytest.mark.parametrize("rows", ["values", "observed", "carried"])
NAN = float("nan")
TIGHT = 1e-10


def two_series() -> IrregularBatch:
    """Uneven times, missing values, a channel that one series never has."""
    return IrregularBatch.from_series(
        [
            ([10.0, 11.0, 14.0], torch.tensor([[1.0, NAN], [NAN, 6.0], [3.0, NAN]])),
            ([0.0, 2.0], torch.tensor([[NAN, NAN], [5.0, NAN]])),
        ],
        dtype=torch.float64,
    )


def encoder(kind: Any, statics: int = 0) -> RowEncoder:
    made = RowEncoder(2, kind, statics).double()
    if kind != "values":
        bounds = torch.tensor([2.0, -9.0]), torch.tensor([9.0, 9.0])
        made.set_scale(torch.tensor([1.0, 2.0]), torch.tensor([2.0, 4.0]), *bounds)
    return made


def test_values_are_as_they_come() -> None:
    batch = two_series()
    rows, known, *_ = encoder("values")(batch)
    assert rows is batch.values
    assert known is None


def test_observed_rows_hold_scaled_values_and_what_was_observed() -> None:
    rows = encoder("observed")(two_series()).rows
    assert rows.shape == (2, 3, 4)
    assert rows[0].tolist() == [[0.5, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]]  # 1 counts as its bound, 2
    assert rows[1, :2].tolist() == [[0, 0, 0, 0], [2, 0, 1, 0]]


def test_carried_rows_hold_latest_value_fresh_age_and_pace() -> None:
    batch, made = two_series(), encoder("carried")
    fit_clock(made, [batch])
    assert (float(made.interval), float(made.span)) == (2.0, 2.0)  # the medians of 1, 3, 2 and of 4, 2
    made.span.fill_(3.0)
    rows, known, *_ = made(batch)
    assert rows.shape == (2, 3, made.width) == (2, 3, 3 * 2 + 2)
    assert rows[0, :, :2].tolist() == [[0.5, 0], [0.5, 1], [1, 1]]
    assert rows[1, :2, :2].tolist() == [[0, 0], [2, 0]]
    assert rows[0, :, 2:4].tolist() == [[1, 0], [0, 1], [1, 0]]
    age = torch.tensor([[0.0, 3], [1, 0], [0, 3], [3, 3], [0, 5]]).double()
    found = torch.cat([rows[0, :, 4:6], rows[1, :2, 4:6]])
    torch.testing.assert_close(found, torch.log1p(age / 2) / torch.log1p(torch.tensor(1.5).double()))
    pace = torch.tensor([[0.0, 0], [1, 1], [3, 4], [0, 0], [2, 2]]).double()
    torch.testing.assert_close(torch.cat([rows[0, :, 6:], rows[1, :2, 6:]]), torch.log1p(pace / 2))
    assert known is not None
    assert known.seen[0].tolist() == [[0, 0], [1, 0], [1, 1], [2, 1]]
    assert known.mean[0, 3].tolist() == [0.75, 1]
    assert known.time[0, 3].tolist() == [4, 1]


def test_a_query_holds_what_was_known_then_where_answers_start_from_it() -> None:
    batch = two_series()
    empty = encoder("carried")
    asked = batch.with_queries(torch.tensor([[1.5, 4.0, -1.0], [9.0, 0.0, 2.0]]))
    assert not empty.queries(asked, empty(asked)).any()
    made = RowEncoder(2, "carried", persistence="latest").double()
    made.set_scale(*(getattr(empty, name) for name in ("shift", "scale", "low", "high")))
    made.interval.fill_(2.0)
    made.span.fill_(3.0)
    asked = batch.with_queries(torch.tensor([[1.5, 4.0, -1.0], [9.0, 0.0, 2.0]]))
    rows = made.queries(asked, made(asked))
    assert rows.shape == (2, 3, 8)
    assert rows[0, :, :2].tolist() == [[0.5, 1], [1, 1], [0, 0]]
    assert not rows[:, :, 2:4].any()  # nothing is fresh
    age = torch.tensor([[1.5, 0.5], [0, 3], [3, 3]]).double()  # what was never observed is older than a typical series
    torch.testing.assert_close(rows[0, :, 4:6], torch.log1p(age / 2) / torch.log1p(torch.tensor(1.5).double()))
    pace = torch.tensor([[0.5, 1.5], [0, 4], [0, 0]]).double()
    torch.testing.assert_close(rows[0, :, 6:], torch.log1p(pace / 2))


def test_where_the_future_may_be_read_rows_also_hold_the_next_value_and_how_far_it_is() -> None:
    batch = two_series()
    made = RowEncoder(2, "carried", persistence="line").double()
    made.interval.fill_(2.0)
    made.span.fill_(3.0)
    asked = batch.with_queries(torch.tensor([[1.5, 4.0, -1.0], [9.0, 0.0, 1.0]]))
    encoded = made(asked)
    assert encoded.rows.shape[-1] == made.width == 5 * 2 + 2
    assert encoded.rows[0, :, 8:10].tolist() == [[3, 6], [3, 0], [0, 0]]
    assert encoded.rows[1, :2, 8:10].tolist() == [[5, 0], [0, 0]]

    def spans(*until: list[float]) -> Tensor:
        return torch.log1p(torch.tensor(until).double() / 2) / torch.log1p(torch.tensor(1.5).double())

    torch.testing.assert_close(encoded.rows[0, :, 10:], spans([4, 1], [3, 3], [3, 3]))  # a span where none will come
    rows = made.queries(asked, encoded)
    assert rows[0, :, 8:10].tolist() == [[3, 0], [0, 0], [1, 6]]
    torch.testing.assert_close(rows[0, :, 10:], spans([2.5, 3], [3, 3], [1, 2]))
    torch.testing.assert_close(rows[1, :, 10:], spans([3, 3], [2, 3], [1, 3]))


def test_covariates_stand_behind_every_row_and_query() -> None:
    batch = two_series().with_queries(torch.tensor([[1.0], [1.0]]))
    batch = IrregularBatch(**{**vars(batch), "static": torch.tensor([[7.0], [8.0]]).double()})
    for kind in ("values", "observed", "carried"):
        made = encoder(kind, statics=1)
        encoded = made(batch)
        assert encoded.rows.shape[-1] == made.width
        for part in (encoded.rows, made.queries(batch, encoded)):
            assert (part[..., -1] == batch.static[:, :1]).all()  # type: ignore[index]


def streaming(rows: str, answer: str = "step", **change: Any) -> LFormer:
    torch.manual_seed(0)
    persistence = "none" if answer == "series" else "latest"
    config = {"rows": rows, "persistence": persistence, "statics": 2, "time_embedding": "relative"} | change
    made: Any = {
        "inputs": 3,
        "outputs": 3,
        "answer": answer,
        "width": 8,
        "causal": True,
        "gate_norm": "prefix",
    } | config
    model = LFormer(LFormerConfig(**made)).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    model.rows.interval.fill_(2.5)
    model.rows.span.fill_(40.0)
    if rows != "values":
        model.rows.set_scale(torch.ones(3), torch.full((3,), 2.0), torch.full((3,), -1.5), torch.full((3,), 1.5))
    return model


def series(B: int = 3, L: int = 14, seed: int = 1) -> dict[str, Tensor]:
    values, times, lengths = irregular_arrays(B, L, 3, seed)
    g = torch.Generator().manual_seed(seed)
    return {"values": values, "times": times, "lengths": lengths, "static": torch.randn(B, 2, generator=g).double()}


@KINDS
@pytest.mark.parametrize("answer", ["series", "step"])
def test_whole_series_pieces_and_single_rows_agree(rows: str, answer: str) -> None:
    model, made = streaming(rows, answer), series()
    batch = IrregularBatch.build(**made, dtype=torch.float64)
    whole, end = model(batch, return_state=True)

    state, pieces = None, []
    for begin, stop in ((0, 5), (5, 6), (6, 6), (6, 14)):
        lengths = (made["lengths"] - begin).clamp(0, stop - begin)
        piece = IrregularBatch.build(
            made["values"][:, begin:stop], made["times"][:, begin:stop], lengths=lengths, t0=made["times"][:, 0],
            static=made["static"], dtype=torch.float64,
        )  # fmt: skip
        y, state = model(piece, state=state, return_state=True)
        pieces.append(y)
    joined = pieces[-1] if answer == "series" else torch.cat(pieces, dim=1)
    valid = (
        torch.ones_like(joined, dtype=torch.bool) if answer == "series" else batch.valid[..., None].expand_as(joined)
    )
    assert relative_error(joined[valid], whole[valid]) < TIGHT
    assert state is not None
    known, expected = state.known, end.known
    assert (known is None) == (expected is None)
    if known is not None and expected is not None:
        never = torch.isinf(expected.time)
        assert torch.equal(never, torch.isinf(known.time))
        for one, other in zip(known, expected, strict=True):
            assert relative_error(one.masked_fill(never, 0), other.masked_fill(never, 0)) < TIGHT

    for b, n in enumerate(made["lengths"].tolist()):
        state = model.init_state(1, made["static"][b : b + 1])
        for row in range(n):
            values = batch.values[b : b + 1, row].masked_fill(~batch.observed[b : b + 1, row], NAN)
            y, state = model.step(values, batch.deltas[b : b + 1, row], state)
            if answer == "step":
                assert relative_error(y[0], whole[b, row]) < TIGHT
        assert relative_error(y, whole[b : b + 1] if answer == "series" else whole[b : b + 1, n - 1]) < TIGHT


@KINDS
def test_queries_agree_in_pieces(rows: str) -> None:
    model, made = streaming(rows, "query"), series()
    asked = made["times"][:, -1:] + torch.tensor([0.5, 3.0])
    whole = model(IrregularBatch.build(**made, query_times=asked, dtype=torch.float64))
    state: Any = None
    for begin, stop in ((0, 6), (6, 14)):
        piece = IrregularBatch.build(
            made["values"][:, begin:stop], made["times"][:, begin:stop],
            lengths=(made["lengths"] - begin).clamp(0, stop - begin), t0=made["times"][:, 0], query_times=asked,
            static=made["static"], dtype=torch.float64,
        )  # fmt: skip
        y, state = model(piece, state=state, return_state=True)
    assert relative_error(y, whole) < TIGHT


@KINDS
@pytest.mark.parametrize("persistence", ["latest", "line"])
def test_an_exported_model_takes_raw_observations_of_any_length(rows: str, persistence: str) -> None:
    causal = {"causal": False, "gate_norm": "sequence"} if persistence == "line" else {}
    model = streaming(rows, persistence=persistence, **causal).eval()

    class Raw(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, values: Tensor, times: Tensor, lengths: Tensor, static: Tensor) -> Tensor:
            observed = ~torch.isnan(values)
            batch = IrregularBatch(
                values=torch.where(observed, values, 0.0), times=times, deltas=torch.diff(times, prepend=times[:, :1]),
                observed=observed, lengths=lengths, start=times[:, 0], static=static,
            )  # fmt: skip
            return self.model(batch)

    def raw(B: int, L: int, seed: int) -> tuple[Tensor, ...]:
        values, times, _ = irregular_arrays(B, L, 3, seed)
        return values, times - times[:, :1], torch.full((B,), L), torch.ones(B, 2).double()

    B, L = torch.export.Dim("B", min=2), torch.export.Dim("L", min=2)
    shapes = {"values": {0: B, 1: L}, "times": {0: B, 1: L}, "lengths": {0: B}, "static": {0: B}}
    exported = torch.export.export(Raw(), raw(3, 14, 0), dynamic_shapes=shapes).module()
    for size, length, seed in ((3, 14, 0), (5, 9, 1), (2, 31, 2)):
        given = raw(size, length, seed)
        assert relative_error(exported(*given), Raw()(*given)) < TIGHT


@KINDS
def test_gradients_by_transform_are_those_of_autograd(rows: str) -> None:
    model, batch = streaming(rows), IrregularBatch.build(**series(), dtype=torch.float64)
    weights = dict(model.named_parameters())

    def loss(weights: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(model, weights, (batch,)).sin().sum()

    found = torch.func.grad(loss)({name: w.detach() for name, w in weights.items()})
    known = dict(zip(weights, torch.autograd.grad(loss(weights), list(weights.values())), strict=True))
    largest = max(float(g.abs().max()) for g in known.values())
    for name, gradient in found.items():
        assert float((gradient - known[name]).abs().max()) < TIGHT * largest, name


def test_values_far_from_zero_keep_their_digits_until_they_are_scaled() -> None:
    made = RowEncoder(1, "observed")
    made.set_scale(torch.tensor([1e9]), torch.tensor([1.0]), torch.tensor([0.0]), torch.tensor([2e9]))
    values = torch.tensor([[[1e9 + 0.25], [1e9 + 3.0]]], dtype=torch.float64)
    rows, *_ = made(IrregularBatch.build(values, [[0.0, 1.0]], dtype=torch.float64))
    assert rows.dtype == torch.float32
    assert rows[0, :, 0].tolist() == [0.25, 3.0]


def test_a_batch_with_other_channels_or_covariates_is_refused() -> None:
    batch = two_series()
    with pytest.raises(ValueError, match=r"built for rows of shape \(3,\); got \(2,\)"):
        RowEncoder(3, "carried")(batch)
    with pytest.raises(ValueError, match="needs 4 numbers of static covariates; the batch has none"):
        RowEncoder(2, "carried", statics=4)(batch)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rows": "all"}, "rows must be one of"),
        ({"persistence": "latest"}, "as many outputs as inputs"),
        ({"persistence": "latest", "outputs": 3}, "must predict per step or query"),
        (
            {"persistence": "line", "outputs": 3, "answer": "step", "causal": True, "gate_norm": "prefix"},
            'Use "latest"',
        ),
        ({"embedder": "frames", "rows": "observed"}, "one frame per row"),
    ],
)
def test_choices_that_do_not_go_together_are_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        LFormerConfig(**({"inputs": 3, "outputs": 2} | change))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@KINDS
def test_a_gpu_encodes_alike(rows: str) -> None:
    model, batch = streaming(rows), IrregularBatch.build(**series(), dtype=torch.float64)
    expected = model(batch)
    assert relative_error(model.cuda()(batch.to("cuda")).cpu(), expected) < 1e-9
