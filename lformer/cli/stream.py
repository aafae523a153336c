"""`lformer stream`: read JSON lines as they arrive, and write a prediction for each."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer
from rich.console import Console

from lformer.cli.common import clear_errors

if TYPE_CHECKING:
    from lformer.cli.lines import Lines

CHUNK = 2**18  # largest number of bytes that are read at once


class LateRows(StrEnum):
    """What to do with an observation that is earlier than the last row of its series."""

    refuse = "refuse"
    drop = "drop"
    merge = "merge"


class StoppedError(Exception):
    """SIGTERM, received while waiting for input."""


def stream(
    model: Annotated[Path, typer.Argument(help="Folder of a model that was fitted with --streaming.")],
    state: Annotated[
        Path | None,
        typer.Option(
            "--state", help="Folder to resume from, if it exists, and to save the state to at the end and on SIGTERM."
        ),
    ] = None,
    every: Annotated[
        int, typer.Option("--every", min=0, help="Also save the state after every so many lines; 0 turns this off.")
    ] = 0,
    late: Annotated[
        LateRows,
        typer.Option("--late", help="Refuse, drop or merge observations earlier than the last row of their series."),
    ] = LateRows.refuse,
    memory: Annotated[
        int | None,
        typer.Option("--memory", min=1, help="Number of rows of a series that --late merge can roll back."),
    ] = None,
) -> None:
    """Read JSON lines of any number of series from standard input, and write a prediction for each to standard output.

    A line is {"id": "p1", "time": 3.5, "values": {"heart rate": 71}}; the first line of a series also has
    "static": {...} if the model has covariates. Channels that are null or left out were not observed. A line such as
    {"id": "p1", "at": 4.0} requests a prediction for a time and does not change the state. An invalid line is answered
    with {"line": 7, "error": ...} and does not affect the others.

    Exit code 0: the input ended. 143: SIGTERM; the state is saved, and every line that was read is answered.
    """
    from lformer.allocator import keep_freed_pages
    from lformer.cli.lines import Lines
    from lformer.estimators.artefact import load_with_columns
    from lformer.estimators.stream_files import FILE

    keep_freed_pages()
    with clear_errors():
        estimator, columns = load_with_columns(model)
        streams = estimator.streams(late=late.value, memory=memory)
        if state is not None and (state / FILE).is_file():
            streams.load(state)
            _say(f"{len(streams):,} series, {int(streams.rows().sum()):,} rows: {state}")
        lines = Lines(streams, columns or {})
    with clear_errors(code=1):
        ended = _follow(sys.stdin.buffer, lines, state, every)
    if lines.wrong or streams.dropped:
        _say(f"{lines.count:,} lines: {lines.wrong:,} invalid, {streams.dropped:,} dropped as late.")
    raise typer.Exit(ended)


def _follow(source: BinaryIO, lines: Lines, state: Path | None, every: int) -> int:
    """Answer until the input ends, and return the exit code: 0, or 143 after SIGTERM."""
    saved = lines.count

    def save() -> None:
        if state is not None:
            lines.streams.save(state)
            _say(f"State after {lines.count:,} lines: {state}")

    try:
        with _stopping() as wait:
            rest = b""
            while part := wait(lambda: source.read1(CHUNK)):  # type: ignore[attr-defined]
                *whole, rest = (rest + part).split(b"\n")
                _write(lines.answers(whole))
                if every and lines.count - saved >= every:
                    save()
                    saved = lines.count
            _write(lines.answers([rest] if rest.strip() else []))
    except StoppedError:
        return 128 + signal.SIGTERM
    finally:
        save()
    return 0


@contextmanager
def _stopping() -> Iterator[Callable[[Callable[[], bytes]], bytes]]:
    """Inside, SIGTERM interrupts only the waiting for input: lines that were read are answered first."""
    asked = waiting = False

    def handle(number: int, frame: object) -> None:
        nonlocal asked
        asked = True
        if waiting:
            raise StoppedError

    def wait(read: Callable[[], bytes]) -> bytes:
        nonlocal waiting
        waiting = True
        try:
            if asked:
                raise StoppedError
            return read()
        finally:
            waiting = False

    main = threading.current_thread() is threading.main_thread()  # others may not set signal handlers
    before = signal.signal(signal.SIGTERM, handle) if main else None
    try:
        yield wait
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)


def _write(answers: list[dict[str, Any]]) -> None:
    """Write one line each, and flush."""
    if answers:
        sys.stdout.write("".join(json.dumps(answer, ensure_ascii=False) + "\n" for answer in answers))
        sys.stdout.flush()


def _say(text: str) -> None:
    """Print to standard error, apart from the answers."""
    Console(stderr=True).print(text, highlight=False, soft_wrap=True, markup=False)
