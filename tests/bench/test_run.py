"""Cells and grids: done once, resumed after a kill, never half written, and honest about what failed."""

import errno
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import toy
from filelock import FileLock
from test_cli import call

from lformer import data, tasks, train
from lformer.baselines import LastValue, NaiveConfig
from lformer.bench import grid, records, tables
from lformer.bench import run as module
from lformer.bench.engine import ENGINES, Outcome, Settings
from lformer.bench.records import Cell, RecordError
from lformer.bench.run import BusyError, run
from lformer.evaluate import evaluate

ONE = Cell(dataset="spiral-0.02", task="trajectory", epochs=1)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """One finished cell."""
    root = tmp_path_factory.mktemp("records")
    return root, run(ONE, root, device="cpu", progress=False)


def test_a_record_says_all_there_is_to_know(done: tuple[Path, dict[str, Any]]) -> None:
    root, record = done
    assert records.read(ONE.path(root)) == json.loads(json.dumps(record))
    assert ONE.path(root) == root / "spiral-0.02" / "trajectory-1epochs" / "lformer" / "seed42.json"
    assert record["status"] == "done"
    assert record["smoke"] is True
    assert record["partial"] == ""
    assert record["parameters"] == 14_122
    assert len(record["history"]) == record["epochs"] == 1
    assert record["metrics"]["mae"] > 0
    assert list(record["printed"].items()) == [(n, 100) for n in record["metrics"] if n != "mae"]
    assert record["at_once"] is False
    assert record["seconds"] > 0
    assert record["series_per_second"] > 0
    assert record["peak_bytes"] > 2**20
    assert len(record["data"]) == 16
    assert record["versions"].keys() >= {"lformer", "commit", "torch", "python", "numpy", "machine"}
    assert record["config"]["train"]["lr"] == 0.02
    assert record["config"]["model"]["inputs"] == 2
    assert record["config"]["data"] == {"asked": 75}
    assert not ONE.folder(root).exists()  # its checkpoints are gone


def test_a_finished_cell_is_left_alone(done: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    root, record = done
    monkeypatch.setattr(module, "_run", lambda *args: pytest.fail("it was run again"))
    assert run(ONE, root) == json.loads(json.dumps(record))
    outcomes = list(grid.run([ONE], Settings(root=root)))
    assert [(o.cell, o.status) for o in outcomes] == [(ONE, "skipped")]


def test_a_damaged_record_is_set_aside_and_its_cell_run_again(
    done: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, record = done
    path = ONE.path(tmp_path)
    path.parent.mkdir(parents=True)
    monkeypatch.setattr(module, "_run", lambda *args: record)
    for text in ("{", "[]", '{"cell": {}}', '{"cell": {"dataset": 1, "x": 2}, "status": "done", "metrics": {}}'):
        path.write_text(text)
        with pytest.raises(RecordError, match=r"seed42.json is not a record .* Delete it"):
            records.read_all(tmp_path)
        run(ONE, tmp_path)
        assert records.read(path)["status"] == "done"
        assert path.with_suffix(".json.damaged").read_text() == text


def test_a_full_disk_is_an_error_and_touches_no_earlier_record(
    done: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, record = done
    before = {path: path.read_bytes() for path in root.rglob("*.json")}

    def full(part: Path, text: str) -> None:
        part.write_bytes(text.encode()[:50])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(part))

    monkeypatch.setattr(records, "_write_text", full)
    monkeypatch.setattr(module, "_run", lambda cell, *args: record | {"cell": records.cell_fields(cell)})
    with pytest.raises(OSError, match="No space left on device"):
        run(replace(ONE, seed=43), root)
    assert {path: path.read_bytes() for path in root.rglob("*.json")} == before
    assert not list(root.rglob("*.part"))


def test_a_cell_that_another_has_is_busy(tmp_path: Path) -> None:
    lock = ONE.folder(tmp_path).with_suffix(".lock")
    lock.parent.mkdir(parents=True)
    with FileLock(lock), pytest.raises(BusyError, match="another process is at work"):
        run(ONE, tmp_path)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), "OOM"),
        (MemoryError(), "OOM"),
        (train.DivergedError("the loss became nan", [{"epoch": 0, "loss": 1.0}]), "collapse"),
    ],
)
def test_what_the_paper_prints_instead_of_a_figure_is_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, status: str
) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(train, "fit", fail)
    record = run(ONE, tmp_path, device="cpu", progress=False)
    assert (record["status"], record["metrics"]) == (status, {})
    assert records.read(ONE.path(tmp_path))["status"] == status
    if status == "collapse":
        assert record["history"] == [{"epoch": 0, "loss": 1.0}]


