"""The history of a run for other programs: a table in a CSV file, or TensorBoard's events."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

Rows = list[dict[str, float]]  # of every epoch


@contextmanager
def log_to(
    folder: Path | None, kind: Literal["none", "csv", "tensorboard"], done: int
) -> Iterator[Callable[[Rows], None]]:
    """What is to be called with the history after every epoch; `done` epochs were logged by an earlier process."""
    if kind == "none" or folder is None:
        yield lambda history: None
    elif kind == "csv":
        yield lambda history: _write_table(folder / "metrics.csv", history)
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

            yield add


def _write_table(path: Path, history: Rows) -> None:
    """The whole of it every time: it is short, and a run that was resumed has one table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as stream:
        table = csv.DictWriter(stream, list(history[0]))
        table.writeheader()
        table.writerows(history)
