"""What the commands say of each messy file, and the table of it in docs/messy-files.md."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from messy.files import MESSY, Messy
from typer.testing import CliRunner, Result

from lformer.bench.marks import fill
from lformer.cli import app

PAGE = Path(__file__).parents[2] / "docs" / "messy-files.md"


def call(*arguments: str) -> Result:
    """A command on a terminal so wide that no line is broken."""
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "4000", "TERM": "dumb", "NO_COLOR": "1"})


def doctor(case: Messy, *more: str) -> Result:
    """In the folder of the file, so that it is called by its name alone."""
    Path(case.name).write_bytes(case.content)
    return call("data", "doctor", case.name, *case.options, *more)


def message(result: Result) -> str:
    """What is to be read of it: the error, or the findings of a report; else how much was read."""
    lines = [line for line in result.output.splitlines() if line.strip()]
    if lines[0].startswith("error: "):
        return " ".join(lines[0].removeprefix("error: ").split())
    found = [i for i, line in enumerate(lines) if line.startswith(("error: ", "warning: ", "info: "))]
    if not found:
        verdict = next(i for i, line in enumerate(lines) if line.startswith("Training"))
        return f"{lines[verdict]} {lines[verdict + 1].split(maxsplit=1)[1]}."
    title, *body = (line.strip() for line in lines[found[0] :])
    ends = (i for i, line in enumerate(body) if line.startswith(("error: ", "warning: ", "info: ", "channel ")))
    return " ".join([f"{title}.", *body[: next(ends, len(body))]]).replace("→ ", "")


def table() -> str:
    """The file, what is the matter, what is said, and what to add to the command; a row for each."""
    lines = ["| file | what is the matter | exit code | what it says | then |", "|---|---|---|---|---|"]
    for case in MESSY:
        result = doctor(case)
        told = message(result).replace("|", "\\|").replace("<", "&lt;")
        cure = f"`{shlex.join(case.cure)}`" if case.cure else ""
        lines.append(f"| {case.name} | {case.about} | {result.exit_code} | {told} | {cure} |")
    return "\n".join(lines)


def filled(page: str) -> str:
    """The page with the table of now; files are made in a folder of their own."""
    before = Path.cwd()
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            return fill(page, "messy", table())
        finally:
            os.chdir(before)


if __name__ == "__main__":  # PYTHONPATH=tests python -m messy.page
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write(f"Table: {PAGE}\n")
