"""Attack the library from outside, and count what was tried and what broke.

    python scripts/attack                        everything
    python scripts/attack --share 0.01           a quick look
    python scripts/attack --only kills servers.slow --seed 7 --out attacks.json

Every attack runs in a process of its own, so that one that ends its process, or hangs, is a fault and the others go on.
The same seed tries the same cases, but for what the clock decides.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from tally import Attack, Tally

PAUSE = 0.5  # seconds between two signs of progress
GRACE = 120.0  # seconds after its time in which an attack has to end by itself
CLEANING = 30.0  # seconds in which it has to put everything back when it is interrupted
ALL = sys.maxsize  # as many cases as there are


class Plan(NamedTuple):
    """How much of an attack there is to be, and for how long at most."""

    cases: int
    minutes: float
    what: str


PLANS = {
    "inputs.operator": Plan(700_000, 30, "operands of the operator, sound and poisoned, beside the recurrence"),
    "inputs.models": Plan(50_000, 30, "models of random shape, and the same series in other words"),
    "inputs.panels": Plan(250_000, 30, "tables, arrays and garbage made into panels"),
    "flips.artefacts": Plan(5_000, 15, "saved models with flipped bits, cuts and edits"),
    "flips.checkpoints": Plan(2_000, 15, "checkpoints with flipped bits and cuts"),
    "flips.prepared": Plan(2_000, 15, "prepared sets with flipped bits and cuts"),
    "flips.records": Plan(1_000, 15, "records with flipped bits and cuts"),
    "flips.bombs": Plan(ALL, 15, "small files that ask for much, as many as there are"),
    "kills.save": Plan(100, 10, "processes killed while they save a model, and others load it"),
    "kills.training": Plan(60, 10, "runs killed and resumed until they are done"),
    "kills.grid": Plan(40, 20, "runners and workers of a grid killed"),
    "disk.saves": Plan(30, 5, "models saved on a full disk"),
    "disk.checkpoints": Plan(20, 5, "runs whose disk is full now and then"),
    "disk.records": Plan(20, 5, "records written on a full disk"),
    "disk.prepared": Plan(20, 5, "data prepared with a full cache"),
    "disk.packs": Plan(20, 5, "raw files packed on a full disk"),
    "disk.fetches": Plan(20, 5, "downloads onto a full disk"),
    "servers.bodies": Plan(150, 5, "bodies that are cut, empty, encoded, endless or of something else"),
    "servers.headers": Plan(120, 5, "refusals, other protocols, headers that mean anything"),
    "servers.resumes": Plan(110, 5, "other ranges and versions than asked for"),
    "servers.redirects": Plan(80, 5, "redirects in circles, to files, to nowhere"),
    "servers.slow": Plan(60, 5, "a byte now and then, silence, headers without end"),
}


@dataclass
class Line:
    """A line of the table."""

    attack: str
    what: str
    cases: int = 0
    faults: int = 0
    seconds: float = 0.0
    examples: list[str] = field(default_factory=list)


@dataclass
class ReportingTally(Tally):
    """One that tells another process how far it is."""

    to: Connection | None = None
    told: float = 0.0

    def case(self, count: int = 1) -> None:
        """So many more cases were tried."""
        super().case(count)
        if time.monotonic() - self.told > PAUSE:
            self.tell()

    def tell(self, finished: bool = False) -> None:
        """How it stands now."""
        self.told = time.monotonic()
        if self.to is not None:
            self.to.send((self.cases, self.faults, self.examples, finished))


def attacked(name: str, cases: int, seed: int, seconds: float, to: Connection) -> None:
    """One attack, in a process of its own; an exception is a fault."""
    os.setpgid(0, 0)  # so that whatever it leaves running can be ended with it
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a command in the background ignores it
    tally = ReportingTally(time.monotonic() + seconds, to=to)
    try:
        module, _, function = name.partition(".")
        attack: Attack = getattr(importlib.import_module(module), function)
        attack(tally, cases, seed)
    except BaseException:
        tally.fault(f"{name}, seed {seed}, after {tally.cases:,} cases: {traceback.format_exc().strip()}")
    tally.tell(finished=True)


def watched(name: str, seed: int, share: float) -> Line:
    """Run an attack and show how far it is, on one line."""
    plan = PLANS[name]
    cases = ALL if plan.cases == ALL else max(1, round(share * plan.cases))
    seconds, began, line = 60 * plan.minutes, time.monotonic(), Line(name, plan.what)
    here, there = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=attacked, args=(name, cases, seed, seconds, there))
    process.start()
    there.close()
    assert process.pid is not None
    try:
        if not followed(here, line, cases, began, seconds + GRACE):
            stop(process.pid, here, line, cases, began)
            line.examples.append(f"{name}, seed {seed}: it did not end when its time was up, and was interrupted")
    except EOFError:
        process.join()
        line.faults += 1
        line.examples.append(f"{name}, seed {seed}: its process ended with {process.exitcode}")
    except BaseException:
        stop(process.pid, here, line, cases, began)
        raise
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.join()
    show(line, cases, last=True)
    return line


def followed(here: Connection, line: Line, cases: int, began: float, seconds: float) -> bool:
    """Take down what an attack says until it has finished; whether it has in so many seconds since it began."""
    finished = False
    while not finished and line.seconds < seconds:
        if here.poll(PAUSE):
            line.cases, line.faults, line.examples, finished = here.recv()
        line.seconds = time.monotonic() - began
        show(line, cases)
    return finished


def stop(pid: int, here: Connection, line: Line, cases: int, began: float) -> None:
    """Interrupt an attack, so that it puts everything back and says where it was."""
    os.kill(pid, signal.SIGINT)
    with suppress(EOFError):
        if followed(here, line, cases, began, time.monotonic() - began + CLEANING):
            return
    line.faults += 1
    line.examples.append(f"{line.attack}: it did not end when it was interrupted either")


def show(line: Line, cases: int, last: bool = False) -> None:
    """Progress: over and over on a terminal, else once."""
    wanted = "" if cases == ALL else f" of {cases:,}"
    text = f"{line.attack:<18} {line.cases:>9,}{wanted} cases, {line.faults:,} faults, {line.seconds:.0f} s"
    if sys.stderr.isatty():
        print(f"\r{text:<100}", end="\n" if last else "", file=sys.stderr, flush=True)
    elif last:
        print(text, file=sys.stderr, flush=True)


def table(lines: Sequence[Line]) -> str:
    """As text, aligned."""
    rows = [["attack", "what it does", "cases", "faults", "seconds"]]
    rows += [[x.attack, x.what, f"{x.cases:,}", f"{x.faults:,}", f"{x.seconds:.0f}"] for x in lines]
    total = [sum(x.cases for x in lines), sum(x.faults for x in lines), sum(x.seconds for x in lines)]
    rows.append(["all", "", *(f"{number:,.0f}" for number in total)])
    a, b, c, d, e = (max(len(row[n]) for row in rows) for n in range(5))
    made = [f"{row[0]:<{a}} | {row[1]:<{b}} | {row[2]:>{c}} | {row[3]:>{d}} | {row[4]:>{e}}" for row in rows]
    ruler = "-+-".join("-" * width for width in (a, b, c, d, e))
    return "\n".join([made[0], ruler, *made[1:-1], ruler, made[-1]])


def chosen(only: Sequence[str]) -> list[str]:
    """Names of attacks; "kills" stands for all of its."""
    if unknown := [name for name in only if name not in PLANS and not any(x.startswith(f"{name}.") for x in PLANS)]:
        raise SystemExit(f"unknown: {', '.join(unknown)}; there are {', '.join(PLANS)}")
    return [name for name in PLANS if not only or name in only or name.partition(".")[0] in only]


def main() -> int:
    """Run what was asked for; 1 if there was any fault, or not everything was run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="such as kills or kills.save")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0, help="of the planned cases")
    parser.add_argument("--out", type=Path, help="where the table goes as JSON")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before PyTorch is imported
    lines: list[Line] = []
    with suppress(KeyboardInterrupt):  # what was done until then is shown
        for name in chosen(arguments.only):
            lines.append(watched(name, arguments.seed, arguments.share))
            if arguments.out is not None:  # after each, in case the next takes the machine with it
                kept = {"seed": arguments.seed, "share": arguments.share, "attacks": [asdict(x) for x in lines]}
                arguments.out.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    print(table(lines))
    for line in lines:
        for example in line.examples:
            print(f"\n{example}")
    return 1 if len(lines) < len(chosen(arguments.only)) or any(line.faults for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
