"""The fused kernels against the definition: output, state and every gradient, at every length, width and decay.

The same cases run on a GPU and in the interpreter, which knows float32 products only. The rule: no result errs more
than twice as much as plain PyTorch does in the same precision, plus 4 ulp of its largest entry.
"""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from helpers import relative_error
from ops.cases import Operands, operands, pad_ragged
from torch import Tensor

from lformer import ops
from lformer.ops import checks, choose_backend, fused, liquid_gated_attention
from lformer.ops.fused import operator as launches
from lformer.ops.fused.launch import LAUNCHES, Launch

BOTH = pytest.mark.parametrize("causal", [True, False], ids=["causal", "non-causal"])
ULP = {"float32": 2.0**-23, "tf32": 2.0**-10, "bfloat16": 2.0**-7}


def results(x: Operands, causal: bool, backend: str, device: str = "cpu") -> dict[str, Tensor]:
    """Output, final state, and the gradient of a fixed random sum of both with respect to every operand."""
    x = Operands(*(t.detach().to(device).requires_grad_() for t in x))
    y, state = liquid_gated_attention(*x[:4], causal, x.state, return_state=True, backend=backend)
    return {"y": y, "final state": state} | gradients(x, y, state)


def gradients(x: Operands, y: Tensor, state: Tensor) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(1)
    weights = [torch.randn(t.shape, generator=g).bfloat16().to(t) for t in (y, state)]
    loss = (y * weights[0]).sum().double() + (state * weights[1]).sum().double()
    found = torch.autograd.grad(loss, x, materialize_grads=True)
    return {f"gradient of {name}": t for name, t in zip(Operands._fields, found, strict=True)}


def errors(actual: dict[str, Tensor], exact: dict[str, Tensor]) -> dict[str, float]:
    return {name: relative_error(t.cpu(), exact[name].cpu()) for name, t in actual.items()}


def assert_accurate(x: Operands, causal: bool, device: str) -> None:
    """In float32, the kernels err at most twice as much as the reference does, plus 4 ulp of the largest entry."""
    x = x.to(torch.float32)
    exact = results(x.to(torch.float64), causal, "reference")
    plain, actual = errors(results(x, causal, "reference"), exact), errors(results(x, causal, "fused", device), exact)
    assert not {name: e for name, e in actual.items() if not e <= 2 * plain[name] + 4 * ULP["float32"]}


