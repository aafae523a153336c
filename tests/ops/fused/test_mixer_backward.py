"""The gradients of the fused mixer against float64 autograd of the plain path.

A gradient may be off by twice what the plain path is off in the same precision, and by four units in the last place of
its largest entry, or in float32 of the largest entry of all gradients: it is a sum of terms that cancel, rounded by
chance. `Saved` is made here from its definition, so these tests need no forward kernel.
"""

from __future__ import annotations

import copy
import inspect
from typing import Any, NamedTuple

import pytest
import torch
import triton
import triton.language as tl
from helpers import largest, relative_error
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from lformer import ops
from lformer.nn import LiquidMixer
from lformer.nn.attention import LiquidGatedAttention
from lformer.nn.mixer import SwiGLU
from lformer.ops import checks
from lformer.ops.fused import causal as causal_mixer
from lformer.ops.fused import channel, ends, gate, node, operands, time_mixer, weights
from lformer.ops.fused import mixer as fused_mixer
from lformer.ops.fused.launch import start_kernel
from lformer.ops.fused.plan import CHUNK, OPERANDS, Affine, MixerWeights, Plan, Saved

PIECES = (gate, time_mixer, causal_mixer, channel, ends, weights)  # which launch kernels

GROUPS = {  # tensors that are one quantity: a handful of numbers alone has an error by luck
    "x": ["x"],
    "norm1": ["norm1", "norm1_bias"],
    "query": ["wq", "bq"],
    "key": ["wk", "bk"],
    "value": ["wv", "bv"],
    "output": ["wo", "bo"],
    "gate": ["wg", "bg", "theta"],
    "mix": ["wm"],
    "norm2": ["norm2", "norm2_bias"],
    "up": ["w_up"],
    "down": ["w_down"],
}
AS_ONE = {"all": [name for names in GROUPS.values() for name in names]}


class Case(NamedTuple):
    L: int
    D: int = 32
    H: int = 2
    F: int = 40
    causal: bool = False
    norm: str = "sequence"
    chunks: int = 1
    B: int = 2


class Work(NamedTuple):
    mixer: LiquidMixer  # float64
    x: Tensor
    deltas: Tensor
    grad: Tensor


CASES = {
    "one row": Case(L=1),
    "less than a tile": Case(L=17, F=72),
    "one tile": Case(L=64, causal=True, norm="prefix"),
    "one row more": Case(L=65),
    "three segments": Case(L=150),
    "three segments, causal": Case(L=150, causal=True),
    "two chunks a segment": Case(L=213, causal=True, norm="prefix", chunks=2, B=1),
    "paper": Case(L=70, D=64, H=4, F=176),
    "paper, prefix": Case(L=70, D=64, H=4, F=176, causal=True, norm="prefix"),
    "one head": Case(L=70, H=1, causal=True),
}


ULP = {"ieee": 2.0**-23, "tf32": 2.0**-10, "bf16": 2.0**-7}  # of 1


