"""Records to what the page draws: boards, systems, runs; every figure and its text are those of `bench table`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from lformer.bench import tables
from lformer.bench.explorer.compare import against, critical
from lformer.bench.explorer.runs import Runs, says
from lformer.bench.explorer.statistics import reach
from lformer.bench.layout import Entry, Line, Table
from lformer.bench.paper import FULL
from lformer.bench.records import Cell, Record, grouped

Key = tuple[str, str, str, str]  # data set, task, split, scaling
DIGITS = 8  # of numbers that are drawn, which are no longer than their picture needs


def gather(records: Iterable[Record]) -> dict[str, Any]:
    """Everything the page shows, as JSON has it."""
    found = list(records)
    if not found:
        raise ValueError("no records, so no page: run a cell first, or name the folder that holds the records.")
    ablation, main = tables.ablation_table(found), tables.main_tables(found)
    groups = _groups(found)
    runs = Runs()
    boards: dict[Key, dict[str, Any]] = {}
    for table in main:
        for line in table.lines:
            boards.setdefault(_key(line), _board(line, table))["lines"].append(_line(line, groups, runs))
    for line in ablation.lines:
        own = {column.removeprefix(f"{tables.OURS} "): r for column, r in groups.get(_key(line), {}).items()}
        own[FULL] = own.pop(tables.OURS, [])
        shown = _line(line, {_key(line): own}, runs, compared=False)
        boards.setdefault(_key(line), _board(line, ablation))["ablations"].append(shown)
    first: dict[Key, Line] = {}
    for line in (line for table in main for line in table.lines):
        first.setdefault(_key(line), line)
    return {
        "boards": list(boards.values()), "runs": _plain(runs.list), "configs": _plain(runs.configs),
        "critical": critical(first.values()), "count": len(found),
        "systems": len({Cell(**r["cell"]).label for r in found if not r["cell"]["ablation"]}),
        "datasets": len({r["cell"]["dataset"] for r in found}),
    }  # fmt: skip


def _groups(records: Iterable[Record]) -> dict[Key, dict[str, list[Record]]]:
    """Protocol -> column -> the records that its figure is the mean of."""
    found: dict[Key, dict[str, list[Record]]] = {}
    keys = ("dataset", "task", "split", "scaling")
    for (dataset, task, split, scaling, *_), own in grouped(records, *keys, "model", "variant", "ablation"):
        column = Cell(**own[0]["cell"]).label
        found.setdefault((dataset, task, split, scaling), {})[column] = tables.fullest(own)
    return found


def _key(line: Line) -> Key:
    return line.measure.dataset, line.measure.task, line.split, line.scaling


def _board(line: Line, table: Table) -> dict[str, Any]:
    dataset, task, split, scaling = _key(line)
    about = {"dataset": dataset, "task": task, "split": split, "scaling": scaling, "table": table.title}
    return {**about, "lines": [], "ablations": []}


def _line(line: Line, groups: dict[Key, dict[str, list[Record]]], runs: Runs, compared: bool = True) -> dict[str, Any]:
    """A metric of a board: its systems as in the row of the table, and the paired comparison."""
    own = groups.get(_key(line), {})
    metrics = sorted({name for some in own.values() for r in some for name in (r.get("printed") or r["metrics"])})
    name, _, unit = line.metric.partition(" (")
    digits = max((entry.shown_digits for entry in line.entries.values() if entry.ours), default=2)
    return {
        "metric": line.measure.metric, "name": name[:-2], "unit": unit.removesuffix(")"), "sign": line.measure.sign,
        "factor": line.measure.factor, "digits": min(digits, 5),
        "systems": [
            _system(column, entry, own.get(column, []), line, runs, metrics)
            for column, entry in line.entries.items()
            if entry.ours is not None or entry.printed is not None
        ],
        "paired": _plain(against(line, own)) if compared else None,
    }  # fmt: skip


def _system(
    column: str, entry: Entry, records: Sequence[Record], line: Line, runs: Runs, metrics: list[str]
) -> dict[str, Any]:
    """An entry: what the table says of it, and where it comes from."""
    shown: dict[str, Any] = {"name": column, "kind": "paper"}
    if entry.printed is not None:
        shown["paper"] = _known(text=entry.printed.text, mean=entry.printed.mean, sd=entry.printed.deviation)
    ours = entry.ours
    if ours is None:
        return shown
    done = [r for r in records if r["status"] == "done"]
    points = []
    for record in records:
        value = record["metrics"].get(line.measure.metric) if record["status"] == "done" else None
        at = line.measure.factor * value if value is not None and math.isfinite(value) else None
        points.append([runs.index(record, metrics), _plain(at)])
    parameters = [r["parameters"] for r in done if r.get("parameters")]
    seconds = [r["seconds"] for r in done if r.get("seconds")]
    return shown | _known(
        kind=ours.kind, text=ours.figure(entry.shown_digits), remark=ours.remark, mean=ours.mean, sd=ours.deviation,
        reach=reach(ours.values) if ours.values else math.nan, failed=" ".join(ours.failed), partial=ours.partial,
        smoke=ours.smoke, trivial=ours.trivial, comparable=ours.comparable, rank=entry.rank, mark=entry.mark,
        verdict=entry.verdict, points=points, seconds=median(seconds) if seconds else None,
        parameters=max(parameters) if parameters else None,
    )  # fmt: skip


def _known(**fields: Any) -> dict[str, Any]:
    """Fields that say something; 0 does."""
    return {name: value for name, value in _plain(fields).items() if says(value)}


def _plain(value: Any) -> Any:
    """As JSON has it: nothing that is not finite, and no digits that nobody sees."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value
