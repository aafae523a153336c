"""LFormer's best against every other system, over common seeds; and all systems over cells."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from lformer.bench.explorer.statistics import LEAST_SEEDS, LEVEL, friedman, holm, nemenyi, paired, shared_ranks
from lformer.bench.layout import Line
from lformer.bench.records import Record
from lformer.bench.tables import OURS

LEAST_CELLS = 3  # below which there is no diagram
MANY_CELLS = 10  # above which the approximation by chi-square is good (Demšar 2006)
Groups = Mapping[str, Sequence[Record]]  # column -> its records


def best_of_ours(line: Line, groups: Groups) -> str | None:
    """The column of LFormer with the best validation figure, so that the test part chooses nothing; None if none."""
    metric, found = line.measure.metric, []
    for column, entry in line.entries.items():
        if column.partition(" ")[0] != OURS or entry.ours is None or not entry.ours.values:
            continue
        if entry.ours.smoke or entry.ours.trivial or entry.ours.failed:
            continue
        told = [r.get("validation", {}).get(metric, math.nan) for r in groups.get(column, ())]
        mean = fmean(told) if told else math.nan
        if math.isfinite(mean):
            found.append((-line.measure.sign * mean, column))
    return min(found)[1] if found else None


def against(line: Line, groups: Groups) -> dict[str, Any] | None:
    """The paired comparison of a row; None if LFormer has no figure there. Differences are in the units of the row."""
    best = best_of_ours(line, groups)
    if best is None:
        return None
    rows = []
    for column, entry in line.entries.items():
        if entry.ours is not None and column.partition(" ")[0] != OURS:
            rows.append({"system": column, **_pair(line, groups[best], groups[column])})
    known = [row for row in rows if row.get("p") is not None]
    for row, p in zip(known, holm([row["p"] for row in known]), strict=True):
        row["holm"] = p
    return {"best": best, "rows": rows}


def _pair(line: Line, ours: Sequence[Record], theirs: Sequence[Record]) -> dict[str, Any]:
    """One row of it: numbers, or in words why there are none."""
    if any(r.get("smoke") for r in theirs):
        return {"why": "its training was cut short"}
    if {r.get("partial", "") for r in ours} != {r.get("partial", "") for r in theirs}:
        return {"why": "not of the same data: one of the two is partial"}
    a, b = (_by_seed(records, line.measure.metric) for records in (ours, theirs))
    seeds = sorted(a.keys() & b.keys())
    if len(seeds) < LEAST_SEEDS:
        failed = sorted({r["status"] for r in theirs if r["status"] != "done"})
        words = f"{len(seeds)} common seed{'' if len(seeds) == 1 else 's'}; a test needs {LEAST_SEEDS}"
        return {"why": ", ".join([*failed, words])}
    factor, prints = line.measure.factor, [{r["cell"]["seed"]: r.get("data") for r in x} for x in (ours, theirs)]
    found = paired([factor * a[s] for s in seeds], [factor * b[s] for s in seeds], line.measure.sign)
    return {
        "seeds": found.seeds, "difference": found.difference, "reach": found.reach, "wins": found.wins,
        "p": found.t, "wilcoxon": found.wilcoxon, "reprepared": any(prints[0][s] != prints[1][s] for s in seeds),
    }  # fmt: skip


def _by_seed(records: Iterable[Record], metric: str) -> dict[int, float]:
    """Figures of the seeds that finished."""
    known = {r["cell"]["seed"]: r["metrics"].get(metric) for r in records if r["status"] == "done"}
    return {seed: value for seed, value in known.items() if value is not None and math.isfinite(value)}


def critical(lines: Iterable[Line]) -> dict[str, Any]:
    """The critical-difference diagram over the largest complete block of systems and cells, or why there is none.

    A cell is a data set with a task and protocol, by the first metric that is printed of it, so that no run counts
    twice. Systems are those trained by the paper's recipe, whole data and training alone; OOM and OOT come last.
    """
    costs: dict[str, dict[str, float]] = {}
    for line in lines:
        name = line.subject(with_task=True)
        known = {
            column: cost
            for column, entry in line.entries.items()
            if entry.ours is not None and entry.ours.kind == "paper" and (cost := entry.cost) is not None
        }
        if len(known) > 2 and name not in costs:
            costs[name] = known
    cells, systems = largest_block(costs)
    if len(cells) < LEAST_CELLS or len(systems) < 3:
        return {
            "why": f"A critical-difference diagram needs at least {LEAST_CELLS} cells (data set, task, protocol) on "
            f"which the same three systems or more were run by the paper's recipe. There "
            f"{'is' if len(cells) == 1 else 'are'} {len(cells) or 'none'}."
        }
    ranks = [shared_ranks([costs[cell][system] for system in systems]) for cell in cells]
    means = [fmean(column) for column in zip(*ranks, strict=True)]
    test, distance = friedman(ranks), nemenyi(len(systems), len(cells))
    order = sorted(range(len(systems)), key=lambda i: means[i])
    return {
        "cells": cells, "systems": [systems[i] for i in order], "ranks": [means[i] for i in order],
        "distance": distance, "statistic": test.statistic, "p": test.p, "level": LEVEL,
        "cliques": cliques([means[i] for i in order], distance), "few": len(cells) <= MANY_CELLS,
        "by_cell": [[row[i] for i in order] for row in ranks],
    }  # fmt: skip


def largest_block(known: Mapping[str, Mapping[str, float]]) -> tuple[list[str], list[str]]:
    """Cells and systems without a gap, with the most degrees of freedom, (cells - 1)(systems - 1); of LFormer if any.

    Example:
        >>> largest_block({"a": dict.fromkeys("xyz", 1.0), "b": dict.fromkeys("xyz", 2.0), "c": {"x": 1.0}})
        (['a', 'b'], ['x', 'y', 'z'])
    """
    sets = {frozenset(row) for row in known.values()}
    closed: set[frozenset[str]] = set()  # every set of systems that some cells have in common
    for each in sets:
        closed |= {each & other for other in closed} | {each}
    best: tuple[int, list[str], list[str]] = (0, [], [])
    for systems in sorted(closed, key=sorted):
        if OURS not in systems and any(OURS in row for row in sets):
            continue
        cells = [cell for cell, row in known.items() if systems <= row.keys()]
        freedom = (len(cells) - 1) * (len(systems) - 1)
        if freedom > best[0]:
            best = (freedom, cells, sorted(systems))
    return best[1], best[2]


def cliques(means: Sequence[float], distance: float) -> list[tuple[int, int]]:
    """First and last of neighbours in the order of mean ranks that do not differ, the longest ones alone.

    Example:
        >>> cliques([1.0, 1.5, 2.4, 4.0], 1.0)
        [(0, 1), (1, 2)]
    """
    found: list[tuple[int, int]] = []
    for first in range(len(means)):
        last = max(i for i in range(len(means)) if means[i] - means[first] <= distance)
        if last > first and (not found or last > found[-1][1]):
            found.append((first, last))
    return found
