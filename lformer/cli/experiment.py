"""`lformer demo` and `lformer speed`."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.table import Table

from lformer.cli.common import clear_errors, console


def demo(
    alpha: Annotated[str, typer.Option(help="Spread of the spirals: 2, 0.2 or 0.02.")] = "0.02",
    points: Annotated[int, typer.Option(help="Number of observed points among the first 75.")] = 30,
    noise: Annotated[float, typer.Option(help="Standard deviation of the noise, before scaling.")] = 0.1,
    epochs: Annotated[
        int, typer.Option(help="Number of epochs, of 100 steps each; the learning rate decays to 0 over them.")
    ] = 60,
    seed: Annotated[
        int, typer.Option(help="Random seed of spirals, noise and weights; the same seed repeats the run.")
    ] = 42,
    out: Annotated[Path, typer.Option(help="Folder for the record and the figure.")] = Path("runs/demo"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Train for one epoch, to check in seconds that everything works.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Hide the progress bar.")] = False,
) -> None:
    """Train LFormer on noisy, irregular spirals for two minutes, and plot the curves that it reconstructs."""
    from lformer.bench import demo as bench
    from lformer.bench import tables
    from lformer.data import DATASETS

    if f"spiral-{alpha}" not in DATASETS:
        known = [name.removeprefix("spiral-") for name in DATASETS if name.startswith("spiral-")]
        raise typer.BadParameter(f"{alpha!r} is not one of {', '.join(known)}.", param_hint="--alpha")
    config = bench.DemoConfig(
        alpha=alpha, points=points, noise=noise, epochs=1 if quick else epochs, seed=seed, folder=out
    )
    with clear_errors():
        record = bench.run(config, progress=not quiet)

    table = Table(title=f"{record['dataset']}, test spirals, errors × 1e-2")
    table.add_column("metric")
    table.add_column(f"this run, seed {seed}", justify="right")
    table.add_column("LFormer paper, five seeds", justify="right")
    for metric, ours, mean, deviation in tables.demo_rows(record):
        table.add_row(metric, f"{ours:.2f}", f"{mean:.2f} ± {deviation:.2f}")
    console.print(table)
    console.print(f"{record['parameters']:,} parameters, {record['seconds']:.0f} s of training.")
    console.print(f"Figure: {out / 'spirals.png'}   Record: {out / 'record.json'}")


def speed(
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="Device to measure.")] = "cpu",
    quick: Annotated[bool, typer.Option("--quick", help="Measure fewer lengths, with fewer repeats.")] = False,
    lengths: Annotated[
        str | None,
        typer.Option(
            help="Series lengths, separated by commas. By default 512 to 16384 on a CPU, 64 to 131072 on a GPU."
        ),
    ] = None,
    batches: Annotated[
        str | None,
        typer.Option(help="Batch sizes, separated by commas. By default 1,8,32 on a CPU; on a GPU a single one, 8."),
    ] = None,
    models: Annotated[
        str | None,
        typer.Option(
            help="Models, separated by commas: lformer, lformer-causal, gru, transformer (the default), lformer-plain, "
            "lformer-plain-causal, the baselines and, if installed, mambapy; on a GPU also mamba-ssm and simple-gla. "
            "Two names stand for separate studies. all: one training step of every trained model at one length, 4096 "
            "by default. scaling: training steps against length, for models that solve differential equations and for "
            "others."
        ),
    ] = None,
    limit: Annotated[
        float | None,
        typer.Option(
            help="Time limit of one call in seconds; once exceeded, longer series are skipped. By default 20 on a CPU "
            "and 2 on a GPU; 15 and 4 with all; 10 and 4 with scaling."
        ),
    ] = None,
    deadline: Annotated[
        float | None,
        typer.Option(
            help="Seconds after which no new measurement starts. By default none on a CPU and 150 on a GPU; 600 and "
            "110 with all; 240 and 70 with scaling."
        ),
    ] = None,
    memory: Annotated[
        float, typer.Option(help="Memory limit of one call on a CPU in GiB; once exceeded, longer series are skipped.")
    ] = 12.0,
    system_allocator: Annotated[
        bool, typer.Option("--system-allocator", help="Let the C library return freed memory to the operating system.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for the record, tables and figure.")] = Path("runs/speed"),
) -> None:
    """Measure time and memory against series length, for LFormer and other models; on a GPU also throughput.

    On a GPU, the results are also compared with the limits of the device.
    """
    with clear_errors():
        if models == "all":
            sizes = {"length": lengths, "batch": batches}
            one = {name: _numbers(text)[0] for name, text in sizes.items() if text}
            _speed_every({"device": device, "folder": out} | _said(limit=limit, deadline=deadline) | one, quick)
            return
        if models == "scaling":
            said = _said(
                lengths=lengths and _numbers(lengths), batch=batches and _numbers(batches)[0], limit=limit,
                deadline=deadline, memory=memory if device == "cpu" else None, folder=out,
            )  # fmt: skip
            _speed_scaling(device, said, quick)
            return
        given = _said(
            lengths=lengths and _numbers(lengths), models=models and tuple(models.split(",")), limit=limit,
            deadline=deadline, folder=out,
        )  # fmt: skip
        if device == "cpu":
            allocator = "system" if system_allocator else "keep"
            given |= {"batches": _numbers(batches)} if batches else {}
            _speed_cpu(given | {"memory": memory, "allocator": allocator}, quick)
        else:
            given |= {"batch": _numbers(batches)[0]} if batches else {}
            _speed_gpu(given, quick)


def _speed_cpu(given: dict[str, Any], quick: bool) -> None:
    from lformer.bench import plots
    from lformer.bench.speed import WORKS, Cell, SpeedConfig, cpu, figures, table

    plots.require_matplotlib()
    config = SpeedConfig(**((SpeedConfig.QUICK if quick else {}) | given))
    with console.status("measuring") as status:
        record = cpu.run(config, lambda c: status.update(f"batch {c.batch}, length {c.length:,}: {c.model}, {c.work}"))
    cells = [Cell(**cell) for cell in record["cells"]]
    for work in WORKS:
        for batch in config.batches:
            header, *body = table(cells, work, batch)
            shown = Table(title=f"{work}, batch {batch}")
            for n, name in enumerate(header):
                shown.add_column(name, justify="right" if n else "left")
            for row in body:
                shown.add_row(*row)
            console.print(shown)
    for name, value in record["summary"].items():
        console.print(f"{name}: {value:.3g}", highlight=False)
    figures.draw(config.folder / "cpu.png", cells, int(record["summary"]["batch"]))
    console.print(f"Figure: {config.folder / 'cpu.png'}   Record: {config.folder / 'cpu.json'}")


def _speed_gpu(given: dict[str, Any], quick: bool) -> None:
    from lformer.bench.speed import figures, studies, tables

    config = (studies.StudiesConfig.quick if quick else studies.StudiesConfig)(**given)
    with console.status("measuring") as status:
        record = studies.run(config, lambda found: status.update(str(found)))
    console.print(tables.page(record), highlight=False, markup=False)
    try:
        figures.draw_gpu(config.folder / "cuda.png", record)
    except ImportError as error:  # the record is what matters, and a figure can be drawn from it elsewhere
        console.print(str(error), markup=False)
    console.print(f"Record, tables and figure: {config.folder}/cuda.json, .md, .png")
    if tables.failures(record):
        raise typer.Exit(1)


def _speed_every(given: dict[str, Any], quick: bool) -> None:
    from lformer.bench.layout import markdown
    from lformer.bench.speed import every

    config = every.EveryConfig(**((every.QUICK if quick else {}) | given))
    with console.status("measuring") as status:
        record = every.run(config, lambda cell: status.update(f"{cell.model}, {cell.work}"))
    console.print(every.words(record), highlight=False)
    console.print(markdown(every.table(record)), highlight=False, markup=False)
    console.print(f"Record: {every.path(config)}")


def _speed_scaling(device: Literal["cpu", "cuda"], given: dict[str, Any], quick: bool) -> None:
    from lformer.bench.layout import markdown
    from lformer.bench.speed import figures, scaling

    config = scaling.ScalingConfig.on(device, quick, **given)
    with console.status("measuring") as status:
        record = scaling.run(config, lambda cell: status.update(f"length {cell.length:,}: {cell.model}"))
    console.print(scaling.words(record), highlight=False, markup=False)
    console.print(markdown(scaling.table(record)), highlight=False, markup=False)
    path = scaling.path(config)
    try:
        figures.draw_scaling(path.with_suffix(".png"), record)
    except ImportError as error:  # the record is what matters, and a figure can be drawn from it elsewhere
        console.print(str(error), markup=False)
    console.print(f"Record and figure: {path}, .png")


def _said(**choices: Any) -> dict[str, Any]:
    """The choices that were made."""
    return {name: value for name, value in choices.items() if value is not None}


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise ValueError(f"expected whole numbers separated by commas; got {text!r}.") from error
