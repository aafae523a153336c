"""LSDE: the law of its start, rotations that keep their length, closed forms of path and divergence, and its draws."""

import math
from dataclasses import replace

import pytest
import torch
from helpers import irregular_arrays, relative_error
from torch import Tensor, nn

from lformer import IrregularBatch, tasks
from lformer.baselines import LSDE, LSDEConfig
from lformer.baselines.sphere import PowerSpherical, follow, skew
from lformer.draws import Draws, drawing_from

CPU = torch.device("cpu")


def build(answer: str = "step", dtype: torch.dtype = torch.float64, **choices: object) -> LSDE:
    torch.manual_seed(0)
    sizes = {"inputs": 3, "outputs": 3, "answer": answer, "width": 8, "state": 5, "grid": 16, "references": 6}
    model = LSDE(LSDEConfig(**sizes | {"time_width": 8, "degree": 3} | choices)).to(dtype)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


def batch_of(answer: str = "step", dtype: torch.dtype = torch.float64, targets: bool = False) -> IrregularBatch:
    values, times, lengths = irregular_arrays(3, 9, 3, seed=0)
    asked = {"query_times": torch.cat([times[:, :1] - 1, times[:, ::3] + 0.1, times[:, -1:] + 9], 1)}
    made = IrregularBatch.build(values, times, lengths=lengths, dtype=dtype, **asked if answer == "query" else {})
    if not targets:
        return made
    shape = {"series": (3, 3), "step": (3, 9, 3), "query": (3, 5, 3)}[answer]
    return replace(made, targets=torch.ones(shape, dtype=dtype))


def law(kappa: float, n: int, count: int = 1) -> PowerSpherical:
    g = torch.Generator().manual_seed(3)
    direction = nn.functional.normalize(torch.randn(n, generator=g).double(), dim=-1)
    return PowerSpherical(direction.expand(count, n), torch.full((count,), kappa).double())


# --- the law of the start ---


@pytest.mark.parametrize("n", [3, 4, 16])
@pytest.mark.parametrize("kappa", [0.0, 0.7, 30.0])
def test_the_divergence_from_the_uniform_law_is_that_of_quadrature(n: int, kappa: float) -> None:
    angle = (torch.arange(200_000).double() + 0.5) * math.pi / 200_000
    area = angle.sin() ** (n - 2)  # of the points with this angle to the direction, but for a factor
    density = (1 + angle.cos()) ** kappa
    density, uniform = density / (density * area).sum(), 1 / area.sum()
    divergence = (area * torch.xlogy(density, density / uniform)).sum()
    assert float(law(kappa, n).divergence()) == pytest.approx(float(divergence), abs=1e-6)


@pytest.mark.parametrize(("n", "kappa"), [(3, 2.0), (5, 40.0), (16, 0.0)])
def test_samples_have_unit_length_and_the_mean_direction(n: int, kappa: float) -> None:
    torch.manual_seed(0)
    among = law(kappa, n, count=40_000)
    x = among.sample()
    assert relative_error(x.square().sum(-1), torch.ones(40_000).double()) < 1e-12
    mean = x.mean(dim=0)
    expected = among.direction[0] * kappa / (kappa + n - 1)
    assert bool(((mean - expected).abs() < 5 / 40_000**0.5).all())
    likely = kappa * torch.log1p((x * among.direction).sum(-1)).mean()  # E log density = -entropy
    beta = (n - 1) / 2
    log_z = (2 * beta + kappa) * math.log(2) + beta * math.log(math.pi)
    log_z += math.lgamma(beta + kappa) - math.lgamma(2 * beta + kappa)
    assert float(log_z - likely) == pytest.approx(float(among.entropy()[0]), abs=0.03)


def test_samples_carry_the_gradient_of_their_mean() -> None:
    torch.manual_seed(0)
    direction = law(0.0, 4).direction
    kappa = torch.tensor([3.0]).double().requires_grad_()
    x = PowerSpherical(direction.expand(40_000, 4), kappa.expand(40_000)).sample()
    (found,) = torch.autograd.grad((x * direction).sum(-1).mean(), kappa)
    assert float(found) == pytest.approx(3 / (3 + 3) ** 2, rel=0.05)  # of κ / (κ + n - 1)


def test_a_sharp_law_is_finite_in_float32() -> None:
    sharp = PowerSpherical(law(0, 16).direction.float(), torch.tensor([5e4]))
    assert float(sharp.divergence()) == pytest.approx(float(law(5e4, 16).divergence()), rel=1e-6)
    assert bool(torch.isfinite(sharp.sample()).all())


# --- paths ---


def test_rotations_are_skew_and_numbered_by_rows() -> None:
    assert skew(torch.tensor([1.0, 2.0, 3.0]), 3).tolist() == [[0, 1, 2], [-1, 0, 3], [-2, -3, 0]]


