"""Which device: the one that a name asks for, or the one that a model is on."""

from __future__ import annotations

from itertools import chain

import torch
from torch import nn


def choose(name: str = "auto", index: int = 0) -> torch.device:
    """The device of a name.

    Args:
        name: "auto" is CUDA where there is one, else the CPU; "cpu"; "gpu" insists on one, CUDA or else Apple's; or a
            device as PyTorch writes it, such as "cuda:1".
        index: which CUDA device, where the name leaves it open.

    Example:
        >>> choose("cpu")
        device(type='cpu')
    """
    if name in ("auto", "gpu") and torch.cuda.is_available():
        return torch.device("cuda", index)
    if name in ("auto", "cpu"):
        return torch.device("cpu")
    if name == "gpu":
        if torch.backends.mps.is_available():
            return torch.device("mps")
        raise RuntimeError(
            'device="gpu" insists on a GPU, and PyTorch sees none here; device="auto" takes the CPU then.'
        )
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(
            f'device must be "auto", "cpu", "gpu" or one of PyTorch\'s as "cuda:1"; got {name!r}.'
        ) from error
    if device.type != "cuda":
        return device
    device = torch.device("cuda", index if device.index is None else device.index)
    if device.index >= (count := torch.cuda.device_count()):
        raise RuntimeError(f'device="{name}" is not here: PyTorch sees {count} CUDA devices, counted from 0.')
    return device


def device_of(model: nn.Module) -> torch.device:
    """Where a model is: its first parameter, else its first buffer; the CPU if it has neither."""
    first = next(chain(model.parameters(), model.buffers()), None)
    return torch.device("cpu") if first is None else first.device
