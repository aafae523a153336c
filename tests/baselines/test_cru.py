"""CRU: its step against integrals and the Kalman filter, what an interval does, and that its basis stays orthogonal."""

import math

import pytest
import torch
from helpers import irregular_arrays, relative_error
from torch import Tensor, nn

from lformer import IrregularBatch, tasks
from lformer.baselines import CRU, CRUConfig
from lformer.baselines.cru import MOST_GROWTH, growth_rate, in_eigenbasis, shortened, van_loan
from lformer.baselines.linear_sde import Orthogonal, grown_over_rate
from lformer.baselines.rkn import Belief

M = 3
N = 2 * M
every_kind = pytest.mark.parametrize("fast", [False, True])


def build(answer: str = "step", scattered: bool = True, **choices: object) -> CRU:
    torch.manual_seed(0)
    sizes = {"inputs": 3, "outputs": 2, "answer": answer, "width": 6, "state": N, "transitions": 3, "band": 1}
    model = CRU(CRUConfig(**{**sizes, "rows": "observed"} | choices)).double()
    if scattered:
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.3)
    model.rows.interval.fill_(2.5)
    return model


def some_batch(seed: int = 0) -> IrregularBatch:
    values, times, lengths = irregular_arrays(3, 9, 3, seed=seed)
    values[:, [0, 4]] = torch.nan  # nothing observed
    return IrregularBatch.build(values, times, lengths=lengths, dtype=torch.float64)


def some_belief() -> Belief:
    g = torch.Generator().manual_seed(1)
    root = torch.randn(5, M, 2, 2, generator=g).double()
    S = root @ root.mT + 0.1 * torch.eye(2).double()
    return Belief(torch.randn(5, 2, M, generator=g).double(), S.movedim(1, -1))


def full(belief: Belief) -> Tensor:
    """(..., 2 m, 2 m), the covariance as one matrix."""
    return torch.diag_embed(belief.covariance).transpose(-3, -2).flatten(-4, -3).flatten(-2)


def integral(A: Tensor, Q: Tensor, delta: float, points: int = 100) -> Tensor:
    """∫ e^{As} Q e^{Aᵀs} ds from 0 to delta, by Simpson's rule."""
    s = torch.linspace(0, delta, 2 * points + 1, dtype=torch.float64)
    weights = torch.full((2 * points + 1,), 2.0).double()
    weights[1::2], weights[0], weights[-1] = 4.0, 1.0, 1.0
    Φ = torch.matrix_exp(A * s[:, None, None])
    return (weights[:, None, None] * (Φ @ Q @ Φ.mT)).sum(0) * (delta / (2 * points) / 3)


