"""GRU and GRU-dt: a gated recurrence from row to row, without their times and with the intervals as inputs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lformer.baselines.evolving import Evolving
from lformer.baselines.model import BaselineConfig, BaselineModel, state_after
from lformer.batch import IrregularBatch


@dataclass(frozen=True, kw_only=True)
class GRUConfig(BaselineConfig):
    """`depth` layers of `width` units. Rows in which nothing was observed are steps too, with zeros as input."""


class GRU(BaselineModel):
    """h_n = (1 − z_n) ⊙ tanh(…) + z_n ⊙ h_{n−1}, from h_0 = 0.

    A series is answered from its last state, a row from its own, and a query from that of the latest row which is not
    later: between two rows the answer stays the same. Padding comes after all valid rows, so no state that is read has
    seen any.
    """

    def __init__(self, config: GRUConfig) -> None:
        super().__init__(config)
        self.recurrence = nn.GRU(config.width, config.width, config.depth, batch_first=True)

    def mix(self, x: Tensor, batch: IrregularBatch) -> Tensor:
        """(B, L, D) -> (B, L, D), the states of the last layer."""
        states, _ = self.recurrence(x)
        return states

    def series(self, rows: Tensor, batch: IrregularBatch) -> Tensor:
        """(B, L, D) -> (B, D), the state after the last valid row."""
        return state_after(rows, batch.lengths[:, None]).squeeze(1)


@dataclass(frozen=True, kw_only=True)
class GRUdtConfig(BaselineConfig):
    """`depth` layers of `width` units. Set `rows="observed"` where values are missing."""


class GRUdt(Evolving):
    """A GRU with one more input: the interval since the latest row with an observation, 0 at the first.

    Rows in which nothing was observed leave the state alone. There, and at a query, the answer comes from one step with
    that row, which is not kept.

    Note: the interval is that before a row; the Latent ODE code pairs a row with the interval after it. The cell is
    never fed its own predictions in training, as it is there with probability ½.
    """

    recordable = True

    def __init__(self, config: GRUdtConfig) -> None:
        super().__init__(config)
        D = config.width
        self.layers = nn.ModuleList(nn.GRU(D if n else D + 1, D, batch_first=True) for n in range(config.depth))

    def states(self, x: Tensor, deltas: Tensor) -> list[Tensor]:
        """(B, L, D), (B, L) -> (B, L, D) of each layer."""
        states = [torch.cat([x, deltas[..., None]], dim=-1)]
        for layer in self.layers:
            states.append(layer(states[-1])[0])
        return states[1:]

    def evolve(self, x: Tensor, since: Tensor, states: list[Tensor]) -> Tensor:
        """(B, N, D), (B, N), (B, N, D) of each layer -> (B, N, D)"""
        y = torch.cat([x, since[..., None]], dim=-1).flatten(0, 1)
        for layer, h in zip(self.layers, states, strict=True):
            y = torch.gru_cell(y, h.flatten(0, 1), *_weights(layer))
        return y.unflatten(0, since.shape)


def _weights(layer: nn.Module) -> list[Tensor]:
    """Of the input and of the state, and their biases."""
    return [getattr(layer, name) for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")]
