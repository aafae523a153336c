"""Read a file into a table."""

from __future__ import annotations

import csv
import gzip
import importlib
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pandas as pd

from lformer.doctor.dates import is_text, read_stamps
from lformer.doctor.form import PLAIN, Form
from lformer.doctor.ids import read_ids
from lformer.panel import Array

TEXT = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
LINES = (".jsonl", ".jsonl.gz")
SUFFIXES = (*TEXT, *LINES, ".parquet")
KNOWN = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
NA = (
    "", "NA", "N/A", "n/a", "<NA>", "#N/A", "#N/A N/A", "#NA", "NaN", "nan", "-NaN", "-nan", "NULL", "null", "None",
    "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN",
)  # fmt: skip
SEPARATORS = ";\t|,"  # that are recognised in a file
UNNAMED = "Unnamed: "  # name of a column without one, followed by its position


def read_table(
    path: str | Path, *, id: str | None = None, time: str | None = None, channel: str | None = None, form: Form = PLAIN
) -> pd.DataFrame:
    """Read a table from a text file, JSON lines or Parquet, depending on the suffix of the file.

    Args:
        path: path of the file. Rows of text are labelled with their line numbers.
        id: column with the ids: text, unless `form` says otherwise. Only an empty cell is missing, not NA or null.
        time: column with the time stamps, read according to `form`. It stays text if one cannot be read or if their
            time zones differ; `examine` reports which.
        channel: column with the channel names, which are also text.
        form: format of the file.
    """
    path = Path(path)
    if not is_known(path):
        raise ValueError(f"expected a file that ends with {KNOWN}; got {path}.")
    name = path.name.lower()
    named = [column for column in (id, channel) if column is not None]
    if name.endswith(TEXT):
        table = _text(path, named, time, form)
    elif name.endswith(LINES):
        table = _lines(path, form)
    else:
        table = _parquet(path)
    if twice := [str(column) for column in table.columns[table.columns.duplicated()]]:
        raise ValueError(f"{path} has several columns called {', '.join(map(repr, twice))}. Rename all but one.")
    if id in table.columns:
        table[id] = read_ids(table[id], form.id_type, f"{path}, column {id!r}")
    if time in table.columns:
        table[time] = read_stamps(table[time], form, f"{path}, column {time!r}")
    return table


def is_known(path: Path) -> bool:
    """Whether the suffix of a file is one that can be read and written."""
    return path.name.lower().endswith(SUFFIXES)


# -- text


def _text(path: Path, named: Sequence[str], time: str | None, form: Form) -> pd.DataFrame:
    sep = form.sep or ("\t" if ".tsv" in path.name.lower() else ",")
    above, header = _header(path, sep, form)
    names = [name.strip() or f"{UNNAMED}{i}" for i, name in enumerate(header)]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(
            f"{path} has several columns called {', '.join(map(repr, twice))} in its first line. Rename all but one."
        )
    na: dict[str, list[str]] = {name: [""] if name in named else [*NA, *form.missing_text] for name in names}
    as_text = [name for name in (*named, *([time] if form.dated else [])) if name in names]
    options: dict[str, Any] = {
        "sep": sep, "decimal": form.decimal, "thousands": form.thousands, "encoding": _encoding(form), "names": names,
        "header": 0, "skiprows": above, "index_col": False, "na_values": na,
        "keep_default_na": False, "low_memory": False,
    }  # fmt: skip
    try:
        table = _parsed(path, options, as_text, form)
        table.index, places = _line_numbers(path, above, len(table), options, form)
        if (blank := _blank(table)).any():  # left out before types are inferred, so that whole numbers stay whole
            kept = table.index[~blank]
            table = _parsed(path, options | {"skiprows": [*range(above), *places[blank]]}, as_text, form)
            table.index = kept
    except pd.errors.ParserError as error:
        raise ValueError(_unparsed(path, options, form, str(error))) from None
    except (UnicodeError, EOFError, gzip.BadGzipFile) as error:
        raise ValueError(_undecoded(path, form, error)) from error
    return _without_counters(table)


