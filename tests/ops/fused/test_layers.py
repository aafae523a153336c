"""Fused layers against plain modules, whose exact numbers are their own in float64: output and every gradient.

In Triton's interpreter products are PyTorch's own, in float32; on a GPU the same cases run in TF32 and bfloat16.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import pytest
import torch
from helpers import irregular_batch, largest, require_close
from ops.fused.blocks import SMALL, entering, mixer, models, path, series
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lformer import ops
from lformer.cuda_graphs import capture_step
from lformer.draws import Draws, drawing_from
from lformer.nn import LiquidMixer, fusion
from lformer.nn.fusion import kernel_weights, mix_layers
from lformer.ops import checks
from lformer.ops.dropout import Dropping, kept_factors, place
from lformer.ops.fused import decays, layers
from lformer.ops.fused import row_kernels as rows
from lformer.ops.fused.mixer import _pooled

SIZE = (48, 6, 40)  # D, H, F: no power of two but the heads


class Kept(nn.Module):
    """Dropout of a layer as `kept_factors` tells, at the end of its time mixer and of its channel mixer by turns."""

    def __init__(self, seed: int, layer: int, p: float) -> None:
        super().__init__()
        self.seed, self.layer, self.p, self.calls = seed, layer, p, 0

    def forward(self, x: Tensor) -> Tensor:
        factors = kept_factors(self.seed, place(self.layer, self.calls % 2), x[..., 0].numel(), x.shape[-1], self.p)
        self.calls += 1
        return x * factors.view(x.shape).to(x)


# --- output and gradients ---


class Case(NamedTuple):
    size: tuple[int, int, int]
    causal: bool
    norm: str
    L: int
    queries: bool = False
    dropout: float = 0.0
    mu: str = "per_head"
    pool: bool = False


CASES = {
    "heads of 8": Case(SIZE, False, "sequence", 70),
    "heads of 8, causal": Case(SIZE, True, "prefix", 70, mu="shared"),
    "heads of 16, queries": Case((48, 3, 132), False, "sequence", 30, queries=True),
    "prefix, not causal": Case((32, 1, 40), False, "prefix", 17, mu="fixed"),
    "queries, causal": Case((128, 16, 40), True, "prefix", 20, queries=True),
    "one head of 128": Case((128, 1, 72), True, "sequence", 17, queries=True, dropout=0.2),
    "dropout": Case(SIZE, False, "sequence", 30, dropout=0.3),
    "mean": Case(SIZE, False, "sequence", 30, dropout=0.3, pool=True),
    "one row": Case(SIZE, False, "sequence", 1),
}
LONG = {
    "width 128": Case((128, 4, 352), False, "sequence", 3000, pool=True),
    "width 128, causal": Case((128, 2, 352), True, "prefix", 3000, dropout=0.1),
    "width 256": Case((256, 2, 704), False, "sequence", 1000, queries=True),
    "width 512, causal": Case((512, 8, 128), True, "sequence", 500),
}


class Work(NamedTuple):
    blocks: list[LiquidMixer]  # in float64
    x: Tensor
    deltas: Tensor
    lengths: Tensor  # the second series is empty
    is_query: Tensor | None
    seed: int | None  # of dropout
    case: Case

    def results(self, dtype: torch.dtype, device: str, fused: bool, size: float = 1.0) -> dict[str, Tensor]:
        """Output, gradient of the rows and of every part of a layer, all layers together, of a loss times `size`."""
        blocks = nn.ModuleList(copy.deepcopy(self.blocks)).to(device, dtype)
        x = self.x.to(device, dtype).clone().requires_grad_()
        deltas = self.deltas.to(device, torch.promote_types(dtype, torch.float32))
        is_query = None if self.is_query is None else self.is_query.to(device)
        case = self.case
        if fused:
            weights = [kernel_weights(block) for block in blocks]
            dropping = None if self.seed is None else Dropping(torch.tensor(self.seed, device=device), case.dropout)
            lengths = self.lengths.to(device) if case.pool else None
            y = layers.stack(x, deltas, weights, case.causal, case.norm, is_query, lengths, dropping)
        else:
            y = x
            for n, block in enumerate(blocks):
                block.liquid.backend = "parallel"
                if self.seed is not None:
                    block.dropout = Kept(self.seed, n, case.dropout)
                y = block(y, deltas, is_query=is_query)
            y = _pooled(y, self.lengths.to(device)) if case.pool else y
        weight = torch.randn(y.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        (y * (weight * size).to(device, dtype)).sum().backward()
        found: dict[str, list[Tensor]] = {"y": [y.detach()], "x": [x.grad]}
        for name, p in blocks.named_parameters():
            part = name.split(".", 1)[1].rsplit(".", 1)[0].replace(".mu", ".gate")
            found.setdefault(part, []).append(p.grad.flatten())
        return {name: torch.cat(parts) for name, parts in found.items()}


def make_work(case: Case, depth: int = 2) -> Work:
    blocks = [mixer(case.size, case.causal, case.norm, seed, mu=case.mu) for seed in range(depth)]
    x, deltas, lengths = series(case.L, case.size[0])
    lengths[1] = 0
    g = torch.Generator().manual_seed(3)
    is_query = torch.rand(3, case.L, generator=g) < 0.3 if case.queries else None
    seed = int(torch.randint(2**62, (), generator=g)) if case.dropout else None
    return Work(blocks, x, deltas, lengths, is_query, seed, case)


def compare(case: Case, dtype: torch.dtype, device: str) -> None:
    work = make_work(case)
    exact = work.results(torch.float64, "cpu", fused=False)
    plain, ours = work.results(dtype, device, fused=False), work.results(dtype, device, fused=True)
    scale = largest(*(t for name, t in exact.items() if name != "y"))
    for name in exact:
        require_close(ours[name], plain[name], exact[name], scale if name != "y" else 0.0)


@pytest.mark.parametrize("name", CASES)
def test_output_and_gradients_are_those_of_plain_modules(name: str, dtype: torch.dtype, device: str) -> None:
    compare(CASES[name], dtype, device)


@pytest.mark.gpu
@pytest.mark.parametrize("name", LONG)
def test_every_width_and_long_series(name: str, dtype: torch.dtype, device: str) -> None:
    compare(LONG[name], dtype, device)


@pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU, float16 stands for TF32 in every test")
@pytest.mark.parametrize("size", [1.0, 1e-12, 1e12])
def test_float16_has_the_digits_of_tf32_whatever_the_size_of_gradients(
    size: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "narrow_dtype", lambda _: torch.float16)
    work = make_work(CASES["dropout"]._replace(L=17))
    exact = work.results(torch.float64, "cpu", fused=False)
    ours = work.results(torch.float32, "cpu", fused=True, size=size)
    assert float((ours.pop("y").double() - exact["y"]).abs().max()) <= 4 * 2.0**-10 * largest(exact["y"])
    for name, gradient in ours.items():
        assert float((gradient.double() / size - exact[name]).abs().max()) <= 6 * 2.0**-10 * largest(exact[name]), name


def test_a_gradient_of_zero_is_zero(device: str) -> None:
    work = make_work(CASES["heads of 8"]._replace(L=3))
    found = work.results(torch.float32, device, fused=True, size=0.0)
    assert not any(bool(gradient.any()) for name, gradient in found.items() if name != "y")


def test_a_long_silence_gathers_gradients_that_float16_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row writes nearly everything, and all rows read it: its gradient is theirs, added up."""
    if not torch.cuda.is_available():
        monkeypatch.setattr(layers, "narrow_dtype", lambda _: torch.float16)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    work = make_work(Case((32, 2, 40), False, "sequence", 70), depth=1)
    work.deltas[:] = 1e-6
    work.deltas[:, 3] = 1e6
    work.x[:] = work.x[:, :1]  # all read alike
    for part in (work.blocks[0].liquid.query, work.blocks[0].liquid.value):
        part.weight.data *= 64
    exact, ours = work.results(torch.float64, "cpu", fused=False), work.results(torch.float32, device, fused=True)
    assert largest(exact["time_mixer.key"]) > torch.finfo(torch.float16).max
    everything = torch.finfo(torch.float32).eps * largest(*exact.values())  # what is nearly 0 is a difference of others
    for name in exact:
        limit = 8 * 2.0**-10 * largest(exact[name]) + 4 * everything
        assert float((ours[name].cpu().double() - exact[name]).abs().max()) <= limit, name


