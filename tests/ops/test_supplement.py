"""The supplement of the paper as executable claims: closed-form LTC, endpoint interpolation, bounds and gradients."""

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from helpers import relative_error
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad, solve_ivp
from torch import Tensor

from lformer.ops import liquid_decay, liquid_gated_attention, normalise_decay

Signal = Callable[[Tensor], Tensor]

SIGNALS: dict[str, Signal] = {
    "wave": lambda t: torch.sin(2 * t + 0.3),
    "ramp": lambda t: 0.5 * t - 1,
    "chirp": lambda t: 2 * torch.cos(t * t / 2),
}
SIGNAL = pytest.mark.parametrize("signal", SIGNALS.values(), ids=SIGNALS.keys())
STAMPS = np.array([0.0, 0.01, 0.5, 0.6, 1.7, 3.0, 3.2, 5.0])
W, BIAS, START = 0.3, -1.2, 2.0  # w_τ, b_τ, s(0)


def activation(signal: Signal, t: float) -> float:
    """f(x(t)), with f the sigmoid."""
    return float(torch.sigmoid(signal(torch.tensor(t, dtype=torch.float64))))


def integral(signal: Signal, a: float, b: float) -> float:
    return quad(lambda t: activation(signal, t), a, b, epsabs=1e-13, epsrel=1e-13)[0]


def exponents(signal: Signal) -> np.ndarray:
    """-log g between consecutive stamps."""
    return np.array([W * (b - a) + integral(signal, a, b) for a, b in pairwise(STAMPS)])


def solved(signal: Signal) -> np.ndarray:
    """s at the stamps, from the symmetric LTC equation by a numerical solver."""

    def slope(t: float, s: np.ndarray) -> np.ndarray:
        return (W + activation(signal, t)) * (BIAS - s)

    solution = solve_ivp(slope, (0, STAMPS[-1]), [START], method="DOP853", t_eval=STAMPS, rtol=1e-11, atol=1e-13)
    return solution.y[0]


# --- S1: closed-form solution of the one-dimensional LTC ---


@SIGNAL
def test_the_closed_form_solves_the_symmetric_ltc_equation(signal: Signal) -> None:
    closed = [(START - BIAS) * math.exp(-W * t - integral(signal, 0, t)) + BIAS for t in STAMPS]
    np.testing.assert_allclose(closed, solved(signal), rtol=1e-9)


@SIGNAL
def test_the_gated_recurrence_is_exact_between_irregular_stamps(signal: Signal) -> None:
    s = solved(signal)
    g = np.exp(-exponents(signal))
    np.testing.assert_allclose(g * s[:-1] + (1 - g) * BIAS, s[1:], rtol=1e-9)
    np.testing.assert_allclose((s[1:] - BIAS) / (s[:-1] - BIAS), g, rtol=1e-8)


@SIGNAL
def test_attention_with_exact_exponents_and_a_constant_write_is_an_ltc(signal: Signal) -> None:
    decay = torch.from_numpy(exponents(signal))
    one = torch.ones(1, len(decay), 1, 1, dtype=torch.float64)
    state = torch.full((1, 1, 1, 1), START, dtype=torch.float64)
    y = liquid_gated_attention(one, one, BIAS * one, decay.reshape(1, -1, 1), causal=True, state=state)
    np.testing.assert_allclose(y.flatten().numpy(), solved(signal)[1:], rtol=1e-9)


# --- S2: local error of the endpoint interpolation ---

AT = 0.4  # t_{n-1}, where no derivative of a signal vanishes


def derivatives(signal: Signal) -> tuple[float, float]:
    """x̃' and x̃'' at t_{n-1}."""

    def squashed(t: Tensor) -> Tensor:
        return torch.sigmoid(signal(t))

    first = torch.func.grad(squashed)
    at = torch.tensor(AT, dtype=torch.float64)
    return float(first(at)), float(torch.func.grad(first)(at))


