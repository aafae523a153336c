"""Records to tables: those of the paper with our figures beside the printed ones, and those of the README."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from lformer.bench import paper
from lformer.bench.layout import NONE, PARTIAL, SMOKE, Entry, Line, Ours, Table, markdown, ranks
from lformer.bench.paper import FULL, Measure, Printed
from lformer.bench.records import Record, grouped
from lformer.bench.speed import WORKS, Cell, table

__all__ = ["Table", "demo", "demo_rows", "markdown", "result_tables", "speed", "summary"]

Protocol = tuple[str, str]  # split, scaling
PUBLISHED: Protocol = ("published", "published")
SPIRAL = "spiral-"

# Tables by task; the other tasks are those of climate and clinical records.
HOMES = {
    "classify": paper.LTS_C,
    "regress": paper.LTS_R,
    "classify-points": paper.POINTS,
    "regress-points": paper.POINTS,
}

# What is shown of a task where the paper prints nothing, and in which multiples.
METRICS: dict[str, dict[str, float]] = {
    "classify": {"accuracy": 100},
    "regress": {"mae": 1, "rmse": 1},
    "classify-points": {"accuracy": 100},
    "regress-points": {"mse": 1000},
    "reconstruct": {"mse": 100},
    "interpolate": {"mse": 100, "mse_unseen": 100},
    "extrapolate": {"mse": 100, "mse_unseen": 100},
}


def result_tables(records: Iterable[Record]) -> list[Table]:
    """The paper's tables, as far as there are records: long series, per point, records, spirals, ablation.

    Every row and column of the paper is there, with what we have. Records by another split or scaling, and tasks the
    paper does not have, get rows of their own. Partial data and smoke runs are marked, neither ranked nor judged.
    """
    found = _both_halves(list(records))
    if not found:
        raise ValueError("no records, so no tables: run a cell first, or name the folder that holds the records.")
    plain = [r for r in found if not r["cell"]["ablation"]]
    made = [
        _table(printed, own, lambda cell: str(cell["model"]))
        for printed in paper.MAIN
        if (own := [r for r in plain if _home(r["cell"]) is printed])
    ]
    if ablated := {_protocol(r["cell"]) for r in found if r["cell"]["ablation"]}:
        own = [r for r in found if r["cell"]["model"] == "lformer" and _protocol(r["cell"]) in ablated]
        made.append(_table(paper.ABLATION, own, lambda cell: str(cell["ablation"] or FULL)))
    return made


def summary(records: Iterable[Record]) -> str:
    """What there is of LFormer itself, one line per metric, beside the paper: for people in a hurry."""
    rows = [["data set, task", "metric", "lformer", "LFormer paper", ""]]
    for each in result_tables([r for r in records if r["cell"]["model"] == "lformer" and not r["cell"]["ablation"]]):
        for line in each.lines:
            entry = line.entries["lformer"]
            if entry.ours is not None:
                ours = f"{entry.ours.figure(entry.shown_digits)} {entry.ours.remark}".strip()
                printed = entry.printed.text if entry.printed is not None else NONE
                rows.append([line.subject(with_task=True), line.metric, ours, printed, entry.verdict])
    return markdown(rows)


def _home(cell: dict[str, Any]) -> Printed:
    """The table a record belongs to."""
    return paper.SPIRALS if cell["dataset"].startswith(SPIRAL) else HOMES.get(cell["task"], paper.RECORDS)


def _protocol(cell: dict[str, Any]) -> tuple[str, str, str, str]:
    return cell["dataset"], cell["task"], cell["split"], cell["scaling"]


def _both_halves(records: list[Record]) -> list[Record]:
    """A run on spirals is scored on both halves: where one task was run, its record stands for the other too."""

    def key(cell: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(cell[name] for name in sorted(cell))

    known = {key(r["cell"]) for r in records}
    other = {"interpolate": "extrapolate", "extrapolate": "interpolate"}
    spirals = [r for r in records if r["cell"]["dataset"].startswith(SPIRAL)]
    twins = [r | {"cell": r["cell"] | {"task": other[r["cell"]["task"]]}} for r in spirals]
    return records + [twin for twin in twins if key(twin["cell"]) not in known]


def _table(printed: Printed, records: list[Record], column: Callable[[dict[str, Any]], str]) -> Table:
    columns = _columns(printed, {column(r["cell"]) for r in records})
    groups: dict[tuple[str, str, str, str], dict[str, list[Record]]] = {}
    for key, own in grouped(records, "dataset", "task", "split", "scaling", "model", "ablation"):
        groups.setdefault(key[:4], {})[column(own[0]["cell"])] = _fullest(own)
    lines = [
        _line(measure, protocol, groups.get((measure.dataset, measure.task, *protocol), {}), printed, columns)
        for measure, protocol in _rows(printed, set(groups))
    ]
    mean_ranks, ranked = _mean_ranks([line for line in lines if line.published], columns)
    used = [r for group in groups.values() for own in group.values() for r in own]
    return Table(
        title=printed.title, columns=columns, lines=lines, ranks=mean_ranks, ranked=ranked,
        notes=tuple(_notes(printed, used, bool(ranked))),
    )  # fmt: skip


def _columns(printed: Printed, ours: set[str]) -> list[str]:
    """The paper's columns in its order and our further models, LFormer last."""
    known = dict.fromkeys([*printed.columns, *paper.MODELS, *sorted(ours)])
    names = [name for name in known if name in ours or name in printed.columns]
    return sorted(names, key=lambda name: name == "lformer")


