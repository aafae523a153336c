"""Graphs without a GPU: a replay runs the work once more and writes over what it left the first time."""

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import pytest
import torch
from torch import Tensor

from lformer import IrregularBatch
from lformer.batch import Source
from lformer.cuda_graphs import recording
from lformer.cuda_graphs.recording import Recording
from lformer.draws import generator_on


@pytest.fixture
def answered() -> list[tuple[int, ...]]:
    """Lists the shapes that `recorded` has recorded within `no_grad`, as those of a validation."""
    return []


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch, answered: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Lists the shapes that were recorded."""
    shapes: list[tuple[int, ...]] = []

    def record(work: Callable[[Source], Any], inputs: Source, name: str, pool: Any) -> Recording[Any]:
        (shapes if torch.is_grad_enabled() else answered).append(tuple(inputs.to("cpu").values.shape))
        generator = generator_on(torch.device("cpu")) or torch.default_generator
        random = generator.get_state()  # a recording draws none
        output = work(inputs)
        generator.set_state(random)
        with torch.no_grad():
            for tensor in tensors(output):
                if tensor.is_floating_point():
                    tensor.fill_(torch.nan)
        return Recording(inputs, output, lambda: overwrite(output, work(inputs)))

    monkeypatch.setattr(recording, "record", record)
    monkeypatch.setattr(recording, "new_pool", lambda: None)
    monkeypatch.setattr(recording, "replays_on", lambda device: True)
    return shapes


def tensors(output: Any) -> list[Tensor]:
    found: list[Tensor] = []
    for leaf in torch.utils._pytree.tree_leaves(output):
        if isinstance(leaf, IrregularBatch):
            found += tensors([getattr(leaf, field.name) for field in fields(leaf)])
        elif isinstance(leaf, Tensor):
            found.append(leaf)
    return found


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
