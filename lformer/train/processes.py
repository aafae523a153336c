"""Start processes on this machine that work together.

Each is a new process `python -m lformer.train.worker`, which imports neither the calling script nor the notebook, so
these need no `if __name__ == "__main__"`. The processes meet through a file, without a port, and report by appending
lines of JSON to files. None outlives the process that started it, however that ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Told = dict[str, Any]
POLL = 0.05  # seconds between checks of the processes
GRACE = 5.0  # seconds in which the others may end, or report an error, after one has failed
SHOWN = 2000  # characters shown of the output of a process that ended without an error message


class LostProcessError(ChildProcessError):
    """One of several processes ended without reporting an error."""


def run(folder: Path, count: int, hear: Callable[[Told], None]) -> None:
    """Start `count` workers on the work in a folder, wait for all, and pass on what the first one reports.

    Args:
        folder: where `parcel.pack` has put the work; reports and output go there too.
        count: number of processes.
        hear: called with each report of the first process.

    Raises:
        Exception: the error that the first failing process reported, as raised by `hear`; or a `LostProcessError`.
    """
    workers: list[subprocess.Popen[bytes]] = []
    ears = [_Ear(folder / f"told-{rank}") for rank in range(count)]
    failed: dict[int, Told] = {}

    def listen() -> None:
        for rank, ear in enumerate(ears):
            for told in ear.lines():
                if "error" in told:
                    failed[rank] = told["error"]
                elif rank == 0:
                    hear(told)

    try:
        for rank in range(count):
            workers.append(_start(folder, rank, count))  # noqa: PERF401 (if one does not start, the others are known)
        while any(worker.poll() is None for worker in workers) and not any(worker.poll() for worker in workers):
            time.sleep(POLL)
            listen()
        deadline = time.monotonic() + GRACE
        while any(worker.poll() is None for worker in workers) and time.monotonic() < deadline:
            time.sleep(POLL)
        codes = [worker.poll() for worker in workers]
        listen()
    finally:
        for worker in workers:
            _end(worker)
    # When one fails, the others lose the connection and fail as well, so their errors count last.
    own = [error for error in failed.values() if not error["echo"]]
    if own:
        hear({"error": min(own, key=lambda error: float(error["at"]))})
    for rank, code in enumerate(codes):
        if code and rank not in failed:
            raise LostProcessError(_lost(rank, count, code, folder))
    if failed:
        hear({"error": min(failed.values(), key=lambda error: float(error["at"]))})


def _start(folder: Path, rank: int, count: int) -> subprocess.Popen[bytes]:
    if not sys.executable:
        raise RuntimeError("this Python does not know its own program (sys.executable), so no process can be started.")
    threads = str(max(1, torch.get_num_threads() // count))
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path), "LOCAL_RANK": str(rank),
        "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads,
    }  # fmt: skip
    if loopback := {"linux": "lo", "darwin": "lo0"}.get(sys.platform):
        environment.setdefault("GLOO_SOCKET_IFNAME", loopback)  # otherwise the host name must resolve to an address
    # In a session of its own: Ctrl-C in a terminal goes to the process that started it, which then ends this one.
    apart: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        apart = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    with _output(folder, rank).open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "lformer.train.worker", str(folder), str(rank), str(count)],
            stdin=subprocess.PIPE, stdout=output, stderr=output, env=environment, **apart,
        )  # fmt: skip


def _end(worker: subprocess.Popen[bytes]) -> None:
    """Kill at once: files that are to be kept are written atomically."""
    worker.kill()
    worker.wait()
    if worker.stdin is not None:
        worker.stdin.close()


class _Ear:
    """Reads the complete lines that a process has appended to a file."""

    def __init__(self, file: Path) -> None:
        self.file, self.read, self.rest = file, 0, b""

    def lines(self) -> list[Told]:
        if not self.file.exists():
            return []
        with self.file.open("rb") as stream:
            stream.seek(self.read)
            more = stream.read()
        self.read += len(more)
        *whole, self.rest = (self.rest + more).split(b"\n")
        return [json.loads(line) for line in whole]


def _output(folder: Path, rank: int) -> Path:
    return folder / f"output-{rank}.txt"


def _lost(rank: int, count: int, code: int, folder: Path) -> str:
    """What is known about a process that ended without reporting an error."""
    how = f"with exit code {code}"
    if code < 0:
        how = f"by {signal.Signals(-code).name}"
        if code == -9:
            how += ", as the system ends processes when memory runs out"
    said = _output(folder, rank).read_text(errors="replace").strip()[-SHOWN:]
    return f"process {rank} of {count} ended {how}, and the others with it." + (f" Its output:\n{said}" if said else "")
