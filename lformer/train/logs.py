"""The history of a run for other programs: a table in a CSV file, or TensorBoard's events."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from lformer import sealed
from lformer.train.checkpoint import FULL

Rows = list[dict[str, float]]  # of every epoch
Log = Callable[[Rows], None]


@contextmanager
def log_to(folder: Path | None, kind: Literal["none", "csv", "tensorboard"], done: int) -> Iterator[Log]:
    """What is to be called with the history after every epoch; `done` epochs were logged by an earlier process."""
    if kind == "none" or folder is None:
        yield lambda history: None
    elif kind == "csv":
        path = folder / "metrics.csv"
        yield _while_there_is_room(path, lambda history: sealed.write_text(path, _table(history)))
    else:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError('log="tensorboard" needs TensorBoard: pip install "lformer[logs]".') from error
        with SummaryWriter(folder / "log", purge_step=done) as writer:

            def add(history: Rows) -> None:
                for name, value in history[-1].items():
                    if name != "epoch":
                        writer.add_scalar(name, value, len(history) - 1)
                writer.flush()

            yield _while_there_is_room(folder / "log", add)


def _table(history: Rows) -> str:
    """The whole of it every time: it is short, and a run that was resumed has one table without gaps or repeats."""
    text = io.StringIO()
    table = csv.DictWriter(text, list(history[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(history)
    return text.getvalue()


def _while_there_is_room(path: Path, log: Log) -> Log:
    """A log that a full disk does not turn into the end of the run: it warns, once, and the run goes on."""
    warned = False

    def write(history: Rows) -> None:
        nonlocal warned
        try:
            log(history)
        except OSError as error:
            if error.errno not in FULL:
                raise
            if not warned:
                warned = True
                warnings.warn(f"{path} could not be written ({error.strerror}). The run goes on.", stacklevel=2)

    return write
