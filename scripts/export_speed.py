"""Microseconds per update of the default streaming model: eager, and its step graph in onnxruntime with bound buffers.

OMP_NUM_THREADS=1 python scripts/export_speed.py

On one core, eager and onnxruntime in turns; many series in one call, and in parts that a cache holds. On a machine that
others use, too, a round is short and the fastest of many counts: what no other process got in the way of. Needs the
extra `export`.
"""

from __future__ import annotations

import argparse
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch

from lformer import LFormerClassifier, Panel
from lformer.data import toy_ward
from lformer.export.example import initial
from lformer.export.program import save_onnx, traced
from lformer.export.step import StepGraph

AT_ONCE = 125  # series in a call: those of more do not fit into the cache of a core


def model() -> Any:
    """The default classifier for streams, on a ward."""
    ward = toy_ward(patients=60)
    X = Panel.from_long(
        ward.table, id="patient", time="time", channel="lab", value="value", unit="h", static=ward.static
    )
    return LFormerClassifier(streaming=True, max_epochs=1, device="cpu", random_state=0).fit(X, X.align(ward.labels))


def rows(graph: StepGraph, batch: int) -> dict[str, Any]:
    """One row of each series, in the units of training."""
    rng = np.random.default_rng(0)
    member: Any = graph.members[0]
    found: dict[str, Any] = {}
    for port in graph.inputs[: len(graph.inputs) - len(graph.state)]:
        shape = [batch if axis == "batch" else axis for axis in port.axes]
        found[port.name] = rng.normal(size=shape).astype(port.dtype)
    found["values"] = member.shift.numpy() + found["values"] / member.scale.numpy()
    found["values"][rng.random(found["values"].shape) < 0.5] = np.nan
    found["times"] = np.full(batch, 1e5) + rng.random(batch)
    return found


def bound(path: Path, graph: StepGraph, batch: int, at_once: int | None = None) -> Callable[[], None]:
    """An update in onnxruntime; two sets of state buffers take turns as what goes in and what comes out.

    At most `at_once` series go into a call, each part with buffers of its own.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_mem_reuse = False  # what an intermediate needs is not looked for among those that are done with
    options.enable_cpu_mem_arena = batch > 1  # large buffers would go back to the system after every call
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    size = min(batch, at_once or batch)
    parts = [_part(session, graph, size) for _ in range(batch // size)]
    count = [0]

    def update() -> None:
        turn = count[0] % 2
        for clock, turns in parts:
            np.add(clock, 1.0, out=clock)  # the stamps that the session reads
            session.run_with_iobinding(turns[turn])
        count[0] += 1

    return update


def _part(session: Any, graph: StepGraph, batch: int) -> tuple[Any, list[Any]]:
    """Stamps of some series, and where an update reads and writes; it alternates between two bindings."""
    given, answers = rows(graph, batch), np.zeros((batch, 2))
    given["times"] = np.full(batch, 1e5)
    sets = [initial(graph, batch) for _ in range(2)]
    turns = []
    for old, new in (sets, sets[::-1]):
        binding = session.io_binding()
        for name, array in (given | old).items():
            binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        for name, array in ({"answers": answers} | {f"next_{name}": one for name, one in new.items()}).items():
            binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        binding.held = (given, answers, sets)  # as long as the session may read and write them
        turns.append(binding)
    return given["times"], turns


def eager(estimator: Any, graph: StepGraph, batch: int) -> Callable[[], None]:
    """An update by `LFormer.step` in PyTorch, decoding left out."""
    given = {name: torch.from_numpy(array) for name, array in rows(graph, batch).items()}
    state = [estimator.model_.init_state(batch, given.get("static"))]
    delta = torch.ones(batch, dtype=torch.float64)

    def update() -> None:
        with torch.no_grad():
            _, state[0] = estimator.model_.step(given["values"], delta, state[0], given.get("marks"))

    return update


def best(updates: dict[str, Callable[[], None]], seconds: float, calls: int) -> dict[str, float]:
    """Microseconds of each update, the fastest of many rounds of some calls; all have the same time, in turns."""
    found = dict.fromkeys(updates, np.inf)
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for name, update in updates.items():
            turn = time.perf_counter() + 0.25
            while time.perf_counter() < turn:
                began = time.perf_counter()
                for _ in range(calls):
                    update()
                found[name] = min(found[name], 1e6 * (time.perf_counter() - began) / calls)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each size of batch")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 1000])
    given = parser.parse_args()
    torch.set_num_threads(1)
    estimator = model()
    graph = StepGraph(estimator).eval()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step.onnx"
        save_onnx(traced(graph, graph.inputs), path, graph.inputs, graph.outputs)
        nodes = len(onnx.load(path).graph.node)
        config = estimator.model_.config
        print(
            f"{platform.processor() or platform.machine()}, one core; torch {torch.__version__}, onnxruntime "
            f"{onnxruntime.__version__}; {config.inputs} channels, width {config.width}, {config.depth} layers, "
            f"{config.neighbours} neighbours; {nodes} nodes"
        )
        for batch in given.batches:
            updates = {"eager": eager(estimator, graph, batch), "onnxruntime": bound(path, graph, batch)}
            if batch > AT_ONCE:
                updates[f"onnxruntime, {AT_ONCE} at once"] = bound(path, graph, batch, AT_ONCE)
            found = best(updates, given.seconds, 10 if batch < 100 else 1)
            each = "  ".join(f"{name} {micro / batch:.2f}" for name, micro in found.items())
            print(f"{batch:>5} series, microseconds per series and update: {each}")


if __name__ == "__main__":
    main()
