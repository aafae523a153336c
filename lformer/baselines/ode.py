"""Differential equations for models: each state is solved over an interval of its own.

A solver has one clock for a whole batch. With s from 0 to 1 in place of time, dy/ds = Δ f(y) moves each state over its
own interval Δ, which may be negative: then it moves back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lformer.baselines.model import BaselineConfig
from lformer.nn.attention import one_of

Method = Literal["euler", "midpoint", "rk4", "dopri5"]
Activation = Literal["tanh", "elu"]
ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "elu": nn.ELU}


@dataclass(frozen=True)
class Solver:
    """How an equation is solved.

    Attributes:
        method: "euler", "midpoint" and "rk4" take `steps` equal steps over every interval; "dopri5" chooses its steps
            so that the error that a step adds to any state stays within `rtol` and `atol`. It chooses them for all
            states of a batch together, so that an answer changes a little, as the tolerance allows, with the series
            beside it.
        adjoint: solve the adjoint equation backwards for the gradients. It needs the memory of a single step, and its
            gradients have an error of their own, that of the method.
    """

    method: str
    steps: int
    rtol: float
    atol: float
    adjoint: bool

    def __call__(self, field: nn.Module, y: Tensor, intervals: Tensor) -> Tensor:
        """Solve dy/dt = field(y) over an interval for each state: (N, D), (N,) -> (N, D)."""
        if y.numel() == 0:
            return y
        count = 1 if self.method == "dopri5" else self.steps
        places = torch.linspace(0, 1, count + 1, dtype=y.dtype, device=y.device)
        moved = _Scaled(field, intervals.to(y.dtype)[:, None])
        choices: dict[str, Any] = {"method": self.method, "rtol": self.rtol, "atol": self.atol}
        if self.method == "dopri5":
            choices["options"] = {"norm": _worst}
        return _odeint(self.adjoint)(moved, y, places, **choices)[-1]


@dataclass(frozen=True, kw_only=True)
class ODEConfig(BaselineConfig):
    """What every model with a differential equation has.

    Attributes:
        method, rtol, atol, adjoint: see `Solver`.
        steps: of a method with fixed steps, over an interval.
    """

    method: Method = "rk4"
    steps: int = 4
    rtol: float = 1e-3
    atol: float = 1e-4
    adjoint: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_method()
        self.require_positive("steps")
        for name in ("rtol", "atol"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be greater than 0; got {getattr(self, name)}.")

    def check_method(self) -> None:
        """Refuse an unknown one."""
        one_of("method", self.method, Method)

    @property
    def solver(self) -> Solver:
        """As these fields say."""
        return Solver(self.method, self.steps, self.rtol, self.atol, self.adjoint)


class Field(nn.Sequential):
    """f(y) of dy/dt = f(y): `depth` + 1 hidden layers of some units. It is small at first, and 0 at 0."""

    def __init__(self, width: int, units: int, depth: int, activation: Activation = "tanh") -> None:
        act = ACTIVATIONS[activation]
        hidden = [part for _ in range(depth) for part in (act(), nn.Linear(units, units))]
        super().__init__(nn.Linear(width, units), *hidden, act(), nn.Linear(units, width))
        for layer in self:
            if isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight, std=0.1)
                nn.init.zeros_(layer.bias)


class _Scaled(nn.Module):
    """Δ f(y), whatever s is; a module, since the adjoint equation needs the parameters of f."""

    def __init__(self, field: nn.Module, intervals: Tensor) -> None:
        super().__init__()
        self.field, self.intervals = field, intervals

    def forward(self, s: Tensor, y: Tensor) -> Tensor:
        """(), (N, D) -> (N, D)"""
        return self.intervals * self.field(y)


def _worst(error: Tensor) -> Tensor:
    """(N, D) -> (), of the state that is furthest off; a mean over all would let a long interval hide among short ones.

    No gradient flows through the choice of steps; that of a root at 0 would be infinite.
    """
    return error.detach().square().mean(dim=-1).sqrt().max()


def _odeint(adjoint: bool) -> Callable[..., Tensor]:
    try:
        import torchdiffeq
    except ImportError as error:
        raise ImportError(
            'models with differential equations need torchdiffeq; install it with: pip install "lformer[baselines]"'
        ) from error
    return torchdiffeq.odeint_adjoint if adjoint else torchdiffeq.odeint
