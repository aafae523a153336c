"""A record as the page holds it: short, with the command that made it, and its history as whole numbers."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from lformer.bench.records import Record, cell_of

DIGITS = 4  # of a history
ABOUT = ("status", "error", "partial", "smoke", "at_once", "data", "metrics", "validation", "best_epoch", "epochs",
         "parameters", "seconds", "series_per_second", "peak_bytes", "versions")  # fmt: skip


class Runs:
    """Records in the order in which they were asked for; configurations that many share are held once."""

    def __init__(self) -> None:
        self.list: list[dict[str, Any]] = []
        self.configs: list[Any] = []
        self._places: dict[str, int] = {}
        self._known: dict[int, int] = {}

    def index(self, record: Record, metrics: Sequence[str]) -> int:
        """Its number on the page; `metrics` are those whose history is drawn."""
        if id(record) not in self._known:
            self._known[id(record)] = len(self.list)
            self.list.append(self._short(record, metrics))
        return self._known[id(record)]

    def _short(self, record: Record, metrics: Sequence[str]) -> dict[str, Any]:
        cell = cell_of(record["cell"])
        text = json.dumps(record.get("config", {}), sort_keys=True)
        if text not in self._places:
            self._places[text] = len(self.configs)
            self.configs.append(record.get("config", {}))
        return {
            "cell": record["cell"],
            "system": cell.label,
            "path": cell.path(Path()).as_posix(),
            "href": quote(cell.path(Path()).as_posix()),
            "command": command(record),
            "config": self._places[text],
            **{name: record[name] for name in ABOUT if says(record.get(name))},
            "history": {
                name: column
                for name in dict.fromkeys([*metrics, "loss"])
                if (column := packed([epoch.get(name) for epoch in record.get("history", [])]))
            },
        }


def says(value: object) -> bool:
    """Whether a field is worth its place on the page; 0 is."""
    return value is not None and value is not False and value != ""


def command(record: Record) -> str:
    """The line that makes this record again, for a shell."""
    cell = record["cell"]
    limit = record.get("config", {}).get("train", {}).get("time_limit")
    options = [("dataset", cell["dataset"]), ("task", cell["task"]), ("model", cell["model"])]
    options += [(name, cell[name]) for name in ("ablation", "variant") if cell[name]]
    options += [(name, cell[name]) for name in ("split", "scaling") if cell[name] != "published"]
    options += [("epochs", cell["epochs"])] if cell["epochs"] is not None else []
    options += [("time-limit", f"{limit:g}")] if limit is not None else []
    words = [word for name, value in [*options, ("seeds", cell["seed"])] for word in (f"--{name}", str(value))]
    return shlex.join(["lformer", "bench", "run", *words])


def packed(column: Sequence[float | None]) -> list[int | None]:
    """An exponent of ten and whole numbers to multiply by it: four digits of the smallest; None for what is not finite.

    Example:
        >>> packed([0.01234567, 0.5, None, float("nan")])
        [-5, 1235, 50000, None, None]
        >>> packed([None])
        []
    """
    known = [abs(x) for x in column if x is not None and math.isfinite(x)]
    if not known:
        return []
    smallest = min((x for x in known if x > 0), default=1.0)
    smallest = max(smallest, 1e-6 * max(known))  # one outlier near 0 must not lengthen all others
    exponent = math.floor(math.log10(smallest)) - DIGITS + 1
    scaled = [None if x is None or not math.isfinite(x) else round(x * 10.0**-exponent) for x in column]
    return [exponent, *scaled]