def make_work(case: Case, seed: int = 0) -> Work:
    """Rows, uneven intervals with ties and gaps, and padding at the end of the first series (none if it is alone)."""
    torch.manual_seed(seed)
    attention = LiquidGatedAttention(case.D, case.H, causal=case.causal, gate_norm=case.norm)
    mixer = LiquidMixer(case.D, attention, SwiGLU(case.D, case.F)).double()
    for p in mixer.parameters():
        p.data += 0.2 * torch.randn_like(p)
    x = torch.randn(case.B, case.L, case.D, dtype=torch.float64)
    deltas = torch.rand(case.B, case.L, dtype=torch.float64)
    deltas[:, 3::5] = 0
    deltas[:, 7::19] *= 50
    if case.B > 1:
        deltas[0, case.L - case.L // 4 :] = 0
    return Work(mixer, x, deltas, torch.randn_like(x))


def make_plan(case: Case, precision: str) -> Plan:
    segments = -(-case.L // (CHUNK * case.chunks))
    K = case.D // case.H
    return Plan(
        case.B, case.L, case.H, K, K, CHUNK, case.chunks, segments, precision, case.F, case.causal, case.norm
    )  # fmt: skip


def weights_of(mixer: LiquidMixer) -> MixerWeights:
    t = mixer.liquid
    assert t.output_gate is not None
    assert t.gate is not None
    assert t.mu is not None
    assert isinstance(mixer.channel_mixer, SwiGLU)
    pairs = [m for layer in (mixer.time_norm, t.query, t.key, t.value) for m in (layer.weight, layer.bias)]
    more = [t.output_gate.weight, t.output_gate.bias, t.gate.weight, t.gate.bias, t.mu.theta, t.mix.weight]
    norm2 = [mixer.channel_norm.weight, mixer.channel_norm.bias]
    return MixerWeights(*pairs, *more, *norm2, mixer.channel_mixer.up.weight, mixer.channel_mixer.down.weight)


def saved_by_definition(work: Work, plan: Plan) -> Saved:
    """All in float64."""
    mixer, x, deltas = work.mixer, work.x, work.deltas
    t = mixer.liquid
    h = mixer.time_norm(x)
    _, k, v, _, gates = t._project(h)
    u = t._decay(gates, deltas, None, None)
    decay = ops.normalise_decay(u, t.gate_norm)
    spare = plan.segments * plan.rows - plan.L

    def segmented(tensor: Tensor, parts: int) -> Tensor:
        filled = torch.cat([tensor, tensor.new_zeros(plan.B, spare, *tensor.shape[2:])], dim=1)
        return filled.unflatten(1, (parts, -1))

    if plan.causal:
        c = segmented(decay, plan.segments).cumsum(dim=2)
        span = c[:, :, -1]
        exponent = c - span[:, :, None]
        cum = segmented(decay, plan.total_chunks).cumsum(dim=2).flatten(1, 2)[:, : plan.L]
    else:
        cum = decay.cumsum(dim=1)
        exponent = segmented(cum, plan.segments)
        span = torch.full_like(exponent[:, :, 0], torch.nan)
    weight = torch.exp(exponent) * segmented(-torch.expm1(-decay), plan.segments)
    parts = (segmented(k, plan.segments), segmented(v, plan.segments))
    partial = torch.einsum("bsrh,bsrhk,bsrhv->bshkv", weight, *parts)
    return Saved(x, x + t(h, deltas), deltas, gates, decay, cum, partial, span)


def plain_gradients(work: Work, dtype: torch.dtype, device: str) -> dict[str, Tensor]:
    """By autograd through the plain path in `dtype`."""
    mixer = copy.deepcopy(work.mixer).to(device, dtype)
    deltas = work.deltas.to(device, torch.promote_types(dtype, torch.float32))  # never narrower
    x = work.x.detach().to(device, dtype).requires_grad_()
    weights = weights_of(mixer)
    grads = torch.autograd.grad(mixer(x, deltas), [x, *weights], work.grad.to(device, dtype))
    named = dict(zip(("x", *MixerWeights._fields), grads, strict=True))
    return {name: g.cpu().double() for name, g in named.items()}


def fused_gradients(work: Work, plan: Plan, dtype: torch.dtype, device: str) -> dict[str, Tensor]:
    def move(t: Tensor, to: torch.dtype = torch.float32) -> Tensor:
        return t.detach().to(device, to).contiguous()

    given = MixerWeights(*map(move, weights_of(work.mixer)))
    with torch.no_grad():
        saved = saved_by_definition(work, plan)
    rows = {"x": move(saved.x, dtype), "x1": move(saved.x1, dtype)}
    saved = Saved(*map(move, saved))._replace(**rows)
    before = [t.clone() for t in saved]
    scratch = weights.make_scratch(saved.x, plan)
    dx, g = node.backward(move(work.grad, dtype), saved, given, plan, scratch)
    grads = weights.apart(g, given)
    for old, new in zip(before, saved, strict=True):
        assert torch.equal(old.nan_to_num(7.0), new.nan_to_num(7.0)), "what was saved must stay as it is"
    assert dx.dtype == dtype
    assert all(g.dtype == torch.float32 for g in grads)
    named = dict(zip(("x", *MixerWeights._fields), (dx, *grads), strict=True))
    return {name: g.cpu().double() for name, g in named.items()}


def assert_as_exact_as_plain(work: Work, plan: Plan, dtype: torch.dtype, device: str) -> dict[str, Tensor]:
    """-> the fused gradients"""
    exact = plain_gradients(work, torch.float64, "cpu")
    plain = plain_gradients(work, dtype, device)
    fused = fused_gradients(work, plan, dtype, device)
    assert_close_enough(fused, plain, exact, ULP[plan.precision], scale=largest(*exact.values()))
    return fused


def assert_close_enough(
    fused: dict[str, Tensor],
    plain: dict[str, Tensor],
    exact: dict[str, Tensor],
    ulp: float,
    groups: dict[str, list[str]] = GROUPS,
    scale: float = 0.0,
) -> None:
    """`scale` is the largest entry of all gradients, where they are of similar size."""
    for group, names in groups.items():
        true, ours, theirs = (torch.cat([g[n].flatten() for n in names]) for g in (exact, fused, plain))
        unit = max(ulp * largest(true), ULP["ieee"] * scale)
        allowed = 2 * (theirs - true).abs().max() + 4 * unit
        assert (ours - true).abs().max() <= allowed, group


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str, device: str) -> None:
    if device == "cuda":
        pytest.skip("float32 products are TF32 there: see the tests marked gpu")
    case = CASES[name]
    assert_as_exact_as_plain(make_work(case), make_plan(case, "ieee"), torch.float32, device)


@pytest.mark.parametrize("case", [Case(L=20), Case(L=20, causal=True, norm="prefix")], ids=["sequence", "prefix"])
def test_rows_without_any_interval(case: Case, device: str) -> None:
    """Nothing is written or shared, so the gate, the queries, keys and values get no gradient; the rest does."""
    if device == "cuda":
        pytest.skip("float32 products are TF32 there: see the tests marked gpu")
    work = make_work(case)._replace(deltas=torch.zeros(case.B, case.L, dtype=torch.float64))
    grads = assert_as_exact_as_plain(work, make_plan(case, "ieee"), torch.float32, device)
    assert not any(grads[name].any() for name in ("wq", "bq", "wk", "bk", "wv", "bv", "wg", "bg", "theta"))
    assert grads["x"].any()


def test_many_rows_per_program(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """Few programs and small steps: the sums of one program go over several tiles, groups, slices and steps."""
    if device == "cuda":
        pytest.skip("float32 products are TF32 there: see the tests marked gpu")
    monkeypatch.setattr(channel, "PROGRAMS", 1)
    monkeypatch.setattr(gate, "GATE_PROGRAMS", 1)
    monkeypatch.setattr(gate, "STEP", 32)
    case = Case(L=80, F=72, causal=True, norm="prefix", chunks=2)
    assert_as_exact_as_plain(make_work(case), make_plan(case, "ieee"), torch.float32, device)


class RoundedProducts(TorchDispatchMode):
    """Rounds the operands of every product to the 11 digits of TF32, as a GPU does."""

    PRODUCTS = (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm, torch.ops.aten.baddbmm)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.overloadpacket in self.PRODUCTS:
            args = (*args[:-2], *((a.view(torch.int32) + 0x1000 & -0x2000).view(torch.float32) for a in args[-2:]))
        return func(*args, **(kwargs or {}))


HALF_CASES = {
    "sequence": Case(L=90),
    "causal": Case(L=150, causal=True, chunks=2, B=1),
    "prefix": Case(L=150, causal=True, norm="prefix"),
}


@pytest.mark.parametrize("name", HALF_CASES)
def test_float16_operands_in_the_place_of_tf32(name: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As exact as TF32 products, and the scale of the gradient changes nothing: small numbers do not vanish."""
    if device == "cuda":
        pytest.skip("float32 products are TF32 there: see the tests marked gpu")
    monkeypatch.setitem(OPERANDS, "ieee", "fp16")
    case = HALF_CASES[name]
    work, plan = make_work(case), make_plan(case, "ieee")
    with RoundedProducts():
        plain = plain_gradients(work, torch.float32, device)
    fused = fused_gradients(work, plan, torch.float32, device)
    assert_close_enough(fused, plain, plain_gradients(work, torch.float64, device), ULP["ieee"], AS_ONE)
    scaled = fused_gradients(work._replace(grad=work.grad * 2.0**-40), plan, torch.float32, device)
    assert all(torch.equal(fused[name] * 2.0**-40, scaled[name]) for name in fused)


@triton.jit
def uneven_power(r_unit, T: tl.constexpr, OPERAND: tl.constexpr):
    """`chunk_power`, and sixteen times as much where R is large: as if it had grown in some chunks and heads alone."""
    return tl.where(r_unit > 10.0, 16.0, 1.0) * operands.chunk_power(r_unit, T, OPERAND)


def test_units_may_differ_between_chunks_and_heads(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read through R has a unit for each chunk and head; on its way to the weights all come to one."""
    if device == "cuda":
        pytest.skip("float32 products are TF32 there: see the tests marked gpu")
    monkeypatch.setitem(OPERANDS, "ieee", "fp16")
    case = Case(L=150, causal=True, chunks=3, B=1)
    work, plan = make_work(case), make_plan(case, "ieee")
    with torch.no_grad():
        for p in (work.mixer.liquid.query.weight, work.mixer.liquid.query.bias):
            p[: case.D // case.H] *= 1e-3  # the first head asks little: its R is small
    even = fused_gradients(work, plan, torch.float32, device)
    monkeypatch.setattr(causal_mixer, "chunk_power", uneven_power)
    uneven = fused_gradients(work, plan, torch.float32, device)
    assert not all(torch.equal(even[name], uneven[name]) for name in even)
    for name, g in even.items():
        assert relative_error(uneven[name], g, largest(*even.values())) < 2.0**-10, name


def test_rows_of_large_gradients_do_not_drown_the_others(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Early rows have gradients and weights ten thousand times those of the rows after them, which count as well.

    In a series of 20,000 rows with one channel this made the gradients of the output gate wrong in the second digit.
    """
    if device == "cuda":
        pytest.skip("float32 products are TF32 there: see the tests marked gpu")
    monkeypatch.setitem(OPERANDS, "ieee", "fp16")
    case = Case(L=150, causal=True, B=1)
    work, plan = make_work(case), make_plan(case, "ieee")
    work.deltas[:, 5] *= 2.0**14
    work.grad[:, 3:8] *= 2.0**14
    with RoundedProducts():
        plain = plain_gradients(work, torch.float32, device)
    exact, fused = plain_gradients(work, torch.float64, device), fused_gradients(work, plan, torch.float32, device)
    later = [{"x": g["x"][:, CHUNK:]} for g in (fused, plain, exact)]  # rows of other chunks
    passed_on = work.grad[:, CHUNK:]  # by the residuals, which is exact: what goes through the mixers is compared
    assert_close_enough(*({"x": g["x"] - passed_on} for g in later), ULP["tf32"], {"x": ["x"]})


def test_large_and_small_weights_as_float16(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No weight is too large or too small for the range of float16."""
    if device == "cuda":
        pytest.skip("float32 products are TF32 there: see the tests marked gpu")
    monkeypatch.setitem(OPERANDS, "ieee", "fp16")
    case = Case(L=40, causal=True)
    work, plan = make_work(case), make_plan(case, "ieee")
    with torch.no_grad():
        work.mixer.channel_mixer.up.weight *= 4.0
        work.mixer.channel_mixer.down.weight *= 1e-7
        work.mixer.liquid.mix.weight *= 1e-7
        work.mixer.liquid.value.weight *= 1e5
        work.mixer.liquid.query.weight *= 1e-6
    with RoundedProducts():
        plain = plain_gradients(work, torch.float32, device)
    fused = fused_gradients(work, plan, torch.float32, device)
    assert_close_enough(fused, plain, plain_gradients(work, torch.float64, device), ULP["ieee"])


@pytest.mark.parametrize("causal", [False, True])
def test_a_training_step_takes_few_launches(causal: bool, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From values to answers and back: kernels and nothing else, all given what their parameters ask for."""
    launches: list[str] = []

    def start(kernel: Any, grid: Any, tensors: Any, numbers: Any, **constants: Any) -> None:
        launches.append(kernel.fn.__name__)
        assert all(isinstance(t, Tensor) and t.device.type == device for t in tensors)
        assert all(type(n) in (int, float) for n in numbers)
        given = len(tensors) + len(numbers)
        constexpr = [p.annotation == "tl.constexpr" or p.annotation is tl.constexpr for p in parameters(kernel)]
        assert constexpr == [False] * given + [True] * (len(constexpr) - given)
        assert set(kernel.arg_names[given:]) == set(constants) - {"num_warps", "num_stages", "launch_pdl"}
        with _disable_current_modes():  # the interpreter itself uses operators
            kernel[grid](*tensors, *numbers, **constants)

    for piece in PIECES:
        monkeypatch.setattr(piece, "start_kernel", start)
    work = make_work(Case(L=5, causal=causal))
    layers = [weights_of(copy.deepcopy(work.mixer).float().to(device)) for _ in range(2)]
    embedder, head = (
        Affine(torch.randn(*shape, device=device), torch.randn(shape[0], device=device)) for shape in ((32, 3), (7, 32))
    )
    for p in (*embedder, *head):
        p.requires_grad_()
    values, deltas = torch.randn(2, 5, 3, device=device), work.deltas.float().to(device)
    lengths = torch.tensor([4, 5], device=device)
    operators = CountedOperators(launches)
    with operators, checks.skip_value_checks():
        y = fused_mixer.answer(
            values, deltas, embedder, layers, causal, "sequence", lengths, torch.float32, pool=True, head=head
        )
        forward = len(launches), operators.allocations
        torch.autograd.grad(y, [*embedder, *head, *layers[0], *layers[1]], torch.ones_like(y))
    assert forward[0] == 8, launches
    assert len(launches) - forward[0] == (29 if causal else 27) + 1, launches[forward[0] :]  # with the ones of a loss
    assert operators.allocations - forward[1] == 10


def parameters(kernel: Any) -> list[inspect.Parameter]:
    return list(inspect.signature(kernel.fn).parameters.values())


@pytest.mark.parametrize("causal", [False, True])
def test_few_launches(causal: bool, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short series waits for the launches, not for the work: their number is part of the design."""
    launches: list[str] = []

    def start(kernel: Any, *args: Any, **options: Any) -> None:
        start_kernel(Counted(kernel, launches), *args, **options)

    for piece in PIECES:
        monkeypatch.setattr(piece, "start_kernel", start)
    case = Case(L=20, causal=causal)
    work, plan = make_work(case), make_plan(case, "ieee")
    with torch.no_grad():
        saved = Saved(*(t.float().to(device) for t in saved_by_definition(work, plan)))
    given = MixerWeights(*(t.detach().float().to(device) for t in weights_of(work.mixer)))
    grad = work.grad.float().to(device)
    with CountedOperators(launches):
        scratch = weights.make_scratch(saved.x, plan)
        weights.apart(node.backward(grad, saved, given, plan, scratch)[1], given)
    assert len(launches) == (14 if causal else 13), launches


class Counted(NamedTuple):
    """A kernel that writes its name down whenever it is launched."""

    kernel: Any
    launches: list[str]

    def __getitem__(self, grid: Any) -> Any:  # type: ignore[override]
        self.launches.append(self.kernel.fn.__name__)

        def launch(*args: Any, **kwargs: Any) -> None:
            with _disable_current_modes():  # the interpreter itself uses operators
                self.kernel[grid](*args, **kwargs)

        return launch


class CountedOperators(TorchDispatchMode):
    """Writes down the operators that work on numbers and counts those that make tensors; views cost little."""

    FREE = ("view", "select", "slice", "unbind", "detach", "alias", "transpose", "expand", "split")

    def __init__(self, launches: list[str]) -> None:
        super().__init__()
        self.launches, self.allocations = launches, 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if "empty" in func.__name__:
            self.allocations += 1
        elif not any(name in func.__name__ for name in self.FREE):
            self.launches.append(func.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["tf32", "bf16"])
@pytest.mark.parametrize("name", CASES)
def test_gradients_on_the_gpu(name: str, dtype: torch.dtype) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        plan = make_plan(CASES[name], "bf16" if dtype == torch.bfloat16 else "tf32")
        assert_as_exact_as_plain(make_work(CASES[name]), plan, dtype, "cuda")
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [False, True])
def test_same_gradients_every_time(causal: bool) -> None:
    case = Case(L=5000, D=64, H=4, F=176, causal=causal, chunks=5)
    work, plan = make_work(case), make_plan(case, "tf32")
    first, second = (fused_gradients(work, plan, torch.float32, "cuda") for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("case", [Case(L=70), Case(L=70, causal=True, norm="prefix")], ids=["sequence", "prefix"])
def test_through_the_forward_kernels(case: Case, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same gradients when autograd runs both passes of the operator."""
    if device == "cuda":
        pytest.skip("float32 products are TF32 there: see the tests marked gpu")
    monkeypatch.setattr(node, "FORCED_CHUNKS", 1)
    work = make_work(case)
    exact, plain = plain_gradients(work, torch.float64, "cpu"), plain_gradients(work, torch.float32, device)
    x = work.x.float().to(device).requires_grad_()
    given = weights_of(copy.deepcopy(work.mixer).float().to(device))
    y = fused_mixer.mixer(x, work.deltas.to(device), given, case.causal, case.norm)
    grads = torch.autograd.grad(y, [x, *given], work.grad.float().to(device))
    fused = dict(zip(("x", *MixerWeights._fields), (g.cpu().double() for g in grads), strict=True))
    assert_close_enough(fused, plain, exact, ULP["ieee"], scale=largest(*exact.values()))
