"""GRU-D: known answers of its decays, and the GRU it becomes when everything was observed."""

import pytest
import torch
from helpers import irregular_arrays, irregular_batch, relative_error
from torch import Tensor, nn

from lformer import IrregularBatch
from lformer.baselines import GRUD, GRUDConfig
from lformer.nn.rows import fit_clock

TIGHT = 1e-12
UNIT = 2.5  # a typical interval


def build(answer: str = "step", depth: int = 1) -> GRUD:
    torch.manual_seed(0)
    model = GRUD(GRUDConfig(inputs=3, outputs=2, answer=answer, width=5, depth=depth)).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    model.rows.interval.fill_(UNIT)
    model.fill.mean.copy_(torch.tensor([0.5, -1.0, 2.0]))
    return model


def some_batch(seed: int = 0, **more: object) -> IrregularBatch:
    values, times, lengths = irregular_arrays(3, 12, 3, seed=seed)
    values[1, :, 1] = torch.nan  # never observed
    values[:, 5] = torch.nan  # nothing observed
    return IrregularBatch.build(values, times, lengths=lengths, dtype=torch.float64, **more)


def decay(weight: Tensor, bias: Tensor, ages: Tensor) -> Tensor:
    return torch.exp(-torch.relu(ages @ weight.T + bias))


def one_step(model: GRUD, layer: int, x: Tensor, observed: Tensor, h: Tensor) -> Tensor:
    """The equations of one cell, from a state that has decayed: (D,), (C,), (D,) -> (D,)"""
    cell = model.layers[layer]
    from_x = (cell.gates.weight @ torch.cat([x, observed]) + cell.gates.bias).view(3, -1)
    u_z, u_r = cell.recurrent_gates.T.view(2, 5, 5)
    z, r = torch.sigmoid(from_x[0] + u_z @ h), torch.sigmoid(from_x[1] + u_r @ h)
    candidate = torch.tanh(from_x[2] + cell.recurrent_candidate.T @ (r * h))
    return (1 - z) * h + z * candidate


def by_hand(model: GRUD, batch: IrregularBatch, i: int) -> tuple[Tensor, Tensor]:
    """(n, D) states of the last layer of one series, row by row, and δ after each row, (n, C) as of the next moment."""
    latest, ages = model.fill.mean.clone(), torch.zeros(3).double()
    states = [torch.zeros(5).double() for _ in model.layers]
    found, after = [], []
    for k in range(int(batch.lengths[i])):
        observed = batch.observed[i, k]
        ages = ages + (batch.times[i, k] - batch.times[i, max(k - 1, 0)]) / UNIT
        fade = torch.exp(-torch.relu(model.fill.weight * ages + model.fill.bias))
        x = torch.where(observed, batch.values[i, k], fade * latest + (1 - fade) * model.fill.mean)
        row = model.embedder(x[None, None], torch.zeros(1, 1))[0, 0]
        for layer, cell in enumerate(model.layers):
            h = decay(cell.fade.weight, cell.fade.bias, ages) * states[layer]
            row = states[layer] = one_step(model, layer, row, observed.double(), h)
        latest = torch.where(observed, batch.values[i, k], latest)
        ages = torch.where(observed, 0, ages)
        found.append(row)
        after.append(ages)
    return torch.stack(found), torch.stack(after)


@pytest.mark.parametrize("depth", [1, 2])
def test_it_is_the_recurrence_written_out(depth: int) -> None:
    batch, steps, series = some_batch(), build("step", depth), build("series", depth)
    y, last = steps(batch), series(batch)
    for i, n in enumerate(batch.lengths.tolist()):
        states, _ = by_hand(steps, batch, i)
        assert relative_error(y[i, :n], steps.head(states)) < TIGHT
        assert relative_error(last[i], series.head(states[-1])) < TIGHT


def test_a_query_reads_the_state_decayed_to_its_time() -> None:
    batch, model = some_batch(seed=1), build("query", depth=2)
    last = batch.times.gather(1, batch.lengths[:, None] - 1)
    asked = torch.cat([last + 4, batch.times[:, :1] - 1, batch.times[:, 6:7] + 1e-3, batch.times[:, 3:4]], dim=1)
    y, cell = model(batch.with_queries(asked)), model.layers[-1]
    for i, n in enumerate(batch.lengths.tolist()):
        states, ages = by_hand(model, batch, i)
        for q, moment in enumerate(asked[i].tolist()):
            rows = int((batch.times[i, :n] <= moment).sum())
            known = torch.zeros(5).double()
            if rows:
                since = (moment - batch.times[i, rows - 1]) / UNIT
                known = decay(cell.fade.weight, cell.fade.bias, ages[rows - 1] + since) * states[rows - 1]
            assert relative_error(y[i, q], model.head(known)) < TIGHT


