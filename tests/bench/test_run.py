"""Cells and grids: done once, resumed after a kill, never half written, and honest about what failed."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import toy
from filelock import FileLock, Timeout
from test_cli import call

from lformer import data, sealed, tasks, train
from lformer.baselines import LastValue, NaiveConfig
from lformer.bench import engine, grid, records, tables
from lformer.bench import run as module
from lformer.bench.engine import ENGINES, Outcome, Settings
from lformer.bench.records import Cell, RecordError, RecordWarning
from lformer.bench.run import BusyError, run
from lformer.evaluate import evaluate
from lformer.train import checkpoint

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


def damaged(record: dict[str, Any]) -> list[tuple[str, str]]:
    """Texts that are not the record of `ONE`, and what is said of them."""
    other = records.cell_fields(replace(ONE, seed=43))
    whole = sealed.json_text(record)
    nobody = {"cell": {"dataset": 1, "x": 2}, "status": "done", "metrics": {}}
    return [
        ("{", "damaged: not JSON"),
        ("[]", "damaged: it must hold an object"),
        (json.dumps(record), "damaged: it has no sha256"),
        (whole.replace('"status": "done"', '"status": "dome"'), "damaged, or was changed .*: its sha256 differs"),
        (sealed.json_text({"cell": {}}), "not a record: it has no status, metrics"),
        (sealed.json_text(nobody), "not a record: .*unexpected keyword"),
        (sealed.json_text(record | {"cell": other}), "the record of another cell, .* seed 43"),
    ]


def test_a_record_that_is_not_what_its_place_says_is_set_aside_and_its_cell_run_again(
    done: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, record = done
    path = ONE.path(tmp_path)
    path.parent.mkdir(parents=True)
    monkeypatch.setattr(module, "_run", lambda *args: record)
    for text, says in damaged(record):
        path.write_text(text)
        with pytest.raises(RecordError, match=rf"seed42\.json is {says}.* Delete it"):
            records.read_all(tmp_path)
        assert records.finished(ONE, tmp_path) is None
        assert path.read_text() == text  # only whoever holds the cell may set it aside
        with pytest.warns(RecordWarning, match=rf"seed42\.json is {says}.* set aside as seed42\.json\.damaged"):
            run(ONE, tmp_path)
        assert records.read(path)["status"] == "done"
        assert path.with_suffix(".json.damaged").read_text() == text


def test_a_copied_record_is_not_counted_for_another_cell(done: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    root, _ = done
    copies = ONE.path(tmp_path), replace(ONE, seed=43).path(tmp_path), replace(ONE, model="gru").path(tmp_path)
    for copy in copies:
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(ONE.path(root).read_bytes())
    assert records.finished(ONE, tmp_path) is not None
    assert records.finished(replace(ONE, seed=43), tmp_path) is None
    assert records.finished(replace(ONE, model="gru"), tmp_path) is None
    with pytest.raises(RecordError, match=r"gru/seed42\.json is the record of another cell"):
        records.read_all(tmp_path)


def test_what_a_killed_process_left_of_a_finished_cell_is_removed(
    done: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    records.write(done[1], tmp_path)
    path, folder = ONE.path(tmp_path), ONE.folder(tmp_path)
    for rubbish in (folder / "last.ckpt", folder / "next.ckpt.ab1.part", path.with_name("seed42.json.ab1.part")):
        rubbish.parent.mkdir(exist_ok=True)
        rubbish.touch()
    with FileLock(folder.with_suffix(".lock")):
        list(grid.run([ONE], Settings(root=tmp_path)))
        assert (folder / "last.ckpt").exists()  # whoever holds the cell is about to do it
    list(grid.run([ONE], Settings(root=tmp_path)))
    assert list(path.parent.iterdir()) == [path]


def test_a_full_disk_is_an_error_and_touches_no_earlier_record(
    done: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, record = done
    before = {path: path.read_bytes() for path in root.rglob("*.json")}

    def full(part: Path, text: str) -> None:
        part.write_bytes(text.encode()[:50])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(part))

    monkeypatch.setattr(sealed, "_fill", full)
    monkeypatch.setattr(module, "_run", lambda cell, *args: record | {"cell": records.cell_fields(cell)})
    with pytest.raises(OSError, match="No space left on device"):
        run(replace(ONE, seed=43), root)
    assert {path: path.read_bytes() for path in root.rglob("*.json")} == before
    assert not list(root.rglob("*.part"))


def test_after_a_record_that_could_not_be_written_the_next_run_ends_at_once(
    done: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(record: Any, root: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "seed42.json")

    with monkeypatch.context() as patch:
        patch.setattr(records, "write", full)
        with pytest.raises(OSError, match="No space left on device"):
            run(ONE, tmp_path, device="cpu", progress=False)
    told: list[dict[str, float]] = []
    record = run(ONE, tmp_path, device="cpu", progress=False, report=told.append)
    assert told == []
    assert (record["metrics"], record["history"]) == (done[1]["metrics"], done[1]["history"])
    assert [path.name for path in ONE.folder(tmp_path).parent.iterdir()] == ["seed42.json"]


def test_the_log_of_a_finished_cell_stays(tmp_path: Path) -> None:
    cell = replace(ONE, dataset="spiral-2")
    run(cell, tmp_path, device="cpu", progress=False, log="csv")
    assert [path.name for path in cell.folder(tmp_path).iterdir()] == ["metrics.csv"]


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
        (train.TimeLimitError("stopped after 9 s", [{"epoch": 0, "loss": 1.0}]), "OOT"),
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
    if status != "OOM":
        assert record["history"] == [{"epoch": 0, "loss": 1.0}]


def test_a_time_limit_gives_out_of_time(tmp_path: Path) -> None:
    record = run(ONE, tmp_path, device="cpu", progress=False, time_limit=0.0)
    assert record["status"] == "OOT"
    assert "stopped after 0 s, in epoch 0" in record["error"]


def test_a_step_that_does_not_end_is_out_of_time_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[records.Record] = []
    abandoned = threading.Event()

    def abandon(record: records.Record) -> None:
        told.append(record)
        abandoned.set()

    def stuck(*args: Any, **options: Any) -> None:
        assert abandoned.wait(60)
        raise KeyboardInterrupt  # here nothing ends the process, as a worker would

    monkeypatch.setattr(train, "fit", stuck)
    monkeypatch.setattr("lformer.bench.run.LAST_STEP", 0.01)
    with pytest.raises(KeyboardInterrupt):
        run(ONE, tmp_path, device="cpu", progress=False, time_limit=0.05, abandon=abandon)
    assert [record["status"] for record in told] == ["OOT"]
    assert told[0]["epochs"] == 0
    assert told[0]["seconds"] >= 0.06
    assert "in a step of epoch 0" in records.read(ONE.path(tmp_path))["error"]


def test_a_worker_leaves_a_step_that_does_not_end(tmp_path: Path) -> None:
    stuck = (
        "import time\nfrom lformer import train\nimport lformer.bench.run as run\n"
        "run.LAST_STEP = 0.01\ntrain.fit = lambda *args, **options: time.sleep(600)\n"
        "from lformer.bench.worker import main\nmain()\n"
    )
    task = {"cell": records.cell_fields(ONE), "root": str(tmp_path), "device": "cpu", "time_limit": 0.05}
    with subprocess.Popen(
        [sys.executable, "-c", stuck], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    ) as worker:  # fmt: skip
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(json.dumps(task) + "\n")
        worker.stdin.flush()
        said = [json.loads(line) for line in worker.stdout]
        assert worker.wait(60) == 0
    assert said[-1]["status"] == "OOT"
    assert records.read(ONE.path(tmp_path))["status"] == "OOT"


def start(cell: Cell, root: Path) -> subprocess.Popen[str]:
    task = {"cell": records.cell_fields(cell), "root": str(root), "device": "cpu"}
    command = [sys.executable, "-m", "lformer.bench.worker"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    worker = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=environment)
    assert worker.stdin is not None
    worker.stdin.write(json.dumps(task) + "\n")
    worker.stdin.flush()
    return worker


@pytest.mark.slow
def test_a_killed_run_resumes_and_ends_where_it_would_have(tmp_path: Path) -> None:
    cell = replace(ONE, epochs=3)
    ended: dict[str, dict[str, Any]] = {}
    for name, how in (("whole", None), ("killed", signal.SIGKILL), ("damaged", signal.SIGTERM)):
        root = tmp_path / name
        last = cell.folder(root) / "last.ckpt"
        if how is not None:
            with start(cell, root) as worker:
                assert worker.stdout is not None
                lines = [worker.stdout.readline(), worker.stdout.readline()]  # after the second of three epochs
                worker.send_signal(how)
            assert worker.returncode != 0
            assert all(json.loads(line)["status"] == "running" for line in lines)
            assert not cell.path(root).exists()
            reached = checkpoint.read(last)["epoch"]
            if name == "damaged":
                last.write_bytes(last.read_bytes()[:1000])
                reached -= 1
        with start(cell, root) as worker:
            assert worker.stdout is not None
            said = [json.loads(line) for line in worker.stdout]
            worker.wait()  # before its input is closed
        assert said[-1]["status"] == "done"
        if name == "damaged":
            warning = said.pop(0)
            assert warning["status"] == "warning"
            assert f"{last} is damaged" in warning["note"]
        assert len(said) - 1 == (3 if how is None else 2 - reached)  # epochs that were left to do
        ended[name] = records.read(cell.path(root))
    for name in ("killed", "damaged"):
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


# --- signals ---


@pytest.mark.slow
@pytest.mark.usefixtures("signals_as_in_a_terminal")
def test_workers_end_with_the_command_that_started_them_and_their_cells_go_on(tmp_path: Path) -> None:
    cell = replace(ONE, epochs=500)
    command = [sys.executable, "-c", "from lformer.cli import app; app()", "bench", "run", "--dataset", cell.dataset]
    command += ["--seeds", "42", "--epochs", "500", "--device", "cpu", "--out"]
    ways = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}
    roots = {how: tmp_path / how.name for how in ways}
    started = {
        how: subprocess.Popen([*command, str(root)], stdout=subprocess.PIPE, text=True) for how, root in roots.items()
    }
    try:
        for how, code in ways.items():
            folder = cell.folder(roots[how])
            until(lambda folder=folder: (folder / "last.ckpt").exists())
            with pytest.raises(Timeout):
                FileLock(folder.with_suffix(".lock")).acquire(timeout=0)
            started[how].send_signal(how)  # to it alone, not to its workers
            said, _ = started[how].communicate(timeout=60)
            assert started[how].returncode == code
            assert ("Stopped. Run the same command again to resume" in said) == (how is not signal.SIGKILL)
            patience = 60 if how is signal.SIGKILL else 0  # such a command cannot wait for its worker
            FileLock(folder.with_suffix(".lock")).acquire(timeout=patience).lock.release()
    finally:
        for process in started.values():
            process.kill()
            process.wait()
    for root in roots.values():
        reached, told = checkpoint.read(cell.folder(root) / "last.ckpt")["epoch"], []

        def report(row: dict[str, float], told: list[float] = told) -> None:
            told.append(row["epoch"])
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(cell, root, device="cpu", progress=False, report=report)
        assert told == [reached + 1]


def until(true: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def stub(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let a shell script be the worker of the engine."""
    path = folder / "worker.sh"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(path))


