"""Operands of the operator, everything a call returns with its gradients, and the formulas it is compared with."""

from typing import NamedTuple

import torch
from helpers import relative_error
from torch import Tensor

from lformer.ops import liquid_gated_attention


class Operands(NamedTuple):
    q: Tensor
    k: Tensor
    v: Tensor
    decay: Tensor
    state: Tensor

    def to(self, dtype: torch.dtype) -> "Operands":
        return Operands(*(x.to(dtype) for x in self))


def operands(
    B: int = 2,
    L: int = 20,
    H: int = 2,
    K: int = 4,
    V: int = 3,
    total: float = 1.0,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> Operands:
    """Random operands whose decays are of very different sizes, hold ties, and sum to `total` in every series."""
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    gaps = torch.exp(2 * normal(B, L, H))
    gaps[:, 1::10] = 0.0
    decay = total * gaps / gaps.sum(dim=1, keepdim=True)
    return Operands(normal(B, L, H, K), normal(B, L, H, K) / K**0.5, normal(B, L, H, V), decay, normal(B, H, K, V)).to(
        dtype
    )


def pad_ragged(x: Operands) -> Operands:
    """The same batch with series of every length from its full one downwards: the rows past the end do not decay."""
    B, L = x.q.shape[:2]
    lengths = torch.linspace(L, 1, B).round()
    valid = torch.arange(L) < lengths[:, None]
    return x._replace(decay=x.decay * valid[..., None])


def results(x: Operands, causal: bool, backend: str) -> dict[str, Tensor]:
    """Output, final state, and the gradient of a fixed random sum of both with respect to every operand."""
    x = Operands(*(t.detach().requires_grad_() for t in x))
    y, state = liquid_gated_attention(*x[:4], causal, x.state, return_state=True, backend=backend)
    g = torch.Generator().manual_seed(1)
    weights = [torch.randn(t.shape, generator=g).bfloat16().to(t.dtype) for t in (y, state)]
    loss = (y * weights[0]).sum().double() + (state * weights[1]).sum().double()
    gradients = torch.autograd.grad(loss, x, materialize_grads=True)
    return {"y": y.detach(), "final state": state.detach()} | {
        f"gradient of {name}": gradient for name, gradient in zip(Operands._fields, gradients, strict=True)
    }


def errors_above(limit: float, actual: dict[str, Tensor], expected: dict[str, Tensor]) -> dict[str, float]:
    """The relative errors that exceed the limit, by name: empty if the results agree."""
    errors = {name: relative_error(actual[name], expected[name]) for name in expected}
    return {name: error for name, error in errors.items() if not error <= limit}


def gated_linear_attention(q: Tensor, k: Tensor, v: Tensor, gate: float) -> Tensor:
    """Causal linear attention with one constant gate: `y_n = Σ_{i<=n} gate^(n-i) (1 - gate) (q_n·k_i) v_i`."""
    at = torch.arange(q.shape[1])
    weight = torch.tril(gate ** (at[:, None] - at[None, :]).clamp(min=0).to(q.dtype)) * (1 - gate)
    return torch.einsum("ni,bnhk,bihk,bihv->bnhv", weight, q, k, v)
