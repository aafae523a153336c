"""Port: an input or output of a graph, with name, type and axes."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

DTYPES = {"float64": torch.float64, "float32": torch.float32, "int64": torch.int64, "bool": torch.bool}


class Port(NamedTuple):
    """One tensor of a graph."""

    name: str
    dtype: str
    axes: tuple[str | int, ...]  # the name of a free axis, or the length of a fixed one
    about: str = ""

    def example(self, sizes: dict[str, int]) -> Tensor:
        """Ones of this shape; tracing a graph depends on shapes, never on values."""
        shape = [sizes[axis] if isinstance(axis, str) else axis for axis in self.axes]
        return torch.ones(shape, dtype=DTYPES[self.dtype])

    def next(self) -> Port:
        """The same tensor of a state, after a step."""
        return self._replace(name=f"next_{self.name}")

    def described(self) -> dict[str, Any]:
        return {"name": self.name, "dtype": self.dtype, "axes": list(self.axes), "about": self.about}
