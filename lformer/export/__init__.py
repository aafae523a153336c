"""Export a fitted estimator as graphs that run without lformer: ONNX, which does not need PyTorch either, or pt2.

    batch   whole series, with free batch size and lengths   the result of `predict` or `predict_proba`
    step    one row of B series, with states in and out      the result of `Stream.update`; streaming models only
    ask     states and times in, predictions out             the result of `Stream.predict_at`; interpolators,
    forecasters

All take raw values and time stamps: scaling, carried rows, neighbours and the units of the predictions are part of the
graph. So is the uncertainty of the predictions: standard deviations or quantiles, and after `calibrate` prediction
intervals or sets.
"""

from __future__ import annotations

import shutil
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp

from lformer.arrays import check_word
from lformer.export import description
from lformer.export.ask import AskGraph
from lformer.export.example import example
from lformer.export.graphs import BatchGraph
from lformer.export.program import OPSET, save_onnx, save_pt2, traced
from lformer.export.readme import readme
from lformer.export.step import StepGraph
from lformer.export.subject import Subject, asks, require_exportable, streams
from lformer.sealed import json_text, write_text

EXAMPLES = Path(__file__).parent / "examples"
PACKAGES = ("onnx", "onnxscript")  # needed to write ONNX
FILES = {"batch": "model", "step": "step", "ask": "ask"}  # graph -> its file, without extension
OURS = {"export.json", "example.json", "README.md", "run.py", "run.mjs"} | {
    f"{name}.{to}" for name in FILES.values() for to in ("onnx", "pt2")
}


def export(subject: Subject, folder: str | Path, to: str = "onnx") -> Path:
    """Export the graphs of a fitted estimator, their description, and examples that run them, atomically.

    Args:
        subject: a fitted estimator.
        folder: a new or empty folder, or one with an earlier export, which is replaced.
        to: "onnx", or "pt2", PyTorch's own archive format.

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
    graphs: dict[str, BatchGraph | StepGraph | AskGraph] = {"batch": BatchGraph(subject).eval()}
    if streams(subject):
        graphs["step"] = StepGraph(subject).eval()
        if asks(subject):
            graphs["ask"] = AskGraph(subject).eval()
    files = {name: (folder / f"{FILES[name]}.{to}", graph) for name, graph in graphs.items()}
    for path, graph in files.values():
        program = traced(graph, graph.inputs)
        if to == "onnx":
            save_onnx(program, path, graph.inputs, graph.outputs)
        else:
            save_pt2(program, path)
    versions = {name: metadata.version(name) for name in PACKAGES} | {"opset": str(OPSET)} if to == "onnx" else {}
    about = description.describe(subject, files, versions)
    write_text(folder / "export.json", json_text(about))
    write_text(folder / "example.json", json_text(example(subject, graphs)))
    write_text(folder / "README.md", readme(about, to))
    shutil.copy(EXAMPLES / f"run_{to}.py", folder / "run.py")
    if to == "onnx":
        shutil.copy(EXAMPLES / "run.mjs", folder / "run.mjs")


def _free(folder: str | Path) -> Path:
    """The resolved folder, if an export may be written there."""
    place = Path(folder).expanduser().resolve()
    if place.exists() and not place.is_dir():
        raise ValueError(f"{place} is a file; an export is a folder. Choose another name.")
    others = sorted(entry.name for entry in place.iterdir() if entry.name not in OURS) if place.exists() else []
    if others:
        raise ValueError(
            f"{place} contains files that do not belong to an export ({', '.join(others[:3])}) and must not be mixed "
            "with it. Choose another folder."
        )
    return place


def _require_packages() -> None:
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise ImportError(
            f"to write ONNX, {' and '.join(missing)} must be installed: pip install 'lformer[export]'. Or export to "
            'PyTorch\'s archive, which needs nothing else: to="pt2".'
        )
