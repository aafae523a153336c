"""What all commands share: where they print, and how they fail."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.text import Text

console = Console()


@contextmanager
def clear_errors() -> Iterator[None]:
    """What a user can put right ends with one line and exit code 2, not with a traceback."""
    try:
        yield
    except (ValueError, TypeError, ImportError, OSError, ArithmeticError) as error:
        Console(stderr=True).print(Text.assemble(("error: ", "red"), str(error)))
        raise typer.Exit(2) from error
