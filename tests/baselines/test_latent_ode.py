"""R-ODE and O-ODE: the law of their first state and the bound they are trained by, computed by hand."""

import math
from dataclasses import replace

import pytest
import torch
from helpers import irregular_arrays, irregular_batch, relative_error
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from lformer import IrregularBatch, tasks
from lformer.baselines import OODE, RODE, OODEConfig, RODEConfig
from lformer.baselines.bound import Law
from lformer.baselines.latent_ode import VariationalODE
from lformer.draws import Draws, drawing_from

INTERVAL, SPAN = 2.5, 120.0  # typical ones
BOTH = {"r-ode": (RODE, RODEConfig), "o-ode": (OODE, OODEConfig)}
both = pytest.mark.parametrize("name", BOTH)


def build(name: str, answer: str = "query", **choices: object) -> VariationalODE:
    torch.manual_seed(0)
    model, config = BOTH[name]
    sizes = {"inputs": 3, "outputs": 2, "answer": answer, "width": 5, "latent": 4, "units": 6, "rows": "observed"}
    built = model(config(**sizes | choices)).double()
    built.rows.interval.fill_(INTERVAL)
    built.rows.span.fill_(SPAN)
    for parameter in built.parameters():
        nn.init.normal_(parameter, std=0.4)
    return built


def law_of(model: VariationalODE, batch: IrregularBatch) -> Law:
    return model.law(model.backwards(*model.encode(batch)))


def with_targets(batch: IrregularBatch, seed: int = 0) -> IrregularBatch:
    """Asked at a few moments, with targets of which some are missing."""
    g = torch.Generator().manual_seed(seed)
    share = torch.tensor([-0.1, 0.0, 0.4, 1.2]).double()
    asked = batch.with_queries(share * (batch.times[:, -1:] + 1))
    counted = torch.rand(len(batch), 4, 2, generator=g) < 0.7
    return replace(asked, targets=torch.randn(len(batch), 4, 2, generator=g).double(), targets_observed=counted)


def seen_backwards(batch: IrregularBatch, i: int) -> list[int]:
    return [k for k in reversed(range(int(batch.lengths[i]))) if bool(batch.observed[i, k].any())]


def as_law(numbers: Tensor) -> tuple[Tensor, Tensor]:
    return numbers[..., :4], numbers[..., 4:].abs()


def test_the_gru_reads_rows_backwards_with_the_interval_before_each() -> None:
    model, batch = build("r-ode"), with_targets(irregular_batch(seed=1))
    rows, law = model.rows(batch).rows, law_of(model, batch)
    for i in range(4):
        seen, h = seen_backwards(batch, i), torch.zeros(5).double()
        for n, k in enumerate(seen):
            before = batch.times[i, seen[n + 1]] if n + 1 < len(seen) else batch.times[i, k]
            given = torch.cat([(batch.times[i, k] - before)[None] / INTERVAL, rows[i, k]])
            cell = model.recognition
            h = torch.gru_cell(given[None], h[None], cell.weight_ih_l0, cell.weight_hh_l0, cell.bias_ih_l0,
                               cell.bias_hh_l0)[0]  # fmt: skip
        mean, deviation = as_law(model.start(h))
        assert relative_error(law.mean[i], mean) < 1e-12
        assert relative_error(law.deviation[i], deviation) < 1e-12


@pytest.mark.parametrize(("steps", "field"), [(1, True), (3, True), (1, False)])
def test_the_ode_rnn_moves_back_between_rows_and_is_updated_at_each(steps: int, field: bool) -> None:
    model, batch = build("o-ode", recognition_steps=steps), with_targets(irregular_batch(seed=2))
    if not field:  # a recurrence that does not know time
        nn.init.zeros_(model.recognition_field[-1].weight)
        nn.init.zeros_(model.recognition_field[-1].bias)
    rows, law, update = model.rows(batch).rows, law_of(model, batch), model.update
    for i in range(4):
        y = s = torch.zeros(5).double()
        later = None
        for k in seen_backwards(batch, i):
            if later is not None and field:
                step = (batch.times[i, k] - later) / INTERVAL / steps
                assert step <= 0
                for _ in range(steps):
                    y = y + step * model.recognition_field(y)
            later = batch.times[i, k]
            u, r = (torch.sigmoid(net(torch.cat([y, s, rows[i, k]]))) for net in (update.keep, update.reset))
            new = update.candidate(torch.cat([r * y, r * s, rows[i, k]]))
            y, s = (1 - u) * new[:5] + u * y, ((1 - u) * new[5:].abs() + u * s).abs()
        mean, deviation = as_law(model.start(torch.cat([y, s])))
        assert relative_error(law.mean[i], mean) < 1e-10
        assert relative_error(law.deviation[i], deviation) < 1e-10