def test_a_time_limit_gives_out_of_time(tmp_path: Path) -> None:
    record = run(ONE, tmp_path, device="cpu", progress=False, time_limit=0.0)
    assert record["status"] == "OOT"
    assert "stopped after 0 s, in epoch 0" in record["error"]


def start(cell: Cell, root: Path) -> subprocess.Popen[str]:
    task = {"cell": records.cell_fields(cell), "root": str(root), "device": "cpu"}
    command = [sys.executable, "-m", "lformer.bench.worker", json.dumps(task)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)


@pytest.mark.slow
def test_a_killed_run_resumes_and_ends_where_it_would_have(tmp_path: Path) -> None:
    cell = replace(ONE, epochs=3)
    ended: dict[str, dict[str, Any]] = {}
    for name, how in (("whole", None), ("killed", signal.SIGKILL), ("terminated", signal.SIGTERM)):
        root = tmp_path / name
        if how is not None:
            with start(cell, root) as worker:
                assert worker.stdout is not None
                lines = [worker.stdout.readline(), worker.stdout.readline()]  # after the second of three epochs
                worker.send_signal(how)
            assert worker.returncode != 0
            assert all(json.loads(line)["status"] == "running" for line in lines)
            assert not cell.path(root).exists()
            assert (cell.folder(root) / "last.ckpt").exists()
            torch.load(cell.folder(root) / "last.ckpt", weights_only=True)
        with start(cell, root) as worker:
            assert worker.stdout is not None
            said = [json.loads(line) for line in worker.stdout]
        assert said[-1]["status"] == "done"
        assert len(said) - 1 in ((3,) if how is None else (1, 2))  # epochs that were left to do
        ended[name] = records.read(cell.path(root))
    for name in ("killed", "terminated"):
        assert ended[name]["metrics"] == ended["whole"]["metrics"]
        assert ended[name]["history"] == ended["whole"]["history"]
        assert ended[name]["best_epoch"] == ended["whole"]["best_epoch"]


@pytest.mark.slow
def test_two_runners_on_one_folder_do_no_cell_twice_and_lose_no_record(tmp_path: Path) -> None:
    cells = [replace(ONE, seed=seed) for seed in (1, 2)]
    settings = Settings(root=tmp_path, device="cpu")
    with ThreadPoolExecutor(2) as pool:
        runs = [f.result() for f in [pool.submit(lambda: list(grid.run(cells, settings))) for _ in range(2)]]
    for cell in cells:
        assert records.read(cell.path(tmp_path))["status"] == "done"
    trained = [o for outcomes in runs for o in outcomes if o.status == "running"]
    assert len(trained) == len(cells)  # one epoch of each, by one runner or the other
    assert {o.status for outcomes in runs for o in outcomes} <= {"running", "done", "busy", "skipped"}


def test_a_failure_is_listed_and_the_rest_of_the_grid_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LFORMER_DATA", str(tmp_path / "nothing"))
    options = ("--seeds", "5", "--epochs", "1", "--device", "cpu", "--out", str(tmp_path))
    result = call("bench", "run", "--dataset", "scp1,spiral-0.02", *options)
    text = " ".join(result.output.split())
    assert result.exit_code == 1, result.output
    assert "1 of 2 cells failed" in text
    assert "scp1 classify lformer seed 5" in text
    assert "lformer data fetch scp1" in text
    assert [r["cell"]["dataset"] for r in records.read_all(tmp_path)] == ["spiral-0.02"]


def test_the_engine_reports_a_process_that_dies_without_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    (outcome,) = ENGINES["local"]([ONE], Settings(root=tmp_path, device="cpu"), 1)
    assert outcome == Outcome(ONE, "failed", "exit code 1")
    monkeypatch.setattr(sys, "executable", "/does/not/exist")
    (outcome,) = ENGINES["local"]([ONE], Settings(root=tmp_path, device="cpu"), 1)
    assert outcome.status == "failed"
    assert "FileNotFoundError" in outcome.note


