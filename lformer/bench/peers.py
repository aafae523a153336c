"""The models of the speed comparison, equal in width, depth and head: (B, L, 12) and intervals in, (B, 7) out."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from lformer.batch import IrregularBatch
from lformer.nn import LFormer, LFormerConfig

FEATURES, CLASSES, WIDTH, DEPTH, HEADS = 12, 7, 64, 2, 4


class Sequence(nn.Module):
    """Linear → backbone over (B, L, D) → mean over time → Linear, for backbones that do not take time."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.embed, self.backbone, self.head = nn.Linear(FEATURES, WIDTH), backbone, nn.Linear(WIDTH, CLASSES)

    def forward(self, batch: IrregularBatch) -> Tensor:
        x = self.backbone(self.embed(batch.values))
        x = x[0] if isinstance(x, tuple) else x  # nn.GRU also returns its state
        return self.head(x.mean(dim=1))


def lformer(causal: bool) -> nn.Module:
    return LFormer(
        LFormerConfig(inputs=FEATURES, outputs=CLASSES, width=WIDTH, depth=DEPTH, heads=HEADS, causal=causal)
    )


def gru() -> nn.Module:
    return Sequence(nn.GRU(WIDTH, WIDTH, DEPTH, batch_first=True))


def transformer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True)
    return Sequence(nn.TransformerEncoder(layer, DEPTH))


def mambapy() -> nn.Module:
    from mambapy.mamba import Mamba, MambaConfig

    return Sequence(Mamba(MambaConfig(d_model=WIDTH, n_layers=DEPTH)))


PEERS: dict[str, Callable[[], nn.Module]] = {
    "lformer": lambda: lformer(causal=False),
    "lformer-causal": lambda: lformer(causal=True),
    "gru": gru,
    "transformer": transformer,
    "mambapy": mambapy,
}


def available() -> list[str]:
    """The peers whose packages are installed."""
    return [name for name in PEERS if name != "mambapy" or find_spec("mambapy")]


def random_batch(batch: int, length: int, device: str = "cpu", seed: int = 0) -> IrregularBatch:
    """Random series at random times, all of full length."""
    g = torch.Generator().manual_seed(seed)
    arrays: dict[str, Any] = {
        "values": torch.randn(batch, length, FEATURES, generator=g),
        "times": torch.rand(batch, length, generator=g, dtype=torch.float64).cumsum(dim=1),
    }
    return IrregularBatch.build(**arrays).to(device)