@torch.no_grad()
def test_appended_padding_changes_nothing(dtype: torch.dtype, device: str) -> None:
    for causal, norm in ((False, "sequence"), (True, "prefix")):
        block = mixer(SIZE, causal, norm)
        x, deltas, _ = series(20, SIZE[0])
        x, deltas = x.to(device, dtype), deltas.to(device, torch.float32)
        weights = [kernel_weights(block.to(device, dtype))]
        y = layers.stack(x, deltas, weights, causal, norm)
        longer, later = torch.cat([x, torch.full_like(x, 1e3)], dim=1), torch.cat([deltas, 0 * deltas], dim=1)
        padded = layers.stack(longer, later, weights, causal, norm)[:, :20]
        assert torch.allclose(padded.double(), y.double(), rtol=0, atol=4 * torch.finfo(dtype).eps * largest(y))


# --- as a node of autograd ---


def small(precision: str, device: str) -> tuple[Tensor, Tensor, list[LiquidMixer]]:
    x, deltas, _ = series(5, SMALL[0])
    x = entering(x, precision, device).requires_grad_()
    blocks = [mixer(SMALL, False, "sequence", seed).to(device, x.dtype) for seed in (0, 1)]
    return x, deltas.to(device, torch.float32), blocks


def test_what_needs_no_gradient_gets_none_and_changes_no_other(precision: str, device: str) -> None:
    x, deltas, blocks = small(precision, device)
    parameters = [p for block in blocks for p in block.parameters()]
    mix_layers(blocks, x, deltas).square().sum().backward()
    expected = [p.grad for p in parameters]
    for n, p in enumerate(parameters):
        p.grad = None
        p.requires_grad_(n % 3 == 0)
    mix_layers(blocks, x.detach(), deltas).square().sum().backward()
    for n, (p, g) in enumerate(zip(parameters, expected, strict=True)):
        assert torch.equal(p.grad, g) if n % 3 == 0 else p.grad is None
    for p in parameters:
        p.requires_grad_(False)
    assert not mix_layers(blocks, x.detach(), deltas).requires_grad


