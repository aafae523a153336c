"""Records to tables: those of the paper with our figures beside the printed ones, and those of the README."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from statistics import fmean
from typing import Any

from lformer.bench import paper
from lformer.bench.layout import NONE, PARTIAL, SMOKE, TRIVIAL, Entry, Kind, Line, Ours, Table, markdown, ranks
from lformer.bench.paper import FULL, Measure, Printed
from lformer.bench.recipes import stand_in
from lformer.bench.records import Cell, Record, grouped
from lformer.bench.speed import WORKS, table
from lformer.bench.speed import Cell as SpeedCell
from lformer.tasks import TASKS

__all__ = [
    "OURS", "Table", "ablation_table", "best_of", "demo", "demo_rows", "fullest", "main_tables", "markdown",
    "result_tables", "shown", "speed", "summary",
]  # fmt: skip

Protocol = tuple[str, str]  # split, scaling
Groups = dict[tuple[str, str, str, str], dict[str, list[Record]]]  # data set, task, split, scaling -> column -> seeds
PUBLISHED: Protocol = ("published", "published")
OURS = "lformer"
ROUNDING = 1e-9  # a mean squared error below this is that of a copy

# Tables by task; the other tasks are those of climate and clinical records.
HOMES = {
    "classify": paper.LTS_C,
    "regress": paper.LTS_R,
    "classify-points": paper.POINTS,
    "regress-points": paper.POINTS,
    "trajectory": paper.SPIRALS,
}


def result_tables(records: Iterable[Record]) -> list[Table]:
    """The paper's tables, as far as there are records: series, points, records, curves, ablation.

    Every row and column of the paper is there, with what we have. A variant of a model is a column of its own; so is a
    model that is fitted at once. Records by another split or scaling, and tasks the paper does not have, get rows of
    their own. Partial data, smoke runs and trivial answers are marked, neither ranked nor judged.
    """
    found = list(records)
    if not found:
        raise ValueError("no records, so no tables: run a cell first, or name the folder that holds the records.")
    made = main_tables(found)
    whole = [r for r in found if r["cell"]["model"] == OURS and not r["cell"]["variant"]]
    if ablated := {_protocol(r["cell"]) for r in whole if r["cell"]["ablation"]}:
        made.append(ablation_table(r for r in whole if _protocol(r["cell"]) in ablated))
    return made


def main_tables(records: Iterable[Record]) -> list[Table]:
    """Those of whole models: all but the ablation."""
    plain = [r for r in records if not r["cell"]["ablation"]]
    return [
        _table(printed, own, lambda cell: Cell(**cell).label)
        for printed in paper.MAIN
        if (own := [r for r in plain if HOMES.get(r["cell"]["task"], paper.RECORDS) is printed])
    ]


def ablation_table(records: Iterable[Record]) -> Table:
    """LFormer by the paper's recipe, whole and with a part exchanged, beside every row of the paper's ablation."""
    own = [r for r in records if r["cell"]["model"] == OURS and not r["cell"]["variant"]]
    return _table(paper.ABLATION, own, lambda cell: str(cell["ablation"] or FULL))


def summary(records: Iterable[Record]) -> str:
    """LFormer by the paper's recipe and by the best of ours, the best simple model, and the paper, line by line."""
    rows = [["data set, task", "metric", "lformer", "its best variant", "best simple model", "LFormer paper", ""]]
    for each in result_tables(r for r in records if not r["cell"]["ablation"]):
        for line in each.lines:
            entry = line.entries[OURS]
            variant, simple = best_of(line, "variant", f"{OURS} "), best_of(line, "simple")
            if entry.ours is None and variant == NONE:
                continue
            printed = entry.printed.text if entry.printed is not None else NONE
            rows.append(
                [line.subject(with_task=True), line.metric, shown(entry), variant, simple, printed, entry.verdict]
            )
    return markdown(rows)


def best_of(line: Line, kind: Kind, prefix: str = "") -> str:
    """The best entry of a kind that says something, with its name: comparable ones first, trivial ones never.

    The validation part chooses, so that the figure, which is of the test part, is not the luckiest of many.
    """
    found = [
        (entry.choice, column)
        for column, entry in line.entries.items()
        if entry.ours is not None and entry.ours.kind == kind and column.startswith(prefix)
        if entry.ours.values and not entry.ours.trivial
    ]
    if not found:
        return NONE
    column = min(found)[-1]
    return f"{column.removeprefix(prefix)} {shown(line.entries[column])}"


def shown(entry: Entry) -> str:
    """Our figure with its signs and remark."""
    return NONE if entry.ours is None else f"{entry.ours.figure(entry.shown_digits)} {entry.ours.remark}".strip()


def _protocol(cell: dict[str, Any]) -> tuple[str, str, str, str]:
    return cell["dataset"], cell["task"], cell["split"], cell["scaling"]


