"""Models that answer together, trained apart: side by side on the cores of a CPU, or on one GPU."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from threadpoolctl import threadpool_limits

from lformer.nn import LFormer
from lformer.parts import Splits
from lformer.tasks import Task
from lformer.train import Result, TrainConfig, fit
from lformer.train.distributed import join
from lformer.train.gradients import LAUNCH_BOUND

T = TypeVar("T")
MOST_ON_A_GPU = 8  # each has memory of its own there, and one processor launches the work of all


@dataclass(frozen=True)
class Member:
    """One of the models, with the parts of the data and the seed that are its own."""

    model: LFormer
    splits: Splits[Any]
    training: TrainConfig
    seed: int


class StoppedError(KeyboardInterrupt):
    """Ctrl-C. `models` are those that have ended an epoch, at their best one; `epochs`, how many the longest had."""

    def __init__(self, models: list[LFormer], epochs: int) -> None:
        super().__init__("training was interrupted.")
        self.models, self.epochs = models, epochs


def train_members(members: Sequence[Member], task: Task, *, shown: bool = False) -> list[Result]:
    """Train all of them in place, each as it would be alone.

    A step of a small model is too short for several cores to share, so each core has a model of its own; and too small
    to fill a GPU, so there each has a stream of its own. On a CPU those that wait for a core take turns with the others
    after every epoch: three on two cores all end together, and no core is left with nothing to do. What a model draws
    belongs to its own run, hence how many are trained at a time changes nothing but the last digits.

    Args:
        members: what to train, and how.
        task: what is asked of all of them.
        shown: show a bar; side by side, that of the first one.
    """
    workers = _at_once(members)
    threads, stop, epochs = torch.get_num_threads(), threading.Event(), [0] * len(members)
    turns = Turns(workers)

    def work(n: int) -> Result:
        if workers > 1:
            torch.set_num_threads(max(1, threads // workers))  # of this thread

        def count(row: dict[str, float]) -> None:
            epochs[n] += 1
            turns.pass_on()
            _go_on()

        def _go_on() -> None:
            if stop.is_set():
                raise KeyboardInterrupt

        member, bar = members[n], shown and (workers == 1 or n == 0)
        with turns, _own_stream(member.training.device) if workers > 1 else nullcontext():
            _go_on()
            return fit(
                member.model, task, member.splits, member.training, seed=member.seed, progress=bar, report=count
            )  # fmt: skip

    try:
        if workers == 1:
            return [work(n) for n in range(len(members))]
        # Those that take turns all lie in memory at once, of which a GPU may have too little.
        on_cpu = join(members[0].training.device).device.type == "cpu"
        with ThreadPoolExecutor(len(members) if on_cpu else workers) as pool:
            try:
                return list(pool.map(work, range(len(members))))
            except BaseException:  # Ctrl-C reaches this thread alone; the others hear of it after their epoch
                stop.set()
                pool.shutdown(cancel_futures=True)
                raise
    except KeyboardInterrupt:
        begun = [member.model for member, done in zip(members, epochs, strict=True) if done]
        raise StoppedError(begun, max(epochs)) from None
    finally:
        if workers > 1:
            torch.set_num_threads(threads)  # for threads to come


class Turns:
    """Lets so many threads work at a time; the others wait in the order in which they came.

    Example:
        >>> turns = Turns(1)
        >>> with turns:
        ...     turns.pass_on()  # nobody waits
    """

    def __init__(self, places: int) -> None:
        self._free, self._lock = places, threading.Lock()
        self._waiting: deque[threading.Event] = deque()

    def __enter__(self) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            turn = threading.Event()
            self._waiting.append(turn)
        turn.wait()

    def __exit__(self, *error: object) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._free += 1

    def pass_on(self) -> None:
        """Let the first of those that wait work, and wait behind the last of them; go on if there are none."""
        with self._lock:
            if not self._waiting:
                return
            self._waiting.popleft().set()
            turn = threading.Event()
            self._waiting.append(turn)
        turn.wait()


def each_on_its_cores(work: Callable[[int], T], count: int) -> list[T]:
    """What `work` makes of the numbers below `count`, each by a thread with its share of the cores, in their order."""
    threads = torch.get_num_threads()
    workers = max(1, min(count, threads))

    def alone(n: int) -> T:
        torch.set_num_threads(max(1, threads // workers))  # of this thread
        with threadpool_limits(max(1, threads // workers), user_api="openmp"):  # of the trees of scikit-learn
            return work(n)

    if workers == 1:
        return [work(n) for n in range(count)]
    try:
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(alone, range(count)))
    finally:
        torch.set_num_threads(threads)  # for threads to come


def _at_once(members: Sequence[Member]) -> int:
    """How many are trained at a time: on a CPU as many as there are threads to work with; on a GPU as many as do not
    fill it.

    Processes that train together exchange gradients in one order, so there it is one after the other.
    """
    training = members[0].training
    world = join(training.device)
    if training.devices != 1 or world.size != 1:
        return 1
    if world.device.type == "cpu":
        return max(1, min(len(members), torch.get_num_threads()))
    if world.device.type == "cuda":
        longest = max(int(member.splits.train.panel.lengths.max(initial=1)) for member in members)
        room = LAUNCH_BOUND // (training.batch_size * max(1, longest))
        return max(1, min(len(members), MOST_ON_A_GPU, room))
    return 1


def _own_stream(device: str) -> AbstractContextManager[Any]:
    """On CUDA, a stream of its own for the work of this thread: that of others need not end first."""
    chosen = join(device).device
    return torch.cuda.stream(torch.cuda.Stream(chosen)) if chosen.type == "cuda" else nullcontext()
