"""The models of the speed comparison, equal in width, depth and head: (B, L, 12) and intervals in, (B, 7) out.

LFormer, the trained baselines of the registry, and peers that only stand here: implementations of others, and LFormer
by other kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lformer import ops
from lformer.baselines import BASELINES, FittedAtOnce
from lformer.batch import IrregularBatch
from lformer.nn import LFormer, LFormerConfig, LiquidGatedAttention

FEATURES, CLASSES, WIDTH, DEPTH, HEADS = 12, 7, 64, 2, 4
# Beside width and depth: R-ODE has hidden layers of the common width, and with 34,425 parameters the paper's 34.56 K.
SIZES: dict[str, dict[str, int]] = {"r-ode": {"units": WIDTH, "latent": WIDTH // 2}}
PACKAGES = {"node": "torchdiffeq", "r-ode": "torchdiffeq", "o-ode": "torchdiffeq"}  # that baselines need


class Sequence(nn.Module):
    """Linear → backbone over (B, L, D) → mean over time → Linear, for backbones that do not take time."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.embed, self.backbone, self.head = nn.Linear(FEATURES, WIDTH), backbone, nn.Linear(WIDTH, CLASSES)

    def forward(self, batch: IrregularBatch) -> Tensor:
        return self.head(self.backbone(self.embed(batch.values)).mean(dim=1))


class SimpleGLA(LiquidGatedAttention):
    """Causal liquid gated attention by flash-linear-attention's kernels: log-gates -û, keys weighted by 1 - g."""

    def forward(self, x: Tensor, deltas: Tensor, **_: Any) -> Any:
        """(B, L, D), (B, L) -> (B, L, D); rows that only read and states are left to our own."""
        attention = import_module("fla.ops.simple_gla").chunk_simple_gla
        q, k, v, o, gate = self._project(x)
        decay = ops.normalise_decay(self._decay(gate, deltas, None, None), self.gate_norm)
        writes = -torch.expm1(-decay)[..., None].to(k.dtype)
        y, _state = attention(q, k * writes, v, g=-decay, scale=1.0)
        return self._emit(y, o)


def lformer(causal: bool = False, backend: str = "auto") -> LFormer:
    return LFormer(
        LFormerConfig(
            inputs=FEATURES, outputs=CLASSES, width=WIDTH, depth=DEPTH, heads=HEADS, causal=causal, backend=backend
        )
    )


def mambapy() -> nn.Module:
    from mambapy.mamba import Mamba, MambaConfig

    return Sequence(Mamba(MambaConfig(d_model=WIDTH, n_layers=DEPTH)))


def mamba_ssm() -> nn.Module:
    """Mamba by its own CUDA kernels. No norms between the layers, as the paper's parameter count has it."""
    layer = import_module("mamba_ssm").Mamba
    return Sequence(nn.Sequential(*(layer(d_model=WIDTH, d_state=16, d_conv=4, expand=2) for _ in range(DEPTH))))


def simple_gla() -> nn.Module:
    """Causal LFormer with the operator of flash-linear-attention in every layer."""
    model = lformer(causal=True, backend="parallel")
    for mixer in model.blocks:
        mixer.time_mixer = SimpleGLA(WIDTH, HEADS, causal=True, backend="parallel")
    return model


class Peer(NamedTuple):
    """How a model is made, and what that needs."""

    build: Callable[[], nn.Module]
    package: str = ""  # to be installed
    cuda: bool = False  # whether it has kernels for GPUs alone


PEERS: dict[str, Peer] = {
    "lformer": Peer(lformer),
    "lformer-causal": Peer(lambda: lformer(causal=True)),
    "lformer-plain": Peer(lambda: lformer(backend="parallel")),
    "lformer-plain-causal": Peer(lambda: lformer(causal=True, backend="parallel")),
    "mambapy": Peer(mambapy, package="mambapy"),
    "mamba-ssm": Peer(mamba_ssm, package="mamba_ssm", cuda=True),
    "simple-gla": Peer(simple_gla, package="fla", cuda=True),
}


def build(name: str) -> nn.Module:
    """A peer, or a baseline of the registry in the sizes of the comparison."""
    if name in PEERS:
        return PEERS[name].build()
    model, config = BASELINES[name]
    return model(config(inputs=FEATURES, outputs=CLASSES, width=WIDTH, depth=DEPTH, **SIZES.get(name, {})))


def trained() -> list[str]:
    """The baselines that are trained: those that have a step to be timed."""
    return [name for name, baseline in BASELINES.items() if not issubclass(baseline.model, FittedAtOnce)]


def installed(names: Iterable[str], device: str = "cpu") -> tuple[str, ...]:
    """Those of them that can run here with the packages that there are."""
    here = available(device)
    return tuple(n for n in names if n in here and (n not in PACKAGES or find_spec(PACKAGES[n])))


def available(device: str = "cpu") -> list[str]:
    """The peers that can run here, then the baselines that are trained."""
    here = [n for n, p in PEERS.items() if (not p.package or find_spec(p.package)) and (device == "cuda" or not p.cuda)]
    return [*here, *trained()]


def random_batch(batch: int, length: int, device: str = "cpu", seed: int = 0) -> IrregularBatch:
    """Random series at random times, all of full length."""
    g = torch.Generator().manual_seed(seed)
    arrays: dict[str, Any] = {
        "values": torch.randn(batch, length, FEATURES, generator=g),
        "times": torch.rand(batch, length, generator=g, dtype=torch.float64).cumsum(dim=1),
    }
    return IrregularBatch.build(**arrays).to(device)