def test_an_answer_may_be_used_twice_and_computed_again(precision: str, device: str) -> None:
    x, deltas, blocks = small(precision, device)
    inputs = [x, *blocks[0].parameters(), *blocks[1].parameters()]
    y = mix_layers(blocks, x, deltas)
    once = torch.autograd.grad(y.sum(), inputs, retain_graph=True)
    twice = torch.autograd.grad(y.sum() + y.sum(), inputs)
    again = torch.autograd.grad(checkpoint(mix_layers, blocks, x, deltas, use_reentrant=False).sum(), inputs)
    for a, b, c in zip(once, twice, again, strict=True):
        assert torch.equal(2 * a, b)
        assert torch.equal(a, c)


def test_a_weight_that_was_changed_in_between_is_noticed(precision: str, device: str) -> None:
    x, deltas, blocks = small(precision, device)
    y = mix_layers(blocks, x, deltas)
    with torch.no_grad():
        blocks[0].liquid.mu.theta.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_bad_intervals_are_refused_as_on_the_plain_path(precision: str, device: str) -> None:
    x, deltas, blocks = small(precision, device)
    deltas[1, 2] = -1.0
    with pytest.raises(ValueError, match=r"row 1 has deltas\[2\] = -1.0"), torch.no_grad():
        mix_layers(blocks, x, deltas)
    with checks.skip_value_checks(), torch.no_grad():
        mix_layers(blocks, x, deltas)


def test_what_is_dropped_belongs_to_the_run(precision: str, device: str) -> None:
    x, deltas, blocks = small(precision, device)
    draws = Draws(torch.device(device))
    answers = []
    for block in blocks:
        block.dropout.p = 0.5
    for seed in (1, 1, 2):
        draws.seed(seed)
        torch.manual_seed(seed + len(answers))
        with drawing_from(draws):
            answers += [mix_layers(blocks, x, deltas), mix_layers(blocks, x, deltas)]
    assert torch.equal(answers[0], answers[2])
    assert torch.equal(answers[1], answers[3])
    assert not torch.equal(answers[0], answers[1])
    assert not torch.equal(answers[0], answers[4])
    for block in blocks:
        block.eval()
    assert torch.equal(mix_layers(blocks, x, deltas), mix_layers(blocks, x, deltas))


