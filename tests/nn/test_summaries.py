"""Summaries of channels: what numpy says they are, the same for whole series, pieces and single rows."""

from typing import Any

import numpy as np
import pytest
import torch
from helpers import irregular_arrays, irregular_batch, relative_error

from lformer import IrregularBatch, LFormer, LFormerClassifier, LFormerConfig
from lformer.estimators.series import PER_SUMMARY
from lformer.nn.summaries import FAR, FEATURES, SummaryHead


def model(**change: Any) -> LFormer:
    torch.manual_seed(0)
    config: dict[str, Any] = {"inputs": 3, "outputs": 2, "rows": "carried", "summaries": True, "width": 16, "heads": 2}
    return LFormer(LFormerConfig(**config | change)).double().requires_grad_(False).eval()


def read(made: LFormer, batch: IrregularBatch) -> torch.Tensor:
    """(B, FEATURES, C) what the first layer of the summaries is given."""
    found: list[torch.Tensor] = []
    assert isinstance(made.summaries, SummaryHead)
    handle = made.summaries.added.register_forward_pre_hook(lambda _, inputs: found.append(inputs[0]))
    made(batch)
    handle.remove()
    return found[0].unflatten(1, (FEATURES, 3))


def test_they_are_what_numpy_says() -> None:
    values, times, lengths = irregular_arrays(5, 20, 3, seed=1)
    values[2, :, 1] = torch.nan  # never observed
    values[3, 0, 0] = 100.0  # a wild one
    batch = IrregularBatch.build(values, times, lengths=lengths, dtype=torch.float64)
    found = read(model(), batch)
    for b in range(5):
        for c in range(3):
            own = values[b, : lengths[b], c].numpy()
            own = own[~np.isnan(own)]
            expected = [0.0] * FEATURES
            if len(own):
                about = [own[-1], own.mean(), own.min(), own.max(), own.std(), own[-1] - own[0]]
                expected = [*np.clip(about, -FAR, FAR), np.log1p(len(own)), 1.0]
            assert found[b, :, c].numpy() == pytest.approx(expected, abs=1e-12)


def test_padding_and_order_change_nothing() -> None:
    batch, made = irregular_batch(B=6, L=25), model()
    together = made(batch)
    for n in range(6):
        length = int(batch.lengths[n])
        shown = torch.where(batch.observed, batch.values, torch.nan)[n : n + 1, :length]
        alone = made(IrregularBatch.build(shown, batch.times[n : n + 1, :length], dtype=torch.float64))
        assert relative_error(alone[0], together[n]) < 1e-10


def test_pieces_and_rows_end_where_the_whole_does() -> None:
    made = model(causal=True, gate_norm="prefix", neighbours=2)
    values, times, _ = irregular_arrays(3, 30, 3, seed=2)
    times = times - times[:, :1]
    whole = made(IrregularBatch.build(values, times, dtype=torch.float64))
    first = IrregularBatch.build(values[:, :11], times[:, :11], dtype=torch.float64)
    rest = IrregularBatch.build(values[:, 11:], times[:, 11:], t0=times[:, 0], dtype=torch.float64)
    _, state = made(first, return_state=True)
    in_pieces, _ = made(rest, state, return_state=True)
    assert relative_error(in_pieces, whole) < 1e-9
    state = made.init_state(3)
    for n in range(30):
        delta = times[:, n] - times[:, n - 1] if n else torch.zeros(3, dtype=torch.float64)
        answer, state = made.step(values[:, n], delta, state)
    assert relative_error(answer, whole) < 1e-9


def test_covariates_are_among_them() -> None:
    made = model(statics=2)
    batch = irregular_batch(B=4, L=10, static=torch.randn(4, 2, dtype=torch.float64))
    assert made.summaries is not None
    assert made.summaries.added[1].in_features == 3 * FEATURES + 2
    assert made(batch).shape == (4, 2)


def test_a_series_without_rows_has_an_answer() -> None:
    batch = IrregularBatch.build(torch.zeros(2, 0, 3), torch.zeros(2, 0), dtype=torch.float64)
    assert bool(model()(batch).isfinite().all())


@pytest.mark.parametrize("change", [{"rows": "observed"}, {"answer": "step"}])
def test_what_makes_no_sense_is_refused(change: dict[str, str]) -> None:
    with pytest.raises(ValueError, match='summaries=True needs rows="carried" and answer="series"'):
        model(**change)


def some(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [(np.sort(rng.random(4)), rng.normal(i % 2, 1, (4, 1))) for i in range(count)]


SMALL: dict[str, Any] = {"width": 8, "heads": 2, "depth": 1, "max_epochs": 1, "random_state": 0, "device": "cpu"}


@pytest.mark.parametrize(("choice", "count", "expected"), [
    ("auto", PER_SUMMARY * FEATURES, True), ("auto", PER_SUMMARY * FEATURES - 1, False), (True, 10, True),
    (False, 200, False),
])  # fmt: skip
def test_few_series_have_none_by_default(choice: Any, count: int, expected: bool) -> None:
    fitted = LFormerClassifier(summaries=choice, **SMALL).fit(some(count), np.arange(count) % 2)
    assert fitted.model_.config.summaries is expected


def test_a_choice_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match='summaries must be True, False or "auto"; got 3'):
        LFormerClassifier(summaries=3, **SMALL).fit(some(10), np.arange(10) % 2)  # type: ignore[arg-type]
