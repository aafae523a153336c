"""The fused mixer against the plain one, whose exact numbers are its own in float64.

In Triton's interpreter products are exact float32 ("ieee"); on a GPU the same cases run in TF32 and bfloat16.
"""

import copy
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
import torch
from helpers import irregular_batch, require_close
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lformer.batch import IrregularBatch
from lformer.nn import FeedForward, LFormer, LFormerConfig, LiquidGatedAttention, LiquidMixer, SoftmaxAttention, SwiGLU
from lformer.nn.fused_model import why_not_stacked
from lformer.nn.mixer import can_fill
from lformer.ops import checks
from lformer.ops.fused import mixer as fused
from lformer.ops.fused import mixer_launch as launch

MODES = [(False, "sequence"), (True, "sequence"), (True, "prefix")]
SMALL, PAPER = (32, 2, 40), (64, 4, 176)  # D, H, F


@pytest.fixture(
    params=["ieee", pytest.param("tf32", marks=pytest.mark.gpu), pytest.param("bf16", marks=pytest.mark.gpu)]
)
def precision(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "ieee" and torch.cuda.is_available():
        pytest.skip("float32 products are exact in the interpreter alone, which runs where there is no GPU")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if request.param == "tf32" else "highest")
    yield request.param
    torch.set_float32_matmul_precision(before)


@pytest.fixture
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "FORCED_CHUNKS", 1)


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


def run(blocks: list[LiquidMixer], x: Tensor, deltas: Tensor, backend: str) -> Tensor:
    for block in blocks:
        block = copy.deepcopy(block)
        block.liquid.backend = backend
        block.to(x.device, x.dtype)
        assert block.path(x, deltas) == ("fused mixer" if backend == "fused" else backend)
        x = block(x, deltas)
    return x


@torch.no_grad()
def compare(block: LiquidMixer, L: int, precision: str, device: str) -> None:
    x64, deltas, _ = series(L, block.liquid.width)
    exact = run([block], x64, deltas, "parallel")
    x, deltas = entering(x64, precision, device), deltas.to(device, torch.float32)
    require_close(run([block], x, deltas, "fused"), run([block], x, deltas, "parallel"), exact)


@pytest.mark.parametrize(("causal", "norm"), MODES)
@pytest.mark.parametrize("L", [1, 17, 64, 65])
def test_a_block_is_the_plain_one(L: int, causal: bool, norm: str, precision: str, device: str) -> None:
    compare(mixer(SMALL, causal, norm), L, precision, device)


@pytest.mark.parametrize(("causal", "norm"), MODES)
def test_at_the_size_of_the_paper(causal: bool, norm: str, precision: str, device: str) -> None:
    compare(mixer(PAPER, causal, norm, mu="shared"), 70, precision, device)


@pytest.mark.parametrize("chunks", [1, 2])
@pytest.mark.parametrize(("causal", "norm"), MODES)
def test_several_segments_and_a_ragged_last_one(
    causal: bool, norm: str, chunks: int, precision: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "FORCED_CHUNKS", chunks)
    compare(mixer(SMALL, causal, norm), 150, precision, device)


@pytest.mark.gpu
@pytest.mark.parametrize(("causal", "norm"), MODES)
@pytest.mark.parametrize("size", [(32, 1, 88), PAPER, (64, 1, 176), (128, 8, 352), (128, 2, 352)])
def test_every_width_and_the_plan_of_long_series(
    size: tuple[int, int, int], causal: bool, norm: str, precision: str, device: str
) -> None:
    compare(mixer(size, causal, norm), 5000, precision, device)


@torch.no_grad()
@pytest.mark.usefixtures("short_segments")
@pytest.mark.parametrize("pool", [False, True])
@pytest.mark.parametrize(("causal", "norm"), [MODES[0], MODES[2]])
def test_a_stack_is_its_blocks(causal: bool, norm: str, pool: bool, precision: str, device: str) -> None:
    blocks = [mixer(SMALL, causal, norm, seed) for seed in (0, 1)]
    x64, deltas, lengths = series(70, SMALL[0])

    def plain(x: Tensor, deltas: Tensor) -> Tensor:
        y = run(blocks, x, deltas, "parallel")
        return fused._pooled(y, lengths.to(y.device)) if pool else y

    exact = plain(x64, deltas)
    x, deltas = entering(x64, precision, device), deltas.to(device, torch.float32)
    layers = [copy.deepcopy(block).to(device, x.dtype).fused_weights() for block in blocks]
    y = fused.stack(x, deltas, layers, causal, norm, lengths.to(device), pool)
    require_close(y, plain(x, deltas), exact)


