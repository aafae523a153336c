"""Trees: gradient-boosted trees on features of a series or row, whose predictions are mixed with the network's.

    prediction = (1 - weight) · network + weight · trees

The two make different errors: trees find thresholds in a table that a network smooths over, and the network uses what
the table has lost. For regression, trees may start from a linear function of one column, which extrapolates where trees
are constant. Trees are fitted after the network (`lformer.estimators.tree_fitting`) and are stored in buffers: saved as
tensors, exported as gathers and comparisons, and computed in a stream from running features.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

MOST = 2**24  # trees evaluated at a time, over all lines of a table: each takes some 30 bytes


class Size(NamedTuple):
    """How large each tree may become."""

    leaves: int
    depth: int

    @property
    def nodes(self) -> int:
        """Nodes of each tree, in memory."""
        return 2 * self.leaves - 1


FOR_SERIES = Size(leaves=8, depth=7)  # series are few, and their features many and noisy
FOR_ROWS = Size(leaves=31, depth=6)  # rows are many; the depth bounds the cost of a prediction


class Trees(nn.Module):
    """(B, F) a table, NaN for missing features -> (B, O); T = rounds · O trees, one per output and round.

    The nodes of all trees are stored one after another; a leaf points to itself. Before fitting, all nodes are leaves
    with value 0.

    Args:
        features: F.
        outputs: O.
        rounds: trees per output.
        size: of each tree.
    """

    def __init__(self, features: int, outputs: int, rounds: int, size: Size = FOR_SERIES) -> None:
        super().__init__()
        self.features, self.outputs, self.rounds, self.size = features, outputs, rounds, size
        N = rounds * outputs * size.nodes
        itself = torch.arange(N)
        self.feature, self.left, self.right = (
            nn.Buffer(torch.zeros(N).long()),
            nn.Buffer(itself),
            nn.Buffer(itself.clone()),
        )
        self.threshold, self.value = nn.Buffer(torch.zeros(N)), nn.Buffer(torch.zeros(N))
        self.missing_left = nn.Buffer(torch.zeros(N).long())
        self.base, self.weight = nn.Buffer(torch.zeros(outputs)), nn.Buffer(torch.tensor(0.0))
        self.column, self.slope = nn.Buffer(torch.zeros(outputs).long()), nn.Buffer(torch.zeros(outputs))
        self.middle = nn.Buffer(torch.zeros(outputs))  # value assumed where the column is NaN

    def forward(self, table: Tensor) -> Tensor:
        lines = max(1, MOST // (self.rounds * self.outputs))
        if torch.compiler.is_compiling() or len(table) <= lines:
            return self._predict(table)
        return torch.cat([self._predict(some) for some in table.split(lines)])

    def _predict(self, table: Tensor) -> Tensor:
        roots = torch.arange(0, self.feature.shape[0], self.size.nodes, device=table.device)
        node = roots.expand(table.shape[0], -1)  # (B, T)
        for _ in range(self.size.depth):
            x = table.gather(1, self.feature[node])
            # NaN is not below any threshold; onnxruntime has no `where` for booleans
            goes_left = (x <= self.threshold[node]) | (torch.isnan(x) & (self.missing_left[node] > 0))
            node = torch.where(goes_left, self.left[node], self.right[node])
        x = table[:, self.column]
        start = self.base + self.slope * (torch.where(torch.isnan(x), self.middle, x) - self.middle)
        return self.value[node].unflatten(1, (self.rounds, self.outputs)).sum(dim=1) + start

    def mix(self, answer: Tensor, table: Tensor) -> Tensor:
        """(B, O) or (B, L, O) from the network, (B, F) or (B, L, F) -> the mixed prediction"""
        other = self(table.reshape(-1, table.shape[-1])).to(answer.dtype)
        return torch.lerp(answer, other.reshape(answer.shape), self.weight.to(answer))
