"""Cells of the tables on one GPU, by one queue in the order of a list, until the time is up.

LFORMER_DATA=folder python scripts/gpu/cells.py scripts/gpu/cells.txt [--out results/bench] [--workers 16]
    [--seconds 500] [--limit 3600]

A line of the list is what `lformer bench run` takes, without the names of options; what takes longest comes first:

    data set   task   model[+ablation or variant][,...]   seeds   [split=...] [scaling=...]

Cells that have a record are skipped and interrupted ones go on, so the same call is repeated until none is left. Start
MPS before: the steps of most models are small, and 16 of them side by side take little longer than one.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from lformer.bench import grid
from lformer.bench.engine import Outcome, Settings, exit_on_signals
from lformer.bench.recipes import ABLATIONS
from lformer.bench.records import Cell


def listed(text: str) -> list[Cell]:
    """The cells of a list, in its order; what follows a # is for the reader."""
    found: list[Cell] = []
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if not words:
            continue
        (dataset, task, models, seeds), options = words[:4], dict(word.split("=", 1) for word in words[4:])
        for name in models.split(","):
            model, _, change = name.partition("+")
            own: dict[str, Any] = {"ablations" if change in ABLATIONS else "variants": [change]} if change else {}
            found += grid.cells(
                datasets=[dataset], tasks=[task], models=[model], seeds=grid.seeds(seeds), **own, **options
            )
    return list(dict.fromkeys(found))


def run_until(seconds: int, cells: list[Cell], settings: Settings, workers: int) -> Iterator[Outcome]:
    """How cells without a record end, by one queue; after so many seconds all processes are ended, as by SIGTERM."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGTERM))
    signal.alarm(seconds)
    with exit_on_signals(), closing(grid.run(cells, settings, workers=workers)) as outcomes:
        yield from (outcome for outcome in outcomes if outcome.ended and outcome.status != "skipped")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lists", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=Path("results/bench"))
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--seconds", type=int, default=86400, help="after which nothing runs any more")
    parser.add_argument("--limit", type=float, help="seconds after which a cell is out of time")
    args = parser.parse_args()
    cells = [cell for path in args.lists for cell in listed(path.read_text(encoding="utf-8"))]
    settings = Settings(root=args.out, time_limit=args.limit)
    for outcome in run_until(args.seconds, cells, settings, args.workers):
        print(f"{outcome.cell}: {outcome.status}, {outcome.note}", flush=True)


if __name__ == "__main__":
    main()
