"""From a PyTorch graph to a standalone program: `torch.export`, and from there to ONNX."""

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

OPSET = 18  # of ONNX, supported by runtimes since 2023
TRACED = {"batch": 3, "length": 11, "queries": 5}  # all different, and not 0 or 1, which a tracer treats as constants


def traced(graph: nn.Module, inputs: Sequence[Port]) -> torch.export.ExportedProgram:
    """The program of a graph, in which all named axes are free."""
    examples = tuple(port.example(TRACED) for port in inputs)
    free = tuple(
        {n: torch.export.Dim.DYNAMIC for n, axis in enumerate(port.axes) if isinstance(axis, str)} for port in inputs
    )
    with torch.no_grad(), _quietly():
        return torch.export.export(graph.eval(), examples, dynamic_shapes={"inputs": free})


def save_onnx(
    program: torch.export.ExportedProgram, path: Path, inputs: Sequence[Port], outputs: Sequence[Port]
) -> None:
    """Write one file, including weights; its free axes have the names given by the ports."""
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
    """Write an archive for `torch.export.load`."""
    with _quietly():
        torch.export.save(program, path)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Suppress PyTorch's messages about optional packages and deprecated names."""
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
