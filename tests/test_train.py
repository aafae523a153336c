"""The trainer: it learns, keeps the best epoch, stops early, repeats, and says what went wrong."""

import csv
import io
import math
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO, ClassVar

import pytest
import torch
from torch import Tensor, nn

from lformer import IrregularBatch, LFormer, LFormerConfig, data, metrics, sealed, tasks, train
from lformer.bench.recipes import recipe
from lformer.draws import generator_on
from lformer.evaluate import evaluate, predict
from lformer.metrics import Mean
from lformer.ops import checks
from lformer.parts import Share
from lformer.tasks import Task
from lformer.train import (
    DivergedError,
    Report,
    Result,
    TimeLimitError,
    TrainConfig,
    checkpoint,
    fit,
    loop,
    rate_share,
    seeded,
)

pytestmark = pytest.mark.usefixtures("signals_as_in_a_terminal")

CONFIG = recipe("spiral-0.02").config(data.load("spiral-0.02").spec)
TASK = tasks.trajectory()


def short_run(
    seed: int = 3, task: Task = TASK, folder: Path | None = None, report: Report | None = None, **changes: object
) -> tuple[LFormer, Result]:
    plan = recipe("spiral-0.02")
    with seeded(seed):
        model = LFormer(CONFIG)
    config = replace(plan.train, **{"epochs": 3, "device": "cpu"} | changes)
    splits = data.load("spiral-0.02", seed=seed, steps=10)
    return model, fit(model, task, splits, config, folder=folder, progress=False, report=report)


def checkpoint_in(folder: Path) -> Any:
    """The last checkpoint, read without executing anything."""
    content = (folder / "last.ckpt").read_bytes()[sealed.SEAL.size :]
    return torch.load(io.BytesIO(content), weights_only=True)


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
    model, result = short_run(folder=tmp_path, epochs=1)
    saved = checkpoint_in(tmp_path)
    assert saved["history"] == result.history
    assert torch.equal(saved["best"]["head.0.weight"], model.head[0].weight)
    assert [path.name for path in tmp_path.iterdir()] == ["last.ckpt"]


def test_the_rate_rises_in_the_warm_up_and_falls_to_zero() -> None:
    config = TrainConfig(schedule="cosine", warmup=0.1)
    shares = [rate_share(step, 100, config) for step in range(101)]
    assert shares[:10] == pytest.approx([(step + 1) / 11 for step in range(10)])  # the first step moves, the 11th fully
    assert shares[10] == 1.0
    assert shares[10:] == sorted(shares[10:], reverse=True)
    assert shares[55] == pytest.approx(0.5)
    assert shares[100] == pytest.approx(0.0)
    assert {rate_share(step, 100, TrainConfig()) for step in range(101)} == {1.0}