SAY = """echo '{"status": "%s", "note": "%s"}'"""
PID = "'$$'"  # of the shell, outside the quotes of the line above


def test_workers_that_do_not_end_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "GRACE", 0.2)
    stub(tmp_path, monkeypatch, f"trap '' TERM\n{SAY % ('running', PID)}\nexec sleep 60")  # it ignores SIGTERM too
    cells = [replace(ONE, seed=seed) for seed in range(3)]
    with closing(grid.run(cells, Settings(root=tmp_path, device="cpu"), workers=2)) as outcomes:
        pids = [int(next(outcomes).note) for _ in range(2)]
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_worker_ends_when_its_input_does(tmp_path: Path) -> None:
    with start(replace(ONE, epochs=500), tmp_path) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.close()
        worker.stdout.read()  # to the end: a pipe that is closed before it would end the worker otherwise
    assert worker.returncode == 143


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("kill -KILL $$", "killed, most likely because memory ran out"),
        ("kill -SEGV $$", "ended by SIGSEGV"),
        ("exit 143", "ended by SIGTERM"),
    ],
)
def test_the_engine_says_which_signal_ended_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, says: str
) -> None:
    stub(tmp_path, monkeypatch, f"{SAY % ('running', 'epoch 0')}\n{script}")
    *_, outcome = ENGINES["local"]([ONE], Settings(root=tmp_path, device="cpu"), 1)
    assert outcome.status == "failed"
    assert outcome.note == f"the process was {says}. Run again, it goes on from its last epoch."


