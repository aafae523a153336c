"""What all commands share: where they print, how they fail, and the options that describe a table."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.text import Text

console = Console()
KINDS = "CSV, TSV, JSON lines or Parquet"


class Goal(StrEnum):
    """What to predict: for each series, for each of its rows, or at times between and after them."""

    classify = "classify"
    regress = "regress"
    classify_points = "classify-points"
    regress_points = "regress-points"
    interpolate = "interpolate"
    forecast = "forecast"

    @property
    def of_points(self) -> bool:
        return self in (Goal.classify_points, Goal.regress_points)

    @property
    def of_classes(self) -> bool:
        return self in (Goal.classify, Goal.classify_points)

    @property
    def of_records(self) -> bool:
        return self in (Goal.interpolate, Goal.forecast)


class IdType(StrEnum):
    """How ids are read."""

    text = "text"
    int = "int"


class Twice(StrEnum):
    """What to do if the same id, time and channel occur more than once."""

    error = "error"
    mean = "mean"
    last = "last"


TaskName = Annotated[
    Goal | None,
    typer.Option("--task", help="What to predict. By default classify or regress, depending on the target's values."),
]

# The layout of a table of observations, the same for every command that reads one.
TableFile = Annotated[Path, typer.Argument(help=f"{KINDS} file with one observation per row.")]
TableFiles = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        help=f"{KINDS} file with one observation per row. Several files, a folder or 'big/*.parquet' are one table.",
    ),
]
IdColumn = Annotated[str, typer.Option("--id", help="Column with the id of the series that each row belongs to.")]
TimeColumn = Annotated[
    str, typer.Option("--time", help="Column with the time stamps: numbers, ISO 8601, or see --time-format.")
]
ChannelColumn = Annotated[
    str | None,
    typer.Option("--channel", help="Column with the name of the channel, unless each channel has its own column."),
]
ValueColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--value",
        help="Column with the values. Repeat it if each channel has its own column; by default all other columns.",
    ),
]
MissingNumbers = Annotated[
    list[str] | None,
    typer.Option(
        "--missing-values",
        help="Number that stands for a missing value, such as -9999, or sodium=-1 for one channel. Can be repeated.",
    ),
]
TargetColumn = Annotated[
    str | None,
    typer.Option(
        "--target", help="Column to predict, the same in all rows of an id except for tasks that end in -points."
    ),
]
TargetsFile = Annotated[
    Path | None, typer.Option("--targets", help=f"{KINDS} file with the target of each id, if it is not in FILE.")
]
GroupColumn = Annotated[
    str | None,
    typer.Option(
        "--group",
        help="Column with the subject of each series, such as a patient or device that has several. All series of a "
        "subject are used either for training or for testing.",
    ),
]
StaticColumns = Annotated[
    list[str] | None,
    typer.Option("--static", help="Column with a static covariate, the same in all rows of an id. Can be repeated."),
]
Horizon = Annotated[
    str | None,
    typer.Option("--horizon", help="How far ahead to forecast: in the unit of the time stamps, or a span such as 36h."),
]
OnDuplicate = Annotated[
    Twice, typer.Option("--on-duplicate", help="What to do if the same id, time and channel occur more than once.")
]

# The format of the file, likewise.
Sep = Annotated[
    str | None, typer.Option("--sep", help="Separator between cells. By default a comma, or a tab for .tsv.")
]
Decimal = Annotated[str, typer.Option("--decimal", help="Decimal mark in numbers.")]
Thousands = Annotated[str | None, typer.Option("--thousands", help="Thousands separator in numbers, if any.")]
Encoding = Annotated[str, typer.Option("--encoding", help="Text encoding, such as latin-1.")]
TimeFormat = Annotated[
    str | None,
    typer.Option(
        "--time-format",
        help='Format of the time stamps, such as "%d.%m.%Y %H:%M", or duration, excel (day numbers), unix-s, unix-ms, '
        "unix-us or unix-ns.",
    ),
]
TimeZone = Annotated[
    str | None,
    typer.Option(
        "--time-zone",
        help="Time zone of the time stamps, such as Europe/Berlin. Those without an offset are local time there, those "
        "with one are converted to it.",
    ),
]
IdKind = Annotated[
    IdType | None,
    typer.Option("--id-type", help="text keeps ids as written (007 is not 7), int reads them as whole numbers."),
]
MissingText = Annotated[
    list[str] | None,
    typer.Option(
        "--missing-text", help="Text that stands for a missing value, in addition to NA and the like. Can be repeated."
    ),
]


class UsageError(ValueError):
    """An option that is invalid, whatever the data are."""


@contextmanager
def clear_errors(code: int = 2) -> Iterator[None]:
    """End with one line and an exit code, not with a traceback, if the user can correct the error.

    The code is 2 for an invalid request, such as a file that does not exist, and `code` for anything else.
    """
    try:
        yield
    except (ValueError, TypeError, ImportError, OSError, ArithmeticError) as error:
        Console(stderr=True).print(Text.assemble(("error: ", "red"), str(error)))
        raise typer.Exit(2 if isinstance(error, UsageError | FileNotFoundError) else code) from error


def say(text: str) -> None:
    """Print a line of text as it is."""
    console.print(escape(text), soft_wrap=True, highlight=False)


def require_records(folder: Path, option: str = "--out") -> None:
    """Raise an error if there is no folder of records to make tables or figures from."""
    if not folder.is_dir():
        raise UsageError(
            f"there are no records in {folder.absolute()}. Those of the published tables are in the repository of "
            f"lformer, in {folder.as_posix()}: run the command there, or give the folder with {option}. To make "
            "records of your own, run `lformer bench run --dataset spiral-0.02`."
        )
