"""S5: HiPPO, both discretisations, uneven intervals, agreement with s5-pytorch, and queries between rows."""

import pytest
import torch
from helpers import irregular_arrays, relative_error
from torch import Tensor

from lformer import IrregularBatch
from lformer.baselines import S5, S5Config
from lformer.baselines.s5 import S5Layer, hippo_modes, hippo_normal


def layer_of(width: int = 3, state: int = 8, **choices: object) -> S5Layer:
    torch.manual_seed(0)
    choices = {"step_min": 0.1, "step_max": 1.0} | choices
    return S5Layer(S5Config(inputs=3, outputs=2, width=width, state=state, **choices)).double()


def uneven(B: int, L: int, seed: int = 0) -> Tensor:
    """(B, L) intervals with ties and gaps of very different sizes, 1 first."""
    gaps = torch.exp(torch.randn(B, L, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))
    gaps[:, 3::5] = 0
    gaps[:, 0] = 1
    return gaps


def matrices(layer: S5Layer) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Λ (P,), Δ (P,), B̃ (P, D), C̃ (D, P)."""
    B, C = torch.complex(layer.B[:, 0], layer.B[:, 1]), torch.view_as_complex(layer.C)
    return torch.complex(layer.rate, layer.frequency), torch.exp(layer.log_step), B, C


def by_hand(layer: S5Layer, u: Tensor, intervals: Tensor) -> Tensor:
    """(L, D), (L,) -> (L, D), row by row, as the equations are printed."""
    lam, step, B, C = matrices(layer)
    x, rows = torch.zeros_like(lam), []
    for row, interval in zip(u, intervals, strict=True):
        if layer.discretisation == "zoh":
            kept = torch.exp(lam * step * interval)
            gain = (kept - 1) / lam
        else:
            s = step * interval / 2
            kept, gain = (1 + s * lam) / (1 - s * lam), 2 * s / (1 - s * lam)
        x = kept * x + gain * (B @ (row + 0j))
        rows.append(2 * (C @ x).real + layer.D * row)
    return torch.stack(rows)


@pytest.mark.parametrize("discretisation", ["zoh", "bilinear"])
@pytest.mark.parametrize("blocks", [1, 2])
def test_a_layer_is_the_recurrence_written_out(discretisation: str, blocks: int) -> None:
    layer = layer_of(discretisation=discretisation, hippo_blocks=blocks)
    u, intervals = torch.randn(2, 23, 3).double(), uneven(2, 23)
    y = layer(u, intervals)
    for i in range(2):
        assert relative_error(y[i], by_hand(layer, u[i], intervals[i])) < 1e-12


@pytest.mark.parametrize("N", [2, 4, 8, 64])
def test_hippo_is_minus_a_half_and_a_skew_symmetric_rest(N: int) -> None:
    S = hippo_normal(N)
    rest = S + 0.5 * torch.eye(N)
    assert relative_error(rest, -rest.mT, scale=1.0) < 1e-12 * N
    assert relative_error(S @ S.mT, S.mT @ S) < 1e-12
    values, V = hippo_modes(N)
    assert relative_error(values.real, torch.full((N,), -0.5)) < 1e-12
    rebuilt = V @ torch.diag(values) @ V.mH
    assert relative_error(torch.view_as_real(rebuilt), torch.view_as_real(S + 0j)) < 1e-12
    assert relative_error(values.imag[: N // 2], -values.imag[N // 2 :].flip(0)) < 1e-10
    assert bool((values.imag[: N // 2] < 0).all())  # of each conjugate pair the same half


@torch.no_grad()
def test_it_starts_from_hippo_block_by_block() -> None:
    layer = layer_of(width=5, state=16, hippo_blocks=2, step_min=1e-3, step_max=1e-1)
    values, V = hippo_modes(8)
    assert relative_error(layer.rate, torch.full((8,), -0.5)) < 1e-6
    assert relative_error(layer.frequency, values.imag[:4].repeat(2)) < 1e-6
    assert bool((layer.log_step.exp() >= 1e-3 - 1e-9).all() and (layer.log_step.exp() <= 1e-1 + 1e-9).all())
    large = layer_of(width=100, state=64)
    _, _, B, C = matrices(large)
    assert abs(float(B.abs().square().mean() * 64) - 1) < 0.05  # V is unitary
    assert abs(float(C.abs().square().mean() * 64) - 2) < 0.1
    # B comes from a real matrix: what is kept of V^H B gives it back with the conjugates.
    _, V = hippo_modes(64)
    real = 2 * (V[:, :32] @ B).real
    again = V[:, :32].mH @ (real + 0j)
    assert relative_error(torch.view_as_real(again), torch.view_as_real(B)) < 1e-5


def half_step_error(discretisation: str, intervals: Tensor) -> float:
    """What two half steps with the same input differ by from one."""
    layer, u = layer_of(discretisation=discretisation, step_min=0.05, step_max=0.1), torch.randn(2, 9, 3).double()
    whole = layer.states(u, intervals)
    halves = layer.states(u.repeat_interleave(2, dim=1), intervals.repeat_interleave(2, dim=1) / 2)[:, 1::2]
    return relative_error(torch.view_as_real(halves), torch.view_as_real(whole))


def test_two_half_steps_with_the_same_input_are_one() -> None:
    """Exactly with zero-order hold; the trapezoidal rule is of second order."""
    assert half_step_error("zoh", uneven(2, 9)) < 1e-13
    coarse, fine = (half_step_error("bilinear", share * uneven(2, 9)) for share in (0.1, 0.01))
    assert coarse > 1e-5
    assert 70 < coarse / fine < 140


def test_a_small_step_loses_no_digits() -> None:
    """(e^z - 1) / Λ of a step of 1e-6, in float32: within rounding of Δ, where a difference would keep one digit."""
    layer = layer_of(step_min=1e-6, step_max=1e-6).float()
    step = layer.step(torch.ones(1))
    exact = layer.double().step(torch.ones(1).double())
    assert relative_error(torch.view_as_real(step.gain[0]), torch.view_as_real(exact.gain[0])) < 1e-6


def test_intervals_of_one_are_the_regular_model() -> None:
    """The same factors for every row: Λ̄ = e^{ΛΔ}, whose powers are the answer to an impulse."""
    layer = layer_of()
    lam, step, B, C = matrices(layer)
    kept = torch.exp(lam * step)
    u = torch.zeros(1, 12, 3).double()
    u[0, 0, 1] = 1
    y = layer(u, torch.ones(1, 12).double())[0]
    for k in range(12):
        known = 2 * (C @ (kept**k * (kept - 1) / lam * B[:, 1])).real + layer.D * u[0, k]
        assert relative_error(y[k], known, scale=1.0) < 1e-13
    values, _, lengths = irregular_arrays(3, 9, 3, seed=1)
    torch.manual_seed(0)
    model = S5(S5Config(inputs=3, outputs=2, answer="step", width=6, state=4)).double()
    model.rows.interval.fill_(0.25)
    regular = IrregularBatch.build(values, 0.25 * torch.arange(9.0), lengths=lengths, dtype=torch.float64)
    assert torch.equal(model.intervals(regular, torch.float64)[:, 1:][regular.valid[:, 1:]].unique(), torch.ones(1))
    assert torch.equal(model.intervals(regular, torch.float64)[:, 0], torch.ones(3))


def test_the_unit_of_time_does_not_matter() -> None:
    values, times, lengths = irregular_arrays(3, 9, 3, seed=1)
    torch.manual_seed(0)
    model = S5(S5Config(inputs=3, outputs=2, width=6, state=4)).double()
    hours = IrregularBatch.build(values, times, lengths=lengths, dtype=torch.float64)
    minutes = IrregularBatch.build(values, 64 * times, lengths=lengths, dtype=torch.float64)
    y = model(hours)
    assert relative_error(model(minutes), y) > 1e-3
    model.rows.interval.mul_(64)
    assert relative_error(model(minutes), y) < 1e-9


def test_states_stay_bounded_over_any_gap_and_for_any_rate() -> None:
    for discretisation in ("zoh", "bilinear"):
        layer = layer_of(discretisation=discretisation)
        torch.nn.init.constant_(layer.rate, 5.0)
        step = layer.step(torch.tensor([0.0, 1.0, 1e3, 1e6]).double())
        assert bool((step.kept.abs() <= 1).all())
        assert bool((step.kept[1:].abs() < 1).all())
        assert torch.equal(step.kept[0], torch.ones(4) + 0j)  # no interval, no change
        assert torch.equal(step.gain[0], torch.zeros(4) + 0j)


@pytest.mark.parametrize("discretisation", ["zoh", "bilinear"])
def test_it_agrees_with_s5_pytorch(discretisation: str) -> None:
    """Which keeps all states and doubles none: its states are ours, its C twice ours. Outputs and gradients."""
    s5_model = pytest.importorskip("s5.s5_model")
    P, D, B, L = 4, 3, 2, 11
    layer = layer_of(width=D, state=2 * P, discretisation=discretisation)
    lam, _, B_modes, C_modes = matrices(layer)
    torch.manual_seed(0)
    theirs = s5_model.S5SSM(
        lam.detach().to(torch.complex64), torch.eye(P) + 0j, torch.eye(P) + 0j, D, P, 1e-3, 1e-1,
        discretization=discretisation, bcInit="dense",
    )  # fmt: skip
    own = {
        "Lambda": lam.detach().clone(), "B": torch.view_as_real(B_modes.detach().clone()),
        "C": 2 * C_modes.detach().clone(), "D": layer.D.detach().clone(), "log_step": layer.log_step.detach().clone(),
    }  # fmt: skip
    for name, value in own.items():
        setattr(theirs, name, torch.nn.Parameter(value))
    s5_model.as_complex.__defaults__ = (torch.complex128,)  # it rounds B to complex64 otherwise
    try:
        u = torch.randn(B, L, D).double().requires_grad_()
        intervals = uneven(B, L)
        known = torch.stack([theirs(u[i], step_scale=intervals[i]) for i in range(B)])
    finally:
        s5_model.as_complex.__defaults__ = (torch.complex64,)
    y = layer(u, intervals)
    assert relative_error(y, known) < 1e-12
    ours = torch.autograd.grad(
        y.sin().sum(), [u, layer.D, layer.log_step, layer.rate, layer.frequency, layer.B, layer.C]
    )
    names = [theirs.D, theirs.log_step, theirs.Lambda, theirs.B, theirs.C]
    gu, gD, gstep, glam, gB, gC = torch.autograd.grad(known.sin().sum(), [u, *names])
    expected = [gu, gD, gstep, glam.real, glam.imag, gB.transpose(1, 2), 2 * torch.view_as_real(gC)]
    for actual, wanted in zip(ours, expected, strict=True):
        assert relative_error(actual, wanted) < 1e-11


@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_a_query_is_answered_as_an_empty_row_in_its_place(norm: str) -> None:
    values, times, _ = irregular_arrays(1, 7, 3, seed=4)
    asked = torch.stack([times[0, 0] - 3, times[0, 2], (times[0, 3] + times[0, 4]) / 2, times[0, 6] + 5])
    made: dict[str, object] = {"inputs": 3, "outputs": 2, "width": 6, "state": 4, "depth": 2, "norm": norm}
    models = {}
    for answer in ("query", "step"):
        torch.manual_seed(0)
        models[answer] = S5(S5Config(**made | {"answer": answer})).double().eval()
    y = models["query"](IrregularBatch.build(values, times, query_times=asked, dtype=torch.float64))[0]
    for q, time in enumerate(asked):
        rows = int((times[0] <= time).sum())
        stamps = torch.cat([times[0, :rows], time[None]])
        empty = torch.cat([values[:, :rows], torch.full((1, 1, 3), torch.nan)], dim=1)
        known = models["step"](IrregularBatch.build(empty, stamps, dtype=torch.float64))[0, -1]
        assert relative_error(y[q], known) < 1e-12


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"discretisation": "euler"}, "'zoh', 'bilinear'; got 'euler'"),
        ({"state": 6, "hippo_blocks": 2}, "state=6, hippo_blocks=2"),
        ({"hippo_blocks": 0}, "hippo_blocks must be at least 1"),
        ({"step_min": 0.0}, "0 < step_min <= step_max"),
    ],
)
def test_unknown_choices_are_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        S5Config(inputs=3, outputs=2, **change)
