"""What the state-space models share: norms that do not see padding, dropout, the time channel, weight decay."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers import irregular_arrays, irregular_batch, relative_error
from torch import Tensor, nn

from lformer import IrregularBatch, data, tasks
from lformer.baselines import BASELINES
from lformer.baselines.state_space import RowNorm
from lformer.bench.recipes import recipe
from lformer.train import Report, TrainConfig, fit, seeded
from lformer.train.updating import adam

NAMES = ["lru", "linoss", "s5", "s6", "mamba"]


def build(name: str, answer: str = "series", **choices: object) -> nn.Module:
    torch.manual_seed(0)
    entry = BASELINES[name]
    made: dict[str, object] = {"inputs": 3, "outputs": 2, "answer": answer, "width": 8, "state": 4}
    if name == "mamba" and "norm" in choices:
        made["block"] = "gated"
    return entry.model(entry.config(**made | choices)).double()


def test_batch_norm_is_that_of_pytorch_over_the_valid_rows() -> None:
    ours, theirs = RowNorm(3, "batch").double(), nn.BatchNorm1d(3, affine=False).double()
    for seed in range(3):
        batch = irregular_batch(seed=seed)
        x = torch.randn(4, 30, 3).double()
        y = ours(torch.where(batch.valid[..., None], x, 1e3), batch.valid)
        assert relative_error(y[batch.valid], theirs(x[batch.valid])) < 1e-12
    assert relative_error(ours.mean, theirs.running_mean) < 1e-12
    assert relative_error(ours.variance, theirs.running_var) < 1e-12
    assert relative_error(ours.eval()(x, batch.valid), theirs.eval()(x.flatten(0, 1)).view_as(x)) < 1e-12


@pytest.mark.parametrize("lengths", [[0, 0], [1, 0]])
def test_batch_norm_learns_nothing_from_fewer_than_two_rows(lengths: list[int]) -> None:
    norm, valid = RowNorm(3, "batch"), torch.arange(4) < torch.tensor(lengths)[:, None]
    assert bool(torch.isfinite(norm(torch.randn(2, 4, 3), valid)).all())
    assert torch.equal(norm.mean, torch.zeros(3))
    assert torch.equal(norm.variance, torch.ones(3))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("answer", ["series", "step", "query"])
def test_with_batch_norm_padding_changes_nothing_while_training_either(name: str, answer: str) -> None:
    asked = {"query_times": torch.linspace(990.0, 1500.0, 5)} if answer == "query" else {}
    batch = irregular_batch(L=12, **asked)
    padded = batch.padded(20)
    padded = replace(padded, values=torch.where(padded.valid[..., None], padded.values, 1e3))
    y, z = (build(name, answer, norm="batch").train()(one) for one in (batch, padded))
    z = z[:, :12] if answer == "step" else z
    known = batch.valid[..., None] if answer == "step" else torch.ones_like(y, dtype=torch.bool)
    assert relative_error(torch.where(known, z, 0), torch.where(known, y, 0)) < 1e-10


@pytest.mark.parametrize("name", NAMES)
def test_dropout_acts_in_training_alone(name: str) -> None:
    batch, model = irregular_batch(), build(name, dropout=0.5)
    assert relative_error(model.train()(batch), model(batch)) > 1e-3
    plain = build(name, dropout=0.0)
    assert torch.equal(model.eval()(batch), plain(batch))


@pytest.mark.parametrize("name", ["gru", "transformer", *NAMES])
def test_the_time_channel_is_the_time_in_typical_spans(name: str) -> None:
    values, times, lengths = irregular_arrays(3, 12, 3, seed=2)
    entry = BASELINES[name]
    torch.manual_seed(0)
    shown = entry.model(entry.config(inputs=3, outputs=2, width=8, time_channel=True)).double()
    torch.manual_seed(0)
    plain = entry.model(entry.config(inputs=4, outputs=2, width=8)).double()
    assert [p.shape for p in plain.parameters()] == [p.shape for p in shown.parameters()]
    shown.rows.span.fill_(50.0)
    batch = IrregularBatch.build(values, times, lengths=lengths, dtype=torch.float64)
    share = torch.where(batch.valid, batch.times / 50, torch.nan)
    by_hand = IrregularBatch.build(
        torch.cat([values, share[..., None]], dim=-1), times, lengths=lengths, dtype=torch.float64
    )
    assert relative_error(shown(batch), plain(by_hand)) < 1e-12
    with pytest.raises(ValueError, match=r"built for rows of shape \(3,\); got \(2,\)"):
        shown(IrregularBatch.build(values[..., :2], times, lengths=lengths, dtype=torch.float64))


def test_a_query_has_its_time_in_the_channel() -> None:
    model = build("s5", "query", time_channel=True)
    values, _, _ = irregular_arrays(1, 6, 3, seed=2)
    asked = torch.tensor([[5.0, 7.0]]).double()
    rows = IrregularBatch.build(values, torch.arange(6.0), query_times=asked, dtype=torch.float64)
    known = model(rows)
    with torch.no_grad():
        model.embedder.value.weight[:, -1] = 0
    assert relative_error(model(rows), known) > 1e-3


UNDECAYED = {
    "lru": {"nu", "theta", "log_gamma"},
    "linoss": {"stiffness", "step"},
    "s5": {"rate", "frequency", "log_step", "B"},
    "s6": {"log_rates", "D", "step_bias"},
    "mamba": {"log_rates", "D", "step_bias"},
}


@pytest.mark.parametrize("name", NAMES)
def test_weight_decay_leaves_rates_and_steps_alone(name: str) -> None:
    model = build(name, depth=2)
    optimiser = adam(model, TrainConfig(lr=0.1, weight_decay=0.5))
    before = {key: p.detach().clone() for key, p in model.named_parameters()}
    for p in model.parameters():
        p.grad = torch.zeros_like(p)  # what moves now is moved by the decay
    optimiser.step()
    still = {key for key, p in model.named_parameters() if torch.equal(p, before[key])}
    moved = before.keys() - still
    inside = {key for key in before if "recurrence" in key and key.rpartition(".")[2] in UNDECAYED[name]}
    assert len(inside) == 2 * len(UNDECAYED[name])
    assert inside <= still
    assert {key for key in still - inside if bool(before[key].any())} == set()
    for key in moved:
        assert relative_error(dict(model.named_parameters())[key], before[key] * (1 - 0.1 * 0.5)) < 1e-12


def test_one_group_where_nothing_is_spared() -> None:
    model = BASELINES["gru"].model(BASELINES["gru"].config(inputs=3, outputs=2))
    assert len(adam(model, TrainConfig(weight_decay=0.5)).param_groups) == 1
    spared = build("lru")
    assert len(adam(spared, TrainConfig()).param_groups) == 1
    groups = adam(spared, TrainConfig(weight_decay=0.5)).param_groups
    assert [group["weight_decay"] for group in groups] == [0.5, 0.0]
    assert sum(len(group["params"]) for group in groups) == len(list(spared.parameters()))
    assert math.prod(len(group["params"]) for group in groups) > 0


@pytest.mark.parametrize("name", ["lru", "s5", "mamba"])
@pytest.mark.parametrize("weight_decay", [0.0, 1e-6])
def test_a_state_space_learns_at_a_rate_of_its_own(name: str, weight_decay: float) -> None:
    """The first step of Adam moves a parameter by the learning rate, whatever its gradient."""
    splits = data.load("spiral-0.02", seed=3, steps=1)
    config = TrainConfig(epochs=1, batch_size=1000, lr=1e-2, weight_decay=weight_decay, precision="float64")
    model = build(name, "query", inputs=2, state_rate=0.25)
    before = {key: p.detach().clone() for key, p in model.named_parameters()}
    fit(model, tasks.trajectory(), splits, replace(config, device="cpu"), progress=False)
    slow = 0
    for key, p in model.named_parameters():
        of_state = "recurrence" in key and key.rpartition(".")[2] in UNDECAYED[name]
        slow += of_state
        moved = float((p.detach() - before[key]).abs().max())
        assert moved == pytest.approx(0.25e-2 if of_state else 1e-2, rel=0.05), key  # but for epsilon
    assert slow == 2 * len(UNDECAYED[name])


def test_a_rate_that_learns_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"state_rate must be above 0; got 0\.0"):
        build("s5", state_rate=0.0)


class _StoppedError(Exception):
    pass


def test_a_run_that_was_interrupted_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    """With weight decay, two rates, dropout and batch norm: groups of the optimiser, draws and running moments."""
    splits = data.load("spiral-0.02", seed=3, steps=10)
    config = replace(recipe("spiral-0.02").train, epochs=3, device="cpu", weight_decay=0.1)
    seen: list[float] = []

    def stop(row: dict[str, float]) -> None:
        seen.append(row["loss"])
        if len(seen) == 2:
            raise _StoppedError

    def run(folder: Path | None = None, report: Report | None = None) -> tuple[dict[str, Tensor], list[float]]:
        choices = {"inputs": 2, "outputs": 2, "norm": "batch", "dropout": 0.2, "depth": 1, "state_rate": 0.5}
        with seeded(3):
            model = build("lru", "query", **choices).float()
        result = fit(model, tasks.trajectory(), splits, config, folder=folder, progress=False, report=report)
        return model.state_dict(), [row["loss"] for row in result.history]

    whole, losses = run()
    with pytest.raises(_StoppedError):
        run(tmp_path, stop)
    again, continued = run(tmp_path)
    assert continued == losses
    assert continued[2] < continued[0]
    assert all(torch.equal(again[key], value) for key, value in whole.items())


@pytest.mark.parametrize("name", NAMES)
def test_queries_between_two_rows_differ_if_they_know_their_time(name: str) -> None:
    """A recurrence without time answers all alike, unless the embedding of the query says when it is."""
    values, _, _ = irregular_arrays(2, 6, 3, seed=5)
    asked = torch.tensor([[2.2, 2.8, 3.2]]).double().expand(2, 3)
    batch = IrregularBatch.build(values, torch.arange(6.0), query_times=asked, dtype=torch.float64)
    blind = build(name, "query")(batch)
    assert (relative_error(blind[:, 0], blind[:, 1]) < 1e-12) == (name != "s5")
    assert relative_error(blind[:, 2], blind[:, 1]) > 1e-3
    told = build(name, "query", time_channel=True)(batch)
    assert relative_error(told[:, 0], told[:, 1]) > 1e-3
