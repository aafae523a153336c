"""ACSSM: its dynamics against known processes and a loop, what it attends to, and how it is trained."""

import math
from dataclasses import replace

import pytest
import torch
from helpers import irregular_arrays, relative_error
from torch import Tensor, nn

from lformer import IrregularBatch, data, tasks
from lformer.baselines import ACSSM, ACSSMConfig
from lformer.bench.settings import settings
from lformer.draws import Draws, drawing_from
from lformer.nn.rows import fit_clock
from lformer.train import TrainConfig, fit, seeded

UNIT = 2.5  # a typical interval
D = 6


def build(answer: str = "step", scattered: bool = True, **choices: object) -> ACSSM:
    torch.manual_seed(0)
    sizes = {"inputs": 3, "outputs": 2, "answer": answer, "width": D, "bases": 3, "rows": "observed"}
    model = ACSSM(ACSSMConfig(**sizes | choices)).double()
    if scattered:
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.4)
    model.rows.interval.fill_(UNIT)
    return model


def some_batch(seed: int = 0, scale: float = 1.0) -> IrregularBatch:
    values, times, lengths = irregular_arrays(3, 12, 3, seed=seed)
    values[:, [0, 5]] = torch.nan  # nothing observed
    return IrregularBatch.build(values, (times - 1000) * scale, lengths=lengths, dtype=torch.float64)


def path_of(model: ACSSM, batch: IrregularBatch):
    return model.path(model.embed_rows(model.rows(batch).rows, batch), batch, model.dynamics.basis())


@torch.no_grad()
@pytest.mark.parametrize("absolute", [False, True])
def test_mean_and_variance_are_the_recurrence_written_out(absolute: bool) -> None:
    model, batch = build(absolute_time=absolute), some_batch()
    path, dynamics = path_of(model, batch), model.dynamics
    E = dynamics.basis()
    start_P = E.mT @ torch.diag(10 * dynamics.start_log_variance.exp()) @ E
    for i, n in enumerate(batch.lengths.tolist()):
        m, p = E.mT @ dynamics.start_mean, start_P.diagonal()
        for k in range(n):
            delta = float(batch.times[i, k] if absolute else batch.deltas[i, k]) / UNIT
            alpha = dynamics.control.weight @ path.law.control[i, k]
            c = torch.softmax(dynamics.mixture.weight @ alpha + dynamics.mixture.bias, dim=0)
            a = -(c[:, None] * (dynamics.log_rates.exp() + 1e-6)).sum(0)
            m = torch.exp(a * delta) * m + (torch.exp(a * delta) - 1) / a * alpha
            p = torch.exp(2 * a * delta) * p + (torch.exp(2 * a * delta) - 1) / (2 * a) + 1e-6
            assert relative_error(path.law.mean[i, k], m) < 1e-10
            assert relative_error(path.law.variance[i, k], p) < 1e-10
            known = model.from_state.weight @ E @ m + model.from_control.weight @ E @ path.law.control[i, k]
            assert relative_error(model(batch)[i, k], model.head(known)) < 1e-10


@torch.no_grad()
def test_without_control_it_is_an_ornstein_uhlenbeck_process() -> None:
    model, batch = build(), some_batch(1)
    model.dynamics.control.weight.zero_()
    path, a = path_of(model, batch), model.dynamics.drift(torch.zeros(D).double())
    start = model.dynamics.start(model.dynamics.basis())
    assert bool((a < 0).all())
    decay = torch.exp(a * (batch.times / UNIT)[..., None])
    valid = batch.valid
    assert relative_error(path.law.mean[valid], (decay * start.mean)[valid]) < 1e-10
    far = replace(batch, times=batch.times * 1e6, deltas=batch.deltas * 1e6)
    limit = path_of(model, far).law
    assert relative_error(limit.variance[0, -1], 1 / (2 * a.abs()) + 1e-6) < 1e-10
    assert float(limit.mean[0, -1].abs().max()) < 1e-12


@torch.no_grad()
def test_variances_are_positive_and_an_interval_of_no_length_changes_nothing() -> None:
    model, batch = build(), some_batch(2)
    with torch.no_grad():
        model.dynamics.log_rates.mul_(20)  # from nothing to almost at once
    law = path_of(model, batch).law
    assert float(law.variance.min()) > 0
    tied = (batch.deltas == 0) & batch.valid
    tied[:, 0] = False
    assert bool(tied.any())
    before = tied.roll(-1, dims=1)
    assert relative_error(law.mean[tied], law.mean[before]) < 1e-14
    assert relative_error(law.variance[tied], law.variance[before] + 1e-6) < 1e-12