def assert_equal(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert not [name for name, t in expected.items() if not torch.equal(actual[name].cpu(), t.cpu())]


# --- accuracy ---


@BOTH
@pytest.mark.parametrize("L", [0, 1, 17, 63, 64, 65, 200, 333])
def test_float32_is_accurate_at_every_length(L: int, causal: bool, device: str) -> None:
    assert_accurate(operands(B=1, L=L, H=2 if L < 100 else 1), causal, device)


@BOTH
@pytest.mark.parametrize(("K", "V"), [(16, 16), (5, 3), (1, 1), (32, 16), (16, 33), (64, 64), (128, 128)])
def test_float32_is_accurate_at_every_width_on_ragged_batches(K: int, V: int, causal: bool, device: str) -> None:
    L = 70 if K <= 16 else 20
    assert_accurate(pad_ragged(operands(B=2, L=L, H=1, K=K, V=V, total=2.0)), causal, device)


@pytest.mark.parametrize("L", [1, 130])
@pytest.mark.parametrize("total", [1e-8, 1e-3, 1e3, 1e6])
def test_causal_float32_is_accurate_at_every_decay(total: float, L: int, device: str) -> None:
    assert_accurate(operands(B=1, L=L, H=1, total=total), True, device)


@BOTH
@pytest.mark.parametrize(("total", "L"), [(1e-8, 1), (1e-6, 70)])
def test_tiny_decays_write_as_little_as_they_should(total: float, L: int, causal: bool, device: str) -> None:
    x = operands(B=1, L=L, H=1, total=total)
    assert_accurate(x._replace(state=torch.zeros_like(x.state)), causal, device)


@pytest.mark.parametrize("gap", [100.0, 1e6, 1e30])
def test_one_huge_gap_among_ordinary_ones_costs_no_accuracy(gap: float, device: str) -> None:
    x = operands(B=1, L=130, H=1)
    decay = torch.full_like(x.decay, 0.01)
    decay[:, [20, 64, 100]] = gap
    assert_accurate(x._replace(decay=decay), True, device)


@pytest.mark.parametrize(("total", "L"), [(1e-8, 1), (30.0, 1), (1e-6, 130), (79.0, 2), (30.0, 130), (79.0, 130)])
def test_noncausal_float32_is_accurate_up_to_the_limit(total: float, L: int, device: str) -> None:
    assert_accurate(operands(B=1, L=L, H=1, total=total), False, device)


def test_many_segments_of_many_chunks(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for precision in ("ieee", "tf32", "tf32x3"):
        monkeypatch.setitem(LAUNCHES, ("operator", 16, precision), Launch(rows=16, block=16))
    x = operands(B=1, L=150, H=1, total=5.0)
    plan = launches.make_plan(x.q, x.k, x.v, causal=True)
    assert (plan.needed, plan.segments, plan.chunks) == (10, 3, 4)
    assert_accurate(x, True, device)
    assert_accurate(x, False, device)


# --- what comes in ---


@BOTH
def test_views_of_wider_tensors_are_read_in_place_and_nothing_around_them(causal: bool, device: str) -> None:
    x = operands(B=2, L=70, K=5, V=3, dtype=torch.float32)
    around = torch.full((2, 140, 2, 20), torch.nan, device=device)
    views = [around[:, :70, :, 0:5], around[:, :70, :, 5:10], around[:, :70, :, 10:13], around[:, :70, :, 15]]
    for view, rows in zip(views, x, strict=False):
        view.copy_(rows)
    before = torch.full((2, 2, 3, 5), torch.nan, device=device).mT.copy_(x.state)
    assert_equal(results_of_views(Operands(*views, before), causal, device), results(x, causal, "fused", device))


def results_of_views(x: Operands, causal: bool, device: str) -> dict[str, Tensor]:
    """As `results`, of tensors whose layout is kept: no copy is taken between them and the call."""
    x = Operands(*(t.to(device).requires_grad_() for t in x))
    assert not any(t.is_contiguous() for t in x)
    y, state = liquid_gated_attention(*x[:4], causal, x.state, return_state=True, backend="fused")
    return {"y": y, "final state": state} | gradients(x, y, state)


@BOTH
def test_rows_whose_entries_are_not_side_by_side_are_read_too(causal: bool, device: str) -> None:
    x = operands(B=1, L=70, dtype=torch.float32)
    turned = Operands(*(t.mT.contiguous().mT for t in x[:3]), x.decay.mT.contiguous().mT, x.state.mT.contiguous().mT)
    assert_equal(results_of_views(turned, causal, device), results(x, causal, "fused", device))


@BOTH
def test_no_state_means_a_state_of_zeros(causal: bool, device: str) -> None:
    x = [t.to(device) for t in operands(B=1, L=70, dtype=torch.float32)]
    nothing = liquid_gated_attention(*x[:4], causal, None, return_state=True, backend="fused")
    zeros = liquid_gated_attention(*x[:4], causal, torch.zeros_like(x[4]), return_state=True, backend="fused")
    assert all(torch.equal(a, b) for a, b in zip(nothing, zeros, strict=True))


@BOTH
@pytest.mark.parametrize("used", [0, 1], ids=["output", "state"])
def test_either_result_alone_has_its_gradients(used: int, causal: bool, device: str) -> None:
    found = []
    for dtype, backend, place in ((torch.float64, "reference", "cpu"), (torch.float32, "fused", device)):
        x = [t.to(place).requires_grad_() for t in operands(B=1, L=70, dtype=dtype)]
        result = liquid_gated_attention(*x[:4], causal, x[4], return_state=True, backend=backend)[used]
        found.append(torch.autograd.grad(result.square().sum(), x, materialize_grads=True))
    assert max(relative_error(a.cpu(), b) for a, b in zip(found[1], found[0], strict=True)) <= 20 * ULP["float32"]


@BOTH
def test_a_decay_that_is_not_a_number_is_seen_in_the_output(causal: bool, device: str) -> None:
    x = [t.to(device) for t in operands(B=1, L=70, H=1, dtype=torch.float32)]
    x[3][0, 40] = torch.nan
    with checks.skip_value_checks():
        y = liquid_gated_attention(*x[:4], causal, backend="fused")
    assert y[:, 40:].isnan().all()


# --- what goes out ---


@BOTH
def test_everything_that_is_allocated_is_written(causal: bool, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = operands(B=1, L=200, H=1, dtype=torch.float32)
    expected, empty, filled = results(x, causal, "fused", device), launches._empty, []

    def nan_filled(*args: object, **kwargs: object) -> Tensor:
        filled.append(empty(*args, **kwargs).fill_(torch.nan))
        return filled[-1]

    monkeypatch.setattr(launches, "_empty", nan_filled)
    assert_equal(results(x, causal, "fused", device), expected)
    assert len(filled) >= 10
    assert not any(t.isnan().any() for t in filled)


@BOTH
def test_the_same_call_gives_the_same_bits_and_so_does_each_series_alone(causal: bool, device: str) -> None:
    x = operands(B=2, L=130, H=1, dtype=torch.float32)
    together = results(x, causal, "fused", device)
    assert_equal(results(x, causal, "fused", device), together)
    alone = liquid_gated_attention(*(t[1:].to(device) for t in x[:4]), causal, x.state[1:].to(device), backend="fused")
    assert torch.equal(alone, together["y"][1:])


@BOTH
def test_autocast_changes_nothing(causal: bool, device: str) -> None:
    x = [t.to(device) for t in operands(B=1, L=70, dtype=torch.float32)]
    expected = liquid_gated_attention(*x[:4], causal, x[4], backend="fused")
    with torch.autocast(device, dtype=torch.bfloat16):
        assert torch.equal(liquid_gated_attention(*x[:4], causal, x[4], backend="fused"), expected)


# --- as operators of PyTorch ---


@pytest.mark.parametrize("operator", [launches.causal_operator, launches.whole_operator], ids=["causal", "non-causal"])
def test_pytorch_finds_the_operators_well_formed(operator: torch.library.CustomOpDef, device: str) -> None:
    x = [t.to(device).requires_grad_() for t in operands(B=1, L=70, H=1, dtype=torch.float32)]
    torch.library.opcheck(operator, x)


@BOTH
def test_traced_in_one_graph_with_a_symbolic_length_it_equals_eager(causal: bool, device: str) -> None:
    def outputs(*x: Tensor) -> tuple[Tensor, Tensor]:
        return liquid_gated_attention(*x[:4], causal, x[4], return_state=True, backend="fused")

    traced = torch.compile(outputs, fullgraph=True, backend="aot_eager", dynamic=True)
    for L in (70, 100):
        x = Operands(*(t.to(device).requires_grad_() for t in operands(B=2, L=L, H=1, dtype=torch.float32)))
        y, state = traced(*x)
        actual = {"y": y, "final state": state} | gradients(x, y, state)
        assert_equal(actual, results(x, causal, "fused", device))


# --- which backend runs ---


def tensors(**changed: Tensor) -> list[Tensor]:
    return list(operands(L=3, dtype=torch.float32)._replace(**changed))


def test_importing_the_operator_does_not_import_triton() -> None:
    code = "import sys, lformer.ops; sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=os.environ, check=False).returncode == 0


def test_without_tensors_the_name_is_all_that_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "interpreted", lambda: False)
    assert choose_backend("fused") == "fused"
    assert choose_backend("auto") == "parallel"


def test_auto_is_parallel_on_a_cpu_even_where_the_kernels_could_be_interpreted() -> None:
    assert choose_backend("auto", *tensors()) == "parallel"


def test_products_are_rounded_in_half_precision_and_where_tf32_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    wide, narrow = torch.ones(1), torch.ones(1, dtype=torch.bfloat16)
    monkeypatch.setattr(fused, "tf32_allowed", lambda: False)
    assert [fused.rounds(wide, wide), fused.rounds(wide, narrow), fused.rounds(narrow, narrow)] == [False, False, True]
    monkeypatch.setattr(fused, "tf32_allowed", lambda: True)
    assert fused.rounds(wide, wide)


def test_the_kernels_that_are_asked_for_are_those_that_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops, "_fused", lambda *x: (x[2] * 0 + 42, x[4]))
    monkeypatch.setattr(fused, "unsupported", lambda *x: "")
    assert (liquid_gated_attention(*tensors()[:4], backend="fused") == 42).all()


def test_narrow_inputs_reach_the_kernels_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(ops, "_fused", lambda *x: (seen.extend(x), (x[2], x[4]))[1])
    monkeypatch.setattr(fused, "unsupported", lambda *x: "")
    x = operands(L=3, dtype=torch.bfloat16)
    liquid_gated_attention(*x[:4], state=x.state, backend="fused")
    assert all(a is b for a, b in zip(seen, x[:4], strict=False))
    assert seen[4].dtype == torch.float32


REFUSALS = {
    "float64": (tensors(v=torch.ones(2, 3, 2, 3, dtype=torch.float64)), "float64"),
    "wide-values": (tensors(v=torch.ones(2, 3, 2, 129)), "129 entries are wider than 128"),
    "wide-keys": ([torch.ones(2, 3, 2, 200)] * 2 + tensors()[2:4], "keys of 200"),
}


@pytest.mark.parametrize(("x", "reason"), REFUSALS.values(), ids=REFUSALS.keys())
def test_what_the_kernels_cannot_take_is_refused_with_the_reason(
    x: list[Tensor], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "interpreted", lambda: True)
    with pytest.raises(ValueError, match=f"'fused' cannot run here: .*{reason}.*'parallel'"):
        choose_backend("fused", *x)


def test_a_cpu_is_refused_where_nothing_interprets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "interpreted", lambda: False)
    with pytest.raises(ValueError, match="tensors are on cpu, and they run on cuda"):
        liquid_gated_attention(*tensors()[:4], backend="fused")