def _table(printed: Printed, records: list[Record], column: Callable[[dict[str, Any]], str]) -> Table:
    groups: Groups = {}
    for key, own in grouped(records, "dataset", "task", "split", "scaling", "model", "variant", "ablation"):
        groups.setdefault(key[:4], {})[column(own[0]["cell"])] = fullest(own)
    columns = _columns(printed, [r["cell"]["model"] for r in records if r.get("at_once")], groups)
    lines = [
        _line(measure, protocol, groups.get((measure.dataset, measure.task, *protocol), {}), printed, columns)
        for measure, protocol in _rows(printed, groups)
    ]
    mean_ranks, ranked = _mean_ranks([line for line in lines if line.published], columns)
    used = [r for group in groups.values() for own in group.values() for r in own]
    return Table(
        title=printed.title, columns=columns, lines=lines, ranks=mean_ranks, ranked=ranked,
        notes=tuple(_notes(printed, used, bool(ranked))),
    )  # fmt: skip


def _columns(printed: Printed, simple: Iterable[str], groups: Groups) -> list[str]:
    """The paper's columns in its order, our further models, the simple ones, LFormer; variants after their model."""
    ours = {column for group in groups.values() for column in group}
    known = dict.fromkeys([*printed.columns, *paper.MODELS, *sorted(column.partition(" ")[0] for column in ours)])
    order = {name: (name == OURS, name in set(simple), place) for place, name in enumerate(known)}
    return sorted({*printed.columns, *ours}, key=lambda column: (order[column.partition(" ")[0]], column))


def _rows(printed: Printed, groups: Groups) -> Iterator[tuple[Measure, Protocol]]:
    """Data sets in the paper's order, then new ones; after the published protocol of each come the others."""
    subjects = dict.fromkeys([(m.dataset, m.task) for m in printed.figures] + sorted({key[:2] for key in groups}))
    for dataset, task in subjects:
        known = [m for m in printed.figures if (m.dataset, m.task) == (dataset, task)]
        run = {key[2:]: group for key, group in groups.items() if key[:2] == (dataset, task)}
        for protocol in sorted(run.keys() | ({PUBLISHED} if known else set()), key=lambda p: (p != PUBLISHED, p)):
            further = _further(dataset, task, known, [r for own in run.get(protocol, {}).values() for r in own])
            if printed is paper.ABLATION:  # shows one metric
                further = [] if known else further[:1]
            yield from ((measure, protocol) for measure in known + further)


def _further(dataset: str, task: str, known: list[Measure], records: list[Record]) -> list[Measure]:
    """What records say a table prints of them, beside the paper's rows."""
    names = {m.metric for m in known}
    printed = {name: factor for r in records for name, factor in _printed(r).items() if name not in names}
    return [Measure(dataset, task, name, factor) for name, factor in printed.items()]


def _printed(record: Record) -> dict[str, float]:
    """Metrics and their multiples; older records do not say, and are printed as their task usually is."""
    if "printed" in record:
        return dict(record["printed"])
    task = record["cell"]["task"]
    return dict(TASKS[task](stand_in(task)).printed)


def _line(
    measure: Measure, protocol: Protocol, groups: dict[str, list[Record]], printed: Printed, columns: list[str]
) -> Line:
    """A row with its best and second best."""
    figures = printed.figures.get(measure, {})
    digits = max((f.digits for f in figures.values()), default=1 if measure.percent else 3)
    beside = figures if protocol == PUBLISHED else {}
    entries = {
        c: Entry(ours=_ours(groups.get(c, []), measure), printed=beside.get(c), digits=digits, sign=measure.sign)
        for c in columns
    }
    costs = {c: cost for c, entry in entries.items() if (cost := entry.cost) is not None}
    places = ranks({c: cost for c, cost in costs.items() if (o := entries[c].ours) is not None and o.kind == "paper"})
    order = sorted({cost for cost in costs.values() if math.isfinite(cost)})
    marks: dict[float, Any] = dict(zip(order[: len(costs) - 1], ("best", "second"), strict=False))
    for c, cost in costs.items():
        entries[c] = replace(entries[c], rank=places.get(c), mark=marks.get(cost, ""))
    return Line(measure=measure, split=protocol[0], scaling=protocol[1], entries=entries)


def fullest(records: list[Record]) -> list[Record]:
    """Of runs with the same protocol those trained longest on the most complete data; the others were trials."""

    def worth(record: Record) -> tuple[bool, bool, int]:
        return not record.get("smoke"), not record.get("partial"), record["cell"].get("epochs") or 0

    best = max(map(worth, records))
    chosen = [r for r in records if worth(r) == best]
    seeds = [r["cell"]["seed"] for r in chosen]
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"two records of the same cell, seeds {seeds}: {chosen[0]['cell']}. Delete one of them.")
    return chosen


