"""Marks, own scales and recent starts in a model, over ragged series with uneven times and missing values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers import irregular_arrays, relative_error
from torch import Tensor, nn

from lformer import IrregularBatch, LFormer, LFormerConfig
from lformer.nn.rows import RowEncoder, fit_clock

TIGHT = 1e-10
M = 4
CHOICES: list[dict[str, Any]] = [
    {"rows": "values"},
    {"rows": "carried", "persistence": "latest"},
    {"rows": "carried", "persistence": "recent"},
    {"rows": "carried", "persistence": "recent", "series_scale": True},
    {"rows": "carried", "persistence": "line", "series_scale": True},
    {"rows": "observed", "series_scale": True},
    {"rows": "values", "series_scale": True, "statics": 2},
]
every_choice = pytest.mark.parametrize("choice", CHOICES, ids=lambda one: " ".join(map(str, one.values())))
every_answer = pytest.mark.parametrize("answer", ["step", "query"])


def arrays(answer: str, B: int = 4, L: int = 20, seed: int = 0) -> dict[str, Any]:
    values, times, lengths = irregular_arrays(B, L, 3, seed)
    g = torch.Generator().manual_seed(seed)
    made: dict[str, Any] = {
        "values": values,
        "times": times,
        "lengths": lengths,
        "marks": torch.randn(B, L, M, generator=g).double(),
        "static": torch.randn(B, 2, generator=g).double(),
    }
    if answer == "query":
        made["query_times"] = times[:, :1] + torch.rand(B, 6, generator=g) * 2 * (times[:, -1:] - times[:, :1])
        made["query_marks"] = torch.randn(B, 6, M, generator=g).double()
    return made


def whole(made: dict[str, Any], **change: Any) -> IrregularBatch:
    return IrregularBatch.build(**made | change, dtype=torch.float64)


def model_of(choice: dict[str, Any], answer: str, **change: Any) -> LFormer:
    torch.manual_seed(0)
    config: dict[str, Any] = {"inputs": 3, "outputs": 3, "answer": answer, "width": 8, "marks": M, **choice, **change}
    model = LFormer(LFormerConfig(**config)).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    fit_clock(model, [whole(arrays(answer, seed=9))])
    return model


def counted(model: LFormer, batch: IrregularBatch) -> Tensor:
    y = model(batch)
    return torch.where(batch.valid[..., None], y, 0.0) if model.config.answer == "step" else y


@every_choice
@every_answer
def test_padding_batch_order_and_origin_change_nothing(choice: dict[str, Any], answer: str) -> None:
    model, made = model_of(choice, answer), arrays(answer)
    expected = counted(model, whole(made))
    assert bool(torch.isfinite(expected).all())
    more = {
        "values": torch.cat([made["values"], torch.full((4, 7, 3), 1e3)], 1),
        "times": torch.cat([made["times"], torch.full((4, 7), -5.0)], 1),
        "marks": torch.cat([made["marks"], torch.full((4, 7, M), 9.0)], 1),
    }
    longer = counted(model, whole(made, **more))[:, : expected.shape[1]]
    assert relative_error(longer, expected) < TIGHT
    padded = counted(model, whole(made).padded(31, 9, "series"))[:, : expected.shape[1]]
    assert relative_error(padded, expected) < TIGHT
    order = [2, 0, 3, 1]
    assert relative_error(counted(model, whole(made)[order]), expected[order]) < TIGHT
    for b, n in enumerate(made["lengths"].tolist()):
        rows = {key: made[key][b : b + 1, :n] for key in ("values", "times", "marks")}
        rest = {key: made[key][b : b + 1] for key in made if key not in rows and key != "lengths"}
        alone = counted(model, whole(rows | rest))
        assert relative_error(alone, expected[b : b + 1, : alone.shape[1]]) < 1e-8
    later = {key: made[key] + 1e6 for key in made if key.endswith("times")}
    assert relative_error(counted(model, whole(made, **later)), expected) < 1e-5


@every_choice
def test_queries_do_not_see_each_other(choice: dict[str, Any]) -> None:
    model, made = model_of(choice, "query"), arrays("query")
    expected = model(whole(made))
    some = {key: made[key][:, [4, 1]] for key in ("query_times", "query_marks")}
    assert relative_error(model(whole(made, **some)), expected[:, [4, 1]]) < TIGHT
    moved = whole(made).with_queries((some["query_times"] - made["times"][:, :1]).clamp(min=-1e9), some["query_marks"])
    assert relative_error(model(moved), expected[:, [4, 1]]) < 1e-8


@every_choice
@every_answer
def test_marks_are_read_and_gradients_flow(choice: dict[str, Any], answer: str) -> None:
    model, made = model_of(choice, answer), arrays(answer)
    expected = counted(model, whole(made))
    other = {key: made[key] + 1 for key in made if key.endswith("marks")}
    assert relative_error(counted(model, whole(made, **other)), expected) > 1e-4
    expected.sin().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert bool(torch.isfinite(parameter.grad).all()), name


@pytest.mark.parametrize("rows", ["values", "observed", "carried"])
@pytest.mark.parametrize("answer", ["series", "step"])
def test_a_stream_with_marks_says_what_the_batch_says(rows: str, answer: str) -> None:
    outputs = {"outputs": 2} if answer == "series" else {}
    model = model_of({"rows": rows, "causal": True, "gate_norm": "prefix", "statics": 2}, answer, **outputs)
    made = arrays("step")
    batch = whole(made)
    expected = model(batch)
    for b, n in enumerate(made["lengths"].tolist()):
        state = model.init_state(1, made["static"][b : b + 1])
        for row in range(n):
            y, state = model.step(
                made["values"][b : b + 1, row], batch.deltas[b : b + 1, row], state, made["marks"][b : b + 1, row]
            )
            if answer == "step":
                assert relative_error(y[0], expected[b, row]) < TIGHT
        assert relative_error(y, expected[b : b + 1] if answer == "series" else expected[b : b + 1, n - 1]) < TIGHT
    with pytest.raises(ValueError, match=r"the model reads 4 marks.*the batch has none"):
        model.step(made["values"][:1, 0], batch.deltas[:1, 0], model.init_state(1, made["static"][:1]))


def test_marks_stand_behind_every_row_and_query_even_an_empty_one() -> None:
    made = arrays("query")
    batch = whole(made)
    for kind in ("values", "observed", "carried"):
        encoder = RowEncoder(3, kind, statics=2, marks=M).double()  # type: ignore[arg-type]
        encoded = encoder(batch)
        assert encoded.rows.shape[-1] == encoder.width
        assert batch.marks is not None
        assert torch.equal(encoded.rows[..., -M:], batch.marks)
        asked = encoder.queries(batch, encoded)
        assert torch.equal(asked[..., -M:], made["query_marks"])
        assert not asked[..., : -M - 2].any()


def test_a_model_without_marks_ignores_them_bit_by_bit() -> None:
    for rows in ("values", "carried"):
        torch.manual_seed(0)
        model = LFormer(LFormerConfig(inputs=3, outputs=2, rows=rows, width=8)).double()  # type: ignore[arg-type]
        made = arrays("step")
        bare = {key: made[key] for key in ("values", "times", "lengths")}
        assert torch.equal(model(whole(made)), model(whole(bare)))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"marks": torch.zeros(4, 19, M)}, r"marks must have shape \(4, 20, M\)"),
        ({"marks": torch.full((4, 20, M), torch.inf)}, "marks must be finite in torch.float64; series 0, place 0"),
        ({"query_marks": torch.zeros(4, 20, M)}, "query_marks are those of query_times, which are missing"),
        ({"marks": torch.zeros(4, 20)}, r"marks must have shape \(4, 20, M\)"),
    ],
)
def test_marks_that_do_not_fit_are_refused(change: dict[str, Tensor], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        whole(arrays("step"), **change)


def test_what_stands_in_padding_may_be_anything() -> None:
    made = arrays("step")
    valid = whole(made).valid
    made["marks"][~valid] = torch.nan
    assert bool(torch.isfinite(whole(made).marks).all())  # type: ignore[arg-type]


def test_a_batch_without_the_marks_of_the_model_is_refused() -> None:
    model, made = model_of(CHOICES[1], "query"), arrays("query")
    batch = whole(made)
    for other in (replace(batch, marks=None), replace(batch, query_marks=None), batch.with_queries(torch.zeros(4, 2))):
        with pytest.raises(ValueError, match=r"the model reads 4 marks.*the batch has none"):
            model(other)
    with pytest.raises(ValueError, match="the batch has 3"):
        model(replace(batch, marks=batch.marks[..., :3]))  # type: ignore[index]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"marks": -1}, "marks must be at least 0"),
        ({"marks": 3, "embedder": "frames"}, "marks must be at least 0, and 0 with"),
        ({"series_scale": True, "outputs": 3}, "must predict per step or query"),
        ({"series_scale": True, "answer": "step"}, "as many outputs as inputs"),
        (
            {"series_scale": True, "answer": "step", "outputs": 3, "causal": True, "gate_norm": "prefix"},
            "series_scale=True reads the whole series.*Use series_scale=False",
        ),
        (
            {"persistence": "recent", "answer": "step", "outputs": 3, "causal": True, "gate_norm": "prefix"},
            'persistence="recent" needs more of the past.*Use "latest"',
        ),
    ],
)
def test_choices_that_do_not_go_together_are_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        LFormerConfig(**({"inputs": 3, "outputs": 2} | change))


@every_choice
def test_an_empty_series_gets_a_finite_answer(choice: dict[str, Any]) -> None:
    model, made = model_of(choice, "query"), arrays("query")
    y = model(whole(made, lengths=torch.tensor([20, 0, 7, 1])))
    assert bool(torch.isfinite(y).all())
    none = {"values": made["values"][:, :0], "times": made["times"][:, :0], "marks": made["marks"][:, :0]}
    y = model(whole({**made, **none, "lengths": torch.zeros(4, dtype=torch.int64)}))
    assert y.shape == (4, 6, 3)
    assert bool(torch.isfinite(y).all())


def test_an_exported_model_takes_series_of_any_length() -> None:
    model = model_of(CHOICES[3], "step").eval()

    class Raw(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, values: Tensor, times: Tensor, lengths: Tensor, marks: Tensor) -> Tensor:
            observed = ~torch.isnan(values)
            batch = IrregularBatch(
                values=torch.where(observed, values, 0.0), times=times, deltas=torch.diff(times, prepend=times[:, :1]),
                observed=observed, lengths=lengths, start=times[:, 0], marks=marks,
            )  # fmt: skip
            return self.model(batch)

    def raw(B: int, L: int, seed: int) -> tuple[Tensor, ...]:
        made = arrays("step", B, L, seed)
        return made["values"], made["times"] - made["times"][:, :1], torch.full((B,), L), made["marks"]

    B, L = torch.export.Dim("B", min=2), torch.export.Dim("L", min=2)
    shapes = {"values": {0: B, 1: L}, "times": {0: B, 1: L}, "lengths": {0: B}, "marks": {0: B, 1: L}}
    exported = torch.export.export(Raw(), raw(3, 14, 0), dynamic_shapes=shapes).module()
    for size, length, seed in ((3, 14, 0), (5, 9, 1), (2, 31, 2)):
        given = raw(size, length, seed)
        assert relative_error(exported(*given), Raw()(*given)) < TIGHT