def test_what_a_worker_warns_of_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(tmp_path, monkeypatch, f"{SAY % ('warning', 'mind the gap')}\n{SAY % ('done', '')}")
    outcomes = ENGINES["local"]([ONE], Settings(root=tmp_path, device="cpu"), 1)
    assert [(o.status, o.note) for o in outcomes] == [("warning", "mind the gap"), ("done", "")]


@pytest.mark.usefixtures("signals_as_in_a_terminal")
def test_only_the_first_signal_counts() -> None:
    cleaned: list[int] = []

    def leave(number: int) -> None:
        with engine.exit_on_signals():
            try:
                os.kill(os.getpid(), number)
            finally:
                for again in (signal.SIGINT, signal.SIGTERM):
                    os.kill(os.getpid(), again)
                cleaned.append(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        before = signal.getsignal(number)
        with pytest.raises(SystemExit) as left:
            leave(number)
        assert left.value.code == 128 + number
        assert signal.getsignal(number) is before
    assert cleaned == [signal.SIGINT, signal.SIGTERM]


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with engine.exit_on_signals():
            os.kill(os.getpid(), signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(("status", "code"), [("done", 0), ("OOM", 0), ("failed", 1), ("busy", 3)])
def test_the_exit_code_says_whether_every_cell_has_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str, code: int
) -> None:
    stub(tmp_path, monkeypatch, SAY % (status, "so it is"))
    result = call("bench", "run", "--dataset", "spiral-2", "--seeds", "1-2", "--device", "cpu", "--out", str(tmp_path))
    assert result.exit_code == code, result.output
    assert result.output.count(f"spiral-2 trajectory lformer seed 1: {status}  so it is") == 1
    summary = {"failed": "2 of 2 cells failed:", "busy": "2 of 2 cells have no record yet"}
    assert ("of 2 cells" in result.output) == (status in summary)
    assert summary.get(status, "") in result.output


def test_a_failure_outweighs_a_busy_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub(tmp_path, monkeypatch, f"read task\ncase $task in *'\"seed\": 1,'*) {SAY % ('busy', '')};; *) exit 7;; esac")
    result = call("bench", "run", "--dataset", "spiral-2", "--seeds", "1-2", "--device", "cpu", "--out", str(tmp_path))
    assert result.exit_code == 1, result.output
    assert "1 of 2 cells have no record yet" in result.output
    assert "1 of 2 cells failed" in result.output
    assert "exit code 7" in result.output


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
    assert len(grid.cells(**wanted | {"seeds": grid.seeds("42,42-43")})) == 2  # each once
    linoss = {"datasets": ["scp1", "scp2"], "split": "linoss"}
    assert len(grid.cells(**wanted | linoss | {"seeds": grid.seeds("42-46")})) == 10
    simple = {"models": ["last-value"]}
    for change, says in (
        ({"datasets": ["iris"]}, "unknown data set 'iris'"),
        ({"models": ["lstm"]}, "unknown model 'lstm'"),
        ({"tasks": ["classify-points"]}, "physionet has none of the tasks"),
        ({"split": "subject"}, "split of physionet must be one of published"),
        ({"split": "folds"}, "split='folds' of physionet is for classify only"),
        (linoss | {"seeds": [42, 47]}, "SelfRegulationSCP1 exists for the seeds 2345, .*; got 47"),
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
    sealed.write_json(path, {"cell": cell, "status": "done", "metrics": {}})
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
        record = run(replace(cell, epochs=1), tmp_path / "records", device="cpu", progress=False)
        assert record["config"]["model"].get("random_state", 42) == 42  # what draws by a seed of its own has the cell's
    assert "random_state" in record["config"]["model"]  # boosting
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
    assert "no records in" in " ".join(call("bench", "table", "--out", str(tmp_path / "none")).output.split())
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n<!-- tables -->\n<!-- /tables -->\n")
    result = call("bench", "table", "--out", str(root), "--write", str(page))
    assert result.exit_code == 0, result.output
    assert "| system | MAE, interpolation ↓ (× 1e-2) |" in page.read_text()
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
