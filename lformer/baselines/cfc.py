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
        mixed_memory: an LSTM cell, which does not know time, changes the state before each step.
    """

    backbone: int = 128
    backbone_layers: int = 1
    activation: Activation = "lecun_tanh"
    mode: Mode = "default"
    mixed_memory: bool = False

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
        """(B, L, D), (B, L) -> (B, L, D) of each layer, behind its memory if it has one."""
        states = [x]
        for layer in self.layers:
            states += layer(states[-1], deltas)
        return states[1:]

    def evolve(self, x: Tensor, since: Tensor, states: list[Tensor]) -> Tensor:
        """(B, N, D), (B, N), (B, N, D) of each layer and memory -> (B, N, D)"""
        y, since = x.flatten(0, 1), since.flatten()[:, None]
        flat, kept = [state.flatten(0, 1) for state in states], len(states) // len(self.layers)
        for n, layer in enumerate(self.layers):
            assert isinstance(layer, CfCLayer)
            y = layer.step(layer.from_input(y), flat[n * kept : (n + 1) * kept], since)[-1]
        return y.unflatten(0, x.shape[:2])


class CfCLayer(nn.Module):
    """One layer: `step` from a state to the next, and all steps of a series.

    A state is the list [h], or [c, h] with the memory c of an LSTM.
    """

    def __init__(self, config: CfCConfig) -> None:
        super().__init__()
        D, units = config.width, config.backbone
        self.mode, self.act = config.mode, ACTIVATIONS[config.activation]
        whole = nn.Linear(
            2 * D, units
        )  # of [x, h], whose halves are held apart: a slice in every step is slow to train
        self.deeper = nn.ModuleList(nn.Linear(units, units) for _ in range(config.backbone_layers - 1))
        self.heads = nn.Linear(units, D if config.mode == "pure" else 4 * D)  # f_1, f_2, a, b
        with torch.no_grad():  # each head by itself, not the four as one wide map
            for weight in (whole.weight, *(layer.weight for layer in self.deeper), *self.heads.weight.split(D)):
                nn.init.xavier_uniform_(weight)
            from_x, from_h = whole.weight.split(D, dim=1)
        self.input, self.recurrent = nn.Parameter(from_x.clone()), nn.Parameter(from_h.T.contiguous())
        self.bias = whole.bias
        if config.mode == "pure":
            self.rate = nn.Parameter(torch.zeros(D))
            self.end = nn.Parameter(torch.ones(D))
        self.memory = Memory(D) if config.mixed_memory else None

    def from_input(self, x: Tensor) -> list[Tensor]:
        """(..., D) -> (..., backbone), and (..., 4 D) for a memory: what the first maps make of the rows alone."""
        found = [F.linear(x, self.input, self.bias)]
        return found if self.memory is None else [*found, self.memory.input(x)]

    def step(self, from_x: list[Tensor], state: list[Tensor], delta: Tensor) -> list[Tensor]:
        """(N, ...) of `from_input`, (N, D) each, (N, 1) -> (N, D) each, the next state"""
        if self.memory is None:
            return [self.next_h(from_x[0], state[0], delta)]
        c, h = self.memory(from_x[1], *state)
        return [c, self.next_h(from_x[0], h, delta)]

    def next_h(self, from_x: Tensor, h: Tensor, delta: Tensor) -> Tensor:
        """(N, backbone), (N, D), (N, 1) -> (N, D)"""
        D = h.shape[1]
        v = self.act(torch.addmm(from_x, h, self.recurrent))
        for layer in self.deeper:
            v = self.act(layer(v))
        heads = self.heads(v)
        if self.mode == "pure":
            return self.end - self.end * heads * torch.exp(-delta * (self.rate.abs() + heads.abs()))
        f_1, f_2 = torch.tanh(heads[:, : 2 * D]).chunk(2, dim=1)
        a, b = heads[:, 2 * D :].chunk(2, dim=1)
        s = torch.sigmoid(torch.addcmul(b, a, delta))
        return torch.addcmul(f_1, s, f_2) if self.mode == "no_gate" else torch.lerp(f_1, f_2, s)

    def forward(self, x: Tensor, deltas: Tensor) -> list[Tensor]:
        """(B, L, D), (B, L) -> (B, L, D) each, the states."""
        rows = zip(*(part.transpose(0, 1).contiguous().unbind() for part in self.from_input(x)), strict=True)
        start = x.new_zeros(x.shape[0], x.shape[2])
        state, states = [start] if self.memory is None else [start, start], []
        for row, delta in zip(rows, deltas.T[..., None].unbind(), strict=True):
            state = self.step(list(row), state, delta)
            states.append(state)
        return [torch.stack(part, dim=1) for part in zip(*states, strict=True)]


class Memory(nn.Module):
    """An LSTM cell that forgets little at first, as the mixed memory of the authors."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.input = nn.Linear(width, 4 * width)
        self.recurrent = nn.Linear(width, 4 * width, bias=False)
        nn.init.xavier_uniform_(self.input.weight)
        nn.init.uniform_(self.input.bias, -0.1, 0.1)
        nn.init.orthogonal_(self.recurrent.weight)

    def forward(self, from_x: Tensor, c: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """(N, 4 D) of `input`, (N, D), (N, D) -> (N, D) memory, (N, D) state"""
        new, write, keep, show = torch.addmm(from_x, h, self.recurrent.weight.T).chunk(4, dim=1)
        c = c * torch.sigmoid(keep + 1) + torch.tanh(new) * torch.sigmoid(write)
        return c, torch.tanh(c) * torch.sigmoid(show)
