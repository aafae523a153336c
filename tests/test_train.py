"""The trainer: it learns, keeps the best epoch, stops early, repeats, and says what went wrong."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lformer import IrregularBatch, LFormer, data, metrics, tasks, train
from lformer.bench.recipes import recipe
from lformer.evaluate import evaluate, predict
from lformer.ops import checks
from lformer.train import DivergedError, Result, TrainConfig, fit, rate_share, seeded

TASK = tasks.trajectory(half=75)


def short_run(seed: int = 3, folder: Path | None = None, **changes: object) -> tuple[LFormer, Result]:
    plan = recipe("spiral-0.02")
    with seeded(seed):
        model = LFormer(plan.model)
    config = replace(plan.train, **{"epochs": 3, "accelerator": "cpu"} | changes)
    splits = data.load("spiral-0.02", seed=seed, steps=10)
    return model, fit(model, TASK, splits, config, folder=folder, progress=False)


@pytest.fixture(scope="module")
def trained() -> tuple[LFormer, Result]:
    return short_run()


def test_the_loss_falls_and_the_history_has_every_epoch(trained: tuple[LFormer, Result]) -> None:
    _, result = trained
    assert [row["epoch"] for row in result.history] == [0, 1, 2]
    assert result.history[-1]["loss"] < 0.5 * result.history[0]["loss"]
    assert set(result.metrics) == set(TASK.metrics)


def test_the_same_seed_repeats_to_the_last_digit(trained: tuple[LFormer, Result]) -> None:
    model, result = trained
    again, repeated = short_run()
    assert repeated.metrics == result.metrics
    assert repeated.history == result.history
    for a, b in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)
    assert short_run(seed=4)[1].metrics != result.metrics


def test_the_model_holds_the_weights_of_its_best_epoch() -> None:
    model, result = short_run(lr=0.3, clip=None, schedule="constant", epochs=4)
    best = min(result.history, key=lambda row: row[TASK.monitor])
    assert result.best_epoch == best["epoch"]
    assert result.validation[TASK.monitor] == best[TASK.monitor]
    splits = data.load("spiral-0.02", seed=3, steps=10)
    assert evaluate(model, TASK, splits.validation)[TASK.monitor] == pytest.approx(best[TASK.monitor], rel=1e-6)


def test_patience_ends_a_run_that_no_longer_improves() -> None:
    _, result = short_run(lr=0.0, patience=1, epochs=10)
    assert result.epochs == 2


def test_the_first_interval_is_fitted_to_the_training_data(trained: tuple[LFormer, Result]) -> None:
    model, _ = trained
    splits = data.load("spiral-0.02", seed=3, steps=10)
    (batch,) = splits.train.batches(170)
    assert float(model.first_interval) == pytest.approx(float(batch.deltas[batch.deltas > 0].median()))


def test_the_checkpoint_loads_without_executing_code(tmp_path: Path) -> None:
    model, _ = short_run(folder=tmp_path, epochs=1)
    saved = torch.load(tmp_path / "best.ckpt", weights_only=True)
    assert torch.equal(saved["state_dict"]["model.head.0.weight"], model.head[0].weight)


def test_the_rate_rises_in_the_warm_up_and_falls_to_zero() -> None:
    config = TrainConfig(schedule="cosine", warmup=0.1)
    shares = [rate_share(step, 100, config) for step in range(101)]
    assert shares[:10] == sorted(shares[:10])
    assert shares[10] == 1.0
    assert shares[10:] == sorted(shares[10:], reverse=True)
    assert shares[55] == pytest.approx(0.5)
    assert shares[100] == pytest.approx(0.0)
    assert {rate_share(step, 100, TrainConfig()) for step in range(101)} == {1.0}


class Explodes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, batch: IrregularBatch) -> Tensor:
        assert batch.targets is not None
        return self.weight * batch.targets * float("inf")


def test_a_loss_that_is_not_finite_stops_with_step_and_advice() -> None:
    splits = data.load("spiral-0.02", steps=2)
    with pytest.raises(FloatingPointError, match=r"epoch 0, step 0.*learning rate \(0.001\).*clip"):
        fit(Explodes(), TASK, splits, TrainConfig(epochs=1, accelerator="cpu"), progress=False)


class Blows(nn.Module):
    """Fine for an epoch, then a layer in the middle gives infinity, or refuses."""

    def __init__(self, refuse: bool) -> None:
        super().__init__()
        self.inner, self.outer, self.calls, self.refuse = nn.Linear(2, 2), nn.Linear(2, 2), 0, refuse

    def forward(self, batch: IrregularBatch) -> Tensor:
        assert batch.query_times is not None
        self.calls += self.training
        x = self.inner(torch.ones(*batch.query_times.shape, 2))
        if self.calls > 2:
            if self.refuse and checks.readable(x):
                raise ValueError("the decay is too large")
            x = x * float("inf")
        return self.outer(x)


@pytest.mark.parametrize(
    ("refuse", "says"),
    [(False, "not finite comes out of outer"), (True, "out of inner; then a layer refuses: the decay is too large")],
)
def test_an_explosion_names_the_layer_and_leaves_the_last_good_epoch(refuse: bool, says: str, tmp_path: Path) -> None:
    splits = data.load("spiral-0.02", steps=2)
    config = TrainConfig(epochs=3, accelerator="cpu")
    with pytest.raises(DivergedError, match=f"epoch 1, step 0.*{says}") as error:
        fit(Blows(refuse), TASK, splits, config, folder=tmp_path, progress=False)
    assert [row["epoch"] for row in error.value.history] == [0]
    assert torch.load(tmp_path / "last.ckpt", weights_only=True)["epoch"] == 0
    assert torch.load(tmp_path / "best.ckpt", weights_only=True)["epoch"] == 0


def test_a_folder_of_another_run_is_refused(tmp_path: Path) -> None:
    short_run(folder=tmp_path, epochs=1)
    with pytest.raises(ValueError, match=r"last.ckpt is of another run.*Choose another folder"):
        short_run(folder=tmp_path, epochs=1, lr=0.5)


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    first = short_run(folder=tmp_path, epochs=2)[1]
    again = short_run(folder=tmp_path, epochs=2)[1]
    assert again.metrics == first.metrics
    assert again.history == first.history
    assert again.seconds < first.seconds


def test_epochs_are_reported_and_logged(tmp_path: Path) -> None:
    rows: list[dict[str, float]] = []
    plan = recipe("spiral-0.02")
    config = replace(plan.train, epochs=2, accelerator="cpu", log="csv")
    splits = data.load("spiral-0.02", steps=3)
    fit(LFormer(plan.model), TASK, splits, config, folder=tmp_path, progress=False, report=rows.append)
    assert [row["epoch"] for row in rows] == [0, 1]
    (log,) = tmp_path.rglob("metrics.csv")
    assert "extrapolation_mae" in log.read_text().splitlines()[0]


def test_mixed_precision_trains_and_stays_near_single(trained: tuple[LFormer, Result]) -> None:
    _, half = short_run(precision="bf16-mixed")
    assert half.history[-1]["loss"] < 0.5 * half.history[0]["loss"]
    assert half.metrics != trained[1].metrics
    assert half.metrics["mae"] == pytest.approx(trained[1].metrics["mae"], rel=0.5)


def test_a_missing_logger_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*args: object, **options: object) -> None:
        raise ModuleNotFoundError("No module named 'tensorboard'")

    monkeypatch.setattr("pytorch_lightning.loggers.TensorBoardLogger", absent)
    with pytest.raises(ImportError, match=r"lformer\[logs\]"):
        short_run(epochs=1, log="tensorboard")


def test_weight_decay_is_decoupled_and_off_by_default() -> None:
    still = short_run(lr=0.0, epochs=1, weight_decay=0.5)[0]
    with seeded(3):
        fresh = LFormer(recipe("spiral-0.02").model)
    assert torch.equal(still.head[0].weight, fresh.head[0].weight)  # a rate of 0 decays nothing
    decayed = short_run(epochs=1, weight_decay=0.5)[0]
    assert float(decayed.head[0].weight.detach().norm()) < float(short_run(epochs=1)[0].head[0].weight.detach().norm())


def test_building_under_a_seed_leaves_the_callers_random_state() -> None:
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    with seeded(5):
        torch.rand(10)
    assert torch.equal(torch.rand(3), expected)


def test_training_is_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        short_run(epochs=1)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err == ""


def test_predictions_come_in_order_whatever_the_batch_size(trained: tuple[LFormer, Result]) -> None:
    model, _ = trained
    part = data.load("spiral-0.02", seed=3).test
    at_once = torch.stack(predict(model, TASK, part, batch_size=100))
    in_parts = torch.stack(predict(model, TASK, part, batch_size=7))
    assert torch.allclose(at_once, in_parts, atol=1e-6)
    assert float(metrics.summed_absolute(at_once, part.clean).mean()) == pytest.approx(
        evaluate(model, TASK, part)["mae"]
    )


@pytest.mark.parametrize(
    ("precision", "accelerator", "inside"),
    [
        ("tf32", "auto", "high"),
        ("tf32", "cpu", "highest"),
        ("32-true", "gpu", "highest"),
        ("64-true", "gpu", "highest"),
    ],
)
def test_products_are_rounded_on_a_gpu_alone_and_only_during_the_run(
    precision: Any, accelerator: str, inside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert torch.get_float32_matmul_precision() == "highest"
    with train.rounding(TrainConfig(precision=precision, accelerator=accelerator)):
        assert torch.get_float32_matmul_precision() == inside
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_model_is_tested_on_the_gpu_that_trained_it_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    evaluate = train.evaluate

    def watched(model: LFormer, *arguments: Any) -> dict[str, float]:
        seen.append((next(model.parameters()).device.type, torch.get_float32_matmul_precision()))
        return evaluate(model, *arguments)

    monkeypatch.setattr(train, "evaluate", watched)
    model, _ = short_run(epochs=1, accelerator="gpu")
    assert set(seen) == {("cuda", "high")}
    assert next(model.parameters()).device.type == "cpu"
