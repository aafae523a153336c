"""The models LFormer is compared with: all of them inside one frame, with the same embedder and the same head."""

from __future__ import annotations

from typing import NamedTuple

from torch import nn

from lformer.baselines.model import BaselineConfig, BaselineModel
from lformer.baselines.rnn import GRU, GRUConfig
from lformer.baselines.transformer import Transformer, TransformerConfig


class Baseline(NamedTuple):
    """A model, and what describes one: `model(config(inputs=..., outputs=...))`.

    Example:
        >>> gru = BASELINES["gru"]
        >>> gru.model(gru.config(inputs=3, outputs=2, width=32)).config.depth
        2
    """

    model: type[nn.Module]
    config: type[BaselineConfig]


BASELINES: dict[str, Baseline] = {
    "gru": Baseline(GRU, GRUConfig),
    "transformer": Baseline(Transformer, TransformerConfig),
}

__all__ = [
    "BASELINES",
    "GRU",
    "Baseline",
    "BaselineConfig",
    "BaselineModel",
    "GRUConfig",
    "Transformer",
    "TransformerConfig",
]
