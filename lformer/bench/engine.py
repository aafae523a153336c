"""How the cells of a grid are run: `local`, the default, by processes of this machine; `ray` on a cluster."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from subprocess import PIPE, Popen, TimeoutExpired
from tempfile import TemporaryFile
from typing import IO, Any, NoReturn

import torch

from lformer.bench import mps
from lformer.bench.records import Cell, Record, cell_fields

GRACE = 10.0  # seconds that a process which is asked to end has before it is killed
RESUMABLE = "Run again, it goes on from its last epoch."

Worker = Popen[str]


@dataclass(frozen=True)
class Outcome:
    """Where a cell stands: "running", the status of its record, "busy" if another runner has it, "failed" and why.

    A "warning" says something on the way.
    """

    cell: Cell
    status: str
    note: str = ""

    @property
    def ended(self) -> bool:
        """Whether nothing more will be heard of the cell."""
        return self.status not in ("running", "warning")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What every cell of a grid is run with.

    Attributes:
        root, time_limit, device, log: as in `lformer.bench.run.run`.
        address: of a Ray cluster, or "auto" for the one of this machine; None starts one. For the engine `ray` alone.
        gpu_share: of a GPU that a cell takes there, where the cluster has any.
        mps: processes share GPUs by NVIDIA's Multi-Process Service, started for the grid; `local` alone.
    """

    root: Path
    time_limit: float | None = None
    device: str = "auto"
    log: str = "none"
    address: str | None = None
    gpu_share: float = 1 / 8
    mps: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.gpu_share <= 1:
            raise ValueError(f"gpu_share must be more than 0 and at most 1; got {self.gpu_share:g}.")


Engine = Callable[[Sequence[Cell], Settings, int | None], Iterator[Outcome]]


def local(cells: Sequence[Cell], settings: Settings, workers: int | None = None) -> Iterator[Outcome]:
    """One process per cell, at most `workers` at a time, by turns on the GPUs.

    Args:
        cells: what to run.
        settings: with what.
        workers: processes at a time; if None one per GPU, with `settings.mps` eight, but no more than there are cores;
            or one on a machine without.

    Yields:
        What happens, as it happens: "running" with a word on the progress and "warning" any number of times, then how
        it ended. Whoever stops listening ends the processes too; their cells can be resumed.
    """
    gpus = gpus_for(settings.device)
    alone: AbstractContextManager[dict[str, str]] = nullcontext({})
    with mps.served() if settings.mps and gpus else alone as served:
        most = min(mps.PER_GPU * gpus, os.cpu_count() or 1) if settings.mps else gpus
        yield from _local(cells, settings, workers or max(1, most), gpus, served)


def gpus_for(device: str) -> int:
    """GPUs of this machine that such a run may use."""
    return torch.cuda.device_count() if device != "cpu" else 0


def _local(
    cells: Sequence[Cell], settings: Settings, workers: int, gpus: int, served: dict[str, str]
) -> Iterator[Outcome]:
    slots: SimpleQueue[int] = SimpleQueue()
    events: SimpleQueue[Outcome] = SimpleQueue()
    processes = _Processes()
    for n in range(workers):
        slots.put(n)

    def work(cell: Cell) -> None:
        slot = slots.get()
        environment = _environment(slot % gpus if gpus else None, workers) | served
        try:
            events.put(_run(cell, settings, environment, processes, events.put))
        except Exception as error:  # whatever it was, the grid goes on and lists it
            events.put(Outcome(cell, "failed", f"{type(error).__name__}: {error}"))
        finally:
            slots.put(slot)

    with ThreadPoolExecutor(workers) as pool:
        for cell in cells:
            pool.submit(work, cell)
        left = len(cells)
        try:
            while left:
                outcome = events.get()
                left -= outcome.ended
                yield outcome
        finally:  # interrupted: cells that have not begun stay undone
            processes.end()


def ray(cells: Sequence[Cell], settings: Settings, workers: int | None = None) -> Iterator[Outcome]:
    """One task of a Ray cluster per cell, as `lformer.bench.ray_engine` says, which needs Ray."""
    from lformer.bench.ray_engine import ray_engine

    yield from ray_engine(cells, settings, workers)


ENGINES: dict[str, Engine] = {"local": local, "ray": ray}


