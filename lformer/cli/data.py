"""`lformer data`: what there is, where it comes from, whether it is here, how to get it, and a look at your own."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table

from lformer.cli.common import (
    ChannelColumn,
    IdColumn,
    MissingNumbers,
    TableFile,
    TimeColumn,
    ValueColumns,
    clear_errors,
    console,
)

if TYPE_CHECKING:
    from lformer.data.dataset import Extra

app = typer.Typer(no_args_is_help=True, help="Benchmark data sets, and a look at your own data.")

Name = Annotated[str, typer.Argument(help="Name of a data set, as `lformer data list` shows it.")]
MARKS = {"complete": "[green]here", "partial": "[yellow]partial", "absent": "-", "generated": "[green]generated",
         "damaged": "[red]damaged"}  # fmt: skip


def _say(text: str) -> None:
    console.print(escape(text), soft_wrap=True, highlight=False)


@app.command("list")
def list_sets() -> None:
    """All data sets: what they are for, how large, under which licence, and whether they are here."""
    from lformer.data import DATASETS
    from lformer.data.manage import status
    from lformer.data.store import raw_home

    table = Table(title="Data sets")
    for column in ("name", "here", "tasks", "series", "title", "licence"):
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
                notes += [f"{name}: split {', '.join(e.splits)} needs {e.name}, which is not here" for e in absent]
    console.print(table)
    for note in notes:
        _say(note)
    _say(f"Raw files: {raw_home()}. More of one: lformer data info NAME. Get one: lformer data fetch NAME.")


@app.command()
def info(name: Name) -> None:
    """The card of a data set: source, licence, citation, tasks, options, known flaws."""
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
    _say(f'Use it: lformer.data.load("{name}", task="{card.tasks[0]}", seed=42)')


def _extra(extra: "Extra", path: Path | None) -> str:
    where = path or f"{extra.name} is not here. By hand: {extra.by_hand}"
    return f"for split {', '.join(extra.splits)}: {extra.content}\n{where}"


@app.command()
def fetch(
    name: Name,
    again: Annotated[
        bool, typer.Option("--again", help="Forget earlier downloads and their recorded hashes: download all anew.")
    ] = False,
) -> None:
    """Download a data set from its source, verify, convert, cache. Run it again after an interruption: it goes on."""
    from lformer.data import manage, named

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with clear_errors(), Progress(*columns, console=console, transient=True) as bars:
        bar: dict[str, Any] = {}

        def report(file: str, done: int, total: int | None) -> None:
            if file not in bar:
                bar[file] = bars.add_task(file, total=total)
            bars.update(bar[file], completed=done, total=total)

        manage.fetch(named(name), _say, report, again=again)


@app.command()
def pack(
    name: Name,
    path: Annotated[Path, typer.Argument(help="Folder, archive or file as its owner publishes it.")],
) -> None:
    """Convert files you downloaded by hand."""
    from lformer.data import manage, named

    with clear_errors(), console.status(f"reading {path}"):
        manage.pack(named(name), path, _say)


@app.command()
def verify(name: Name) -> None:
    """Read the raw files of a data set to the end and compare their hashes with the recorded ones."""
    from lformer.data import manage, named

    with clear_errors():
        good = manage.verify(named(name), _say)
    if not good:
        raise typer.Exit(1)


@app.command()
def doctor(
    file: TableFile,
    id: IdColumn,
    time: TimeColumn,
    channel: ChannelColumn = None,
    value: ValueColumns = None,
    missing_values: MissingNumbers = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write a report with pictures to this HTML file.")] = None,
    batch_size: Annotated[int, typer.Option(help="Series per batch, for the estimate of padding.")] = 64,
) -> None:
    """Look over your own data: gaps, duplicates, stamps, rates, missingness, padding.

    Exit code 0: training would work. 1: it would fail, and the report says why.
    """
    from lformer import doctor as checks
    from lformer.cli import read_table

    with clear_errors():
        missing = read_table.missing_values(missing_values)
        table = checks.read_table(file, time=time)
        columns = value[0] if channel is not None and value else value or None
        report = checks.examine(
            table, id=id, time=time, channel=channel, value=columns, missing_values=missing, batch_size=batch_size
        )
        console.print(report, soft_wrap=True)
        if out is not None:
            report.html(out)
            _say(f"Report: {out}")
    if not report.ok:
        raise typer.Exit(1)
