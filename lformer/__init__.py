"""Learn from time series whose observations come when they come."""

from lformer import nn, ops
from lformer.batch import IrregularBatch
from lformer.nn import LFormer, LFormerConfig
from lformer.panel import Panel

__version__ = "0.1.0"
__all__ = ["IrregularBatch", "LFormer", "LFormerConfig", "Panel", "nn", "ops"]