class Stiff(nn.Module):
    """A model whose solver fails in its third training step."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.calls = nn.Parameter(torch.ones(2)), 0

    def forward(self, batch: IrregularBatch) -> Tensor:
        assert batch.query_times is not None
        self.calls += self.training
        if self.calls > 2:
            raise FloatingPointError("dopri5 would need steps that float32 cannot hold.")
        return self.scale * torch.ones(*batch.query_times.shape, 2)


def test_a_solver_that_fails_ends_the_run_as_an_explosion_does(tmp_path: Path) -> None:
    splits = data.load("spiral-0.02", steps=2)
    with pytest.raises(DivergedError, match=r"cannot hold. In epoch 1.$") as error:
        fit(Stiff(), TASK, splits, TrainConfig(epochs=3, device="cpu"), folder=tmp_path, progress=False)
    assert [row["epoch"] for row in error.value.history] == [0]


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
        fit(Explodes(), TASK, splits, TrainConfig(epochs=1, device="cpu"), progress=False)


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
    config = TrainConfig(epochs=3, device="cpu")
    with pytest.raises(DivergedError, match=f"epoch 1, step 0.*{says}") as error:
        fit(Blows(refuse), TASK, splits, config, folder=tmp_path, progress=False)
    assert [row["epoch"] for row in error.value.history] == [0]
    assert checkpoint_in(tmp_path)["epoch"] == 0


def test_a_folder_of_another_run_is_refused(tmp_path: Path) -> None:
    short_run(folder=tmp_path, epochs=1)
    with pytest.raises(ValueError, match=r"last.ckpt belongs to another run.*Choose another folder"):
        short_run(folder=tmp_path, epochs=1, lr=0.5)


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    first = short_run(folder=tmp_path, epochs=2)[1]
    again = short_run(folder=tmp_path, epochs=2)[1]
    assert again.metrics == first.metrics
    assert again.history == first.history


def test_seconds_before_an_interruption_count(tmp_path: Path) -> None:
    def stop(row: dict[str, float]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        short_run(folder=tmp_path, report=stop)
    checkpoint.save(tmp_path, checkpoint_in(tmp_path) | {"seconds": 1000.0})
    with pytest.raises(TimeLimitError, match="stopped after 500 s, in epoch 1") as late:
        short_run(folder=tmp_path, time_limit=500.0)
    assert [row["epoch"] for row in late.value.history] == [0]
    assert checkpoint.seconds_spent(tmp_path) == 1000
    assert 1000 < short_run(folder=tmp_path)[1].seconds < 1500


def test_epochs_are_reported_and_logged(tmp_path: Path) -> None:
    rows: list[dict[str, float]] = []
    plan = recipe("spiral-0.02")
    config = replace(plan.train, epochs=2, device="cpu", log="csv")
    splits = data.load("spiral-0.02", steps=3)
    fit(LFormer(CONFIG), TASK, splits, config, folder=tmp_path, progress=False, report=rows.append)
    assert [row["epoch"] for row in rows] == [0, 1]
    with (tmp_path / "metrics.csv").open() as log:
        assert [{name: float(value) for name, value in row.items()} for row in csv.DictReader(log)] == rows


def test_a_log_without_a_folder_is_refused() -> None:
    with pytest.raises(ValueError, match=r"log='csv' is written into the folder of the run: fit\(..., folder=...\)"):
        short_run(log="csv")


def test_mixed_precision_trains_and_stays_near_single(trained: tuple[LFormer, Result]) -> None:
    _, half = short_run(precision="bf16")
    assert half.history[-1]["loss"] < 0.5 * half.history[0]["loss"]
    assert half.metrics != trained[1].metrics
    assert half.metrics["mae"] == pytest.approx(trained[1].metrics["mae"], rel=0.5)


def test_double_precision_trains_near_single(trained: tuple[LFormer, Result]) -> None:
    model, double = short_run(precision="float64")
    assert next(model.parameters()).dtype == torch.float64
    assert double.metrics == pytest.approx(trained[1].metrics, rel=0.05)
    assert double.metrics != trained[1].metrics
    splits = data.load("spiral-0.02", seed=3, steps=10)
    assert evaluate(model, TASK, splits.test) == pytest.approx(double.metrics)  # whatever the batches were read as


def test_a_missing_logger_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match=r"lformer\[logs\]"):
        short_run(folder=tmp_path, epochs=1, log="tensorboard")


class Events:
    """Keeps what TensorBoard would be told."""

    told: ClassVar[list[tuple[str, float, int]]] = []

    def __init__(self, folder: Path, purge_step: int) -> None:
        self.told.append(("purge", 0.0, purge_step))

    def __enter__(self) -> "Events":
        return self

    def __exit__(self, *error: object) -> None:
        self.told.append(("closed", 0.0, 0))

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.told.append((name, value, step))

    def flush(self) -> None:
        pass


def test_tensorboard_is_told_of_every_epoch_and_goes_on_after_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=Events))
    with pytest.raises(KeyboardInterrupt):
        short_run(folder=tmp_path, log="tensorboard", report=interrupt(after=1))
    _, result = short_run(folder=tmp_path, log="tensorboard")
    scalars = [(name, value) for row in result.history for name, value in row.items() if name != "epoch"]
    assert [(name, value) for name, value, _ in Events.told if name not in ("purge", "closed")] == scalars
    assert [step for name, _, step in Events.told if name == "purge"] == [0, 2]
    assert Events.told[-1][0] == "closed"


def test_weight_decay_is_decoupled_and_off_by_default() -> None:
    still = short_run(lr=0.0, epochs=1, weight_decay=0.5)[0]
    with seeded(3):
        fresh = LFormer(CONFIG)
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
    ("precision", "device", "inside"),
    [
        ("tf32", "auto", "high"),
        ("tf32", "cpu", "highest"),
        ("float32", "gpu", "highest"),
        ("float64", "gpu", "highest"),
    ],
)
def test_products_are_rounded_on_a_gpu_alone_and_only_during_the_run(
    precision: Any, device: str, inside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert torch.get_float32_matmul_precision() == "highest"
    with train.rounding(TrainConfig(precision=precision, device=device)):
        assert torch.get_float32_matmul_precision() == inside
    assert torch.get_float32_matmul_precision() == "highest"


# --- interruptions ---


def interrupt(after: int, by: int = signal.SIGINT) -> Report:
    """Sends this process a signal at the end of an epoch."""

    def stop(row: dict[str, float]) -> None:
        if row["epoch"] == after:
            os.kill(os.getpid(), by)

    return stop


@pytest.mark.parametrize(("by", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_run_that_a_signal_ended_goes_on_to_where_it_would_have_ended(
    by: int, raised: type[BaseException], trained: tuple[LFormer, Result], tmp_path: Path
) -> None:
    with pytest.raises(raised) as stopped:
        short_run(folder=tmp_path, report=interrupt(1, by))
    assert by == signal.SIGINT or stopped.value.code == 143  # type: ignore[attr-defined]
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    told: list[float] = []
    model, result = short_run(folder=tmp_path, report=lambda row: told.append(row["epoch"]))
    assert told == [2]
    assert (result.history, result.metrics) == (trained[1].history, trained[1].metrics)
    for a, b in zip(model.parameters(), trained[0].parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_best_epoch_survives_an_interruption(tmp_path: Path) -> None:
    most = {"mae": Mean(metrics.summed_absolute, best="max")}
    worst = replace(TASK, metrics={**TASK.metrics, **most})  # the first epoch is best, since training spoils it
    model, whole = short_run(task=worst)
    assert whole.best_epoch == 0
    with pytest.raises(KeyboardInterrupt):
        short_run(task=worst, folder=tmp_path, report=interrupt(1))
    again, resumed = short_run(task=worst, folder=tmp_path)
    assert (resumed.best_epoch, resumed.metrics) == (0, whole.metrics)
    assert torch.equal(again.head[0].weight, model.head[0].weight)


def test_a_checkpoint_that_cannot_be_written_leaves_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(state: object, stream: BinaryIO) -> None:
        stream.write(b"half of it")
        raise OSError("no space left on device")

    first: list[bytes] = []

    def fill(row: dict[str, float]) -> None:
        first.append((tmp_path / "last.ckpt").read_bytes())
        monkeypatch.setattr(torch, "save", full)

    with pytest.raises(OSError, match="no space left"):
        short_run(folder=tmp_path, report=fill)
    assert [(tmp_path / "last.ckpt").read_bytes()] == first
    assert checkpoint_in(tmp_path)["epoch"] == 0


def test_a_signal_is_left_to_a_caller_who_handles_it() -> None:
    caught: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: caught.append(number))
    try:
        short_run(epochs=1, report=interrupt(0, signal.SIGTERM))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert caught == [signal.SIGTERM]


def test_a_thread_can_train() -> None:
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(short_run, epochs=1).result()[1].epochs == 1


def test_training_leaves_the_callers_random_state() -> None:
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    model, *_ = short_run(epochs=1)
    assert model.training
    assert torch.equal(torch.rand(3), expected)


# --- what is drawn ---


class Noting(nn.Module):
    """Notes what it draws in training, as dropout would."""

    def __init__(self, own_draws: bool) -> None:
        super().__init__()
        self.own_draws, self.weight = own_draws, nn.Parameter(torch.ones(()))
        self.drawn: list[float] = []

    def forward(self, batch: IrregularBatch) -> Tensor:
        assert batch.targets is not None
        if self.training:
            self.drawn.append(float(torch.rand((), generator=generator_on(CPU) if self.own_draws else None)))
        return self.weight * batch.targets


CPU = torch.device("cpu")


def note(own_draws: bool = True, seed: int = 0, **changes: Any) -> Noting:
    model = Noting(own_draws)
    config = TrainConfig(**{"epochs": 3, "batch_size": 40, "device": "cpu"} | changes)
    fit(model, TASK, data.load("spiral-0.02", steps=4), config, seed=seed, progress=False)
    return model


@pytest.mark.parametrize("own_draws", [True, False])
def test_every_step_of_every_epoch_draws_other_numbers(own_draws: bool) -> None:
    drawn = note(own_draws).drawn
    assert len(drawn) == 3 * data.load("spiral-0.02", steps=4).train.training_steps(40)
    assert len(drawn) > 6
    assert len(set(drawn)) == len(drawn)
    assert drawn == note(own_draws).drawn
    assert not set(drawn) & set(note(own_draws, seed=1).drawn)


def test_what_a_step_draws_does_not_hang_on_the_steps_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a run that goes on after an interruption would draw other numbers."""
    whole = note().drawn
    real = loop._shares

    def without_the_first(part: Any, config: TrainConfig, passes: range, *rest: Any) -> Iterator[Share]:
        shares = list(real(part, config, passes, *rest))
        return iter(shares if passes.start else shares[:1])

    monkeypatch.setattr(loop, "_shares", without_the_first)
    steps = len(whole) // 3
    assert note().drawn == [whole[0], *whole[steps:]]