def test_cells_are_checked_before_anything_runs() -> None:
    wanted: dict[str, Any] = {"datasets": ["physionet"], "models": ["lformer"], "seeds": [42]}
    assert [c.task for c in grid.cells(**wanted)] == ["extrapolate"]
    both = grid.cells(**wanted | {"datasets": ["physionet", "ushcn"], "tasks": ["reconstruct", "extrapolate"]})
    assert [(c.dataset, c.task) for c in both] == [
        (name, task) for name in ("physionet", "ushcn") for task in ("reconstruct", "extrapolate")
    ]
    assert [c.task for c in grid.cells(**wanted | {"datasets": ["spiral-2"]})] == ["trajectory"]
    assert [c.label for c in grid.cells(**wanted | {"ablations": ["fixed_mu"]})] == ["lformer fixed_mu"]
    two = {"models": ["lformer", "gru"], "variants": ["observed", "persistence"]}
    assert [c.label for c in grid.cells(**wanted | two)] == [
        "lformer observed", "lformer persistence", "gru observed", "gru persistence",
    ]  # fmt: skip
    simple = {"models": ["last-value"]}
    for change, says in (
        ({"datasets": ["iris"]}, "unknown data set 'iris'"),
        ({"models": ["lstm"]}, "unknown model 'lstm'"),
        ({"tasks": ["classify-points"]}, "physionet has none of the tasks"),
        ({"split": "subject"}, "split of physionet must be one of published"),
        ({"split": "folds"}, "split='folds' of physionet is for classify only"),
        ({"variants": ["mine"]}, "unknown variant 'mine'"),
        ({"variants": ["carried"], "ablations": ["fixed_mu"]}, "ablations are of the paper's recipe"),
        ({"variants": ["persistence"], "tasks": ["classify"]}, "answers to classify are not in their units"),
        ({"variants": ["carried"], "datasets": ["pendulum"]}, "takes one frame per row"),
        (simple | {"variants": ["carried"]}, "last-value is fitted at once"),
        (simple | {"tasks": ["classify"]}, r"as many outputs as inputs"),
        ({"scaling": "loud"}, "scaling of physionet must be one of"),
        ({"ablations": ["mu"]}, "unknown ablation 'mu'"),
    ):
        with pytest.raises(ValueError, match=says):
            grid.cells(**wanted | change)
    with pytest.raises(ValueError, match="seeds are numbers and ranges"):
        grid.seeds("42..46")
    with pytest.raises(ValueError, match="unknown engine 'slurm'; there are local"):
        list(grid.run([ONE], Settings(root=Path()), "slurm"))


def test_a_variant_is_trained_by_its_own_recipe_and_kept_apart(tmp_path: Path) -> None:
    cell = replace(ONE, variant="carried")
    assert cell.path(tmp_path) == tmp_path / "spiral-0.02" / "trajectory-1epochs" / "lformer-carried" / "seed42.json"
    record = run(cell, tmp_path, device="cpu", progress=False)
    assert record["config"]["model"]["rows"] == "carried"
    assert records.finished(ONE, tmp_path) is None
    assert records.read_all(tmp_path)[0]["cell"]["variant"] == "carried"
    assert str(cell) == "spiral-0.02 trajectory lformer carried seed 42"


def test_the_cell_of_an_older_record_is_by_the_papers_recipe(tmp_path: Path) -> None:
    cell = records.cell_fields(ONE)
    del cell["variant"]
    path = ONE.path(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"cell": cell, "status": "done", "metrics": {}}))
    assert records.read(path)["cell"] == records.cell_fields(ONE)
    assert records.finished(ONE, tmp_path) is not None
    assert records.finished(replace(ONE, variant="carried"), tmp_path) is None


