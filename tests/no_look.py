"""Work that depends on shapes alone, as CUDA graphs ask for, told apart on any device."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

# Of these, either the result is a number in Python, or its shape or the work depends on the values.
LOOKS = frozenset({
    "_local_scalar_dense", "item", "equal", "is_nonzero", "nonzero", "nonzero_numpy", "argwhere", "masked_select",
    "_unique", "_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive", "bincount", "histc",
    "linalg_matrix_exp", "matrix_exp", "linalg_eig", "_linalg_eigh", "_linalg_svd", "_linalg_det",
    "_linalg_solve_ex", "linalg_solve_triangular", "linalg_lstsq", "linalg_inv_ex", "linalg_lu_factor_ex",
    "linalg_cholesky_ex", "linalg_qr",
})  # fmt: skip
BY_INDEX = frozenset({"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"})


class NoLook(TorchDispatchMode):
    """Inside, forward or backward, what would have to wait for the values of a GPU raises.

    Example:
        >>> with NoLook():
        ...     torch.zeros(3).nonzero()
        Traceback (most recent call last):
        AssertionError: aten.nonzero.default looks at values
    """

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func._overloadpacket.__name__
        assert name not in LOOKS, f"{func} looks at values"
        if name == "lift_fresh":  # torch.tensor: several numbers would have to be brought to the GPU
            assert args[0].dim() == 0, "torch.tensor makes numbers on the CPU"
        if name in BY_INDEX:
            assert not any(isinstance(i, Tensor) and i.dtype in (torch.bool, torch.uint8) for i in args[1]), (
                f"{func} with a boolean index looks at values"
            )
        if name == "repeat_interleave" and isinstance(args[-1], Tensor):
            assert (kwargs or {}).get("output_size") is not None, f"{func} without output_size looks at values"
        return func(*args, **kwargs or {})
