"""The fused mixer against the plain one, whose exact numbers are its own in float64.

In Triton's interpreter products are exact float32 ("ieee"); on a GPU the same cases run in TF32 and bfloat16.
"""

import copy
from typing import NamedTuple

import pytest
import torch
from helpers import largest, require_close
from ops.fused.blocks import MODES, PAPER, SMALL, entering, mixer, reason, series
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lformer.nn import LiquidMixer
from lformer.nn.fusion import kernel_weights, mix
from lformer.ops.fused import gate, node, time_mixer
from lformer.ops.fused import mixer as fused


def run(blocks: list[LiquidMixer], x: Tensor, deltas: Tensor, backend: str) -> Tensor:
    for block in blocks:
        block = copy.deepcopy(block)
        block.liquid.backend = backend
        block.to(x.device, x.dtype)
        assert (reason(block, x, deltas) == "") == (backend == "fused")
        x = mix([block], x, deltas) if backend == "fused" else block(x, deltas)
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


@pytest.mark.parametrize(("chunks", "decay_rows"), [(1, 512), (2, 512), (2, 64)])
@pytest.mark.parametrize(("causal", "norm"), MODES)
def test_several_segments_and_a_ragged_last_one(
    causal: bool, norm: str, chunks: int, decay_rows: int, precision: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 200 rows the last segment has 8 or 72: a chunk that is not full, alone and behind another."""
    monkeypatch.setattr(node, "FORCED_CHUNKS", chunks)
    monkeypatch.setattr(gate, "DECAY_ROWS", decay_rows)
    compare(mixer(SMALL, causal, norm), 200, precision, device)


@pytest.mark.gpu
@pytest.mark.parametrize(("causal", "norm"), MODES)
@pytest.mark.parametrize("size", [(32, 1, 88), PAPER, (64, 1, 176), (64, 2, 176)])
def test_every_width_and_the_plan_of_long_series(
    size: tuple[int, int, int], causal: bool, norm: str, precision: str, device: str
) -> None:
    compare(mixer(size, causal, norm), 20_000, precision, device)  # several chunks in every segment


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
    layers = [kernel_weights(copy.deepcopy(block).to(device, x.dtype)) for block in blocks]
    y = fused.stack(x, deltas, layers, causal, norm, lengths.to(device), pool)
    require_close(y, plain(x, deltas), exact)


@torch.no_grad()
def test_pooling_without_lengths_takes_all_rows(precision: str, device: str) -> None:
    block = mixer(SMALL, False, "sequence")
    x, deltas, _ = series(17, SMALL[0])
    x, deltas = entering(x, precision, device), deltas.to(device)
    layers = [kernel_weights(block.to(device, x.dtype))]
    y = fused.stack(x, deltas, layers, False, "sequence", None, True)
    full = torch.full((3,), 17, device=device)
    assert torch.equal(y, fused.stack(x, deltas, layers, False, "sequence", full, True))


@torch.no_grad()
@pytest.mark.parametrize(("causal", "norm"), MODES)
def test_everything_kept_for_the_backward_pass_is_written(causal: bool, norm: str, precision: str, device: str) -> None:
    block = mixer(SMALL, causal, norm)
    x, deltas, _ = series(65, SMALL[0])
    x, deltas = entering(x, precision, device), deltas.to(device, torch.float32)
    *kept, span = fused.fused_mixer(x, deltas, list(kernel_weights(block.to(device, x.dtype))), causal, norm)
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
    y = mix([block], x, deltas)
    garbage = torch.full_like(x, 1e3)
    longer = mix([block], torch.cat([x, garbage], dim=1), torch.cat([deltas, torch.zeros_like(deltas)], dim=1))
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
    weights = list(kernel_weights(block))
    _, _, _, decay, cum, _, _ = fused.fused_mixer(x, deltas, weights, False, "sequence")
    assert 0 < float(decay[:, 1].max()) < 1e-4
    plan = node.plan_of(x, kernel_weights(block), False, "sequence")
    later = time_mixer.accumulate(
        x[:, 1:].contiguous(),
        decay[:, 1:].contiguous(),
        cum[:, 1:].contiguous(),
        kernel_weights(block),
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
            layers = [kernel_weights(block) for block in blocks]
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
        require_close(ours[name], plain[name], exact[name], largest(*exact.values()))
    if pool:
        assert not ours["x"][1].any(), "an empty series has no part in the mean of another"
        assert not ours["x"][2, L - 5 :].any()


def small_stack(precision: str, device: str, depth: int = 1) -> tuple[Tensor, Tensor, Tensor, list[LiquidMixer]]:
    x, deltas, lengths = series(5, SMALL[0])
    x = entering(x, precision, device).requires_grad_()
    blocks = [mixer(SMALL, False, "sequence", seed).to(device, x.dtype) for seed in range(depth)]
    return x, deltas.to(device, torch.float32), lengths.to(device), blocks


def pooled_mean(x: Tensor, deltas: Tensor, lengths: Tensor, blocks: list[LiquidMixer]) -> Tensor:
    return fused.stack(x, deltas, [kernel_weights(b) for b in blocks], False, "sequence", lengths, True)


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
