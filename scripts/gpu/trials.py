"""Settings that somebody wants to compare, each on the validation part of a data set; the test part stays unseen.

LFORMER_DATA=folder python scripts/gpu/trials.py scripts/gpu/trials.txt [--out runs/trials] [--workers 16]
    [--seconds 500]

A line of the list has a name, a data set, a task, seeds, and what differs from the recipe:

    name   data set   task   seeds   [variant=...] [scaling=...] [split=...] [train.lr=0.002] [model.dropout=0.1] ...

What takes longest comes first. Trials that have ended are skipped and interrupted ones go on. The last lines are a
table, from the best to the worst of each data set. To look for settings nobody has thought of: `lformer bench tune`.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any, cast
from zlib import crc32

from cells import run_until

from lformer.bench import grid, records
from lformer.bench.engine import Settings
from lformer.bench.recipes import recipe, stand_in
from lformer.bench.records import Trial

CELL = ("variant", "scaling", "split")
HIGH_IS_GOOD = ("accuracy", "auroc", "auprc")


def listed(text: str) -> dict[str, list[Trial]]:
    """The trials of a list by name, one for each seed. Their numbers follow from what they say."""
    found: dict[str, list[Trial]] = {}
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if not words:
            continue
        (name, dataset, task, seeds), options = words[:4], dict(word.split("=", 1) for word in words[4:])
        if name in found:
            raise ValueError(f"two trials are called {name!r}.")
        cell: dict[str, Any] = {key: options.pop(key) for key in CELL if key in options}
        changes: dict[str, dict[str, Any]] = {"model": {}, "train": {}}
        for key, value in options.items():
            where, _, field = key.partition(".")
            changes[where][field] = _value(value)
        plan = recipe(dataset, task, variant=cell.get("variant", "")).changed(**cast(Any, changes))
        queried = plan.data.get("unobserved") == "query"
        plan.config(stand_in(task, queried))  # what cannot be is refused before anything runs
        said = " ".join((dataset, task, *words[4:]))
        found[name] = [
            Trial(
                dataset=dataset, task=task, model="lformer", seed=seed, number=crc32(f"{said} {seed}".encode()),
                changes=changes, **cell,
            )
            for seed in grid.seeds(seeds)
        ]  # fmt: skip
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None if text == "None" else text


def table(trials: dict[str, list[Trial]], root: Path) -> list[str]:
    """Means over the seeds that have ended, by data set and task, the best first."""
    rows: dict[tuple[str, str], list[tuple[float, str]]] = defaultdict(list)
    for name, cells in trials.items():
        done = [found for cell in cells if (found := records.finished(cell, root)) and found["status"] == "done"]
        if not done:
            continue
        metric = next(iter(done[0]["metrics"]))
        score = fmean(record["metrics"][metric] for record in done)
        seconds, epoch = (fmean(record[key] for record in done) for key in ("seconds", "best_epoch"))
        changed = " ".join(f"{key}={value}" for part in cells[0].changes.values() for key, value in part.items())
        row = (
            f"{cells[0].dataset:14}{name:22}{metric} {score:<11.5g}{len(done)} seeds{seconds:6.0f} s, "
            f"best epoch {epoch:3.0f}  {changed}"
        )
        rows[cells[0].dataset, cells[0].task].append((-score if metric in HIGH_IS_GOOD else score, row))
    return [row for found in rows.values() for _, row in sorted(found)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/trials"))
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--seconds", type=int, default=86400, help="after which nothing runs any more")
    args = parser.parse_args()
    trials = listed(args.list.read_text(encoding="utf-8"))
    cells = [cell for found in trials.values() for cell in found]
    try:
        for outcome in run_until(args.seconds, cells, Settings(root=args.out), args.workers):
            if outcome.status == "failed":
                print(f"{outcome.cell}: {outcome.note}", flush=True)
    finally:
        print("\n".join(table(trials, args.out)), flush=True)


if __name__ == "__main__":
    main()
