"""Figures of a folder of records: whatever they allow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from lformer.bench import paper, plots
from lformer.bench.records import Record, grouped

FULL, BARE = "", "no_normalisation"


def draw(records: Sequence[Record], folder: Path) -> list[Path]:
    """Training dynamics with and without normalisation, and accuracy against throughput; returns what was drawn."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = [r for r in records if not r.get("smoke")]
    return [*_dynamics(whole, folder), *_pareto(whole, folder)]


def _dynamics(records: Sequence[Record], folder: Path) -> list[Path]:
    drawn = []
    ours = [r for r in records if r["cell"]["model"] == "lformer" and not r["cell"]["variant"]]
    for (dataset, task), own in grouped(ours, "dataset", "task"):
        full, bare = ([r for r in own if r["cell"]["ablation"] == kind] for kind in (FULL, BARE))
        seeds = {r["cell"]["seed"] for r in bare}
        same = [r for r in full if r["cell"]["seed"] in seeds]
        if same:
            drawn.append(folder / f"dynamics-{dataset}-{task}.png")
            plots.dynamics_figure(drawn[-1], same, bare)
    return drawn


def _pareto(records: Sequence[Record], folder: Path) -> list[Path]:
    """One figure for each data set that two models or variants were run on, all on the same kind of machine."""
    drawn = []
    for (dataset, task), own in grouped(records, "dataset", "task"):
        points, machines = {}, set()
        measure = next((m for m in paper.lformer(dataset) if m.task == task), None)
        for names, runs in grouped([r for r in own if not r["cell"]["ablation"]], "model", "variant"):
            timed = [r for r in runs if r.get("series_per_second") and r["status"] == "done"]
            if measure is not None and timed:
                mean = sum(r["metrics"][measure.metric] for r in timed) / len(timed)
                points[" ".join(names).strip()] = (max(r["series_per_second"] for r in timed), measure.factor * mean)
                machines |= {r["versions"]["machine"] for r in timed}
        if measure is not None and len(points) > 1 and len(machines) == 1:
            drawn.append(folder / f"pareto-{dataset}-{task}.png")
            better: Literal["max", "min"] = "max" if measure.sign > 0 else "min"
            plots.pareto_figure(drawn[-1], points, measure.metric, better, f"{dataset}, {machines.pop()}")
    return drawn
