"""The models LFormer is compared with: those in its own frame, with its embedder and head, and those fitted at once.

All take the same `IrregularBatch` and answer in the same shapes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import nn

from lformer.baselines.acssm import ACSSM, ACSSMConfig
from lformer.baselines.boosting import Boosting, BoostingConfig
from lformer.baselines.cfc import CfC, CfCConfig
from lformer.baselines.constant import Constant
from lformer.baselines.contiformer import ContiFormer, ContiFormerConfig
from lformer.baselines.cru import CRU, CRUConfig
from lformer.baselines.cubic_spline import CubicSpline
from lformer.baselines.fitted import FittedAtOnce
from lformer.baselines.gru_d import GRUD, GRUDConfig
from lformer.baselines.gru_ode_bayes import GRUODEBayes, GRUODEBayesConfig
from lformer.baselines.latent_ode import OODE, RODE, OODEConfig, RODEConfig
from lformer.baselines.linear_models import Logistic, Ridge
from lformer.baselines.linoss import LinOSS, LinOSSConfig
from lformer.baselines.logncde import LogNCDE, LogNCDEConfig
from lformer.baselines.lru import LRU, LRUConfig
from lformer.baselines.lsde import LSDE, LSDEConfig
from lformer.baselines.minirocket import MiniRocket, MiniRocketConfig
from lformer.baselines.model import BaselineConfig, BaselineModel, Frame
from lformer.baselines.mtand import MTAND, MTANDConfig
from lformer.baselines.naive import LastValue, LeastSquares, LinearInterpolation, NaiveConfig, SeriesMean, TrainMean
from lformer.baselines.ncde import NCDE, NCDEConfig
from lformer.baselines.node import NODE, NODEConfig
from lformer.baselines.nrde import NRDE, NRDEConfig
from lformer.baselines.rformer import RFormer, RFormerConfig
from lformer.baselines.rkn import RKN, RKNConfig
from lformer.baselines.rnn import GRU, GRUConfig, GRUdt, GRUdtConfig
from lformer.baselines.s5 import S5, S5Config
from lformer.baselines.selective import S6, Mamba, MambaConfig, S6Config
from lformer.baselines.tabular import TabularConfig
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
    "cru": Baseline(CRU, CRUConfig),
    "acssm": Baseline(ACSSM, ACSSMConfig),
    "transformer": Baseline(Transformer, TransformerConfig),
    "lru": Baseline(LRU, LRUConfig),
    "linoss": Baseline(LinOSS, LinOSSConfig),
    "s5": Baseline(S5, S5Config),
    "s6": Baseline(S6, S6Config),
    "mamba": Baseline(Mamba, MambaConfig),
    "mtand": Baseline(MTAND, MTANDConfig),
    "rformer": Baseline(RFormer, RFormerConfig),
    "node": Baseline(NODE, NODEConfig),
    "r-ode": Baseline(RODE, RODEConfig),
    "o-ode": Baseline(OODE, OODEConfig),
    "gru-ode-b": Baseline(GRUODEBayes, GRUODEBayesConfig),
    "ncde": Baseline(NCDE, NCDEConfig),
    "nrde": Baseline(NRDE, NRDEConfig),
    "logncde": Baseline(LogNCDE, LogNCDEConfig),
    "lsde": Baseline(LSDE, LSDEConfig),
    "contiformer": Baseline(ContiFormer, ContiFormerConfig),
    "train-mean": Baseline(TrainMean, NaiveConfig),
    "last-value": Baseline(LastValue, NaiveConfig),
    "series-mean": Baseline(SeriesMean, NaiveConfig),
    "linear": Baseline(LeastSquares, NaiveConfig),
    "linear-interpolation": Baseline(LinearInterpolation, NaiveConfig),
    "cubic-spline": Baseline(CubicSpline, NaiveConfig),
    "constant": Baseline(Constant, TabularConfig),
    "ridge": Baseline(Ridge, TabularConfig),
    "logistic": Baseline(Logistic, TabularConfig),
    "boosting": Baseline(Boosting, BoostingConfig),
    "minirocket": Baseline(MiniRocket, MiniRocketConfig),
}

__all__ = [
    "ACSSM",
    "BASELINES",
    "CRU",
    "GRU",
    "GRUD",
    "LRU",
    "LSDE",
    "MTAND",
    "NCDE",
    "NODE",
    "NRDE",
    "OODE",
    "RKN",
    "RODE",
    "S5",
    "S6",
    "ACSSMConfig",
    "Baseline",
    "BaselineConfig",
    "BaselineModel",
    "Boosting",
    "BoostingConfig",
    "CRUConfig",
    "CfC",
    "CfCConfig",
    "Constant",
    "ContiFormer",
    "ContiFormerConfig",
    "CubicSpline",
    "FittedAtOnce",
    "Frame",
    "GRUConfig",
    "GRUDConfig",
    "GRUODEBayes",
    "GRUODEBayesConfig",
    "GRUdt",
    "GRUdtConfig",
    "LRUConfig",
    "LSDEConfig",
    "LastValue",
    "LeastSquares",
    "LinOSS",
    "LinOSSConfig",
    "LinearInterpolation",
    "LogNCDE",
    "LogNCDEConfig",
    "Logistic",
    "MTANDConfig",
    "Mamba",
    "MambaConfig",
    "MiniRocket",
    "MiniRocketConfig",
    "NCDEConfig",
    "NODEConfig",
    "NRDEConfig",
    "NaiveConfig",
    "OODEConfig",
    "RFormer",
    "RFormerConfig",
    "RKNConfig",
    "RODEConfig",
    "Ridge",
    "S5Config",
    "S6Config",
    "SeriesMean",
    "TabularConfig",
    "TrainMean",
    "Transformer",
    "TransformerConfig",
]