def test_what_is_fitted_at_once_is_fitted_on_the_training_part_and_has_a_record_like_others(
    done: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, str]] = []
    fit = LastValue.fit

    def spy(self: LastValue, part: Any, task: Any) -> None:
        seen.append((len(part), task.name))
        fit(self, part, task)

    monkeypatch.setattr(LastValue, "fit", spy)
    monkeypatch.setattr(train, "fit", lambda *args, **options: pytest.fail("it was trained"))
    cell = Cell(dataset="spiral-0.02", task="trajectory", model="last-value")
    record = run(cell, tmp_path, device="cpu", progress=False)
    assert seen == [(170, "trajectory")]
    assert records.read(cell.path(tmp_path)) == json.loads(json.dumps(record))
    assert record.keys() == done[1].keys()
    assert (record["status"], record["epochs"], record["history"], record["at_once"]) == ("done", 0, [], True)
    assert (record["parameters"], record["config"]["train"]) == (0, {})
    assert record["series_per_second"] > 0
    splits = data.load("spiral-0.02", asked=75)
    model = LastValue(NaiveConfig(inputs=2, outputs=2, answer="query"))
    fit(model, splits.train, tasks.for_splits(splits))
    for found, part in (("metrics", splits.test), ("validation", splits.validation)):
        assert record[found] == evaluate(model, tasks.for_splits(splits), part)


def test_a_new_data_set_reaches_a_table_with_nothing_but_its_line_in_the_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(data.DATASETS, "toy", toy.dataset())
    monkeypatch.setenv("LFORMER_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("LFORMER_CACHE", str(tmp_path / "cache"))
    (tmp_path / "toy-all.txt").write_text(toy.original(range(toy.SERIES)))
    result = call("data", "pack", "toy", str(tmp_path / "toy-all.txt"))
    assert result.exit_code == 0, result.output
    for cell in grid.cells(datasets=["toy"], models=["lformer", "gru", "boosting"], seeds=[42]):
        run(replace(cell, epochs=1), tmp_path / "records", device="cpu", progress=False)
    (table,) = tables.result_tables(records.read_all(tmp_path / "records"))
    (line,) = [x for x in table.lines if x.measure.dataset == "toy"]
    assert line.metric == "accuracy ↑ (%)"
    shown = {name: entry.ours for name, entry in line.entries.items() if entry.ours is not None}
    assert {name: ours.kind for name, ours in shown.items()} == {
        "gru": "paper", "boosting": "simple", "lformer": "paper"
    }  # fmt: skip
    assert all(0 <= ours.mean <= 100 for ours in shown.values())


def test_a_table_is_made_from_the_records(done: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    root, _ = done
    for form, mark in (("markdown", "| "), ("latex", "tabular"), ("csv", ",")):
        result = call("bench", "table", "--out", str(root), "--format", form)
        assert result.exit_code == 0, result.output
        assert mark in result.output
    assert "must be markdown, latex or csv" in call("bench", "table", "--out", str(root), "--format", "pdf").output
    assert "no records in" in call("bench", "table", "--out", str(tmp_path / "none")).output
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n<!-- tables -->\n<!-- /tables -->\n")
    result = call("bench", "table", "--out", str(root), "--write", str(page))
    assert result.exit_code == 0, result.output
    assert "| spiral-0.02 | MAE, interpolation ↓ (× 1e-2) |" in page.read_text()
    before = page.read_text()
    refused = call("bench", "table", "--out", str(root), "--write", str(page), "--format", "csv")
    assert "--write fills a Markdown page" in refused.output
    assert page.read_text() == before


def test_figures_are_drawn_from_what_the_records_allow(done: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    _, record = done
    whole = json.loads(json.dumps(record)) | {"smoke": False}
    for changes in ({}, {"ablation": "no_normalisation"}, {"model": "gru"}, {"variant": "carried"}):
        records.write(whole | {"cell": whole["cell"] | {"epochs": None} | changes}, tmp_path / "records")
    result = call("bench", "figures", "--out", str(tmp_path / "records"), "--to", str(tmp_path / "to"))
    assert result.exit_code == 0, result.output
    names = sorted(path.name for path in (tmp_path / "to").iterdir())
    assert names == ["dynamics-spiral-0.02-trajectory.png", "pareto-spiral-0.02-trajectory.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in (tmp_path / "to").iterdir())
    (tmp_path / "none").mkdir()
    assert "Nothing to draw" in call("bench", "figures", "--out", str(tmp_path / "none"), "--to", str(tmp_path)).output


def test_the_list_names_models_sets_ablations_and_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(data.DATASETS, "toy", toy.dataset())
    text = call("bench", "list").output
    for name in (
        "lformer", "gru", "transformer", "last-value", "physionet", "spiral-0.02", "toy", "no_normalisation",
        "persistence", "best",
    ):  # fmt: skip
        assert name in text
