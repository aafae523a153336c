"""The LRU: its recurrence written out, where its factors lie, and what it starts from."""

import pytest
import torch
from helpers import irregular_arrays, relative_error
from torch import Tensor

from lformer import IrregularBatch
from lformer.baselines import LRU, LRUConfig
from lformer.baselines.lru import LinearRecurrentUnit


def unit(width: int = 3, state: int = 4, **choices: object) -> LinearRecurrentUnit:
    torch.manual_seed(0)
    return LinearRecurrentUnit(LRUConfig(inputs=3, outputs=2, width=width, state=state, **choices)).double()


def matrices(layer: LinearRecurrentUnit) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """λ (N,), γ (N,), B (N, D), C (D, N), complex."""
    lam = torch.exp(torch.complex(-torch.exp(layer.nu), torch.exp(layer.theta)))
    B = torch.complex(layer.B[:, 0], layer.B[:, 1])
    return lam, torch.exp(layer.log_gamma) + 0j, B, torch.complex(layer.C[..., 0], layer.C[..., 1])


def by_hand(layer: LinearRecurrentUnit, u: Tensor) -> Tensor:
    """(L, D) -> (L, D), row by row."""
    lam, gamma, B, C = matrices(layer)
    x, rows = torch.zeros_like(lam), []
    for row in u:
        x = lam * x + gamma * (B @ (row + 0j))
        rows.append((C @ x).real + layer.D * row)
    return torch.stack(rows)


def test_a_layer_is_the_recurrence_written_out() -> None:
    layer, u = unit(), torch.randn(2, 23, 3).double()
    y = layer(u, torch.rand(2, 23))
    for i in range(2):
        assert relative_error(y[i], by_hand(layer, u[i])) < 1e-13


def test_the_answer_to_an_impulse() -> None:
    layer = unit()
    lam, gamma, B, C = matrices(layer)
    for channel in range(3):
        u = torch.zeros(1, 9, 3).double()
        u[0, 0, channel] = 1
        y = layer(u, torch.ones(1, 9))[0]
        for k in range(9):
            known = (C @ (lam**k * gamma * B[:, channel])).real + (layer.D * u[0, k])
            assert relative_error(y[k], known, scale=1.0) < 1e-13


@pytest.mark.parametrize("value", [-50.0, -5.0, 0.0, 3.0, 80.0])
def test_factors_lie_inside_the_unit_circle_for_any_parameters(value: float) -> None:
    layer = unit()
    torch.nn.init.constant_(layer.nu, value)
    size = layer.factors().abs()
    assert bool(((size < 1) | (value < -30)).all())  # exp(-exp(-50)) is 1 to the last digit
    assert bool((size <= 1).all())


def test_factors_start_uniformly_in_their_ring() -> None:
    layer = unit(state=20_000, r_min=0.4, r_max=0.9, max_phase=1.5)
    size, angle = layer.factors().detach().abs(), layer.factors().detach().angle()
    assert 0.4 - 1e-6 <= float(size.min()) < 0.41
    assert 0.89 < float(size.max()) <= 0.9 + 1e-6
    share = (size.square() - 0.16) / (0.81 - 0.16)  # of the area of the ring inside of each
    assert abs(float(share.mean()) - 0.5) < 0.01
    assert abs(float(share.std()) - 12**-0.5) < 0.01
    assert 0 <= float(angle.min()) < 0.01
    assert 1.49 < float(angle.max()) <= 1.5


@torch.no_grad()
def test_unit_noise_gives_states_of_unit_size_at_the_start() -> None:
    """γ² Σ_k |λ|^2k = 1, and the rows of B have unit length in the mean."""
    layer = unit(width=64, state=500)
    lam, gamma, B, _ = matrices(layer)
    assert relative_error(gamma.real.square() / (1 - lam.abs().square()), torch.ones(500)) < 1e-5
    assert abs(float(B.abs().square().sum(1).mean()) - 1) < 0.02
    assert abs(float(layer.C.square().sum(-1).mean() * 500) - 2) < 0.02
    slow = unit(width=64, state=50, r_max=0.9)
    lam, gamma, B, _ = matrices(slow)
    unit_rows = B / B.abs().square().sum(1, keepdim=True).sqrt()
    noise = torch.randn(400, 100, 64, generator=torch.Generator().manual_seed(1)).double()
    x = torch.zeros(400, 50, dtype=torch.complex128)
    for k in range(100):
        x = lam * x + gamma * ((noise[:, k] + 0j) @ unit_rows.mT)
    assert abs(float(x.abs().square().mean()) - 1) < 0.03


def test_it_does_not_see_time_unless_shown() -> None:
    values, times, lengths = irregular_arrays(3, 12, 3, seed=2)
    for answer in ("series", "step"):
        for shown in (False, True):
            torch.manual_seed(0)
            model = LRU(LRUConfig(inputs=3, outputs=2, answer=answer, width=8, state=6, time_channel=shown)).double()
            y, z = (
                model(IrregularBatch.build(values, stamps, lengths=lengths, dtype=torch.float64))
                for stamps in (times, times + 0.1 * (times - times[:, :1]) ** 2)
            )
            assert (relative_error(y, z) > 1e-3) if shown else torch.equal(y, z)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"state": 0}, "state must be at least 1; got 0"),
        ({"r_min": 0.9, "r_max": 0.5}, "r_min=0.9, r_max=0.5"),
        ({"r_max": 1.1}, "r_max <= 1 must hold"),
        ({"max_phase": 0.0}, "max_phase must be positive"),
        ({"norm": "group"}, "'layer', 'batch'; got 'group'"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1; got 1.0"),
        ({"time_channel": True, "embedder": "frames"}, "no time_channel can be appended"),
    ],
)
def test_unknown_choices_are_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        LRUConfig(inputs=3, outputs=2, **change)
