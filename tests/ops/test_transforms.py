"""Compiled, exported, mapped and differentiated functionally, the operator returns what it returns eagerly."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from helpers import relative_error
from ops.cases import operands
from torch import Tensor, nn
from torch.func import grad, vmap

from lformer.ops import GateNorm, checks, liquid_decay, liquid_gated_attention, normalise_decay

Inputs = tuple[Tensor, ...]

PAIRS = {"causal": (True, "prefix"), "non-causal": (False, "sequence")}
MODES = pytest.mark.parametrize(("causal", "norm"), PAIRS.values(), ids=PAIRS.keys())


def inputs(L: int = 70, seed: int = 0) -> Inputs:
    """q, k, v, gate and deltas."""
    q, k, v, decay, _ = operands(L=L, seed=seed, total=10.0)
    return q, k, v, torch.sigmoid(v[..., 0]), decay[..., 0].contiguous()


class Operator(nn.Module):
    """From gates and intervals to output and state."""

    def __init__(self, causal: bool, norm: GateNorm) -> None:
        super().__init__()
        self.causal, self.norm = causal, norm
        self.register_buffer("mu", torch.tensor([0.3, 0.5], dtype=torch.float64))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, gate: Tensor, deltas: Tensor) -> tuple[Tensor, Tensor]:
        decay = normalise_decay(liquid_decay(gate, deltas, self.mu), self.norm)
        return liquid_gated_attention(q, k, v, decay, self.causal, return_state=True)

    def loss(self, *x: Tensor) -> Tensor:
        y, state = self(*x)
        return y.square().sum() + state.square().sum()


def with_gradients(operator: Callable[..., tuple[Tensor, Tensor]], x: Inputs) -> list[Tensor]:
    x = tuple(t.detach().requires_grad_() for t in x)
    y, state = operator(*x)
    return [y, state, *torch.autograd.grad(y.square().sum() + state.square().sum(), x)]


def assert_same(actual: list[Tensor] | Inputs, expected: list[Tensor] | Inputs) -> None:
    errors = [relative_error(a, b) for a, b in zip(actual, expected, strict=True)]
    assert max(errors) <= 1e-12, errors


# --- torch.compile ---


@MODES
def test_traced_in_one_graph_forward_and_backward_equal_eager(causal: bool, norm: GateNorm) -> None:
    operator = Operator(causal, norm)
    traced = torch.compile(operator, fullgraph=True, backend="aot_eager")
    assert_same(with_gradients(traced, inputs()), with_gradients(operator, inputs()))


def attention_and_state(q: Tensor, k: Tensor, v: Tensor, decay: Tensor) -> tuple[Tensor, Tensor]:
    return liquid_gated_attention(q, k, v, decay, return_state=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")  # inductor's own call
def test_compiled_forward_and_backward_equal_eager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # PyTorch keeps one cache for all ATEN_CPU_CAPABILITY, and what it finds there may not compile with this one.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    x = operands(L=70, H=1)[:4]
    compiled = torch.compile(attention_and_state, fullgraph=True)
    assert_same(with_gradients(compiled, x), with_gradients(attention_and_state, x))


# --- torch.export ---


Exported = tuple[Operator, nn.Module]


@pytest.fixture(scope="module", params=PAIRS.values(), ids=PAIRS.keys())
def exported(request: pytest.FixtureRequest) -> Exported:
    """An operator, and what it exports to with a symbolic length."""
    operator = Operator(*request.param)
    length = torch.export.Dim("L", min=2)
    shapes = tuple({1: length} for _ in range(5))
    return operator, torch.export.export(operator, inputs(40), dynamic_shapes=shapes).module()


@pytest.mark.parametrize("L", [2, 33, 70, 2000])
def test_exported_once_it_serves_every_length(exported: Exported, L: int) -> None:
    operator, program = exported
    assert_same(program(*inputs(L)), operator(*inputs(L)))


# --- torch.func ---


def several() -> list[Inputs]:
    return [inputs(seed=seed) for seed in range(3)]


def stacked(results: list[Inputs]) -> Inputs:
    return tuple(torch.stack(parts) for parts in zip(*results, strict=True))


@MODES
def test_mapped_it_is_a_loop(causal: bool, norm: GateNorm) -> None:
    operator = Operator(causal, norm)
    assert_same(vmap(operator)(*stacked(several())), stacked([operator(*x) for x in several()]))


@MODES
def test_its_functional_gradient_is_that_of_autograd(causal: bool, norm: GateNorm) -> None:
    operator = Operator(causal, norm)
    assert_same(grad(operator.loss, argnums=(0, 1, 2, 3, 4))(*inputs()), with_gradients(operator, inputs())[2:])


@MODES
def test_its_mapped_gradient_is_a_loop(causal: bool, norm: GateNorm) -> None:
    operator = Operator(causal, norm)
    gradient = grad(operator.loss, argnums=(0, 1, 2, 3, 4))
    assert_same(vmap(gradient)(*stacked(several())), stacked([gradient(*x) for x in several()]))


# --- values are looked at only in plain eager calls ---


Q, KEYS, VALUES, GATE, DELTAS = inputs()


def decay_of(deltas: Tensor) -> Tensor:
    return liquid_decay(GATE, deltas, torch.tensor([0.5]))


def output_of(deltas: Tensor) -> Tensor:
    return liquid_gated_attention(Q, KEYS, VALUES, deltas[..., None].expand(-1, -1, 2), causal=True)


CHECKED = pytest.mark.parametrize("checked", [decay_of, output_of], ids=["liquid_decay", "liquid_gated_attention"])


def backwards_in_time() -> Tensor:
    deltas = DELTAS.clone()
    deltas[1, 2] = -0.5
    return deltas


@CHECKED
def test_eager_calls_refuse_negative_intervals(checked: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(ValueError, match="row 1"):
        checked(backwards_in_time())


@CHECKED
def test_mapped_calls_do_not_look(checked: Callable[[Tensor], Tensor]) -> None:
    assert vmap(checked)(backwards_in_time()[None]).isfinite().all()


@CHECKED
def test_functional_gradients_do_not_look(checked: Callable[[Tensor], Tensor]) -> None:
    assert grad(lambda deltas: checked(deltas).sum())(backwards_in_time()).isfinite().all()


@CHECKED
def test_compiled_calls_do_not_look(checked: Callable[[Tensor], Tensor]) -> None:
    assert torch.compile(checked, fullgraph=True, backend="eager")(backwards_in_time()).isfinite().all()


def test_trusted_calls_do_not_look_at_values_and_others_do_again() -> None:
    q = torch.ones(1, 3, 1, 2)
    with checks.skip_value_checks():
        y = liquid_gated_attention(q, q, q, torch.tensor([[[0.1], [float("nan")], [0.1]]]))
        assert bool(torch.isnan(y).any())
    with pytest.raises(ValueError, match="decay"):
        liquid_gated_attention(q, q, q, torch.full((1, 3, 1), -1.0))
