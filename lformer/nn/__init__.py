"""Modules: the operator with its projections, the mixer block, the backbone. Needs torch and numpy alone."""

from lformer.nn.attention import LayerState, LiquidGatedAttention
from lformer.nn.embedder import Embedder, SinusoidalTime
from lformer.nn.lformer import LFormer, LFormerConfig, State
from lformer.nn.mixer import FeedForward, LiquidMixer, SwiGLU
from lformer.nn.softmax import SoftmaxAttention

__all__ = [
    "Embedder",
    "FeedForward",
    "LFormer",
    "LFormerConfig",
    "LayerState",
    "LiquidGatedAttention",
    "LiquidMixer",
    "SinusoidalTime",
    "SoftmaxAttention",
    "State",
    "SwiGLU",
]
