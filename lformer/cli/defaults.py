"""`lformer bench defaults` and `lformer bench defaults-table`: benchmarks of the default settings."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from lformer.cli.common import clear_errors, console, require_records

if TYPE_CHECKING:
    from lformer.bench.defaults.run import Outcome

Out = Annotated[Path, typer.Option("--out", help="Folder of the records.")]
RECORDS, OPTIONS = Path("results/defaults"), Path("results/options")


def defaults(
    sets: Annotated[
        str, typer.Option(help="Names of data sets, separated by commas. By default all on this machine.")
    ] = "",
    methods: Annotated[str, typer.Option(help="Names of methods, separated by commas. By default all.")] = "",
    seeds: Annotated[
        str, typer.Option(help="Random seeds, such as 0, 0,1 or 0-2; deterministic methods are run once.")
    ] = "0-2",
    folds: Annotated[
        bool, typer.Option("--folds", help="Score on validation folds of the training set, not on the test set.")
    ] = False,
    device: Annotated[str, typer.Option(help="Device for lformer: auto, cpu or gpu.")] = "auto",
    workers: Annotated[int, typer.Option(min=1, help="Number of parallel processes.")] = 1,
    out: Out = RECORDS,
) -> None:
    """Compare the estimators, at their defaults, to common alternatives: one record per data set, method and seed.

    Cells that have a record are skipped. Exit code 0: everything is done or impossible. 1: some cells failed, or a data
    set that was named is missing. 2: the request is invalid. 130 or 143: stopped by Ctrl-C or SIGTERM; run the same
    command again to resume.
    """
    from lformer.bench import grid
    from lformer.bench.defaults import run
    from lformer.bench.engine import exit_on_signals

    with clear_errors():
        wanted = run.cells(_names(sets), _names(methods), grid.seeds(seeds), folds=folds)
        try:
            with exit_on_signals(), closing(run.run(wanted, out, device=device, workers=workers)) as outcomes:
                ended = _watched(outcomes, len(wanted))
        except SystemExit:
            console.print("Stopped. Run the same command again to continue with the cells that have no record yet.")
            raise
    failed = [outcome for outcome in ended if outcome.status == "failed"]
    absent = [outcome for outcome in ended if outcome.status == "not here" and sets]
    for outcome in failed + absent:
        _print(f"  {outcome.cell}: {outcome.status}, {outcome.note}")
    if failed or absent:
        raise typer.Exit(1)


def defaults_table(
    out: Out = RECORDS,
    options: Annotated[
        Path, typer.Option(help="Folder of the records of changed options; if it has none, their table is kept as is.")
    ] = OPTIONS,
    write: Annotated[
        Path | None,
        typer.Option(help="Markdown page to update, between the markers <!-- defaults --> and <!-- /defaults -->."),
    ] = None,
) -> None:
    """Print scores with standard errors, ranks and training times from the records."""
    from lformer.bench.defaults import records, table

    with clear_errors():
        require_records(out)
        found = records.read_all(out)
        if write is None:
            print(table.tables(found))
            return
        page = table.filled(write.read_text(encoding="utf-8"), found, records.read_all(options))
        write.write_text(page, encoding="utf-8")
        console.print(f"Tables: {write}")


def _watched(outcomes: Iterable[Outcome], count: int) -> list[Outcome]:
    """The outcomes of the cells, shown as they arrive."""
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(), TimeElapsedColumn())
    ended = []
    with Progress(*columns, console=console) as bar:
        total = bar.add_task(f"{count} cells", total=count)
        for outcome in outcomes:
            if outcome.status == "running":
                bar.update(total, description=str(outcome.cell))
                continue
            ended.append(outcome)
            bar.advance(total)
            if outcome.status != "skipped":
                _print(f"{outcome.cell}: {outcome.status}  {outcome.note}")
    if skipped := sum(outcome.status == "skipped" for outcome in ended):
        console.print(f"{skipped} of {count} cells already had a record.")
    return ended


def _print(line: str) -> None:
    console.print(escape(line), highlight=False, soft_wrap=True)


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