@pytest.mark.parametrize("drop_fraction", [0.0, 0.3])
def test_every_epoch_is_asked_for_by_its_number(drop_fraction: float, monkeypatch: pytest.MonkeyPatch) -> None:
    splits = data.load("spiral-0.02", steps=4)
    asked: list[tuple[Any, ...]] = []
    real = type(splits.train).training_batches

    def noted(self: Any, size: int, *rest: Any) -> Any:
        asked.append(rest)
        return real(self, size, rest[0])

    monkeypatch.setattr(type(splits.train), "training_batches", noted)
    note(drop_fraction=drop_fraction)
    assert asked == [(epoch, drop_fraction) if drop_fraction else (epoch,) for epoch in range(3)]


# --- what is asked of parts and models ---


def test_an_epoch_without_a_figure_is_beaten_by_any_that_has_one() -> None:
    def best(*values: float) -> int:
        return train.best_epoch([{TASK.monitor: value} for value in values], TASK)

    assert best(math.nan, math.nan) == 0
    assert best(math.nan, 2.0, math.nan, 1.0, 1.0) == 3
    assert best(2.0, math.nan) == 0


def test_no_epoch_before_the_earliest_is_chosen() -> None:
    def best(*values: float) -> int:
        return train.best_epoch([{TASK.monitor: value} for value in values], TASK, earliest=2)

    assert best(0.1) == 0  # as long as there are no others, the latest
    assert best(0.1, 0.2) == 1
    assert best(0.1, 0.2, 0.9) == 2
    assert best(0.1, 0.2, 0.9, 0.5, 0.7) == 3
    config = TrainConfig(epochs=9, patience=2, earliest=2)
    history = [{TASK.monitor: value} for value in (0.1, 0.2, 0.3, 0.4, 0.5)]
    assert [train.finished(history[:n], TASK, config) for n in range(1, 6)] == [False, False, False, False, True]


