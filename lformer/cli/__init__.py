"""The command line: parse, call, print."""

from typing import Annotated

import typer

import lformer
from lformer.cli import bench, data, defaults, experiment, export, model, stream, warm
from lformer.cli.common import console

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Deep learning for irregularly sampled time series.")
app.command()(experiment.demo)
app.command()(experiment.speed)
app.command()(warm.warm)
app.command()(model.fit)
app.command()(model.predict)
app.command()(stream.stream)
app.command()(export.export)
bench.app.command("defaults")(defaults.defaults)
bench.app.command("defaults-table")(defaults.defaults_table)
app.add_typer(bench.app, name="bench")
app.add_typer(data.app, name="data")


def _version(wanted: bool) -> None:
    if wanted:
        console.print(lformer.__version__)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Deep learning for irregularly sampled time series."""