# --- the whole model ---


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"width": 48, "heads": 3}, "width 48 with heads of 16"),
        ({"answer": "query"}, "some rows only read"),
        ({"answer": "query", "read_out": "time"}, "some rows only read"),
        ({"heads": 4, "answer": "step", "causal": True, "gate_norm": "prefix"}, "heads of 8"),
    ],
)
@torch.no_grad()
def test_a_model_answers_as_the_plain_one(config: dict, reason: str, dtype: torch.dtype, device: str) -> None:
    model, plain = models(**config)
    batch = irregular_batch(L=20, dtype=torch.float64)
    if model.config.answer == "query":
        batch = batch.with_queries(batch.times[:, ::3] + 0.1)
    exact = plain(batch)
    narrow = {"values": batch.values.to(dtype), "deltas": batch.deltas.float()}
    batch = type(batch)(**{f: getattr(batch, f) for f in batch.__dataclass_fields__} | narrow).to(device)
    model, plain = model.to(device, dtype), plain.to(device, dtype)
    taken = path(model, batch)
    assert taken.name == "fused layers"
    assert reason in taken.reason
    require_close(model(batch), plain(batch), exact)


def test_a_model_trains_with_dropout(device: str) -> None:
    torch.set_float32_matmul_precision("high")
    model, _ = models(width=48, heads=3, dropout=0.1)
    model = model.float().to(device).train()
    batch = irregular_batch(L=10, dtype=torch.float32).to(device)
    assert path(model, batch).name == "fused layers"
    model(batch).square().sum().backward()
    assert all(p.grad is not None and bool(torch.isfinite(p.grad).all()) for p in model.parameters())
    answers = {float(model(batch).detach().sum()) for _ in range(3)}
    assert len(answers) == 3  # other numbers are dropped in every call


@pytest.mark.gpu
def test_exact_float32_takes_layers() -> None:
    torch.set_float32_matmul_precision("highest")
    work = make_work(CASES["heads of 8"])
    exact, plain = (work.results(torch.float64, "cuda", fused=False), work.results(torch.float32, "cuda", fused=False))
    ours, scale = work.results(torch.float32, "cuda", fused=True), largest(*exact.values())
    for name in exact:
        require_close(ours[name], plain[name], exact[name], scale)


def test_a_compiler_keeps_the_modules() -> None:
    block = mixer(SIZE, False, "sequence").float()
    x, deltas, _ = series(5, SIZE[0])
    x, deltas, found = x.float(), deltas.float(), []

    def ask(x: Tensor) -> Tensor:
        found.append(fusion.explain_layers([block], fusion.call_of(x, deltas)))
        return x + 1

    torch.compile(ask, backend="eager", fullgraph=True)(x)
    assert found[0] is not None
    assert "compiler" in found[0].reason


def test_rows_of_any_stride_go_back_through_the_gate(device: str) -> None:
    """The kernels read and write columns of wider tensors."""
    g = torch.Generator().manual_seed(0)
    wide, y, dz = (torch.randn(21, n, generator=g).to(device) for n in (96, 48, 48))
    to = torch.zeros(21, 80, device=device)
    reads = torch.rand(21, 3, generator=g).to(device)
    dy, z, dreads = rows.gate_output_backward(dz, wide[:, 16:64], y, reads, to[:, 32:], 3)
    o, y, reads = (t.detach().requires_grad_() for t in (wide[:, 16:64], y, reads))
    again = torch.sigmoid(o) * y * reads.repeat_interleave(16, dim=1)
    assert torch.allclose(z, again, atol=1e-6)
    assert torch.allclose(rows.gate_output(o.detach(), y.detach(), reads.detach(), 3), again, atol=1e-6)
    for found, exact in zip((to[:, 32:], dy, dreads), torch.autograd.grad(again, (o, y, reads), dz), strict=True):
        assert torch.allclose(found, exact, atol=1e-5)
    assert not to[:, :32].any()


