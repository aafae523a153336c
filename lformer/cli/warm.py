"""`lformer warm`: compile the fused kernels ahead."""

from typing import Annotated

import typer

from lformer.cli.common import clear_errors, console


def warm(
    width: Annotated[int, typer.Option(help="Of the model.")] = 64,
    heads: Annotated[int, typer.Option(help="Of the model.")] = 4,
    rows: Annotated[int, typer.Option(help="Of a series, about.")] = 512,
    batch: Annotated[int, typer.Option(help="Series in a batch.")] = 64,
) -> None:
    """Compile the fused kernels of a model on this machine's GPU, so that its first step does not wait for them."""
    from lformer.bench.warm import warm as compiled

    with clear_errors():
        done = 0
        for name, seconds in compiled(width, heads, rows, batch):
            console.print(f"{name}: {seconds:.1f} s", highlight=False)
            done += 1
        if not done:
            console.print(f"There are no fused mixers of width {width} with {heads} heads; nothing to compile.")
