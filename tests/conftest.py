"""Every uninitialised tensor is NaN, so that an entry nobody wrote is seen."""

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def nan_filled_memory() -> Iterator[None]:
    """`torch.empty` returns NaN under deterministic mode; restored after each test."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(before)
