"""NRDE and LogNCDE: brackets, exact solutions in the Heisenberg group, and windows of the path."""

from dataclasses import replace

import pytest
import torch
from helpers import irregular_batch, largest, relative_error
from torch import Tensor

from lformer import tasks
from lformer.baselines import BASELINES, NRDE, LogNCDE, LogNCDEConfig, NRDEConfig
from lformer.baselines.controlled import Path
from lformer.baselines.driven import solve
from lformer.baselines.log_signature import log_signature, pairs, size
from lformer.baselines.logncde import BracketField, Fields, antisymmetric, log_ode
from lformer.batch import IrregularBatch
from lformer.nn.rows import fit_clock

TIGHT = 1e-10
both = pytest.mark.parametrize(("model", "config"), [(NRDE, NRDEConfig), (LogNCDE, LogNCDEConfig)])


def build(model: type, config: type, answer: str = "series", **choices: object) -> NRDE | LogNCDE:
    torch.manual_seed(0)
    sizes = {"inputs": 3, "outputs": 2, "answer": answer, "width": 5, "inner": 7}
    built = model(config(**sizes | choices)).double()
    for parameter in built.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    built.rows.span.fill_(30.0)
    return built


def path_of(model: NRDE | LogNCDE, batch: IrregularBatch) -> tuple[Path, Tensor]:
    return model._path(batch, model.channels(model.rows(batch).rows))


def linear(A: Tensor) -> Fields:
    """Fields f_a(h) = A_a h."""
    return lambda points: torch.einsum("ahk,...ak->...ah", A, points)


def by_segments(A: Tensor, h: Tensor, points: Tensor) -> Tensor:
    """(d, D, D), (B, D), (B, N, d) -> (B, D), the exact solution of dh = Σ_a A_a h dX_a along straight pieces."""
    for step in points.diff(dim=1).unbind(dim=1):
        h = (torch.linalg.matrix_exp(torch.einsum("ba,ahk->bhk", step, A)) @ h[..., None])[..., 0]
    return h


def log_ode_solution(A: Tensor, h: Tensor, points: Tensor, level: int, steps: int = 8) -> Tensor:
    d = A.shape[0]

    def field(h: Tensor, drive: Tensor) -> Tensor:
        return log_ode(linear(A), h, drive[..., :d], antisymmetric(drive[..., d:], d) if level == 2 else None)

    return solve(field, h, log_signature(points, level)[:, None], steps, "rk4")


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_level_2_is_exact_in_the_heisenberg_group() -> None:
    """Strictly upper triangular 3 × 3: brackets of brackets vanish; level 1 and the other sign are far off."""
    A = random(3, 3, 3).triu(diagonal=1)
    h, points = random(4, 3, seed=1), random(4, 9, 3, seed=2)
    expected = by_segments(A, h, points)
    assert relative_error(log_ode_solution(A, h, points, 2), expected) < TIGHT
    assert relative_error(log_ode_solution(A, h, points, 1), expected) > 0.05
    areas = log_signature(points, 2)
    areas[:, 3:] *= -1
    flipped = solve(
        lambda h, drive: log_ode(linear(A), h, drive[..., :3], antisymmetric(drive[..., 3:], 3)),
        h, areas[:, None], 8, "rk4",
    )  # fmt: skip
    assert relative_error(flipped, expected) > 0.05


def test_fields_that_commute_need_level_1_alone() -> None:
    A = torch.diag_embed(random(3, 4)) * 0.3
    h, points = random(2, 4, seed=1), random(2, 7, 3, seed=2)
    one, two = (log_ode_solution(A, h, points, level, steps=64) for level in (1, 2))
    assert relative_error(two, one) < TIGHT
    assert relative_error(two, by_segments(A, h, points)) < 1e-6


def test_brackets_are_those_of_whole_jacobians() -> None:
    """[f_a, f_b] = Df_b f_a - Df_a f_b, for every pair, from `torch.func.jacrev`."""
    torch.manual_seed(0)
    field = BracketField(4, 3, 6, 2).double()
    h = random(4)

    def every(h: Tensor) -> Tensor:
        return field.fields(h.expand(3, 4))  # (d, D)

    f, J = every(h), torch.func.jacrev(every)(h)  # (d, D), (d, D, D)
    i, j = pairs(3, h.device)
    for n, (a, b) in enumerate(zip(i.tolist(), j.tolist(), strict=True)):
        drive = torch.zeros(size(3, 2)).double()
        drive[3 + n] = 1.0
        assert relative_error(field(h, drive), J[b] @ f[a] - J[a] @ f[b]) < TIGHT