def _ours(records: list[Record], measure: Measure) -> Ours | None:
    """What a metric was over the seeds; a metric that is not finite is a collapse."""
    values, failed, validated = [], [], []
    for record in records:
        value = record["metrics"].get(measure.metric)
        if record["status"] != "done":
            failed.append(record["status"])
        elif value is not None and math.isfinite(value):
            values.append(measure.factor * value)
            validated.append(measure.factor * record.get("validation", {}).get(measure.metric, math.nan))
        elif value is not None:
            failed.append("collapse")
    if not values and not failed:
        return None
    partial = "; ".join(sorted({r["partial"] for r in records if r.get("partial")}))
    return Ours(
        values=tuple(values), failed=tuple(failed), partial=partial, smoke=any(r.get("smoke") for r in records),
        trivial=any(map(_trivial, records)), kind=_kind(records[0]),
        validated=fmean(validated) if validated else math.nan,
    )  # fmt: skip


def _kind(record: Record) -> Kind:
    return "simple" if record.get("at_once") else "variant" if record["cell"]["variant"] else "paper"


def _trivial(record: Record) -> bool:
    """Whether all targets are inputs, and the model starts from them or hands them back."""
    if record["cell"]["task"] != "reconstruct":
        return False
    starts_from_them = record.get("config", {}).get("model", {}).get("persistence", "none") != "none"
    return starts_from_them or (bool(record.get("at_once")) and record["metrics"].get("mse", math.inf) < ROUNDING)


def _mean_ranks(lines: list[Line], columns: list[str]) -> tuple[dict[str, float], str]:
    """Mean rank of every column that has one, over the rows where all of these have one, and these rows in words."""
    ranked = [c for c in columns if any(line.entries[c].rank is not None for line in lines)]
    if len(ranked) < 2:
        return {}, ""
    common = [places for line in lines if None not in (places := {c: line.entries[c].rank for c in ranked}).values()]
    words = f"{len(common)} of {len(lines)} rows"
    return {c: sum(places[c] or 0 for places in common) / len(common) for c in ranked if common}, words


def _notes(printed: Printed, records: list[Record], ranked: bool) -> Iterable[str]:
    if ranked:
        yield (
            "Mean rank: of models trained by the paper's recipe, over the paper's rows where all of them have a "
            "comparable entry; OOM and OOT come last, ties share."
        )
    lacks = {f"{r['cell']['dataset']}: {r['partial']}" for r in records if r.get("partial")}
    if lacks:
        yield f"{PARTIAL} partial data, neither ranked nor judged. {'; '.join(sorted(lacks))}."
    if any(r.get("smoke") for r in records):
        epochs = sorted({r["cell"]["epochs"] for r in records if r.get("smoke") and r["cell"].get("epochs")})
        count = f" of at most {', '.join(map(str, epochs))} epochs" if epochs else ""
        yield f"{SMOKE} smoke run{count}, not ranked, not comparable."
    if any(map(_trivial, records)):
        yield (
            f"{TRIVIAL} trivial, neither ranked nor judged: reconstruction asks for values that were given, and these "
            "models start from them."
        )
    if any("≈" in figure.text for row in printed.figures.values() for figure in row.values()):
        yield "≈ follows from the paper's text, is not printed."
    if printed.note:
        yield printed.note
    made = {f"{v['lformer']} ({v.get('commit') or 'no commit'})" for r in records if (v := r.get("versions"))}
    if made:
        yield f"Made with lformer {', '.join(sorted(made))}."


def demo_rows(record: dict[str, Any]) -> list[tuple[str, float, float, float]]:
    """Metric, ours, the paper's mean and deviation, in its unit of 1e-2 of the scaled axes."""
    rows = []
    for measure, figure in paper.lformer(record["dataset"]).items():
        label = measure.metric.replace("_mae", " MAE").replace("_rmse", " RMSE")
        rows.append((label, measure.factor * record["metrics"][measure.metric], figure.mean, figure.deviation))
    return rows


def demo(record: dict[str, Any]) -> str:
    """Ours beside the paper's; bold where we are at or past the printed mean."""
    body = []
    for label, ours, mean, deviation in demo_rows(record):
        shown = f"{ours:.2f}"
        body.append([label, f"**{shown}**" if float(shown) <= mean else shown, f"{mean:.2f} ± {deviation:.2f}"])
    return markdown([["metric", "lformer demo", "LFormer paper"], *body])


def speed(record: dict[str, Any], batch: int) -> str:
    """Milliseconds and ratios at one batch size, forward and training step."""
    cells = [SpeedCell(**cell) for cell in record["cells"]]
    parts = [f"**{work}**\n\n{markdown(table(cells, work, batch))}" for work in WORKS]
    return "\n\n".join(parts)
