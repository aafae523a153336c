"""Which path a block and a whole model take, and that it answers as the plain one."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from helpers import irregular_batch, require_close
from ops.fused.blocks import PAPER, SMALL, entering, mixer, models, series
from ops.fused.blocks import reason as found
from torch import nn
from torch.utils.checkpoint import checkpoint

from lformer.batch import IrregularBatch
from lformer.nn import FeedForward, LiquidMixer, SoftmaxAttention, fusion
from lformer.nn.fusion import kernel_weights, mix
from lformer.ops import checks
from lformer.ops.fused import mixer as fused
from lformer.ops.fused.channel import hidden_slices

# --- which path runs ---


def hooked(block: LiquidMixer) -> None:
    block.time_mixer.query.register_forward_hook(lambda *_: None)


def replaced(block: LiquidMixer) -> None:
    block.time_mixer.value = nn.Sequential(nn.Identity())


def other_eps(block: LiquidMixer) -> None:
    block.channel_norm.eps = 1e-3


def softmax(block: LiquidMixer) -> None:
    block.time_mixer = SoftmaxAttention(32, 2)


def feed_forward(block: LiquidMixer) -> None:
    block.channel_mixer = FeedForward(32, 40)


def other_dropout(block: LiquidMixer) -> None:
    block.dropout = nn.Dropout(0.5)


def named(backend: str) -> Callable[[LiquidMixer], None]:
    def change(block: LiquidMixer) -> None:
        block.liquid.backend = backend

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (hooked, "time_mixer.query has hooks"),
        (replaced, "time_mixer.value is a Sequential"),
        (other_eps, "layer norm"),
        (softmax, "SoftmaxAttention"),
        (feed_forward, "FeedForward"),
        (other_dropout, "dropout is a Dropout"),
        (named("parallel"), "backend='parallel'"),
        (named("reference"), "backend='reference'"),
    ],
)
def test_a_block_that_was_changed_is_not_fused(change: Callable[[LiquidMixer], None], reason: str, device: str) -> None:
    torch.set_float32_matmul_precision("high")
    block = mixer(SMALL, False, "sequence").to(device, torch.float32)
    x, deltas, _ = series(5, 32)
    x, deltas = x.to(device, torch.float32), deltas.to(device, torch.float32)
    change(block)
    assert reason in found(block, x, deltas)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"norm": "none", "causal": True}, 'gate_norm="none"'),
        ({"norm": "prefix"}, 'gate_norm="prefix"'),
        ({"rate": "time"}, "ablation"),
        ({"output_gate": "none"}, "ablation"),
        ({"size": (32, 4, 40)}, "heads of 8"),
        ({"size": (48, 3, 40)}, "width 48"),
    ],
)
def test_settings_without_kernels_are_not_fused(options: dict, reason: str, device: str) -> None:
    torch.set_float32_matmul_precision("high")
    block = mixer(**{"size": SMALL, "causal": False, "norm": "sequence"} | options).to(device, torch.float32)
    x, deltas, _ = series(5, block.liquid.width)
    assert reason in found(block, x.to(device, torch.float32), deltas.to(device, torch.float32))


def test_rows_without_kernels_are_not_fused(device: str) -> None:
    block = mixer(SMALL, False, "sequence").to(device)
    x, deltas, _ = series(5, 32)
    x, deltas = x.to(device), deltas.to(device)
    assert "float64" in found(block, x, deltas)
    assert "float16" in found(block.half(), x.half(), deltas)
    assert "parameters are torch.float16" in found(block, x.float(), deltas)
    block.float()
    if device == "cuda":
        torch.set_float32_matmul_precision("high")
    assert found(block, x.float(), deltas) == ""
    assert "read" in found(block, x.float(), deltas, queries=True)
    assert "gradient" in found(block, x.float(), deltas.clone().requires_grad_())
    assert "no rows" in found(block, x.float()[:, :0], deltas[:, :0])
    block.train()
    assert found(block, x.float(), deltas) == ""


@pytest.mark.gpu
def test_exact_float32_is_not_fused() -> None:
    block = mixer(PAPER, False, "sequence", backend="auto").float().cuda()
    x, deltas, _ = series(5, 64)
    torch.set_float32_matmul_precision("highest")
    assert "set_float32_matmul_precision" in found(block, x.float().cuda(), deltas.cuda())


@pytest.mark.gpu
def test_auto_fuses_on_a_gpu() -> None:
    torch.set_float32_matmul_precision("high")
    for size in (PAPER, SMALL):
        block = mixer(size, False, "sequence", backend="auto").float().cuda()
        x, deltas, _ = series(5, size[0])
        assert found(block, x.float().cuda(), deltas.float().cuda()) == ""
    causal = mixer(PAPER, True, "prefix", backend="auto").float().cuda()
    x, deltas, _ = series(5, 64)
    assert found(causal, x.float().cuda(), deltas.float().cuda()) == ""


def test_auto_takes_causal_heads_alone_that_have_run_on_long_series() -> None:
    block = mixer((64, 2, 176), True, "sequence", backend="auto")
    call = fusion.Call(torch.device("cuda"), torch.float64, torch.float64, False, (64,), assumed=True)
    assert fusion.explain_mixers([block], call) == (
        'causal heads of 32; "auto" fuses those of (16,)',
        'backend="fused"',
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="tells what the CPU does")
def test_auto_leaves_the_cpu_to_plain_pytorch() -> None:
    block = mixer(SMALL, False, "sequence", backend="auto").float()
    x, deltas, _ = series(5, 32)
    assert "CUDA" in found(block, x.float(), deltas.float())


def test_bad_intervals_are_refused_as_on_the_plain_path(precision: str, device: str) -> None:
    block = mixer(SMALL, False, "sequence")
    x, deltas, _ = series(5, 32)
    x, deltas = entering(x, precision, device), deltas.to(device)
    deltas[1, 2] = -1.0
    block.to(device, x.dtype)
    with pytest.raises(ValueError, match=r"row 1 has deltas\[2\] = -1.0"), torch.no_grad():
        mix([block], x, deltas)
    with checks.skip_value_checks(), torch.no_grad():
        mix([block], x, deltas)


# --- the whole model ---


@torch.no_grad()
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"answer": "step", "causal": True, "gate_norm": "prefix"},
        {"pooling": "mean_last_max"},
    ],
)
def test_a_model_answers_as_the_plain_one(config: dict, precision: str, device: str) -> None:
    model, plain = models(**config)
    exact = plain(irregular_batch(L=40, dtype=torch.float64))
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    batch = irregular_batch(L=40, dtype=torch.float64)
    values = batch.values.to(dtype)
    batch = type(batch)(**{f: getattr(batch, f) for f in batch.__dataclass_fields__} | {"values": values}).to(device)
    model.to(device, dtype)
    plain.to(device, dtype)
    assert model.explain(batch) == fusion.Path("fused model")
    assert plain.explain(batch) == ("plain", "backend='parallel'", 'backend="auto"')
    require_close(model(batch), plain(batch), exact)


@pytest.mark.parametrize("config", [{}, {"causal": True}, {"first_interval": "zero"}])
def test_first_intervals_are_those_of_the_plain_path(config: dict, device: str) -> None:
    model, plain = models(**config)
    lengths = torch.tensor([1100, 700, 1, 0])
    times = torch.rand(4, 1100, generator=torch.Generator().manual_seed(0), dtype=torch.float64).cumsum(1) + 50
    times[2] = 3.0
    batch = IrregularBatch.build(torch.zeros(4, 1100, 3), times, lengths=lengths).to(device)
    model.float().to(device).first_interval.fill_(0.7)
    plain.float().to(device).first_interval.fill_(0.7)
    filled = model.intervals(batch, None)
    assert torch.equal(fusion.fill_intervals(model, batch), filled)
    assert fusion.fill_intervals(plain, batch) is None
    assert torch.equal(filled, plain.intervals(batch, None))
    assert filled[3].tolist() == [0.0] * 1100
    torch.library.opcheck(
        fused.fused_intervals, (batch.deltas, batch.times, batch.lengths, model.first_interval, True, True)
    )


@torch.no_grad()
def test_mixers_that_differ_run_as_modules(precision: str, device: str) -> None:
    batch, answers = irregular_batch(L=40, dtype=torch.float64), {}
    for model, name in zip(models(), ("fused", "parallel"), strict=True):
        torch.manual_seed(1)
        model.mixers[1] = mixer((32, 1, 24), False, "sequence", backend=name)
        answers["exact"] = model(batch) if name == "parallel" else None
        rows = entering(batch.values, precision, device)
        model.to(device, rows.dtype)
        moved = replace(batch, values=rows.cpu(), deltas=batch.deltas.float()).to(device)
        answers[name] = model(moved)
        if name == "fused":
            assert model.explain(moved)[:2] == ("fused operator", "the mixers differ")
    require_close(answers["fused"], answers["parallel"], answers["exact"])


@torch.no_grad()
def test_hooks_on_a_mixer_still_run() -> None:
    model, plain = models()
    if torch.cuda.is_available():
        pytest.skip("a matter of the modules; seen where the interpreter runs")
    batch = irregular_batch(L=20, dtype=torch.float32)
    seen = []
    model.float().mixers[1].register_forward_hook(lambda _module, _args, out: seen.append(out.shape))
    y = model(batch)
    assert seen == [(4, 20, 32)]
    assert torch.allclose(y, plain.float()(batch), atol=1e-5)


@torch.no_grad()
def test_states_keep_the_plain_path(device: str) -> None:
    model, plain = models(causal=True, gate_norm="prefix", answer="step")
    batch = irregular_batch(L=8, dtype=torch.float32).to(device)
    model.float().to(device)
    y, state = model(batch, return_state=True)
    assert torch.allclose(y, plain.float().to(device)(batch), atol=1e-4)
    assert model.explain(batch, state) == ("fused operator", "a state is carried", "answer whole series in one call")


@torch.no_grad()
def test_a_compiled_stack_is_the_eager_one(precision: str, device: str) -> None:
    block = mixer(SMALL, False, "sequence")
    x, deltas, _ = series(17, 32)
    x, deltas = entering(x, precision, device), deltas.to(device, torch.float32)
    block.to(device, x.dtype)
    eager = mix([block], x, deltas)
    compiled = torch.compile(mix, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled([block], x, deltas), eager)


@pytest.mark.parametrize("wrap", ["checkpoint", "compile"])
def test_training_through_wrappers_gives_the_same_gradients(wrap: str, precision: str, device: str) -> None:
    block = mixer(SMALL, False, "sequence")
    x, deltas, _ = series(5, 32)
    x, deltas = entering(x, precision, device).requires_grad_(), deltas.to(device, torch.float32)
    block.to(device, x.dtype)
    parameters = [x, *block.parameters()]
    expected = torch.autograd.grad(mix([block], x, deltas).square().sum(), parameters)
    if wrap == "checkpoint":
        y = checkpoint(mix, [block], x, deltas, use_reentrant=False)
    else:
        y = torch.compile(mix, backend="aot_eager", fullgraph=True)([block], x, deltas)
    for a, b in zip(torch.autograd.grad(y.square().sum(), parameters), expected, strict=True):
        assert torch.equal(a, b)


def test_the_operators_are_what_they_declare(precision: str, device: str) -> None:
    block = mixer(SMALL, True, "prefix")
    x, deltas, lengths = series(17, 32)
    x, deltas = entering(x, precision, device), deltas.to(device, torch.float32)
    weights = [p.detach() for p in kernel_weights(block.to(device, x.dtype))]
    for pool in (False, True):
        torch.library.opcheck(fused.fused_stack, (x, deltas, weights, True, "prefix", lengths.to(device), pool))
    utils = ("test_schema", "test_faketensor")
    torch.library.opcheck(fused.fused_mixer, (x, deltas, weights, True, "prefix"), test_utils=utils)


@pytest.mark.parametrize(
    ("F", "widest", "narrowest", "widths"),
    [(176, 64, 64, [64, 64, 64]), (176, 64, 16, [64, 64, 32, 16]), (40, 64, 16, [32, 16]), (5, 64, 16, [16])],
)
def test_hidden_slices_cover_the_width_once(F: int, widest: int, narrowest: int, widths: list[int]) -> None:
    slices = hidden_slices(F, widest, narrowest)
    assert [width for _, width in slices] == widths
    assert [start for start, _ in slices] == [sum(widths[:n]) for n in range(len(widths))]


@pytest.mark.gpu
@torch.no_grad()
def test_autocast_runs_fused_in_bfloat16() -> None:
    model, plain = models(backend="auto", width=64, heads=4, hidden=176)
    exact = plain(irregular_batch(L=300, dtype=torch.float64))
    batch = irregular_batch(L=300, dtype=torch.float32).to("cuda")
    model.float().cuda()
    plain.float().cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert model.explain(batch).name == "fused model"
        require_close(model(batch), plain(batch), exact)
