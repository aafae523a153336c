"""Log-signatures: an independent implementation, signatures, and what they must not depend on."""

import pytest
import torch
from helpers import relative_error
from pysiglib import torch_api
from torch import Tensor

from lformer.baselines.log_signature import log_signature, pairs, size, words
from lformer.baselines.signature import prefixes

TIGHT = 1e-11
levels = pytest.mark.parametrize("level", [1, 2, 3])


def path(points: int = 9, dimensions: int = 3, seed: int = 0) -> Tensor:
    """(2, N, d), with steps of very different sizes."""
    g = torch.Generator().manual_seed(seed)
    steps = torch.randn(2, points, dimensions, generator=g, dtype=torch.float64)
    return (steps * torch.exp(torch.randn(2, points, 1, generator=g, dtype=torch.float64))).cumsum(dim=1)


@levels
@pytest.mark.parametrize("dimensions", [2, 3, 5])
def test_an_independent_implementation_agrees_with_gradients(level: int, dimensions: int) -> None:
    points = path(dimensions=dimensions)
    ours, theirs = points.clone().requires_grad_(), points.clone().requires_grad_()
    found = log_signature(ours, level)
    torch_api.prepare_log_sig(dimensions, level, 2)
    expected = torch_api.log_sig(theirs, level, method=2)
    assert found.shape == (2, size(dimensions, level))
    assert relative_error(found, expected) < TIGHT
    weight = torch.linspace(-1, 1, found.shape[-1]).double()
    (one,) = torch.autograd.grad((found * weight).sum(), ours)
    (other,) = torch.autograd.grad((expected * weight).sum(), theirs)
    assert relative_error(one, other) < TIGHT


def test_level_2_is_the_antisymmetric_part_of_the_signature() -> None:
    points = path(dimensions=4)
    first, second = (one[:, -1] for one in prefixes(points, 2))
    i, j = pairs(4, points.device)
    matrix = second.unflatten(-1, (4, 4))
    areas = (matrix - matrix.transpose(1, 2))[:, i, j] / 2
    assert relative_error(log_signature(points, 2), torch.cat([first, areas], dim=-1)) < TIGHT


def test_the_area_of_a_square() -> None:
    square = torch.tensor([[0.0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]).double()
    assert torch.equal(log_signature(square, 2), torch.tensor([0.0, 0.0, 1.0]).double())
    assert torch.equal(log_signature(square.flip(0), 2), torch.tensor([0.0, 0.0, -1.0]).double())


@pytest.mark.parametrize("level", [2, 3])
def test_neither_origin_nor_points_on_a_line_nor_repeats_matter(level: int) -> None:
    points = path()
    known = log_signature(points, level)
    finer = torch.stack([points[:, :-1], points[:, :-1] + 0.3 * points.diff(dim=1), points[:, :-1]], dim=2)
    finer[:, :, 2] = finer[:, :, 1]
    finer = torch.cat([finer.flatten(1, 2), points[:, -1:]], dim=1)
    assert relative_error(log_signature(finer, level), known) < TIGHT
    assert relative_error(log_signature(points + 100, level), known) < 1e-9


def test_one_path_after_another_has_half_the_bracket_of_both_in_addition() -> None:
    """Baker, Campbell and Hausdorff at level 2: ℓ(xy) = ℓ(x) + ℓ(y) + ½ [x, y]."""
    points = path(points=11)
    before, after = log_signature(points[:, :5], 2), log_signature(points[:, 4:], 2)
    i, j = pairs(3, points.device)
    bracket = before[:, i] * after[:, j] - before[:, j] * after[:, i]
    expected = before + after + torch.cat([torch.zeros(2, 3).double(), bracket / 2], dim=-1)
    assert relative_error(log_signature(points, 2), expected) < TIGHT


def in_group(log: Tensor, A: Tensor) -> Tensor:
    """(2, β), (d, n, n) -> (2, n, n), the exponential of the brackets of matrices that a log-signature weighs."""

    def bracket(x: Tensor, y: Tensor) -> Tensor:
        return x @ y - y @ x

    basis = [*A, *(bracket(A[i], A[j]) for i, j in pairs(len(A), A.device).T.tolist())]
    for i, j, k in words(len(A), A.device).T.tolist():
        basis.append(bracket(A[i], bracket(A[j], A[k])) if j < k else bracket(bracket(A[i], A[j]), A[k]))
    return torch.linalg.matrix_exp(torch.einsum("bw,wmn->bmn", log, torch.stack(basis)))


def test_level_3_is_exact_where_brackets_of_four_vanish() -> None:
    """Strictly upper triangular 4 × 4: a product over the pieces of a path, and over one path after another."""
    A = torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64).triu(diagonal=1)
    points = path(points=11)
    expected = torch.eye(4).double().expand(2, 4, 4)
    for step in points.diff(dim=1).unbind(dim=1):
        expected = expected @ torch.linalg.matrix_exp(torch.einsum("ba,amn->bmn", step, A))
    whole, before, after = (in_group(log_signature(x, 3), A) for x in (points, points[:, :5], points[:, 4:]))
    assert relative_error(whole, expected) < TIGHT
    assert relative_error(before @ after, whole) < TIGHT
    lower = torch.cat([log_signature(points, 2), torch.zeros(2, 8).double()], dim=-1)
    assert relative_error(in_group(lower, A), expected) > 1e-3


def test_a_higher_level_begins_with_the_lower_ones() -> None:
    points = path(dimensions=4)
    for level in (1, 2):
        assert torch.equal(log_signature(points, 3)[:, : size(4, level)], log_signature(points, level))