def test_a_machine_without_triton_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "_has_triton", False)
    with pytest.raises(ValueError, match="triton is not installed"):
        choose_backend("fused", *tensors())


def test_function_transforms_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "interpreted", lambda: True)
    with pytest.raises(ValueError, match=r"torch\.func cannot transform them"):
        torch.func.grad(lambda q: liquid_gated_attention(q, *tensors()[1:4], backend="fused").sum())(tensors()[0])


# --- on a GPU alone ---


@pytest.fixture
def tf32() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


def assert_as_accurate_as_parallel(x: Operands, causal: bool, ulp: float) -> None:
    """On a GPU: no error above twice that of plain PyTorch in the same precision, plus 4 ulp of the largest entry."""
    torch.use_deterministic_algorithms(False)  # plain running sums have no deterministic form on a GPU
    exact = results(x.to(torch.float64), causal, "parallel", "cuda")
    plain = errors(results(x, causal, "parallel", "cuda"), exact)
    torch.use_deterministic_algorithms(True)
    actual = errors(results(x, causal, "fused", "cuda"), exact)
    assert not {name: e for name, e in actual.items() if not e <= 2 * plain[name] + 4 * ulp}


GPU_CASES = pytest.mark.parametrize(
    ("L", "K", "V"), [(1, 16, 16), (333, 16, 16), (70, 32, 16), (1000, 64, 64), (300, 128, 128)]
)


