"""Trees: boosted trees on the summaries of a series, beside the network and mixed with its answer.

    answer = (1 - weight) · network + weight · trees

Both err in different directions: trees find thresholds in a table that a network smooths over, and the network reads
what the table has lost. Trees of numbers may start from a line through one column, which goes on where trees, beyond
what they have seen, say the same of everything. They are fitted after training (`lformer.estimators.tree_fitting`) and
are numbers in buffers like all else here: saved as tensors, exported as gathers and comparisons, and in a stream as
exact as the summaries.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

LEAVES = 8
NODES = 2 * LEAVES - 1
DEPTH = LEAVES - 1  # of the most uneven tree


class Trees(nn.Module):
    """(B, F) a table, NaN where there is nothing to say -> (B, O); T = rounds · O trees, one per output and round.

    Nodes of all trees stand one after the other; a leaf leads to itself. Before they grow, all are leaves of 0.

    Args:
        features: F.
        outputs: O.
        rounds: trees for each output.
    """

    def __init__(self, features: int, outputs: int, rounds: int) -> None:
        super().__init__()
        self.features, self.outputs, self.rounds = features, outputs, rounds
        N = rounds * outputs * NODES
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
        self.middle = nn.Buffer(torch.zeros(outputs))  # of the column, where it says nothing

    def forward(self, table: Tensor) -> Tensor:
        node = torch.arange(0, self.feature.shape[0], NODES, device=table.device).expand(table.shape[0], -1)  # (B, T)
        for _ in range(DEPTH):
            x = table.gather(1, self.feature[node])
            # NaN is not below any threshold; a choice between two bools is what onnxruntime does not have
            goes_left = (x <= self.threshold[node]) | (torch.isnan(x) & (self.missing_left[node] > 0))
            node = torch.where(goes_left, self.left[node], self.right[node])
        x = table[:, self.column]
        start = self.base + self.slope * (torch.where(torch.isnan(x), self.middle, x) - self.middle)
        return self.value[node].unflatten(1, (self.rounds, self.outputs)).sum(dim=1) + start

    def mix(self, answer: Tensor, table: Tensor) -> Tensor:
        """(B, O) or (B, 1, O) of the network, (B, F) -> the answer of both together"""
        other = self(table).to(answer.dtype)
        return torch.lerp(answer, other.reshape(other.shape[0], *[1] * (answer.ndim - 2), -1), self.weight.to(answer))
