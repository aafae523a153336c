"""SoftmaxAttention: ordinary attention instead of LGA, for the paper's first ablation."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class SoftmaxAttention(nn.Module):
    """Multi-head softmax attention with the signature of `LiquidGatedAttention`, which ignores the intervals.

    Args:
        width: D, width of a row.
        heads: H; must divide D.
        causal: whether a row only reads earlier rows.
    """

    def __init__(self, width: int, heads: int, *, causal: bool = False) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise ValueError(f"heads must divide width; got width={width}, heads={heads}.")
        self.heads, self.causal = heads, causal
        self.project = nn.Linear(width, 3 * width)
        self.mix = nn.Linear(width, width, bias=False)

    def forward(
        self, x: Tensor, deltas: Tensor, *, lengths: Tensor | None = None, is_query: Tensor | None = None
    ) -> Tensor:
        """(B, L, D), (B, L) -> (B, L, D); nothing attends to padding or queries"""
        B, L, _ = x.shape
        q, k, v = self.project(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # (B, H, L, K) each
        at = torch.arange(L, device=x.device)
        seen = torch.ones(B, L, L, dtype=torch.bool, device=x.device)  # (B, reader, source)
        if lengths is not None:
            seen = seen & (at < lengths[:, None])[:, None]
        if is_query is not None:
            seen = seen & ~is_query[:, None]
        if self.causal:
            seen = seen & (at[None, :] <= at[:, None])
        nothing = ~seen.any(dim=-1)  # a query before the first row; a softmax over nothing would be NaN
        seen = seen | nothing[..., None]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None])
        y = y.masked_fill(nothing[:, None, :, None], 0)
        return self.mix(y.transpose(1, 2).flatten(2))
