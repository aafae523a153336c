"""What holds for all recurrent baselines that know time: its unit, the past, recorded steps, what the trainer does."""

from dataclasses import replace

import pytest
import torch
from helpers import irregular_arrays, relative_error
from torch import Tensor, nn

from lformer import IrregularBatch, data, tasks
from lformer.baselines import BASELINES, GRUD, RKN, BaselineModel, GRUDConfig, RKNConfig
from lformer.cuda_graphs import capture_step
from lformer.nn.rows import fit_clock
from lformer.train import TrainConfig, fit

SMALL: dict[str, dict[str, object]] = {
    "gru-dt": {}, "gru-d": {}, "cfc": {"backbone": 9}, "rkn-dt": {"state": 6, "transitions": 3, "band": 1},
}  # fmt: skip
every_one = pytest.mark.parametrize("name", SMALL)
every_answer = pytest.mark.parametrize("answer", ["series", "step", "query"])


def build(name: str, answer: str, **choices: object) -> BaselineModel:
    torch.manual_seed(0)
    model, config = BASELINES[name]
    sizes = {"inputs": 3, "outputs": 2, "answer": answer, "width": 6, "rows": "observed"} | SMALL[name]
    built = model(config(**sizes | choices)).double()
    for parameter in built.parameters():
        nn.init.normal_(parameter, std=0.4)
    return built


def batch_of(answer: str, seed: int = 0, scale: float = 1.0, later: int | None = None) -> IrregularBatch:
    """Uneven, ragged series with missing values and empty rows; values from row `later` on are others."""
    values, times, lengths = irregular_arrays(3, 14, 3, seed=seed)
    values[:, [0, 6]] = torch.nan
    if later is not None:
        values[:, later:] = 9.0
    batch = IrregularBatch.build(values, (times - 1000) * scale, lengths=lengths, dtype=torch.float64)
    asked = torch.stack([batch.times[:, 3], batch.times[:, 4] * 0.9 + batch.times[:, 5] * 0.1], dim=1)
    batch = batch.with_queries(asked) if answer == "query" else batch
    shape = {"series": (3, 2), "step": (3, 14, 2), "query": (3, 2, 2)}[answer]
    return replace(batch, targets=torch.linspace(-1, 1, 6).double().repeat(14)[: torch.Size(shape).numel()].view(shape))


def counted(model: BaselineModel, batch: IrregularBatch) -> Tensor:
    y = model(batch)
    return y[batch.valid] if model.config.answer == "step" else y


@every_one
@every_answer
def test_the_unit_of_time_does_not_matter(name: str, answer: str) -> None:
    hours, minutes = batch_of(answer), batch_of(answer, scale=64.0)
    model = build(name, answer)
    fit_clock(model, [hours])
    known = counted(model, hours)
    assert relative_error(counted(model, minutes), known) > 1e-3
    fit_clock(model, [minutes])
    assert relative_error(counted(model, minutes), known) < 1e-10


@every_one
@pytest.mark.parametrize("answer", ["step", "query"])
def test_the_future_does_not_reach_the_past(name: str, answer: str) -> None:
    model = build(name, answer)
    known, changed = model(batch_of(answer)), model(batch_of(answer, later=5))
    rows = 5 if answer == "step" else 2
    assert torch.equal(changed[:, :rows], known[:, :rows])
    changed = model(batch_of(answer, later=3))
    assert relative_error(changed[:, :rows], known[:, :rows]) > 1e-3


@every_one
@every_answer
def test_a_recorded_step_has_the_gradients_of_an_ordinary_one(name: str, answer: str) -> None:
    """What a recording watches are copies of the weights: a layer that keeps a list of its own would not learn."""
    model, batch = build(name, answer), batch_of(answer)

    def loss(model: nn.Module, batch: IrregularBatch) -> Tensor:
        y = model(batch).sin()
        return y.sum() if answer != "step" else torch.where(batch.valid[..., None], y, 0).sum()

    assert model.recordable
    learnt = [p for key, p in model.named_parameters() if not key.startswith("variance")]  # of which no answer is made
    known = torch.autograd.grad(loss(model, batch), learnt)
    capture_step(model, loss)(batch)
    for parameter, gradient in zip(learnt, known, strict=True):
        assert parameter.grad is not None
        assert relative_error(parameter.grad, gradient) < 1e-10


@every_one
@every_answer
def test_under_autocast_the_state_is_kept_in_full_precision(name: str, answer: str) -> None:
    model, batch = build(name, answer).float(), batch_of(answer)
    batch = replace(batch, values=batch.values.float(), deltas=batch.deltas.float())
    kept = []
    model.head.register_forward_pre_hook(lambda _, given: kept.append(given[0].dtype))
    known = counted(model, batch)
    with torch.autocast("cpu", torch.bfloat16):
        assert relative_error(counted(model, batch).float(), known) < 0.1
    if name != "rkn-dt":  # whose mean passes its decoder before the head
        assert kept == [torch.float32] * 2


def test_the_trainer_fits_statistics_and_minimises_the_loss_that_a_model_brings() -> None:
    splits = data.load("spiral-0.02", steps=2)
    task, config = tasks.for_splits(splits), TrainConfig(epochs=1, device="cpu")
    sizes = {"inputs": 2, "outputs": 2, "answer": "query", "width": 6}
    rkn = RKN(RKNConfig(**sizes, state=6, transitions=2, band=1))
    before = {key: value.clone() for key, value in rkn.variance.state_dict().items()}
    result = fit(rkn, task, splits, config, progress=False)
    assert all(not torch.equal(value, before[key]) for key, value in rkn.variance.state_dict().items())
    assert result.metrics.keys() == task.metrics.keys()
    gru_d = GRUD(GRUDConfig(**sizes))
    fit(gru_d, task, splits, config, progress=False)
    (batch,) = splits.train.batches(10_000)
    known = torch.where(batch.observed, batch.values, 0).sum(dim=(0, 1)) / batch.observed.sum(dim=(0, 1))
    assert relative_error(gru_d.fill.mean, known) < 1e-5
