"""Waves: the period of each series is found on uneven times, trusted where it predicts, and left alone elsewhere."""

import math

import numpy as np
import pytest
import torch
from helpers import irregular_batch, relative_error
from torch import Tensor

from lformer import IrregularBatch, LFormer, LFormerConfig
from lformer.nn.rows import RowEncoder
from lformer.nn.waves import FEW, FINE, LOWEST, PIECE, RIDGE, Wave, _fitted, _power, fit_wave

NAN = float("nan")


def wave_of(batch: IrregularBatch) -> Wave:
    encoder = RowEncoder(batch.values.shape[2], "carried", persistence="wave").to(batch.values.dtype)
    found = encoder(batch).wave
    assert found is not None
    return found


def sines(
    B: int = 6, L: int = 40, noise: float = 0.0, missing: float = 0.3, seed: int = 0
) -> tuple[IrregularBatch, Tensor, Tensor, Tensor]:
    """Two channels, each a sine with a period, phase, level and size of its own; then (B, Q) moments and the truth."""
    rng = np.random.default_rng(seed)
    times = np.sort(rng.uniform(0, 20, (B, L)), axis=1)
    period, phase = rng.uniform(3, 12, (B, 1, 2)), rng.uniform(0, 6, (B, 1, 2))
    level, size = rng.normal(0, 3, (B, 1, 2)), rng.uniform(0.2, 3, (B, 1, 2))

    def truth(clock: np.ndarray) -> np.ndarray:
        return level + size * np.sin(2 * np.pi * clock[..., None] / period + phase)

    values = truth(times) + noise * size * rng.normal(size=(B, L, 2))
    values[rng.random(values.shape) < missing] = NAN
    lengths = torch.tensor([L, *rng.integers(3 * L // 4, L, B - 1)])
    batch = IrregularBatch.build(torch.tensor(values), torch.tensor(times), lengths=lengths, dtype=torch.float64)
    last = times[np.arange(B), lengths.numpy() - 1]
    asked = times[:, :1] + rng.uniform(size=(B, 25)) * (last - times[:, 0])[:, None]
    return batch, torch.tensor(asked - times[:, :1]), torch.tensor(truth(asked)), torch.tensor(size)


def test_a_sine_is_found_whatever_its_period() -> None:
    batch, asked, truth, size = sines()
    wave = wave_of(batch)
    assert float(((wave.at(asked) - truth) / size).abs().max()) < 0.1
    assert float(wave.trust.min()) > 1.0


def test_among_noise_it_is_closer_than_the_line() -> None:
    batch, asked, truth, size = sines(B=40, noise=0.15, missing=0.1)
    wave = wave_of(batch)
    error = float(((wave.at(asked) - truth) / size).square().mean().sqrt())
    assert error < 0.15
    assert float((wave.trust > 0.25).double().mean()) > 0.8


def test_a_random_walk_has_none() -> None:
    torch.manual_seed(0)
    times = torch.rand(40, 60, dtype=torch.float64).cumsum(dim=1)
    batch = IrregularBatch.build(torch.randn(40, 60, 1, dtype=torch.float64).cumsum(dim=1), times, dtype=torch.float64)
    assert float((wave_of(batch).trust < 0.0).double().mean()) > 0.95


def test_power_is_what_least_squares_explains() -> None:
    rng = np.random.default_rng(3)
    phase, values = np.sort(rng.uniform(0, 1, 25)), rng.normal(size=25)
    seen = rng.random(25) < 0.7
    grid = LOWEST + np.arange(PIECE + 20) / FINE  # more than one piece
    rest = np.where(seen, values - values[seen].mean(), 0)
    tensors = (torch.tensor(x)[None] for x in (phase, seen.astype(float)[:, None], rest[:, None]))
    count = torch.tensor([[float(seen.sum())]], dtype=torch.float64)
    found = _power(*tensors, count, torch.tensor(grid))[0, 0].numpy()
    for frequency, power in zip(grid, found, strict=True):
        angle = 2 * np.pi * frequency * phase[seen]
        x = np.column_stack([np.ones(seen.sum()), np.cos(angle), np.sin(angle)])
        said = x @ np.linalg.lstsq(x, rest[seen], rcond=None)[0]
        assert power == pytest.approx(np.square(said).sum(), rel=2e-2)  # a ridge is all that differs


def test_what_is_foretold_of_an_observation_is_foretold_without_it() -> None:
    rng = np.random.default_rng(4)
    L, frequency = 20, 2.3
    phase, rest = np.sort(rng.uniform(0, 1, L)), rng.normal(size=L)
    angle = 2 * np.pi * frequency * phase
    x = np.column_stack([np.ones(L), np.cos(angle), np.sin(angle)])
    ones = torch.ones(1, L, 1, dtype=torch.float64)
    fitted, hat = _fitted(
        torch.tensor(phase)[None],
        ones,
        torch.tensor(rest)[None, :, None],
        torch.tensor([[frequency]], dtype=torch.float64),
    )
    error = (rest - x @ fitted[0, 0].numpy()) / (1 - hat[0, :, 0].numpy())
    for n in range(L):
        others = np.delete(np.arange(L), n)
        weights = np.linalg.solve(x[others].T @ x[others] + RIDGE * np.eye(3), x[others].T @ rest[others])
        assert error[n] == pytest.approx(rest[n] - x[n] @ weights, rel=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_padding_order_and_other_series_change_nothing(dtype: torch.dtype) -> None:
    batch = irregular_batch(B=6, L=50, dtype=dtype)
    together = wave_of(batch)
    for n in range(6):
        length = int(batch.lengths[n])
        alone = wave_of(
            IrregularBatch.build(
                torch.where(batch.observed, batch.values, NAN)[n : n + 1, :length], batch.times[n : n + 1, :length],
                dtype=dtype,
            )
        )  # fmt: skip
        for found, expected in zip(alone, together, strict=True):
            assert torch.allclose(found[0], expected[n], rtol=1e-9, atol=1e-9, equal_nan=True)


def test_ties_are_no_matter_of_rounding() -> None:
    """Of a single spike on a regular grid every frequency explains as much: the slowest is taken."""
    values = torch.zeros(1, 30, 1, dtype=torch.float64)
    values[0, 11] = 1.0
    found = [
        float(
            wave_of(IrregularBatch.build(scale * values, torch.arange(30.0)[None], dtype=torch.float64)).frequency[0, 0]
        )
        for scale in (1.0, 1 / 3, 7e3)
    ]
    assert found == pytest.approx([found[0]] * 3, rel=1e-9)


@pytest.mark.parametrize("rows", [0, 1, FEW - 1])
def test_few_observations_have_none(rows: int) -> None:
    batch = IrregularBatch.build(torch.randn(2, rows, 2), torch.arange(float(rows)).expand(2, -1))
    wave = wave_of(batch)
    assert bool((wave.trust == -math.inf).all())
    assert bool(wave.at(torch.tensor([[0.0, 3.0]] * 2)).isfinite().all())


def test_a_series_that_never_changes_is_itself() -> None:
    batch = IrregularBatch.build(torch.full((1, 12, 1), 4.0), torch.rand(1, 12).cumsum(dim=1))
    wave = wave_of(batch)
    assert torch.allclose(wave.at(torch.tensor([[0.3, 1.0]])), torch.tensor(4.0, dtype=torch.float64), atol=1e-6)


def test_no_line_no_trust() -> None:
    values, times = torch.randn(1, 9, 1), torch.arange(9.0)[None]
    wave = fit_wave(values, torch.ones(1, 9, 1, dtype=torch.bool), times, torch.full((1, 9, 1), NAN))
    assert bool((wave.trust == -math.inf).all())


# -- answers that start from it


def model(**change: object) -> LFormer:
    torch.manual_seed(0)
    config = LFormerConfig(
        inputs=2, outputs=2, answer="query", rows="carried", persistence="wave", width=8, heads=2, depth=1, **change
    )  # type: ignore[arg-type]
    return LFormer(config).double().eval()


def asking(batch: IrregularBatch, asked: Tensor) -> IrregularBatch:
    return batch.with_queries(asked)


def test_an_untrained_model_answers_with_the_wave() -> None:
    batch, asked, truth, size = sines()
    with torch.no_grad():
        assert float(((model()(asking(batch, asked)) - truth) / size).abs().max()) < 0.1


def test_at_an_observation_it_is_the_observation() -> None:
    batch, _, _, _ = sines(noise=0.3)
    with torch.no_grad():
        said = model()(asking(batch, batch.times))
    seen = batch.observed & batch.valid[..., None]
    assert relative_error(said[seen], batch.values[seen]) < 1e-12


def test_how_much_better_a_wave_must_be_is_learned() -> None:
    batch, asked, truth, _ = sines(noise=0.5)
    made = model()
    (made(asking(batch, asked)) - truth).square().mean().backward()
    assert made.persistence is not None
    gradient = made.persistence.threshold.grad
    assert isinstance(gradient, Tensor)
    assert float(gradient.abs().min()) > 0


def test_a_causal_model_cannot_start_from_it() -> None:
    with pytest.raises(ValueError, match='persistence="wave" reads the next observation'):
        model(causal=True, gate_norm="prefix")
