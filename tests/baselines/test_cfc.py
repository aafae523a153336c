"""CfC: agreement with the authors' own ncps, and what the interval does to the state."""

import ncps.torch
import pytest
import torch
from helpers import irregular_arrays, relative_error
from torch import Tensor, nn

from lformer import IrregularBatch
from lformer.baselines import CfC, CfCConfig

TIGHT = 1e-12
UNIT = 2.5  # a typical interval
MODES = [
    {},
    {"mode": "no_gate", "activation": "silu", "backbone_layers": 2},
    {"mode": "pure"},
    {"activation": "relu"},
    {"mode": "pure", "activation": "tanh", "backbone_layers": 3},
    {"mixed_memory": True},
]


def build(answer: str = "step", **choices: object) -> CfC:
    torch.manual_seed(0)
    config = {"inputs": 3, "outputs": 2, "answer": answer, "width": 6, "backbone": 7, "depth": 1, "rows": "observed"}
    model = CfC(CfCConfig(**config | choices)).double()
    model.rows.interval.fill_(UNIT)
    return model


def theirs_like(model: CfC) -> ncps.torch.CfC:
    """Theirs with the weights of our only layer."""
    config, ours = model.config, model.layers[0]
    theirs = ncps.torch.CfC(
        6,
        6,
        mode=config.mode,
        activation=config.activation,
        backbone_units=config.backbone,
        backbone_layers=config.backbone_layers,
        mixed_memory=config.mixed_memory,
    ).double()
    cell = theirs.rnn_cell
    linears = [module for module in cell.backbone if isinstance(module, nn.Linear)]
    heads = [cell.ff1] if config.mode == "pure" else [cell.ff1, cell.ff2, cell.time_a, cell.time_b]
    with torch.no_grad():
        linears[0].weight.copy_(torch.cat([ours.input, ours.recurrent.T], dim=1))
        linears[0].bias.copy_(ours.bias)
        for mine, its in zip(ours.deeper, linears[1:], strict=True):
            its.load_state_dict(mine.state_dict())
        for its, weight, bias in zip(heads, ours.heads.weight.split(6), ours.heads.bias.split(6), strict=True):
            its.weight.copy_(weight)
            its.bias.copy_(bias)
        if config.mixed_memory:
            theirs.lstm.input_map.load_state_dict(ours.memory.input.state_dict())
            theirs.lstm.recurrent_map.load_state_dict(ours.memory.recurrent.state_dict())
        if config.mode == "pure":
            ours.rate.copy_(torch.linspace(-0.5, 0.5, 6))
            ours.end.copy_(torch.linspace(0.5, 1.5, 6))
            cell.w_tau.copy_(ours.rate)
            cell.A.copy_(ours.end)
    return theirs


def full_batch(seed: int, **more: object) -> IrregularBatch:
    """Uneven, ragged, with missing values, but something is observed in every row."""
    values, times, lengths = irregular_arrays(4, 12, 3, seed=seed)
    values[..., 0] = torch.nan_to_num(values[..., 0], nan=0.5)
    return IrregularBatch.build(values, times, lengths=lengths, dtype=torch.float64, **more)


@pytest.mark.parametrize("choices", MODES, ids=lambda c: " ".join(map(str, c.values())))
def test_it_agrees_with_ncps(choices: dict[str, object]) -> None:
    model, batch = build(**choices), full_batch(0)
    theirs = theirs_like(model)
    x = model.embed_rows(model.rows(batch).rows, batch)
    spans = (batch.times.diff(dim=1, prepend=batch.times[:, :1]) / UNIT)[..., None].expand(-1, -1, 6)  # (B, L, H)
    start = torch.zeros(4, 6).double()  # theirs is float32 if it is not given
    known, _ = theirs(x, (start, start) if model.config.mixed_memory else start, spans)
    y, known = model(batch)[batch.valid], model.head(known)[batch.valid]
    assert relative_error(y, known) < TIGHT
    ours = model.layers[0]
    shared = [model.embedder.value.weight, model.head[0].weight]
    others = [ours.rate, ours.end] if model.config.mode == "pure" else []
    others += [] if ours.memory is None else list(ours.memory.parameters())
    weights = [*shared, ours.input, ours.recurrent, ours.heads.weight, ours.bias, *ours.deeper.parameters(), *others]
    mine = torch.autograd.grad(y.sin().sum(), weights)
    cell = theirs.rnn_cell
    heads = [cell.ff1] if model.config.mode == "pure" else [cell.ff1, cell.ff2, cell.time_a, cell.time_b]
    backbone = [module for module in cell.backbone if isinstance(module, nn.Linear)]
    wanted = [*shared, backbone[0].weight, *(head.weight for head in heads)]
    wanted += [backbone[0].bias, *(weight for layer in backbone[1:] for weight in layer.parameters())]
    wanted += [cell.w_tau, cell.A] if model.config.mode == "pure" else []
    wanted += [] if ours.memory is None else list(theirs.lstm.parameters())
    its = torch.autograd.grad(known.sin().sum(), wanted)
    halves = its[2][:, :6], its[2][:, 6:].T
    joined = [*its[:2], *halves, torch.cat(its[3 : 3 + len(heads)]), *its[3 + len(heads) :]]
    for one, other in zip(mine, joined, strict=True):
        assert relative_error(one, other.reshape(one.shape)) < 1e-10