def _rows(printed: Printed, groups: set[tuple[str, str, str, str]]) -> Iterable[tuple[Measure, Protocol]]:
    """Rows in the paper's order; after the published protocol of a data set and task come its others, then new ones."""
    subjects = dict.fromkeys([(m.dataset, m.task) for m in printed.figures] + sorted({key[:2] for key in groups}))
    for dataset, task in subjects:
        known = [m for m in printed.figures if (m.dataset, m.task) == (dataset, task)]
        run = {key[2:] for key in groups if key[:2] == (dataset, task)}
        for protocol in sorted(run | ({PUBLISHED} if known else set()), key=lambda p: (p != PUBLISHED, p)):
            further = _unprinted(dataset, task, known, printed) if protocol in run else []
            yield from ((measure, protocol) for measure in known + further)


def _unprinted(dataset: str, task: str, known: list[Measure], printed: Printed) -> list[Measure]:
    """What is shown beside the paper's rows; an ablation shows one metric."""
    if known and (printed is paper.ABLATION or printed is paper.SPIRALS):
        return []
    names = {m.metric for m in known}
    further = [Measure(dataset, task, name, factor) for name, factor in METRICS[task].items() if name not in names]
    return further[:1] if printed is paper.ABLATION else further


def _line(
    measure: Measure, protocol: Protocol, groups: dict[str, list[Record]], printed: Printed, columns: list[str]
) -> Line:
    """A row with its best and second best."""
    figures = printed.figures.get(measure, {})
    digits = max((f.digits for f in figures.values()), default=1 if measure.metric == "accuracy" else 3)
    beside = figures if protocol == PUBLISHED else {}
    entries = {
        c: Entry(ours=_ours(groups.get(c, []), measure), printed=beside.get(c), digits=digits, sign=measure.sign)
        for c in columns
    }
    costs = {c: cost for c, entry in entries.items() if (cost := entry.cost) is not None}
    places = ranks(costs)
    order = sorted({cost for cost in costs.values() if math.isfinite(cost)})
    marks: dict[float, Any] = dict(zip(order[: len(costs) - 1], ("best", "second"), strict=False))
    for c, cost in costs.items():
        entries[c] = replace(entries[c], rank=places[c], mark=marks.get(cost, ""))
    return Line(measure=measure, split=protocol[0], scaling=protocol[1], entries=entries)


def _fullest(records: list[Record]) -> list[Record]:
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
    values, failed = [], []
    for record in records:
        value = record["metrics"].get(measure.metric)
        if record["status"] != "done":
            failed.append(record["status"])
        elif value is not None and math.isfinite(value):
            values.append(measure.factor * value)
        elif value is not None:
            failed.append("collapse")
    if not values and not failed:
        return None
    partial = "; ".join(sorted({r["partial"] for r in records if r.get("partial")}))
    smoke = any(r.get("smoke") for r in records)
    return Ours(values=tuple(values), failed=tuple(failed), partial=partial, smoke=smoke)


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
            "Mean rank: over the paper's rows where every ranked column has a comparable entry; OOM and OOT come last, "
            "ties share."
        )
    lacks = {f"{r['cell']['dataset']}: {r['partial']}" for r in records if r.get("partial")}
    if lacks:
        yield f"{PARTIAL} partial data, neither ranked nor judged. {'; '.join(sorted(lacks))}."
    if any(r.get("smoke") for r in records):
        epochs = sorted({r["cell"]["epochs"] for r in records if r.get("smoke") and r["cell"].get("epochs")})
        count = f" of at most {', '.join(map(str, epochs))} epochs" if epochs else ""
        yield f"{SMOKE} smoke run{count}, not ranked, not comparable."
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
    cells = [Cell(**cell) for cell in record["cells"]]
    parts = [f"**{work}**\n\n{markdown(table(cells, work, batch))}" for work in WORKS]
    return "\n\n".join(parts)