def test_gradients_are_those_of_finite_differences() -> None:
    model = build(width=4)
    Z, deltas = torch.randn(5, 4).double().requires_grad_(), torch.tensor([0.0, 1e-9, 1e-3, 0.7, 30.0]).double()
    assert torch.autograd.gradcheck(lambda z: tuple(model.dynamics(z, deltas)), Z)


def test_the_basis_stays_orthogonal_while_the_model_learns() -> None:
    model, batch = build(scattered=False), some_batch(3)
    batch = replace(
        batch, targets=torch.ones(3, 12, 2).double(), targets_observed=batch.valid[..., None].expand(3, 12, 2)
    )
    start = model.dynamics.basis().detach()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(5):
        optimiser.zero_grad()
        model.training_loss(tasks.regress_points(2), batch).backward()
        optimiser.step()
    E = model.dynamics.basis().detach()
    assert relative_error(E.mT @ E, torch.eye(D)) < 1e-12
    assert relative_error(E, start) > 1e-2


@pytest.mark.parametrize("causal", [True, False])
def test_only_a_causal_row_is_independent_of_later_observations(causal: bool) -> None:
    model, batch = build(causal=causal), some_batch(4)
    later = replace(batch, values=torch.where(torch.arange(12)[:, None] > 6, 9.0, batch.values))
    known, changed = model(batch)[:1, :7], model(later)[:1, :7]
    assert torch.equal(known, changed) if causal else relative_error(changed, known) > 1e-3


@torch.no_grad()
def test_a_row_without_an_observation_has_the_features_of_the_latest_with_one() -> None:
    model, batch = build(), some_batch(5)
    features = path_of(model, batch).features
    has = batch.observed.any(dim=2)
    for i, n in enumerate(batch.lengths.tolist()):
        latest = torch.zeros(D).double()
        for k in range(n):
            if bool(has[i, k]):
                assert relative_error(features[i, k], latest) > 1e-3
                latest = features[i, k]
            assert torch.equal(features[i, k], latest)


def test_a_query_is_answered_as_an_empty_row_and_at_a_row_as_that_row() -> None:
    values, _, _ = irregular_arrays(2, 6, 3, seed=5)
    stamps = torch.tensor([0.0, 1.0, 2.5, 3.0]).double()
    for absolute in (False, True):
        steps, queries = (build(a, causal=True, absolute_time=absolute) for a in ("step", "query"))
        rows = IrregularBatch.build(values[:, :4], stamps, dtype=torch.float64)
        at_rows = queries(rows.with_queries(stamps.expand(2, 4)))
        assert relative_error(at_rows, steps(rows)) < 1e-12
        empty = torch.cat([values[:, :4], torch.full((2, 1, 3), torch.nan).double()], dim=1)
        longer = IrregularBatch.build(empty, torch.cat([stamps, stamps.new_tensor([4.4])]), dtype=torch.float64)
        asked = queries(rows.with_queries(torch.full((2, 1), 4.4).double()))
        assert relative_error(asked[:, 0], steps(longer)[:, -1]) < 1e-7  # 4.4 in float32 and float64


def test_the_unit_of_time_does_not_matter() -> None:
    hours, minutes, model = some_batch(6), some_batch(6, scale=64.0), build()
    fit_clock(model, [hours])
    known = model(hours)[hours.valid]
    assert relative_error(model(minutes)[hours.valid], known) > 1e-3
    fit_clock(model, [minutes])
    assert relative_error(model(minutes)[hours.valid], known) < 1e-10


def with_targets(batch: IrregularBatch) -> IrregularBatch:
    targets = torch.randn(3, 12, 2, generator=torch.Generator().manual_seed(0)).double()
    return replace(batch, targets=targets, targets_observed=batch.valid[..., None].expand(3, 12, 2))


def drawn_loss(model: ACSSM, task: tasks.Task, batch: IrregularBatch, seed: int = 0) -> Tensor:
    draws = Draws(torch.device("cpu"))
    draws.seed(seed)
    with drawing_from(draws):
        return model.training_loss(task, batch)


