"""The importance-weighted bound, for numbers small enough to do by hand."""

import math
from dataclasses import replace

import pytest
import torch
from helpers import irregular_batch, relative_error
from torch.distributions import Normal, kl_divergence

from lformer import tasks
from lformer.baselines.bound import Law, asks_for_numbers, check_bound, log_likelihood, surprise
from lformer.draws import Draws, drawing_from


def test_the_divergence_from_a_standard_normal_law() -> None:
    """½ (μ² + σ² − 1) − log σ; nothing for the law itself."""
    law = Law(torch.tensor([[0.0, 2.0, 0.0]]).double(), torch.tensor([[1.0, 1.0, 3.0]]).double())
    assert law.divergence()[0].tolist() == pytest.approx([0.0, 2.0, 4.0 - math.log(3.0)])
    standard = Normal(torch.zeros(3).double(), torch.ones(3).double())
    assert relative_error(law.divergence(), kl_divergence(Normal(*law), standard)) < 1e-12


def test_surprise_is_the_negative_log_density() -> None:
    found = surprise(torch.tensor([1.0, -2.0]).double(), torch.tensor([1.5, 0.0]).double(), 0.5)
    expected = -Normal(torch.tensor([1.0, -2.0]).double(), 0.5).log_prob(torch.tensor([1.5, 0.0]).double())
    assert relative_error(found, expected) < 1e-12


def test_the_bound_of_two_samples() -> None:
    """Targets 0 and 1 of which the second does not count; errors of 1 and 2 with deviation 1."""
    batch = replace(
        irregular_batch(B=1, L=3).with_queries(torch.zeros(1, 2).double()),
        targets=torch.tensor([[[0.0], [1.0]]]).double(), targets_observed=torch.tensor([[[True], [False]]]),
    )  # fmt: skip
    samples, task = (
        torch.tensor([[[[1.0], [7.0]]], [[[2.0], [9.0]]]]).double(),
        tasks.records("extrapolate", 1, "query"),
    )
    densities = [math.exp(-(error**2) / 2) / math.sqrt(2 * math.pi) for error in (1.0, 2.0)]
    found = float(log_likelihood(lambda z: z, samples, task, batch, 1.0))
    assert found == pytest.approx(math.log(sum(densities) / 2))


def test_samples_have_the_law_and_come_from_the_run() -> None:
    law, draws = Law(torch.full((1, 2), 3.0), torch.full((1, 2), 0.5)), Draws(torch.device("cpu"))
    found = []
    for seed in (1, 1, 2):
        draws.seed(seed)
        with drawing_from(draws):
            found.append(law.samples(20_000))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert found[0].mean(dim=0)[0].tolist() == pytest.approx([3.0, 3.0], abs=0.02)
    assert found[0].std(dim=0)[0].tolist() == pytest.approx([0.5, 0.5], abs=0.02)


def test_what_is_no_bound_is_refused() -> None:
    for numbers, says in (
        ((0, 1.0, 1.0), "samples must be at least 1; got 0"),
        ((1, 0.0, 1.0), r"noise must be greater than 0; got 0\.0"),
        ((1, 1.0, -1.0), r"kl_weight must be at least 0; got -1\.0"),
    ):
        with pytest.raises(ValueError, match=says):
            check_bound(*numbers)
    assert asks_for_numbers(tasks.regress(1))
    assert not asks_for_numbers(tasks.classify(2))
