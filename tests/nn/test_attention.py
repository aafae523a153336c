"""LiquidGatedAttention: projections and gates around the operator, and the state it carries."""

import math

import pytest
import torch
from helpers import relative_error
from torch import Tensor

from lformer import ops
from lformer.nn import LiquidGatedAttention, SoftmaxAttention


def rows(B: int = 3, L: int = 20, D: int = 12, seed: int = 0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    deltas = torch.exp(torch.randn(B, L, generator=g, dtype=torch.float64))
    deltas[:, 5] = 0.0  # a tie
    return torch.randn(B, L, D, generator=g, dtype=torch.float64), deltas


def layer(**choices: object) -> LiquidGatedAttention:
    torch.manual_seed(1)
    made = LiquidGatedAttention(12, 3, **choices).double()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return made


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("norm", ["sequence", "prefix", "none"])
def test_it_is_the_paper_line_by_line(causal: bool, norm: ops.GateNorm) -> None:
    x, deltas = rows()
    deltas = deltas / 20
    m = layer(causal=causal, gate_norm=norm)
    mu = torch.sigmoid(m.mu.theta)
    gate = torch.sigmoid(x @ m.gate.weight.T + m.gate.bias)
    u = deltas[..., None] * (mu * torch.cat([0 * gate[:, :1], gate[:, :-1]], 1) + (1 - mu) * gate)
    decay = ops.normalise_decay(u, norm)
    q = (x @ m.query.weight.T + m.query.bias).unflatten(-1, (3, 4))
    k = (x @ m.key.weight.T / math.sqrt(4) + m.key.bias).unflatten(-1, (3, 4))
    v = (x @ m.value.weight.T + m.value.bias).unflatten(-1, (3, 4))
    o = torch.sigmoid(x @ m.output_gate.weight.T + m.output_gate.bias)
    y = ops.liquid_gated_attention(q, k, v, decay, causal, backend="reference").flatten(2)
    assert relative_error(m(x, deltas), (o * y) @ m.mix.weight.T) < 1e-12


def test_each_head_has_its_own_gate_and_mu() -> None:
    m = LiquidGatedAttention(12, 3)
    assert m.gate.weight.shape == (3, 12)
    assert m.mu.theta.shape == (3,)
    assert torch.equal(m.mu(), torch.full((3,), 0.5))


def test_the_named_choices_change_one_thing_each() -> None:
    names = {name for name, _ in layer().named_parameters()}
    assert {n for n, _ in layer(mu="fixed").named_parameters()} == names - {"mu.theta"}
    assert layer(mu="shared").mu.theta.shape == (1,)
    assert {n for n, _ in layer(output_gate="none").named_parameters()} == {
        n for n in names if not n.startswith("output_gate")
    }
    assert {n for n, _ in layer(rate="time").named_parameters()} == {
        n for n in names if not n.startswith(("gate", "mu"))
    }


def test_fixed_mu_is_the_trapezoidal_rule() -> None:
    x, deltas = rows()
    fixed, learned = layer(mu="fixed"), layer()
    learned.mu.theta.data.zero_()
    fixed.load_state_dict({n: p for n, p in learned.state_dict().items() if n != "mu.theta"})
    assert torch.equal(fixed(x, deltas), learned(x, deltas))


def test_time_only_decay_ignores_the_input() -> None:
    x, deltas = rows()
    m = layer(rate="time", causal=True, gate_norm="none")
    _, state = m(x, deltas, return_state=True)
    assert torch.allclose(state.total, deltas.sum(1)[:, None].expand(-1, 3))


@pytest.mark.parametrize("norm", ["prefix", "none"])
def test_stepping_equals_the_whole(norm: ops.GateNorm) -> None:
    x, deltas = rows()
    m = layer(causal=True, gate_norm=norm)
    whole, final = m(x, deltas, return_state=True)
    state, steps = m.init_state(3), []
    for n in range(x.shape[1]):
        y, state = m.step(x[:, n], deltas[:, n], state)
        steps.append(y)
    assert relative_error(torch.stack(steps, 1), whole) < 1e-12
    for stepped, at_once in zip(state, final, strict=True):
        assert relative_error(stepped, at_once) < 1e-12


@pytest.mark.parametrize("choices", [{}, {"causal": True}, {"gate_norm": "prefix"}])
def test_a_state_needs_a_causal_layer_that_does_not_look_ahead(choices: dict[str, object]) -> None:
    x, deltas = rows()
    m = layer(**choices)
    for wish in (lambda: m.init_state(1), lambda: m(x, deltas, return_state=True)):
        with pytest.raises(RuntimeError, match='causal=True, gate_norm="prefix"'):
            wish()


def test_under_autocast_the_gates_stay_wide() -> None:
    x, deltas = rows()
    m = layer(causal=True, gate_norm="prefix").float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, state = m(x.float(), deltas.float(), return_state=True)
    assert y.dtype == torch.bfloat16
    assert state.memory.dtype == state.total.dtype == torch.float64
    assert relative_error(y.double(), m(x.float(), deltas.float()).double()) < 0.03


@pytest.mark.parametrize("attention", [LiquidGatedAttention, SoftmaxAttention])
def test_heads_must_divide_the_width(attention: type) -> None:
    with pytest.raises(ValueError, match="width=10, heads=3"):
        attention(10, 3)


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'per_head', 'shared', 'fixed'; got 'free'"):
        LiquidGatedAttention(8, 2, mu="free")
    with pytest.raises(ValueError, match="backend must be 'auto' or one of"):
        LiquidGatedAttention(8, 2, backend="fast")


def test_softmax_attention_is_torchs_own() -> None:
    x, deltas = rows()
    torch.manual_seed(0)
    m = SoftmaxAttention(12, 3).double()
    peer = torch.nn.MultiheadAttention(12, 3, batch_first=True).double()
    peer.load_state_dict(
        {
            "in_proj_weight": m.project.weight,
            "in_proj_bias": m.project.bias,
            "out_proj.weight": m.mix.weight,
            "out_proj.bias": torch.zeros(12).double(),
        }
    )
    padding = torch.arange(20) >= torch.tensor([20, 7, 1])[:, None]
    expected = peer(x, x, x, key_padding_mask=padding, need_weights=False)[0]
    assert relative_error(m(x, deltas, lengths=torch.tensor([20, 7, 1])), expected) < 1e-12
