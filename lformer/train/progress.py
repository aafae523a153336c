"""Bars that say how far long work is."""

from __future__ import annotations

import math
from types import TracebackType
from typing import Self

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn


class TrainingBar:
    """One line for a whole run: steps, loss, validation metric, time left. Shown inside a `with`.

    Args:
        name: what is trained on.
        total: steps in all.
        done: steps of an earlier process.
        shown: False shows nothing.
    """

    def __init__(self, name: str, total: int, done: int = 0, shown: bool = True) -> None:
        self.progress = Progress(
            TextColumn(f"[bold]{name}"),
            BarColumn(bar_width=16),
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("loss {task.fields[loss]:.2e}"),
            TextColumn("{task.fields[validation]}"),
            TimeRemainingColumn(elapsed_when_finished=True),
            disable=not shown,
        )
        self.bar = self.progress.add_task("train", total=total, completed=done, loss=math.nan, validation="")

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def step(self, loss: float) -> None:
        """One more step, and its loss."""
        self.progress.update(self.bar, advance=1, loss=loss)

    def validated(self, name: str, value: float) -> None:
        """The metric that selects, after an epoch."""
        self.progress.update(self.bar, validation=f"val {name} {value:.3g}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()