def local_errors(signal: Signal, mu: float, deltas: Tensor) -> np.ndarray:
    """E = ∫ x̃ - u for one interval of each size, with u from `liquid_decay`."""
    nodes, weights = (torch.from_numpy(x) for x in np.polynomial.legendre.leggauss(16))
    exact = deltas / 2 * (weights * torch.sigmoid(signal(AT + deltas[:, None] / 2 * (nodes + 1)))).sum(dim=1)
    stamps = torch.stack([torch.full_like(deltas, AT), AT + deltas], dim=1)
    gate = torch.sigmoid(signal(stamps))[..., None]
    intervals = torch.stack([torch.zeros_like(deltas), deltas], dim=1)
    u = liquid_decay(gate, intervals, torch.tensor([mu], dtype=torch.float64))[:, 1, 0]
    return (exact - u).numpy()


@SIGNAL
@pytest.mark.parametrize(("mu", "order"), [(0.1, 2), (0.4, 2), (0.5, 3), (0.7, 2), (0.9, 2)])
def test_the_local_error_is_of_third_order_for_the_trapezoidal_rule_and_else_of_second(
    signal: Signal, mu: float, order: int
) -> None:
    deltas = 2.0 ** -torch.arange(8, 13, dtype=torch.float64)
    errors = np.abs(local_errors(signal, mu, deltas))
    slope = np.polyfit(np.log(deltas.numpy()), np.log(errors), 1)[0]
    assert slope == pytest.approx(order, abs=0.02)


@SIGNAL
@pytest.mark.parametrize("mu", [0.1, 0.4, 0.7, 0.9])
def test_the_leading_error_is_mu_less_a_half_times_the_first_derivative(signal: Signal, mu: float) -> None:
    error = local_errors(signal, mu, torch.tensor([1e-5], dtype=torch.float64))[0]
    assert error / 1e-5**2 == pytest.approx((mu - 0.5) * derivatives(signal)[0], rel=1e-3)


@SIGNAL
def test_the_leading_error_of_the_trapezoidal_rule_is_a_twelfth_of_the_second_derivative(signal: Signal) -> None:
    error = local_errors(signal, 0.5, torch.tensor([1e-3], dtype=torch.float64))[0]
    assert error / 1e-3**3 == pytest.approx(-derivatives(signal)[1] / 12, rel=1e-2)


@SIGNAL
@pytest.mark.parametrize("mu", [0.1, 0.5, 0.9])
def test_the_error_expands_as_printed_to_third_order(signal: Signal, mu: float) -> None:
    deltas = torch.linspace(0.005, 0.05, 10, dtype=torch.float64)
    quotients = local_errors(signal, mu, deltas) / deltas.numpy() ** 2
    *_, third, second = np.polyfit(deltas.numpy(), quotients, 4)
    first_derivative, second_derivative = derivatives(signal)
    assert second == pytest.approx((mu - 0.5) * first_derivative, rel=1e-6, abs=1e-9)
    assert third == pytest.approx((mu / 2 - 1 / 3) * second_derivative, rel=1e-4)


# --- S3: bounds and gradients of the sequence-level normalisation ---

LENGTH = 6


def stabilised(u: Tensor, epsilon: float) -> Tensor:
    """û with the epsilon of the paper."""
    return u / (u.sum() + epsilon)


def cumulative_gate(u: Tensor, epsilon: float) -> Tensor:
    return torch.exp(-stabilised(u, epsilon).cumsum(dim=0))


