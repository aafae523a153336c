"""Dropout inside the fused kernels against the plain modules in float64, which drop exactly the same numbers.

In Triton's interpreter products are exact float32 ("ieee"); on a GPU the same cases run in TF32 and bfloat16.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import triton.language as tl
from helpers import largest, relative_error, require_close
from ops.fused.blocks import PAPER, SMALL, entering, gradients, mixer, path, ragged, series, together, whole_models
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lformer.batch import IrregularBatch
from lformer.draws import Draws, drawing_from
from lformer.nn import LFormer, LiquidMixer
from lformer.nn.dropout import draw_seed
from lformer.nn.fusion import kernel_weights
from lformer.ops.dropout import CHANNEL, EMBEDDER, TIME, Dropping, kept_factors, levels, place
from lformer.ops.fused import dropout as kernels
from lformer.ops.fused import mixer as fused
from lformer.ops.fused.plan import OPERANDS
from lformer.ops.fused.tiles import kernel

SEED = 5


class Given(nn.Module):
    """In the place of a Dropout: multiplies with given factors, one after the other and over again."""

    def __init__(self, factors: Sequence[Tensor]) -> None:
        super().__init__()
        self.factors, self.turn = list(factors), 0

    def forward(self, x: Tensor) -> Tensor:
        factor = self.factors[self.turn % len(self.factors)]
        self.turn += 1
        return (x * factor.view(x.shape).to(x.device)).to(x.dtype)  # in float64: no factor is rounded


def given(seed: int, places: Sequence[int], rows: int, width: int, p: float) -> Given:
    return Given([kept_factors(seed, at, rows, width, p) for at in places])


def branches(layer: int) -> list[int]:
    return [place(layer, TIME), place(layer, CHANNEL)]


def next_seed(device: str) -> int:
    """The one that the next call draws."""
    torch.manual_seed(SEED)
    seed = int(draw_seed(torch.device(device)))
    torch.manual_seed(SEED)
    return seed


# --- the hash ---


@kernel
def factors_kernel(out, seed, place, dropped, first, T: tl.constexpr, D: tl.constexpr):
    tile = kernels.drop(tl.full((T, D), 1.0, tl.float32), kernels.load_keys(seed, place), dropped, first, T, D)
    tl.store(out + tl.arange(0, T)[:, None] * D + tl.arange(0, D)[None, :], tile)


@pytest.mark.parametrize(
    ("seed", "at", "first", "p"), [(2**63 - 1, EMBEDDER, 0, 0.1), (0, 0, 3, 0.5), (-(2**40) + 7, 5, 70_000, 0.9)]
)
def test_kernels_drop_what_the_definition_says(seed: int, at: int, first: int, p: float, device: str) -> None:
    out = torch.empty(64, 32, device=device)
    keys = torch.tensor(seed, device=device)
    factors_kernel[(1,)](out, keys, at, levels(p), first, T=64, D=32)
    expected = kept_factors(seed, at, first + 64, 32, p)[first:].float()
    assert torch.equal(out.cpu() > 0, expected > 0)
    assert relative_error(out.cpu(), expected) < 2.0**-22


# --- mixers ---


def stack_gradients(blocks: Sequence[LiquidMixer], x: Tensor, run: Any) -> list[Tensor]:
    """The result of `run(x)` and the gradients of a weighted sum of it: of the rows, of each parameter."""
    x = x.detach().requires_grad_()
    y = run(x)
    weight = torch.randn(y.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64).to(y)
    parameters = [p for block in blocks for p in kernel_weights(block)]
    return [y.detach(), *torch.autograd.grad((y * weight).sum(), [x, *parameters])]


def moved(blocks: Sequence[LiquidMixer], like: Tensor) -> list[LiquidMixer]:
    return [copy.deepcopy(block).to(like.device, like.dtype) for block in blocks]


@pytest.mark.usefixtures("short_segments")
@pytest.mark.parametrize(
    ("size", "causal", "norm", "p", "pool"),
    [
        (SMALL, False, "sequence", 0.5, False),
        (SMALL, True, "prefix", 0.1, True),
        (SMALL, True, "sequence", 0.5, False),
        pytest.param(PAPER, False, "sequence", 0.1, True, marks=pytest.mark.gpu),
        pytest.param(PAPER, True, "prefix", 0.5, False, marks=pytest.mark.gpu),
    ],
)
def test_a_stack_drops_and_learns_as_the_plain_one(
    size: tuple[int, int, int], causal: bool, norm: str, p: float, pool: bool, precision: str, device: str
) -> None:
    blocks = [mixer(size, causal, norm, seed) for seed in range(2)]
    x64, deltas64, lengths = series(70, size[0])
    seed = torch.tensor(1234567890123456789)

    def plain(like: Tensor, deltas: Tensor) -> list[Tensor]:
        own = moved(blocks, like)
        for layer, block in enumerate(own):
            block.dropout = given(int(seed), branches(layer), 3 * 70, size[0], p)

        def run(x: Tensor) -> Tensor:
            for block in own:
                block.liquid.backend = "parallel"
                x = block(x, deltas)
            return fused._pooled(x, lengths.to(x.device)) if pool else x

        return stack_gradients(own, like, run)

    exact = plain(x64, deltas64)
    x, deltas = entering(x64, precision, device), deltas64.to(device, torch.float32)
    own, dropping = moved(blocks, x), Dropping(seed.to(device), p)
    layers = [kernel_weights(block) for block in own]
    ours = stack_gradients(
        own, x, lambda x: fused.stack(x, deltas, layers, causal, norm, lengths.to(device), pool, dropping)
    )
    theirs = plain(x, deltas)
    require_close(ours[0], theirs[0], exact[0])
    for gradient, other, true in zip(*map(grouped, (ours, theirs, exact)), strict=True):
        require_close(gradient, other, true, largest(*exact[1:]))


def grouped(found: list[Tensor]) -> list[Tensor]:
    """Gradients of rows and layers: weights with their biases, the gate with mu, as a handful has an error by luck."""
    _, x, *weights = found
    sizes = [2, 2, 2, 2, 2, 3, 1, 2, 1, 1]  # of `MixerWeights`
    parts = iter(weights)
    layers = len(weights) // sum(sizes)
    return [x, *(torch.cat([next(parts).flatten() for _ in range(size)]) for size in sizes * layers)]


@pytest.mark.parametrize(("causal", "norm"), [(False, "sequence"), (True, "prefix")])
def test_float16_operands_hold_what_dropout_makes_larger(
    causal: bool, norm: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine of ten numbers go, and the others are ten times as large: no operand overflows, and none becomes 0."""
    if device == "cuda":
        pytest.skip("seen where the interpreter runs; the tests of the GPU have float16 operands anyway")
    block, (x, deltas, _) = mixer(SMALL, causal, norm).float(), series(20, SMALL[0])
    x, deltas, weights = x.float(), deltas.float(), [kernel_weights(block)]
    dropping = Dropping(torch.tensor(3), 0.9)

    def run(scale: float) -> list[Tensor]:
        return stack_gradients(
            [block], x, lambda x: scale * fused.stack(x, deltas, weights, causal, norm, dropping=dropping)
        )

    exact = run(1.0)
    monkeypatch.setitem(OPERANDS, "ieee", "fp16")
    half, small = run(1.0), run(2.0**-40)
    for gradient, true, scaled in zip(half[1:], exact[1:], small[1:], strict=True):
        assert relative_error(gradient, true, largest(*exact[1:])) < 2.0**-9
        assert torch.equal(gradient * 2.0**-40, scaled)


