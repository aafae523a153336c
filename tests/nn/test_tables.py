"""What trees are given of a series: a table of summaries and of the waves of its channels."""

import numpy as np
import pytest
import torch
from helpers import irregular_batch
from torch import Tensor

from lformer import IrregularBatch, LFormer, LFormerConfig
from lformer.nn import summaries
from lformer.nn.summaries import IN_TABLE
from lformer.nn.waves import FEW, SHARE

NAN = float("nan")


def model(**change: object) -> LFormer:
    config = LFormerConfig(inputs=2, outputs=1, rows="carried", summaries=True, width=8, heads=2, depth=1, **change)  # type: ignore[arg-type]
    return LFormer(config).double().eval()


def beats(pace: float, B: int = 5, L: int = 60, noise: float = 0.3) -> IrregularBatch:
    """Uneven, ragged, with missing values: a noisy sine of so many cycles per unit of time, and noise alone."""
    rng = np.random.default_rng(0)
    times = np.sort(rng.uniform(0, 10, (B, L)), axis=1)
    sine = np.sin(2 * np.pi * pace * times + rng.uniform(0, 6, (B, 1)))
    values = np.stack([sine + noise * rng.normal(size=(B, L)), rng.normal(size=(B, L))], axis=-1)
    values[rng.random(values.shape) < 0.2] = NAN
    lengths = torch.tensor([L, *rng.integers(3 * L // 4, L, B - 1)])
    return IrregularBatch.build(torch.tensor(values), torch.tensor(times), lengths=lengths, dtype=torch.float64)


def waves_of(batch: IrregularBatch) -> Tensor:
    """(B, 8) how fast both are, and how much that explains; the same of their changes."""
    return model().tree_table(batch, waves=True)[:, 2 * IN_TABLE :].double()


@pytest.mark.parametrize("pace", [0.3, 0.8, 1.3])
def test_the_pace_of_a_sine_is_in_the_table(pace: float) -> None:
    table = model().tree_table(beats(pace), waves=True)
    first = IN_TABLE * 2
    assert table.shape[1] == first + 8
    assert (table[:, first] - pace).abs().max() < 0.02
    assert (table[:, first + 2] > 0.75).all()
    assert (table[:, first + 3] < table[:, first + 2] - 0.1).all()  # of noise little is explained


def test_a_drift_hides_a_wave_but_not_that_of_the_changes() -> None:
    batch = beats(1.0, L=120, noise=0.1)
    drift = 3 * torch.sin(0.9 * batch.times)[..., None]
    values = torch.where(batch.observed, batch.values + drift, NAN)
    found = waves_of(IrregularBatch.build(values, batch.times, lengths=batch.lengths, dtype=torch.float64))
    assert (found[:, 0] < 0.3).all()
    assert (found[:, 4] - 1.0).abs().max() < 0.05


def test_as_many_cycles_as_observations_can_tell() -> None:
    """A heart that beats 105 times in a minute; a wave that an interpolator starts from has fewer cycles."""
    times = torch.linspace(0, 60, 400, dtype=torch.float64)[None]
    batch = IrregularBatch.build(torch.sin(2 * torch.pi * 1.75 * times)[..., None].expand(-1, -1, 2), times)
    assert waves_of(batch)[0, 0] == pytest.approx(1.75, abs=1e-3)
    few = batch.times[:, ::2]  # of these, SHARE of a cycle each is less
    sparse = IrregularBatch.build(torch.sin(2 * torch.pi * 1.75 * few)[..., None].expand(-1, -1, 2), few)
    assert float(waves_of(sparse)[0, 0]) <= (SHARE * 200 + 1) / 60


@pytest.mark.parametrize("what", ["few", "equal", "never"])
def test_where_there_is_no_wave_there_is_no_number(what: str) -> None:
    values = torch.randn(1, 30, 2, dtype=torch.float64)
    if what == "few":
        values[0, FEW - 1 :, 0] = NAN
    else:
        values[0, :, 0] = 3.0 if what == "equal" else NAN
    found = waves_of(IrregularBatch.build(values, torch.rand(1, 30).cumsum(1), dtype=torch.float64))
    assert found.isnan().tolist() == [[True, False] * 4]


def test_a_causal_model_does_not_wait_for_the_end() -> None:
    causal = model(causal=True, gate_norm="prefix", trees=3)
    batch = beats(1.0)
    assert causal.tree_table(batch).shape[1] == IN_TABLE * 2 == causal.config.in_table
    assert causal(batch).isfinite().all()
    with pytest.raises(ValueError, match="waves=True needs trees, summaries and whole series"):
        model(causal=True, gate_norm="prefix", trees=3, waves=True)
    with pytest.raises(ValueError, match="trees=0"):
        model(waves=True)


def test_the_unit_of_time_scales_the_pace_alone() -> None:
    batch = beats(1.0)
    hours = IrregularBatch.build(
        torch.where(batch.observed, batch.values, NAN), batch.times / 60, lengths=batch.lengths, dtype=torch.float64
    )
    factor = torch.tensor([60.0, 60.0, 1.0, 1.0] * 2, dtype=torch.float64)
    torch.testing.assert_close(waves_of(hours), waves_of(batch) * factor, rtol=1e-6, atol=1e-6)


def test_alone_or_together_some_at_once_or_all(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = irregular_batch(B=6, L=50, C=2, dtype=torch.float64)
    together = waves_of(batch)
    monkeypatch.setattr(summaries, "AT_ONCE", 1)
    torch.testing.assert_close(waves_of(batch), together, rtol=1e-6, atol=1e-6, equal_nan=True)
    monkeypatch.undo()
    for n in range(6):
        rows = int(batch.lengths[n])
        alone = IrregularBatch.build(
            torch.where(batch.observed, batch.values, NAN)[n : n + 1, :rows], batch.times[n : n + 1, :rows],
            dtype=torch.float64,
        )  # fmt: skip
        torch.testing.assert_close(waves_of(alone)[0], together[n], rtol=1e-6, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize(("B", "L"), [(0, 5), (3, 0)])
def test_of_no_series_or_no_rows(B: int, L: int) -> None:
    batch = IrregularBatch.build(torch.zeros(B, L, 2), torch.zeros(B, L))
    table = model(trees=2, waves=True).tree_table(batch, waves=True)
    assert table.shape == (B, 2 * (IN_TABLE + 4))
