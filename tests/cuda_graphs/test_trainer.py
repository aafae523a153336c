"""The trainer by replay: the run that ordinary steps give, on ragged data, from few shapes."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from lformer import data, tasks
from lformer.batch import Source
from lformer.cuda_graphs import CapturedAnswers, CapturedStep, RecordingError, recording
from lformer.cuda_graphs.shapes import rounded_up
from lformer.evaluate import answered as answered_by
from lformer.evaluate import evaluate
from lformer.nn import LFormer, LFormerConfig
from lformer.panel import Panel
from lformer.parts import PanelPart, Spec, Splits, Targets
from lformer.resident import Selection
from lformer.train import Report, Result, TrainConfig, distributed, fit, loop, placing, seeded
from lformer.train.distributed import World
from lformer.train.measuring import Measuring
from lformer.train.stepping import TrainingStep
from lformer.train.updating import DeviceUpdate

SERIES = 36


def ragged(at: str) -> Splits[PanelPart]:
    """Uneven times, 3 to 40 rows, holes; targets of series, rows or queries."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(3, 41, SERIES)
    times = [np.cumsum(rng.exponential(1.0, n)) for n in lengths]
    values = [np.where(rng.random((n, 2)) < 0.2, np.nan, rng.standard_normal((n, 2))) for n in lengths]
    panel = Panel.from_list(list(zip(times, values, strict=True)))
    if at == "series":
        targets = Targets(values=rng.standard_normal((SERIES, 1)).astype(np.float32), at="series")
    elif at == "rows":
        targets = Targets(values=rng.standard_normal((lengths.sum(), 1)).astype(np.float32), at="rows")
    else:
        asked = rng.integers(1, 20, SERIES)
        targets = Targets(
            values=rng.standard_normal((asked.sum(), 1)).astype(np.float32), at="queries",
            times=rng.random(asked.sum()) * 30, first=np.cumsum(asked) - asked, lengths=asked,
        )  # fmt: skip
    parts = [PanelPart(panel[members], targets, members, seed=5) for members in np.split(np.arange(SERIES), [24, 30])]
    return Splits("ragged", *parts, spec=Spec(inputs=2, outputs=1, answer=TASKS[at].answer))


TASKS = {"series": tasks.regress(), "rows": tasks.regress_points(1), "queries": tasks.records("x", 1, "query")}


def run(
    at: str, folder: Path | None = None, dropout: float = 0.0, report: Report | None = None, **changes: object
) -> tuple[LFormer, Result]:
    task = TASKS[at]
    with seeded(2):
        model = LFormer(LFormerConfig(inputs=2, outputs=1, answer=task.answer, width=32, heads=2, dropout=dropout))
    options: dict[str, object] = {"epochs": 4, "batch_size": 4, "device": "cpu", "clip": 1.0}
    config = TrainConfig(**options | changes)
    return model, fit(model, task, ragged(at), config, folder=folder, progress=False, report=report)


def require_same_run(one: Result, other: Result, tolerance: float) -> None:
    assert [row["loss"] for row in one.history] == pytest.approx([row["loss"] for row in other.history], rel=tolerance)
    for name, value in one.metrics.items():
        assert value == pytest.approx(other.metrics[name], rel=tolerance)


@pytest.mark.parametrize("at", ["series", "rows", "queries"])
def test_a_replayed_run_is_the_ordinary_one(recorded: list[tuple[int, ...]], at: str) -> None:
    _, replayed = run(at)
    shapes = len(recorded)
    _, ordinary = run(at, replay=False)
    assert 0 < shapes < 20
    assert all(rows == rounded_up(rows) for _, rows, _ in recorded)
    assert len(recorded) == shapes
    require_same_run(replayed, ordinary, 1e-4)


