"""GRU-ODE-Bayes: decay in closed form, bounds of the state, steps and losses by hand."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from helpers import irregular_batch, relative_error
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from lformer import IrregularBatch, tasks
from lformer.baselines import GRUODEBayes, GRUODEBayesConfig
from lformer.baselines.evolving import filled_rows
from lformer.baselines.gru_ode_bayes import Prediction, divergence, negative_log_likelihood

INTERVAL = 2.5  # a typical one
METHODS = ["exponential", "euler", "midpoint", "rk4", "dopri5"]


def build(answer: str = "step", spread: float = 0.5, **choices: object) -> GRUODEBayes:
    torch.manual_seed(0)
    config = {"inputs": 3, "outputs": 2, "answer": answer, "width": 6, "prediction_units": 5, "prepared": 4}
    model = GRUODEBayes(GRUODEBayesConfig(**config | choices)).double()
    model.rows.interval.fill_(INTERVAL)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=spread)
    return model


def states(seed: int = 0, N: int = 7) -> Tensor:
    return 2 * torch.rand(N, 6, generator=torch.Generator().manual_seed(seed)).double() - 1


def still(model: GRUODEBayes) -> GRUODEBayes:
    """With gates that are the same everywhere: z = ½, n = 0."""
    for parameter in model.between.parameters():
        nn.init.zeros_(parameter)
    return model


def counted(model: nn.Module, batch: IrregularBatch) -> Tensor:
    return torch.where(batch.valid[..., None], model(batch), 0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("impute", [True, False])
def test_without_weights_the_state_halves_in_a_known_time(method: str, impute: bool) -> None:
    model = still(build(method=method, impute=impute, steps=50 if method == "rk4" else 2, rtol=1e-9, atol=1e-9))
    h, intervals = states(), torch.linspace(0, 4, 7).double()
    step = intervals[:, None] / 2
    factor = {"euler": (1 - step / 2) ** 2, "midpoint": (1 - step / 2 + step**2 / 8) ** 2}
    known = h * factor.get(method, torch.exp(-intervals / 2)[:, None])
    assert relative_error(model.evolve(h, intervals), known) < (1e-7 if method in ("rk4", "dopri5") else 1e-13)


@pytest.mark.parametrize("method", ["exponential", "euler"])
def test_the_state_stays_within_one(method: str) -> None:
    longest = 2.0 if method == "euler" else 1e6  # Euler steps of a typical interval at most
    model = build(method=method, spread=3.0)
    for seed in range(20):
        moved = model.evolve(states(seed), torch.linspace(0, longest, 7).double())
        assert float(moved.detach().abs().max()) <= 1 + 1e-12
    batch = irregular_batch(seed=1)
    if method == "euler":
        model.rows.interval.fill_(float(batch.deltas.max()) / 2)
    walk = model.walk(batch, model.rows(batch), filled_rows(batch))
    assert float(walk.states.detach().abs().max()) <= 1 + 1e-12
    assert float(walk.states.detach().abs().max()) > 0.5


def test_exponential_steps_approach_the_solution_with_order_one() -> None:
    h, intervals = states(), torch.linspace(-0.5, 3, 7).double()
    known = build(method="dopri5", rtol=1e-11, atol=1e-11).evolve(h, intervals)
    coarse, fine = (relative_error(build(steps=n).evolve(h, intervals), known) for n in (100, 200))
    assert fine < 0.01
    assert coarse / fine == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize("method", METHODS)
def test_no_interval_changes_nothing_and_two_halves_are_a_whole(method: str) -> None:
    h, intervals = states(), torch.linspace(0, 3, 7).double()
    assert torch.equal(build(method=method).evolve(h, torch.zeros(7).double()), h)
    if method == "dopri5":
        return
    half, whole = build(method=method, steps=2), build(method=method, steps=4)
    assert relative_error(half.evolve(half.evolve(h, intervals / 2), intervals / 2), whole.evolve(h, intervals)) < 1e-12


@pytest.mark.parametrize(("method", "impute"), [("rk4", True), ("rk4", False), ("dopri5", False)])
def test_adjoint_gradients_are_the_direct_ones(method: str, impute: bool) -> None:
    """With predictions in the equation, dopri5 takes very many steps over the kinks of their ReLU."""
    found = []
    for adjoint in (False, True):
        model = build(method=method, impute=impute, steps=60, rtol=1e-9, atol=1e-9, adjoint=adjoint)
        h = states().requires_grad_()
        y = model.evolve(h, torch.linspace(0, 2, 7).double())
        weights = [h, *model.between.parameters(), *(model.predict.parameters() if impute else ())]
        found.append(torch.autograd.grad(y.sin().sum(), weights))
    for direct, other in zip(*found, strict=True):
        assert relative_error(other, direct) < 1e-5


def by_hand(model: GRUODEBayes, batch: IrregularBatch, i: int, moment: float, rows: int) -> Tensor:
    """The state of a series at a moment, after its first `rows` rows."""
    h, since = torch.tanh(model.start)[None], None
    for k in range(rows):
        seen = batch.observed[i, k]
        if not bool(seen.any()):
            continue
        now = float(batch.times[i, k])
        if since is not None:
            h = model.evolve(h, torch.tensor([(now - since) / INTERVAL], dtype=torch.float64))
        mean, log_variance = model.predict.layers(h)[0].chunk(2)
        given = []
        for c in range(3):
            four = torch.stack([batch.values[i, k, c], mean[c], log_variance[c],
                                (batch.values[i, k, c] - mean[c]) / torch.exp(log_variance[c] / 2)])  # fmt: skip
            given.append(F.relu(four @ model.prepare.weight[c] + model.prepare.bias[c]) * seen[c])
        h, since = model.cell(torch.cat(given)[None], h), now
    return (
        h[0] if since is None else model.evolve(h, torch.tensor([(moment - since) / INTERVAL], dtype=torch.float64))[0]
    )


def test_rows_and_queries_are_answered_as_by_hand() -> None:
    batch = irregular_batch(L=10, seed=2)
    rows, y = build(), build()(batch)
    empty = batch.valid & ~batch.observed.any(dim=2)
    assert bool(empty.any())
    for i, n in enumerate(batch.lengths.tolist()):
        for k in range(n):
            state = by_hand(rows, batch, i, float(batch.times[i, k]), k + 1)
            assert relative_error(y[i, k], rows.head(state)) < 1e-10
    queries = build("query")
    asked = batch.with_queries(torch.tensor([-1.0, 0.0, 3.3, 1e3]).double() + batch.times[:, :1])
    y = queries(asked)
    for i, n in enumerate(batch.lengths.tolist()):
        for q, moment in enumerate(asked.query_times[i].tolist()):
            until = int((batch.times[i, :n] <= moment).sum())
            assert relative_error(y[i, q], queries.head(by_hand(queries, batch, i, moment, until))) < 1e-10


def test_the_losses_are_those_of_torch() -> None:
    g = torch.Generator().manual_seed(3)
    mean, log_variance, x = (torch.randn(4, 5, generator=g).double() for _ in range(3))
    p = Prediction(mean, log_variance)
    known = F.gaussian_nll_loss(mean, x, log_variance.exp(), full=True, reduction="none")
    assert relative_error(negative_log_likelihood(p, x), known) < 1e-12
    known = kl_divergence(Normal(mean, torch.exp(log_variance / 2)), Normal(x, 0.01))
    assert relative_error(divergence(p, x), known) < 1e-12


@pytest.mark.parametrize("answer", ["series", "step", "query"])
def test_observations_are_learned_beside_the_task(answer: str) -> None:
    batch = irregular_batch(L=9, seed=4)
    batch = batch.with_queries(batch.times[:, :4] + 0.5) if answer == "query" else batch
    shape = {"series": (4, 2), "step": (4, 9, 2), "query": (4, 4, 2)}[answer]
    batch = replace(batch, targets=torch.randn(shape, generator=torch.Generator().manual_seed(5)).double())
    task = {"series": tasks.regress(2), "step": tasks.regress_points(2)}.get(answer)
    task = task or tasks.records("extrapolate", 2, "query")
    model = build(answer, likelihood_weight=0.3, kl_weight=0.02, spread=0.3)
    total, count = torch.zeros(()).double(), 0
    for i, n in enumerate(batch.lengths.tolist()):
        for k in (k for k in range(n) if bool(batch.observed[i, k].any())):
            seen, x = batch.observed[i, k], batch.values[i, k]
            now = float(batch.times[i, k])
            before, after = (model.predict(by_hand(model, batch, i, now, rows)) for rows in (k, k + 1))
            total = total + (negative_log_likelihood(before, x) + 0.02 * divergence(after, x))[seen].sum()
            count += int(seen.sum())
    known = task.loss(model(batch), batch) + 0.3 * total / count
    found = model.training_loss(task, batch)
    assert relative_error(found, known) < 1e-8
    padded = batch.padded(50, targets=answer)
    assert relative_error(model.training_loss(task, padded), found) < 1e-10
    alone = build(answer, likelihood_weight=0.0, spread=0.3)
    assert relative_error(alone.training_loss(task, batch), task.loss(alone(batch), batch)) < 1e-12


def test_static_covariates_change_the_first_state_alone() -> None:
    static = torch.randn(4, 2, generator=torch.Generator().manual_seed(6)).double()
    model, batch = build("query", statics=2), irregular_batch(seed=7, static=static)
    y = model(batch.with_queries(batch.times[:, :1] - 1))[:, 0]
    known = model.head(torch.tanh(model.start + model.covariates(static)))
    assert relative_error(y, known) < 1e-12


def test_it_starts_as_published() -> None:
    torch.manual_seed(0)
    model = GRUODEBayes(GRUODEBayesConfig(inputs=40, outputs=2, width=50))
    assert float(model.prepare.weight.detach().std()) == pytest.approx(math.sqrt(2 / 14), rel=0.1)
    assert model.prepare.bias.unique().tolist() == pytest.approx([0.1])
    for module in (model.predict, model.between):
        for layer in module.modules():
            if isinstance(layer, nn.Linear) and layer.bias is not None:
                assert layer.bias.unique().tolist() == pytest.approx([0.05])


def test_predictions_stay_finite() -> None:
    model, batch = build(spread=1.0), irregular_batch(seed=8)
    with torch.no_grad():
        model.predict.layers[-1].bias[3:] = -1e4  # variances that would underflow
    batch = replace(batch, targets=torch.zeros(4, 30, 2).double())
    loss = model.training_loss(tasks.regress_points(2), batch)
    assert bool(torch.isfinite(loss))
    assert bool(torch.isfinite(counted(model, batch)).all())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"method": "heun"}, "'exponential', 'euler', 'midpoint', 'rk4', 'dopri5'; got 'heun'"),
        ({"adjoint": True}, 'adjoint=True needs a method of torchdiffeq, such as "rk4"'),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1; got 1.0"),
        ({"kl_weight": -1.0}, "kl_weight must be at least 0; got -1.0"),
        ({"prepared": 0}, "prepared must be at least 1; got 0"),
    ],
)
def test_unknown_choices_are_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        build(**change)