def test_a_bracket_changes_its_sign_and_one_with_itself_vanishes() -> None:
    torch.manual_seed(0)
    field = BracketField(4, 2, 6, 2).double()
    exchanged, twice = BracketField(4, 2, 6, 2).double(), BracketField(4, 2, 6, 2).double()
    state = field.state_dict()
    for other, order in ((exchanged, [1, 0]), (twice, [0, 0])):
        change = {
            f"last.{name}": state[f"last.{name}"].unflatten(0, (2, 4))[order].flatten(0, 1)
            for name in ("weight", "bias")
        }
        other.load_state_dict(state | change)
    h, drive = random(5, 4), torch.tensor([0.0, 0.0, 1.0]).double().expand(5, 3)
    assert relative_error(exchanged(h, drive), -field(h, drive)) < TIGHT
    assert largest(field(h, drive)) > 1e-4
    assert largest(twice(h, drive)) < 1e-15


def test_smaller_windows_come_closer_to_the_solution_and_level_2_faster() -> None:
    """Halving the windows along a smooth path shrinks the error by 4 at level 1, and by 16 at level 2."""
    A, h = 0.8 * random(2, 3, 3), random(2, 3, seed=1)
    s = torch.linspace(0, 1, 257, dtype=torch.float64)
    points = torch.stack([torch.sin(5 * s), torch.cos(7 * s) * s], dim=-1).expand(2, -1, -1)
    exact = by_segments(A, h, points)
    errors: dict[int, list[float]] = {1: [], 2: []}
    for level, found in errors.items():
        for n in (32, 16, 8):
            z = h
            for k in range(0, 256, n):
                z = log_ode_solution(A, z, points[:, k : k + n + 1], level, steps=4)
            found.append(relative_error(z, exact))
    assert 3.0 < errors[1][1] / errors[1][2] < 5.0  # the area over a window of size n is of order n³
    assert 12.0 < errors[2][1] / errors[2][2] < 20.0
    assert all(two < one for one, two in zip(errors[1], errors[2], strict=True))


