"""GRU: a gated recurrence from row to row that knows the order of the rows and not their times."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

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