@torch.no_grad()
def test_pooling_without_lengths_takes_all_rows(precision: str, device: str) -> None:
    block = mixer(SMALL, False, "sequence")
    x, deltas, _ = series(17, SMALL[0])
    x, deltas = entering(x, precision, device), deltas.to(device)
    layers = [block.to(device, x.dtype).fused_weights()]
    y = fused.stack(x, deltas, layers, False, "sequence", None, True)
    full = torch.full((3,), 17, device=device)
    assert torch.equal(y, fused.stack(x, deltas, layers, False, "sequence", full, True))


@torch.no_grad()
@pytest.mark.parametrize(("causal", "norm"), MODES)
def test_everything_kept_for_the_backward_pass_is_written(causal: bool, norm: str, precision: str, device: str) -> None:
    block = mixer(SMALL, causal, norm)
    x, deltas, _ = series(65, SMALL[0])
    x, deltas = entering(x, precision, device), deltas.to(device, torch.float32)
    *kept, span = fused.fused_mixer(x, deltas, list(block.to(device, x.dtype).fused_weights()), causal, norm)
    assert all(bool(torch.isfinite(t).all()) for t in kept)
    decay = kept[3].double()
    if causal:
        assert torch.allclose(span.double().sum(1), decay.sum(1))
    else:
        assert torch.allclose(kept[4].double(), decay.cumsum(1), atol=1e-6)


@torch.no_grad()
@pytest.mark.usefixtures("short_segments")
@pytest.mark.parametrize(("causal", "norm"), MODES)
def test_appended_padding_changes_nothing(causal: bool, norm: str, precision: str, device: str) -> None:
    block = mixer(SMALL, causal, norm)
    x, deltas, _ = series(70, SMALL[0])
    x, deltas = entering(x, precision, device), deltas.to(device, torch.float32)
    block.to(device, x.dtype)
    y = block(x, deltas)
    garbage = torch.full_like(x, 1e3)
    longer = block(torch.cat([x, garbage], dim=1), torch.cat([deltas, torch.zeros_like(deltas)], dim=1))
    assert torch.allclose(
        longer[:, :70].double(), y.double(), rtol=0, atol=4 * torch.finfo(x.dtype).eps * float(y.abs().max())
    )


@torch.no_grad()
def test_series_without_any_interval_write_nothing(precision: str, device: str) -> None:
    for causal, norm in MODES:
        block = mixer(SMALL, causal, norm)
        x64 = series(3, SMALL[0])[0]
        exact = run([block], x64, torch.zeros(3, 3), "parallel")
        x, deltas = entering(x64, precision, device), torch.zeros(3, 3, device=device)
        require_close(run([block], x, deltas, "fused"), run([block], x, deltas, "parallel"), exact)


@torch.no_grad()
@pytest.mark.skipif(torch.cuda.is_available(), reason="rounded products would hide the digits in question")
def test_tiny_shares_keep_their_digits() -> None:
    """The first gap is a hundred thousand times the others: their decays are tiny, and 1 - e^{-û} must not cancel."""
    block = mixer(SMALL, False, "sequence").float()
    x, deltas, _ = series(17, SMALL[0])
    x, deltas = x.float(), deltas.float()
    deltas[:, 0] = 1e5 * deltas.amax(dim=1)
    block.time_mixer.key.weight.zero_()  # then every row writes the same key and value
    block.time_mixer.key.bias.fill_(1.0)
    block.time_mixer.value.weight.zero_()
    block.time_mixer.value.bias.fill_(1.0)
    weights = list(block.fused_weights())
    _, _, _, decay, cum, _, _ = fused.fused_mixer(x, deltas, weights, False, "sequence")
    assert 0 < float(decay[:, 1].max()) < 1e-4
    plan = fused._plan(x, block.fused_weights(), False, "sequence")
    later = launch.accumulate(
        x[:, 1:].contiguous(),
        decay[:, 1:].contiguous(),
        cum[:, 1:].contiguous(),
        block.fused_weights(),
        plan._replace(L=16),
    )
    exact = (torch.exp(cum.double()) * -torch.expm1(-decay.double()))[:, 1:].sum(dim=1)
    assert torch.allclose(later[:, 0, :, 0, 0].double(), exact, rtol=1e-6, atol=0)


# --- training ---


