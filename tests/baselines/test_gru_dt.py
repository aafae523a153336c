"""GRU-dt: known answers, the GRU it becomes without intervals, and rows that write nothing."""

import pytest
import torch
from helpers import irregular_arrays, relative_error
from torch import Tensor

from lformer import IrregularBatch
from lformer.baselines import GRU, GRUConfig, GRUdt, GRUdtConfig

TIGHT = 1e-12
UNIT = 2.5  # a typical interval


def build(answer: str = "step", depth: int = 2) -> GRUdt:
    torch.manual_seed(0)
    model = GRUdt(GRUdtConfig(inputs=3, outputs=2, answer=answer, width=6, depth=depth, rows="observed")).double()
    model.rows.interval.fill_(UNIT)
    return model


def as_gru(model: GRUdt) -> GRU:
    """The GRU with the same weights, those of the interval left out."""
    config = GRUConfig(
        inputs=3, outputs=2, answer=model.config.answer, width=6, depth=model.config.depth, rows="observed"
    )
    plain = GRU(config).double()
    plain.embedder.load_state_dict(model.embedder.state_dict())
    plain.head.load_state_dict(model.head.state_dict())
    weights = {}
    for n, layer in enumerate(model.layers):
        for name, weight in layer.state_dict().items():
            weights[name.replace("l0", f"l{n}")] = weight[:, :6] if weight.dim() == 2 else weight
    plain.recurrence.load_state_dict(weights)
    return plain


