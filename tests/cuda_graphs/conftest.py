"""Graphs without a GPU: a replay runs the work once more and writes over what it left the first time."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from lformer import IrregularBatch
from lformer.cuda_graphs import recording
from lformer.cuda_graphs.recording import Recording
from lformer.draws import generator_on


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Lists the shapes that were recorded."""
    shapes: list[tuple[int, ...]] = []

    def record(work: Callable[[IrregularBatch], Any], inputs: IrregularBatch, name: str, pool: Any) -> Recording[Any]:
        shapes.append(tuple(inputs.values.shape))
        generator = generator_on(inputs.values.device) or torch.default_generator
        random = generator.get_state()  # a recording draws none
        output = work(inputs)
        generator.set_state(random)
        with torch.no_grad():
            for tensor in tensors(output):
                tensor.fill_(torch.nan)
        return Recording(inputs, output, lambda: overwrite(output, work(inputs)))

    monkeypatch.setattr(recording, "record", record)
    monkeypatch.setattr(recording, "new_pool", lambda: None)
    monkeypatch.setattr(recording, "can_replay", lambda batch, device: batch.values.numel() > 0)
    return shapes


def tensors(output: Any) -> list[Tensor]:
    return [t for t in torch.utils._pytree.tree_leaves(output) if isinstance(t, Tensor)]


def overwrite(output: Any, again: Any) -> None:
    with torch.no_grad():
        for held, new in zip(tensors(output), tensors(again), strict=True):
            held.copy_(new)


@pytest.fixture
def ordinary_kernels() -> Iterator[None]:
    """Deterministic mode, which fills empty memory in all tests, refuses the GPU's cumsum."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)
    yield
    torch.use_deterministic_algorithms(before)
