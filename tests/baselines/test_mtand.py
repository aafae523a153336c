"""mTAND: attention by time, a softmax per channel, against the same computed entry by entry."""

import math
from dataclasses import replace

import pytest
import torch
from helpers import irregular_arrays, irregular_batch, relative_error
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from lformer import IrregularBatch, tasks
from lformer.baselines import MTAND, MTANDConfig
from lformer.baselines.model import Clock
from lformer.baselines.mtand import BothWays, TimeFeatures, averages
from lformer.draws import Draws, drawing_from

TIGHT = 1e-10


def build(answer: str = "query", **choices: object) -> MTAND:
    torch.manual_seed(0)
    small = {"width": 6, "references": 7, "time_width": 8, "latent": 4, "generator": 5}
    return MTAND(MTANDConfig(**{"inputs": 3, "outputs": 2, "answer": answer} | small | choices)).double()


def naive(scores: Tensor, values: Tensor, there: Tensor) -> Tensor:
    """A softmax for every channel of its own, with a tensor (B, H, N, L, W)."""
    own = scores[..., None].masked_fill(~there[:, None, None].bool(), -1e9).softmax(dim=-2)
    return torch.where(there.any(dim=1)[:, None, None].bool(), (own * values[:, None, None]).sum(dim=-2), 0)


def operands(spread: float = 1.0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(3)
    scores = spread * torch.randn(3, 2, 5, 11, generator=g, dtype=torch.float64)
    values = torch.randn(3, 11, 4, generator=g, dtype=torch.float64)
    there = (torch.rand(3, 11, 4, generator=g) < 0.4).double()
    there[0, :, 2] = 0  # never there
    there[1, 6:] = 0  # padding
    return scores.to(dtype), values.to(dtype), there.to(dtype)


@pytest.mark.parametrize("spread", [0.0, 1.0, 30.0])
def test_two_matrix_products_are_a_softmax_for_every_channel(spread: float) -> None:
    scores, values, there = operands(spread)
    scores.requires_grad_()
    found, expected = averages(scores, values, there), naive(scores, values, there)
    assert relative_error(found, expected) < TIGHT
    (one,) = torch.autograd.grad(found.sin().sum(), scores, retain_graph=True)
    (other,) = torch.autograd.grad(expected.sin().sum(), scores)
    assert relative_error(one, other, scale=1.0) < TIGHT


def test_a_channel_far_from_the_highest_score_still_has_an_average_in_float32() -> None:
    scores = torch.tensor([0.0, -300.0, -310.0])[None, None, None]
    values = torch.tensor([[5.0, 0.0], [0.0, 2.0], [0.0, 4.0]])[None]
    there = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])[None]
    found = averages(scores, values, there)[0, 0, 0]
    assert found[0] == 5.0
    assert 2.0 <= float(found[1]) <= 4.0


def test_a_row_in_which_nothing_is_there_does_not_set_the_scale() -> None:
    scores, values, there = operands()
    scores[1, ..., 8] = 1e6
    assert relative_error(averages(scores, values, there), naive(scores, values, there)) < TIGHT


def test_a_constant_channel_stays_constant_at_any_moment() -> None:
    scores, values, there = operands(5.0)
    values[..., 1] = 7.25
    there[..., 1] = 1
    assert relative_error(averages(scores, values, there)[..., 1], torch.full((3, 2, 5), 7.25).double()) < TIGHT


def test_what_is_never_there_is_0_and_has_no_gradient() -> None:
    scores, values, there = operands()
    values.requires_grad_()
    found = averages(scores, values, there)
    assert not bool(found[0, ..., 2].any())
    (g,) = torch.autograd.grad(found.sum(), values)
    assert not bool(g[there == 0].any())


def test_time_features_are_one_line_and_sines() -> None:
    torch.manual_seed(0)
    features = TimeFeatures(5).double()
    times = torch.tensor([[0.0, 0.3, 1.0]]).double()
    found = features(times).detach()
    w, b = features.linear.weight.item(), features.linear.bias.item()
    for n, t in enumerate(times[0].tolist()):
        assert float(found[0, n, 0]) == pytest.approx(w * t + b)
        for i in range(4):
            angle = features.periodic.weight[i, 0].item() * t + features.periodic.bias[i].item()
            assert float(found[0, n, 1 + i]) == pytest.approx(math.sin(angle))


