"""Autonomous differential equations for models: dy/dt = f(y), over an interval per state or along a trajectory.

A solver has one clock for a whole batch. Dividing time by an interval Δ, dy/ds = Δ f(y) for s from 0 to 1, gives every
state an interval of its own, which may be negative. Many moments of the same trajectory are read off one walk along a
grid of equal steps; where its points lie depends neither on the moments nor on the batch.
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
        method: "euler", "midpoint" and "rk4" take steps of a fixed length; "dopri5" chooses its steps so that the error
            that a step adds to any state stays within `rtol` and `atol`. It chooses them for all states of a batch
            together, so that an answer changes a little, as the tolerance allows, with the series beside it.
        steps: of a fixed length, over an interval; along a trajectory, points of the grid per unit of time.
        adjoint: solve the adjoint equation backwards for the gradients, in place of keeping what every step computed.
            Its gradients have an error of their own, that of the method.
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
        return self._solve(field, y, intervals.to(y.dtype)[:, None], places)[-1]

    def along(self, field: nn.Module, y: Tensor, moments: Tensor) -> Tensor:
        """The trajectory of each state, which is y at time 0, at some moments: (N, D), (N, M) -> (N, M, D).

        Methods with fixed steps go from point to point of the grid k / `steps`, k = 0, ±1, ±2, …; between two points
        a cubic polynomial has their states and slopes (Hermite interpolation, of fourth order as "rk4"). The furthest
        moments decide how many points are visited and change none of them.
        """
        if y.numel() == 0 or moments.numel() == 0:
            return y[:, None].expand(-1, moments.shape[1], -1)
        place = moments * self.steps
        below = place.floor().long()  # the point at or before a moment
        first, last = torch.stack([below.min().clamp(max=0), below.max().clamp(min=0) + 1]).tolist()
        states = self._walk(field, y, last, 1 / self.steps)
        if first < 0:
            earlier = self._walk(field, y, -first, -1 / self.steps)
            states = torch.cat([earlier[1:].flip(0), states])
        slopes = field(states) / self.steps
        index = (below - first)[..., None].expand(-1, -1, y.shape[1])
        return _hermite(states.transpose(0, 1), slopes.transpose(0, 1), index, (place - below)[..., None].to(y.dtype))

    def _walk(self, field: nn.Module, y: Tensor, count: int, pitch: float) -> Tensor:
        """(N, D) -> (count + 1, N, D), at times 0, pitch, 2 pitch, …"""
        places = torch.arange(count + 1, dtype=y.dtype, device=y.device)  # whole numbers, exact in every dtype
        return self._solve(field, y, torch.tensor(pitch, dtype=y.dtype, device=y.device), places)

    def _solve(self, field: nn.Module, y: Tensor, scale: Tensor, places: Tensor) -> Tensor:
        """dy/ds = scale · field(y) at the places, of which the first is that of y: (N, D), (P,) -> (P, N, D)."""
        choices: dict[str, Any] = {"method": self.method, "rtol": self.rtol, "atol": self.atol}
        if self.method == "dopri5":
            choices["options"] = {"norm": _worst}
        try:
            return _odeint(self.adjoint)(_Scaled(field, scale), y, places, **choices)
        except AssertionError as error:
            if "underflow in dt" not in str(error):
                raise
            raise FloatingPointError(
                f"{self.method} would need steps that {str(y.dtype).removeprefix('torch.')} cannot hold: dy/dt changes "
                "too fast. Lower the learning rate, or take rk4."
            ) from error


@dataclass(frozen=True, kw_only=True)
class ODEConfig(BaselineConfig):
    """What every model with a differential equation has.

    Attributes:
        method, rtol, atol, adjoint: see `Solver`.
        steps: of a method with fixed steps, over an interval between two observations.
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

    def __init__(self, field: nn.Module, scale: Tensor) -> None:
        super().__init__()
        self.field, self.scale = field, scale

    def forward(self, s: Tensor, y: Tensor) -> Tensor:
        """(), (N, D) -> (N, D)"""
        return self.scale * self.field(y)


def _hermite(states: Tensor, slopes: Tensor, index: Tensor, s: Tensor) -> Tensor:
    """Cubic polynomials between points of a grid, exact at the points.

    Args:
        states: (N, P, D)
        slopes: (N, P, D) per step of the grid.
        index: (N, M, D) of the point before each moment.
        s: (N, M, 1) where the moment is between this point, 0, and the next, 1.

    Returns:
        (N, M, D)
    """
    y, following = states.gather(1, index), states.gather(1, index + 1)
    slope, next_slope = slopes.gather(1, index), slopes.gather(1, index + 1)
    blend = s * s * (3 - 2 * s)
    return y + blend * (following - y) + s * (1 - s) * ((1 - s) * slope - s * next_slope)


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