def test_what_keeps_its_state_does_not_depend_on_the_data() -> None:
    model = build("o-ode")
    nn.init.zeros_(model.recognition_field[-1].weight)
    nn.init.zeros_(model.recognition_field[-1].bias)
    nn.init.zeros_(model.update.keep[-1].weight)
    nn.init.constant_(model.update.keep[-1].bias, 1e3)
    known = model.start(torch.zeros(10).double())[:4].expand(4, -1)
    assert relative_error(law_of(model, with_targets(irregular_batch(seed=3))).mean, known) < 1e-13


@both
def test_a_row_without_an_observation_changes_nothing(name: str) -> None:
    values, times, lengths = irregular_arrays(3, 9, 3, seed=4)
    asked = times[:, [0, 3, 8]] + 0.5
    known = IrregularBatch.build(values, times, lengths=lengths, query_times=asked, dtype=torch.float64)
    empty, between = torch.full((3, 1, 3), torch.nan).double(), times[:, :2].mean(dim=1, keepdim=True)
    values, times = (
        torch.cat([values[:, :1], empty, values[:, 1:]], 1),
        torch.cat([times[:, :1], between, times[:, 1:]], 1),
    )
    more = IrregularBatch.build(values, times, lengths=lengths + 1, query_times=asked, dtype=torch.float64)
    assert relative_error(build(name)(more)[lengths > 1], build(name)(known)[lengths > 1]) < 1e-12


@both
def test_the_divergence_is_that_of_normal_laws(name: str) -> None:
    law = law_of(build(name), with_targets(irregular_batch(seed=5)))
    standard = Normal(torch.zeros_like(law.mean), torch.ones_like(law.mean))
    assert relative_error(law.divergence(), kl_divergence(Normal(*law), standard)) < 1e-12
    assert float(Law(standard.mean, standard.stddev).divergence().abs().max()) == 0


@both
def test_numbers_are_learned_by_the_bound(name: str) -> None:
    model, batch = build(name, noise=0.5, kl_weight=0.3, samples=4), with_targets(irregular_batch(seed=6))
    task = tasks.records("extrapolate", 2, "query")
    torch.manual_seed(7)
    found = model.training_loss(task, batch)
    torch.manual_seed(7)
    law, scores = law_of(model, batch), []
    divergence = kl_divergence(Normal(*law), Normal(torch.zeros(4).double(), torch.ones(4).double())).mean()
    for draw in torch.randn(4, *law.mean.shape).double():
        y = model.head(model.trajectory(law.mean + law.deviation * draw, batch))
        density = Normal(y, 0.5).log_prob(batch.targets)[batch.targets_observed].mean()
        scores.append(torch.exp(density - 0.3 * divergence))
    assert relative_error(found, -torch.log(sum(scores) / 4)) < 1e-6
    by_point = model.training_loss(tasks.trajectory(2), replace(batch, targets_observed=None))
    assert bool(torch.isfinite(by_point))


@both
def test_without_deviation_it_is_an_autoencoder(name: str) -> None:
    model, batch = build(name, noise=0.5, kl_weight=0.0), with_targets(irregular_batch(seed=8))
    nn.init.zeros_(model.start[-1].weight[4:])
    nn.init.zeros_(model.start[-1].bias[4:])
    error = (model(batch) - batch.targets)[batch.targets_observed]
    known = error.square().mean() / 0.5 + math.log(0.5) + 0.5 * math.log(2 * math.pi)
    assert relative_error(model.training_loss(tasks.records("extrapolate", 2, "query"), batch), known) < 1e-4


@both
def test_padding_does_not_change_the_bound_and_draws_are_those_of_the_run(name: str) -> None:
    model, batch = build(name), with_targets(irregular_batch(seed=9))
    task, draws, found = tasks.records("extrapolate", 2, "query"), Draws(torch.device("cpu")), []
    for one, seed in ((batch, 3), (batch.padded(40, targets="query"), 3), (batch, 4)):
        torch.manual_seed(len(found))
        draws.seed(seed)
        with drawing_from(draws):
            found.append(model.training_loss(task, one))
    assert relative_error(found[1], found[0]) < 1e-10
    assert relative_error(found[2], found[0]) > 1e-3


@both
def test_classes_are_learned_by_the_loss_of_the_task(name: str) -> None:
    model, task = build(name, "series"), tasks.classify(2)
    batch = replace(irregular_batch(seed=10), targets=torch.tensor([0, 1, 1, 0]))
    assert torch.equal(model.training_loss(task, batch), task.loss(model(batch), batch))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"samples": 0}, "samples must be at least 1; got 0"),
        ({"noise": 0.0}, "noise must be greater than 0; got 0.0"),
        ({"kl_weight": -1.0}, "kl_weight must be at least 0; got -1.0"),
        ({"gate_units": 0}, "gate_units must be at least 1; got 0"),
        ({"recognition_steps": 0}, "recognition_steps must be at least 1; got 0"),
    ],
)
def test_unknown_choices_are_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        build("o-ode", **change)
