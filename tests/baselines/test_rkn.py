"""RKN-dt: the Kalman filter it is when its blocks are diagonal, and the likelihood it is trained by."""

import math
from dataclasses import replace

import pytest
import torch
from helpers import irregular_arrays, relative_error
from torch import Tensor, nn

from lformer import IrregularBatch, tasks
from lformer.baselines import RKN, RKNConfig
from lformer.baselines.rkn import Belief, moved, positive, updated

TIGHT = 1e-12
UNIT = 2.5  # a typical interval
M = 4


def build(answer: str = "step", scattered: bool = True, **choices: object) -> RKN:
    torch.manual_seed(0)
    sizes = {"inputs": 3, "outputs": 2, "answer": answer, "width": 6, "state": 2 * M, "transitions": 3, "band": 1}
    model = RKN(RKNConfig(**{**sizes, "rows": "observed"} | choices)).double()
    if scattered:
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.4)
    model.rows.interval.fill_(UNIT)
    return model


def some_batch(seed: int = 0, **more: object) -> IrregularBatch:
    values, times, lengths = irregular_arrays(3, 10, 3, seed=seed)
    values[:, [0, 5]] = torch.nan  # nothing observed
    return IrregularBatch.build(values, times, lengths=lengths, dtype=torch.float64, **more)


def some_belief(seed: int = 0) -> Belief:
    g = torch.Generator().manual_seed(seed)
    root = torch.randn(5, M, 2, 2, generator=g).double()
    S = root @ root.mT + 0.1 * torch.eye(2).double()
    return Belief(torch.randn(5, 2, M, generator=g).double(), S.movedim(1, -1))


def full(belief: Belief) -> Tensor:
    """(..., 2 m, 2 m), the covariance as one matrix."""
    return torch.diag_embed(belief.covariance).transpose(-3, -2).flatten(-4, -3).flatten(-2)


def square(A: Tensor) -> Tensor:
    """(..., m, 2, 2, m) -> (..., 2 m, 2 m), a transition as one matrix."""
    return A.transpose(-4, -3).flatten(-4, -3).flatten(-2)


def assert_is(belief: Belief, mean: Tensor, covariance: Tensor) -> None:
    assert relative_error(belief.mean.flatten(-2), mean) < 1e-10
    assert relative_error(full(belief), covariance) < 1e-10


def test_an_update_is_that_of_the_full_kalman_filter() -> None:
    prior, w = some_belief(), torch.randn(5, M).double()
    r = torch.rand(5, M).double() + 0.01
    H = torch.cat([torch.eye(M), torch.zeros(M, M)], dim=1).double()
    P = full(prior)
    gain = P @ H.T @ torch.linalg.inv(H @ P @ H.T + torch.diag_embed(r))
    mean = prior.mean.flatten(1) + (gain @ (w - prior.mean[:, 0])[..., None]).squeeze(-1)
    found = updated(prior, w, r, torch.ones(5, 1), torch.zeros(5, 1))
    assert_is(found, mean, (torch.eye(2 * M).double() - gain @ H) @ P)


def test_a_prediction_is_that_of_the_full_kalman_filter_if_the_blocks_are_diagonal() -> None:
    belief, diagonals = some_belief(1), torch.randn(5, 2, 2, M).double()
    A = torch.diag_embed(diagonals).permute(0, 3, 1, 2, 4)  # (5, m, 2, 2, m)
    noise, whole = torch.rand(2, 2, M).double(), square(A)
    known = whole @ full(belief) @ whole.mT + full(Belief(noise, noise))
    assert_is(moved(belief, A, noise), (whole @ belief.mean.flatten(1)[..., None]).squeeze(-1), known)


def test_of_other_blocks_the_diagonals_are_kept() -> None:
    belief, A, noise = some_belief(2), torch.randn(5, M, 2, 2, M).double(), torch.rand(2, 2, M).double()
    whole, found = square(A), moved(belief, A, noise)
    P = (whole @ full(belief) @ whole.mT).unflatten(1, (2, M)).unflatten(3, (2, M))
    assert relative_error(found.mean.flatten(1), (whole @ belief.mean.flatten(1)[..., None]).squeeze(-1)) < TIGHT
    assert relative_error(found.covariance, P.diagonal(dim1=2, dim2=4) + noise) < TIGHT


