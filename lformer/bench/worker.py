"""The process that runs one cell for an engine: `python -m lformer.bench.worker`.

It reads what to run as one line of JSON from its standard input and answers in lines of JSON. Whoever started it keeps
that input open: when it ends, that process is gone, killed perhaps, and the worker ends too, as by SIGTERM.
"""

import json
import os
import signal
import sys
import threading
import time
import warnings
from pathlib import Path

from lformer.allocator import keep_freed_pages
from lformer.bench.engine import GRACE, ending, exit_on_signals, spelled
from lformer.bench.records import Record, cell_of
from lformer.bench.run import BusyError, run


def main() -> None:
    """Run the cell described by the first line of the input."""
    task = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()
    warnings.showwarning = lambda message, *about, **more: _say("warning", str(message))
    cell, root = cell_of(task.pop("cell")), Path(task.pop("root"))
    keep_freed_pages()

    def tell(record: Record) -> None:
        outcome = ending(cell, record)
        _say(outcome.status, outcome.note)

    def abandon(record: Record) -> None:
        tell(record)
        os._exit(0)  # at once: the step that does not end cannot be asked to

    try:
        record = run(cell, root, progress=False, report=_report, abandon=abandon, **task)
    except BusyError as error:
        _say("busy", str(error))
    else:
        tell(record)


def _end_with_input() -> None:
    """Wait in a thread for the input to end, and end this process then."""
    while os.read(sys.stdin.fileno(), 1):  # not by way of sys.stdin, whose lock would be held as the process ends
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os._exit(128 + signal.SIGTERM)  # Python drops what a handler raises inside a finaliser, and the run would go on


def _report(row: dict[str, float]) -> None:
    _say("running", spelled(row))


def _say(status: str, note: str) -> None:
    print(json.dumps({"status": status, "note": note}), flush=True)


if __name__ == "__main__":
    with exit_on_signals():
        main()
