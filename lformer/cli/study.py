"""`lformer demo` and `lformer speed`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from lformer.cli.common import clear_errors, console


def demo(
    alpha: Annotated[str, typer.Option(help="Spread of the spirals: 2, 0.2 or 0.02.")] = "0.02",
    points: Annotated[int, typer.Option(help="Observed points out of the first 75.")] = 30,
    noise: Annotated[float, typer.Option(help="Standard deviation of the noise, before scaling.")] = 0.1,
    epochs: Annotated[int, typer.Option(help="Epochs of 100 steps; the learning rate falls to 0 over them.")] = 60,
    seed: Annotated[int, typer.Option(help="Of spirals, noise and weights; the same seed repeats the run.")] = 42,
    out: Annotated[Path, typer.Option(help="Folder for the record and the figure.")] = Path("runs/demo"),
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
) -> None:
    """Train LFormer on noisy, irregular spirals for two minutes and draw what it reconstructs."""
    from lformer.bench import demo as bench
    from lformer.bench import tables
    from lformer.data import DATASETS

    if f"spiral-{alpha}" not in DATASETS:
        known = [name.removeprefix("spiral-") for name in DATASETS if name.startswith("spiral-")]
        raise typer.BadParameter(f"{alpha!r} is not one of {', '.join(known)}.", param_hint="--alpha")
    config = bench.DemoConfig(alpha=alpha, points=points, noise=noise, epochs=epochs, seed=seed, folder=out)
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
    lengths: Annotated[str, typer.Option(help="Lengths, separated by commas.")] = "512,1024,2048,4096,8192,16384",
    batches: Annotated[str, typer.Option(help="Batch sizes, separated by commas.")] = "1,8,32",
    models: Annotated[
        str, typer.Option(help="Any of lformer, lformer-causal, gru, transformer and, if installed, mambapy.")
    ] = "lformer,lformer-causal,gru,transformer",
    limit: Annotated[float, typer.Option(help="Seconds one call may take before longer series are given up.")] = 20.0,
    memory: Annotated[float, typer.Option(help="GiB one call may take, likewise.")] = 12.0,
    system_allocator: Annotated[
        bool, typer.Option("--system-allocator", help="Let the C library return freed memory to the system.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for the record and the figure.")] = Path("runs/speed"),
) -> None:
    """Time and memory against length on this CPU: LFormer, non-causal and causal, beside its peers."""
    from lformer.bench import plots
    from lformer.bench import speed as bench

    with clear_errors():
        plots.require_matplotlib()
        config = bench.SpeedConfig(
            lengths=_numbers(lengths), batches=_numbers(batches), models=tuple(models.split(",")), limit=limit,
            memory=memory, allocator="system" if system_allocator else "keep", folder=out,
        )  # fmt: skip
        with console.status("measuring") as status:
            record = bench.run(
                config, lambda c: status.update(f"batch {c.batch}, length {c.length:,}: {c.model}, {c.work}")
            )
    cells = [bench.Cell(**cell) for cell in record["cells"]]
    for work in bench.WORKS:
        for batch in config.batches:
            header, *body = bench.table(cells, work, batch)
            table = Table(title=f"{work}, batch {batch}")
            for n, name in enumerate(header):
                table.add_column(name, justify="right" if n else "left")
            for row in body:
                table.add_row(*row)
            console.print(table)
    for name, value in record["summary"].items():
        console.print(f"{name}: {value:.3g}", highlight=False)
    batch = int(record["summary"]["batch"])
    plots.speed_figure(out / "speed.png", cells, batch)
    console.print(f"Figure: {out / 'speed.png'}   Record: {out / 'speed.json'}")


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise ValueError(f"expected whole numbers separated by commas; got {text!r}.") from error