class Stack(NamedTuple):
    """Three layers, rows and intervals; the second series is empty and the third ends early."""

    blocks: list[LiquidMixer]
    x: Tensor
    deltas: Tensor
    lengths: Tensor
    pool: bool

    def gradients(self, dtype: torch.dtype, device: str, backend: str) -> dict[str, Tensor]:
        """Of the rows and of every part of a layer, all layers together: few numbers have an error by luck."""
        blocks = nn.ModuleList(copy.deepcopy(self.blocks)).to(device, dtype)
        x, lengths = self.x.detach().clone().to(device, dtype).requires_grad_(), self.lengths.to(device)
        deltas = self.deltas.to(device, torch.promote_types(dtype, torch.float32))
        if backend == "fused":
            liquid = blocks[0].liquid
            layers = [block.fused_weights() for block in blocks]
            y = fused.stack(x, deltas, layers, liquid.causal, liquid.gate_norm, lengths, self.pool)
        else:
            y = x
            for block in blocks:
                block.liquid.backend = backend
                y = block(y, deltas)
            y = fused._pooled(y, lengths) if self.pool else y
        weight = torch.randn(y.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        (y * weight.to(device, dtype)).sum().backward()
        grads: dict[str, list[Tensor]] = {"x": [x.grad]}
        for name, p in blocks.named_parameters():
            part = name.split(".", 1)[1].rsplit(".", 1)[0].replace(".mu", ".gate")
            grads.setdefault(part, []).append(p.grad.flatten())
        return {name: torch.cat(parts) for name, parts in grads.items()}


def stacked(L: int, causal: bool, norm: str, mu: str, pool: bool) -> Stack:
    x, deltas, _ = series(L, SMALL[0])
    lengths = torch.tensor([L, 0, max(1, L - 5)])
    deltas = deltas * (torch.arange(L) < lengths[:, None])
    return Stack([mixer(SMALL, causal, norm, seed, mu=mu) for seed in (0, 1, 2)], x, deltas, lengths, pool)


@pytest.mark.usefixtures("short_segments")
@pytest.mark.parametrize(
    ("L", "causal", "norm", "mu", "pool"),
    [
        (66, False, "sequence", "per_head", True),
        (30, True, "prefix", "shared", True),
        (30, True, "sequence", "fixed", True),
        (30, False, "sequence", "shared", False),
    ],
)
def test_gradients_of_a_stack_are_those_of_its_blocks(
    L: int, causal: bool, norm: str, mu: str, pool: bool, precision: str, device: str
) -> None:
    stack = stacked(L, causal, norm, mu, pool)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    exact = stack.gradients(torch.float64, "cpu", "parallel")
    plain, ours = stack.gradients(dtype, device, "parallel"), stack.gradients(dtype, device, "fused")
    for name in exact:
        require_close(ours[name], plain[name], exact[name])
    if pool:
        assert not ours["x"][1].any(), "an empty series has no part in the mean of another"
        assert not ours["x"][2, L - 5 :].any()


def small_stack(precision: str, device: str, depth: int = 1) -> tuple[Tensor, Tensor, Tensor, list[LiquidMixer]]:
    x, deltas, lengths = series(5, SMALL[0])
    x = entering(x, precision, device).requires_grad_()
    blocks = [mixer(SMALL, False, "sequence", seed).to(device, x.dtype) for seed in range(depth)]
    return x, deltas.to(device, torch.float32), lengths.to(device), blocks


def pooled_mean(x: Tensor, deltas: Tensor, lengths: Tensor, blocks: list[LiquidMixer]) -> Tensor:
    return fused.stack(x, deltas, [b.fused_weights() for b in blocks], False, "sequence", lengths, True)


def test_what_needs_no_gradient_gets_none_and_changes_no_other(precision: str, device: str) -> None:
    x, deltas, lengths, blocks = small_stack(precision, device)
    parameters = [p for block in blocks for p in block.parameters()]
    pooled_mean(x, deltas, lengths, blocks).square().sum().backward()
    expected = [p.grad for p in parameters]
    for n, p in enumerate(parameters):
        p.grad = None
        p.requires_grad_(n % 3 == 0)
    pooled_mean(x.detach(), deltas, lengths, blocks).square().sum().backward()
    for n, (p, g) in enumerate(zip(parameters, expected, strict=True)):
        assert torch.equal(p.grad, g) if n % 3 == 0 else p.grad is None
    for p in parameters:
        p.requires_grad_(False)
    assert not pooled_mean(x.detach(), deltas, lengths, blocks).requires_grad
    x.grad = None
    pooled_mean(x, deltas, lengths, blocks).square().sum().backward()
    assert x.grad.any()


def test_an_answer_may_be_used_twice_and_differentiated_again(precision: str, device: str) -> None:
    x, deltas, lengths, blocks = small_stack(precision, device)
    inputs = [x, *blocks[0].parameters()]
    y = pooled_mean(x, deltas, lengths, blocks)
    once = torch.autograd.grad(y.sum(), inputs, retain_graph=True)
    twice = torch.autograd.grad(y.sum() + y.sum(), inputs)
    for a, b in zip(once, twice, strict=True):
        assert torch.equal(2 * a, b)


def test_a_stack_may_be_computed_again_instead_of_kept(precision: str, device: str) -> None:
    x, deltas, lengths, blocks = small_stack(precision, device, depth=2)
    inputs = [x, *blocks[0].parameters(), *blocks[1].parameters()]
    expected = torch.autograd.grad(pooled_mean(x, deltas, lengths, blocks).square().sum(), inputs)
    y = checkpoint(pooled_mean, x, deltas, lengths, blocks, use_reentrant=False)
    for a, b in zip(torch.autograd.grad(y.square().sum(), inputs), expected, strict=True):
        assert torch.equal(a, b)


def test_a_weight_that_was_changed_in_between_is_noticed(precision: str, device: str) -> None:
    x, deltas, lengths, blocks = small_stack(precision, device)
    y = pooled_mean(x, deltas, lengths, blocks)
    with torch.no_grad():
        blocks[0].liquid.mu.theta.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


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


def dropping(block: LiquidMixer) -> None:
    block.dropout.p = 0.5


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
        (dropping, "dropout"),
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
    assert reason in block.why_not_fused(x, deltas)
    assert block.path(x, deltas) != "fused mixer"


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
    assert reason in block.why_not_fused(x.to(device, torch.float32), deltas.to(device, torch.float32))


def test_rows_without_kernels_are_not_fused(device: str) -> None:
    block = mixer(SMALL, False, "sequence").to(device)
    x, deltas, _ = series(5, 32)
    x, deltas = x.to(device), deltas.to(device)
    assert "float64" in block.why_not_fused(x, deltas)
    assert "float16" in block.half().why_not_fused(x.half(), deltas)
    assert "parameters are torch.float16" in block.why_not_fused(x.float(), deltas)
    block.float()
    if device == "cuda":
        torch.set_float32_matmul_precision("high")
    assert block.why_not_fused(x.float(), deltas) == ""
    assert "read" in block.why_not_fused(x.float(), deltas, deltas > 0)
    assert "gradient" in block.why_not_fused(x.float(), deltas.clone().requires_grad_())
    assert "no rows" in block.why_not_fused(x.float()[:, :0], deltas[:, :0])
    block.train()
    assert block.why_not_fused(x.float(), deltas) == ""


@pytest.mark.gpu
def test_exact_float32_is_not_fused() -> None:
    block = mixer(PAPER, False, "sequence", backend="auto").float().cuda()
    x, deltas, _ = series(5, 64)
    torch.set_float32_matmul_precision("highest")
    assert "set_float32_matmul_precision" in block.why_not_fused(x.float().cuda(), deltas.cuda())


@pytest.mark.gpu
def test_auto_fuses_on_a_gpu() -> None:
    torch.set_float32_matmul_precision("high")
    for size in (PAPER, SMALL):
        block = mixer(size, False, "sequence", backend="auto").float().cuda()
        x, deltas, _ = series(5, size[0])
        assert block.path(x.float().cuda(), deltas.float().cuda()) == "fused mixer"


@pytest.mark.skipif(torch.cuda.is_available(), reason="tells what the CPU does")
def test_auto_leaves_the_cpu_to_plain_pytorch() -> None:
    block = mixer(SMALL, False, "sequence", backend="auto").float()
    x, deltas, _ = series(5, 32)
    assert block.path(x.float(), deltas.float()) == "parallel"
    assert "CUDA" in block.why_not_fused(x.float(), deltas.float())


def test_bad_intervals_are_refused_as_on_the_plain_path(precision: str, device: str) -> None:
    block = mixer(SMALL, False, "sequence")
    x, deltas, _ = series(5, 32)
    x, deltas = entering(x, precision, device), deltas.to(device)
    deltas[1, 2] = -1.0
    block.to(device, x.dtype)
    with pytest.raises(ValueError, match=r"row 1 has deltas\[2\] = -1.0"), torch.no_grad():
        block(x, deltas)
    with checks.trusted(), torch.no_grad():
        block(x, deltas)


# --- the whole model ---


def models(**config: object) -> tuple[LFormer, LFormer]:
    torch.manual_seed(0)
    settings = {"inputs": 3, "outputs": 2, "width": 32, "heads": 2, "hidden": 40, "backend": "fused"} | config
    model = LFormer(LFormerConfig(**settings)).double()
    plain = LFormer(LFormerConfig(**settings | {"backend": "parallel"})).double()
    plain.load_state_dict(model.state_dict())
    return model, plain


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
    assert model.path(batch) == "fused mixer"
    assert model.why_not_fused(batch) == ""
    assert plain.path(batch) == "parallel"
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
    assert can_fill(batch.deltas, model.config.backend)
    assert not can_fill(batch.deltas, "parallel")
    assert torch.equal(filled, plain.intervals(batch, None))
    assert filled[3].tolist() == [0.0] * 1100
    torch.library.opcheck(
        fused.fused_intervals, (batch.deltas, batch.times, batch.lengths, model.first_interval, True, True)
    )


@torch.no_grad()
def test_mixers_that_differ_are_fused_one_by_one(precision: str, device: str) -> None:
    batch, answers = irregular_batch(L=40, dtype=torch.float64), {}
    for model, name in zip(models(), ("fused", "parallel"), strict=True):
        torch.manual_seed(1)
        model.mixers[1] = mixer((32, 1, 24), False, "sequence", backend=name)
        answers["exact"] = model(batch) if name == "parallel" else None
        rows = entering(batch.values, precision, device)
        model.to(device, rows.dtype)
        moved = type(batch)(**{f: getattr(batch, f) for f in batch.__dataclass_fields__} | {"values": rows}).to(device)
        answers[name] = model(moved)
        if name == "fused":
            assert model.path(moved) == "fused mixer"
            x, deltas, _, reads, _ = model._rows(moved, None)
            assert why_not_stacked(model.blocks, x, deltas, reads) == "the mixers differ"
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
def test_states_and_queries_keep_the_plain_path(device: str) -> None:
    model, plain = models(causal=True, gate_norm="prefix", answer="step")
    batch = irregular_batch(L=8, dtype=torch.float32).to(device)
    model.float().to(device)
    y, state = model(batch, return_state=True)
    assert torch.allclose(y, plain.float().to(device)(batch), atol=1e-4)
    assert "state" in model.why_not_fused(batch, state)
    assert model.path(batch, state) == "fused"
    asking, _ = models(answer="query")
    asking.float().to(device)
    assert "read" in asking.why_not_fused(batch.with_queries(batch.times[:, :2]))


@torch.no_grad()
def test_a_compiled_stack_is_the_eager_one(precision: str, device: str) -> None:
    block = mixer(SMALL, False, "sequence")
    x, deltas, _ = series(17, 32)
    x, deltas = entering(x, precision, device), deltas.to(device, torch.float32)
    block.to(device, x.dtype)
    eager = block(x, deltas)
    compiled = torch.compile(block, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x, deltas), eager)


