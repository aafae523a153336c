"""NODE: its first state by hand, matrix exponentials at the moments that are asked for, and its unit of time."""

import pytest
import torch
from helpers import irregular_batch, relative_error
from torch import Tensor, nn

from lformer import IrregularBatch
from lformer.baselines import NODE, NODEConfig
from lformer.baselines.node import FAR, slowed

SPAN = 120.0  # a typical span of a series


def build(answer: str = "query", **choices: object) -> NODE:
    torch.manual_seed(0)
    config = {"inputs": 3, "outputs": 2, "answer": answer, "width": 6, "latent": 4, "units": 5, "rows": "observed"}
    model = NODE(NODEConfig(**config | choices)).double()
    model.rows.span.fill_(SPAN)
    for parameter in model.field.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model


def asked(batch: IrregularBatch) -> IrregularBatch:
    """Before the first row, at it, between, and after the last."""
    last = batch.times[:, -1:]
    share = torch.tensor([-0.2, 0.0, 0.13, 0.6, 1.0, 1.5]).double()
    return batch.with_queries(share * (last + 1))


def first_states(model: NODE, batch: IrregularBatch) -> Tensor:
    """Series by series, from the rows that hold an observation."""
    rows, found = model.rows(batch).rows, []
    for i, n in enumerate(batch.lengths.tolist()):
        seen = [k for k in reversed(range(n)) if bool(batch.observed[i, k].any())]
        since = (batch.times[i, seen] - batch.times[i, 0]) / SPAN
        _, h = model.recognition(torch.cat([since[:, None], rows[i, seen]], dim=1)[None])
        found.append(model.start(h[-1, 0]))
    return torch.stack(found)


def test_a_linear_equation_is_answered_by_matrix_exponentials() -> None:
    model, batch = build(steps=60), asked(irregular_batch(seed=3))
    model.field = nn.Linear(4, 4, bias=False).double()
    start, y = first_states(model, batch), model(batch)
    for i in range(4):
        for q, moment in enumerate(batch.query_times[i] - batch.times[i, 0]):
            z = torch.matrix_exp(model.field.weight * moment / SPAN) @ start[i]
            assert relative_error(y[i, q], model.head(z)) < 1e-7


def test_without_a_field_an_answer_is_the_same_at_all_times() -> None:
    model, batch = build(), asked(irregular_batch(seed=4))
    for parameter in model.field.parameters():
        nn.init.zeros_(parameter)
    known = model.head(first_states(model, batch))
    y = model(batch)
    assert relative_error(y, known[:, None].expand_as(y)) < 1e-13


def test_rows_and_series_are_answered_as_queries_at_their_times() -> None:
    batch = irregular_batch(seed=5)
    known = build("query")(batch.with_queries(batch.times))
    assert relative_error(build("step")(batch), known) < 1e-13
    last = known.gather(1, (batch.lengths - 1)[:, None, None].expand(-1, 1, 2))[:, 0]
    assert relative_error(build("series")(batch), last) < 1e-13


def test_the_unit_of_time_cancels() -> None:
    values, times, lengths = _arrays()
    model, found = build("step"), []
    for unit in (1.0, 60.0):
        batch = IrregularBatch.build(values, times * unit, lengths=lengths, dtype=torch.float64)
        model.rows.span.fill_(SPAN * unit)
        found.append(torch.where(batch.valid[..., None], model(batch), 0))
    assert relative_error(found[1], found[0]) < 1e-10


def _arrays() -> tuple[Tensor, Tensor, Tensor]:
    batch = irregular_batch(seed=6)
    return torch.where(batch.observed, batch.values, torch.nan), batch.times, batch.lengths


def test_an_adaptive_solver_is_as_exact_as_its_tolerance() -> None:
    """The tolerance is that of a step; those of a trajectory add up."""
    batch = asked(irregular_batch(seed=7))
    known = build(steps=200)(batch)
    errors = [relative_error(build(method="dopri5", rtol=t, atol=t)(batch), known) for t in (1e-3, 1e-5, 1e-7)]
    assert errors[0] > 1e-6
    for error, tolerance in zip(errors, (1e-3, 1e-5, 1e-7), strict=True):
        assert error < 12 * tolerance


@pytest.mark.parametrize("method", ["rk4", "dopri5"])
def test_a_moment_absurdly_far_away_is_answered_and_changes_no_other(method: str) -> None:
    model, batch, calls = build(method=method), asked(irregular_batch(seed=8)), []
    model.field = Contracting().double()
    model.field.register_forward_hook(lambda *_: calls.append(1))
    known = model(batch)
    calls.clear()
    y = model(batch.with_queries(torch.cat([batch.query_times, torch.full((4, 1), 1e6 * SPAN).double()], dim=1)))
    assert len(calls) < 20_000
    assert relative_error(y[:, :6], known) < 1e-10
    rest = model.head(Contracting.TARGET.expand(4, 4))
    assert relative_error(y[:, 6], rest) < (1e-10 if method == "rk4" else 1e-2)
    rough = build(method=method).float()
    rough.field = Contracting()
    far = IrregularBatch.build(*_arrays()[:2], dtype=torch.float32).with_queries(torch.full((4, 1), 1e6 * SPAN))
    assert relative_error(rough(far)[:, 0], rest.float()) < (1e-5 if method == "rk4" else 1e-2)


class Contracting(nn.Module):
    """Twenty times faster than a span, so that a step of a span would be unstable."""

    TARGET = torch.tensor([0.5, -1.0, 2.0, 0.0]).double()

    def forward(self, z: Tensor) -> Tensor:
        return 20 * (self.TARGET.to(z.dtype) - z)


def test_time_is_itself_nearby_and_slows_down_without_a_kink() -> None:
    near = torch.linspace(-FAR, FAR, 33).double()
    assert torch.equal(slowed(near), near)
    times = torch.tensor([-1e6, -FAR, FAR, FAR + 1e-6, 1e6]).double().requires_grad_()
    clock = slowed(times)
    (rate,) = torch.autograd.grad(clock.sum(), times)
    assert relative_error(rate[[0, 3, 4]], FAR / times[[0, 3, 4]].abs()) < 1e-12
    assert relative_error(clock[[0, 4]], -clock[[4, 0]]) < 1e-15
    assert float(clock[4].detach()) < 13 * FAR


@pytest.mark.parametrize("method", ["rk4", "dopri5"])
def test_the_model_learns_alike_from_adjoint_gradients(method: str) -> None:
    batch, found = asked(irregular_batch(seed=7)), []
    for adjoint in (False, True):
        model = build(method=method, steps=40, rtol=1e-9, atol=1e-9, adjoint=adjoint)
        model.rows.span.fill_(400.0)  # going back over several spans, the adjoint equation loses digits
        found.append(torch.autograd.grad(model(batch).sin().sum(), list(model.parameters())))
    for direct, other in zip(*found, strict=True):
        assert relative_error(other, direct) < 1e-5
