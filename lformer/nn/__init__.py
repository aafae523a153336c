"""PyTorch modules: the operator with its projections, the mixer block, the backbone. Only needs torch and numpy."""

from lformer.nn.attention import LayerState, LiquidGatedAttention
from lformer.nn.embedder import Embedder, SinusoidalTime
from lformer.nn.lformer import LFormer, LFormerConfig, State
from lformer.nn.mixer import FeedForward, LiquidMixer, SwiGLU
from lformer.nn.persistence import Persistence
from lformer.nn.rows import RowEncoder
from lformer.nn.sharded import ShardedLFormer
from lformer.nn.softmax import SoftmaxAttention

__all__ = [
    "Embedder",
    "FeedForward",
    "LFormer",
    "LFormerConfig",
    "LayerState",
    "LiquidGatedAttention",
    "LiquidMixer",
    "Persistence",
    "RowEncoder",
    "ShardedLFormer",
    "SinusoidalTime",
    "SoftmaxAttention",
    "State",
    "SwiGLU",
]
