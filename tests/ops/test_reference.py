"""The definition itself: small cases by hand, its gradients, and Algorithm 1 against the gates that models use."""

import math

import pytest
import torch
from helpers import largest, relative_error
from ops.cases import Operands, gated_linear_attention, operands
from torch import Tensor

from lformer.ops import GateNorm, liquid_decay, normalise_decay
from lformer.ops.reference import all_pairs, attention, liquid_gates, recurrent, step

BOTH = pytest.mark.parametrize("causal", [True, False], ids=["causal", "non-causal"])


def scalars(q: list[float], k: list[float], v: list[float], decay: list[float], state: float) -> Operands:
    """One series with one head of width one."""
    rows = [torch.tensor(x, dtype=torch.float64).reshape(1, -1, 1, 1) for x in (q, k, v, decay)]
    return Operands(*rows[:3], rows[3].squeeze(-1), torch.full((1, 1, 1, 1), state, dtype=torch.float64))


def outer(k: Tensor, v: Tensor) -> Tensor:
    return k[..., :, None] * v[..., None, :]


def terms(x: Operands) -> float:
    """The largest sum of the magnitudes of the terms of an output: what its rounding is measured by."""
    return largest(recurrent(*(t.abs() for t in x))[0])


@BOTH
def test_one_row_fades_the_state_and_writes_the_rest(causal: bool) -> None:
    y, state = attention(*scalars([2.0], [3.0], [5.0], [math.log(4)], 7.0), causal)
    assert state.item() == pytest.approx(7 / 4 + 3 / 4 * 15, rel=1e-15)
    assert y.item() == pytest.approx(2 * state.item(), rel=1e-15)


TWO_ROWS = ([1.0, 2.0], [3.0, 5.0], [7.0, 11.0], [math.log(2), math.log(4)], 16.0)  # gates 1/2 and 1/4


def test_two_causal_rows_by_hand() -> None:
    y, state = attention(*scalars(*TWO_ROWS), causal=True)
    first = 16 / 2 + 1 / 2 * 21
    second = first / 4 + 3 / 4 * 55
    assert y.flatten().tolist() == pytest.approx([first, 2 * second], rel=1e-15)
    assert state.item() == pytest.approx(second, rel=1e-15)


def test_two_noncausal_rows_by_hand() -> None:
    y, state = attention(*scalars(*TWO_ROWS), causal=False)
    first = 16 / 2 + 1 / 2 * 21 + 4 * (3 / 4 * 55)  # a later row weighs 1 / g
    second = 16 / 8 + 1 / 8 * 21 + 3 / 4 * 55
    assert y.flatten().tolist() == pytest.approx([first, 2 * second], rel=1e-15)
    assert state.item() == pytest.approx(second, rel=1e-15)


@pytest.mark.parametrize("gate", [0.1, 0.5, 0.99])
def test_constant_gates_give_ordinary_gated_linear_attention(gate: float) -> None:
    q, k, v, decay, state = operands(L=12)
    y, _ = recurrent(q, k, v, torch.full_like(decay, -math.log(gate)), torch.zeros_like(state))
    assert relative_error(y, gated_linear_attention(q, k, v, gate)) <= 1e-14


def test_all_pairs_is_the_matrix_form_of_the_paper() -> None:
    q, k, v, decay, state = operands(L=12, total=3.0)
    local = torch.exp(-decay)[..., None]
    cumulative = local.cumprod(dim=1)
    memory = torch.einsum("blhk,blhv->bhkv", k * (1 - local), v / cumulative)  # K̇ᵀ V̇
    expected = torch.einsum("blhk,bhkv->blhv", q * cumulative, memory)  # Q̇ (K̇ᵀ V̇)
    y, _ = all_pairs(q, k, v, decay, torch.zeros_like(state))
    assert relative_error(y, expected) <= 1e-13


@BOTH
def test_without_decay_nothing_is_written_and_nothing_fades(causal: bool) -> None:
    x = operands()._replace(decay=torch.zeros(2, 20, 2, dtype=torch.float64))
    y, after = attention(*x, causal)
    assert torch.equal(after, x.state)
    assert relative_error(y, torch.einsum("blhk,bhkv->blhv", x.q, x.state), terms(x)) <= 1e-15


def test_huge_decay_leaves_only_the_last_row() -> None:
    q, k, v, decay, state = operands()
    y, after = recurrent(q, k, v, torch.full_like(decay, 1e3), state)
    assert torch.equal(after, outer(k[:, -1], v[:, -1]))
    assert relative_error(y, (q * k).sum(dim=-1, keepdim=True) * v) <= 1e-14


@BOTH
def test_an_empty_series_returns_its_state(causal: bool) -> None:
    x = operands(L=0)
    y, after = attention(*x, causal)
    assert y.shape == x.v.shape
    assert torch.equal(after, x.state)


def test_recurrent_is_step_after_step() -> None:
    x = operands(L=5)
    y, after = recurrent(*x)
    state = x.state
    for n in range(5):
        row, state = step(x.q[:, n], x.k[:, n], x.v[:, n], x.decay[:, n], state)
        assert torch.equal(row, y[:, n])
    assert torch.equal(state, after)


def test_all_pairs_with_one_row_is_recurrent() -> None:
    x = operands(L=1)
    (y, state), (expected, same) = all_pairs(*x), recurrent(*x)
    assert relative_error(y, expected, terms(x)) <= 8 * torch.finfo(y.dtype).eps  # seven roundings each, at most
    assert torch.equal(state, same)


def test_the_last_row_reads_the_same_in_both_forms() -> None:
    x = operands(total=3.0)
    (everything, state), (past, same) = all_pairs(*x), recurrent(*x)
    assert relative_error(everything[:, -1], past[:, -1]) <= 1e-14
    assert torch.equal(state, same)
    assert relative_error(everything[:, 0], past[:, 0]) > 1e-2


@BOTH
def test_gradients_are_right(causal: bool) -> None:
    x = [t.requires_grad_() for t in operands(B=1, L=4, K=2, V=3, total=2.0)]
    assert torch.autograd.gradcheck(lambda *x: attention(*x, causal), x)


def gate_inputs(B: int = 3, L: int = 9, H: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Gate values, intervals with ties and one series of ties only, interpolation weights."""
    g = torch.Generator().manual_seed(0)
    gate = torch.rand(B, L, H, generator=g, dtype=torch.float64)
    deltas = torch.exp(2 * torch.randn(B, L, generator=g, dtype=torch.float64))
    deltas[0, 2], deltas[1, 0], deltas[2] = 0.0, 0.0, 0.0
    return gate, deltas, torch.rand(H, generator=g, dtype=torch.float64)


@pytest.mark.parametrize("norm", ["sequence", "prefix", "none"])
def test_algorithm_1_gives_the_gates_that_models_use(norm: GateNorm) -> None:
    gate, deltas, mu = gate_inputs()
    local, cumulative = liquid_gates(gate, deltas, mu, norm)
    decay = normalise_decay(liquid_decay(gate, deltas, mu), norm)
    torch.testing.assert_close(torch.exp(-decay), local, rtol=1e-14, atol=0)
    torch.testing.assert_close(torch.exp(-decay.cumsum(dim=1)), cumulative, rtol=1e-13, atol=0)
