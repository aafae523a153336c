"""The engine `ray`: the same records as `local`, and a process that is lost costs nothing but time."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from test_cli import call

from lformer.bench import grid, records
from lformer.bench.engine import Outcome, Settings
from lformer.bench.records import Cell

CELLS = [Cell(dataset="spiral-0.02", task="trajectory", seed=seed, epochs=3) for seed in (42, 43)]
OF_THE_RUN = ("seconds", "series_per_second", "peak_bytes", "versions")


def test_without_ray_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "lformer.bench.ray_engine", raising=False)
    with pytest.raises(ImportError, match=r'--engine ray needs Ray: pip install "lformer\[ray\]"'):
        list(grid.run(CELLS, Settings(root=tmp_path), "ray"))


def test_options_of_a_cluster_are_refused_by_other_engines(tmp_path: Path) -> None:
    result = call("bench", "run", "--dataset", "spiral-2", "--gpu-share", "0.5", "--out", str(tmp_path))
    assert result.exit_code == 2
    assert "--gpu-share: for Ray clusters only, with --engine ray" in " ".join(result.output.split())
    with pytest.raises(ValueError, match="gpu_share must be more than 0 and at most 1; got 2"):
        Settings(root=tmp_path, gpu_share=2)


# --- with Ray ---


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Two cores of this machine."""
    ray = pytest.importorskip("ray", reason="the engine needs Ray")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    before = signal.getsignal(signal.SIGTERM)
    ray.init(address="local", num_cpus=2, include_dashboard=False, object_store_memory=128 * 2**20, log_to_driver=False)
    signal.signal(signal.SIGTERM, before)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def expected(cluster: None, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the engine `local` records, with as many threads as a task of Ray has."""
    root = tmp_path_factory.mktemp("local")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        list(grid.run(CELLS, Settings(root=root, device="cpu"), "local", 2))
    return stable(root)


def stable(root: Path) -> list[dict[str, Any]]:
    """The records of the cells without what differs from run to run."""
    found = [records.read(cell.path(root)) for cell in CELLS]
    return [{name: value for name, value in record.items() if name not in OF_THE_RUN} for record in found]


def ended(outcomes: list[Outcome]) -> list[tuple[int, str]]:
    return sorted((outcome.cell.seed, outcome.status) for outcome in outcomes if outcome.ended)


def holder(cell: Cell, root: Path) -> int:
    """The process that has the lock of a cell open."""
    lock = str(cell.folder(root).with_suffix(".lock"))
    for entry in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(entry) == lock:
                return int(entry.parts[2])
        except OSError:  # gone, or not ours
            continue
    raise LookupError(f"nobody holds {lock}")


def test_a_grid_gives_the_records_of_local_although_a_process_is_killed(
    tmp_path: Path, expected: list[dict[str, Any]]
) -> None:
    outcomes, killed = [], False
    for outcome in grid.run(CELLS, Settings(root=tmp_path, device="cpu"), "ray"):
        outcomes.append(outcome)
        if not killed and outcome.status == "running" and outcome.note.startswith("epoch 0"):
            os.kill(holder(outcome.cell, tmp_path), signal.SIGKILL)
            killed = True
    assert killed
    assert ended(outcomes) == [(42, "done"), (43, "done")]
    assert stable(tmp_path) == expected
    for cell in CELLS:  # no epoch twice: a lost process is followed by one that goes on
        said = [o.note.split(",")[0] for o in outcomes if o.cell == cell and o.status == "running"]
        assert said == sorted(set(said))
    left = sorted(path.name for path in CELLS[0].path(tmp_path).parent.iterdir())
    assert left == ["seed42.json", "seed43.json"]
    again = list(grid.run(CELLS, Settings(root=tmp_path, device="cpu"), "ray"))
    assert ended(again) == [(42, "skipped"), (43, "skipped")]


def test_busy_and_failed_cells_are_told_and_a_stopped_grid_can_be_resumed(
    tmp_path: Path, cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LFORMER_DATA", str(tmp_path / "nothing"))
    settings = Settings(root=tmp_path, device="cpu")
    absent = Cell(dataset="scp1", task="classify", seed=1)
    lock = CELLS[0].folder(tmp_path).with_suffix(".lock")
    lock.parent.mkdir(parents=True)
    with FileLock(lock):
        outcomes = list(grid.run([CELLS[0], absent], settings, "ray", 2))
    assert ended(outcomes) == [(1, "failed"), (42, "busy")]
    assert any("lformer data fetch scp1" in outcome.note for outcome in outcomes)
    long = replace(CELLS[0], epochs=500)
    with closing(grid.run([long], settings, "ray", 1)) as running:
        assert next(running).status == "running"
    assert (long.folder(tmp_path) / "last.ckpt").exists()
    FileLock(long.folder(tmp_path).with_suffix(".lock")).acquire(timeout=0).lock.release()  # nobody is at work on it
