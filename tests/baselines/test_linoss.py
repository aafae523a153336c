"""LinOSS: its two schemes written out, what they conserve and what they lose, and its published settings."""

import pytest
import torch
from helpers import irregular_arrays, relative_error
from torch import Tensor

from lformer import IrregularBatch
from lformer.baselines import LinOSS, LinOSSConfig
from lformer.baselines.linoss import OscillatorLayer
from lformer.bench.settings import settings

SCHEMES = ["im", "imex"]
KINDS = [("im", "rows"), ("imex", "rows"), ("im", "intervals")]


def layer(scheme: str, steps: str = "rows", width: int = 3, state: int = 5) -> OscillatorLayer:
    torch.manual_seed(0)
    config = LinOSSConfig(inputs=3, outputs=2, width=width, state=state, discretisation=scheme, steps=steps)
    made = OscillatorLayer(config).double()
    with torch.no_grad():
        made.stiffness[0] = -0.7  # no restoring force: a matrix without a basis of eigenvectors
        made.stiffness[1] = 1e-9
    return made


def matrices(scheme: str, A: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
    """The published matrix (P, 2, 2) of [z, y], and what B u is multiplied with, (P, 2)."""
    if scheme == "im":
        S = 1 / (1 + step**2 * A)
        M = torch.stack([torch.stack([S, -step * A * S], -1), torch.stack([step * S, S], -1)], -2)
        return M, torch.stack([step * S, step**2 * S], -1)
    one = torch.ones_like(A)
    M = torch.stack([torch.stack([one, -step * A], -1), torch.stack([step, 1 - step**2 * A], -1)], -2)
    return M, torch.stack([step, step**2], -1)


def by_hand(made: OscillatorLayer, scheme: str, u: Tensor, intervals: Tensor, start: Tensor | None = None) -> Tensor:
    """(L, D), (L,) -> (L, P, 2), velocity and position after each row."""
    A, B = made.stiffness.clamp(min=0), torch.complex(made.B[:, 0], made.B[:, 1])
    x = torch.zeros(len(A), 2, dtype=torch.complex128) if start is None else start
    rows = []
    for row, interval in zip(u, intervals, strict=True):
        step = torch.sigmoid(made.step) * (interval if made.by_intervals else 1)
        M, gain = matrices(scheme, A, step)
        x = (M + 0j) @ x[..., None]
        x = x.squeeze(-1) + gain * (B @ (row + 0j))[:, None]
        rows.append(x)
    return torch.stack(rows)


@pytest.mark.parametrize(("scheme", "steps"), KINDS)
def test_a_layer_is_the_recurrence_written_out(scheme: str, steps: str) -> None:
    made, u, intervals = layer(scheme, steps), torch.randn(2, 40, 3).double(), torch.rand(2, 40).double() ** 3 * 9
    intervals[:, 7] = 0  # rows at the same time
    y, C = made(u, intervals), torch.complex(made.C[..., 0], made.C[..., 1])
    for i in range(2):
        positions = by_hand(made, scheme, u[i], intervals[i])[..., 1]
        assert relative_error(made.states(u, intervals).y[i].real, positions.real) < 1e-12
        assert relative_error(y[i], (positions @ C.mT).real + made.D * u[i]) < 1e-12


@pytest.mark.parametrize(("scheme", "steps"), KINDS)
def test_gradients_are_those_of_finite_differences(scheme: str, steps: str) -> None:
    made, u, intervals = layer(scheme, steps, width=2, state=3), torch.randn(1, 6, 2).double(), torch.rand(1, 6) + 0.5
    with torch.no_grad():
        made.stiffness[1] = 1e-2
    names, values = zip(*made.named_parameters(), strict=True)

    def run(x: Tensor, *parameters: Tensor) -> Tensor:
        return torch.func.functional_call(made, dict(zip(names, parameters, strict=True)), (x, intervals.double()))

    assert torch.autograd.gradcheck(run, (u.requires_grad_(), *values))


@torch.no_grad()
def left_alone(scheme: str, L: int) -> tuple[Tensor, Tensor, Tensor]:
    """Velocities and positions (L, P) of oscillators after one push, and their A (P,); the steps are `made.step`'s."""
    made = layer(scheme, state=6)
    made.stiffness.copy_(torch.linspace(0.1, 2.0, 6))
    u = torch.zeros(1, L, 3).double()
    u[0, 0] = 1
    y = made.states(u, torch.ones(1, L).double()).y[0]
    step = torch.sigmoid(made.step)
    z = torch.cat([y[:1] / step, y.diff(dim=0) / step])
    return torch.stack([z, y]), made.stiffness.clone(), step


def energy(states: Tensor, A: Tensor, cross: Tensor | float) -> Tensor:
    """|z|² + A |y|² - cross · Re(z ȳ), (L, P)"""
    z, y = states
    return z.abs().square() + A * y.abs().square() - cross * (z * y.conj()).real


def test_without_input_imex_conserves_its_energy_for_thousands_of_rows() -> None:
    """A symplectic step conserves z² + A y² - Δ A z y exactly, and so keeps the energy within bounds."""
    states, A, step = left_alone("imex", 5000)
    conserved = energy(states, A, step * A)
    assert relative_error(conserved, conserved[:1].expand_as(conserved)) < 1e-9
    plain = energy(states, A, 0.0)
    assert bool((plain.amax(0) <= plain[0] * (1 + step * A.sqrt() / 2) / (1 - step * A.sqrt() / 2) + 1e-9).all())
    assert bool((plain[-500:].amax(0) > plain[0] / 4).all())


def test_without_input_im_loses_a_fixed_share_of_its_energy_at_every_row() -> None:
    states, A, step = left_alone("im", 40)
    found = energy(states, A, 0.0)
    assert relative_error(found[1:] / found[:-1], (1 / (1 + step**2 * A)).expand(39, -1)) < 1e-9


@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_parameters_make_states_grow(scheme: str) -> None:
    made = layer(scheme, state=4)
    with torch.no_grad():
        made.stiffness.copy_(torch.tensor([0.5, 3.99, 4.5, 1e4]))
        made.step.fill_(40.0)  # steps of 1
        y = made.states(torch.eye(1, 3000)[..., None].repeat(1, 1, 3).double(), torch.ones(1, 3000)).y
    assert float(y.abs().amax()) < 2e3


def test_with_intervals_a_query_is_answered_like_an_empty_row_in_its_place() -> None:
    values, _, _ = irregular_arrays(2, 6, 3, seed=5)
    for moment in (3.0, 3.4):  # at a row, where nothing moves, and between two
        answers = []
        for answer, stamps in (("query", torch.arange(4.0)), ("step", torch.tensor([0.0, 1.0, 2.0, 3.0, moment]))):
            torch.manual_seed(0)
            config = LinOSSConfig(inputs=3, outputs=2, answer=answer, width=8, state=6, steps="intervals")
            rows = torch.cat([values[:, :4], torch.full((2, 1, 3), torch.nan).double()], 1)[:, : len(stamps)]
            asked = {"query_times": torch.tensor([[moment]]).expand(2, 1)} if answer == "query" else {}
            batch = IrregularBatch.build(rows, stamps, dtype=torch.float64, **asked)
            answers.append(LinOSS(config).double()(batch)[:, -1])
        assert relative_error(*answers) < 1e-12


def test_it_sees_time_only_as_steps_or_as_a_channel() -> None:
    values, times, lengths = irregular_arrays(3, 12, 3, seed=2)
    for choices in ({}, {"steps": "intervals"}, {"time_channel": True}):
        torch.manual_seed(0)
        model = LinOSS(LinOSSConfig(inputs=3, outputs=2, width=8, state=6, **choices)).double()
        y, z = (
            model(IrregularBatch.build(values, stamps, lengths=lengths, dtype=torch.float64))
            for stamps in (times, times + 0.1 * (times - times[:, :1]) ** 2)
        )
        assert (relative_error(y, z) > 1e-3) if choices else torch.equal(y, z)


def test_the_published_settings() -> None:
    """Scheme, time, rate, blocks, width, state, batch."""
    printed = {
        "eigenworms": ("im", True, 1e-3, 2, 128, 64, 4),
        "ethanol": ("im", False, 1e-5, 4, 16, 16, 32),
        "heartbeat": ("im", True, 1e-3, 6, 16, 16, 32),
        "motor-imagery": ("im", False, 1e-5, 2, 128, 16, 32),
        "scp1": ("im", True, 1e-4, 6, 128, 256, 32),
        "scp2": ("imex", True, 1e-5, 6, 64, 256, 32),
    }
    for dataset, expected in printed.items():
        own = settings("linoss", dataset, "classify")
        sizes = (own.train["lr"], *(own.model[name] for name in ("depth", "width", "state")), own.train["batch_size"])
        assert (own.model["discretisation"], own.model["time_channel"], *sizes) == expected


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"discretisation": "ex"}, "'im', 'imex'; got 'ex'"),
        ({"steps": "seconds"}, "'rows', 'intervals'; got 'seconds'"),
        ({"steps": "intervals", "discretisation": "imex"}, 'needs discretisation="im"'),
    ],
)
def test_unknown_choices_are_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        LinOSSConfig(inputs=3, outputs=2, **change)
