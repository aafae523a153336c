"""Train the members of an ensemble independently: side by side on the cores of a CPU, or on one GPU."""

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
MOST_ON_A_GPU = 8  # each needs memory of its own there, and a single CPU launches the kernels of all


@dataclass(frozen=True)
class Member:
    """One member, with its own training and validation sets and seed."""

    model: LFormer
    splits: Splits[Any]
    training: TrainConfig
    seed: int


class StoppedError(KeyboardInterrupt):
    """Ctrl-C. `models` completed an epoch and are at their best one; `epochs` is how many the longest has completed."""

    def __init__(self, models: list[LFormer], epochs: int) -> None:
        super().__init__("training was interrupted.")
        self.models, self.epochs = models, epochs


def train_members(members: Sequence[Member], task: Task, *, shown: bool = False) -> list[Result]:
    """Train all members in place, each exactly as it would be trained alone.

    A step of a small model is too short to be shared by several cores, so each core trains a model of its own. It is
    also too small to fill a GPU, so there each model has a CUDA stream of its own. On a CPU, members that wait for a
    core take turns with the others after every epoch: three members on two cores finish together, and no core idles at
    the end. Random numbers belong to the run of each model, so the number of models trained at a time changes only the
    last digits.

    Args:
        members: what to train, and how.
        task: the task of all of them.
        shown: show a progress bar; side by side, that of the first member.
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
        # Members that take turns are all in memory at once, which a GPU may not have enough of.
        on_cpu = join(members[0].training.device).device.type == "cpu"
        with ThreadPoolExecutor(len(members) if on_cpu else workers) as pool:
            try:
                return list(pool.map(work, range(len(members))))
            except BaseException:  # Ctrl-C reaches only this thread; the others stop after their current epoch
                stop.set()
                pool.shutdown(cancel_futures=True)
                raise
    except KeyboardInterrupt:
        begun = [member.model for member, done in zip(members, epochs, strict=True) if done]
        raise StoppedError(begun, max(epochs)) from None
    finally:
        if workers > 1:
            torch.set_num_threads(threads)  # for later threads


class Turns:
    """Lets a limited number of threads work at a time; the others wait in order of arrival.

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
        """Let the first waiting thread work, and queue behind the last one; go on if nobody waits."""
        with self._lock:
            if not self._waiting:
                return
            self._waiting.popleft().set()
            turn = threading.Event()
            self._waiting.append(turn)
        turn.wait()


def each_on_its_cores(work: Callable[[int], T], count: int) -> list[T]:
    """`work(n)` for all n below `count`, in order; each runs in a thread with its share of the cores."""
    threads = torch.get_num_threads()
    workers = max(1, min(count, threads))

    def alone(n: int) -> T:
        torch.set_num_threads(max(1, threads // workers))  # of this thread
        with threadpool_limits(max(1, threads // workers), user_api="openmp"):  # for the trees of scikit-learn
            return work(n)

    if workers == 1:
        return [work(n) for n in range(count)]
    try:
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(alone, range(count)))
    finally:
        torch.set_num_threads(threads)  # for later threads


def _at_once(members: Sequence[Member]) -> int:
    """Number of members trained at a time: one per CPU thread, or as many as do not fill the GPU.

    Processes that train together exchange gradients in a fixed order, so they train one member after the other.
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
    """On CUDA, a CUDA stream of its own for this thread, so that it does not wait for the work of others."""
    chosen = join(device).device
    return torch.cuda.stream(torch.cuda.Stream(chosen)) if chosen.type == "cuda" else nullcontext()
