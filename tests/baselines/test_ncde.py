"""NCDE: an independent implementation, known answers, and what the solution must not depend on."""

import pytest
import torch
import torchcde
from helpers import irregular_arrays, irregular_batch, relative_error
from torch import Tensor

from lformer import IrregularBatch
from lformer.baselines import NCDE, NCDEConfig
from lformer.baselines.controlled import mlp

TIGHT = 1e-10


def build(answer: str = "series", **choices: object) -> NCDE:
    torch.manual_seed(0)
    sizes = {"inputs": 3, "outputs": 2, "answer": answer, "width": 5, "inner": 7}
    model = NCDE(NCDEConfig(**sizes | choices)).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    model.rows.span.fill_(30.0)
    return model


def shared_clock(seed: int = 0, L: int = 8) -> tuple[Tensor, Tensor]:
    """Values (3, L, 3) without gaps, and one vector of uneven times."""
    g = torch.Generator().manual_seed(seed)
    times = (0.3 + torch.rand(L, generator=g, dtype=torch.float64)).cumsum(0)
    return torch.randn(3, L, 3, generator=g, dtype=torch.float64), times


@pytest.mark.parametrize("path", ["cubic", "linear"])
def test_torchcde_gives_the_same_states_and_gradients(path: str) -> None:
    """At every row, one vector of uneven times for all series; both take four steps of Heun between rows."""
    values, times = shared_clock()
    model = build("step", path=path, knots="times", solver="heun", steps=4)
    clock = times - times[0]
    points = torch.cat([(clock / 30)[None, :, None].expand(3, -1, 1), values], dim=-1)
    smooth = torchcde.CubicSpline(torchcde.hermite_cubic_coefficients_with_backward_differences(points, clock), clock)

    def field(t: Tensor, z: Tensor) -> Tensor:
        return torch.tanh(model.field.last(model.field.hidden(z))).unflatten(-1, (5, 4))

    z = model.start(values[:, 0])
    states = [z]
    for i in range(len(clock) - 1):  # from row to row: the slope of a linear path at a row is that of one side alone
        ends = clock[i : i + 2]
        control = smooth if path == "cubic" else torchcde.LinearInterpolation(points[:, i : i + 2], ends)
        options = {"step_size": float(ends.diff()) / 4}
        z = torchcde.cdeint(control, field, z, ends, adjoint=False, method="heun2", options=options)[:, -1]
        states.append(z)
    expected = model.head(torch.stack(states, dim=1))
    found = model(IrregularBatch.build(values, times, dtype=torch.float64))
    assert relative_error(found, expected) < TIGHT
    for one, other in zip(_gradients(model, found), _gradients(model, expected), strict=True):
        assert relative_error(one, other) < TIGHT