def test_a_whole_series_is_filtered_as_by_the_full_kalman_filter() -> None:
    model, batch = build(band=0, transitions=1), some_batch(3)
    x = model.embed_rows(model.rows(batch).rows, batch)
    w, r = model.latent_observation(x)
    found = model.filter(x, batch)
    A = square(torch.where(model.transition.band, model.transition.matrices[0], 0))
    H = torch.cat([torch.eye(M), torch.zeros(M, M)], dim=1).double()
    Q, start = torch.diag(model.transition.noise.exp().flatten()), torch.diag(model.initial.exp().flatten())
    for i, n in enumerate(batch.lengths.tolist()):
        mean, P = torch.zeros(2 * M).double(), start
        for k in range(n):
            if k:
                mean, P = A @ mean, A @ P @ A.T + Q
            if bool(batch.observed[i, k].any()):
                gain = P @ H.T @ torch.linalg.inv(H @ P @ H.T + torch.diag(r[i, k]))
                mean, P = mean + gain @ (w[i, k] - H @ mean), (torch.eye(2 * M).double() - gain @ H) @ P
            assert_is(Belief(*(part[i, k] for part in found)), mean, P)


def test_a_vague_observation_changes_nothing_and_a_sharp_one_is_believed() -> None:
    prior, w, one, none = some_belief(4), torch.randn(5, M).double(), torch.ones(5, 1), torch.zeros(5, 1)
    vague = updated(prior, w, torch.full((5, M), 1e30).double(), one, none)
    for unchanged in (vague, updated(prior, w, w.exp(), none, one)):
        assert_is(unchanged, prior.mean.flatten(1), full(prior))
    sharp = updated(prior, w, torch.full((5, M), 1e-30).double(), one, none)
    assert relative_error(sharp.mean[:, 0], w) < TIGHT
    assert float(sharp.covariance[:, 0, 0].max()) < 1e-29
    assert float(sharp.covariance[:, 0, 0].min()) > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_variances_stay_positive(dtype: torch.dtype) -> None:
    model, batch = build().to(dtype), some_batch(5)
    x = torch.randn(3, 10, 6, dtype=dtype) * 5
    with torch.no_grad():
        model.observation_variance.bias -= 12  # sharp observations
        found = model.filter(x, batch)
    (upper, side), (other, lower) = (half.unbind(2) for half in found.covariance.unbind(2))
    assert float(upper.min()) > 0
    assert float(lower.min()) > 0
    assert bool((side.square() <= upper * lower * (1 + 1e-3) + 1e-6).all())
    assert torch.equal(side, other)


def test_without_the_weights_of_the_interval_time_does_not_matter() -> None:
    model, batch = build(), some_batch(6)
    stretched = IrregularBatch.build(
        batch.values, batch.times**2 + batch.times, observed=batch.observed, lengths=batch.lengths, dtype=torch.float64
    )
    assert relative_error(model(stretched), model(batch)) > 1e-3
    with torch.no_grad():
        model.transition.mixture[0].weight[:, -1] = 0
    assert torch.equal(model(stretched), model(batch))


def test_a_query_is_predicted_over_its_interval_and_at_a_row_it_is_that_row() -> None:
    batch, steps, queries = some_batch(7), build("step"), build("query")
    asked = torch.cat([batch.times, batch.times[:, 2:3] + 1e-4, batch.times[:, -1:] + 5, batch.times[:, :1] - 1], dim=1)
    y, at_rows = queries(batch.with_queries(asked)), steps(batch)
    x = queries.embed_rows(queries.rows(batch).rows, batch)
    beliefs, predict = queries.filter(x, batch), queries.transition.prepared()
    for i, n in enumerate(batch.lengths.tolist()):
        for q, moment in enumerate(asked[i].tolist()):
            rows = int((batch.times[i, :n] <= moment).sum())
            if rows and moment == float(batch.times[i, rows - 1]):
                assert relative_error(y[i, q], at_rows[i, rows - 1]) < TIGHT
                continue
            known = Belief(*(part[i : i + 1] for part in queries.initial_belief(x)))
            if rows:
                since = batch.times.new_tensor([moment - float(batch.times[i, rows - 1])]) / UNIT
                latest = Belief(*(part[i, rows - 1 : rows] for part in beliefs))
                known = predict(latest, queries.transition.interval(since))
            assert relative_error(y[i, q], queries.head(queries.decoded(known))[0]) < TIGHT


def test_it_starts_as_published() -> None:
    model = build(scattered=False, transitions=2)
    start = model.initial_belief(torch.zeros(1, 1, 6).double())
    one = torch.eye(M).double()
    known = torch.cat([torch.cat([one, 0.2 * one], dim=1), torch.cat([-0.2 * one, one], dim=1)])
    for matrix in model.transition.matrices:
        assert relative_error(square(matrix), known) < 1e-7
    assert relative_error(full(start)[0], 10 * torch.eye(2 * M).double()) < 1e-6
    assert relative_error(model.transition.noise.exp(), torch.full((2, M), 0.1)) < 1e-6
    assert float(start.mean.abs().max()) == 0


@pytest.mark.parametrize("normalise", ["pre", "post"])
def test_what_is_normalised_has_length_one(normalise: str) -> None:
    model, x = build(normalise=normalise), torch.randn(2, 3, 6).double()
    w, r = model.latent_observation(x)
    longer, _ = model.latent_observation(7 * x)
    if normalise == "pre":
        assert relative_error(longer, w) < TIGHT
    else:
        assert relative_error(w.norm(dim=-1), torch.ones(2, 3)) < TIGHT
    assert float(r.detach().min()) > 0


