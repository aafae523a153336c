"""One of several processes that train a model together: `python -m lformer.train.worker FOLDER RANK SIZE`.

The process that started it keeps its standard input open: when that is closed, because the other process has ended or
was killed, this one ends too.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
import traceback
import warnings
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
import torch.distributed as dist

from lformer.allocator import keep_freed_pages
from lformer.train import parcel
from lformer.train.distributed import meet
from lformer.train.loop import fit
from lformer.train.together import WEIGHTS

PERIOD = 0.2  # seconds between progress reports


def main(folder: Path, rank: int, size: int) -> None:
    """Take part in the run in the folder; the first process reports its progress and result."""
    threading.Thread(target=_end_with_input, args=(folder, rank), daemon=True).start()
    voice = _Voice(folder / f"told-{rank}")
    try:
        _work(folder, rank, size, voice)
    except BaseException as error:
        told = {"kind": type(error).__name__, "words": str(error), "trace": traceback.format_exc()}
        voice.say(error={**told, "echo": _of_the_others(error), "at": time.time()})
        os._exit(1)  # without cleaning up, which might wait for the others
    # Everything is written. On a regular exit, threads of the group may outlive their objects and abort the process.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _work(folder: Path, rank: int, size: int, voice: _Voice) -> None:
    keep_freed_pages()
    warnings.showwarning = lambda message, category, *about, **more: voice.say(
        warning={"kind": category.__name__, "words": str(message)}
    )
    work = parcel.unpack(folder)
    meet(folder / "meeting", rank, size, work["config"].device)
    result = fit(
        work["model"], work["task"], work["splits"], work["config"], seed=work["seed"], folder=work["folder"],
        progress=lambda *about: _ToldBar(voice, *about), report=lambda row: voice.say(epoch=row),
    )  # fmt: skip
    if rank == 0:
        torch.save(work["model"].state_dict(), folder / WEIGHTS)
        voice.say(result=asdict(result))


def _of_the_others(error: BaseException) -> bool:
    """Whether an error only means that another process is gone."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error).lower())


class _Voice:
    """Appends lines to the file that the parent process reads."""

    def __init__(self, file: Path) -> None:
        self._stream = file.open("a", encoding="utf-8")

    def say(self, **told: Any) -> None:
        self._stream.write(json.dumps(told) + "\n")
        self._stream.flush()


class _ToldBar:
    """Reports the progress of training to the parent process."""

    def __init__(self, voice: _Voice, name: str, total: int, done: int) -> None:
        self._voice, self._begin = voice, {"name": name, "total": total, "done": done}
        self._steps, self._last = 0, 0.0

    def __enter__(self) -> Self:
        self._voice.say(begin=self._begin)
        return self

    def step(self, loss: float, count: int = 1) -> None:
        """Report one more step with its loss."""
        self._steps += count
        if time.monotonic() - self._last >= PERIOD:
            self._tell(loss)

    def validated(self, name: str, value: float) -> None:
        """Report the metric that selects the epoch, after an epoch."""
        self._voice.say(validated=[name, value])

    def _tell(self, loss: float) -> None:
        self._voice.say(steps=self._steps, loss=loss)
        self._steps, self._last = 0, time.monotonic()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


def _end_with_input(folder: Path, rank: int) -> None:
    """Wait in a thread until standard input is closed, then delete the folder, now without owner, and exit."""
    while os.read(0, 1):
        pass
    if rank == 0:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