def _gradients(model: NCDE, y: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(y.sin().sum(), list(model.parameters()), retain_graph=True)


@pytest.mark.parametrize("path", ["cubic", "linear"])
@pytest.mark.parametrize("rows", ["values", "observed"])
def test_a_constant_field_moves_by_the_way_of_the_path(path: str, rows: str) -> None:
    """z(T) = z(0) + A (X(T) - X(0)), whatever lies between, with gaps, ties and padding."""
    model = build("step", path=path, rows=rows)
    torch.nn.init.zeros_(model.field.last.weight)
    A = torch.tanh(model.field.last.bias.detach()).unflatten(0, (5, -1))
    batch = irregular_batch(B=4, L=12)
    route, first = model._path(batch, model.channels(model.rows(batch).rows))
    moved = (route.points - route.points[:, :1]) @ A.T
    expected = model.head(model.start(first)[:, None] + moved)
    found = model(batch)
    assert relative_error(found[batch.valid], expected[batch.valid]) < TIGHT


def test_how_fast_a_path_is_run_through_does_not_matter() -> None:
    """Without time as a dimension: other intervals give the same answers; with it, others."""
    values, times, lengths = irregular_arrays(3, 10, 3, seed=3)
    slow, quick = (
        IrregularBatch.build(values, clock, lengths=lengths, dtype=torch.float64) for clock in (times, times**2 / 1e3)
    )
    without, timed = build(time_in_path=False), build()
    assert relative_error(without(quick), without(slow)) < TIGHT
    assert relative_error(timed(quick), timed(slow)) > 1e-3


def test_more_points_on_a_straight_path_do_not_matter() -> None:
    """Rows on the line between two others leave the solution alone, up to the error of the solver."""
    values, times = shared_clock(seed=4)
    model = build(path="linear", steps=16)
    model.field.hidden = mlp(5, 7, 2, torch.nn.Tanh).double()  # smooth, so that the solver has its order
    fine_values = torch.stack([values[:, :-1], (values[:, :-1] + values[:, 1:]) / 2], dim=2).flatten(1, 2)
    fine_times = torch.stack([times[:-1], (times[:-1] + times[1:]) / 2], dim=1).flatten()
    coarse = model(IrregularBatch.build(values, times, dtype=torch.float64))
    fine = model(
        IrregularBatch.build(
            torch.cat([fine_values, values[:, -1:]], dim=1), torch.cat([fine_times, times[-1:]]), dtype=torch.float64
        )
    )
    assert relative_error(fine, coarse) < 1e-7


@pytest.mark.parametrize("causal", [True, False])
def test_a_query_at_a_row_is_answered_as_the_row_and_later_ones_move_on(causal: bool) -> None:
    values, times, lengths = irregular_arrays(3, 9, 3, seed=7)
    times = times + torch.arange(9) * 0.5  # no ties: a query reads all rows of its moment
    rows, asked = build("step", causal=causal), build("query", causal=causal)
    asked.load_state_dict(rows.state_dict())
    batch = IrregularBatch.build(values, times, lengths=lengths, dtype=torch.float64)
    known, found = rows(batch), asked(batch.with_queries(batch.times))
    assert relative_error(found[batch.valid], known[batch.valid]) < TIGHT
    end = batch.times[:, -1:]
    later = asked(batch.with_queries(torch.cat([end + 10, end + 20], dim=1)))
    assert relative_error(later[:, 0], later[:, 1]) > 1e-3


def test_between_rows_a_query_is_on_the_path_to_the_next_or_on_time_alone() -> None:
    """A query just before the next row has nearly its state, unless the model may read no later row."""
    values, times = shared_clock(seed=5)
    batch = IrregularBatch.build(values, times, dtype=torch.float64)
    clock = batch.times[:, 1:] - 1e-9
    for path in ("cubic", "linear"):
        rows = build("step", path=path, steps=8)
        known = rows(batch)[:, 1:]
        ahead, causal = (build("query", path=path, steps=8, causal=c) for c in (False, True))
        ahead.load_state_dict(rows.state_dict())
        causal.load_state_dict(rows.state_dict())
        assert relative_error(ahead(batch.with_queries(clock)), known) < 1e-6
        assert relative_error(causal(batch.with_queries(clock)), known) > 1e-2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"path": "natural"}, "'cubic', 'linear'; got 'natural'"),
        ({"knots": "clock"}, "'rows', 'times'; got 'clock'"),
        ({"solver": "dopri5"}, "'heun', 'rk4'; got 'dopri5'"),
        ({"steps": 0}, "steps must be at least 1; got 0"),
    ],
)
def test_choices_that_there_are_not_are_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        NCDEConfig(inputs=3, outputs=2, **change)


def test_short_intervals_late_in_a_long_series_are_not_rounded_away() -> None:
    """In float32 too: time moves by 1e-5 of its span at the end, where numbers near 1 are 6e-8 apart."""
    values = torch.zeros(1, 3, 3)
    times = torch.tensor([[0.0, 1.0, 1.0 + 1e-5]], dtype=torch.float64)
    model = build("step").float()
    model.rows.span.fill_(1.0)
    batch = IrregularBatch.build(values, times)
    path, _ = model._path(batch, model.channels(model.rows(batch).rows))
    way = model.pieces(path)[0, 1, 0, 0]
    assert float(way) == pytest.approx(1e-5, rel=1e-6)
