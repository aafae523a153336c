"""Studies: what may be chosen is valid for every model, validation data alone decide, interruptions change nothing."""

import csv
import json
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_cli import call

from lformer import data
from lformer.bench import records, tuning
from lformer.bench.engine import ENGINES, Outcome, Settings, ending
from lformer.bench.models import MODELS, build
from lformer.bench.recipes import recipe, stand_in
from lformer.bench.records import Cell, Trial
from lformer.bench.run import run
from lformer.bench.tuning import Choice, Range, Space, Study, changes, current, space
from lformer.data import DATASETS

TRAINED = [name for name, entry in MODELS.items() if not entry.at_once]
CELLS = [(name, task) for name in DATASETS for task in DATASETS[name].card.tasks]
ONE = Cell(dataset="spiral-0.02", task="trajectory", epochs=1)
SETTINGS = Settings(root=Path(), device="cpu")


def drawn(found: Space, rng: random.Random) -> dict[str, Any]:
    return {
        name: rng.choice(kind.options) if isinstance(kind, Choice) else rng.uniform(kind.low, kind.high)
        for name, kind in found.items()
    }


def corner(found: Space, pick: Any) -> dict[str, Any]:
    """The smallest or the largest of all."""
    return {
        name: pick(kind.options) if isinstance(kind, Choice) else pick(kind.low, kind.high)
        for name, kind in found.items()
    }


@pytest.mark.parametrize("model", TRAINED)
def test_whatever_is_chosen_is_a_valid_configuration(model: str) -> None:
    rng = random.Random(0)
    for dataset, task in CELLS:
        plan, spec = recipe(dataset, task, model=model), stand_in(task)
        found = space(plan, spec)
        assert {"train.lr", "train.epochs", "model.width", "model.depth"} <= found.keys()
        assert ("model.dropout" in found) == hasattr(plan.config(spec), "dropout")
        for chosen in (corner(found, min), corner(found, max), *(drawn(found, rng) for _ in range(3))):
            tried = plan.changed(**changes(plan, chosen))
            assert current(tried, spec, found) == chosen
        own = changes(plan, current(plan, spec, found))
        assert plan.changed(**own).config(spec) == plan.config(spec)  # the recipe itself is one of them
        assert plan.changed(**own).train == plan.train
    for pick in (min, max):
        build(model, plan.changed(**changes(plan, corner(found, pick))).config(spec))


def test_another_schedule_brings_what_goes_with_it() -> None:
    plan = recipe("scp1")  # constant
    falling = plan.changed(**changes(plan, {"train.schedule": "cosine"})).train
    assert (falling.schedule, falling.warmup, falling.patience) == ("cosine", 0.05, None)
    plan = recipe("spiral-2")  # cosine
    level = plan.changed(**changes(plan, {"train.schedule": "constant"})).train
    assert (level.schedule, level.warmup, level.patience) == ("constant", 0.0, 20)


def test_what_a_recipe_has_is_in_its_space() -> None:
    assert Range(1e-4, 1e-2).including(1e-5) == Range(1e-5, 1e-2)
    assert Choice((1, 2)).including(3) == Choice((1, 2, 3))
    assert Choice((1, 2)).including(2) == Choice((1, 2))
    with pytest.raises(ValueError, match="last-value is fitted at once"):
        space(recipe("spiral-2", model="last-value"), stand_in("trajectory"))


def test_a_trial_lies_apart_from_the_cells_of_tables(tmp_path: Path) -> None:
    trial = Trial(**records.cell_fields(ONE), number=7, changes={"train": {"lr": 0.1}})
    assert trial.path(tmp_path) == tmp_path / "trials" / "0007.json"
    records.write({"cell": records.cell_fields(trial), "status": "done", "metrics": {}}, tmp_path)
    assert records.finished(trial, tmp_path) is not None
    assert records.finished(replace(trial, changes={"train": {"lr": 0.2}}), tmp_path) is None
    assert records.read_all(tmp_path) == []
    assert str(trial) == "spiral-0.02 trajectory lformer seed 42 trial 7"


def test_without_optuna_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    result = call("bench", "tune", "--dataset", "spiral-2", "--out", str(tmp_path))
    assert result.exit_code == 2
    assert 'pip install "lformer[tune]"' in " ".join(result.output.split())


# --- with Optuna ---


