"""How the cells of a grid are run. The default, `local`, runs processes on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch

from lformer.bench.records import Cell, cell_fields


@dataclass(frozen=True)
class Outcome:
    """Where a cell stands: "running", the status of its record, "busy" if another runner has it, "failed" and why."""

    cell: Cell
    status: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What every cell of a grid is run with."""

    root: Path
    time_limit: float | None = None
    device: str = "auto"
    log: str = "none"


Engine = Callable[[Sequence[Cell], Settings, int | None], Iterator[Outcome]]


def local(cells: Sequence[Cell], settings: Settings, workers: int | None = None) -> Iterator[Outcome]:
    """One process per cell, at most `workers` at a time, by turns on the GPUs.

    Args:
        cells: what to run.
        settings: with what.
        workers: processes at a time; one per GPU, or one on a machine without, if None.

    Yields:
        What happens, as it happens: "running" with a word on the progress any number of times, then how it ended.
    """
    gpus = torch.cuda.device_count() if settings.device != "cpu" else 0
    workers = workers or max(1, gpus)
    slots: SimpleQueue[int] = SimpleQueue()
    events: SimpleQueue[Outcome] = SimpleQueue()
    for n in range(workers):
        slots.put(n)

    def work(cell: Cell) -> None:
        slot = slots.get()
        try:
            events.put(_process(cell, settings, slot % gpus if gpus else None, workers, events.put))
        except Exception as error:  # whatever it was, the grid goes on and lists it
            events.put(Outcome(cell, "failed", f"{type(error).__name__}: {error}"))
        finally:
            slots.put(slot)

    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(work, cell) for cell in cells]
        left = len(cells)
        try:
            while left:
                outcome = events.get()
                left -= outcome.status != "running"
                yield outcome
        finally:  # interrupted: cells that have not begun stay undone
            for future in futures:
                future.cancel()


ENGINES: dict[str, Engine] = {"local": local}


def _process(
    cell: Cell, settings: Settings, gpu: int | None, workers: int, say: Callable[[Outcome], None]
) -> Outcome:  # fmt: skip
    task: dict[str, Any] = {
        "cell": cell_fields(cell), "root": str(settings.root), "time_limit": settings.time_limit,
        "device": settings.device, "log": settings.log,
    }  # fmt: skip
    environment = dict(os.environ)
    if gpu is not None and "CUDA_VISIBLE_DEVICES" not in environment:
        environment["CUDA_VISIBLE_DEVICES"] = str(gpu)
    if workers > 1:
        environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // workers)))
    command = [sys.executable, "-m", "lformer.bench.worker", json.dumps(task)]
    with tempfile.TemporaryFile("w+") as complaints:
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=complaints, text=True) as worker:
            assert worker.stdout is not None
            last = Outcome(cell, "failed")
            try:
                for line in worker.stdout:
                    last = Outcome(cell, **json.loads(line))
                    if last.status == "running":
                        say(last)
            except BaseException:
                worker.terminate()
                raise
        if worker.returncode == 0 and last.status != "running":
            return last
        complaints.seek(0)
        lines = complaints.read().strip().splitlines()
    if worker.returncode == -signal.SIGKILL:
        return Outcome(cell, "failed", "the process was killed, most likely because memory ran out.")
    return Outcome(cell, "failed", lines[-1] if lines else f"exit code {worker.returncode}")