@pytest.mark.parametrize("at", ["series", "rows", "queries"])
def test_series_that_lie_on_the_device_are_gathered_within_the_graph(
    recorded: list[tuple[int, ...]], answered: list[tuple[int, ...]], at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, expected = run(at)
    shapes, validated = list(recorded), list(answered)
    assert validated
    recorded.clear()
    answered.clear()
    kinds: set[type] = set()
    step = CapturedStep.__call__

    def watched(self: CapturedStep, batch: Source) -> torch.Tensor:
        kinds.add(type(batch))
        return step(self, batch)

    monkeypatch.setattr(CapturedStep, "__call__", watched)
    monkeypatch.setattr(placing, "free_memory", lambda device: 2**30)
    _, resident = run(at)
    assert kinds == {Selection}
    assert set(recorded) == set(shapes)
    assert answered == validated
    require_same_run(resident, expected, 1e-6)


def test_a_validation_is_recorded_as_long_as_there_is_room(recorded: list[tuple[int, ...]]) -> None:
    """A graph that made room for the next one would be gone when its batch comes again."""
    model = LFormer(LFormerConfig(inputs=2, outputs=1, width=32, heads=2)).eval()
    answers = CapturedAnswers(model, partial(answered_by, TASKS["series"]), graphs=2)
    batches = list(ragged("series").train.batches(4))
    with torch.no_grad():
        expected = [model(batch) for batch in batches]
        for _ in range(4):
            found = [answers(batch)[1].clone() for batch in batches]  # the batch and its answer
    torch.testing.assert_close(found, expected)
    assert len({batch.values.shape for batch in batches}) > 2
    assert len(answers._graphs._held) == 2


@pytest.mark.parametrize("at", ["series", "rows", "queries"])
def test_a_validation_by_replay_has_the_figures_of_an_ordinary_one(
    recorded: list[tuple[int, ...]], answered: list[tuple[int, ...]], at: str
) -> None:
    """From the answers to what each metric keeps; no answer is added, as some metrics are about the first half."""
    task, part = TASKS[at], ragged(at).train
    model = LFormer(LFormerConfig(inputs=2, outputs=1, answer=task.answer, width=32, heads=2)).double()
    world = World(torch.device("cpu"))
    measure = Measuring(model, task, world, replay=True)
    expected = evaluate(model, task, part, 4)
    for _ in range(3):
        assert distributed.evaluate(model, task, part, 4, world, measure) == pytest.approx(expected, rel=1e-12)
    assert answered
    shapes = {batch.values.shape[1] for batch in part.batches(4)}
    assert {rows for _, rows, _ in answered} == ({rounded_up(rows) for rows in shapes} if at != "rows" else shapes)
    measure.clear()
    assert measure.recorded is None


def test_a_part_that_validates_and_tests_is_evaluated_once_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of estimators; else the test part is evaluated once, at the end."""
    seen: list[object] = []

    def watched(model: object, task: object, part: object, *more: object) -> dict[str, float]:
        seen.append(part)
        return distributed.evaluate(model, task, part, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "evaluate", watched)
    splits = ragged("series")
    model = LFormer(LFormerConfig(inputs=2, outputs=1, width=32, heads=2))
    for test, precision, expected in (
        (splits.test, "tf32", [splits.validation] * 2 + [splits.test]),
        (splits.validation, "tf32", [splits.validation] * 2),
        (splits.validation, "bf16", [splits.validation] * 3),  # the final figures are those of float32
    ):
        seen.clear()
        config = TrainConfig(epochs=2, batch_size=4, device="cpu", precision=precision)  # type: ignore[arg-type]
        result = fit(model, TASKS["series"], replace(splits, test=test), config, progress=False)
        assert seen == expected
        same = evaluate(model, TASKS["series"], splits.validation, 4)
        assert result.validation == pytest.approx(same, rel=1e-6)


def test_a_run_that_was_interrupted_ends_where_it_would_have(recorded: list[tuple[int, ...]], tmp_path: Path) -> None:
    def stop(row: dict[str, float]) -> None:
        if row["epoch"] == 1:
            raise InterruptedError

    whole, expected = run("series", dropout=0.2)
    with pytest.raises(InterruptedError):
        run("series", tmp_path, dropout=0.2, report=stop)
    resumed, result = run("series", tmp_path, dropout=0.2)
    assert result.history == expected.history
    for a, b in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_step_that_cannot_be_recorded_is_an_ordinary_one_and_the_run_says_so(
    recorded: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RecordingError("LFormer cannot be recorded")

    monkeypatch.setattr(recording, "record", refuse)
    with (
        pytest.warns(UserWarning, match="steps are not replayed: LFormer cannot be recorded"),
        pytest.warns(UserWarning, match="validations are not replayed: LFormer cannot be recorded"),
    ):
        _, refused = run("series")
    _, ordinary = run("series", replay=False)
    require_same_run(refused, ordinary, 1e-4)


def test_long_batches_and_models_that_do_not_allow_it_are_not_recorded(
    recorded: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lformer.train.gradients.LAUNCH_BOUND", 4 * 20)
    run("series")
    assert max(size * rows for size, rows, _ in recorded) <= 4 * 20
    recorded.clear()
    monkeypatch.setattr(LFormer, "recordable", False)
    run("series")
    assert recorded == []


@pytest.mark.parametrize(("size", "replay", "expected"), [(1, True, True), (2, True, False), (1, False, False)])
@pytest.mark.usefixtures("recorded")
def test_one_process_alone_records(size: int, replay: bool, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several would have to exchange their gradients within the step."""
    monkeypatch.setattr("lformer.train.gradients.DistributedDataParallel", lambda module, **options: module)
    model = LFormer(LFormerConfig(inputs=2, outputs=1, width=32, heads=2))
    world = World(torch.device("cpu"), rank=0, size=size)
    step = TrainingStep(model, TASKS["series"], world, TrainConfig(replay=replay), total=10)
    assert (step.recorded is not None) == expected
    assert isinstance(step.update, DeviceUpdate)  # also of those that do not record
    step.clear()
    assert step.recorded is None


def test_a_run_leaves_no_gradients_behind(recorded: list[tuple[int, ...]]) -> None:
    """Those of a graph lie in its memory."""
    model, _ = run("series")
    assert all(parameter.grad is None for parameter in model.parameters())


# --- on a GPU ---

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.gpu
@on_gpu
@pytest.mark.usefixtures("ordinary_kernels")
@pytest.mark.parametrize("at", ["series", "rows", "queries"])
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_on_a_gpu_a_replayed_run_is_the_ordinary_one(at: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    replays: list[bool] = []
    step = CapturedStep.__call__

    def watched(self: CapturedStep, batch: object) -> torch.Tensor:
        loss = step(self, batch)
        replays.append(self.captured(batch))
        return loss

    monkeypatch.setattr(CapturedStep, "__call__", watched)
    _, replayed = run(at, device="gpu", precision=precision, epochs=6)
    assert sum(replays) > len(replays) / 3
    count = len(replays)
    _, ordinary = run(at, device="gpu", precision=precision, epochs=6, replay=False)
    assert len(replays) == count
    require_same_run(replayed, ordinary, 0.02 if precision == "tf32" else 0.1)


@pytest.mark.gpu
@on_gpu
@pytest.mark.usefixtures("ordinary_kernels")
def test_on_a_gpu_the_graphs_are_gone_after_a_run() -> None:
    splits = data.load("spiral-0.02", seed=3, steps=10)
    task = tasks.for_splits(splits)

    def left() -> int:
        model = LFormer(LFormerConfig(inputs=2, outputs=2, answer=task.answer))
        fit(model, task, splits, TrainConfig(epochs=2, device="gpu"), progress=False)
        del model
        torch.cuda.empty_cache()
        return torch.cuda.memory_allocated()

    before = left()  # with what cuBLAS keeps for its streams
    assert left() - before < 2**20
