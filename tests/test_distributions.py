"""Distributions as blocks of numbers: quantiles in order by construction, mixtures, units, and their errors."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import irregular_batch

from lformer import IrregularBatch, metrics, tasks
from lformer.distributions import LEVELS, NUMBERS, OTHERS, from_raw, in_units, mixture
from lformer.nn import LFormer, LFormerConfig
from lformer.nn.ensemble import Ensemble

KINDS = ["gaussian", "quantiles"]


def in_order(told: torch.Tensor, outputs: int) -> torch.Tensor:
    """(..., 15, O) by level, from blocks whose first is the median."""
    blocks = told.unflatten(-1, (len(LEVELS), outputs))
    K = LEVELS.index(0.5)
    return torch.cat([blocks[..., 1 : K + 1, :], blocks[..., :1, :], blocks[..., K + 1 :, :]], dim=-2)


@pytest.mark.parametrize("size", [0.0, 1.0, 30.0, 1e4])
def test_quantiles_never_cross_whatever_the_head_says(size: float) -> None:
    g = torch.Generator().manual_seed(0)
    raw = size * torch.randn(50, 4, 14 * 3, generator=g)
    told = from_raw("quantiles", 1e3 * torch.randn(50, 4, 3, generator=g), raw)
    assert bool(torch.isfinite(told).all())
    assert bool((in_order(told, 3).diff(dim=-2) >= 0).all())  # the same where float32 cannot tell them apart
    exact = from_raw("quantiles", told[..., :3].double(), raw.double())
    assert bool((in_order(exact, 3).diff(dim=-2) > 0).all())
    members = torch.stack([told, from_raw("quantiles", told[..., :3], raw.flip(0)), told - 5])
    assert bool((in_order(mixture("quantiles", members), 3).diff(dim=-2) >= 0).all())


def test_a_head_that_says_nothing_stands_for_the_normal_distribution() -> None:
    told = in_order(from_raw("quantiles", torch.zeros(1, dtype=torch.float64), torch.zeros(14).double()), 1)[:, 0]
    normal = torch.distributions.Normal(0.0, 1.0).icdf(torch.tensor(LEVELS).double())
    assert torch.allclose(told, normal, atol=1e-6)
    sized = from_raw("gaussian", torch.tensor([5.0]), torch.zeros(1), torch.tensor([3.0]))
    assert torch.allclose(sized, torch.tensor([5.0, 3.0]))


def test_the_mixture_of_normal_distributions_has_their_mean_and_variance() -> None:
    rng = np.random.default_rng(0)
    mean, deviation = rng.normal(size=(3, 1)), rng.uniform(0.5, 2, (3, 1))
    drawn = rng.normal(mean, deviation, (3, 400_000))
    told = mixture("gaussian", torch.from_numpy(np.concatenate([mean, deviation], axis=1)))
    assert np.allclose(told, [drawn.mean(), drawn.std()], rtol=0.01, atol=0.01)
    alike = torch.tensor([[1.0, 2.0, 0.5, 0.25]] * 4)
    assert torch.equal(mixture("gaussian", alike), alike[0])


@pytest.mark.parametrize("kind", KINDS)
def test_units_go_through_every_number(kind: str) -> None:
    g = torch.Generator().manual_seed(1)
    location, raw = (
        torch.randn(6, 2, generator=g).double(),
        torch.randn(6, 2 * (NUMBERS[kind] - 1), generator=g).double(),
    )
    shift, scale = torch.tensor([3.0, -7.0]).double(), torch.tensor([0.1, 40.0]).double()
    told = in_units(kind, from_raw(kind, location, raw), shift, scale)
    again = from_raw(kind, shift + scale * location, raw, scale.expand(6, 2))
    assert torch.allclose(told, again, rtol=1e-12)
    assert torch.equal(in_units(kind, location, shift, scale), shift + scale * location)  # a rule answers with a point


def test_errors_of_distributions_are_the_published_ones() -> None:
    mean, deviation, truth = 0.3, 1.7, 2.1
    told, target = torch.tensor([[mean, deviation]]).double(), torch.tensor([[truth]]).double()
    normal = torch.distributions.Normal(torch.tensor(mean).double(), torch.tensor(deviation).double())
    assert math.isclose(metrics.gaussian_surprise(told, target).item(), -normal.log_prob(target).item(), rel_tol=1e-9)
    grid = torch.linspace(-30, 30, 600_001).double()
    integral = torch.trapezoid((normal.cdf(grid) - (grid >= truth).double()).square(), grid)
    assert math.isclose(metrics.gaussian_crps(told, target).item(), integral.item(), rel_tol=1e-4)

    quantiles = torch.cat([torch.tensor([mean]).double(), normal.icdf(torch.tensor(OTHERS).double())])[None]
    assert math.isclose(metrics.quantile_crps(quantiles, target).item(), integral.item(), rel_tol=0.03)
    by_hand = [
        2 * max(level * (truth - q), (level - 1) * (truth - q))
        for level, q in zip((0.5, *OTHERS), quantiles[0].tolist(), strict=True)
    ]
    assert math.isclose(metrics.pinball(quantiles, target).item(), float(np.mean(by_hand)), rel_tol=1e-6)


def test_a_point_counts_by_its_absolute_error() -> None:
    told, truth = torch.tensor([[1.0, -2.0]]), torch.tensor([[4.0, 1.5]])
    for error in (metrics.gaussian_crps, metrics.quantile_crps, metrics.pinball):
        assert torch.equal(error(told, truth), (told - truth).abs())
        blocks = told.repeat(1, len(LEVELS)) if error is not metrics.gaussian_crps else None
        if blocks is not None:  # a distribution that is a point is worth as much
            assert torch.allclose(error(blocks, truth), (told - truth).abs())
    assert bool(torch.isinf(metrics.gaussian_surprise(told, truth)).all())


@pytest.mark.parametrize("kind", KINDS)
def test_the_best_distribution_is_the_true_one(kind: str) -> None:
    """Proper scores: moving or stretching the true distribution never gains on data drawn from it."""
    g = torch.Generator().manual_seed(0)
    drawn = torch.randn(20_000, 1, generator=g).double()
    task = tasks.distributed(tasks.regress(1), kind)
    zero = torch.zeros(20_000, NUMBERS[kind] - 1).double()

    def loss(shift: float, stretch: float) -> float:
        told = from_raw(kind, torch.full((20_000, 1), shift).double(), zero, torch.full((20_000, 1), stretch).double())
        return float(task.error(told, drawn).mean())

    best = loss(0.0, 1.0)
    assert all(best < loss(shift, stretch) for shift, stretch in [(0.2, 1), (-0.2, 1), (0, 1.3), (0, 0.75)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("own", [False, True])
def test_padding_order_and_size_of_batches_change_no_distribution(kind: str, own: bool) -> None:
    torch.manual_seed(0)
    config = LFormerConfig(
        inputs=3, outputs=3, distribution=kind, answer="step", rows="carried", width=8, heads=2, depth=1,
        persistence="latest", series_scale=own,
    )  # fmt: skip
    model = LFormer(config).double().eval()
    with torch.no_grad():
        model.head[-1].weight.normal_()  # persistence starts from 0
    batch = irregular_batch(B=5)
    told = model(batch)
    assert told.shape == (5, 30, 3 * NUMBERS[kind])
    if kind == "gaussian":
        assert bool((told[..., 3:] > 0).all())
    else:
        assert bool((in_order(told, 3).diff(dim=-2) >= 0).all())
    for i in range(5):
        n = int(batch.lengths[i])
        assert torch.allclose(model(batch[[i]])[0, :n], told[i, :n], rtol=1e-9, atol=1e-9)
        assert torch.allclose(model(batch.padded(40))[i, :n], told[i, :n], rtol=1e-9, atol=1e-9)


def test_an_ensemble_steps_to_the_mixture_of_its_members() -> None:
    torch.manual_seed(0)
    config = LFormerConfig(
        inputs=3, outputs=2, distribution="gaussian", width=8, heads=2, depth=1, causal=True, gate_norm="prefix",
        rows="carried",
    )  # fmt: skip
    both = Ensemble([LFormer(config), LFormer(config)]).double().eval()
    batch = irregular_batch(B=2, L=6)
    state = both.init_state(2)
    for k in range(6):
        delta = batch.times[:, k] - (batch.times[:, k - 1] if k else 0)
        values = torch.where(batch.observed[:, k], batch.values[:, k], torch.nan)
        told, state = both.step(values, delta if k else torch.zeros(2).double(), state)
    whole = both(batch)
    full = batch.lengths == 6
    assert torch.allclose(told[full], whole[full], atol=1e-9)
    parts = torch.stack([one(batch) for one in both.models])
    assert torch.allclose(whole[:, 2:].square(), parts[..., 2:].square().mean(0) + parts[..., :2].var(0, correction=0))


@pytest.mark.parametrize("kind", KINDS)
def test_series_on_their_own_scale_count_alike_however_large(kind: str) -> None:
    """Weights are those of squared errors, 1 / spread²: a pinball loss takes their root, a likelihood none of them."""
    g = torch.Generator().manual_seed(0)
    values, times, truth = (
        torch.randn(2, 5, 1, generator=g),
        torch.rand(2, 5, generator=g).cumsum(1),
        torch.randn(2, 5, 1, generator=g),
    )
    told = from_raw(kind, torch.randn(2, 5, 1, generator=g), torch.randn(2, 5, NUMBERS[kind] - 1, generator=g))
    task = tasks.in_own_units(tasks.distributed(tasks.records("interpolate", 1), kind))
    found, scores = [], []
    for size in (1.0, 1024.0):
        large = torch.tensor([1.0, size])[:, None, None]
        batch = IrregularBatch.build(values, times, targets=large * truth)
        batch = replace(batch, weights=large[:, :, 0].pow(-2))
        found.append(float(task.loss(large * told, batch)))
        scores.append(task.metrics["crps_own"].finish(task.collect("crps_own", large * told, batch)))
    apart = 0.5 * math.log(1024.0) if kind == "gaussian" else 0.0  # of the larger half: a density has a unit
    assert found[1] == pytest.approx(found[0] + apart, rel=1e-5)
    assert scores[1] == pytest.approx(scores[0], rel=1e-5)
    assert task.monitor == "crps_own"