class Untouchable:
    """A part of which nothing may be asked."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the test part was asked for {name}")


def here(cells: Sequence[Cell], settings: Settings, workers: int | None = None) -> Iterator[Outcome]:
    """An engine without processes of its own."""
    for cell in cells:
        yield Outcome(cell, "running")
        yield ending(cell, run(cell, settings.root, device="cpu", progress=False))


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> str:
    pytest.importorskip("optuna", reason="studies are Optuna's")
    monkeypatch.setitem(ENGINES, "here", here)
    return "here"


def test_a_study_that_was_interrupted_goes_on_and_sees_no_test_part(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(tuning.TRAINING, "train.batch_size", Choice((64, 128)))  # quick ones
    monkeypatch.setattr(tuning, "SIZES", {"model.width": Choice((8, 16)), "model.dropout": Range(0.0, 0.5)})
    load = data.load
    monkeypatch.setattr(data, "load", lambda *names, **options: replace(load(*names, **options), test=Untouchable()))
    whole = Study(ONE, tmp_path / "whole", seed=1)
    assert whole.left(3) == 3
    ended = [outcome for outcome in whole.run(SETTINGS, engine=engine, trials=3) if outcome.ended]
    assert [outcome.status for outcome in ended] == ["done"] * 3
    assert whole.left(3) == 0
    assert list(whole.run(SETTINGS, engine=engine, trials=3)) == []
    assert list(whole.run(SETTINGS, engine=engine, minutes=0.0)) == []
    assert whole.tried[0].chosen == current(whole.plan, stand_in("trajectory"), whole.space)  # the recipe comes first

    list(Study(ONE, tmp_path / "parts", seed=1).run(SETTINGS, engine=engine, trials=2))
    with closing(Study(ONE, tmp_path / "parts", seed=1).run(SETTINGS, engine=engine, trials=3)) as outcomes:
        assert next(outcomes).status == "running"  # and then it is stopped, before the third was trained
    parts = Study(ONE, tmp_path / "parts", seed=1)
    assert (len(parts.tried), parts.left(2)) == (2, 1)
    again = [outcome for outcome in parts.run(SETTINGS, engine=engine, trials=3) if outcome.ended]
    assert [getattr(outcome.cell, "number", None) for outcome in again] == [2]
    assert parts.tried == whole.tried
    with pytest.raises(ValueError, match="a study with another seed; choose another folder"):
        Study(ONE, tmp_path / "parts", seed=2)

    best = json.loads({path.name: path for path in parts.write()}["best.json"].read_text())
    values = [trial.value for trial in parts.tried]
    assert best["validation"] == {"mae": min(v for v in values if v is not None)}
    record = records.read(tmp_path / "parts" / "trials" / f"{best['trial']:04d}.json")
    assert record["metrics"] == record["validation"]
    plan = recipe("spiral-0.02").changed(**best["changes"])
    assert {name: record["config"]["train"][name] for name in best["changes"]["train"]} == best["changes"]["train"]
    assert (plan.train.lr, dict(plan.model)) == (best["recipe"]["train"]["lr"], best["recipe"]["model"])
    with (tmp_path / "parts" / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["mae"]) for row in rows] == values
    assert sum(parts.importance().values()) == pytest.approx(1.0)
    assert parts.importance().keys() == parts.space.keys()


def test_settings_without_a_figure_are_kept_away_from_and_errors_are_listed(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    statuses = iter(["collapse", "failed"])

    def fail(cells: Sequence[Cell], settings: Settings, workers: int | None = None) -> Iterator[Outcome]:
        for cell in cells:
            if (status := next(statuses)) != "failed":
                record = {"cell": records.cell_fields(cell), "status": status, "metrics": {}}
                records.write(record, settings.root)
            yield Outcome(cell, status)

    monkeypatch.setitem(ENGINES, "here", fail)
    study = Study(ONE, tmp_path)
    list(study.run(SETTINGS, engine=engine, workers=2, trials=2))
    assert [(trial.status, trial.value) for trial in study.tried] == [("collapse", None), ("failed", None)]
    assert [trial.state.name for trial in study._found.trials] == ["PRUNED", "FAIL"]
    assert study.importance() == {}
    assert sorted(path.name for path in study.write()) == ["importance.csv", "trials.csv"]


def test_the_command_runs_a_study_and_shows_it(tmp_path: Path, engine: str) -> None:
    options = ("--dataset", "spiral-0.02", "--epochs", "1", "--device", "cpu", "--out", str(tmp_path))
    with tuning.held(tmp_path):
        refused = call("bench", "tune", *options)
    assert "another process is at work on the study" in " ".join(refused.output.split())
    result = call("bench", "tune", *options, "--trials", "1", "--engine", engine)
    assert result.exit_code == 0, result.output
    assert "too few trials have different scores" in " ".join(result.output.split())
    assert (tmp_path / "best.json").exists()
    assert "for Ray clusters only, with --engine ray" in " ".join(
        call("bench", "tune", *options, "--address", "auto").output.split()
    )
    assert "one data set, task, model" in " ".join(
        call("bench", "tune", "--dataset", "physionet", "--task", "classify,extrapolate").output.split()
    )
