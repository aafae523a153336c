"""The spiral benchmark: the curves of the protocol, honest splits, and draws that repeat."""

import math

import pytest
import torch

from lformer import data
from lformer.data.spirals import HALF, POINTS, draw


@pytest.mark.parametrize("alpha", [2.0, 0.2, 0.02])
def test_the_curves_are_spirals_of_both_kinds(alpha: float) -> None:
    times, clean, noisy = draw(alpha, 300, noise=0.1, seed=1)
    assert times[0] == 0
    assert math.isclose(float(times[-1]), 6 * math.pi)
    assert clean.shape == noisy.shape == (300, POINTS, 2)
    assert float(clean.amin()) == 0.0
    assert float(clean.amax()) == 1.0
    width = (clean[:, 1:] - clean[:, :-1]).norm(dim=-1)
    outwards = width[:, -1] > width[:, 0]  # winding outwards, steps grow; inwards, they shrink
    if alpha < 1:  # at alpha 2 the parameters may turn a spiral inside out
        assert 100 < int(outwards.sum()) < 200


def test_without_spread_and_noise_the_curve_is_the_formula() -> None:
    times, clean, noisy = draw(0.0, 40, noise=0.0, seed=0)
    theta = times
    z = 6 * math.pi + 1 - theta
    out = torch.stack([0.3 * theta * theta.cos() + 5, 0.3 * theta * theta.sin()], -1)
    back = torch.stack([15 / z * z.cos() - 5, 15 / z * z.sin()], -1).flip(0)
    both = torch.cat([out, back])
    low, high = both.amin(0), both.amax(0)
    kinds = [((curve - low) / (high - low)).float() for curve in (out, back)]
    assert torch.equal(clean, noisy)
    found = [[torch.allclose(curve, kind, atol=1e-6) for kind in kinds] for curve in clean]
    assert all(any(row) for row in found)
    assert {row.index(True) for row in found} == {0, 1}


@pytest.mark.parametrize(
    ("alpha", "noise", "constant"),  # percent of the scaled axes: noise 0.1 on each, error of a constant
    [(0.02, (0.44, 0.49), 28), (0.2, (0.19, 0.27), 17), (2.0, (0.01, 0.04), 7)],
)
def test_statistics_are_those_of_the_protocol(alpha: float, noise: tuple[float, float], constant: float) -> None:
    _, clean, noisy = draw(alpha, 300, noise=0.1, seed=42)
    spread = 100 * (noisy - clean).std(dim=(0, 1))
    assert noise[0] < float(spread.min())
    assert float(spread.max()) < noise[1]
    assert (float(clean.min()), float(clean.max())) == (0.0, 1.0)
    guess = (clean - clean.mean(dim=(0, 1))).square().sum(dim=-1).mean().sqrt()
    assert abs(100 * float(guess) - constant) < 1


@pytest.mark.parametrize("unobserved", ["query", "rows"])
def test_inputs_lie_in_the_first_half_and_targets_are_the_clean_curve(unobserved: str) -> None:
    splits = data.load("spiral-0.2", points=30, unobserved=unobserved)
    (batch,) = splits.test.batches(100)
    assert batch.targets is not None
    assert torch.equal(batch.targets, splits.test.clean)
    seen = batch.observed.all(-1)
    assert seen.sum(1).unique().tolist() == [30]
    assert float(batch.times[seen].max()) <= float(splits.test.times[HALF - 1])
    rows = 30 if unobserved == "query" else POINTS
    assert batch.values.shape == (100, rows, 2)
    assert (batch.query_times is not None) == (unobserved == "query")
    assert bool((batch.values[~seen] == 0).all())


def test_the_parts_do_not_overlap_and_the_seed_moves_everything() -> None:
    splits = data.load("spiral-2", seed=7)
    assert [len(p) for p in (splits.train, splits.validation, splits.test)] == [170, 30, 100]
    curves = torch.cat([p.clean for p in (splits.train, splits.validation, splits.test)]).flatten(1)
    assert len(torch.unique(curves, dim=0)) == 300
    assert not torch.equal(data.load("spiral-2", seed=8).test.clean, splits.test.clean)
    assert torch.equal(data.load("spiral-2", seed=7).test.noisy, splits.test.noisy)


def test_training_batches_are_a_function_of_seed_and_epoch() -> None:
    part = data.load("spiral-0.02", steps=3).train
    first, again, later = (list(part.training_batches(8, epoch)) for epoch in (0, 0, 1))
    assert len(first) == 3
    for a, b, c in zip(first, again, later, strict=True):
        assert torch.equal(a.values, b.values)
        assert not torch.equal(a.values, c.values)
        assert not torch.equal(a.times, c.times)
    assert not torch.equal(first[0].times, first[1].times)


def test_a_training_batch_is_asked_at_some_of_the_times_and_knows_their_targets() -> None:
    part = data.load("spiral-0.02", steps=1, asked=20).train
    (batch,) = part.training_batches(170, epoch=0)
    assert batch.query_times is not None
    assert batch.targets is not None
    assert batch.query_times.shape == (170, 20)
    for time, target in zip(batch.query_times[0], batch.targets.unbind(1), strict=True):
        at = int((part.times - time).abs().argmin())
        assert sorted(target[:, 0].tolist()) == sorted(part.clean[:, at, 0].tolist())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"points": 76}, "points must lie between 1 and 75"),
        ({"asked": 0}, "asked must lie between 1 and 150"),
        ({"validation": 200}, "validation must lie between 1 and 199"),
        ({"unobserved": "zeros"}, "unobserved of spiral-2 must be one of"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        data.load("spiral-2", **options)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown data set 'spirals'; there are ethanol"):
        data.load("spirals")
