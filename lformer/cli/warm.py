"""`lformer warm`: compile the fused kernels in advance."""

from typing import Annotated

import typer

from lformer.cli.common import clear_errors, console


def warm(
    width: Annotated[int, typer.Option(help="Width of the model.")] = 64,
    heads: Annotated[int, typer.Option(help="Number of heads of the model.")] = 4,
    rows: Annotated[int, typer.Option(help="Approximate number of rows of a series.")] = 512,
    batch: Annotated[int, typer.Option(help="Number of series in a batch.")] = 64,
) -> None:
    """Compile the fused kernels of a model for this machine's GPU, so that its first step need not wait for them."""
    from lformer.bench.warm import warm as compiled

    with clear_errors():
        done = 0
        for name, seconds in compiled(width, heads, rows, batch):
            console.print(f"{name}: {seconds:.1f} s", highlight=False)
            done += 1
        if not done:
            console.print(f"There is no fused mixer of width {width} with {heads} heads; nothing to compile.")
