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


@pytest.fixture(autouse=True)
def same_products() -> Iterator[None]:
    """How float32 products are rounded belongs to the process; a test that changes it changes it for itself."""
    before = torch.get_float32_matmul_precision()
    yield
    if torch.get_float32_matmul_precision() != before:
        torch.set_float32_matmul_precision(before)