@pytest.mark.parametrize("answer", ["series", "query"])
def test_the_order_in_which_observations_stand_does_not_matter(answer: str) -> None:
    """Rows of one moment may be exchanged, with all that belongs to them: attention knows times alone."""
    values, times, _ = irregular_arrays(2, 12, 3, seed=1)
    times[:, 3:7] = times[:, 3:4]
    times = torch.cummax(times, dim=1).values
    order = torch.tensor([0, 1, 2, 5, 6, 3, 4, 7, 8, 9, 10, 11])
    asked = times[:, :4] + 0.3 if answer == "query" else None
    model = build(answer)
    known = model(IrregularBatch.build(values, times, query_times=asked, dtype=torch.float64))
    moved = IrregularBatch.build(values[:, order], times, query_times=asked, dtype=torch.float64)
    assert relative_error(model(moved), known) < TIGHT


def test_the_encoder_attends_from_points_over_the_span_of_each_series() -> None:
    batch, model = irregular_batch(B=3, L=9, seed=4), build("series")
    model.rows.span.fill_(3.0)
    found = model.forwards(_attended(model, batch))[0][:, -1]
    assert relative_error(model(batch), model.head(found)) < TIGHT


def _attended(model: MTAND, batch: IrregularBatch) -> Tensor:
    """(B, R, D), one moment, channel and head at a time."""
    D = model.config.width
    result = torch.zeros(len(batch), 7, D).double()
    for b, n in enumerate(batch.lengths.tolist()):
        span = float(batch.times[b, n - 1])
        unit = max(span, 3.0)
        rows = model.time(batch.times[b, :n][None] / unit)[0]
        for r in range(7):
            moment = model.time(torch.tensor([[span * r / 6 / unit]]).double())[0, 0]
            score = model.attend.key(rows) @ model.attend.query(moment) / math.sqrt(8)
            both = []
            for source in (batch.values[b, :n], batch.observed[b, :n].double()):
                for c in range(3):
                    seen = batch.observed[b, :n, c]
                    weight = score[seen].softmax(dim=0)
                    both.append((weight * source[seen, c]).sum() if bool(seen.any()) else torch.zeros(()).double())
            result[b, r] = model.attend.out(torch.stack(both))
    return result


def test_both_ways_reads_the_valid_rows_from_either_end() -> None:
    torch.manual_seed(0)
    gru, x, lengths = BothWays(3, 4, 1).double(), torch.randn(3, 8, 3).double(), torch.tensor([8, 3, 1])
    found = gru(x, lengths)
    for b, n in enumerate(lengths.tolist()):
        there, back = gru.forwards(x[b : b + 1, :n])[0], gru.backwards(x[b : b + 1, :n].flip(1))[0].flip(1)
        assert relative_error(found[b : b + 1, :n], torch.cat([there, back], dim=-1)) < TIGHT
    ours = torch.nn.GRU(3, 4, batch_first=True, bidirectional=True).double()
    with torch.no_grad():
        for name, parameter in gru.forwards.named_parameters():
            getattr(ours, name).copy_(parameter)
        for name, parameter in gru.backwards.named_parameters():
            getattr(ours, f"{name}_reverse").copy_(parameter)
    assert relative_error(found[:1], ours(x[:1])[0]) < TIGHT


def test_rows_are_answered_as_queries_at_their_times_are() -> None:
    values, times, lengths = irregular_arrays(2, 9, 3, seed=2)
    rows, asked = build("step"), build("query")
    asked.load_state_dict(rows.state_dict())
    given = IrregularBatch.build(values, times, lengths=lengths, dtype=torch.float64)
    found = asked(given.with_queries(given.times))
    assert relative_error(found[given.valid], rows(given)[given.valid]) < TIGHT


def test_the_unit_of_time_does_not_matter_once_the_span_is_known() -> None:
    values, times, lengths = irregular_arrays(2, 9, 3, seed=6)
    model = build("step")
    answers = []
    for unit in (1.0, 60.0):
        model.rows.span.fill_(unit * 40.0)
        answers.append(model(IrregularBatch.build(values, unit * times, lengths=lengths, dtype=torch.float64)))
    assert relative_error(answers[1], answers[0]) < TIGHT


