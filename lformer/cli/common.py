"""What all commands share: where they print, how they fail, and the options that say how a table is laid out."""

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
    """What is asked: of each series, of each of its rows, or at times between and after them."""

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
    """What to do with the same id, time and channel twice."""

    error = "error"
    mean = "mean"
    last = "last"


TaskName = Annotated[
    Goal | None,
    typer.Option("--task", help="What to learn. By default classify or regress, by what the target holds."),
]

# Where things stand in a table of observations, the same for every command that reads one.
TableFile = Annotated[Path, typer.Argument(help=f"{KINDS} with one observation per row.")]
TableFiles = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...", help=f"{KINDS} with one observation per row. Several, a folder or 'big/*.parquet' are one."
    ),
]
IdColumn = Annotated[str, typer.Option("--id", help="Column that says whose observation it is.")]
TimeColumn = Annotated[str, typer.Option("--time", help="Column of stamps: numbers, ISO 8601, or see --time-format.")]
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
TargetColumn = Annotated[
    str | None,
    typer.Option("--target", help="Column to predict, the same in all rows of an id unless it is of points."),
]
TargetsFile = Annotated[
    Path | None, typer.Option("--targets", help=f"{KINDS} with the target of each id, if not in FILE.")
]
GroupColumn = Annotated[
    str | None,
    typer.Option(
        "--group",
        help="Column that says whose a series is, if a patient or device has several: all of one are trained on, or "
        "all are tested on.",
    ),
]
StaticColumns = Annotated[
    list[str] | None, typer.Option("--static", help="Column of a covariate, the same in all rows of an id.")
]
Horizon = Annotated[
    str | None, typer.Option("--horizon", help="How far to forecast: in the unit of the stamps, or such as 36h.")
]
OnDuplicate = Annotated[
    Twice, typer.Option("--on-duplicate", help="What to do with the same id, time and channel twice.")
]

# How the file is written, likewise.
Sep = Annotated[str | None, typer.Option("--sep", help="What separates cells; a comma if not given, or a tab in .tsv.")]
Decimal = Annotated[str, typer.Option("--decimal", help="Decimal mark of numbers.")]
Thousands = Annotated[str | None, typer.Option("--thousands", help="What separates thousands in numbers, if anything.")]
Encoding = Annotated[str, typer.Option("--encoding", help="Of the text, such as latin-1.")]
TimeFormat = Annotated[
    str | None,
    typer.Option(
        "--time-format",
        help='Such as "%d.%m.%Y %H:%M"; or duration, excel (day numbers), unix-s, unix-ms, unix-us, unix-ns.',
    ),
]
TimeZone = Annotated[
    str | None,
    typer.Option(
        "--time-zone",
        help="Such as Europe/Berlin: stamps without an offset are local time there, others are converted to it.",
    ),
]
IdKind = Annotated[
    IdType | None,
    typer.Option("--id-type", help="text leaves ids as they are written (007 is not 7), int reads whole numbers."),
]
MissingText = Annotated[
    list[str] | None,
    typer.Option("--missing-text", help="Cell that stands for a missing value, besides NA and the like. Repeatable."),
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


def say(text: str) -> None:
    """A line of text as it is."""
    console.print(escape(text), soft_wrap=True, highlight=False)


def require_records(folder: Path, option: str = "--out") -> None:
    """Refuse to make tables and pictures of records that are not there."""
    if not folder.is_dir():
        raise UsageError(
            f"there are no records in {folder.absolute()}. Those of the published tables are in the repository of "
            f"lformer, in {folder.as_posix()}: run the command there, or name the folder by {option}. Records of your "
            "own come from `lformer bench run --dataset spiral-0.02`."
        )
