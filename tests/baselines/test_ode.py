"""The solver: known solutions, order of the methods, gradients; intervals of states, moments of trajectories."""

import sys

import pytest
import torch
from helpers import irregular_batch, relative_error
from torch import Tensor, nn

from lformer.baselines import NODE, NODEConfig
from lformer.baselines.ode import Field, Solver

METHODS = ["euler", "midpoint", "rk4"]
INTERVALS = torch.tensor([0.0, 0.3, -0.7, 1.9, 1e-3]).double()
STATES = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)).double()
MOMENTS = (
    INTERVALS[:, None] + torch.tensor([0.0, 0.61, -1.3, 1 / 16, 2.07]).double()
)  # of each state, before 0 and after


def solver(method: str = "rk4", steps: int = 4, tolerance: float = 1e-9, adjoint: bool = False) -> Solver:
    return Solver(method, steps, tolerance, tolerance, adjoint)


def linear() -> nn.Linear:
    torch.manual_seed(1)
    return nn.Linear(3, 3, bias=False).double()


def wild() -> Field:
    """A field that is neither linear nor small."""
    torch.manual_seed(2)
    field = Field(3, 5, 1).double()
    for parameter in field.parameters():
        nn.init.normal_(parameter, std=0.6)
    return field


def exact(A: Tensor) -> Tensor:
    return torch.stack([torch.matrix_exp(A * t) @ y for t, y in zip(INTERVALS, STATES, strict=True)])


@pytest.mark.parametrize("method", ["rk4", "dopri5"])
def test_a_linear_equation_is_a_matrix_exponential(method: str) -> None:
    field = linear()
    assert relative_error(solver(method, steps=60)(field, STATES, INTERVALS), exact(field.weight)) < 1e-8


@pytest.mark.parametrize(("method", "order"), [("euler", 1), ("midpoint", 2), ("rk4", 4)])
def test_half_the_step_divides_the_error_by_the_order(method: str, order: int) -> None:
    field = linear()
    known = exact(field.weight)
    coarse, fine = (relative_error(solver(method, n)(field, STATES, INTERVALS), known) for n in (16, 32))
    assert coarse / fine == pytest.approx(2**order, rel=0.15)


@pytest.mark.parametrize("method", METHODS)
def test_two_half_intervals_are_a_whole_one(method: str) -> None:
    field, half = wild(), solver(method, 3)
    twice = half(field, half(field, STATES, INTERVALS / 2), INTERVALS / 2)
    assert relative_error(twice, solver(method, 6)(field, STATES, INTERVALS)) < 1e-13


@pytest.mark.parametrize("method", [*METHODS, "dopri5"])
def test_no_interval_and_no_field_change_nothing(method: str) -> None:
    solve, field = solver(method), wild()
    assert torch.equal(solve(field, STATES, torch.zeros(5).double()), STATES)
    nn.init.zeros_(field[-1].weight)
    nn.init.zeros_(field[-1].bias)
    assert torch.equal(solve(field, STATES, INTERVALS), STATES)
    assert solve(field, STATES[:0], INTERVALS[:0]).shape == (0, 3)


@pytest.mark.parametrize("method", ["rk4", "dopri5"])
def test_there_and_back_is_where_it_began(method: str) -> None:
    solve, field = solver(method, steps=60), wild()
    there = solve(field, STATES, INTERVALS)
    assert relative_error(there, STATES) > 0.1
    assert relative_error(solve(field, there, -INTERVALS), STATES) < 1e-7


def test_the_error_of_an_adaptive_solver_follows_its_tolerance() -> None:
    """The tolerance is that of a step; a few of them add up here, and the equation spreads what they add."""
    field, tolerances = wild(), (1e-3, 1e-5, 1e-7, 1e-9)
    known = solver("rk4", steps=400)(field, STATES, INTERVALS)
    errors = [relative_error(solver("dopri5", tolerance=t)(field, STATES, INTERVALS), known) for t in tolerances]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 1e-6
    assert all(error < 12 * tolerance for error, tolerance in zip(errors, tolerances, strict=True))


