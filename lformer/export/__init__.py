"""A fitted estimator as graphs that run without lformer: ONNX, which needs no PyTorch either, or PyTorch's own archive.

    batch   whole series, batch and lengths free            what `predict` or `predict_proba` says
    step    one row of B series, states in and out           what `Stream.update` says; streaming models only

Both take raw values and stamps: scales, carried rows, neighbours and the units of the answers are inside.
"""

from __future__ import annotations

import shutil
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp

from torch import nn

from lformer.arrays import check_word
from lformer.export import description
from lformer.export.graphs import BatchGraph, batch_output
from lformer.export.program import OPSET, save_onnx, save_pt2, traced
from lformer.export.readme import readme
from lformer.export.step import StepGraph
from lformer.export.subject import Subject, require_exportable, streams
from lformer.sealed import json_text, write_text

EXAMPLES = Path(__file__).parent / "examples"
PACKAGES = ("onnx", "onnxscript")  # what writes ONNX
OURS = {
    "export.json", "example.json", "README.md", "run.py", "run.mjs", "model.onnx", "step.onnx", "model.pt2", "step.pt2",
}  # fmt: skip


def export(subject: Subject, folder: str | Path, to: str = "onnx") -> Path:
    """Write the graphs of a fitted estimator, their description, and examples that run them, whole or not at all.

    Args:
        subject: a fitted estimator.
        folder: new, empty, or with an earlier export, which is replaced.
        to: "onnx" or "pt2", PyTorch's archive.

    Returns:
        The folder.
    """
    check_word(to, "to", ("onnx", "pt2"))
    require_exportable(subject)
    place = _free(folder)
    if to == "onnx":
        _require_packages()
    place.parent.mkdir(parents=True, exist_ok=True)
    part = Path(mkdtemp(prefix=f"{place.name}.", suffix=".part", dir=place.parent))
    try:
        _fill(subject, part, to)
        part.chmod(0o755)
        if place.exists():
            shutil.rmtree(place)
        part.rename(place)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return place


def _fill(subject: Subject, folder: Path, to: str) -> None:
    graphs: dict[str, nn.Module] = {"batch": BatchGraph(subject).eval()}
    if streams(subject):
        graphs["step"] = StepGraph(subject).eval()
    files: dict[str, tuple[Path, nn.Module]] = {}
    for name, graph in graphs.items():
        assert isinstance(graph, BatchGraph | StepGraph)
        path = folder / f"{'model' if name == 'batch' else 'step'}.{to}"
        program = traced(graph, graph.inputs)
        if to == "onnx":
            save_onnx(program, path, graph.inputs, [batch_output(subject).name, *getattr(graph, "outputs", [])])
        else:
            save_pt2(program, path)
        files[name] = path, graph
    versions = {name: metadata.version(name) for name in PACKAGES} | {"opset": str(OPSET)} if to == "onnx" else {}
    about = description.describe(subject, files, versions)
    write_text(folder / "export.json", json_text(about))
    write_text(folder / "example.json", json_text(description.example(subject, graphs)))
    write_text(folder / "README.md", readme(about, to))
    shutil.copy(EXAMPLES / f"run_{to}.py", folder / "run.py")
    if to == "onnx":
        shutil.copy(EXAMPLES / "run.mjs", folder / "run.mjs")


def _free(folder: str | Path) -> Path:
    """The folder without links, if an export may be put there."""
    place = Path(folder).expanduser().resolve()
    if place.exists() and not place.is_dir():
        raise ValueError(f"{place} is a file; an export is a folder. Choose another name.")
    others = sorted(entry.name for entry in place.iterdir() if entry.name not in OURS) if place.exists() else []
    if others:
        raise ValueError(
            f"{place} holds other things than an export ({', '.join(others[:3])}), with which it must not be mixed. "
            "Choose another folder."
        )
    return place


def _require_packages() -> None:
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise ImportError(
            f"to write ONNX, {' and '.join(missing)} must be installed: pip install 'lformer[export]'. Or export to "
            'PyTorch\'s archive, which needs nothing else: to="pt2".'
        )