def test_positive_is_smooth_at_zero_and_exact_far_below() -> None:
    x = torch.tensor([-80.0, -1.0, 0.0, 2.0]).double()
    assert positive(x).tolist() == pytest.approx([math.exp(-80), math.exp(-1), 1.0, 3.0], rel=1e-12)


@pytest.mark.parametrize("answer", ["series", "step", "query"])
def test_it_is_trained_by_the_likelihood_of_its_mean_and_variance(answer: str) -> None:
    batch, model = some_batch(8), build(answer)
    if answer == "query":
        batch = batch.with_queries(batch.times[:, :4] + 0.5)
    mean, variance = model.gaussian(batch)
    targets = torch.randn(mean.shape, generator=torch.Generator().manual_seed(0)).double()
    counted = torch.rand(mean.shape, generator=torch.Generator().manual_seed(1)) < 0.7
    if answer == "step":
        counted &= batch.valid[..., None]
    batch = replace(batch, targets=targets, targets_observed=counted)
    task = {
        "series": tasks.regress(2, shift=[0.0, 0.0], scale=[1.0, 1.0]),
        "step": tasks.regress_points(2),
        "query": tasks.records("extrapolate", 2, "query"),
    }[answer]
    known = nn.functional.gaussian_nll_loss(mean[counted], targets[counted], variance[counted])
    assert relative_error(model.training_loss(task, batch), known) < 1e-6
    assert relative_error(mean, model(batch)) < TIGHT
    gradient = torch.autograd.grad(model.training_loss(task, batch), list(model.variance.parameters()))
    assert all(bool(g.abs().max() > 1e-9) for g in gradient)


def test_a_variance_is_never_less_than_its_floor() -> None:
    model, batch = build(), some_batch(9)
    with torch.no_grad():
        model.variance[-1].bias -= 1e3
    _, variance = model.gaussian(batch)
    assert float(variance.detach().min()) == pytest.approx(1e-6)


def test_points_that_are_summed_over_are_summed_over_in_the_likelihood() -> None:
    model, batch = build("query"), some_batch(10)
    batch = batch.with_queries(batch.times[:, :4])
    batch = replace(batch, targets=torch.zeros(3, 4, 2).double())
    by_point = model.training_loss(tasks.trajectory(2), batch)
    by_entry = model.training_loss(tasks.records("extrapolate", 2, "query"), batch)
    assert relative_error(by_point, 2 * by_entry) < TIGHT


def test_classes_are_learned_by_the_loss_of_the_task() -> None:
    model, task = build("series"), tasks.classify(2)
    batch = replace(some_batch(11), targets=torch.tensor([0, 1, 1]))
    assert torch.equal(model.training_loss(task, batch), task.loss(model(batch), batch))


@pytest.mark.parametrize("answer", ["step", "query"])
def test_padding_does_not_change_the_likelihood(answer: str) -> None:
    batch, model = some_batch(12), build(answer)
    batch = batch.with_queries(batch.times[:, :4] + 0.5) if answer == "query" else batch
    targets = torch.randn(3, 4 if answer == "query" else 10, 2).double()
    batch = replace(batch, targets=targets)
    task = tasks.regress_points(2) if answer == "step" else tasks.records("extrapolate", 2, "query")
    padded = batch.padded(400, targets=answer)
    with torch.no_grad():
        model.transition.matrices *= 30  # a state that went on over the padding would overflow
    known, y = model.training_loss(task, batch), model.training_loss(task, padded)
    assert relative_error(y, known) < 1e-10
    ours, theirs = (torch.autograd.grad(loss, model.transition.matrices)[0] for loss in (y, known))
    assert relative_error(ours, theirs) < 1e-10


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"state": 7}, "must be even; got 7"),
        ({"band": -1}, "band must be at least 0"),
        ({"transitions": 0}, "transitions must be at least 1"),
        ({"normalise": "both"}, "'pre', 'post'; got 'both'"),
    ],
)
def test_unknown_choices_are_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        build(**change)


def test_a_state_of_small_numbers_is_decoded_at_full_size() -> None:
    """By normalised layers, as published; a tanh of them learned next to nothing on PhysioNet."""
    model = RKN(RKNConfig(inputs=3, outputs=2, width=16, state=8)).double()
    means = 1e-3 * torch.randn(5, 2, 4, dtype=torch.float64)
    hidden = model.decoded(Belief(means, torch.ones(5, 2, 2, 4, dtype=torch.float64))).detach()
    assert float(hidden.mean(dim=-1).abs().max()) < 1e-9
    assert torch.allclose(hidden.var(dim=-1, correction=0), torch.ones(5, dtype=torch.float64), atol=1e-2)
