"""The Multi-Process Service: started for a grid and ended with it; one that runs is left alone; who might want it."""

import os
from pathlib import Path

import pytest

from lformer.bench import engine, mps
from lformer.bench.engine import Outcome, Settings

SCRIPT = """#!/bin/sh
# Notes what it is asked, and pretends: `-d` starts it, "quit" ends it.
home=${CUDA_MPS_PIPE_DIRECTORY:-$FAKE_MPS}
if [ "$1" = "-d" ]; then
  [ -n "$FAKE_MPS_BROKEN" ] && exit 1
  touch "$home/control"; echo "start $home" >> "$FAKE_MPS/log"; exit 0
fi
read asked
echo "$asked $home" >> "$FAKE_MPS/log"
if [ ! -e "$home/control" ]; then echo "Cannot find MPS control daemon process"; exit 1; fi
[ "$asked" = "quit" ] && rm "$home/control"
exit 0
"""


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a program that only notes what it is asked."""
    home = tmp_path / "mps"
    home.mkdir()
    program = tmp_path / mps.CONTROL
    program.write_text(SCRIPT)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_MPS", str(home))
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    return home


def asked(service: Path) -> list[str]:
    log = service / "log"
    return [line.split()[0] for line in log.read_text().splitlines()] if log.exists() else []


def test_it_runs_as_long_as_it_is_needed(service: Path) -> None:
    assert mps.installed()
    assert not mps.running()
    with mps.served() as names:
        folder = Path(names["CUDA_MPS_PIPE_DIRECTORY"])
        assert (folder / "control").exists()
    assert not folder.exists()
    assert asked(service) == ["get_server_list", "get_server_list", "start", "quit"]


def test_it_ends_also_after_an_error(service: Path) -> None:
    with pytest.raises(SystemExit), mps.served():
        raise SystemExit(130)
    assert asked(service)[-1] == "quit"


def test_one_that_runs_is_left_running(service: Path) -> None:
    (service / "control").touch()
    with mps.served() as names:
        assert names == {}
    assert asked(service) == ["get_server_list"]


def test_one_that_does_not_start_or_is_not_there_is_said(service: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MPS_BROKEN", "1")
    with pytest.raises(ValueError, match=r"did not start \(exit code 1\). Run without --mps"), mps.served():
        pass
    monkeypatch.setenv("PATH", str(service))
    with pytest.raises(ValueError, match="comes with the driver of NVIDIA, on the PATH"), mps.served():
        pass
    assert not mps.running()


@pytest.mark.usefixtures("service")
def test_who_shares_a_gpu_without_it_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert mps.hint(8, 1, False) == "8 processes share 1 GPU by turns; --mps lets their kernels run at once."
    for workers, gpus, on in ((8, 1, True), (8, 0, False), (None, 2, False), (2, 2, False)):
        assert mps.hint(workers, gpus, on) == ""
    monkeypatch.setattr(mps, "running", lambda: True)
    assert mps.hint(8, 1, False) == ""


@pytest.mark.parametrize(("workers", "gpus", "on", "expected"), [
    (None, 0, True, 1), (None, 0, False, 1), (None, 2, False, 2), (None, 1, True, 8), (None, 4, True, 24),
    (3, 1, True, 3), (3, 1, False, 3),
])  # fmt: skip
@pytest.mark.usefixtures("service")
def test_how_many_processes(
    workers: int | None, gpus: int, on: bool, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, bool]] = []

    def noted(cells: object, settings: object, workers: int, gpus: int, served: dict[str, str]) -> list[Outcome]:
        seen.append((workers, bool(served)))
        return []

    monkeypatch.setattr(engine, "_local", noted)
    monkeypatch.setattr(engine, "gpus_for", lambda device: gpus)
    monkeypatch.setattr(os, "cpu_count", lambda: 24)
    list(engine.local([], Settings(root=tmp_path, mps=on), workers))
    assert seen == [(expected, on and gpus > 0)]
