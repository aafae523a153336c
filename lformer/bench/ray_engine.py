"""The cells of a grid as tasks of a Ray cluster: `lformer bench run --engine ray`.

Records, checkpoints and locks lie in one folder that all machines of the cluster see, as does the folder of the data,
and every machine has lformer installed. Each cell has a process of its own. Should that process be lost, Ray starts the
cell again, and it goes on from its checkpoint. If the command is stopped, its cells are, and can be resumed.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

try:
    import ray
except ImportError as error:
    raise ImportError('--engine ray needs Ray: pip install "lformer[ray]".') from error
from ray.exceptions import OutOfMemoryError, RayError, TaskCancelledError

from lformer.allocator import keep_freed_pages
from lformer.bench.engine import GRACE, RESUMABLE, Outcome, Settings, ending, spelled
from lformer.bench.records import Cell
from lformer.bench.run import BusyError, run

RETRIES = 3  # how often the cell of a lost process starts again
POLL = 0.2  # seconds between two looks at the cluster
STORE = 128 * 2**20  # bytes of the object store of a cluster of our own, through which hardly anything goes
OURS = "LFORMER_"  # what the names of our environment variables begin with


def ray_engine(cells: Sequence[Cell], settings: Settings, workers: int | None = None) -> Iterator[Outcome]:
    """One task per cell, on one core and, where the cluster has GPUs, a share of one.

    Args:
        cells: what to run.
        settings: with what. `address` is that of a cluster; None starts one on this machine.
        workers: tasks at a time; as many as the cluster has room for if None.

    Yields:
        As the engine `local` does. Whoever stops listening cancels the tasks too.
    """
    with _cluster(settings.address, workers):
        told = ray.remote(num_cpus=0)(_Told).remote()
        # A process runs one cell and ends (max_calls): its memory is that cell's, and so is its part of a GPU.
        task = ray.remote(num_cpus=1, num_gpus=_gpus(settings), max_calls=1, max_retries=RETRIES)(_task)
        everywhere = replace(settings, root=settings.root.absolute())
        environment = {name: value for name, value in os.environ.items() if name.startswith(OURS)}
        waiting, running = deque(cells), dict[Any, Cell]()
        try:
            while waiting or running:
                while waiting and len(running) < (workers or len(cells)):
                    cell = waiting.popleft()
                    running[task.remote(cell, everywhere, environment, told)] = cell
                # Not inside Ray: it keeps a signal from those who handle it.
                time.sleep(POLL)
                ended, _ = ray.wait(list(running), num_returns=len(running), timeout=0)
                yield from ray.get(told.take.remote())  # all that the ended ones said is there
                for reference in ended:
                    yield _outcome(reference, running.pop(reference))
        finally:
            _cancel(list(running))
            ray.kill(told)


class _Told:
    """What cells say while they run, until somebody takes it."""

    def __init__(self) -> None:
        self._outcomes: list[Outcome] = []

    def put(self, outcome: Outcome) -> None:
        self._outcomes.append(outcome)

    def take(self) -> list[Outcome]:
        taken, self._outcomes = self._outcomes, []
        return taken


def _task(cell: Cell, settings: Settings, environment: dict[str, str], told: Any) -> Outcome:
    """Run a cell in a process of the cluster; how it ended."""
    os.environ.update(environment)
    keep_freed_pages()

    def say(status: str, note: str) -> None:
        with suppress(RayError):  # nobody listens any more
            ray.get(told.put.remote(Outcome(cell, status, note)))

    warnings.showwarning = lambda message, *about, **more: say("warning", str(message))
    try:
        record = run(
            cell, settings.root, time_limit=settings.time_limit, device=settings.device, log=settings.log,
            progress=False, report=lambda row: say("running", spelled(row)),
        )  # fmt: skip
    except BusyError as error:
        return Outcome(cell, "busy", str(error))
    except Exception as error:  # whatever it was, the grid goes on and lists it
        return Outcome(cell, "failed", f"{type(error).__name__}: {error}")
    return ending(cell, record)


@contextmanager
def _cluster(address: str | None, workers: int | None) -> Iterator[None]:
    """Inside, this process is connected: as it was already, to the cluster at an address, or to one of our own."""
    if ray.is_initialized():
        yield
        return
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    options: dict[str, Any] = {}
    if address == "local":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        options = {
            "num_cpus": workers or os.cpu_count(), "include_dashboard": False, "object_store_memory": STORE,
        }  # fmt: skip
    with _own_signals():
        ray.init(address=address, log_to_driver=False, **options)
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray sets a handler of SIGTERM, in the main thread; afterwards it is the caller's again."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, before)


def _gpus(settings: Settings) -> float:
    """The share of a GPU that a cell asks for."""
    there = settings.device != "cpu" and ray.cluster_resources().get("GPU", 0) > 0
    return settings.gpu_share if there else 0.0


def _outcome(reference: Any, cell: Cell) -> Outcome:
    """How a task ended, one that was lost too often included."""
    try:
        return ray.get(reference)
    except OutOfMemoryError:
        return Outcome(cell, "failed", f"Ray ended the process because memory ran out. {RESUMABLE}")
    except TaskCancelledError:
        return Outcome(cell, "failed", f"the task was cancelled. {RESUMABLE}")
    except RayError as error:
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return Outcome(cell, "failed", f"its process was lost {RETRIES + 1} times: {why} {RESUMABLE}")


def _cancel(running: list[Any]) -> None:
    """Interrupt all tasks, as by Ctrl-C, and kill those that have not ended after a while."""
    for reference in running:
        ray.cancel(reference)
    if running:
        _, left = ray.wait(running, num_returns=len(running), timeout=GRACE)
        for reference in left:
            ray.cancel(reference, force=True)