def decays(total: float, n: int = LENGTH) -> Tensor:
    u = torch.rand(n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return total * u / u.sum()


def normalised(u: Tensor) -> Tensor:
    """û of one series with one head, from the library."""
    return normalise_decay(u.reshape(1, -1, 1), "sequence").flatten()


def jacobian(function: Callable[[Tensor], Tensor], u: Tensor) -> Tensor:
    """Entry (j, i) is the derivative of output j with respect to u_i."""
    return torch.autograd.functional.jacobian(function, u)


def last_by_first(gates: Callable[[Tensor], Tensor], totals: np.ndarray) -> np.ndarray:
    """Magnitude of the derivative of the last gate with respect to the first decay, for each total decay."""
    return np.array([float(jacobian(gates, decays(S))[-1, 0].abs()) for S in totals])


@settings(deadline=None, max_examples=50, derandomize=True)
@given(u=st.lists(st.one_of(st.just(0.0), st.floats(1e-9, 1e6)), min_size=1, max_size=40))
def test_the_cumulative_gate_falls_from_one_to_no_less_than_a_share_of_e(u: list[float]) -> None:
    gate = torch.exp(-normalised(torch.tensor(u, dtype=torch.float64)).cumsum(dim=0))
    assert (gate <= 1).all()
    assert (gate >= math.exp(-1) * (1 - 1e-14)).all()
    assert (gate.diff() <= torch.finfo(gate.dtype).eps).all()  # exp itself is monotonic but for its last digit


@settings(deadline=None, max_examples=50, derandomize=True)
@given(u=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=40), epsilon=st.floats(1e-6, 1.0))
def test_with_epsilon_the_cumulative_gate_stays_above_a_share_of_e(u: list[float], epsilon: float) -> None:
    assert (cumulative_gate(torch.tensor(u, dtype=torch.float64), epsilon) > math.exp(-1)).all()


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 3.0])
@pytest.mark.parametrize("total", [0.5, 40.0])
def test_the_partial_derivatives_of_the_normalised_decay_are_as_printed(total: float, epsilon: float) -> None:
    u = decays(total)
    whole = u.sum() + epsilon
    same = torch.diag((whole - u) / whole**2)
    other = (-u[:, None] / whole**2).expand(LENGTH, LENGTH) * (1 - torch.eye(LENGTH, dtype=torch.float64))
    torch.testing.assert_close(jacobian(lambda u: stabilised(u, epsilon), u), same + other, rtol=1e-12, atol=0)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 3.0])
@pytest.mark.parametrize("total", [0.5, 40.0])
def test_the_gradient_of_the_cumulative_gate_is_as_printed_and_above_its_bound(total: float, epsilon: float) -> None:
    u = decays(total)
    whole = u.sum() + epsilon
    gate = cumulative_gate(u, epsilon)
    printed = (-gate * (whole - u.cumsum(dim=0)) / whole**2)[:, None].expand(LENGTH, LENGTH)
    past = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()  # i <= k
    actual = jacobian(lambda u: cumulative_gate(u, epsilon), u)[past]
    torch.testing.assert_close(actual, printed[past], rtol=1e-9, atol=0)
    assert (actual.abs() >= math.exp(-1) * epsilon / whole**2).all()


def test_the_normalised_gradient_falls_polynomially_and_the_vanilla_one_exponentially() -> None:
    epsilon, totals = 1e-2, np.array([20.0, 50.0, 100.0, 200.0, 500.0, 1000.0])
    bound = math.exp(-1) * epsilon / (totals + epsilon) ** 2
    stable = last_by_first(lambda u: cumulative_gate(u, epsilon), totals)
    vanilla = last_by_first(lambda u: torch.exp(-u.cumsum(dim=0)), totals)
    np.testing.assert_allclose(vanilla, np.exp(-totals), rtol=1e-10)
    assert np.polyfit(np.log(totals), np.log(stable), 1)[0] == pytest.approx(-2, abs=1e-2)
    assert (stable > bound).all()
    assert (bound > vanilla).all()
    assert vanilla[-1] == 0  # e^-1000 is not a float


@pytest.mark.parametrize("epsilon", [1e-3, 1e-6, 1e-9])
def test_the_library_is_the_limit_of_a_vanishing_epsilon(epsilon: float) -> None:
    u = decays(2.0)
    torch.testing.assert_close(stabilised(u, epsilon), normalised(u), rtol=epsilon, atol=1e-15)
    gradient = jacobian(lambda u: stabilised(u, epsilon), u)
    assert relative_error(gradient, jacobian(normalised, u)) <= epsilon + 1e-15


def test_without_epsilon_the_last_cumulative_gate_is_constant() -> None:
    gradient = jacobian(lambda u: torch.exp(-normalised(u).sum()), decays(2.0))
    assert gradient.abs().max() <= 1e-15
