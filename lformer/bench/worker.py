"""The process that runs one cell for an engine: `python -m lformer.bench.worker JSON`; answers in lines of JSON."""

import json
import sys
from pathlib import Path

from lformer.allocator import keep_freed_pages
from lformer.bench.records import Cell
from lformer.bench.run import BusyError, run


def main(text: str) -> None:
    """Run the cell described by a JSON object."""
    task = json.loads(text)
    cell, root = Cell(**task.pop("cell")), Path(task.pop("root"))
    keep_freed_pages()
    try:
        record = run(cell, root, progress=False, report=_report, **task)
    except BusyError as error:
        _say("busy", str(error))
    else:
        figures = ", ".join(f"{name} {value:.4g}" for name, value in record["metrics"].items())
        _say(record["status"], figures or record.get("error", ""))


def _report(row: dict[str, float]) -> None:
    _say("running", ", ".join(f"{name} {value:.4g}" for name, value in row.items()))


def _say(status: str, note: str) -> None:
    print(json.dumps({"status": status, "note": note}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
