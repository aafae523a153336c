"""TF32 is allowed as long as anybody who asked for it is at work, and no longer."""

from contextlib import ExitStack

import pytest
import torch

from lformer.ops.precision import tf32


@pytest.mark.parametrize("first_to_leave", [0, 1])
def test_the_last_to_leave_puts_back_what_the_first_found(first_to_leave: int) -> None:
    """As two threads may enter and leave."""
    runs = [ExitStack(), ExitStack()]
    for run in runs:
        run.enter_context(tf32())
    runs[first_to_leave].close()
    assert torch.get_float32_matmul_precision() == "high"
    runs[1 - first_to_leave].close()
    assert torch.get_float32_matmul_precision() == "highest"


def test_it_is_put_back_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), tf32():
        _ = 1 / 0
    assert torch.get_float32_matmul_precision() == "highest"
