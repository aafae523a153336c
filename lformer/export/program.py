"""From a graph in PyTorch to a program that stands alone: `torch.export`, and from there to ONNX."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lformer.export.ports import Port

OPSET = 18  # of ONNX, which runtimes since 2023 know
TRACED = {"batch": 3, "length": 11, "queries": 5}  # no two alike, none of them 0 or 1, which a tracer takes for fixed


def traced(graph: nn.Module, inputs: Sequence[Port]) -> torch.export.ExportedProgram:
    """The program of a graph, with every axis free that has a name."""
    examples = tuple(port.example(TRACED) for port in inputs)
    free = tuple(
        {n: torch.export.Dim.DYNAMIC for n, axis in enumerate(port.axes) if isinstance(axis, str)} for port in inputs
    )
    with torch.no_grad(), _quietly():
        return torch.export.export(graph.eval(), examples, dynamic_shapes={"inputs": free})


def save_onnx(
    program: torch.export.ExportedProgram, path: Path, inputs: Sequence[Port], outputs: Sequence[Port]
) -> None:
    """Write one file, weights included; its free axes bear the names that the ports give them."""
    import onnx

    from lformer.export.translations import translations

    with _quietly():
        made: Any = torch.onnx.export(
            program, custom_translation_table=translations(), opset_version=OPSET, verbose=False,
            input_names=[port.name for port in inputs], output_names=[port.name for port in outputs],
        )  # fmt: skip
    model = made.model_proto
    for value, port in zip(model.graph.input, inputs, strict=True):
        for dim, axis in zip(value.type.tensor_type.shape.dim, port.axes, strict=True):
            if isinstance(axis, str):
                dim.dim_param = axis
    onnx.save(model, str(path))


def save_pt2(program: torch.export.ExportedProgram, path: Path) -> None:
    """Write an archive that `torch.export.load` reads."""
    with _quietly():
        torch.export.save(program, path)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Without what PyTorch says of itself: packages that it could use, and names that it will give up."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