def test_a_constant_drift_is_a_matrix_exponential_at_every_time() -> None:
    torch.manual_seed(1)
    drift, start = torch.randn(2, 6).double(), nn.functional.normalize(torch.randn(2, 4).double(), dim=-1)
    path = follow(start, skew(drift, 4)[:, None].expand(-1, 8, -1, -1) / 8, 1 / 8)
    times = torch.tensor([[-0.3, 0.0, 0.01, 0.5, 0.77, 1.0, 1.6], [0.2, 0.125, 0.9, 0.3, 1.0, 2.0, 0.0]]).double()
    turn = torch.linalg.matrix_exp(times[..., None, None] * skew(drift, 4)[:, None])
    assert relative_error(path.at(times), (turn @ start[:, None, :, None]).squeeze(-1)) < 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_paths_stay_on_the_sphere(dtype: torch.dtype) -> None:
    model, batch = build("query", dtype, grid=64), batch_of("query", dtype)
    start, drift = model.recognised(*model.encode(batch))
    for noise in (None, torch.randn(drift.shape).to(dtype)):
        path = model.path(start.sample(), drift, noise)
        assert path.points.shape == (3, 129, 5)
        lengths = torch.cat([path.points, path.at(torch.rand(3, 20).double() * 4 - 1)], 1).detach().norm(dim=-1)
        assert float((lengths - 1).abs().max()) < (1e-5 if dtype == torch.float32 else 1e-12)


def test_the_drift_is_its_polynomials_at_half_the_time() -> None:
    model, batch = build("query"), batch_of("query")
    for parameter in (model.drift.weight, model.drift.bias):
        nn.init.zeros_(parameter)
    with torch.no_grad():
        model.drift.bias[20] = 1.0  # T_2 of the first entry: 3 polynomials of 10 entries
    drift = model.recognised(*model.encode(batch))[1]
    s = torch.arange(32).double() / 32
    assert relative_error(drift[1, :, 0], 2 * s**2 - 1) < 1e-12
    assert not bool(drift[..., 1:].any())


def test_the_divergence_of_paths_is_that_of_girsanov() -> None:
    model, batch = build(), batch_of()
    start, drift = model.recognised(*model.encode(batch))
    path = model.path(start.direction, drift, None)
    assert not bool(model.path_divergence(path, torch.zeros_like(drift)).any())
    expected = torch.zeros(3).double()
    for b in range(3):
        for k in range(16):
            expected[b] += (skew(drift[b, k], 5) @ path.points[b, k]).square().sum() / 16 / 2
    assert relative_error(model.path_divergence(path, drift), expected / model.log_noise.exp() ** 2) < 1e-12


# --- training ---


def loss_of(model: LSDE, answer: str, seed: int) -> Tensor:
    draws = Draws(CPU)
    draws.seed(seed)
    task = tasks.regress(3) if answer == "series" else tasks.records("extrapolate", 3, answer)  # type: ignore[arg-type]
    with drawing_from(draws):
        return model.training_loss(task, batch_of(answer, targets=True)).detach()


@pytest.mark.parametrize("answer", ["series", "step", "query"])
def test_a_run_draws_its_own_numbers_and_answers_draw_none(answer: str) -> None:
    model = build(answer)
    before = torch.random.get_rng_state()
    once, again, other = (float(loss_of(model, answer, seed)) for seed in (1, 1, 2))
    assert once == again != other
    assert torch.equal(model(batch_of(answer)), model(batch_of(answer)))
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("answer", ["series", "step", "query"])
def test_without_noise_the_loss_is_that_of_the_answers_and_the_bound(answer: str) -> None:
    model = build(answer, start_weight=0.5, path_weight=0.25, evidence_weight=0.2)
    with torch.no_grad():
        model.log_noise.fill_(-9.0)
        model.drift.weight.zero_()
        model.drift.bias.zero_()
        model.sharpness.weight.zero_()
        model.sharpness.bias.fill_(1e9)  # as sharp as it gets: the start is its direction, nearly
    batch = batch_of(answer, targets=True)
    start, drift = model.recognised(*model.encode(batch))
    path = model.path(start.direction, drift, None)
    mean = model.rebuild(path.points[:, :1]).expand_as(batch.values)  # type: ignore[misc]
    counted = batch.observed & batch.valid[..., None]
    variance = model.log_variance.exp()  # type: ignore[union-attr]
    likely = torch.distributions.Normal(mean, variance.sqrt()).log_prob(batch.values)
    bound = 0.5 * start.divergence() - torch.where(counted, likely, 0).sum((1, 2))
    expected = (model(batch) - 1).square()
    expected = (expected[batch.valid] if answer == "step" else expected).mean()
    if answer == "step":
        batch = replace(batch, targets_observed=batch.valid[..., None].expand(-1, -1, 3))
    task = tasks.regress(3) if answer == "series" else tasks.records("extrapolate", 3, answer)  # type: ignore[arg-type]
    torch.manual_seed(0)
    found = model.training_loss(task, batch)
    assert float(found.detach()) == pytest.approx(
        float((expected + 0.2 * (bound / counted.sum((1, 2))).mean()).detach()), rel=0.03
    )


def test_frames_are_not_rebuilt() -> None:
    model = build(inputs=1, embedder="frames", rows="values")
    assert model.rebuild is None
    _, times, lengths = irregular_arrays(3, 9, 3, seed=0)
    batch = IrregularBatch.build(torch.rand(3, 9, 24, 24), times, lengths=lengths, dtype=torch.float64)
    batch = replace(
        batch, targets=torch.ones(3, 9, 3).double(), targets_observed=batch.valid[..., None].expand(-1, -1, 3)
    )
    assert bool(torch.isfinite(model.training_loss(tasks.regress_points(3), batch)))


@pytest.mark.parametrize(
    ("change", "says"),
    [({"state": 2}, "state must be at least 3"), ({"heads": 3}, "a multiple of heads"), ({"grid": 0}, "grid must be")],
)
def test_unknown_choices_are_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        LSDEConfig(**{"inputs": 3, "outputs": 2} | change)  # type: ignore[arg-type]
