"""`lformer bench`: run cells of the paper's tables, and turn their records into tables."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from lformer.cli.common import clear_errors, console

app = typer.Typer(no_args_is_help=True, help="Every cell of the paper's tables.")

Out = Annotated[Path, typer.Option("--out", help="Folder of the records.")]
RECORDS = Path("results/bench")


@app.command("list")
def list_cells() -> None:
    """Data sets with their tasks and whether they are here, models, and ablations."""
    from lformer.bench.models import MODELS
    from lformer.bench.recipes import ABLATIONS, RECIPES
    from lformer.data import named
    from lformer.data.manage import status

    table = Table(title="Data sets")
    for column in ("name", "tasks", "here", "recipe: width, mixers, heads", "rate", "batch", "epochs"):
        table.add_column(column)
    for name, make in RECIPES.items():
        plan, card = make(), named(name).card
        sizes = f"{plan.model.width}, {plan.model.depth}, {plan.model.heads}"
        table.add_row(
            name, ", ".join(card.tasks), status(named(name)).state, sizes, f"{plan.train.lr:g}",
            str(plan.train.batch_size), str(plan.train.epochs),
        )  # fmt: skip
    console.print(table)
    console.print(f"Models: {', '.join(MODELS)}", highlight=False)
    console.print(f"Ablations of lformer: {', '.join(ABLATIONS)}", highlight=False)


@app.command()
def run(
    dataset: Annotated[str, typer.Option(help="Names of data sets, separated by commas.")],
    model: Annotated[str, typer.Option(help="Names of models, separated by commas.")] = "lformer",
    seeds: Annotated[str, typer.Option(help="Such as 42, 42,43 or 42-46.")] = "42-46",
    task: Annotated[str | None, typer.Option(help="Tasks, separated by commas; each set's first if not given.")] = None,
    ablation: Annotated[str, typer.Option(help="Exchanged parts of LFormer, separated by commas.")] = "",
    split: Annotated[str, typer.Option(help="published, or another rule of the data set.")] = "published",
    scaling: Annotated[str, typer.Option(help="published, none, standard or minmax.")] = "published",
    epochs: Annotated[int | None, typer.Option(help="At most so many; the records are marked as smoke runs.")] = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds per cell, after which it is OOT.")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes at a time; one per GPU if not given.")] = None,
    accelerator: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = "auto",
    engine: Annotated[str, typer.Option(help="How cells are run: local.")] = "local",
    log: Annotated[str, typer.Option(help="none, csv or tensorboard.")] = "none",
    out: Out = RECORDS,
) -> None:
    """Train and test cells: one JSON record per seed. Finished cells are skipped, interrupted ones go on."""
    from lformer.bench import grid
    from lformer.bench.engine import Settings

    with clear_errors():
        cells = grid.cells(
            datasets=_names(dataset), models=_names(model), seeds=grid.seeds(seeds), tasks=_names(task or ""),
            ablations=_names(ablation), split=split, scaling=scaling, epochs=epochs,
        )  # fmt: skip
        settings = Settings(root=out, time_limit=time_limit, accelerator=accelerator, log=log)
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console) as bar:
            total = bar.add_task(f"{len(cells)} cells", total=len(cells))
            running: dict[str, TaskID] = {}
            failures = []
            for outcome in grid.run(cells, settings, engine, workers):
                name = str(outcome.cell)
                if outcome.status == "running":
                    if name not in running:
                        running[name] = bar.add_task(name, total=None)
                    bar.update(running[name], description=f"{name}: {outcome.note}")
                    continue
                if name in running:
                    bar.remove_task(running.pop(name))
                bar.advance(total)
                bar.console.print(escape(f"{name}: {outcome.status}  {outcome.note}"), highlight=False, soft_wrap=True)
                if outcome.status == "failed":
                    failures.append(outcome)
    if failures:
        console.print(f"{len(failures)} of {len(cells)} cells failed:")
        for outcome in failures:
            console.print(
                escape(f"  {outcome.cell}: {outcome.status}, {outcome.note}"), highlight=False, soft_wrap=True
            )
        raise typer.Exit(1)


@app.command()
def table(
    out: Out = RECORDS,
    form: Annotated[str, typer.Option("--format", help="markdown, latex or csv.")] = "markdown",
) -> None:
    """The paper's tables, our figures beside the printed ones."""
    from lformer.bench import records, tables

    with clear_errors():
        if form not in ("markdown", "latex", "csv"):
            raise ValueError(f"--format must be markdown, latex or csv; got {form!r}.")
        if not out.is_dir():
            raise ValueError(f"no records in {out}; make some with `lformer bench run --dataset spiral-0.02`.")
        for each in tables.result_tables(records.read_all(out)):
            print(getattr(each, form)() + "\n")


@app.command()
def figures(
    out: Out = RECORDS,
    to: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path("runs/figures"),
) -> None:
    """What the records allow: training with and without normalisation, accuracy against throughput."""
    from lformer.bench import figures as module
    from lformer.bench import records

    with clear_errors():
        drawn = module.draw(records.read_all(out), to)
    for path in drawn:
        console.print(f"Figure: {path}")
    if not drawn:
        console.print(
            "Nothing to draw: run a cell with --ablation no_normalisation, or several models on one data set."
        )


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