def test_a_long_interval_does_not_hide_among_short_ones() -> None:
    field, solve = wild(), solver("dopri5", tolerance=1e-4)
    states, intervals = STATES[[3]].expand(300, -1), torch.zeros(300).double()
    intervals[0] = 1.9
    known = solver("rk4", steps=400)(field, STATES[[3]], INTERVALS[[3]])
    assert relative_error(solve(field, states, intervals)[:1], known) < 1e-3


def test_gradients_of_an_adaptive_solver_are_finite_and_those_of_small_steps() -> None:
    field, found = wild(), []
    for method in ("rk4", "dopri5"):
        y = solver(method, 200)(field, STATES, INTERVALS)
        found.append(torch.autograd.grad(y.sin().sum(), list(field.parameters())))
    for known, other in zip(*found, strict=True):
        assert relative_error(other, known) < 1e-6


@pytest.mark.parametrize("method", ["rk4", "dopri5"])
def test_adjoint_gradients_are_the_direct_ones(method: str) -> None:
    field, found = wild(), []
    for adjoint in (False, True):
        start = STATES.clone().requires_grad_()
        y = solver(method, 60, adjoint=adjoint)(field, start, INTERVALS)
        found.append(torch.autograd.grad(y.sin().sum(), [start, *field.parameters()]))
    for direct, other in zip(*found, strict=True):
        assert not torch.equal(direct, other)  # they were computed in another way
        assert relative_error(other, direct) < 1e-6


@pytest.mark.parametrize("method", METHODS)
def test_company_does_not_change_a_state(method: str) -> None:
    solve, field = solver(method), wild()
    known = solve(field, STATES, INTERVALS)
    for i in range(5):
        assert relative_error(solve(field, STATES[i : i + 1], INTERVALS[i : i + 1]), known[i : i + 1]) < 1e-13


@pytest.mark.parametrize("method", ["rk4", "dopri5"])
def test_a_linear_trajectory_is_matrix_exponentials(method: str) -> None:
    field = linear()
    assert relative_error(solver(method, 100).along(field, STATES, MOMENTS), exact_along(field.weight)) < 1e-7


def exact_along(A: Tensor) -> Tensor:
    return torch.stack([torch.matrix_exp(A * row[:, None, None]) @ y for row, y in zip(MOMENTS, STATES, strict=True)])


@pytest.mark.parametrize(("method", "order"), [("euler", 1), ("midpoint", 2), ("rk4", 4)])
def test_half_the_pitch_divides_the_error_by_the_order(method: str, order: int) -> None:
    """Also between points of the grid, where the interpolation adds to the error."""
    field = linear()
    known = exact_along(field.weight)
    coarse, fine = (relative_error(solver(method, n).along(field, STATES, MOMENTS), known) for n in (16, 128))
    assert coarse / fine == pytest.approx(8**order, rel=0.05)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("sign", [1, -1])
def test_at_points_of_the_grid_it_is_what_steps_from_point_to_point_give(method: str, sign: int) -> None:
    field = wild()
    moments = sign * torch.tensor([0, 1, 2, 7, 12]).double()[:, None] / 4
    found = solver(method, 4).along(field, STATES, moments)
    assert torch.equal(found[0, 0], STATES[0])
    for k, n in enumerate((1, 2, 7, 12), start=1):
        known = solver(method, n)(field, STATES[[k]], moments[k])
        assert relative_error(found[k], known) < 1e-13


@pytest.mark.parametrize("method", METHODS)
def test_two_parts_of_a_trajectory_are_a_whole(method: str) -> None:
    field, solve = wild(), solver(method, 4)
    for sign in (1, -1):
        later = sign * MOMENTS.abs()
        half = solve.along(field, STATES, torch.full((5, 1), sign * 0.5).double())[:, 0]
        assert relative_error(solve.along(field, half, later), solve.along(field, STATES, later + sign * 0.5)) < 1e-12


@pytest.mark.parametrize("method", [*METHODS, "dopri5"])
def test_other_moments_change_none(method: str) -> None:
    solve, field = solver(method, 8), wild()
    known = solve.along(field, STATES, MOMENTS)
    more = torch.cat([MOMENTS.flip(1) * 3, MOMENTS], dim=1)
    assert relative_error(solve.along(field, STATES, more)[:, 5:], known) < 1e-12
    for m in range(5):
        assert relative_error(solve.along(field, STATES, MOMENTS[:, [m]]), known[:, [m]]) < 1e-12


