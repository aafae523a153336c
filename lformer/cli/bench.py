"""`lformer bench`: run cells of the paper's tables, and turn their records into tables."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from lformer.cli.common import clear_errors, console, require_records

if TYPE_CHECKING:
    from lformer.bench.engine import Outcome, Settings
    from lformer.bench.tuning import Study

app = typer.Typer(no_args_is_help=True, help="Run the paper's benchmarks, and make tables and figures of the records.")

Out = Annotated[Path, typer.Option("--out", help="Folder of the records.")]
RECORDS = Path("results/bench")
EngineName = Annotated[str, typer.Option("--engine", help="Where cells run: local, or ray for a cluster.")]
Address = Annotated[
    str | None,
    typer.Option(help="Address of a Ray cluster, or auto. By default, --engine ray starts one on this machine."),
]
GpuShare = Annotated[
    float | None,
    typer.Option(help="Fraction of a GPU per cell on a Ray cluster with GPUs. By default an eighth (0.125)."),
]


@app.command("list")
def list_cells(
    device: Annotated[
        str | None, typer.Option(help="cuda: show which code path each recipe and estimator takes on a GPU, and why.")
    ] = None,
) -> None:
    """List the data sets, with their tasks and whether they are on this machine, and the models and variants."""
    if device is not None:
        with clear_errors():
            _list_paths(device)
        return
    from lformer.bench.models import MODELS
    from lformer.bench.recipes import ABLATIONS, BEST, VARIANTS, recipe, stand_in
    from lformer.data import DATASETS
    from lformer.data.manage import status

    table = Table(title="Data sets")
    for column in ("name", "tasks", "status", "recipe: width, mixers, heads", "lr", "batch", "epochs"):
        table.add_column(column)
    for name, dataset in DATASETS.items():
        plan = recipe(name)
        model = plan.config(stand_in(dataset.card.tasks[0]))
        table.add_row(
            name, ", ".join(dataset.card.tasks), status(dataset).state, f"{model.width}, {model.depth}, {model.heads}",
            f"{plan.train.lr:g}", str(plan.train.batch_size), str(plan.train.epochs),
        )  # fmt: skip
    console.print(table)
    lines = {
        "Models": [name for name, entry in MODELS.items() if not entry.at_once],
        "Simple models, fitted without epochs": [name for name, entry in MODELS.items() if entry.at_once],
        "Ablations of lformer": ABLATIONS,
        "Variants, recipes other than the paper's": VARIANTS,
        "Cells with a best variant": [" ".join(cell) for cell in BEST],
    }
    for title, names in lines.items():
        console.print(f"{title}: {', '.join(names)}", highlight=False)


def _list_paths(device: str) -> None:
    """The paths depend on shapes alone, so any machine can tell which ones a GPU would take."""
    from lformer.bench.paths import all_paths

    if device != "cuda":
        raise ValueError(f"--device must be cuda, the only device with several code paths; got {device!r}.")
    table = Table(title="Paths on a recent NVIDIA GPU, in TF32")
    for column in ("recipe or estimator", "training", "prediction", "reason", "what would change it"):
        table.add_column(column, no_wrap=column == "recipe or estimator")
    for name, training, answering in all_paths():
        table.add_row(name, training.name, answering.name, escape(training.reason), escape(training.remedy))
    console.print(table)


@app.command()
def run(
    dataset: Annotated[str, typer.Option(help="Names of data sets, separated by commas.")],
    model: Annotated[str, typer.Option(help="Names of models, separated by commas.")] = "lformer",
    seeds: Annotated[str, typer.Option(help="Random seeds, such as 42, 42,43 or 42-46.")] = "42-46",
    task: Annotated[
        str | None, typer.Option(help="Tasks, separated by commas. By default the first task of each data set.")
    ] = None,
    ablation: Annotated[str, typer.Option(help="Ablations of LFormer, separated by commas.")] = "",
    variant: Annotated[str, typer.Option(help="Recipes other than the paper's, separated by commas.")] = "",
    split: Annotated[str, typer.Option(help="published, or another split of the data set.")] = "published",
    scaling: Annotated[
        str, typer.Option(help="published, or another scaling of the data set, such as standard.")
    ] = "published",
    epochs: Annotated[
        int | None,
        typer.Option(help="Number of epochs, if fewer than in the recipe. The records are marked as smoke runs."),
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Time limit per cell in seconds; a cell that exceeds it is out of time (OOT).")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Number of parallel processes. By default one per GPU, or eight with --mps.")
    ] = None,
    mps: Annotated[
        bool, typer.Option("--mps", help="Start NVIDIA's Multi-Process Service for processes that share a GPU.")
    ] = False,
    device: Annotated[str, typer.Option(help="Device to train on: auto, cpu or gpu.")] = "auto",
    engine: EngineName = "local",
    address: Address = None,
    gpu_share: GpuShare = None,
    log: Annotated[str, typer.Option(help="Log of the training runs: none, csv or tensorboard.")] = "none",
    out: Out = RECORDS,
) -> None:
    """Train and test cells, with one JSON record per seed. Finished cells are skipped, interrupted ones resumed.

    Exit code 0: every cell has its record. 1: some cells failed. 2: the request is invalid. 3: none failed, but another
    process is working on some. 130 or 143: stopped by Ctrl-C or SIGTERM; run the same command again to resume.
    """
    from lformer.bench import grid
    from lformer.bench.engine import exit_on_signals, gpus_for
    from lformer.bench.mps import hint

    with clear_errors():
        cells = grid.cells(
            datasets=_names(dataset), models=_names(model), seeds=grid.seeds(seeds), tasks=_names(task or ""),
            ablations=_names(ablation), variants=_names(variant), split=split, scaling=scaling, epochs=epochs,
        )  # fmt: skip
        if mps and engine != "local":
            raise ValueError(f"--mps is for processes on this machine, with --engine local; got --engine {engine}.")
        settings = _settings(
            engine, address, gpu_share, root=out, time_limit=time_limit, device=device, log=log, mps=mps
        )  # fmt: skip
        if engine == "local" and (words := hint(workers, gpus_for(device), mps)):
            console.print(words, highlight=False)
        try:
            with exit_on_signals(), closing(grid.run(cells, settings, engine, workers)) as outcomes:
                ended = _watched(outcomes, len(cells))
        except SystemExit:
            console.print("Stopped. Run the same command again to resume; running cells resume from their last epoch.")
            raise
    code = 0
    for status, said, worst in (("busy", "have no record yet", 3), ("failed", "failed", 1)):
        if these := [outcome for outcome in ended if outcome.status == status]:
            console.print(f"{len(these)} of {len(cells)} cells {said}:")
            for outcome in these:
                _print(f"  {outcome.cell}: {outcome.status}, {outcome.note}")
            code = worst
    if code:
        raise typer.Exit(code)


@app.command()
def tune(
    dataset: Annotated[str, typer.Option(help="Name of the data set.")],
    model: Annotated[str, typer.Option(help="Name of the model to tune.")] = "lformer",
    task: Annotated[str | None, typer.Option(help="Task of the data set. By default its first task.")] = None,
    trials: Annotated[
        int | None, typer.Option(help="Total number of trials in the study; 20 if --minutes is not given either.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Minutes after which this call starts no more trials; running ones finish.")
    ] = None,
    variant: Annotated[str, typer.Option(help="Recipe to start from, instead of the paper's.")] = "",
    split: Annotated[str, typer.Option(help="published, or another split of the data set.")] = "published",
    scaling: Annotated[str, typer.Option(help="published, or another scaling of the data set.")] = "published",
    seed: Annotated[int, typer.Option(help="Random seed of every trial and of the sampler.")] = 42,
    epochs: Annotated[
        int | None, typer.Option(help="Number of epochs of a trial, if fewer than in the recipe.")
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(help="Time limit per trial in seconds; a trial that exceeds it is out of time (OOT)."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Number of parallel trials, and of trials per round. By default 1.")
    ] = None,
    device: Annotated[str, typer.Option(help="Device to train on: auto, cpu or gpu.")] = "auto",
    engine: EngineName = "local",
    address: Address = None,
    gpu_share: GpuShare = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the study. By default runs/tune/DATASET-TASK-MODEL.")
    ] = None,
) -> None:
    """Tune the hyperparameters of a model on the validation set of a data set. The test set is never evaluated.

    The folder contains the best settings (best.json), all trials (trials.csv) and the importance of each hyperparameter
    (importance.csv). The same command resumes an interrupted study. Exit codes are those of `lformer bench run`.
    """
    from lformer.bench import grid, tuning
    from lformer.bench.engine import exit_on_signals

    with clear_errors():
        if trials is None and minutes is None:
            trials = 20
        found = grid.cells(
            datasets=[dataset], models=[model], seeds=[seed], tasks=_names(task or ""), variants=_names(variant),
            split=split, scaling=scaling, epochs=epochs,
        )  # fmt: skip
        if len(found) != 1:
            raise ValueError(f"a study has one data set, task, model and variant; got {len(found)} combinations.")
        names = (dataset, found[0].task, found[0].label.replace(" ", "-"))
        folder = Path("runs/tune", "-".join(names)) if out is None else out
        settings = _settings(engine, address, gpu_share, root=folder, time_limit=time_limit, device=device)
        with tuning.held(folder):
            study = tuning.Study(found[0], folder, seed=seed)
            running = study.run(settings, engine=engine, workers=workers, trials=trials, minutes=minutes)
            try:
                with exit_on_signals(), closing(running):
                    ended = _watched(running, study.left(trials))
            except SystemExit:
                console.print(
                    "Stopped. Run the same command again to resume; running trials resume from their last epoch."
                )
                raise
            _show(study)
    if any(outcome.status == "failed" for outcome in ended):
        raise typer.Exit(1)


def _show(study: Study) -> None:
    """Print the trials of a study, best first, the importance of its settings, and where both were written."""
    table = Table(title=f"Trials, {study.monitor} on the validation set")
    for column in ("trial", study.monitor, "settings"):
        table.add_column(column)
    for trial in study.ranked:
        value = trial.status if trial.value is None else f"{trial.value:.4g}"
        chosen = (f"{name.split('.')[1]} {_short(setting)}" for name, setting in trial.chosen.items())
        table.add_row(str(trial.number), value, ", ".join(chosen))
    console.print(table)
    if mattered := study.importance():
        shares = ", ".join(f"{name.split('.')[1]} {share:.0%}" for name, share in mattered.items())
        _print(f"Importance: {shares}")
    else:
        console.print("Importance: not available, because too few trials have different scores.")
    for path in study.write():
        console.print(f"Written: {path}")


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _settings(engine: str, address: str | None, gpu_share: float | None, **others: Any) -> Settings:
    """Settings to run cells with; options of a cluster are refused by other engines."""
    from lformer.bench.engine import Settings

    asked = {"address": address, "gpu_share": gpu_share}
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    if given and engine != "ray":
        names = ", ".join("--" + name.replace("_", "-") for name in given)
        raise ValueError(f"{names}: for Ray clusters only, with --engine ray; got --engine {engine}.")
    return Settings(**given, **others)


def _watched(outcomes: Iterable[Outcome], count: int | None) -> list[Outcome]:
    """The outcomes of the cells, shown as they arrive; `count` is None if their number is not known."""
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(), TimeElapsedColumn())
    ended = []
    with Progress(*columns, console=console) as bar:
        total = bar.add_task("cells" if count is None else f"{count} cells", total=count)
        running: dict[str, TaskID] = {}
        for outcome in outcomes:
            name = str(outcome.cell)
            if outcome.status == "running":
                if name not in running:
                    running[name] = bar.add_task(name, total=None)
                bar.update(running[name], description=f"{name}: {outcome.note}")
                continue
            _print(f"{name}: {outcome.status}  {outcome.note}")
            if outcome.ended:
                ended.append(outcome)
                bar.advance(total)
                if name in running:
                    bar.remove_task(running.pop(name))
    return ended


def _print(line: str) -> None:
    console.print(escape(line), highlight=False, soft_wrap=True)


@app.command()
def table(
    out: Out = RECORDS,
    form: Annotated[str, typer.Option("--format", help="Output format: markdown, latex or csv.")] = "markdown",
    write: Annotated[
        Path | None,
        typer.Option(help="Markdown page to update, between the markers <!-- tables --> and <!-- /tables -->."),
    ] = None,
) -> None:
    """Print the paper's tables, with our figures next to the published ones."""
    from lformer.bench import page, records, tables

    with clear_errors():
        if form not in ("markdown", "latex", "csv"):
            raise ValueError(f"--format must be markdown, latex or csv; got {form!r}.")
        if write is not None and form != "markdown":
            raise ValueError(f"--write fills a Markdown page; got --format {form}.")
        require_records(out)
        found = records.read_all(out)
        if write is not None:
            write.write_text(page.filled(write.read_text(encoding="utf-8"), found), encoding="utf-8")
            console.print(f"Tables: {write}")
            return
        for each in tables.result_tables(found):
            print(getattr(each, form)() + "\n")


@app.command()
def figures(
    out: Out = RECORDS,
    to: Annotated[Path, typer.Option(help="Folder for the figures.")] = Path("runs/figures"),
) -> None:
    """Draw figures from the records: training with and without normalisation, accuracy against throughput."""
    from lformer.bench import figures as module
    from lformer.bench import records

    with clear_errors():
        require_records(out)
        drawn = module.draw(records.read_all(out), to)
    for path in drawn:
        console.print(f"Figure: {path}")
    if not drawn:
        console.print(
            "Nothing to draw: run a cell with --ablation no_normalisation, or several models on one data set."
        )


@app.command()
def page(
    records: Annotated[Path, typer.Option(help="Folder of the records.")] = RECORDS,
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("runs/page/index.html"),
) -> None:
    """Write all records to one HTML page: rankings, paired comparisons, costs, learning curves, ablations.

    The page needs no network and no other file. Append `#dataset=physionet&task=extrapolate&metric=mse` to its address
    to link to one comparison.
    """
    from lformer.bench import explorer

    with clear_errors():
        require_records(records, "--records")
        console.print(f"Page: {explorer.write(records, out)}", soft_wrap=True)


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