def test_observed_throughout_and_without_decay_it_is_a_gru() -> None:
    values, times, lengths = irregular_arrays(3, 12, 3, seed=2)
    values, model = torch.nan_to_num(values, nan=0.3), build()
    nn.init.zeros_(model.layers[0].fade.weight)
    nn.init.zeros_(model.layers[0].fade.bias)
    y = model(IrregularBatch.build(values, times, lengths=lengths, dtype=torch.float64))
    for i, n in enumerate(lengths.tolist()):
        h, states = torch.zeros(5).double(), []
        for row in model.embedder(values[i : i + 1, :n], times[i : i + 1, :n])[0]:
            h = one_step(model, 0, row, torch.ones(3).double(), h)
            states.append(h)
        assert relative_error(y[i, :n], model.head(torch.stack(states))) < TIGHT


def test_without_a_reset_gate_it_is_that_of_torch() -> None:
    """torch.nn.GRU resets after the product with the state: with r = 1, or without that product, there is no
    difference. Its update gate is the share of the old state, ours that of the new one."""
    torch.manual_seed(1)
    model, theirs = build(), nn.GRUCell(5 + 3, 5).double()
    cell, x, h = model.layers[0], torch.randn(5).double(), torch.randn(5).double()
    with torch.no_grad():
        cell.recurrent_candidate.zero_()
        r, z, n = (slice(5 * k, 5 * k + 5) for k in range(3))
        theirs.weight_ih.copy_(torch.cat([cell.gates.weight[5:10], -cell.gates.weight[:5], cell.gates.weight[10:]]))
        theirs.bias_ih.copy_(torch.cat([cell.gates.bias[5:10], -cell.gates.bias[:5], cell.gates.bias[10:]]))
        theirs.weight_hh[z] = -cell.recurrent_gates[:, :5].T
        theirs.weight_hh[r] = cell.recurrent_gates[:, 5:].T
        theirs.weight_hh[n] = 0
        theirs.bias_hh.zero_()
    observed = torch.tensor([1.0, 0.0, 1.0]).double()
    known = theirs(torch.cat([x, observed])[None], h[None])[0]
    assert relative_error(one_step(model, 0, x, observed, h), known) < TIGHT


def test_what_is_missing_for_long_tends_to_the_training_mean_and_without_decay_is_carried_forward() -> None:
    model, mean = build(), torch.tensor([0.5, -1.0, 2.0]).double()
    latest, nothing = torch.randn(2, 4, 3).double(), torch.zeros(2, 4, 3, dtype=torch.bool)
    ages = torch.rand(2, 4, 3).double()
    nn.init.constant_(model.fill.weight, 0.7)
    nn.init.constant_(model.fill.bias, 0.1)
    long_ago = model.fill(torch.zeros_like(latest), nothing, latest, ~nothing, ages + 1e4)
    assert relative_error(long_ago, mean.expand_as(latest)) < TIGHT
    nn.init.zeros_(model.fill.weight)
    nn.init.zeros_(model.fill.bias)
    carried = model.fill(torch.zeros_like(latest), nothing, latest, ~nothing, ages)
    assert relative_error(carried, latest) < TIGHT
    never = model.fill(torch.zeros_like(latest), nothing, torch.zeros_like(latest), nothing, ages)
    assert relative_error(never, mean.expand_as(latest)) < TIGHT


def test_the_means_come_from_what_was_observed_in_training_and_are_saved() -> None:
    batches = [irregular_batch(3, 9, 3, seed=s) for s in (0, 1)]
    model, other = build(), build()
    fit_clock(model, batches)
    for c in range(3):
        seen = torch.cat([b.values[..., c][b.observed[..., c] & b.valid] for b in batches])
        assert float(model.fill.mean[c]) == pytest.approx(float(seen.mean()), rel=1e-12)
    assert float(model.rows.interval) != UNIT
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.fill.mean, model.fill.mean)


def test_a_channel_that_was_never_observed_has_the_mean_0() -> None:
    values, times, lengths = irregular_arrays(2, 6, 3, seed=3)
    values[..., 1] = torch.nan
    model = build()
    fit_clock(model, [IrregularBatch.build(values, times, lengths=lengths, dtype=torch.float64)])
    assert float(model.fill.mean[1]) == 0


def test_the_mean_of_a_frame_is_one_of_each_pixel() -> None:
    frames, times, lengths = torch.rand(2, 4, 24, 24).double(), torch.arange(4.0), torch.tensor([4, 2])
    model = GRUD(GRUDConfig(inputs=1, outputs=2, answer="step", width=4, embedder="frames")).double()
    fit_clock(model, [IrregularBatch.build(frames, times, lengths=lengths, dtype=torch.float64)])
    known = torch.cat([frames[0], frames[1, :2]]).mean(dim=0)
    assert relative_error(model.fill.mean, known.flatten()) < TIGHT


def test_dropout_outside_the_unit_interval_is_refused() -> None:
    with pytest.raises(ValueError, match=r"below 1; got 1\.0"):
        GRUDConfig(inputs=1, outputs=1, dropout=1.0)
