"""`python -m lformer.bench.speed`: the same as `lformer speed`, without what a terminal likes and without a figure."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from lformer.bench.layout import markdown
from lformer.bench.speed import SpeedConfig, cpu, every, studies, tables


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m lformer.bench.speed", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true", help="a first look: fewer lengths and repeats")
    parser.add_argument("--models", choices=("all",), help="a training step of every trained model instead")
    parser.add_argument("--out", type=Path, default=Path("runs/speed"), help="folder for the record")
    given = parser.parse_args(arguments)
    if given.models == "all":
        config = every.EveryConfig(device=given.device, folder=given.out, **(every.QUICK if given.quick else {}))
        print(markdown(every.table(every.run(config, _tell))))
    elif given.device == "cuda":
        make = studies.StudiesConfig.quick if given.quick else studies.StudiesConfig
        print(tables.page(studies.run(make(folder=given.out), _tell)))
    else:
        few: dict[str, Any] = SpeedConfig.QUICK if given.quick else {}
        print(json.dumps(cpu.run(SpeedConfig(folder=given.out, **few), _tell)["summary"], indent=1))


def _tell(cell: object) -> None:
    print(cell, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
