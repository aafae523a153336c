"""`python -m lformer.bench.speed`: the same as `lformer speed`, without what a terminal likes and without a figure."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from lformer.bench.layout import markdown
from lformer.bench.speed import SpeedConfig, cpu, every, scaling, studies, tables


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m lformer.bench.speed", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true", help="a first look: fewer lengths and repeats")
    parser.add_argument(
        "--models", choices=("all", "scaling"),
        help="another study: a training step of every trained model, or of solvers and others against length",
    )  # fmt: skip
    parser.add_argument("--limit", type=float, help="seconds one call may be expected to take")
    parser.add_argument("--deadline", type=float, help="seconds after which no further cell is begun")
    parser.add_argument("--out", type=Path, default=Path("runs/speed"), help="folder for the record")
    given = parser.parse_args(arguments)
    limits = {n: v for n in ("limit", "deadline") if (v := getattr(given, n)) is not None}
    chosen: dict[str, Any] = {"folder": given.out} | limits
    if given.models == "all":
        every_model = every.EveryConfig(**({"device": given.device} | (every.QUICK if given.quick else {}) | chosen))
        print(markdown(every.table(every.run(every_model, _tell))))
    elif given.models == "scaling":
        record = scaling.run(scaling.ScalingConfig.on(given.device, given.quick, **chosen), _tell)
        print(f"{scaling.words(record)}\n\n{markdown(scaling.table(record))}")
    elif given.device == "cuda":
        make = studies.StudiesConfig.quick if given.quick else studies.StudiesConfig
        print(tables.page(studies.run(make(**chosen), _tell)))
    else:
        few: dict[str, Any] = SpeedConfig.QUICK if given.quick else {}
        print(json.dumps(cpu.run(SpeedConfig(**(few | chosen)), _tell)["summary"], indent=1))


def _tell(cell: object) -> None:
    print(cell, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
