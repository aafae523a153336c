"""Paths in pieces and the solves they drive: an independent implementation, known answers, orders of convergence."""

from itertools import pairwise

import pytest
import torch
import torchcde
from helpers import irregular_arrays, relative_error
from torch import Tensor

from lformer.baselines.driven import Solver, solve, states_along
from lformer.baselines.splines import cut, fill, hermite, straight
from lformer.nn.known import follow, look_ahead, nothing_known

TIGHT = 1e-12


def uneven(L: int = 9, d: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    """(2, L, d) points, and one vector of times (L,)."""
    g = torch.Generator().manual_seed(seed)
    times = torch.exp(torch.randn(L, generator=g, dtype=torch.float64)).cumsum(0)
    return torch.randn(2, L, d, generator=g, dtype=torch.float64), times


def derivative(piece: Tensor, s: float) -> Tensor:
    return sum(piece[..., k, :] * s**k for k in range(piece.shape[-2]))


def filled(values: Tensor, times: Tensor, *, causal: bool = False) -> Tensor:
    observed = ~values.isnan()
    values = torch.nan_to_num(values)
    known = follow(values, observed, times, nothing_known(len(values), values.shape[2], values, times.dtype))
    ahead = None if causal else look_ahead(values, observed, times).after_rows()
    return fill(times, known.after_rows(), ahead)


def test_cubic_pieces_are_those_of_torchcde() -> None:
    """Values and slopes at places inside every piece."""
    points, times = uneven()
    gaps = times.diff()
    pieces = hermite(points, gaps.expand(2, -1))
    theirs = torchcde.CubicSpline(torchcde.hermite_cubic_coefficients_with_backward_differences(points, times), times)
    for i in range(len(gaps)):
        for s in (0.0, 0.3, 0.8):
            moment = times[i] + s * gaps[i]
            assert relative_error(derivative(pieces[:, i], s), theirs.derivative(moment) * gaps[i]) < TIGHT
            whole = cut(pieces[:, i], torch.full((2,), s, dtype=torch.float64))
            way = sum(whole[:, k] / (k + 1) for k in range(3))
            assert relative_error(points[:, i] + way, theirs.evaluate(moment)) < TIGHT


def test_a_path_goes_through_its_points_with_continuous_slopes() -> None:
    points, times = uneven(seed=1)
    gaps = times.diff().expand(2, -1)
    pieces = hermite(points, gaps)
    steps = sum(pieces[:, :, k] / (k + 1) for k in range(3))
    assert relative_error(points[:, :1] + steps.cumsum(dim=1), points[:, 1:]) < TIGHT
    ends, starts = derivative(pieces, 1.0) / gaps[..., None], derivative(pieces, 0.0) / gaps[..., None]
    assert relative_error(ends[:, :-1], starts[:, 1:]) < TIGHT
    assert relative_error(straight(points)[:, :, 0].cumsum(dim=1) + points[:, :1], points[:, 1:]) < TIGHT


def test_beside_a_gap_of_nothing_a_piece_is_straight() -> None:
    points, times = uneven()
    gaps = times.diff().expand(2, -1).clone()
    gaps[:, 4] = 0.0
    pieces = hermite(points, gaps)
    assert torch.equal(pieces[:, 4:6, 0], points.diff(dim=1)[:, 4:6])
    assert bool((pieces[:, 4:6, 1:] == 0).all())
    assert bool((pieces[:, 6, 1:] != 0).all())


def test_gaps_are_filled_as_torchcde_does() -> None:
    """Along the line between observations, the nearest one at both ends."""
    values, times = uneven(L=14)
    values[torch.rand(2, 14, 3, generator=torch.Generator().manual_seed(0)) < 0.5] = torch.nan
    assert bool(values[:, 0].isnan().any())
    assert bool(values[:, -1].isnan().any())
    expected = torchcde.linear_interpolation_coeffs(values, times)
    assert relative_error(filled(values, times.expand(2, -1)), expected) < TIGHT


def test_causal_gaps_hold_the_latest_value() -> None:
    values, times, _ = irregular_arrays(3, 12, 3, seed=2)
    found = filled(values, times, causal=True)
    for b in range(3):
        latest = torch.zeros(3).double()
        for k in range(12):
            latest = torch.where(values[b, k].isnan(), latest, values[b, k])
            assert torch.equal(found[b, k], latest)


@pytest.mark.parametrize("solver", ["heun", "rk4"])
def test_a_linear_field_along_a_straight_piece_is_a_matrix_exponential(solver: Solver) -> None:
    """dh = Σ_a A_a h dX_a; halving the steps shrinks the error by 2 to the order."""
    g = torch.Generator().manual_seed(0)
    A, h, dX = (torch.randn(*shape, generator=g).double() for shape in ((3, 4, 4), (5, 4), (5, 3)))
    A, dX = 0.5 * A, 0.7 * dX
    expected = (torch.linalg.matrix_exp(torch.einsum("ba,ahk->bhk", dX, A)) @ h[..., None])[..., 0]

    def field(h: Tensor, drive: Tensor) -> Tensor:
        return torch.einsum("...a,ahk,...k->...h", drive, A, h)

    errors = [relative_error(solve(field, h, dX[:, None], n, solver), expected) for n in (16, 32, 64)]
    order = {"heun": 2, "rk4": 4}[solver]
    for coarse, fine in pairwise(errors):
        assert 2**order * 0.8 < coarse / fine < 2**order * 1.25
    assert errors[-1] < {"heun": 1e-2, "rk4": 1e-5}[solver]


@pytest.mark.parametrize("solver", ["heun", "rk4"])
def test_it_converges_at_the_same_order_along_cubic_pieces(solver: Solver) -> None:
    points, _ = uneven(d=2)
    pieces = hermite(points, torch.ones(2, 8).double())
    W = torch.linspace(-1, 1, 18).double().reshape(2, 3, 3)

    def field(h: Tensor, drive: Tensor) -> Tensor:
        return torch.einsum("...a,...ah->...h", drive, torch.tanh(torch.einsum("ahk,...k->...ah", W, h) + 0.3))

    start = torch.tensor([[0.1, -0.4, 0.3], [0.5, 0.2, -1.0]]).double()
    exact = states_along(field, start, pieces, 128, "rk4")[:, -1]
    coarse, fine = (
        relative_error(states_along(field, start, pieces, n, solver)[:, -1], exact) for n in (16, 32)
    )  # fmt: skip
    order = {"heun": 2, "rk4": 4}[solver]
    assert 2**order * 0.7 < coarse / fine < 2**order * 1.4


def test_the_first_part_of_a_piece_and_the_rest_are_the_whole() -> None:
    points, _ = uneven(d=2)
    pieces = hermite(points, torch.ones(2, 8).double())

    def field(h: Tensor, drive: Tensor) -> Tensor:
        return torch.sin(h) * drive.sum(dim=-1, keepdim=True)

    h = torch.tensor([[0.3], [1.2]]).double()
    share = torch.tensor([0.25, 0.25]).double()
    part = solve(field, h, cut(pieces[:, 3], share), 50, "rk4")
    rest = solve(field, h, pieces[:, 3], 200, "rk4")
    # dh/ds = sin(h) g(s) depends on the path alone: ln tan(h/2) moves by the sum of what the dimensions moved
    moved = sum(cut(pieces[:, 3], share)[:, k] / (k + 1) for k in range(3)).sum(dim=-1, keepdim=True)
    whole = sum(pieces[:, 3, k] / (k + 1) for k in range(3)).sum(dim=-1, keepdim=True)
    for found, way in ((part, moved), (rest, whole)):
        assert relative_error(found, 2 * torch.atan(torch.tan(h / 2) * way.exp())) < 1e-7
