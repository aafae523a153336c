"""The models LFormer is compared with: those in its own frame, with its embedder and head, and those fitted at once.

All take the same `IrregularBatch` and answer in the same shapes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import nn

from lformer.baselines.boosting import Boosting, BoostingConfig
from lformer.baselines.cfc import CfC, CfCConfig
from lformer.baselines.contiformer import ContiFormer, ContiFormerConfig
from lformer.baselines.fitted import FittedAtOnce
from lformer.baselines.gru_d import GRUD, GRUDConfig
from lformer.baselines.lru import LRU, LRUConfig
from lformer.baselines.lsde import LSDE, LSDEConfig
from lformer.baselines.model import BaselineConfig, BaselineModel, Frame
from lformer.baselines.mtand import MTAND, MTANDConfig
from lformer.baselines.naive import LastValue, LeastSquares, LinearInterpolation, NaiveConfig, SeriesMean, TrainMean
from lformer.baselines.rformer import RFormer, RFormerConfig
from lformer.baselines.rkn import RKN, RKNConfig
from lformer.baselines.rnn import GRU, GRUConfig, GRUdt, GRUdtConfig
from lformer.baselines.s5 import S5, S5Config
from lformer.baselines.selective import S6, Mamba, MambaConfig, S6Config
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
    "lru": Baseline(LRU, LRUConfig),
    "s5": Baseline(S5, S5Config),
    "s6": Baseline(S6, S6Config),
    "mamba": Baseline(Mamba, MambaConfig),
    "mtand": Baseline(MTAND, MTANDConfig),
    "rformer": Baseline(RFormer, RFormerConfig),
    "lsde": Baseline(LSDE, LSDEConfig),
    "contiformer": Baseline(ContiFormer, ContiFormerConfig),
    "train-mean": Baseline(TrainMean, NaiveConfig),
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
    "LRU",
    "LSDE",
    "MTAND",
    "RKN",
    "S5",
    "S6",
    "Baseline",
    "BaselineConfig",
    "BaselineModel",
    "Boosting",
    "BoostingConfig",
    "CfC",
    "CfCConfig",
    "ContiFormer",
    "ContiFormerConfig",
    "FittedAtOnce",
    "Frame",
    "GRUConfig",
    "GRUDConfig",
    "GRUdt",
    "GRUdtConfig",
    "LRUConfig",
    "LSDEConfig",
    "LastValue",
    "LeastSquares",
    "LinearInterpolation",
    "MTANDConfig",
    "Mamba",
    "MambaConfig",
    "NaiveConfig",
    "RFormer",
    "RFormerConfig",
    "RKNConfig",
    "S5Config",
    "S6Config",
    "SeriesMean",
    "TrainMean",
    "Transformer",
    "TransformerConfig",
]