@pytest.mark.parametrize("method", METHODS)
def test_company_does_not_change_a_trajectory(method: str) -> None:
    solve, field = solver(method, 8), wild()
    known = solve.along(field, STATES, MOMENTS)
    for i in range(5):
        assert relative_error(solve.along(field, STATES[[i]], MOMENTS[[i]]), known[[i]]) < 1e-12


@pytest.mark.parametrize("method", [*METHODS, "dopri5"])
def test_a_trajectory_without_a_field_stays(method: str) -> None:
    solve, field = solver(method), wild()
    assert torch.equal(solve.along(field, STATES, torch.zeros(5, 2).double()), STATES[:, None].expand(-1, 2, -1))
    nn.init.zeros_(field[-1].weight)
    nn.init.zeros_(field[-1].bias)
    assert torch.equal(solve.along(field, STATES, MOMENTS), STATES[:, None].expand(-1, 5, -1))
    assert solve.along(field, STATES[:0], MOMENTS[:0]).shape == (0, 5, 3)
    assert solve.along(field, STATES, MOMENTS[:, :0]).shape == (5, 0, 3)


def test_the_error_of_an_adaptive_trajectory_follows_its_tolerance() -> None:
    field, tolerances = wild(), (1e-3, 1e-5, 1e-7)
    known = solver("rk4", 400).along(field, STATES, MOMENTS)
    errors = [relative_error(solver("dopri5", 200, t).along(field, STATES, MOMENTS), known) for t in tolerances]
    assert all(error < 12 * tolerance for error, tolerance in zip(errors, tolerances, strict=True))
    assert errors[0] > 1e-6


@pytest.mark.parametrize("method", ["rk4", "dopri5"])
def test_adjoint_gradients_of_a_trajectory_are_the_direct_ones(method: str) -> None:
    field, found = wild(), []
    for adjoint in (False, True):
        start = STATES.clone().requires_grad_()
        y = solver(method, 40, adjoint=adjoint).along(field, start, MOMENTS / 2)
        found.append(torch.autograd.grad(y.sin().sum(), [start, *field.parameters()]))
    for direct, other in zip(*found, strict=True):
        assert not torch.equal(direct, other)
        assert relative_error(other, direct) < 1e-6


class Explosive(nn.Module):
    """dy/dt = y³, infinite at time 1 / (2 y²)."""

    def forward(self, y: Tensor) -> Tensor:
        return y**3


def test_an_equation_whose_solution_ends_is_refused_in_words() -> None:
    y, intervals = torch.tensor([[1.0], [30.0]]), torch.tensor([0.1, 0.7])
    with pytest.raises(FloatingPointError, match=r"dopri5 would need steps that float32 cannot hold.*take rk4"):
        Solver("dopri5", 4, 1e-3, 1e-4, adjoint=False)(Explosive(), y, intervals)


def test_a_field_is_small_at_first_and_zero_at_zero() -> None:
    torch.manual_seed(0)
    field = Field(30, 40, 2)
    assert [layer.out_features for layer in field if isinstance(layer, nn.Linear)] == [40, 40, 40, 30]
    assert float(field[0].weight.detach().std()) == pytest.approx(0.1, rel=0.1)
    assert float(field(torch.zeros(30)).detach().abs().max()) == 0


def test_without_torchdiffeq_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchdiffeq", None)
    with pytest.raises(ImportError, match=r"pip install \"lformer\[baselines\]\""):
        NODE(NODEConfig(inputs=3, outputs=2)).double()(irregular_batch())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"method": "rk45"}, "'euler', 'midpoint', 'rk4', 'dopri5'; got 'rk45'"),
        ({"steps": 0}, "steps must be at least 1; got 0"),
        ({"rtol": 0.0}, "rtol must be greater than 0; got 0.0"),
        ({"atol": -1.0}, "atol must be greater than 0; got -1.0"),
        ({"latent": 0}, "latent must be at least 1; got 0"),
        ({"activation": "sine"}, "'tanh', 'elu'; got 'sine'"),
    ],
)
def test_unknown_choices_are_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        NODEConfig(**{"inputs": 3, "outputs": 2} | change)
