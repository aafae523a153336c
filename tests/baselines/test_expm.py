"""Matrix exponentials by a number of squarings for each matrix: against torch's, for all norms, and their gradients."""

import pytest
import torch
from helpers import relative_error
from torch import Tensor

from lformer.baselines import expm
from lformer.baselines.expm import matrix_exp

NORMS = torch.tensor([0.0, 1e-12, 1e-3, 0.49, 0.51, 1.0, 3.0, 20.0, 300.0, 1e3]).double()


def some_matrices(skew: bool, seed: int = 0, size: int = 6) -> Tensor:
    """(10, N, N) of these norms, the largest eigenvalues of which have real part 0."""
    x = torch.randn(len(NORMS), size, size, generator=torch.Generator().manual_seed(seed)).double()
    x = x - x.mT if skew else x - torch.linalg.eigvals(x).real.amax(-1)[:, None, None] * torch.eye(size)
    return x * (NORMS / expm.one_norm(x))[:, None, None]


@pytest.mark.parametrize("skew", [False, True])
@pytest.mark.parametrize("looks", [False, True])
def test_it_is_the_matrix_exponential_for_every_norm(skew: bool, looks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expm, "can_look", lambda x: looks)
    x = some_matrices(skew)
    found = matrix_exp(x)
    for one, y, norm in zip(x, found, NORMS.tolist(), strict=True):
        assert relative_error(y, torch.matrix_exp(one)) < 1e-14 * max(1, norm)  # a phase of 1e3 has lost three digits
        assert relative_error(matrix_exp(one), y) < 1e-14 * max(1, norm)  # whatever else is in the batch
    assert torch.equal(found[0], torch.eye(6).double())
    if skew:
        assert relative_error(found @ found.mT, torch.eye(6).double().expand_as(found)) < 1e-14 * float(NORMS.max())


def test_gradients_are_those_of_torch() -> None:
    x = some_matrices(skew=False, size=4)[:-2].requires_grad_()
    weight = torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).double()
    found, known = (torch.autograd.grad((f(x) * weight).sum(), x)[0] for f in (matrix_exp, torch.matrix_exp))
    for one, other in zip(found, known, strict=True):
        assert relative_error(one, other) < 1e-12
    assert torch.autograd.gradcheck(matrix_exp, x[:5].detach().requires_grad_())


def test_squarings_end_at_a_norm_that_no_model_reaches() -> None:
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]]).double()
    limit = 2.0 ** (expm.MOST_SQUARINGS - 1)
    found = matrix_exp(torch.stack([turn * limit, turn * (3 * limit)]))
    assert relative_error(found[1], found[0]) < 1e-6
    assert torch.isfinite(found).all()
