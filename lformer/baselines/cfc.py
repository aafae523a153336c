"""CfC: a recurrence in closed form whose state moves between two learned ends with the time that passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lformer.baselines.evolving import Evolving
from lformer.baselines.model import BaselineConfig
from lformer.nn.attention import one_of

Mode = Literal["default", "no_gate", "pure"]
Activation = Literal["lecun_tanh", "tanh", "relu", "silu"]


def lecun_tanh(x: Tensor) -> Tensor:
    """1.7159 tanh(0.666 x)"""
    return 1.7159 * torch.tanh(0.666 * x)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "lecun_tanh": lecun_tanh, "tanh": torch.tanh, "relu": F.relu, "silu": F.silu,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CfCConfig(BaselineConfig):
    """`depth` layers of `width` units; the published model has one. Set `rows="carried"` where values are missing.

    Attributes:
        backbone: units of the network that reads row and state.
        backbone_layers: its layers.
        activation: its activation.
        mode: how the state moves in time: "default" from one end to the other, "no_gate" adds the second to the first,
            "pure" is the solution of the differential equation, without a time gate.
    """

    backbone: int = 128
    backbone_layers: int = 1
    activation: Activation = "lecun_tanh"
    mode: Mode = "default"

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("activation", self.activation, Activation)
        one_of("mode", self.mode, Mode)
        self.require_positive("backbone", "backbone_layers")
        if self.mode == "pure" and self.activation in ("relu", "silu"):
            raise ValueError(
                f'mode="pure" has no bound on its state unless the activation has one: "lecun_tanh" or "tanh"; got '
                f"{self.activation!r}."
            )


class CfC(Evolving):
    """With v = backbone([x, h]), f_1 and f_2 = tanh of linear maps of v, and the gate s = σ(a(v) Δ + b(v)):

        h' = (1 − s) ⊙ f_1 + s ⊙ f_2

    Δ is the interval since the latest row with an observation, in typical intervals, and 0 at the first. Rows in which
    nothing was observed leave the state alone. There, and at a query, the answer comes from one step with that row over
    the interval until then, which is not kept.
    """

    recordable = True
    own_draws = True

    def __init__(self, config: CfCConfig) -> None:
        super().__init__(config)
        self.layers = nn.ModuleList(CfCLayer(config) for _ in range(config.depth))

    def states(self, x: Tensor, deltas: Tensor) -> list[Tensor]:
        """(B, L, D), (B, L) -> (B, L, D) of each layer."""
        states = [x]
        for layer in self.layers:
            states.append(layer(states[-1], deltas))
        return states[1:]

    def evolve(self, x: Tensor, since: Tensor, states: list[Tensor]) -> Tensor:
        """(B, N, D), (B, N), (B, N, D) of each layer -> (B, N, D)"""
        y, since = x.flatten(0, 1), since.flatten()[:, None]
        for layer, h in zip(self.layers, states, strict=True):
            assert isinstance(layer, CfCLayer)
            y = layer.step(layer.from_input(y), h.flatten(0, 1), since)
        return y.unflatten(0, x.shape[:2])


class CfCLayer(nn.Module):
    """One layer: `step` from a state to the next, and all steps of a series."""

    def __init__(self, config: CfCConfig) -> None:
        super().__init__()
        D, units = config.width, config.backbone
        self.mode, self.act = config.mode, ACTIVATIONS[config.activation]
        self.input = nn.Linear(2 * D, units)  # of [x, h]
        self.deeper = nn.ModuleList(nn.Linear(units, units) for _ in range(config.backbone_layers - 1))
        self.heads = nn.Linear(units, D if config.mode == "pure" else 4 * D)  # f_1, f_2, a, b
        with torch.no_grad():  # each head by itself, not the four as one wide map
            for weight in (self.input.weight, *(layer.weight for layer in self.deeper), *self.heads.weight.split(D)):
                nn.init.xavier_uniform_(weight)
        if config.mode == "pure":
            self.rate = nn.Parameter(torch.zeros(D))
            self.end = nn.Parameter(torch.ones(D))

    def from_input(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., backbone), what the first layer of the backbone makes of the rows alone."""
        return F.linear(x, self.input.weight[:, : x.shape[-1]], self.input.bias)

    def step(self, from_x: Tensor, h: Tensor, delta: Tensor) -> Tensor:
        """(N, backbone) of `from_input`, (N, D), (N, 1) -> (N, D), the next state"""
        D = h.shape[1]
        v = self.act(torch.addmm(from_x, h, self.input.weight[:, D:].T))
        for layer in self.deeper:
            v = self.act(layer(v))
        heads = self.heads(v)
        if self.mode == "pure":
            return self.end - self.end * heads * torch.exp(-delta * (self.rate.abs() + heads.abs()))
        f_1, f_2 = torch.tanh(heads[:, : 2 * D]).chunk(2, dim=1)
        a, b = heads[:, 2 * D :].chunk(2, dim=1)
        s = torch.sigmoid(torch.addcmul(b, a, delta))
        return torch.addcmul(f_1, s, f_2) if self.mode == "no_gate" else torch.lerp(f_1, f_2, s)

    def forward(self, x: Tensor, deltas: Tensor) -> Tensor:
        """(B, L, D), (B, L) -> (B, L, D), the states."""
        rows = self.from_input(x).transpose(0, 1).contiguous().unbind()
        h, states = x.new_zeros(x.shape[0], x.shape[2]), []
        for row, delta in zip(rows, deltas.T[..., None].unbind(), strict=True):
            h = self.step(row, h, delta)
            states.append(h)
        return torch.stack(states, dim=1)