def test_times_of_rows_are_between_0_and_1() -> None:
    batch = irregular_batch(B=4, L=12, seed=5)
    for span in (1e-3, 1e5):
        found = Clock.of(batch, torch.tensor(span))(batch.times)
        assert float(found.min()) == 0.0
        assert float(found.max()) <= 1.0


def with_targets(answer: str, seed: int = 0) -> IrregularBatch:
    """Two numbers wherever they are asked for, some of them missing."""
    batch, g = irregular_batch(B=3, L=9, seed=seed), torch.Generator().manual_seed(seed)
    if answer == "query":
        batch = batch.with_queries(torch.tensor([-0.1, 0.0, 0.4, 1.2]).double() * (batch.times[:, -1:] + 1))
    size = (3, 4 if answer == "query" else batch.times.shape[1], 2)
    counted = torch.rand(size, generator=g) < 0.7
    if answer == "step":
        counted &= batch.valid[..., None]
    return replace(batch, targets=torch.randn(size, generator=g).double(), targets_observed=counted)


@pytest.mark.parametrize("answer", ["step", "query"])
def test_numbers_are_learned_by_the_bound(answer: str) -> None:
    """Likelihood and divergence over the number of targets; a density for each sample by hand."""
    model, batch = build(answer, noise=0.5, kl_weight=0.3, samples=4), with_targets(answer)
    task = tasks.regress_points(2) if answer == "step" else tasks.records("extrapolate", 2, "query")
    torch.manual_seed(7)
    found = model.training_loss(task, batch)
    torch.manual_seed(7)
    seen = model.see(*model.encode(batch))
    law, count = model.law(seen), int(batch.targets_observed.sum())
    divergence = kl_divergence(Normal(*law), Normal(torch.zeros(4).double(), torch.ones(4).double())).sum() / count
    assert law.mean.shape == (3, 7, 4)
    weights = []
    for draw in torch.randn(4, 3, 7, 4).double():
        y = model.head(model.decode(law.mean + law.deviation * draw, seen))
        density = Normal(y, 0.5).log_prob(batch.targets)[batch.targets_observed].sum() / count
        weights.append(torch.exp(density - 0.3 * divergence))
    assert relative_error(found, -torch.log(sum(weights) / 4)) < 1e-6
    model.zero_grad()
    found.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert bool(parameter.grad.any()), name
    assert bool(model.latent[-1].weight.grad.any(dim=1).all())  # means and variances alike


def test_answers_draw_nothing_and_losses_draw_from_the_run() -> None:
    model, batch, draws = build(), with_targets("query"), Draws(torch.device("cpu"))
    task, answers, losses = tasks.records("extrapolate", 2, "query"), [], []
    for one, seed in ((batch, 3), (batch.padded(40, 8, targets="query"), 3), (batch, 4)):
        torch.manual_seed(len(losses))
        draws.seed(seed)
        with drawing_from(draws):
            answers.append(model(one)[:, :4])
            losses.append(model.training_loss(task, one))
    assert relative_error(answers[1], answers[0]) < TIGHT
    assert torch.equal(answers[2], answers[0])
    assert relative_error(losses[1], losses[0]) < TIGHT
    assert relative_error(losses[2], losses[0]) > 1e-3


def test_what_is_not_decoded_is_learned_by_the_loss_of_the_task() -> None:
    batch = replace(irregular_batch(B=3, L=9), targets=torch.tensor([0, 1, 1]))
    model, task = build("series"), tasks.classify(2)
    assert torch.equal(model.training_loss(task, batch), task.loss(model(batch), batch))
    rows, points = with_targets("step"), build("step", points="encoder")
    task = tasks.regress_points(2)
    assert torch.equal(points.training_loss(task, rows), task.loss(points(rows), rows))


def test_impossible_sizes_are_refused() -> None:
    for change, says in (
        ({"heads": 3}, "multiple of heads; got time_width=128, heads=3"),
        ({"references": 0}, "references must be at least 1; got 0"),
        ({"samples": 0}, "samples must be at least 1; got 0"),
        ({"points": "both"}, "'decoder', 'encoder'; got 'both'"),
    ):
        with pytest.raises(ValueError, match=says):
            MTANDConfig(**{"inputs": 1, "outputs": 1} | change)