@pytest.mark.parametrize("wrap", ["checkpoint", "compile"])
def test_training_through_wrappers_gives_the_same_gradients(wrap: str, precision: str, device: str) -> None:
    block = mixer(SMALL, False, "sequence")
    x, deltas, _ = series(5, 32)
    x, deltas = entering(x, precision, device).requires_grad_(), deltas.to(device, torch.float32)
    block.to(device, x.dtype)
    parameters = [x, *block.parameters()]
    expected = torch.autograd.grad(block(x, deltas).square().sum(), parameters)
    if wrap == "checkpoint":
        y = checkpoint(block, x, deltas, use_reentrant=False)
    else:
        y = torch.compile(block, backend="aot_eager", fullgraph=True)(x, deltas)
    for a, b in zip(torch.autograd.grad(y.square().sum(), parameters), expected, strict=True):
        assert torch.equal(a, b)


def test_the_operators_are_what_they_declare(precision: str, device: str) -> None:
    block = mixer(SMALL, True, "prefix")
    x, deltas, lengths = series(17, 32)
    x, deltas = entering(x, precision, device), deltas.to(device, torch.float32)
    weights = [p.detach() for p in block.to(device, x.dtype).fused_weights()]
    for pool in (False, True):
        torch.library.opcheck(fused.fused_stack, (x, deltas, weights, True, "prefix", lengths.to(device), pool))
    utils = ("test_schema", "test_faketensor")
    torch.library.opcheck(fused.fused_mixer, (x, deltas, weights, True, "prefix"), test_utils=utils)


@pytest.mark.parametrize(
    ("F", "widest", "narrowest", "widths"),
    [(176, 64, 64, [64, 64, 64]), (176, 64, 16, [64, 64, 32, 16]), (40, 64, 16, [32, 16]), (5, 64, 16, [16])],
)
def test_hidden_slices_cover_the_width_once(F: int, widest: int, narrowest: int, widths: list[int]) -> None:
    slices = launch.hidden_slices(F, widest, narrowest)
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
        assert model.path(batch) == "fused mixer"
        require_close(model(batch), plain(batch), exact)