@both
@pytest.mark.parametrize("level", [1, 2])
def test_a_row_in_a_window_is_reached_from_its_beginning(model: type, config: type, level: int) -> None:
    """By hand, one series at a time: from the last whole window by the log-signature of the points since."""
    built, batch = build(model, config, "step", level=level, window=3, rows="observed"), irregular_batch(B=4, L=11)
    route, first = path_of(built, batch)
    found = built(batch)
    for b, length in enumerate(batch.lengths.tolist()):
        z = built.start(first[b : b + 1])
        for k in range(length):
            window, since = route.points[b : b + 1, k - 3 : k + 1], route.points[b : b + 1, k // 3 * 3 : k + 1]
            if k and k % 3 == 0:
                z = solve(built.field, z, log_signature(window, level)[:, None], 1, "heun")
            here = solve(built.field, z, log_signature(since, level)[:, None], 1, "heun")
            assert relative_error(found[b, k], built.head(here)[0]) < TIGHT


def test_level_1_with_windows_of_one_row_is_a_controlled_equation_on_straight_pieces() -> None:
    """By hand: z + F(z) Δ, averaged over both ends of a step by Heun."""
    built, batch = build(NRDE, NRDEConfig, "step", level=1, window=1), irregular_batch(B=3, L=8)
    route, first = path_of(built, batch)
    z = built.start(first)
    states = [z]
    for step in route.points.diff(dim=1).unbind(dim=1):
        F = built.field.last(built.field.hidden(z)).unflatten(-1, (5, 4))
        ahead = z + (F @ step[..., None])[..., 0]
        G = built.field.last(built.field.hidden(ahead)).unflatten(-1, (5, 4))
        z = z + ((F + G) / 2 @ step[..., None])[..., 0]
        states.append(z)
    expected = built.head(torch.stack(states, dim=1))
    assert relative_error(built(batch)[batch.valid], expected[batch.valid]) < TIGHT


@pytest.mark.parametrize("level", [1, 2, 3])
def test_a_constant_field_moves_by_the_sum_of_log_signatures(level: int) -> None:
    """Level 1 of which is the way of the path."""
    built = build(NRDE, NRDEConfig, level=level, window=3)
    torch.nn.init.zeros_(built.field.last.weight)
    batch = irregular_batch(B=4, L=10)
    route, first = path_of(built, batch)
    F = built.field.last.bias.detach().unflatten(0, (5, -1))
    total = sum(log_signature(route.points[:, k : k + 4], level) for k in range(0, 10, 3))
    assert relative_error(total[:, :4], route.points[:, -1] - route.points[:, 0]) < TIGHT
    assert relative_error(built(batch), built.head(built.start(first) + total @ F.T)) < TIGHT


@both
def test_a_query_at_a_row_is_answered_as_the_row(model: type, config: type) -> None:
    batch = irregular_batch(B=3, L=9, seed=7)
    batch = IrregularBatch.build(
        batch.values, batch.times + torch.arange(9) * 0.5, lengths=batch.lengths, dtype=torch.float64
    )
    rows, asked = (build(model, config, answer, window=4) for answer in ("step", "query"))
    known, found = rows(batch), asked(batch.with_queries(batch.times))
    assert relative_error(found[batch.valid], known[batch.valid]) < TIGHT
    end = batch.times[:, -1:]
    later = asked(batch.with_queries(torch.cat([end + 10, end + 20], dim=1)))
    assert relative_error(later[:, 0], later[:, 1]) > 1e-3


@pytest.mark.parametrize("name", ["ncde", "nrde", "logncde"])
def test_the_unit_of_time_does_not_matter(name: str) -> None:
    """Hours or their 64ths, once the model knows the training part."""
    answers = []
    for unit in (1.0, 64.0):
        batch = irregular_batch(B=4, L=9)
        batch = IrregularBatch.build(
            batch.values, batch.times * unit, observed=batch.observed, lengths=batch.lengths, dtype=torch.float64
        ).with_queries(torch.tensor([0.5, 3.0, 40.0]).double() * unit)
        model = build(*BASELINES[name], "query", rows="observed")
        fit_clock(model, [batch])
        answers.append(model(batch))
    assert relative_error(answers[1], answers[0]) < TIGHT


def test_fields_begin_small_and_a_penalty_keeps_them_so() -> None:
    torch.manual_seed(0)
    config = LogNCDEConfig(inputs=3, outputs=1, width=5, inner=7, penalty=1e-3)
    model = LogNCDE(config)
    assert max(float(p.detach().abs().max()) for p in model.field.parameters()) < 1e-3
    batch = replace(irregular_batch(B=4, L=9, dtype=torch.float32), targets=torch.zeros(4, 1))
    task = tasks.regress(1)
    plain = task.loss(task.predict(model, batch), batch)
    layers = [m for m in model.field.modules() if isinstance(m, torch.nn.Linear)]
    assert len(layers) == 3
    by_hand = sum(sum(w.norm() for w in m.weight) / len(m.weight) + m.bias.norm() for m in layers)
    found, expected = model.training_loss(task, batch).detach(), (plain + 1e-3 * by_hand).detach()
    assert float(found) == pytest.approx(float(expected), rel=1e-6)
    assert float(expected) > float(plain.detach()) * (1 + 1e-6)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"level": 3}, "level must be 1 or 2; got 3"),
        ({"window": 0}, "window must be at least 1; got 0"),
        ({"scale": 0.0}, "scale must be above 0; got 0.0"),
        ({"penalty": -1.0}, "penalty must be at least 0; got -1.0"),
    ],
)
def test_choices_that_there_are_not_are_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        LogNCDEConfig(inputs=3, outputs=2, **change)


def test_nrde_has_level_3_unless_there_are_too_many_channels() -> None:
    with pytest.raises(ValueError, match=r"level must be 1, 2 or 3; got 4"):
        NRDEConfig(inputs=3, outputs=2, level=4)
    with pytest.raises(ValueError, match=r"level 3 of a path in 41 dimensions have 23,821 numbers, more than 10,000"):
        NRDE(NRDEConfig(inputs=40, outputs=2, level=3))