# --- whole models ---


def dropping_models(p: float, **config: Any) -> tuple[LFormer, LFormer]:
    """In training; the plain one does not know yet what to drop."""
    model, plain = whole_models(dropout=p, **config)
    return model.train(), plain.train()


def give(plain: LFormer, seed: int, rows: int) -> None:
    """Have the plain model drop what the kernels do."""
    width, p = plain.config.width, plain.config.dropout
    plain.dropout = given(seed, [EMBEDDER], rows, width, p)
    for layer, block in enumerate(plain.blocks):
        block.dropout = given(seed, branches(layer), rows, width, p)


@pytest.mark.parametrize(
    ("p", "config", "L", "kernels"),
    [
        (0.1, {"inputs": 12, "outputs": 7}, 70, ["embed", "answers"]),
        (0.5, {"answer": "step", "causal": True, "gate_norm": "prefix", "depth": 1}, 70, ["embed"]),
    ],
)
@pytest.mark.usefixtures("short_segments")
def test_a_model_learns_as_the_plain_one(
    p: float, config: dict[str, Any], L: int, kernels: list[str], dtype: torch.dtype, device: str, launched: list[str]
) -> None:
    model, plain = dropping_models(p, **config)
    C, seed = model.config.inputs, next_seed(device)
    give(plain, seed, 3 * L)
    exact = together(gradients(plain, ragged(L, C, torch.float64)))
    batch = ragged(L, C, dtype).to(device)
    model.to(device, dtype)
    plain.to(device, dtype)
    assert path(model, batch).name == "fused model"
    ours, theirs = together(gradients(model, batch)), together(gradients(plain, batch))
    for name, gradient in exact.items():
        require_close(ours[name], theirs[name], gradient, largest(*exact.values()))
    assert launched == kernels


