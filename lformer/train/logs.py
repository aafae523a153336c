"""Logs of the history of a run, as a CSV file or for TensorBoard."""

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

Rows = list[dict[str, float]]  # one per epoch
Log = Callable[[Rows], None]


@contextmanager
def log_to(folder: Path | None, kind: Literal["none", "csv", "tensorboard"], done: int) -> Iterator[Log]:
    """A function to call with the history after every epoch; an earlier process has already logged `done` epochs."""
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
    """The whole table every time: it is short, and after resuming it has no gaps or duplicates."""
    text = io.StringIO()
    table = csv.DictWriter(text, list(history[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(history)
    return text.getvalue()


def _while_there_is_room(path: Path, log: Log) -> Log:
    """Wrap a log so that a full disk does not end the run: it warns once, and the run continues."""
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