def test_a_run_keeps_the_weights_of_an_epoch_that_may_be_chosen() -> None:
    _, result = short_run(epochs=4, earliest=2, lr=0.0, patience=None)  # all are alike, so it would be the first
    assert train.best_epoch(result.history, TASK) == 0
    assert result.best_epoch == 2
    chosen = result.history[result.best_epoch][TASK.monitor]
    assert result.validation[TASK.monitor] == pytest.approx(chosen)


def test_parts_are_asked_to_drop_some_only_if_some_are_to_be_dropped() -> None:
    splits = data.load("spiral-0.02", seed=3, steps=1)
    asked: list[tuple[Any, ...]] = []

    class Watched:
        def __getattr__(self, name: str) -> Any:
            return getattr(splits.train, name)

        def __len__(self) -> int:
            return len(splits.train)

        def training_batches(self, size: int, epoch: int, *drop: float) -> Iterator[IrregularBatch]:
            asked.append((size, epoch, *drop))
            return splits.train.training_batches(size, epoch)

    for drop in (0.0, 0.3):
        config = TrainConfig(epochs=1, batch_size=9, device="cpu", drop_fraction=drop)
        fit(LFormer(CONFIG), TASK, replace(splits, train=Watched()), config, progress=False)
    assert asked == [(9, 0), (9, 0, 0.3)]


