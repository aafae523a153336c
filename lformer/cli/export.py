"""`lformer export`: a saved model as graphs that run without lformer."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lformer.cli.common import clear_errors, say


class Form(StrEnum):
    """File formats of the graphs."""

    onnx = "onnx"
    pt2 = "pt2"


def export(
    model: Annotated[Path, typer.Argument(help="Folder of a model that was saved by `lformer fit` or `save`.")],
    to: Annotated[
        Form, typer.Option("--to", help="onnx runs without PyTorch, in many languages; pt2 is PyTorch's own format.")
    ] = Form.onnx,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the graphs. By default MODEL-onnx or MODEL-pt2.")
    ] = None,
) -> None:
    """Export a model as graphs that take raw values and time stamps and run without lformer, with example scripts.

    Exit code 0: the graphs are written. 1: the model cannot be exported. 2: something is wrong with the request.
    """
    from lformer.estimators.artefact import load

    with clear_errors(code=1):
        home = model.expanduser().resolve()
        place = out or home.with_name(f"{home.name}-{to.value}")
        folder = load(model).export(place, to.value)
        files = sorted(entry.name for entry in folder.iterdir())
    say(f"Exported: {folder} ({', '.join(files)})   Try it: python {folder / 'run.py'}")
