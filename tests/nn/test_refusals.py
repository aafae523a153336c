"""Inputs that a model cannot answer are refused; NaN never leaves it."""

import math
from typing import Any

import pytest
import torch

from lformer import IrregularBatch, LFormer, LFormerConfig
from lformer.baselines import BASELINES
from lformer.evaluate import predict
from lformer.ops import checks
from lformer.tasks import regress


def built(**choices: Any) -> LFormer:
    torch.manual_seed(0)
    return LFormer(LFormerConfig(**{"inputs": 2, "outputs": 2, "depth": 1} | choices))


def batch(span: float, rows: int = 20, series: int = 3) -> IrregularBatch:
    values = torch.randn(series, rows, 2)
    values[torch.rand(values.shape) < 0.2] = torch.nan
    times = torch.sort(torch.rand(series, rows, dtype=torch.float64), dim=1).values * span
    return IrregularBatch.build(values, times, lengths=torch.tensor([rows, rows - 1, rows // 2])[:series])


@pytest.mark.parametrize("answer", ["series", "step"])
@pytest.mark.parametrize("depth", [1, 3])
def test_a_span_that_overflows_inside_the_model_is_refused(answer: str, depth: int) -> None:
    outcomes = set()
    for seed, span in enumerate([1.0, 20.0, 40.0, 80.0, 110.0, 158.0, 170.0, 400.0] * 6):
        torch.manual_seed(seed)
        model = LFormer(LFormerConfig(inputs=2, outputs=2, depth=depth, answer=answer, gate_norm="none"))
        asked = batch(span)
        with torch.no_grad():
            try:
                found = model(asked)
            except OverflowError as error:
                assert 'gate_norm="sequence"' in str(error)  # noqa: PT017
                outcomes.add("refused")
            else:
                assert torch.isfinite(found).all()
                outcomes.add("answered")
    assert outcomes == {"refused", "answered"}


def test_a_reading_too_large_for_the_next_layer_names_series_row_and_head() -> None:
    model = built(gate_norm="none", depth=2, rate="time")  # decay by the clock alone: 60 in all
    with pytest.raises(OverflowError, match=r"row \d+ of series \d reads .* \(head \d\).*unit of time"):
        model(batch(60.0))


def test_weights_that_are_not_finite_are_named() -> None:
    model = built()
    with torch.no_grad():
        model.head[0].bias.fill_(math.nan)
    with pytest.raises(OverflowError, match="values or weights are inf or NaN"):
        model(batch(1.0))


def test_whoever_watches_the_result_may_skip_the_check() -> None:
    model = built()
    with torch.no_grad():
        model.head[0].bias.fill_(math.nan)
    with checks.skip_value_checks():
        assert torch.isnan(model(batch(1.0))).all()


STREAM: dict[str, Any] = {"causal": True, "gate_norm": "prefix"}


@pytest.mark.parametrize(
    ("values", "delta", "message"),
    [
        ([[math.inf, 0.0]], [0.0], r"finite in float32.*values\[0, 0\] = inf"),
        ([[0.0, -math.inf]], [0.0], r"values\[0, 1\] = -inf"),
        ([[1e39, 0.0]], [0.0], r"values\[0, 0\] = 1e\+39"),
        ([[0.0, 0.0]], [math.nan], r"delta\[0\] = nan"),
        ([[0.0, 0.0]], [math.inf], r"delta\[0\] = inf"),
        ([[0.0, 0.0]], [-1.0], r"delta\[0\] = -1"),
        ([0.0, 0.0], [1.0], r"values of a step.*shape \(1, 2\); got torch.float64 \(2,\)"),
        ([[0.0, 0.0, 0.0]], [1.0], r"shape \(1, 2\)"),
        ([[0.0, 0.0]], 1.0, r"delta of a step.*shape \(1,\); got torch.float64 \(\)"),
        ([[0.0, 0.0]] * 2, [1.0, 1.0], r"shape \(1, 2\)"),
    ],
)
@pytest.mark.parametrize("rows", ["values", "carried"])
def test_a_row_that_cannot_be_taken_is_refused_by_step(rows: str, values: Any, delta: Any, message: str) -> None:
    model = built(rows=rows, **STREAM)
    wide = torch.float64
    with pytest.raises(ValueError, match=message):
        model.step(torch.tensor(values, dtype=wide), torch.tensor(delta, dtype=wide), model.init_state(1))


def test_integers_are_refused_by_step() -> None:
    model = built(**STREAM)
    with pytest.raises(ValueError, match="floating point"):
        model.step(torch.ones(1, 2, dtype=torch.int64), torch.zeros(1), model.init_state(1))


def test_a_row_without_any_value_is_a_row() -> None:
    model = built(**STREAM)
    answer, _ = model.step(torch.full((1, 2), math.nan), torch.zeros(1), model.init_state(1))
    assert torch.isfinite(answer).all()


def test_no_prediction_of_a_part_is_nan() -> None:
    class Part:
        def batches(self, size: int) -> Any:
            yield batch(1.0)

    entry = BASELINES["gru"]
    model = entry.model(entry.config(inputs=2, outputs=2))
    with torch.no_grad():
        model.head[-1].bias.fill_(math.inf)
    part: Any = Part()
    with pytest.raises(OverflowError, match="not finite for 3 series of a batch, the first at position 0"):
        predict(model, regress(2), part)


@pytest.mark.parametrize(("width", "heads"), [(0, 1), (8, 0), (8, 3), (-8, 2)])
def test_sizes_that_make_no_head_are_refused(width: int, heads: int) -> None:
    with pytest.raises(ValueError, match=r"at least 1"):
        LFormer(LFormerConfig(inputs=2, outputs=2, width=width, heads=heads))
