"""Deep learning for irregularly sampled time series."""

from typing import TYPE_CHECKING, Any

from lformer import nn, ops
from lformer.batch import IrregularBatch
from lformer.nn import LFormer, LFormerConfig
from lformer.panel import Panel

if TYPE_CHECKING:
    from lformer.estimators import (
        LFormerClassifier,
        LFormerForecaster,
        LFormerInterpolator,
        LFormerPointClassifier,
        LFormerPointRegressor,
        LFormerPretrainer,
        LFormerRegressor,
        load,
        pretrain,
    )

__version__ = "0.1.0"
__all__ = [
    "IrregularBatch", "LFormer", "LFormerClassifier", "LFormerConfig", "LFormerForecaster", "LFormerInterpolator",
    "LFormerPointClassifier", "LFormerPointRegressor", "LFormerPretrainer", "LFormerRegressor", "Panel", "load", "nn",
    "ops", "pretrain",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import the estimators on first access: they need scikit-learn, the core does not."""
    if name in __all__:
        from lformer import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'lformer' has no attribute {name!r}")