def test_mixers_behind_an_embedder_of_modules_drop_too(device: str) -> None:
    torch.set_float32_matmul_precision("high" if device == "cuda" else "highest")
    model, plain = dropping_models(0.3, embedder="relu", depth=1)
    batch = ragged(20, 3, torch.float32).to(device)
    for one in (model, plain):
        one.float().to(device).dropout.eval()
    give(plain, next_seed(device), 3 * 20)
    plain.dropout = nn.Identity()
    assert path(model, batch).name == "fused mixers"
    assert relative_error(model(batch), plain(batch)) < (1e-2 if device == "cuda" else 1e-5)


# --- draws ---


def small(device: str, p: float = 0.5) -> tuple[LFormer, IrregularBatch]:
    torch.set_float32_matmul_precision("high" if device == "cuda" else "highest")
    model, _ = dropping_models(p, depth=1)
    return model.float().to(device), ragged(3, 3, torch.float32, B=1).to(device)


def test_every_call_draws_anew_from_the_generator_of_the_run(device: str) -> None:
    model, batch = small(device)
    draws = Draws(torch.device(device))
    answers: list[Tensor] = []
    for number in (1, 1, 2):
        draws.seed(number)
        with drawing_from(draws), torch.no_grad():
            answers += [model(batch), model(batch)]
    first, second, again, and_again, other, _ = answers
    assert torch.equal(first, again)
    assert torch.equal(second, and_again)
    assert not torch.equal(first, second)
    assert not torch.equal(first, other)


def test_without_dropout_nothing_is_drawn(device: str) -> None:
    for model, batch in (small(device, 0.0), small(device)):
        model.train(model.config.dropout == 0)
        torch.manual_seed(1)
        before = torch.cuda.get_rng_state() if device == "cuda" else torch.get_rng_state()
        first = model(batch)
        assert torch.equal(before, torch.cuda.get_rng_state() if device == "cuda" else torch.get_rng_state())
        assert torch.equal(first, model(batch))


def test_a_checkpoint_drops_the_same_again(device: str) -> None:
    model, batch = small(device)
    found = []
    for run in (model, lambda batch: checkpoint(model, batch, use_reentrant=False)):
        torch.manual_seed(1)
        found.append(torch.autograd.grad(run(batch).square().sum(), list(model.parameters())))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


# --- what is not fused ---


def test_compiled_code_drops_by_modules(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never silently nothing: the operators of a compiled graph refuse, and a model does not ask them."""
    model, batch = small(device)
    calm = copy.deepcopy(model).eval()
    with torch.no_grad():
        answers = [torch.compile(one, backend="eager")(batch) for one in (calm, model, model)]
    assert len({float(y.sum()) for y in answers}) == 3
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert "operators that drop nothing" in path(model, batch).reason
    x, deltas, _ = series(5, 32)
    weights, dropping = [kernel_weights(model.blocks[0])], Dropping(torch.tensor(1), 0.5)
    with pytest.raises(NotImplementedError, match="drop nothing"):
        fused.stack(x.float(), deltas, weights, False, "sequence", dropping=dropping)


def test_mixers_that_drop_other_shares_run_as_modules(device: str) -> None:
    model, batch = small(device)
    model.mixers.append(copy.deepcopy(model.mixers[0]))
    assert path(model, batch).name == "fused model"
    model.mixers[1].dropout.p = 0.1
    assert "dropout" in path(model, batch).remedy
    model.mixers[1].dropout.p = 0.5
    model.mixers[1].eval()
    assert path(model, batch).reason == "the mixers differ"
    model.mixers[0].eval()
    assert path(model, batch).name == "fused model"


def test_dropping_everything_is_left_to_modules(device: str) -> None:
    model, batch = small(device)
    model.dropout.p = 1.0
    assert path(model, batch).name == "fused mixers"
    model.mixers[0].dropout.p = 1.0
    assert "dropout" in path(model, batch).reason
