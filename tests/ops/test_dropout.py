"""What the hash of the fused dropout drops: the share that was asked for, and nothing that tells of anything else."""

import pytest
import torch
from torch import Tensor

from lformer.ops.dropout import CHANNEL, EMBEDDER, LEVELS, TIME, kept_factors, levels, place

ROWS, WIDTH, SEED = 20_000, 64, 8_234_567_890_123_456_789


def kept(p: float, seed: int = SEED, at: int = 3, rows: int = ROWS) -> Tensor:
    """(rows, WIDTH) bool"""
    return kept_factors(seed, at, rows, WIDTH, p) > 0


def unrelated(a: Tensor, b: Tensor, p: float) -> bool:
    """Whether the covariance of two tensors of draws is what chance makes of independent ones, to five deviations."""
    a, b = a.double() - (1 - p), b.double() - (1 - p)
    return float((a * b).mean().abs()) < 5 * p * (1 - p) / a.numel() ** 0.5


@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.9])
def test_the_share_of_every_channel_and_row_is_the_one_asked_for(p: float) -> None:
    stays = kept(p).double()
    for axis in (0, 1):
        count = stays.shape[axis]
        shares = stays.mean(dim=axis)
        deviations = (shares - (1 - p)) / (p * (1 - p) / count) ** 0.5
        assert float(deviations.abs().max()) < 6.5
        assert 0.6 < float(deviations.var()) < 1.4 if axis == 0 else 0.97 < float(deviations.var()) < 1.03
    assert abs(float(kept_factors(SEED, 3, ROWS, WIDTH, p).mean()) - 1) < 5 * (p / (1 - p) / stays.numel()) ** 0.5


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_neighbours_know_nothing_of_each_other(p: float) -> None:
    stays = kept(p)
    for step in (1, 2, 3, 4, 8, 16, 32):
        assert unrelated(stays[:, step:], stays[:, :-step], p), f"channels {step} apart"
    for step in (1, 2, 3, 64, 128, 1024, 4096):
        assert unrelated(stays[step:], stays[:-step], p), f"rows {step} apart"
    assert unrelated(stays[1:, 1:], stays[:-1, :-1], p)
    assert unrelated(stays[1:, :-1], stays[:-1, 1:], p)


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_places_and_seeds_know_nothing_of_each_other(p: float) -> None:
    drawn = {f"place {at}": kept(p, at=at) for at in range(EMBEDDER, 6)}
    seeds = (0, 1, 2, SEED + 1, SEED + 2**32, SEED ^ 2**62, 2**63 - 1)
    drawn |= {f"seed {seed}": kept(p, seed=seed) for seed in seeds}
    names = list(drawn)
    for n, one in enumerate(names):
        for other in names[:n]:
            assert unrelated(drawn[one], drawn[other], p), f"{one} and {other}"


def test_three_draws_together_are_as_rare_as_chance_has_them() -> None:
    """Pairs may be independent where triples are not, as in a hash that is linear in its bits."""
    a, b, c = (kept(0.5, at=at).double() - 0.5 for at in (0, 1, 2))
    for triple in (a * b * c, a[1:] * a[:-1] * b[1:], a[:, 2:] * a[:, 1:-1] * a[:, :-2]):
        assert float(triple.mean().abs()) < 5 * 0.125 / triple.numel() ** 0.5


def test_the_words_of_many_rows_are_different_ones() -> None:
    """No two of 300,000 rows drop the same: rows have more than the 32 bits of a word between them."""
    powers = 2 ** torch.arange(62)
    assert len((kept(0.5, rows=300_000)[:, :62] * powers).sum(1).unique()) == 300_000


def test_a_number_is_dropped_or_multiplied_so_that_the_mean_stays() -> None:
    factors = kept_factors(1, 0, 50, 7, 0.2)
    assert factors.shape == (50, 7)
    assert sorted(factors.unique().tolist()) == [0.0, LEVELS / (LEVELS - levels(0.2))]
    assert torch.equal(factors, kept_factors(1, 0, 60, 7, 0.2)[:50])
    assert torch.equal(factors[:, :4], kept_factors(1, 0, 50, 4, 0.2))


def test_shares_at_the_edges() -> None:
    assert levels(0.0) == 0
    assert levels(0.5) == LEVELS // 2
    assert levels(1 - 1e-9) == LEVELS - 1
    assert float(kept_factors(1, 0, 50, 7, 0.0).min()) == 1.0
    assert [place(layer, branch) for layer in (0, 1) for branch in (TIME, CHANNEL)] == [0, 1, 2, 3]