@pytest.mark.gpu
@BOTH
@GPU_CASES
@pytest.mark.usefixtures("tf32")
def test_tf32_is_as_accurate_as_plain_tf32(L: int, K: int, V: int, causal: bool) -> None:
    x = pad_ragged(operands(B=3, L=L, K=K, V=V, total=5.0, dtype=torch.float32))
    assert_as_accurate_as_parallel(x, causal, ULP["tf32"])


@pytest.mark.gpu
@BOTH
@GPU_CASES
def test_bfloat16_is_as_accurate_as_plain_bfloat16(L: int, K: int, V: int, causal: bool) -> None:
    x = pad_ragged(operands(B=3, L=L, K=K, V=V, total=5.0, dtype=torch.bfloat16))
    assert_as_accurate_as_parallel(x, causal, ULP["bfloat16"])


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # by the compiler itself
@BOTH
@pytest.mark.usefixtures("tf32")
def test_compiled_by_inductor_it_equals_eager(causal: bool) -> None:
    def outputs(*x: Tensor) -> tuple[Tensor, Tensor]:
        return liquid_gated_attention(*x[:4], causal, x[4], return_state=True, backend="fused")

    x = Operands(*(t.cuda().requires_grad_() for t in operands(L=300, K=16, V=16, dtype=torch.float32)))
    y, state = torch.compile(outputs, fullgraph=True)(*x)
    assert_equal({"y": y, "final state": state} | gradients(x, y, state), results(x, causal, "fused", "cuda"))


@pytest.mark.gpu
def test_auto_is_fused_on_a_gpu_unless_float32_must_be_exact() -> None:
    x = [t.cuda() for t in tensors()]
    assert choose_backend("auto", *x) == "parallel"
    assert choose_backend("auto", *(t.bfloat16() for t in x[:3]), x[3]) == "fused"
    torch.set_float32_matmul_precision("high")
    assert choose_backend("auto", *x) == "fused"
    assert choose_backend("auto", *(t.double() for t in x)) == "parallel"


@pytest.mark.gpu
@BOTH
@pytest.mark.usefixtures("tf32")
def test_a_million_rows_are_as_accurate_as_plain_tf32(causal: bool) -> None:
    x = operands(B=1, L=2**20 + 3, H=1, K=16, V=16, total=5.0, dtype=torch.float32)
    assert_as_accurate_as_parallel(x, causal, ULP["tf32"])


@pytest.mark.gpu
def test_beyond_two_to_the_31_entries_the_end_of_the_series_is_that_of_its_tail() -> None:
    L, tail = 2**21 + 64, 2**20  # 64 entries a row and head, 16 heads
    q, k, v = (torch.randn(1, L, 16, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    decay = torch.full((1, L, 16), 0.01, device="cuda")
    whole = liquid_gated_attention(q, k, v, decay, causal=True, backend="fused")[:, -1000:]
    ended = liquid_gated_attention(*(x[:, -tail:] for x in (q, k, v, decay)), causal=True, backend="fused")[:, -1000:]
    assert relative_error(whole, ended.double()) <= ULP["bfloat16"]
