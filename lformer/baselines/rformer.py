"""RFormer: a Transformer over windows in time, each a token made of signatures of the path through the observations.

The path is time and channels, straight between rows. A token has the signature of the path from its beginning to the
end of the window ("global"), over the window alone ("local"), or "both"; see `lformer.baselines.signature`. Windows are
of equal length in time and tile the path: where one ends between two rows, the point between them is interpolated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lformer.baselines.model import BaselineConfig, Channels, Clock, Frame
from lformer.baselines.patching import Paths, at, from_to
from lformer.baselines.signature import Levels, size
from lformer.batch import IrregularBatch
from lformer.nn.attention import one_of
from lformer.nn.known import follow, nothing_known
from lformer.nn.rows import Encoded

Patches = Literal["global", "local", "both"]


@dataclass(frozen=True, kw_only=True)
class RFormerConfig(BaselineConfig):
    """Settings published for a data set have `mapped=False, basepoint=False, shared=True`.

    The model reads channels, not embedded rows: of the embedder only "frames" is used, which makes `width` channels of
    a frame; `time_embedding` is not used.

    Attributes:
        rows: with "observed", the path goes through the latest value of each channel, beside what was observed.
        windows: W, tokens of a series.
        level: 1, 2 or 3, of the signatures.
        patches: what a token holds.
        univariate: signatures of every channel with time, side by side; False has one of all channels with time, whose
            size grows as the number of channels to the power of `level`.
        heads: each as wide as the Transformer.
        positions: numbers of the learned embedding of a window's index, beside its signatures.
        mapped: map tokens to `width` and normalise them; False makes the Transformer as wide as a token.
        basepoint: let the path begin at 0, so that signatures show where it is and not only how it moves.
        shared: one layer, used `depth` times.
    """

    windows: int = 32
    level: int = 2
    patches: Patches = "both"
    univariate: bool = True
    heads: int = 2
    positions: int = 10
    mapped: bool = True
    basepoint: bool = True
    shared: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("patches", self.patches, Patches)
        self.require_positive("windows", "heads", "positions")
        if self.level not in (1, 2, 3):
            raise ValueError(f"level must be 1, 2 or 3; got {self.level}.")
        if self.statics and not self.basepoint:
            raise ValueError("statics do not move, so that signatures show them only with basepoint=True.")


class RFormer(Frame):
    """A series is answered from the mean of its tokens, a row or query from a token of its own.

    That token covers the path from the beginning of the window in which the row or query falls up to the row or query
    itself; after the last row, time goes on alone. It attends to itself and the windows that ended before, and no other
    token attends to it. A window attends to itself and those before it.

    Note: the windows divide the own span of a series, and so depend on when it ends. Signatures are taken in float64
    where the device has it, since those of windows are differences of those of whole paths.
    """

    recordable = True  # what it does depends on shapes alone, so its steps may be replayed as CUDA graphs

    config: RFormerConfig

    def __init__(self, config: RFormerConfig) -> None:
        super().__init__(config)
        D = self.read_width()
        self.channels = Channels(self.rows, config)
        self.position = nn.Embedding(config.windows + (config.answer == "query"), config.positions)
        self.map = nn.Sequential(nn.Linear(self._token_width(), D), nn.LayerNorm(D)) if config.mapped else nn.Identity()
        self.layers = nn.ModuleList(Layer(D, config.heads) for _ in range(1 if config.shared else config.depth))

    def read_width(self) -> int:
        """D, of the Transformer."""
        return self.config.width if self.config.mapped else self._token_width()

    def _token_width(self) -> int:
        """Of signatures and position."""
        config = self.config
        channels = config.width if config.embedder == "frames" else self.rows.width
        one = channels * size(2, config.level) if config.univariate else size(channels + 1, config.level)
        return (2 * one if config.patches == "both" else one) + config.positions

    def read(self, batch: IrregularBatch, encoded: Encoded) -> Tensor:
        """(B, D), (B, L, D) or (B, Q, D)"""
        config, clock = self.config, Clock.of(batch, self.rows.span)
        x = self._carried(batch, self.channels(encoded.rows))
        paths = Paths.through(x, batch, clock, config.level, config.univariate, config.basepoint)
        ends = self._ends(clock)  # (B, W)
        done = tuple(F.pad(level, (0, 0, 0, 0, 1, 0)) for level in paths.up_to(ends))  # (B, W + 1, G, dⁿ)
        order = torch.arange(config.windows, device=ends.device).expand(ends.shape)
        windows = self._tokens(done, tuple(level[:, 1:] for level in done), order, x.dtype)
        if config.answer == "series":
            for layer in self._each_layer():
                windows = layer(windows, windows, order)
            return windows.mean(dim=1)
        moments = batch.times if batch.query_times is None else batch.query_times
        ended = torch.searchsorted(ends, moments.contiguous())  # (B, M), windows that ended before
        up_to = paths.up_to_rows() if batch.query_times is None else paths.up_to(moments)
        asked = self._tokens(done, up_to, ended, x.dtype)
        for layer in self._each_layer():
            windows, asked = layer(windows, windows, order), layer(asked, windows, ended)
        return asked

    def _carried(self, batch: IrregularBatch, x: Tensor) -> Tensor:
        """(B, L, W), with "observed" the latest value of each channel in place of 0 where nothing was observed."""
        if self.config.rows != "observed":
            return x
        values, observed = self.rows.scaled(batch)
        nothing = nothing_known(len(batch), self.config.inputs, values, batch.times.dtype)
        latest = follow(values, observed, batch.times, nothing).after_rows().latest
        return torch.cat([latest, x[..., self.config.inputs :]], dim=-1)

    def _ends(self, clock: Clock) -> Tensor:
        """(B, W), when the windows end; the last one at the last row, not rounded."""
        index = torch.arange(1, self.config.windows, device=clock.end.device, dtype=clock.end.dtype)
        inner = clock.start + index / self.config.windows * (clock.end - clock.start)
        return torch.cat([inner, clock.end], dim=1)

    def _tokens(self, starts: Levels, ends: Levels, index: Tensor, dtype: torch.dtype) -> Tensor:
        """Of the path up to `ends` (B, M, G, dⁿ), beginning where window `index` (B, M) does -> (B, M, D)"""
        parts = [] if self.config.patches == "local" else [ends]
        if self.config.patches != "global":
            parts.append(from_to(tuple(at(level, index) for level in starts), ends))
        signatures = torch.cat([level for levels in parts for level in levels], dim=-1).flatten(2).to(dtype)
        return self.map(torch.cat([signatures, self.position(index)], dim=-1))

    def _each_layer(self) -> Iterator[nn.Module]:
        """One layer over and over, or each in turn."""
        return (self.layers[n % len(self.layers)] for n in range(self.config.depth))


class Layer(nn.Module):
    """Attention and feed-forward part, each followed by a norm of the residual sum.

    Note: every head is as wide as the layer, and the products of queries and keys are not divided by √D, as published.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.value = nn.Linear(width, heads * width), nn.Linear(width, heads * width)
        self.key = nn.Linear(width, heads * width, bias=False)  # one would shift all scores alike
        self.out = nn.Linear(heads * width, width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.01)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, tokens: Tensor, windows: Tensor, seen: Tensor) -> Tensor:
        """Each token attends to itself and the first `seen` windows: (B, M, D), (B, W, D), (B, M) -> (B, M, D)"""
        query, own_key, own_value = (self._split(f(tokens)) for f in (self.query, self.key, self.value))
        key, value = self._split(self.key(windows)), self._split(self.value(windows))  # (B, H, W, D)
        order = torch.arange(windows.shape[1], device=windows.device)
        scores = (query @ key.transpose(-1, -2)).masked_fill((order >= seen[..., None])[:, None], -torch.inf)
        own = (query * own_key).sum(dim=-1, keepdim=True)  # (B, H, M, 1)
        weights = torch.cat([scores, own], dim=-1).softmax(dim=-1)
        found = weights[..., :-1] @ value + weights[..., -1:] * own_value
        y = self.attention_norm(tokens + self.out(found.transpose(1, 2).flatten(2)))
        return self.feed_forward_norm(y + self.feed_forward(y))

    def _split(self, x: Tensor) -> Tensor:
        """(B, N, H D) -> (B, H, N, D)"""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
