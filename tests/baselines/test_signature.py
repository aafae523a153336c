"""Signatures: known answers, Chen's identity, invariances, and an independent implementation."""

import math

import pytest
import torch
from helpers import relative_error
from pysiglib import torch_api
from torch import Tensor

from lformer.baselines.signature import Levels, chen, inverse, prefixes, size, straight

TIGHT = 1e-12
levels = pytest.mark.parametrize("level", [1, 2, 3])


def path(points: int = 9, dimensions: int = 3, seed: int = 0) -> Tensor:
    """(2, N, d), with steps of very different sizes."""
    g = torch.Generator().manual_seed(seed)
    steps = torch.randn(2, points, dimensions, generator=g, dtype=torch.float64)
    return (steps * torch.exp(torch.randn(2, points, 1, generator=g, dtype=torch.float64))).cumsum(dim=1)


def of(points: Tensor, level: int) -> Levels:
    """Of whole paths."""
    return tuple(one[:, -1] for one in prefixes(points, level))


def flat(signature: Levels) -> Tensor:
    return torch.cat(signature, dim=-1)


@levels
@pytest.mark.parametrize("dimensions", [1, 2, 5])
def test_an_independent_implementation_agrees_with_gradients(level: int, dimensions: int) -> None:
    points = path(dimensions=dimensions)
    ours, theirs = points.clone().requires_grad_(), points.clone().requires_grad_()
    found, expected = flat(of(ours, level)), torch_api.signature(theirs, level)
    assert relative_error(found, expected) < TIGHT
    weight = torch.linspace(-1, 1, found.shape[-1]).double()
    (one,) = torch.autograd.grad((found * weight).sum(), ours)
    (other,) = torch.autograd.grad((expected * weight).sum(), theirs)
    assert relative_error(one, other) < TIGHT


def test_level_1_is_the_increment_and_level_2_a_double_sum() -> None:
    points = path()
    first, second = of(points, 2)
    assert relative_error(first, points[:, -1] - points[:, 0]) < TIGHT
    steps = points.diff(dim=1)
    expected = torch.zeros(2, 3, 3).double()
    for k in range(steps.shape[1]):
        expected += (points[:, k] - points[:, 0])[:, :, None] * steps[:, k, None]
        expected += 0.5 * steps[:, k, :, None] * steps[:, k, None]
    assert relative_error(second, expected.flatten(1)) < TIGHT


def test_a_straight_piece_has_powers_over_factorials() -> None:
    step = torch.tensor([0.5, -2.0]).double()
    first, second, third = straight(step, 3)
    assert torch.equal(first, step)
    for i in range(2):
        for j in range(2):
            assert second[2 * i + j] == pytest.approx(float(step[i] * step[j]) / 2)
            for k in range(2):
                expected = float(step[i] * step[j] * step[k]) / math.factorial(3)
                assert third[4 * i + 2 * j + k] == pytest.approx(expected)


@levels
def test_one_path_after_another_is_the_product_of_both(level: int) -> None:
    points, whole = path(), of(path(), level)
    for cut in (0, 3, 8):
        before, after = of(points[:, : cut + 1], level), of(points[:, cut:], level)
        assert relative_error(flat(chen(before, after)), flat(whole)) < TIGHT
        assert relative_error(flat(chen(inverse(before), whole)), flat(after), scale=float(flat(whole).abs().max())) < (
            TIGHT
        )


@levels
def test_there_and_back_is_nothing(level: int) -> None:
    whole, points = of(path(), level), path()
    assert relative_error(flat(of(points.flip(1), level)), flat(inverse(whole))) < TIGHT
    for both in (chen(whole, inverse(whole)), chen(inverse(whole), whole)):
        assert float(flat(both).abs().max()) < TIGHT * float(flat(whole).abs().max()) ** 3


@levels
def test_points_on_a_line_and_repeated_points_change_nothing(level: int) -> None:
    points, whole = path(), flat(of(path(), level))
    between = 0.3 * points[:, 4] + 0.7 * points[:, 5]
    more = torch.cat([points[:, :5], between[:, None], points[:, 5:6], points[:, 5:]], dim=1)
    assert relative_error(flat(of(more, level)), whole) < TIGHT


@levels
def test_neither_place_nor_pace_matters(level: int) -> None:
    """Moved anywhere, and run through at another pace: the same signature; a scale enters by its powers."""
    points, whole = path(), of(path(), level)
    assert relative_error(flat(of(points + 100, level)), flat(whole)) < 1e-10
    for n, (one, other) in enumerate(zip(of(2 * points, level), whole, strict=True), 1):
        assert relative_error(one, 2**n * other) < TIGHT


def test_single_points_and_sizes() -> None:
    assert [tuple(one.shape) for one in prefixes(torch.ones(2, 1, 4, 3), 3)] == [
        (2, 1, 4, 3), (2, 1, 4, 9), (2, 1, 4, 27)
    ]  # fmt: skip
    assert not bool(flat(of(torch.ones(2, 1, 3), 3)).any())
    assert [size(3, level) for level in (1, 2, 3)] == [3, 12, 39]
