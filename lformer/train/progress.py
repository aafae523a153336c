"""Progress bars for long computations: one line in a terminal, one element in a notebook."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from html import escape
from types import TracebackType
from typing import Any, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

PERIOD = 0.2  # seconds between updates in a notebook


class Bar(Protocol):
    """The progress of a run, used in a `with` block."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def step(self, loss: float, count: int = 1) -> None:
        """Report one more step with its loss; or several, with the loss of the last."""

    def validated(self, name: str, value: float) -> None:
        """Report the metric that selects the epoch, after an epoch."""


NewBar = Callable[[str, int, int], Bar]  # name of the data, total number of steps, steps already done


class TrainingBar:
    """A progress bar for a whole run: steps, loss, validation metric, remaining time. Use in a `with` block.

    Args:
        name: name of the data.
        total: total number of steps.
        done: steps done by an earlier process.
        shown: whether to show it at all.
    """

    def __init__(self, name: str, total: int, done: int = 0, shown: bool = True) -> None:
        notebook = shown and Console().is_jupyter
        self.line: _Line = Page(name, total, done) if notebook else _Terminal(name, total, done, shown)

    def __enter__(self) -> Self:
        self.line.start()
        return self

    def step(self, loss: float, count: int = 1) -> None:
        """Report one more step with its loss; or several, with the loss of the last."""
        self.line.update(advance=count, loss=loss)

    def validated(self, name: str, value: float) -> None:
        """Report the metric that selects the epoch, after an epoch."""
        self.line.update(validation=f"val {name} {value:.3g}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.line.stop()


class _Line(Protocol):
    def start(self) -> None: ...
    def update(self, advance: int = 0, **fields: Any) -> None: ...
    def stop(self) -> None: ...


class _Terminal:
    """A line that is overwritten."""

    def __init__(self, name: str, total: int, done: int, shown: bool) -> None:
        self.progress = Progress(
            TextColumn(f"[bold]{name}"),
            BarColumn(bar_width=16),
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("loss {task.fields[loss]:.2e}"),
            TextColumn("{task.fields[validation]}"),
            TimeRemainingColumn(elapsed_when_finished=True),
            disable=not shown,
        )
        self.start, self.stop = self.progress.start, self.progress.stop
        self.bar = self.progress.add_task("train", total=total, completed=done, loss=math.nan, validation="")

    def update(self, advance: int = 0, **fields: Any) -> None:
        self.progress.update(self.bar, advance=advance, **fields)


class Page:
    """A notebook element that is updated a few times per second; rich itself shows nothing there without ipywidgets."""

    def __init__(self, name: str, total: int, done: int) -> None:
        self.name, self.total, self.done, self.first = name, total, done, done
        self.fields: dict[str, Any] = {"loss": math.nan, "validation": ""}
        self.began = self.last = time.monotonic()
        self.handle: Any = None

    def start(self) -> None:
        from IPython.display import display

        self.began = self.last = time.monotonic()
        self.handle = display(self._picture(), raw=True, display_id=True)

    def update(self, advance: int = 0, **fields: Any) -> None:
        self.done += advance
        self.fields.update(fields)
        if time.monotonic() - self.last >= PERIOD:
            self._draw()

    def stop(self) -> None:
        self._draw()

    def _draw(self) -> None:
        self.last = time.monotonic()
        self.handle.update(self._picture(), raw=True)

    def _picture(self) -> dict[str, str]:
        """As HTML and as text: a notebook that is not trusted shows only the text."""
        gone, steps = time.monotonic() - self.began, self.done - self.first
        whole = self.done >= self.total
        left = gone if whole else gone * (self.total - self.done) / steps if steps else math.nan
        clock = "" if math.isnan(left) else f"{int(left) // 60}:{int(left) % 60:02d} {'in all' if whole else 'left'}"
        parts = (f"{self.done}/{self.total}", f"loss {self.fields['loss']:.2e}", self.fields["validation"], clock)
        words = "  ".join(part for part in parts if part)
        bar = f'<progress value="{self.done}" max="{self.total}"></progress>'
        line = f"<b>{escape(self.name)}</b> {bar} {escape(words)}"
        return {
            "text/plain": f"{self.name}  {words}",
            "text/html": f'<div style="font-family:monospace;white-space:pre">{line}</div>',
        }