def _parsed(path: Path, options: dict[str, Any], as_text: Sequence[str], form: Form) -> pd.DataFrame:
    """The table; an error if a row has more cells than columns. Trailing separators do not count as cells."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            table = pd.read_csv(path, **options)
        except pd.errors.ParserWarning:
            if wide := _too_wide(path, options, form):
                raise ValueError(wide) from None
            warnings.simplefilter("ignore", pd.errors.ParserWarning)
            table = pd.read_csv(path, **options)
        for name in as_text:  # a column with any text already is text as written; one of numbers is read again
            if not is_text(table[name]):
                table[name] = pd.read_csv(path, **options, usecols=[name], dtype=str)[name]
    return table


def _encoding(form: Form) -> str:
    """The encoding, where UTF-8 may begin with a byte order mark, which is not part of the first name."""
    return "utf-8-sig" if form.encoding.lower().replace("_", "-") in ("utf-8", "utf8") else form.encoding


def _open(path: Path, form: Form) -> TextIO:
    opened: Any = gzip.open if path.name.lower().endswith(".gz") else open
    return opened(path, "rt", encoding=_encoding(form), newline="")


def _header(path: Path, sep: str, form: Form) -> tuple[int, list[str]]:
    """The number of blank lines at the top, and the cells of the first line after them."""
    try:
        with _open(path, form) as lines:
            for above, line in enumerate(lines):
                if line.strip():
                    return above, next(csv.reader([line], delimiter=sep))
    except (UnicodeError, EOFError, gzip.BadGzipFile) as error:
        raise ValueError(_undecoded(path, form, error)) from error
    except csv.Error as error:
        raise ValueError(f"{path}: the first line cannot be read as names of columns: {error}.") from error
    raise ValueError(f"{path} is empty; expected a first line with the names of the columns.")


def _without_counters(table: pd.DataFrame) -> pd.DataFrame:
    """The table without unnamed columns that are empty or count the rows, as an index written by pandas does."""
    surplus = [
        name
        for i, name in enumerate(table.columns)
        if name == f"{UNNAMED}{i}"
        and (table[name].isna().all() or (i == 0 and np.array_equal(table[name], np.arange(len(table)))))
    ]
    return table.drop(columns=surplus) if surplus else table


def _blank(table: pd.DataFrame) -> Array:
    """(R,) bool, True for rows of separators alone, as spreadsheets write them below a table."""
    blank: Array = table.iloc[:, 0].isna().to_numpy(copy=True)
    if blank.any():
        blank[blank] = table[blank].isna().all(axis=1)
    return blank


def _line_numbers(path: Path, above: int, rows: int, options: dict[str, Any], form: Form) -> tuple[pd.Index, Array]:
    """The number of the line on which each row begins, from 1; and its place among all rows, even blank ones, from 0.

    They are looked up only if some lines are blank, or some rows span several lines.
    """
    plain = pd.RangeIndex(above + 2, above + 2 + rows)
    opened: Any = gzip.open if path.name.lower().endswith(".gz") else open
    with opened(path, "rb") as file:
        count, last = 0, b"\n"
        while block := file.read(2**20):
            count, last = count + block.count(b"\n"), block[-1:]
    if count + (last != b"\n") == above + 1 + rows:
        return plain, np.asarray(plain) - 1
    found, before = [], 0
    with _open(path, form) as lines:
        reader = csv.reader(lines, delimiter=options["sep"])
        for place, cells in enumerate(reader):
            if len(cells) > 1 or "".join(cells).strip():
                found.append((before + 1, place))
            before = reader.line_num
    if len(found) != 1 + rows:
        return plain, np.asarray(plain) - 1
    numbers, places = np.array(found[1:], np.int64).reshape(-1, 2).T
    return pd.Index(numbers), places


# -- what is wrong with a file


def _undecoded(path: Path, form: Form, error: Exception) -> str:
    if isinstance(error, EOFError | gzip.BadGzipFile):
        return f"{path} cannot be unpacked: {error}. Copy it again."
    with path.open("rb") as file:
        begin = file.read(2)
    guess = "utf-16" if begin in (b"\xff\xfe", b"\xfe\xff") else "latin-1"
    why = (
        f"{error.reason}, byte {error.object[error.start]:#04x}"
        if isinstance(error, UnicodeDecodeError)
        else str(error)
    )
    return f"{path} is not written in {form.encoding} ({why}). Give its encoding, perhaps --encoding {guess} or cp1252."


def _unparsed(path: Path, options: dict[str, Any], form: Form, error: str) -> str:
    """A likely reason why a file could not be parsed."""
    if "EOF inside string" in error:
        line = _open_quote(path, form)
        return f'{path}, row {line}: a quotation mark (") is opened and never closed. Close it, or write it twice.'
    wide = _too_wide(path, options, form)
    return wide or f"{path} cannot be read as text with {_spelt(options['sep'])} between cells: {error.strip()}."


def _open_quote(path: Path, form: Form) -> int:
    """The line on which the quotation mark that is never closed was opened."""
    open_at, inside = 1, False
    with _open(path, form) as lines:
        for number, line in enumerate(lines, 1):
            if line.count('"') % 2:
                inside = not inside
                open_at = number if inside else open_at
    return open_at


def _too_wide(path: Path, options: dict[str, Any], form: Form) -> str:
    """Error message for the first row with more cells than there are names; "" if there is none."""
    sep, names = options["sep"], options["names"]
    if other := separator_of(names):
        return f"{path} has a single column, {names[0]!r}. {use_separator(other)}"
    with _open(path, form) as lines:
        reader = csv.reader(lines, delimiter=sep)
        for cells in reader:
            while len(cells) > len(names) and not cells[-1].strip():
                cells.pop()
            if len(cells) > len(names):
                return (
                    f"{path}, row {reader.line_num} has {len(cells)} cells, but there are {len(names)} names of "
                    f"columns: {sep.join(cells)[:80]!r}. Text or numbers that hold {_spelt(sep)} need quotation "
                    'marks ("), or another separator between the cells, which --sep names.'
                )
    return ""


def _spelt(sep: str) -> str:
    return {"\t": "a tab", ",": "a comma", ";": "a semicolon", " ": "a space"}.get(sep, repr(sep))


def separator_of(names: Sequence[Any]) -> str | None:
    """The likely separator of a text file that was read as a single column; None if there is none."""
    if len(names) != 1:
        return None
    return max((sep for sep in SEPARATORS if sep in str(names[0])), key=str(names[0]).count, default=None)


def use_separator(sep: str) -> str:
    """Advice to use another separator."""
    comma = ", and --decimal , if numbers have a decimal comma" if sep == ";" else ""
    written = repr(sep) if sep != "\t" else "'\\t', or call the file .tsv"
    return f"Its cells seem to be separated by {_spelt(sep)}: give --sep {written}{comma}."


# -- other files


def _lines(path: Path, form: Form) -> pd.DataFrame:
    """A table with a JSON object on each line."""
    rows: dict[int, dict[str, Any]] = {}
    try:
        with _open(path, form) as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    rows[number] = json.loads(line)
                    if not isinstance(rows[number], dict):
                        raise ValueError("it is not an object")
    except (UnicodeDecodeError, EOFError, gzip.BadGzipFile) as error:
        raise ValueError(_undecoded(path, form, error)) from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}, row {number} cannot be read as an object of JSON: {error}.") from error
    if not rows:
        raise ValueError(f"{path} is empty; expected one JSON object per line.")
    return pd.DataFrame(list(rows.values()), index=list(rows))


def _parquet(path: Path) -> pd.DataFrame:
    try:
        importlib.import_module("pyarrow")
    except ImportError:
        raise ImportError(f'{path} needs pyarrow to be read: pip install "lformer[data]"') from None
    try:
        return pd.read_parquet(path, engine="pyarrow")
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as Parquet: {error}.") from error
