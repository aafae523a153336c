"""The GRU: known answers, and what it must not see."""

import torch
from helpers import irregular_arrays, relative_error
from torch import Tensor

from lformer import IrregularBatch
from lformer.baselines import GRU, GRUConfig

TIGHT = 1e-12


def build(answer: str = "step", depth: int = 2) -> GRU:
    torch.manual_seed(0)
    return GRU(GRUConfig(inputs=3, outputs=2, answer=answer, width=6, depth=depth)).double()


def batch_of(values: Tensor, times: Tensor, lengths: Tensor, **more: object) -> IrregularBatch:
    return IrregularBatch.build(values, times, lengths=lengths, dtype=torch.float64, **more)


def one_step(model: GRU, layer: int, x: Tensor, h: Tensor) -> Tensor:
    """The equations of one cell: (D,), (D,) -> (D,)"""
    w_x, w_h, b_x, b_h = model.recurrence.all_weights[layer]
    from_x, from_h = (w_x @ x + b_x).view(3, -1), (w_h @ h + b_h).view(3, -1)
    r, z = torch.sigmoid(from_x[0] + from_h[0]), torch.sigmoid(from_x[1] + from_h[1])
    n = torch.tanh(from_x[2] + r * from_h[2])
    return (1 - z) * n + z * h


def by_hand(model: GRU, values: Tensor) -> Tensor:
    """(n, C) -> (n, D), the states of the last layer, row by row."""
    rows = list(model.embedder(values[None], torch.zeros(1, len(values)))[0])
    for layer in range(model.config.depth):
        h, states = torch.zeros(model.config.width).double(), []
        for x in rows:
            h = one_step(model, layer, x, h)
            states.append(h)
        rows = states
    return torch.stack(rows)


def test_it_is_the_recurrence_written_out() -> None:
    values, times, lengths = irregular_arrays(3, 9, 3, seed=0)
    steps, series = build("step"), build("series")
    by_row, by_series = steps(batch_of(values, times, lengths)), series(batch_of(values, times, lengths))
    for i, n in enumerate(lengths.tolist()):
        states = by_hand(steps, torch.nan_to_num(values[i, :n], nan=0.0))
        assert relative_error(by_row[i, :n], steps.head(states)) < TIGHT
        assert relative_error(by_series[i], series.head(states[-1])) < TIGHT


def test_without_weights_the_state_halves_every_step() -> None:
    model = build(depth=1)
    for parameter in model.recurrence.parameters():
        torch.nn.init.zeros_(parameter)
    start, inputs = torch.ones(1, 4, 6).double(), torch.ones(4, 10, 6).double()
    states, _ = model.recurrence(inputs, start)
    for k in range(10):
        assert relative_error(states[:, k], start[0] / 2 ** (k + 1)) < TIGHT


def test_the_future_does_not_reach_the_past() -> None:
    values, times, _ = irregular_arrays(2, 12, 3, seed=1)
    lengths, model = torch.tensor([12, 12]), build()
    known = model(batch_of(values, times, lengths))
    for k in (1, 5, 11):
        other = values.clone()
        other[:, k:] = 9.0
        changed = model(batch_of(other, times, lengths))
        assert torch.equal(changed[:, :k], known[:, :k])
        assert relative_error(changed[:, k], known[:, k]) > 1e-3


def test_it_does_not_see_time() -> None:
    values, times, lengths = irregular_arrays(3, 12, 3, seed=2)
    for answer in ("series", "step"):
        model = build(answer)
        stretched = batch_of(values, times**2, lengths)
        assert torch.equal(model(stretched), model(batch_of(values, times, lengths)))


def test_a_query_gets_the_state_of_the_latest_row_that_is_not_later() -> None:
    values = torch.nan_to_num(irregular_arrays(2, 5, 3, seed=4)[0], nan=0.0)
    times = torch.tensor([[0.0, 1.0, 1.0, 4.0, 6.0], [0.0, 2.0, 3.0, 3.0, 3.0]]).double()
    lengths = torch.tensor([5, 3])
    asked = torch.tensor([[9.0, -1.0, 0.0, 1.0, 0.99, 5.0, 6.0], [3.0, 99.0, 2.5, 0.0, -0.01, 2.0, 1.0]]).double()
    latest = [[4, None, 0, 2, 0, 3, 4], [2, 2, 1, 0, None, 1, 0]]
    model = build("query")
    y = model(batch_of(values, times, lengths, query_times=asked))
    for i, rows in enumerate(latest):
        states = by_hand(model, values[i])
        for q, row in enumerate(rows):
            state = torch.zeros(6).double() if row is None else states[row]
            assert relative_error(y[i, q], model.head(state)) < TIGHT


def test_a_query_does_not_look_ahead() -> None:
    values, _, _ = irregular_arrays(2, 12, 3, seed=3)
    times, lengths, model = torch.arange(12.0), torch.tensor([12, 12]), build("query")
    other = values.clone()
    other[:, 7:] = 9.0
    asked = torch.tensor([6.0, 6.5, 7.0])
    known = model(batch_of(values, times, lengths, query_times=asked))
    changed = model(batch_of(other, times, lengths, query_times=asked))
    assert torch.equal(changed[:, :2], known[:, :2])
    assert relative_error(changed[:, 2], known[:, 2]) > 1e-3
