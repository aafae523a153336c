"""Transformer: an encoder with softmax attention over all rows; by default it knows their order and not their times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from lformer.baselines.model import BaselineConfig, BaselineModel
from lformer.batch import IrregularBatch
from lformer.nn.attention import one_of
from lformer.nn.embedder import SinusoidalTime
from lformer.nn.query import rows_until

Positions = Literal["index", "time", "none"]


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(BaselineConfig):
    """The defaults make about 100,000 parameters.

    Attributes:
        heads: H; must divide the width.
        feed_forward: inner width of the feed-forward part.
        positions: what the sine and cosine added to a row are taken of: its "index" 0, 1, …, its "time", or "none".
        norm_first: normalise before attention and feed-forward, and once more at the end, as LFormer's mixers do; it
            trains at a constant rate. False is the original, after each residual sum, which wants a warm-up.
        dropout: share of what each part gives that is dropped in training.
    """

    heads: int = 4
    feed_forward: int = 256
    positions: Positions = "index"
    norm_first: bool = True
    dropout: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("positions", self.positions, Positions)
        self.require_positive("heads", "feed_forward")
        if self.width % self.heads:
            raise ValueError(f"heads must divide width; got width={self.width}, heads={self.heads}.")


class Transformer(BaselineModel):
    """Every row attends to all valid rows, and a series is answered from their mean.

    A query is a row in which nothing was observed. It attends to the valid rows and nobody attends to it. Its index is
    the number of rows that are not later: that of the row which would come next.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.positions = config.positions
        self.position = SinusoidalTime(config.width) if config.positions != "none" else None
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                config.width,
                config.heads,
                config.feed_forward,
                config.dropout,
                batch_first=True,
                norm_first=config.norm_first,
            )
            for _ in range(config.depth)
        )
        self.last_norm = nn.LayerNorm(config.width) if config.norm_first else nn.Identity()

    def mix(self, x: Tensor, batch: IrregularBatch) -> Tensor:
        """(B, L, D) -> (B, L, D)"""
        return self._encode(self._placed(x, _indices(batch), batch.times), _not_read(batch))

    def queries(self, x: Tensor, asked: Tensor, batch: IrregularBatch, query_times: Tensor) -> Tensor:
        """(B, L, D), (B, Q, D), (B, Q) -> (B, Q, D)"""
        rows = self._placed(x, _indices(batch), batch.times)
        next_index = rows_until(batch.times, batch.lengths, query_times)
        asked = self._placed(asked, next_index, query_times)
        unread = torch.ones_like(query_times, dtype=torch.bool)
        y = self._encode(torch.cat([rows, asked], dim=1), torch.cat([_not_read(batch), unread], dim=1))
        return y[:, x.shape[1] :]

    def _placed(self, x: Tensor, index: Tensor, times: Tensor) -> Tensor:
        """(B, N, D), (B, N), (B, N) -> (B, N, D), with the position added."""
        if self.position is None:
            return x
        return x + self.position(index if self.positions == "index" else times)

    def _encode(self, x: Tensor, not_read: Tensor) -> Tensor:
        """(B, N, D), (B, N) bool, True where nobody attends -> (B, N, D)"""
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=not_read)
        return self.last_norm(x)


def _indices(batch: IrregularBatch) -> Tensor:
    """(B, L) 0, 1, 2, … in every series."""
    return torch.arange(batch.times.shape[1], device=batch.times.device).expand_as(batch.times)


def _not_read(batch: IrregularBatch) -> Tensor:
    """(B, L) bool, True on padding; an empty series reads its first padding row, as a softmax over nothing is NaN."""
    return _indices(batch) >= batch.lengths.clamp(min=1)[:, None]