def arrays(seed: int, empty: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Uneven, ragged series with missing values; rows in which nothing was observed only if wanted."""
    values, times, lengths = irregular_arrays(3, 12, 3, seed=seed)
    nothing = values.isnan().all(dim=2)
    values[..., 0] = torch.where(nothing, 0.5, values[..., 0])
    if empty:
        values[:, [0, 4, 5, 11]] = torch.nan
    return values, times, lengths


def batch_of(values: Tensor, times: Tensor, lengths: Tensor, **more: object) -> IrregularBatch:
    return IrregularBatch.build(values, times, lengths=lengths, dtype=torch.float64, **more)


def one_step(model: GRUdt, layer: int, x: Tensor, h: Tensor) -> Tensor:
    """The equations of one cell: (D + 1,) or (D,), (D,) -> (D,)"""
    w_x, w_h, b_x, b_h = model.layers[layer].all_weights[0]
    from_x, from_h = (w_x @ x + b_x).view(3, -1), (w_h @ h + b_h).view(3, -1)
    r, z = torch.sigmoid(from_x[0] + from_h[0]), torch.sigmoid(from_x[1] + from_h[1])
    return (1 - z) * torch.tanh(from_x[2] + r * from_h[2]) + z * h


def all_layers(model: GRUdt, row: Tensor, delta: float, states: list[Tensor]) -> list[Tensor]:
    x, found = torch.cat([row, row.new_tensor([delta / UNIT])]), []
    for layer, h in enumerate(states):
        x = one_step(model, layer, x, h)
        found.append(x)
    return found


def by_hand(model: GRUdt, batch: IrregularBatch, i: int, moments: list[float] | None) -> Tensor:
    """Answers of one series at its rows, or at moments: (N, O), one after the other."""
    n = int(batch.lengths[i])
    shown = torch.cat([batch.values[i], batch.observed[i].double()], dim=1)
    clock = batch.times[i, :n].tolist()
    rows = model.embedder(shown[None], batch.times[:1])[0]
    nothing = model.embedder(torch.zeros(1, 1, 6).double(), torch.zeros(1, 1))[0, 0]
    found = []
    if moments is None:
        asked: list[tuple[float, Tensor, int | None]] = [(clock[k], rows[k], k) for k in range(n)]
    else:
        asked = [(moment, nothing, None) for moment in moments]
    for moment, row, own in asked:
        states, latest = [torch.zeros(6).double()] * model.config.depth, None
        for k in range(n):
            if clock[k] > moment or (own is not None and k > own) or not bool(batch.observed[i, k].any()):
                continue
            states = all_layers(model, rows[k], 0.0 if latest is None else clock[k] - latest, states)
            latest = clock[k]
        if own is None or not bool(batch.observed[i, own].any()):  # a step that nobody else sees
            states = all_layers(model, row, 0.0 if latest is None else moment - latest, states)
        found.append(model.head(states[-1]))
    return torch.stack(found)


@pytest.mark.parametrize("depth", [1, 2])
def test_it_is_the_recurrence_written_out(depth: int) -> None:
    values, times, lengths = arrays(0, empty=True)
    model, batch = build("step", depth), batch_of(values, times, lengths)
    y = model(batch)
    for i, n in enumerate(lengths.tolist()):
        assert relative_error(y[i, :n], by_hand(model, batch, i, None)) < TIGHT


def test_a_query_is_one_step_over_the_interval_since_the_latest_observation() -> None:
    values, times, lengths = arrays(1, empty=True)
    last = times.gather(1, lengths[:, None] - 1)
    asked = torch.cat([times[:, :1] - 3, times[:, 1:2], last + 7, (times[:, :1] + last) / 2], dim=1)
    model, batch = build("query"), batch_of(values, times, lengths, query_times=asked)
    y = model(batch)
    for i in range(3):
        assert relative_error(y[i], by_hand(model, batch, i, batch.query_times[i].tolist())) < TIGHT


@pytest.mark.parametrize("answer", ["series", "step"])
def test_without_the_weights_of_the_interval_it_is_the_gru(answer: str) -> None:
    values, times, lengths = arrays(2, empty=False)
    model, batch = build(answer), batch_of(values, times, lengths)
    assert relative_error(model(batch), as_gru(model)(batch)) > 1e-3
    with torch.no_grad():
        model.layers[0].weight_ih_l0[:, 6] = 0
    plain = as_gru(model)
    counted = batch.valid[..., None] if answer == "step" else torch.tensor(True)
    y, known = (torch.where(counted, one(batch), 0) for one in (model, plain))
    assert relative_error(y, known) < TIGHT
    ours = torch.autograd.grad(y.sin().sum(), model.embedder.value.weight)[0]
    theirs = torch.autograd.grad(known.sin().sum(), plain.embedder.value.weight)[0]
    assert relative_error(ours, theirs) < TIGHT


def test_an_interval_that_never_changes_is_a_bias() -> None:
    values, _, lengths = arrays(3, empty=False)
    model, times = build(depth=1), 4.0 * torch.arange(12.0).double()
    batch = batch_of(values, times, lengths)
    column, plain = model.layers[0].weight_ih_l0[:, 6].detach(), as_gru(model)
    rows = plain.embedder(plain.rows(batch).rows, times)
    first, _ = plain.recurrence(rows[:, :1])  # its interval is 0
    with torch.no_grad():
        plain.recurrence.bias_ih_l0 += 4.0 / UNIT * column
    others, _ = plain.recurrence(rows[:, 1:], first.transpose(0, 1).contiguous())
    known = plain.head(torch.cat([first, others], dim=1))
    assert relative_error(model(batch)[batch.valid], known[batch.valid]) < TIGHT


def test_a_series_is_answered_from_its_last_observation() -> None:
    values, times, lengths = arrays(4, empty=False)
    cut = values.clone()
    cut[0, 7:] = torch.nan
    shorter = torch.cat([torch.tensor([7]), lengths[1:]])
    model = build("series")
    assert relative_error(model(batch_of(cut, times, lengths)), model(batch_of(values, times, shorter))) < TIGHT


@pytest.mark.parametrize("answer", ["step", "query"])
def test_before_any_observation_time_does_not_matter(answer: str) -> None:
    values, times, lengths = arrays(5, empty=False)
    values[0] = torch.nan
    batch = batch_of(values, times, lengths)
    y = build(answer)(batch.with_queries(batch.times) if answer == "query" else batch)
    assert relative_error(y[0], y[0, :1].expand(12, -1)) < TIGHT
    assert relative_error(y[1], y[1, :1].expand(12, -1)) > 1e-3