def spelled(figures: Mapping[str, float]) -> str:
    """Figures in one line.

    Example:
        >>> spelled({"epoch": 3, "loss": 0.123456})
        'epoch 3, loss 0.1235'
    """
    return ", ".join(f"{name} {value:.4g}" for name, value in figures.items())


def ending(cell: Cell, record: Record) -> Outcome:
    """How a cell with a record ended."""
    return Outcome(cell, record["status"], spelled(record["metrics"]) or record.get("error", ""))


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Inside, SIGINT and SIGTERM raise `SystemExit(128 + number)`, so that files are closed and workers ended.

    Only the first of them: they often come twice, say from a terminal and from the process that started this one, and
    the second must not stop the cleaning up. A signal that is ignored, as Ctrl-C is in the background, stays so.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    ours = [number for number, handler in before.items() if handler is not signal.SIG_IGN]

    def leave(number: int, frame: object) -> NoReturn:
        for each in ours:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():  # which alone may set handlers
        ours = []
    for number in ours:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])


class _Processes:
    """The workers that are running, which must not outlive whoever started them."""

    def __init__(self) -> None:
        self._lock, self._running, self._over = threading.Lock(), set[Worker](), False

    @contextmanager
    def start(self, environment: dict[str, str], errors: IO[str]) -> Iterator[Worker]:
        """Start a worker and wait for it."""
        command = [sys.executable, "-m", "lformer.bench.worker"]
        with self._lock:
            if self._over:
                raise RuntimeError("the grid was stopped.")
            worker = Popen(command, env=environment, stdin=PIPE, stdout=PIPE, stderr=errors, text=True)
            self._running.add(worker)
        try:
            with worker:
                try:
                    yield worker
                    worker.wait()  # before its input is closed, which would tell it that we are gone
                except BaseException:
                    worker.terminate()
                    raise
        finally:
            with self._lock:
                self._running.discard(worker)

    def end(self) -> None:
        """Ask all workers to end, and kill those that have not after a while. None can be started any more."""
        with self._lock:
            self._over = True
            running = list(self._running)
        until = time.monotonic() + GRACE
        try:
            for worker in running:
                worker.terminate()
            for worker in running:
                worker.wait(max(0.0, until - time.monotonic()))
        except TimeoutExpired:
            pass
        finally:  # at once if we are interrupted again
            for worker in running:
                worker.kill()


def _run(
    cell: Cell, settings: Settings, environment: dict[str, str], processes: _Processes, say: Callable[[Outcome], None]
) -> Outcome:
    task: dict[str, Any] = {
        "cell": cell_fields(cell), "root": str(settings.root), "time_limit": settings.time_limit,
        "device": settings.device, "log": settings.log,
    }  # fmt: skip
    last = Outcome(cell, "failed")
    with TemporaryFile("w+") as errors:
        with processes.start(environment, errors) as worker:
            assert worker.stdin is not None
            assert worker.stdout is not None
            with suppress(BrokenPipeError):  # if it is gone already, its exit code says more
                os.write(worker.stdin.fileno(), json.dumps(task).encode() + b"\n")
            for line in worker.stdout:
                last = Outcome(cell, **json.loads(line))
                if not last.ended:
                    say(last)
        if worker.returncode == 0 and last.ended:
            return last
        errors.seek(0)
        return Outcome(cell, "failed", _reason(worker.returncode, errors.read()))


def _environment(gpu: int | None, workers: int) -> dict[str, str]:
    """What a worker finds: its GPU, and its share of the cores."""
    environment = dict(os.environ)
    if gpu is not None and "CUDA_VISIBLE_DEVICES" not in environment:
        environment["CUDA_VISIBLE_DEVICES"] = str(gpu)
    if workers > 1:
        environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // workers)))
    return environment


def _reason(code: int, errors: str) -> str:
    """Why a worker ended without a result: a signal, or the last line of its errors."""
    number = -code if code < 0 else code - 128  # killed by a signal, or left because of one
    if number == signal.SIGKILL:
        return f"the process was killed, most likely because memory ran out. {RESUMABLE}"
    if number in set(signal.Signals):
        return f"the process was ended by {signal.Signals(number).name}. {RESUMABLE}"
    lines = errors.strip().splitlines()
    return lines[-1] if lines else f"exit code {code}"
