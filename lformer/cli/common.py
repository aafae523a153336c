"""What all commands share: where they print, and how they fail."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

console = Console()

# How a table of observations is laid out, the same for every command that reads one.
TableFile = Annotated[Path, typer.Argument(help="CSV or Parquet with one observation per row.")]
IdColumn = Annotated[str, typer.Option("--id", help="Column that says whose observation it is.")]
TimeColumn = Annotated[str, typer.Option("--time", help="Column of stamps: numbers or ISO 8601.")]
ChannelColumn = Annotated[
    str | None, typer.Option("--channel", help="Column that says what was observed; none if each has its own.")
]
ValueColumns = Annotated[
    list[str] | None, typer.Option("--value", help="Column of the values; several if each channel has its own.")
]
MissingNumbers = Annotated[
    list[str] | None,
    typer.Option(
        "--missing-values",
        help="Number that stands for a missing value, such as -9999; of one channel, sodium=-1. May be repeated.",
    ),
]


class UsageError(ValueError):
    """An option that cannot be meant, whatever the data are."""


@contextmanager
def clear_errors(code: int = 2) -> Iterator[None]:
    """What a user can put right ends with one line and an exit code, not with a traceback.

    The code is 2 for a wrong request, such as a file that is not there, and `code` for anything else.
    """
    try:
        yield
    except (ValueError, TypeError, ImportError, OSError, ArithmeticError) as error:
        Console(stderr=True).print(Text.assemble(("error: ", "red"), str(error)))
        raise typer.Exit(2 if isinstance(error, UsageError | FileNotFoundError) else code) from error
