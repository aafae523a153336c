"""ContiFormer: closed forms of its paths, its attention written out, and pieces that change nothing."""

import pytest
import torch
from helpers import irregular_arrays, relative_error
from torch import Tensor, nn

from lformer import IrregularBatch
from lformer.baselines import ContiFormer, ContiFormerConfig
from lformer.baselines.contiformer import PathAttention, _SolvedAgain, between_rows, follow


def build(answer: str = "step", **choices: object) -> ContiFormer:
    torch.manual_seed(0)
    config = {"inputs": 3, "outputs": 2, "answer": answer, "width": 8, "heads": 2, "feed_forward": 12, "steps": 4}
    model = ContiFormer(ContiFormerConfig(**config | choices)).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


def attention(still: bool = False, **choices: object) -> PathAttention:
    part = build(**choices).layers[0].attend
    if still:
        for field in (part.key_field, part.value_field):
            for parameter in field.parameters():
                nn.init.zeros_(parameter)
    return part


def moments(L: int = 7, B: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """Rows (B, L, 8), their times in spans and which are read: ragged, uneven, with ties."""
    _, times, lengths = irregular_arrays(B, L, 3, seed=3)
    times = (times - times[:, :1]) / (times[:, -1:] - times[:, :1])
    g = torch.Generator().manual_seed(1)
    x = torch.randn(B, L, 8, generator=g).double()
    return x, times, torch.arange(L) < lengths[:, None]


def heads(x: Tensor) -> Tensor:
    """(L, D) -> (H, L, d)"""
    return x.unflatten(-1, (2, -1)).transpose(0, 1)


def written_out(part: PathAttention, x: Tensor, times: Tensor, read: Tensor) -> Tensor:
    """(L, D) -> (L, D) for one series whose keys and values stand still."""
    n = int(read.sum())
    q, k, v = (heads(linear(x)) for linear in (part.query, part.key, part.value))
    out = torch.zeros(2, n, 4).double()
    for h in range(2):
        for i in range(n):
            logits = []
            for j in range(n):
                mean = q[h, i] if times[i] == times[j] else (q[h, i] + q[h, j]) / 2
                logits.append(mean @ k[h, j] / 4**0.5)
            out[h, i] = torch.stack(logits).softmax(0) @ v[h, :n]
    return part.out(out.transpose(0, 1).flatten(1))


def test_without_dynamics_it_has_a_closed_form() -> None:
    part = attention(still=True)
    x, times, read = moments()
    y = part(x, times, x, times, read)
    for b in range(3):
        n = int(read[b].sum())
        assert relative_error(y[b, :n], written_out(part, x[b], times[b], read[b])) < 1e-12


def test_at_one_moment_it_is_ordinary_attention() -> None:
    part = attention()  # with dynamics, which have no time to act
    x, times, read = moments()
    y = part(x, torch.full_like(times, 0.3), x, torch.full_like(times, 0.3), read)
    for b in range(3):
        n = int(read[b].sum())
        q, k, v = (heads(linear(x[b, :n])) for linear in (part.query, part.key, part.value))
        usual = nn.functional.scaled_dot_product_attention(q, k, v)
        assert relative_error(y[b, :n], part.out(usual.transpose(0, 1).flatten(1))) < 1e-12


def test_a_row_alone_reads_its_own_value() -> None:
    part = attention()
    x, times, _ = moments()
    x, times = x[:, :1], times[:, :1]
    y = part(x, times, x, times, torch.ones(3, 1, dtype=torch.bool))
    assert relative_error(y, part.out(part.value(x))) < 1e-12


def test_linear_dynamics_are_matrix_exponentials_forwards_and_backwards() -> None:
    x, times, _ = moments()
    torch.manual_seed(2)
    matrix = torch.randn(8, 8).double() / 3
    asked = torch.cat([times[:, :3] + 0.1, times[:, :1] - 0.5], dim=1)  # also before the first row
    found = follow(lambda t, y: y @ matrix.T, x, times, asked, steps=40)
    since = asked[:, :, None] - times[:, None]
    assert bool((since < 0).any())
    assert bool((since > 0).any())
    expected = (torch.linalg.matrix_exp(since[..., None, None] * matrix) @ x[:, None, :, :, None]).squeeze(-1)
    assert relative_error(found, expected) < 1e-7


def test_the_error_falls_with_the_fourth_power_of_the_step_and_time_is_that_of_the_path() -> None:
    x, times, _ = moments()
    asked = times.flip(1) + 0.2

    def errors(steps: int) -> float:
        found = follow(lambda t, y: 3 * torch.cos(3 * t)[..., None] * y, x, times, asked, steps)
        exact = x[:, None] * torch.exp(torch.sin(3 * asked[:, :, None]) - torch.sin(3 * times[:, None]))[..., None]
        return relative_error(found, exact)

    assert errors(16) < 1e-4
    assert 10 < errors(8) / errors(16) < 24


def test_a_path_that_goes_there_and_back_returns() -> None:
    field = attention().key_field
    x, times, _ = moments()
    there = follow(field, x, times, times[:, :1] + 1, steps=40)[:, 0]
    back = follow(field, there, (times[:, :1] + 1).expand_as(times), times[:, 2:3], steps=40)[:, 0, 2]
    assert relative_error(back, x[:, 2]) < 1e-7


@pytest.mark.parametrize("answer", ["series", "step", "query"])
def test_readers_in_pieces_and_paths_solved_again_change_nothing(answer: str) -> None:
    values, times, lengths = irregular_arrays(3, 9, 3, seed=0)
    asked = {"query_times": times[:, ::2] + 0.1} if answer == "query" else {}
    batch = IrregularBatch.build(values, times, lengths=lengths, dtype=torch.float64, **asked)
    whole, pieces = build(answer, depth=2), build(answer, depth=2, solved_at_once=1)
    y, z = whole(batch), pieces(batch)
    assert relative_error(z, y) < 1e-12
    with torch.no_grad():
        assert relative_error(whole(batch), y) < 1e-12
    found = [torch.autograd.grad(one.sin().sum(), model.parameters()) for one, model in ((y, whole), (z, pieces))]
    for one, other in zip(*found, strict=True):
        assert relative_error(other, one) < 1e-10


@pytest.mark.parametrize("autocast", [False, True])
def test_paths_that_are_solved_again_have_the_gradients_of_those_that_are_kept(
    autocast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, dtype = attention(), torch.float32 if autocast else torch.float64
    part.to(dtype)
    x, times, read = moments()

    def gradients() -> list[Tensor]:
        rows = x.to(dtype).requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            y = part(rows, times, rows, times, read)
        return [y.detach(), *torch.autograd.grad(y.float().sin().sum(), [rows, *part.parameters()])]

    again = gradients()
    monkeypatch.setattr(_SolvedAgain, "apply", lambda work, *tensors: work(*tensors))
    for one, other in zip(again, gradients(), strict=True):
        assert relative_error(one, other) < (1e-6 if autocast else 1e-12)


def test_what_is_kept_does_not_grow_with_the_steps_of_the_solver() -> None:
    def nodes(steps: int) -> int:
        x, times, read = moments()
        found, new = set(), [attention(steps=steps)(x.requires_grad_(), times, x, times, read).grad_fn]
        while new:
            if (node := new.pop()) is not None and node not in found:
                found.add(node)
                new += [before for before, _ in node.next_functions]
        return len(found)

    assert nodes(2) == nodes(8)


def test_only_the_paths_of_a_few_readers_are_kept() -> None:
    part = attention(solved_at_once=8 * 2 * 3)
    x, times, read = (array[:1] for array in moments())
    held: list[int] = []
    solve = part._read

    def watched(q: Tensor, *rest: Tensor) -> Tensor:
        held.append(q.shape[1])
        return solve(q, *rest)

    part._read = watched  # type: ignore[method-assign]
    x.requires_grad_()
    y = part(x, times, x, times, read)
    readers = len(held)
    assert readers == 7  # 7 rows of width 8 are more than 48 numbers: one reader at a time
    y.sum().backward()
    assert len(held) == 2 * readers


def test_a_query_starts_on_the_line_between_its_rows() -> None:
    values = torch.tensor([[[1.0], [3.0], [7.0], [0.0]], [[0.0]] * 4])
    times = torch.tensor([[0.0, 2.0, 2.0, 2.0], [0.0] * 4])
    asked = torch.tensor([[-1.0, 0.0, 0.5, 2.0, 9.0]] * 2)
    batch = IrregularBatch.build(values, times, lengths=torch.tensor([3, 0]), query_times=asked)
    found = between_rows(batch.values, batch, batch.query_times)  # type: ignore[arg-type]
    assert found[0, :, 0].tolist() == [1.0, 1.0, 1.5, 7.0, 7.0]
    assert found[1, :, 0].tolist() == [0.0] * 5


def test_a_query_at_a_row_sees_what_that_row_sees() -> None:
    values, times, _ = irregular_arrays(2, 6, 3, seed=5)
    times = times + torch.arange(6.0)  # no ties
    lengths = torch.tensor([6, 4])
    steps, queries = build("step"), build("query")
    rows = steps(IrregularBatch.build(values, times, lengths=lengths, dtype=torch.float64))
    batch = IrregularBatch.build(values, times, lengths=lengths, dtype=torch.float64, query_times=times[:, :4])
    assert relative_error(queries(batch), rows[:, :4]) < 1e-12


def test_dynamics_of_the_spirals_start_at_rest() -> None:
    model = ContiFormer(ContiFormerConfig(inputs=1, outputs=1, width=8))
    field = model.layers[0].attend.key_field
    assert bool((field(torch.rand(3), torch.randn(3, 8)) == 0).all())
    model = ContiFormer(ContiFormerConfig(inputs=1, outputs=1, width=8, dynamics="sigmoid"))
    assert bool((model.layers[0].attend.key_field(torch.rand(3), torch.randn(3, 8)) > 0).all())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"heads": 3}, "heads must divide width"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"dynamics": "relu"}, "'tanh', 'sigmoid'; got 'relu'"),
    ],
)
def test_unknown_choices_are_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ContiFormerConfig(**{"inputs": 3, "outputs": 2, "width": 8} | change)  # type: ignore[arg-type]