@pytest.mark.parametrize("segments", [128, 2])
@pytest.mark.parametrize("norm", ["sequence", "prefix"])
def test_decays_of_several_segments(
    norm: ops.GateNorm, segments: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 rows are four segments of one tile, or two of two; logits are columns of a wider tensor."""
    monkeypatch.setattr(decays, "SEGMENTS", segments)
    _, deltas, _ = series(200, 16)
    g = torch.Generator().manual_seed(0)
    wide, theta = torch.randn(600, 48, generator=g), torch.randn(5, generator=g)
    slope = torch.randn(3, 200, 5, generator=g)
    deltas, prefix = deltas.float(), norm == "prefix"
    logits = wide.to(device)[:, 16:21].view(3, 200, 5)
    on = deltas.to(device), theta.to(device)
    decay, budgets = decays.make_decay(logits, *on, prefix)
    to = torch.ones(600, 80, device=device)
    dtheta = decays.decay_backward(logits, *on, decay, budgets, slope.to(device), to[:, 32:48], prefix)

    def plain(dtype: torch.dtype) -> list[Tensor]:
        leaves = [t.to(dtype).requires_grad_() for t in (wide[:, 16:21].reshape(3, 200, 5), theta)]
        u = ops.liquid_decay(torch.sigmoid(leaves[0]), deltas.to(dtype), torch.sigmoid(leaves[1]))
        shares = ops.normalise_decay(u, norm)
        return [shares.detach(), *torch.autograd.grad(shares, leaves, slope.to(dtype))]

    ours = [decay, to[:, 32:37].reshape(3, 200, 5), dtheta]
    for found, rounded, exact in zip(ours, plain(torch.float32), plain(torch.float64), strict=True):
        require_close(found.cpu(), rounded, exact)
    assert not to[:, 37:48].any()
    assert bool((to[:, :32] == 1).all())
    assert bool((to[:, 48:] == 1).all())


@pytest.mark.parametrize("norm", ["sequence", "prefix"])
def test_decays_with_queries(norm: ops.GateNorm, device: str) -> None:
    """The first series begins and ends with queries, the second has nothing else, the third one far behind its end."""
    _, deltas, _ = series(30, 16)
    g = torch.Generator().manual_seed(0)
    is_query = torch.rand(3, 30, generator=g) < 0.4
    is_query[0, [0, 1, -1]] = True
    is_query[1] = True
    is_query[2, -1], deltas[2, -1] = True, 1e9
    logits, theta = torch.randn(3, 30, 5, generator=g), torch.randn(5, generator=g)
    slope, dreads = torch.randn(3, 30, 5, generator=g), torch.randn(90, 5, generator=g)
    on = logits.to(device), deltas.float().to(device), theta.to(device), is_query.to(device)
    decay, reads = decays.make_query_decay(*on, norm == "prefix")
    to = torch.ones(90, 16, device=device)
    dtheta = decays.query_decay_backward(*on, slope.to(device), dreads.to(device), to, norm == "prefix")

    def plain(dtype: torch.dtype) -> list[Tensor]:
        leaves = [t.to(dtype).requires_grad_() for t in (logits, theta)]
        mu = torch.sigmoid(leaves[1])
        u = ops.liquid_decay(torch.sigmoid(leaves[0]), deltas.float().to(dtype), mu, is_query=is_query)
        shares = ops.normalise_decay(u, norm, is_query=is_query)
        writes = shares.masked_fill(is_query[..., None], 0)
        results = writes, torch.exp(writes - shares).flatten(0, 1)
        return [r.detach() for r in results] + list(
            torch.autograd.grad(results, leaves, (slope.to(dtype), dreads.to(dtype)))
        )

    ours = [decay, reads, to[:, :5].reshape(3, 30, 5), dtheta]
    for found, rounded, exact in zip(ours, plain(torch.float32), plain(torch.float64), strict=True):
        require_close(found.cpu(), rounded, exact)
    assert not to[:, 5:].any()


# --- on a GPU alone ---


@pytest.mark.gpu
@torch.no_grad()
def test_autocast_runs_layers_in_bfloat16() -> None:
    model, plain = models(backend="auto", width=128, heads=4, hidden=352)
    exact = plain(irregular_batch(L=300, dtype=torch.float64))
    batch = irregular_batch(L=300, dtype=torch.float32).to("cuda")
    model.float().cuda()
    plain.float().cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert model.explain(batch).name == "fused layers"
        require_close(model(batch), plain(batch), exact)


@pytest.mark.gpu
def test_a_replayed_step_drops_other_numbers_every_time() -> None:
    torch.set_float32_matmul_precision("high")
    model, _ = models(backend="auto", width=128, heads=4, dropout=0.3)
    model = model.float().cuda().train()
    batch = irregular_batch(L=50, dtype=torch.float32, targets=torch.randn(4, 2)).to("cuda")
    step = capture_step(model, lambda model, batch: (model(batch) - batch.targets).square().mean())
    losses = [float(step(batch)) for _ in range(6)]
    assert step.captured(batch)
    assert len(set(losses)) == len(losses)
