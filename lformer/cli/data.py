"""`lformer data`: list, describe, download and verify data sets, and check a table of your own."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table

from lformer.cli.common import (
    ChannelColumn,
    Decimal,
    Encoding,
    Horizon,
    IdColumn,
    IdKind,
    IdType,
    MissingNumbers,
    MissingText,
    OnDuplicate,
    Sep,
    StaticColumns,
    TableFile,
    TargetColumn,
    TargetsFile,
    TaskName,
    Thousands,
    TimeColumn,
    TimeFormat,
    TimeZone,
    Twice,
    UsageError,
    ValueColumns,
    clear_errors,
    console,
    say,
)

if TYPE_CHECKING:
    from lformer.data.dataset import Extra
    from lformer.panel import Panel

app = typer.Typer(no_args_is_help=True, help="Download the benchmark data sets, and check your own data.")

Name = Annotated[str, typer.Argument(help="Name of a data set, as shown by `lformer data list`.")]
MARKS = {"complete": "[green]here", "partial": "[yellow]partial", "absent": "-", "generated": "[green]generated",
         "damaged": "[red]damaged"}  # fmt: skip


@app.command("list")
def list_sets() -> None:
    """List all data sets: tasks, size, licence, and whether they are on this machine."""
    from lformer.data import DATASETS
    from lformer.data.manage import status
    from lformer.data.store import raw_home

    table = Table(title="Data sets")
    for column in ("name", "status", "tasks", "series", "title", "licence"):
        wide = column in ("title", "licence", "tasks")
        table.add_column(column, justify="right" if column == "series" else "left", no_wrap=not wide)
    notes = []
    with clear_errors():
        for name, dataset in DATASETS.items():
            card, here = dataset.card, status(dataset)
            table.add_row(name, MARKS[here.state], ", ".join(card.tasks), f"{card.series:,}", card.title, card.licence)
            notes += [f"{name}: {text}" for text in (here.note, card.flaw) if text]
            if here.path is not None:
                absent = [extra for extra, path in here.extras.items() if path is None]
                notes += [f"{name}: split {', '.join(e.splits)} needs {e.name}, which is missing" for e in absent]
    console.print(table)
    for note in notes:
        say(note)
    say(f"Raw files: {raw_home()}. Details: lformer data info NAME. Download: lformer data fetch NAME.")


@app.command()
def info(name: Name) -> None:
    """Show the card of a data set: source, licence, citation, tasks, options, known flaws."""
    from lformer.data import named
    from lformer.data.manage import status

    with clear_errors():
        dataset = named(name)
        here = status(dataset)
    card = dataset.card
    table = Table(show_header=False, box=None)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    rows: dict[str, Any] = {
        "title": card.title, "page": card.page, "licence": card.licence, "cite": card.citation,
        "size": f"{card.series:,} series, {card.length} rows, {card.channels} channels",
        "tasks": ", ".join(card.tasks), "splits": ", ".join(card.splits), "scalings": ", ".join(card.scalings),
        **{f"option {key}": ", ".join(map(str, choices)) for key, choices in card.options.items()},
        **{f"variant {key}": ", ".join(f"{k}={v}" for k, v in values.items()) for key, values in card.variants.items()},
        "known flaw": card.flaw, "downloads": "\n".join(remote.url for remote in card.remotes), "by hand": card.by_hand,
        "state": f"{here.state}. {here.note}".strip(), "file": here.path,
        **{f"extra {extra.stem}": _extra(extra, path) for extra, path in here.extras.items()},
    }  # fmt: skip
    for key, value in rows.items():
        if value:
            table.add_row(key, escape(str(value)))
    console.print(table)
    say(f'Load it in Python: lformer.data.load("{name}", task="{card.tasks[0]}", seed=42)')


def _extra(extra: "Extra", path: Path | None) -> str:
    where = path or f"{extra.name} is missing. By hand: {extra.by_hand}"
    return f"for split {', '.join(extra.splits)}: {extra.content}\n{where}"


@app.command()
def fetch(
    name: Name,
    again: Annotated[
        bool,
        typer.Option("--again", help="Discard earlier downloads and their recorded hashes, and download again."),
    ] = False,
) -> None:
    """Download, verify, convert and cache a data set. If interrupted, run the command again to resume."""
    from lformer.data import manage, named

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with clear_errors(), Progress(*columns, console=console, transient=True) as bars:
        bar: dict[str, Any] = {}

        def report(file: str, done: int, total: int | None) -> None:
            if file not in bar:
                bar[file] = bars.add_task(file, total=total)
            bars.update(bar[file], completed=done, total=total)

        manage.fetch(named(name), say, report, again=again)


@app.command()
def pack(
    name: Name,
    path: Annotated[Path, typer.Argument(help="Folder, archive or file, as published by its owner.")],
) -> None:
    """Convert files that you downloaded by hand."""
    from lformer.data import manage, named

    with clear_errors(), console.status(f"reading {path}"):
        manage.pack(named(name), path, say)


@app.command()
def verify(name: Name) -> None:
    """Read the raw files of a data set completely, and compare their hashes with the recorded ones."""
    from lformer.data import manage, named

    with clear_errors():
        good = manage.verify(named(name), say)
    if not good:
        raise typer.Exit(1)


@app.command()
def doctor(
    file: TableFile,
    id: IdColumn,
    time: TimeColumn,
    channel: ChannelColumn = None,
    value: ValueColumns = None,
    target: TargetColumn = None,
    targets: TargetsFile = None,
    task: TaskName = None,
    static: StaticColumns = None,
    horizon: Horizon = None,
    on_duplicate: OnDuplicate = Twice.error,
    missing_values: MissingNumbers = None,
    sep: Sep = None,
    decimal: Decimal = ".",
    thousands: Thousands = None,
    encoding: Encoding = "utf-8",
    time_format: TimeFormat = None,
    time_zone: TimeZone = None,
    id_type: IdKind = IdType.text,
    missing_text: MissingText = None,
    seed: Annotated[int, typer.Option(help="Random seed of the split, as in `lformer fit`.")] = 42,
    out: Annotated[Path | None, typer.Option("--out", help="HTML file for a report with figures.")] = None,
    batch_size: Annotated[int, typer.Option(help="Series per batch, to estimate the amount of padding.")] = 64,
) -> None:
    """Check your own data: gaps, duplicates, time stamps, sampling rates, missing values, padding, and targets.

    The verdict is that of `lformer fit` with the same options, up to the point where training would begin.

    Exit code 0: training would work. 1: it would fail, and the report says why. 2: something is wrong with the request.
    """
    from lformer import doctor as checks
    from lformer.cli import plan, read_table
    from lformer.doctor.checks import REFUSED

    with clear_errors():
        request = plan.Request(
            files=(file,), task=task, target=target, targets=targets, horizon=horizon, seed=seed,
            form=read_table.form(sep, decimal, thousands, encoding, time_format, time_zone, id_type, missing_text),
            missing=read_table.missing_values(missing_values),
            columns={"id": id, "time": time, "channel": channel, "value": read_table.one_value(channel, value),
                     "static": static or [], "on_duplicate": on_duplicate.value},
        )  # fmt: skip
        request.check(open_end=True)
    with clear_errors(code=1):
        table = request.read()
        found: list[checks.Finding] = []
        parts = None
        try:
            parts = plan.take_apart(request, table)
        except UsageError:
            raise
        except ValueError as error:
            found = [checks.Finding("error", REFUSED, str(error), "Put right what the message names.")]
        wrong: list[UsageError] = []

        def trial() -> "Panel":
            try:
                assert parts is not None
                return plan.try_out(request, parts)
            except UsageError as error:
                wrong.append(error)
                raise

        observations = plan.observations_of(request, table) if parts is None else parts.observations
        report = checks.examine(
            observations, id=id, time=time, channel=channel, value=request.columns["value"],
            missing_values=request.missing, batch_size=batch_size, on_duplicate=on_duplicate.value,
            trial=None if parts is None else trial,
        )  # fmt: skip
        if wrong:  # an option that does not fit the series is a wrong request, whatever else was found
            raise wrong[0]
        report = replace(report, findings=(*found, *report.findings), name=str(file)).in_options()
        console.print(report, soft_wrap=True)
        if out is not None:
            report.html(out)
            say(f"Report: {out}")
    if not report.ok:
        raise typer.Exit(1)