@torch.no_grad()
def test_the_loss_is_the_likelihood_of_samples_and_two_small_terms() -> None:
    batch, task = with_targets(some_batch(7)), tasks.regress_points(2)
    model, E = build(samples=2), build().dynamics.basis()
    path = path_of(model, batch)
    std = (path.law.variance + model.log_extra.exp()).sqrt() @ E.mT @ model.from_state.weight.mT
    center = model.latent(path.law, E)
    g, errors = torch.Generator().manual_seed(0), []
    for _ in range(2):
        y = model.head(center + std * torch.randn(3, 12, D, generator=g, dtype=torch.float64))
        errors.append((y - batch.targets)[batch.valid].square().mean() / 0.02)
    alpha = path.law.control @ model.dynamics.control.weight.mT
    control, latent = 0.0, 0.0
    for i, n in enumerate(batch.lengths.tolist()):
        for k in range(n):
            if k + 1 < n:
                control += 0.5 * float(alpha[i, k].square().sum() * batch.deltas[i, k + 1]) / UNIT / 3
            if bool(batch.observed[i, k].any()):
                law = torch.distributions.Normal(center[i, k], std[i, k].abs().clamp(min=1.0))
                latent -= float(law.log_prob(path.embedded[i, k]).sum() + D * 0.5 * math.log(2 * math.pi)) / 3
    plain = float(torch.stack(errors).mean())
    assert float(drawn_loss(model, task, batch)) == pytest.approx(plain + 1e-6 * control + 1e-8 * latent, rel=1e-12)
    heavy = build(samples=2, control_weight=1.0, latent_weight=2.0)
    assert float(drawn_loss(heavy, task, batch)) == pytest.approx(plain + control + 2 * latent, rel=1e-10)


def test_samples_are_drawn_from_the_run_and_answers_are_not_sampled() -> None:
    batch, model, task = with_targets(some_batch(8)), build(), tasks.regress_points(2)
    known = drawn_loss(model, task, batch)
    torch.manual_seed(77)
    before = torch.get_rng_state()
    assert torch.equal(drawn_loss(model, task, batch), known)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(drawn_loss(model, task, batch, seed=1), known)
    assert torch.equal(model.train()(batch), model.eval()(batch))


def test_classes_are_learned_by_the_loss_of_the_task_on_samples() -> None:
    model, batch = build("series", samples=1, control_weight=0.0, latent_weight=0.0), some_batch(9)
    batch, task = replace(batch, targets=torch.tensor([0, 1, 1])), tasks.classify(2)
    with torch.no_grad():
        model.log_extra.fill_(-80.0)
        model.from_state.weight.zero_()  # so that samples do not differ
    assert relative_error(model.training_loss(task, batch), task.loss(model(batch), batch)) < 1e-12


def test_a_run_repeats_itself() -> None:
    splits = data.load("spiral-0.02", steps=2)
    task, config = tasks.for_splits(splits), TrainConfig(epochs=1, device="cpu")
    found = []
    for noise in (1, 2):
        with seeded(3):
            model = ACSSM(ACSSMConfig(inputs=2, outputs=2, answer="query", width=6, bases=2, depth=1, dropout=0.2))
        torch.manual_seed(noise)
        fit(model, task, splits, config, progress=False)
        found.append(model.state_dict())
    assert all(torch.equal(value, found[1][key]) for key, value in found[0].items())


def test_the_published_settings() -> None:
    """State, drifts, layers, batch size, initial variance, weight decay."""
    printed = {
        "pendulum regress-points": (20, 15, 4, 50, 10.0, 1e-2),
        "activity classify-points": (288, 256, 1, 256, 1.0, 1e-2),
        "ushcn extrapolate": (20, 20, 4, 50, 10.0, 0.0),
        "physionet extrapolate": (24, 20, 4, 100, 10.0, 0.0),
    }
    for cell, expected in printed.items():
        own = settings("acssm", *cell.split())
        sizes = ACSSMConfig(inputs=1, outputs=1, **own.model)
        train = TrainConfig(**own.train)
        found = (sizes.width, sizes.bases, sizes.depth, train.batch_size, sizes.initial_variance, train.weight_decay)
        assert found == expected
        assert sizes.causal == ("extrapolate" in cell)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"width": 7}, "width must be even"),
        ({"bases": 0}, "bases must be at least 1"),
        ({"samples": 0}, "samples must be at least 1"),
        ({"initial_variance": 0.0}, "initial_variance must be positive"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1"),
    ],
)
def test_unknown_choices_are_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        build(**change)