def some_dynamics(symmetric: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A (N, N), its eigenvectors and eigenvalues if it is symmetric, and a spectral density (N,)."""
    torch.manual_seed(2)
    E, d = torch.linalg.qr(torch.randn(N, N).double())[0], torch.randn(N).double() * 0.5
    d[1] = -d[0]  # their sum is 0
    A = E @ torch.diag(d) @ E.mT if symmetric else torch.randn(N, N).double() * 0.4
    return A, E, d, torch.rand(N).double() + 0.1


@pytest.mark.parametrize("delta", [0.0, 1e-6, 0.3, 1.7])
def test_both_steps_are_the_matrix_exponential_and_the_integral(delta: float) -> None:
    for symmetric in (False, True):
        A, E, d, density = some_dynamics(symmetric)
        moment = torch.tensor(delta, dtype=torch.float64)
        steps = [van_loan(A, density, moment)] + ([in_eigenbasis(E, d, density, moment)] if symmetric else [])
        for step in steps:
            assert relative_error(step.kept, torch.matrix_exp(A * delta)) < 1e-12
            known = integral(A, torch.diag(density), delta)
            assert relative_error(step.noise, known, scale=max(delta, 1e-12)) < 1e-8


def test_two_half_intervals_are_a_whole_one() -> None:
    A, E, d, density = some_dynamics(symmetric=True)
    whole, half = torch.tensor(3.0).double(), torch.tensor(1.5).double()
    for run in (lambda t: van_loan(A, density, t), lambda t: in_eigenbasis(E, d, density, t)):
        one, two = run(whole), run(half)
        assert relative_error(two.kept @ two.kept, one.kept) < 1e-12
        assert relative_error(two.kept @ two.noise @ two.kept.mT + two.noise, one.noise) < 1e-12


def test_a_state_that_decays_is_exact_over_long_intervals_too() -> None:
    """There e^{-AᵀΔ} has 1e86, and fast and slow decay stand side by side."""
    _, E, _, density = some_dynamics(symmetric=True)
    d = -torch.tensor([1e-3, 0.1, 0.5, 1.0, 1.5, 2.0]).double()
    A, long = E @ torch.diag(d) @ E.mT, torch.tensor(100.0).double()
    exact, found = in_eigenbasis(E, d, density, long), van_loan(A, density, long)
    assert relative_error(found.noise, exact.noise) < 1e-9
    assert relative_error(found.kept, exact.kept) < 1e-9
    assert relative_error(van_loan(A.float(), density.float(), long.float()).noise, exact.noise) < 1e-4


@every_kind
def test_without_dynamics_the_covariance_grows_by_the_noise(fast: bool) -> None:
    model, belief, deltas = build(fast=fast), some_belief(), torch.tensor([0.0, 1e-9, 0.3, 2.0, 50.0]).double()
    with torch.no_grad():
        (model.transition.rates if fast else model.transition.matrices).zero_()
        found = model.transition.prepared()(belief, deltas)
    assert relative_error(found.mean, belief.mean) < 1e-12
    Q = torch.diag(model.transition.noise.detach().exp())
    assert relative_error(full(found), full(belief) + deltas[:, None, None] * Q) < 1e-12


@every_kind
def test_a_step_moves_the_belief_by_the_full_kalman_prediction(fast: bool) -> None:
    model, belief = build(fast=fast), some_belief()
    transition, deltas = model.transition, torch.tensor([0.0, 0.1, 0.5, 1.0, 2.0]).double()
    found, shares = transition.prepared()(belief, deltas), transition.mixture(belief.mean.flatten(1))
    for i in range(5):
        if fast:
            E = transition.basis()
            A = E @ torch.diag(shares[i] @ transition.rates) @ E.mT
        else:
            matrices = torch.where(transition.band, transition.matrices, 0)
            A = torch.einsum("k,kahbc->habc", shares[i], matrices).reshape(N, N)
        Φ, Q = torch.matrix_exp(A * deltas[i]), torch.diag(transition.noise.exp())
        P = Φ @ full(belief)[i] @ Φ.mT + integral(A, Q, float(deltas[i]))
        assert relative_error(found.mean[i].flatten(), Φ @ belief.mean[i].flatten()) < 1e-10
        diagonals = P.view(2, M, 2, M).diagonal(dim1=1, dim2=3)
        assert relative_error(found.covariance[i], diagonals) < 1e-9


@every_kind
def test_a_row_without_an_observation_is_predicted_and_not_updated(fast: bool) -> None:
    model, batch = build(fast=fast), some_batch()
    x = model.embed_rows(model.rows(batch).rows, batch)
    beliefs, predict = model.filter(x, batch), model.transition.prepared()
    before = Belief(*(part[:1, 3] for part in beliefs))
    known = predict(before, batch.deltas[:1, 4] / 2.5)
    assert relative_error(beliefs.mean[:1, 4], known.mean) < 1e-12
    assert relative_error(beliefs.covariance[:1, 4], known.covariance) < 1e-12
    assert relative_error(beliefs.mean[:1, 3], beliefs.mean[:1, 4]) > 1e-3


@every_kind
def test_variances_stay_positive(fast: bool) -> None:
    for seed in range(3):
        model, batch = build(fast=fast), some_batch(seed)
        found = model.filter(model.embed_rows(model.rows(batch).rows, batch), batch)
        (upper, side), (_, lower) = (half.unbind(2) for half in found.covariance.detach().unbind(2))
        assert float(upper.min()) > 0
        assert float(lower.min()) > 0
        assert bool((side.square() <= upper * lower * (1 + 1e-6)).all())


@every_kind
def test_growth_over_a_long_gap_is_limited(fast: bool) -> None:
    model = build(fast=fast).float()
    belief = Belief(*(part.float() for part in some_belief()))
    with torch.no_grad():
        (model.transition.rates if fast else model.transition.matrices).fill_(2.0)
        found = model.transition.prepared()(belief, torch.full((5,), 1e6))
    size = found.mean.flatten(1).norm(dim=1) / belief.mean.flatten(1).norm(dim=1)
    assert float(size.max()) <= math.exp(MOST_GROWTH) * 1.001
    assert bool(torch.isfinite(found.covariance).all())


def test_only_intervals_over_which_the_state_grows_too_far_are_shortened() -> None:
    rate, deltas = torch.tensor([-3.0, 0.0, 0.1, 0.1]).double(), torch.tensor([1e9, 1e9, 7.0, 1e9]).double()
    assert shortened(deltas, rate).tolist() == pytest.approx([1e9, 1e9, 7.0, MOST_GROWTH / 0.1])
    A = torch.randn(50, N, N, generator=torch.Generator().manual_seed(0)).double()
    assert bool((growth_rate(A) >= torch.linalg.eigvalsh((A + A.mT) / 2)[:, -1] - 1e-12).all())


def test_the_quotient_is_exact_and_smooth_at_zero() -> None:
    x = torch.tensor([-30.0, -1e-3, -1e-5, 0.0, 1e-9, 0.7]).double().requires_grad_()
    known = [math.expm1(v) / v if v else 1.0 for v in x.tolist()]
    assert grown_over_rate(x).tolist() == pytest.approx(known, rel=1e-12)
    assert torch.autograd.gradcheck(grown_over_rate, x)


def test_gradients_are_those_of_finite_differences() -> None:
    A, E, d, density = (p.requires_grad_() for p in some_dynamics(symmetric=True))
    moment = torch.tensor([0.7]).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda *p: tuple(van_loan(*p)), (A[None], density, moment))
    assert torch.autograd.gradcheck(lambda *p: tuple(in_eigenbasis(*p)), (E, d[None], density, moment))


def test_the_basis_stays_orthogonal_while_it_learns() -> None:
    torch.manual_seed(0)
    basis = Orthogonal(7).double()
    start, target = basis().detach(), torch.randn(7, 7).double()
    optimiser = torch.optim.Adam(basis.parameters(), lr=0.1)
    for _ in range(30):
        optimiser.zero_grad()
        (basis() - target).square().sum().backward()
        optimiser.step()
    E = basis().detach()
    assert relative_error(E @ E.mT, torch.eye(7)) < 1e-12
    assert float(torch.linalg.det(E)) == pytest.approx(1.0)
    assert relative_error(E, start) > 0.1


def test_it_starts_as_published() -> None:
    slow, fast = build(scattered=False), build(scattered=False, fast=True)
    assert float(slow.transition.matrices.detach().abs().max()) == 0
    assert fast.transition.rates.flatten().tolist() == pytest.approx([1e-5] * 3 * N, rel=1e-6)
    assert len(slow.transition.mixture) == 2  # a linear map, and the softmax


def test_it_is_trained_by_the_likelihood_that_rkn_has() -> None:
    batch, model = some_batch(), build("step")
    mean, variance = model.gaussian(batch)
    targets = torch.randn(3, 9, 2, generator=torch.Generator().manual_seed(0)).double()
    batch = IrregularBatch.build(
        torch.where(batch.observed, batch.values, torch.nan), batch.times, lengths=batch.lengths, dtype=torch.float64,
        targets=targets, targets_observed=batch.valid[..., None].expand(3, 9, 2),
    )  # fmt: skip
    counted = batch.valid
    known = nn.functional.gaussian_nll_loss(mean[counted], targets[counted], variance[counted])
    assert relative_error(model.training_loss(tasks.regress_points(2), batch), known) < 1e-6
