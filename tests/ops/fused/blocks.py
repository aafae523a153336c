"""Mixers, models and rows for the tests of the fused mixer, in float64."""

from collections import defaultdict
from dataclasses import replace

import torch
from helpers import irregular_arrays
from torch import Tensor

from lformer.batch import IrregularBatch
from lformer.nn import LFormer, LFormerConfig, LiquidGatedAttention, LiquidMixer, SwiGLU, fusion

MODES = [(False, "sequence"), (True, "sequence"), (True, "prefix")]
Gradients = dict[str, Tensor]
SMALL, PAPER = (32, 2, 40), (64, 4, 176)  # D, H, F


def mixer(
    size: tuple[int, int, int], causal: bool, norm: str, seed: int = 0, backend: str = "fused", **options: str
) -> LiquidMixer:
    """A mixer in float64 none of whose parameters is at its start."""
    D, H, F = size
    torch.manual_seed(seed)
    time = LiquidGatedAttention(D, H, causal=causal, gate_norm=norm, backend=backend, **options)
    block = LiquidMixer(D, time, SwiGLU(D, F)).double()
    with torch.no_grad():
        for name, p in block.named_parameters():
            p.copy_(torch.randn_like(p) * (0.3 if p.dim() == 1 else p.shape[-1] ** -0.5) + ("norm.weight" in name))
    return block


def series(L: int, D: int, seed: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Rows (3, L, D), intervals (3, L) of very different sizes with ties, 0 past the lengths (3,)."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(3, L, D, generator=g, dtype=torch.float64)
    deltas = torch.exp(2 * torch.randn(3, L, generator=g, dtype=torch.float64))
    deltas[:, 3::7] = 0.0
    lengths = torch.tensor([L, max(1, L // 2), max(1, L - 5)])
    return x, deltas * (torch.arange(L) < lengths[:, None]), lengths


def entering(x: Tensor, precision: str, device: str) -> Tensor:
    return x.to(device, torch.bfloat16 if precision == "bf16" else torch.float32)


def reason(block: LiquidMixer, x: Tensor, deltas: Tensor, queries: bool = False) -> str:
    """Why a mixer is not fused on these rows; empty if it is."""
    obstacle = fusion.explain_mixers([block], fusion.call_of(x, deltas, queries))
    return "" if obstacle is None else f"{obstacle.reason} {obstacle.remedy}"


def path(model: LFormer, batch: IrregularBatch) -> fusion.Path:
    """What `forward` takes."""
    return fusion.choose(model, fusion.call_of(batch.values, batch.deltas, batch.query_times is not None))


def models(**config: object) -> tuple[LFormer, LFormer]:
    torch.manual_seed(0)
    settings = {"inputs": 3, "outputs": 2, "width": 32, "heads": 2, "hidden": 40, "backend": "fused"} | config
    model = LFormer(LFormerConfig(**settings)).double()
    plain = LFormer(LFormerConfig(**settings | {"backend": "parallel"})).double()
    plain.load_state_dict(model.state_dict())
    return model, plain


def whole_models(**config: object) -> tuple[LFormer, LFormer]:
    """A model in float64 none of whose parameters is at its start, and its double that takes the plain path."""
    torch.manual_seed(0)
    settings = {"inputs": 3, "outputs": 2, "width": 32, "heads": 2, "hidden": 40, "backend": "fused"} | config
    model = LFormer(LFormerConfig(**settings)).double().eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn_like(p) * (0.3 if p.dim() == 1 else p.shape[-1] ** -0.5) + ("norm.weight" in name))
    plain = LFormer(LFormerConfig(**settings | {"backend": "parallel"})).double().eval()
    plain.load_state_dict(model.state_dict())
    return model, plain


def ragged(L: int, C: int, dtype: torch.dtype, B: int = 3) -> IrregularBatch:
    """Series with holes, the second of them empty; intervals are exact whatever the dtype of the values."""
    values, times, lengths = irregular_arrays(B, L, C, seed=0)
    lengths[1:2] = 0
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    batch = IrregularBatch.build(values, times, lengths=lengths, dtype=wide)
    return replace(batch, values=batch.values.to(dtype))


def loss(model: LFormer, batch: IrregularBatch) -> Tensor:
    """A weighted sum of the answers to valid rows: every answer and every row has another gradient."""
    y = model(batch)
    weight = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    if y.dim() == 3:
        weight *= (torch.arange(y.shape[1]) < batch.lengths.cpu()[:, None])[..., None]
    return (y * weight.to(y)).sum()


def gradients(model: LFormer, batch: IrregularBatch) -> Gradients:
    grads = torch.autograd.grad(loss(model, batch), list(model.parameters()))
    return dict(zip((name for name, _ in model.named_parameters()), grads, strict=True))


def together(grads: Gradients) -> Gradients:
    """By module, mu with its gate: a handful of numbers alone has an error by luck."""
    groups = defaultdict(list)
    for name, grad in grads.items():
        groups[name.rsplit(".", 1)[0].replace(".mu", ".gate")].append(grad.flatten())
    return {name: torch.cat(parts) for name, parts in groups.items()}