class Repeats(nn.Module):
    """Says the same everywhere; has nothing to learn."""

    def __init__(self, buffer: bool) -> None:
        super().__init__()
        self.register_buffer("answer", torch.tensor([0.5, 0.5]) if buffer else None)

    def forward(self, batch: IrregularBatch) -> Tensor:
        assert batch.query_times is not None
        answer = torch.full((2,), 0.5) if self.answer is None else self.answer
        return answer.expand(*batch.query_times.shape, 2)


@pytest.mark.parametrize("buffer", [True, False])
def test_a_model_without_parameters_is_evaluated(buffer: bool) -> None:
    part = data.load("spiral-0.02", seed=3).test
    assert 0 < evaluate(Repeats(buffer), TASK, part)["mae"] < 1
    assert len(predict(Repeats(buffer), TASK, part)) == len(part)


def test_the_trainer_imports_torch_numpy_and_rich_alone() -> None:
    heavy = "pandas", "scipy", "sklearn", "pytorch_lightning", "safetensors", "typer", "filelock", "tensorboard"
    code = f"import sys, lformer.train; print(sorted(sys.modules.keys() & {set(heavy)}))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


# --- on a GPU ---


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_model_is_tested_on_the_gpu_that_trained_it_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    evaluate = loop.evaluate

    def watched(model: LFormer, *arguments: Any) -> dict[str, float]:
        seen.append((next(model.parameters()).device.type, torch.get_float32_matmul_precision()))
        return evaluate(model, *arguments)

    monkeypatch.setattr(loop, "evaluate", watched)
    model, _ = short_run(epochs=1, device="gpu")
    assert set(seen) == {("cuda", "high")}
    assert next(model.parameters()).device.type == "cpu"


def test_a_clock_may_be_kept() -> None:
    splits = data.load("spiral-0.02", points=30)
    model = LFormer(LFormerConfig(inputs=2, outputs=2, answer="query", width=8, heads=1, depth=1))
    model.rows.interval.fill_(7.0)
    task = tasks.for_splits(splits)
    for clock, kept in (("kept", True), ("fitted", False)):
        config = TrainConfig(epochs=1, batch_size=200, device="cpu", clock=clock)  # type: ignore[arg-type]
        fit(model, task, splits, config, progress=False)
        assert (float(model.rows.interval) == 7.0) == kept
