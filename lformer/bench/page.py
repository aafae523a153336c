"""A page of the documentation with all results between its marks: a summary, then a table for each data set and task.

The tables of `bench table` have a column for each system, as the paper's; on a page that is too wide to be read, so
here systems are rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from lformer.bench import elsewhere
from lformer.bench.layout import MARKDOWN, NONE, Entry, Line, Table, markdown
from lformer.bench.marks import fill
from lformer.bench.records import Record
from lformer.bench.tables import OURS, main_tables, result_tables, summary

METRICS = 2  # in one table; more are too wide for a page
Subject = tuple[str, str, str, str]  # data set, task, split, scaling


def filled(text: str, records: Iterable[Record]) -> str:
    """The page with the results of these records."""
    found = list(records)
    made = result_tables(found)
    said = "\n".join(_said(main_tables(found)))
    parts = ["## In short", said, summary(found), *elsewhere.section(found), "## All systems", MARKDOWN.legend]
    parts += [part for table in made for part in _section(table)]
    return fill(text, "tables", "\n\n".join(part for part in parts if part))


def _said(tables: list[Table]) -> Iterator[str]:
    """What the rows say of LFormer, counted."""
    lines = [line for table in tables for line in table.lines]
    gains = [gain for line in lines if (gain := line.entries[OURS].gain) is not None]
    if gains:
        met = sum(gain >= 0 for gain in gains)
        yield (
            f"- By the paper's recipe, LFormer meets the printed figure in {met} of the {len(gains)} rows that can be "
            f"compared, and misses it in {len(gains) - met}."
        )
    first = [line for line in lines if line.entries[OURS].rank is not None and _rivals(line)]
    if first:
        best = sum(line.entries[OURS].rank == 1 for line in first)
        yield (
            f"- Of the models that were trained by the paper's recipe it is the best in {best} of the {len(first)} "
            "rows where there are rivals."
        )
    pairs = [(line, pair) for line in lines if (pair := _against_simple(line)) is not None]
    if pairs:
        lost = [line.subject(with_task=True) for line, (ours, simple) in pairs if ours >= simple]
        where = f", and not on {'; '.join(dict.fromkeys(lost))}" if lost else ""
        yield (
            f"- LFormer, by its best recipe, is ahead of the best simple model in {len(pairs) - len(lost)} of the "
            f"{len(pairs)} rows that have both{where}."
        )


def _rivals(line: Line) -> bool:
    return any(entry.rank is not None for column, entry in line.entries.items() if column != OURS)


def _against_simple(line: Line) -> tuple[float, float] | None:
    """The costs of LFormer and of a simple model, both by what the validation part chooses, as in the summary."""
    ours, simple = [], []
    for column, entry in line.entries.items():
        if entry.cost is not None and column.partition(" ")[0] == OURS:
            ours.append((entry.choice, entry.cost))
        elif entry.cost is not None and entry.ours is not None and entry.ours.kind == "simple":
            simple.append((entry.choice, entry.cost))
    return (min(ours)[-1], min(simple)[-1]) if ours and simple else None


def _section(table: Table) -> Iterator[str]:
    """A table of the paper: one for each data set and task that has a record, and the notes."""
    subjects: dict[Subject, list[Line]] = {}
    for line in table.lines:
        subjects.setdefault((line.measure.dataset, line.measure.task, line.split, line.scaling), []).append(line)
    yield f"### {table.title}"
    without = []
    for lines in subjects.values():
        name = lines[0].subject(with_task=True)
        if any(entry.ours is not None for line in lines for entry in line.entries.values()):
            yield f"**{MARKDOWN.escape(name)}**"
            yield from (markdown(_rows(lines[k : k + METRICS])) for k in range(0, len(lines), METRICS))
        else:
            without.append(name)
    notes = [f"No record yet: {'; '.join(without)}."] if without else []
    if table.ranks:
        order = sorted(table.ranks.items(), key=lambda pair: pair[1])
        notes.append(f"Mean rank over {table.ranked}: {', '.join(f'{name} {rank:.2f}' for name, rank in order)}.")
    yield "\n".join(f"- {MARKDOWN.escape(note)}" for note in (*notes, *table.notes))


def _rows(lines: list[Line]) -> list[list[str]]:
    """Systems as rows, the best by the first metric first, simple models apart; ours and the paper's of each metric."""
    header = ["system"]
    for line in lines:
        header += [line.metric, "paper"] if line.published else [line.metric]
    columns = [c for c in lines[0].entries if any(line.entries[c].ours or line.entries[c].printed for line in lines)]
    columns.sort(key=lambda column: _order(lines[0].entries[column]))
    simple = [c for c in columns if any((o := line.entries[c].ours) and o.kind == "simple" for line in lines)]
    rows = [[column, *_cells(lines, column)] for column in columns if column not in simple]
    apart = [["*simple models*", *[""] * (len(header) - 1)]] if simple else []
    rows += [*apart, *([column, *_cells(lines, column)] for column in simple)]
    return [header, *([MARKDOWN.escape(row[0]), *row[1:]] for row in rows)]


def _order(entry: Entry) -> tuple[int, float]:
    """Figures first, then what failed, then what the paper alone has."""
    if entry.ours is not None and entry.ours.values:
        return 0, -entry.sign * entry.ours.mean
    if entry.ours is not None:
        return 1, 0.0
    known = entry.printed is not None and math.isfinite(entry.printed.mean)
    return 2, -entry.sign * entry.printed.mean if known and entry.printed is not None else math.inf


def _cells(lines: list[Line], column: str) -> Iterator[str]:
    for line in lines:
        entry = line.entries[column]
        ours, _, printed = MARKDOWN.cell(entry).partition(" / ")
        yield ours or NONE
        if line.published:
            yield printed
