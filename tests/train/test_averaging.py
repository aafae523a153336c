"""Averaged weights: the mean that is told, exchanged in place, and the same after an interruption."""

import torch
from torch import nn

from lformer.train.averaging import AveragedWeights


def walk(model: nn.Linear, averaged: AveragedWeights, steps: range) -> list[torch.Tensor]:
    seen = []
    for n in steps:
        with torch.no_grad():
            model.weight.fill_(float(n * n))
        averaged.add(averaged.share(n))
        seen.append(model.weight.detach().clone())
    return seen


def test_the_mean_is_exponential_over_the_span() -> None:
    model = nn.Linear(1, 1)
    averaged = AveragedWeights(model, 5.0)
    expected = 0.0
    for n, weight in enumerate(walk(model, averaged, range(30))):
        expected += (float(weight) - expected) / min(5.0, 1 + n / 2)
    assert abs(float(averaged.mean["weight"]) - expected) < 1e-3


def test_weights_are_exchanged_in_place_and_come_back() -> None:
    model = nn.Linear(2, 2)
    averaged = AveragedWeights(model, 10.0)
    walk(model, averaged, range(5))  # type: ignore[arg-type]
    place, now, mean = model.weight.data_ptr(), model.weight.detach().clone(), averaged.mean["weight"].clone()
    with averaged.in_place():
        assert torch.equal(model.weight, mean)
        assert model.weight.data_ptr() == place
    assert torch.equal(model.weight, now)
    assert torch.equal(averaged.mean["weight"], mean)


def test_without_a_span_nothing_is_averaged() -> None:
    model = nn.Linear(2, 2)
    averaged = AveragedWeights(model, 0.0)
    walk(model, averaged, range(3))  # type: ignore[arg-type]
    with averaged.in_place():
        assert bool((model.weight == 4.0).all())
    assert averaged.state() == {}


def test_it_goes_on_from_a_checkpoint() -> None:
    model = nn.Linear(1, 1)
    whole = AveragedWeights(model, 7.0)
    walk(model, whole, range(20))
    half = AveragedWeights(model, 7.0)
    walk(model, half, range(10))
    later = AveragedWeights(model, 7.0)
    later.load({name: tensor.clone() for name, tensor in half.state().items()})
    walk(model, later, range(10, 20))
    assert torch.equal(later.mean["weight"], whole.mean["weight"])
