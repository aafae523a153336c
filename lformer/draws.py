"""Random numbers that belong to one run: what other threads draw, or draw from, makes no difference.

PyTorch has one generator for a whole process, so two models that are built or trained at the same time would get each
other's numbers. What we draw comes from generators of our own: the weights of a model that is built inside `seeded`,
and what dropout drops while a trainer says where from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

_FILLING = ("uniform_", "normal_", "trunc_normal_", "xavier_uniform_", "xavier_normal_", "kaiming_uniform_",
            "kaiming_normal_", "orthogonal_", "sparse_")  # fmt: skip
_METHODS = ("uniform_", "normal_", "bernoulli_", "exponential_", "random_", "log_normal_", "cauchy_", "geometric_")
_MADE = ("rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial")
TAKE_A_GENERATOR = frozenset(
    [getattr(nn.init, name) for name in _FILLING]
    + [getattr(Tensor, name) for name in _METHODS]
    + [getattr(torch, name) for name in _MADE]
)


class _FromOneGenerator(TorchFunctionMode):
    """While it is active, in this thread alone, what draws numbers on the CPU draws them from one generator."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.generator = generator

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in TAKE_A_GENERATOR and kwargs.get("generator") is None and _on_cpu(args, kwargs):
            kwargs["generator"] = self.generator
        return func(*args, **kwargs)


def _on_cpu(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    device = next((value.device for value in args if isinstance(value, Tensor)), kwargs.get("device"))
    return torch.device(torch.get_default_device() if device is None else device).type == "cpu"


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Build a model under a seed, in whatever thread; the random state of the process is neither read nor changed."""
    with _FromOneGenerator(torch.Generator().manual_seed(seed)):
        yield


class Draws:
    """The random numbers of one run: a generator on the CPU and one on its device, seeded together."""

    def __init__(self, device: torch.device) -> None:
        places = {"cpu": torch.device("cpu"), device.type: device}
        self._generators = {kind: torch.Generator(place) for kind, place in places.items()}

    def seed(self, number: int) -> None:
        """Start again, from this number."""
        for generator in self._generators.values():
            generator.manual_seed(number)

    def on(self, device: torch.device) -> torch.Generator:
        """The generator of a device of this run."""
        return self._generators[device.type]


_current: ContextVar[Draws | None] = ContextVar("draws", default=None)


@contextmanager
def drawing_from(draws: Draws) -> Iterator[None]:
    """Inside, in this thread alone, models draw from these generators."""
    before = _current.set(draws)
    try:
        yield
    finally:
        _current.reset(before)


def generator_on(device: torch.device) -> torch.Generator | None:
    """What models draw from here; None is PyTorch's own generator."""
    draws = _current.get()
    return None if draws is None else draws.on(device)
