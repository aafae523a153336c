"""The models LFormer is compared with: those in its own frame, with its embedder and head, and those fitted at once.

All take the same `IrregularBatch` and answer in the same shapes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import nn

from lformer.baselines.boosting import Boosting, BoostingConfig
from lformer.baselines.cfc import CfC, CfCConfig
from lformer.baselines.fitted import FittedAtOnce
from lformer.baselines.gru_d import GRUD, GRUDConfig
from lformer.baselines.model import BaselineConfig, BaselineModel
from lformer.baselines.naive import LastValue, LeastSquares, LinearInterpolation, NaiveConfig, SeriesMean
from lformer.baselines.rkn import RKN, RKNConfig
from lformer.baselines.rnn import GRU, GRUConfig, GRUdt, GRUdtConfig
from lformer.baselines.transformer import Transformer, TransformerConfig


class Baseline(NamedTuple):
    """A model, and what describes one: `model(config(inputs=..., outputs=...))`.

    Example:
        >>> gru = BASELINES["gru"]
        >>> gru.model(gru.config(inputs=3, outputs=2, width=32)).config.depth
        2
    """

    model: type[nn.Module]
    config: type[Any]


BASELINES: dict[str, Baseline] = {
    "gru": Baseline(GRU, GRUConfig),
    "gru-dt": Baseline(GRUdt, GRUdtConfig),
    "gru-d": Baseline(GRUD, GRUDConfig),
    "cfc": Baseline(CfC, CfCConfig),
    "rkn-dt": Baseline(RKN, RKNConfig),
    "transformer": Baseline(Transformer, TransformerConfig),
    "last-value": Baseline(LastValue, NaiveConfig),
    "series-mean": Baseline(SeriesMean, NaiveConfig),
    "linear": Baseline(LeastSquares, NaiveConfig),
    "linear-interpolation": Baseline(LinearInterpolation, NaiveConfig),
    "boosting": Baseline(Boosting, BoostingConfig),
}

__all__ = [
    "BASELINES",
    "GRU",
    "GRUD",
    "RKN",
    "Baseline",
    "BaselineConfig",
    "BaselineModel",
    "Boosting",
    "BoostingConfig",
    "CfC",
    "CfCConfig",
    "FittedAtOnce",
    "GRUConfig",
    "GRUDConfig",
    "GRUdt",
    "GRUdtConfig",
    "LastValue",
    "LeastSquares",
    "LinearInterpolation",
    "NaiveConfig",
    "RKNConfig",
    "SeriesMean",
    "Transformer",
    "TransformerConfig",
]