def heads_of(model: CfC, x: Tensor, h: Tensor) -> tuple[Tensor, ...]:
    """f_1, f_2, a, b from their definition."""
    layer = model.layers[0]
    v = layer.act(x @ layer.input.T + h @ layer.recurrent + layer.bias)
    f_1, f_2, a, b = layer.heads(v).chunk(4, dim=1)
    return torch.tanh(f_1), torch.tanh(f_2), a, b


def test_after_a_long_time_the_state_is_at_its_second_end() -> None:
    model, x, h = build(), torch.randn(5, 6).double(), torch.randn(5, 6).double()
    layer = model.layers[0]
    f_1, f_2, a, _ = heads_of(model, x, h)
    (late,) = layer.step(layer.from_input(x), [h], torch.full((5, 1), 1e9).double())
    assert relative_error(late, torch.where(a > 0, f_2, f_1)) < TIGHT
    assert bool((a > 0).any())
    assert bool((a < 0).any())


def test_without_the_weights_of_the_interval_time_does_not_matter() -> None:
    model, batch = build(), full_batch(1)
    stretched = IrregularBatch.build(
        batch.values, batch.times**2 + batch.times, observed=batch.observed, lengths=batch.lengths, dtype=torch.float64
    )
    assert relative_error(model(stretched), model(batch)) > 1e-3
    with torch.no_grad():
        for tensor in (model.layers[0].heads.weight, model.layers[0].heads.bias):
            tensor[12:18] = 0
    assert torch.equal(model(stretched), model(batch))


@pytest.mark.parametrize(("depth", "mixed"), [(1, False), (2, False), (2, True)])
def test_a_query_and_an_empty_row_are_one_step_that_is_not_kept(depth: int, mixed: bool) -> None:
    values, times, lengths = irregular_arrays(3, 12, 3, seed=2)
    values[:, [0, 4, 5, 11]] = torch.nan
    batch = IrregularBatch.build(values, times, lengths=lengths, dtype=torch.float64)
    steps, queries = (build(answer, depth=depth, mixed_memory=mixed) for answer in ("step", "query"))
    last = batch.times.gather(1, lengths[:, None] - 1)
    y = steps(batch)
    answers = queries(batch.with_queries(torch.cat([batch.times, last + 3], dim=1)))
    nothing = steps.embedder(torch.zeros(1, 6).double()[None], torch.zeros(1, 1))[0]
    for i, n in enumerate(lengths.tolist()):
        states, latest = [[torch.zeros(1, 6).double()] * (1 + mixed)] * depth, None
        rows = steps.embed_rows(steps.rows(batch).rows, batch)[i]
        for k in range(n + 1):
            moment = batch.times[i, k] if k < n else last[i, 0] + 3
            since = moment.new_tensor([[0.0 if latest is None else float(moment - latest) / UNIT]])
            if k < n and bool(batch.observed[i, k].any()):
                states, latest = through(steps, rows[k : k + 1], states, since), moment
                assert relative_error(y[i, k], steps.head(states[-1][-1])[0]) < TIGHT
                since = torch.zeros_like(since)
            elif k < n:
                evolved = through(steps, rows[k : k + 1], states, since)
                assert relative_error(y[i, k], steps.head(evolved[-1][-1])[0]) < TIGHT
            if k == n or k + 1 == n or batch.times[i, k + 1] > moment:  # the last of the rows of this moment
                known = queries.head(through(queries, nothing, states, since)[-1][-1])[0]
                assert relative_error(answers[i, k if k < n else 12], known) < TIGHT


def through(model: CfC, row: Tensor, states: list[list[Tensor]], since: Tensor) -> list[list[Tensor]]:
    """A row through all layers: their next states."""
    found = []
    for layer, state in zip(model.layers, states, strict=True):
        found.append(layer.step(layer.from_input(row), state, since))
        row = found[-1][-1]
    return found


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"mode": "fast"}, "'default', 'no_gate', 'pure'; got 'fast'"),
        ({"activation": "gelu"}, "got 'gelu'"),
        ({"backbone": 0}, "backbone must be at least 1"),
        ({"mode": "pure", "activation": "relu"}, "no bound on its state"),
    ],
)
def test_unknown_choices_are_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        build(**change)
