"""Processes of this machine that work together for the one that started them.

Each is `python -m lformer.train.worker`: started anew, so it imports neither the script nor the notebook that asks for
it, which need no `if __name__ == "__main__"`. They meet over a file, without a port. What they have to say they append
to files of lines of JSON. None outlives the process that started it, however that ends.
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
POLL = 0.05  # seconds between two looks at the processes
GRACE = 5.0  # seconds in which the others may end, or say why they failed, once one has failed
SHOWN = 2000  # characters of the output of a process that ended without a word


class LostProcessError(ChildProcessError):
    """One of several processes ended without saying why."""


def run(folder: Path, count: int, hear: Callable[[Told], None]) -> None:
    """Start `count` workers on what lies in the folder, wait until all have ended, and pass on what the first says.

    Args:
        folder: where `parcel.pack` has put the work; what is told and printed goes there too.
        count: of the processes.
        hear: called with each thing that the first process says.

    Raises:
        Exception: what the first process to fail has told of its error, as `hear` made of it; or a `LostProcessError`.
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
            workers.append(_start(folder, rank, count))  # noqa: PERF401 (should one not start, the others are known)
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
    # When one fails the others lose touch with it and fail for that reason, so theirs counts last.
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
        environment.setdefault("GLOO_SOCKET_IFNAME", loopback)  # otherwise the name of the machine must have an address
    # A group of its own: Ctrl-C in a terminal is for the process that started it, which then ends this one.
    apart: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        apart = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    with _output(folder, rank).open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "lformer.train.worker", str(folder), str(rank), str(count)],
            stdin=subprocess.PIPE, stdout=output, stderr=output, env=environment, **apart,
        )  # fmt: skip


def _end(worker: subprocess.Popen[bytes]) -> None:
    """At once: what it writes to keep, it writes whole or not at all."""
    worker.kill()
    worker.wait()
    if worker.stdin is not None:
        worker.stdin.close()


class _Ear:
    """Reads the lines that a process appends to a file, those that are complete."""

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
    """What is known of a process that ended without a word."""
    how = f"with exit code {code}"
    if code < 0:
        how = f"by {signal.Signals(-code).name}"
        if code == -9:
            how += ", as the system ends processes when memory runs out"
    said = _output(folder, rank).read_text(errors="replace").strip()[-SHOWN:]
    return f"process {rank} of {count} ended {how}, and the others with it." + (f" Its output:\n{said}" if said else "")
