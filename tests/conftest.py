"""What holds for all tests: order, random numbers, memory that is NaN until written, products as they were."""

import signal
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)  # the same examples at every run
settings.load_profile("repeatable")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The kernels first: their files take longest, each in one piece, and would keep one process busy at the end."""
    items.sort(key=lambda item: "fused" not in item.path.parts)


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    """A test draws the same numbers whichever ran before it in its process."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def nan_filled_memory() -> Iterator[None]:
    """`torch.empty` returns NaN under deterministic mode; restored after each test."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(before)


@pytest.fixture(autouse=True)
def brief_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimators that are not told how long train as briefly as a test can bear; budgets have tests of their own."""
    monkeypatch.setattr("lformer.estimators.budget.LEAST", 80)
    monkeypatch.setattr("lformer.estimators.budget.MEMBERS", 1)


@pytest.fixture
def signals_as_in_a_terminal() -> Iterator[None]:
    """A suite that a shell started in the background ignores Ctrl-C, and so would all that it starts."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def same_products() -> Iterator[None]:
    """How float32 products are rounded belongs to the process; a test that changes it changes it for itself."""
    before = torch.get_float32_matmul_precision()
    yield
    if torch.get_float32_matmul_precision() != before:
        torch.set_float32_matmul_precision(before)
