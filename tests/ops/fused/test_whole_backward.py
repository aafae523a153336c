"""The gradients of a whole model as fused kernels, embedder and head with the mixers, against float64.

In Triton's interpreter products are exact float32 ("ieee"); on a GPU the same cases run in TF32 and bfloat16.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
import torch
from helpers import largest, require_close
from ops.fused.blocks import Gradients, gradients, loss, ragged, together
from ops.fused.blocks import whole_models as models
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lformer.batch import IrregularBatch
from lformer.nn import LFormer
from lformer.ops.fused import ends
from lformer.ops.fused.plan import Plan
from lformer.ops.fused.weights import Scratch, make_scratch


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """New memory holds NaN, so that whoever reads what nobody wrote is found out."""
    new_empty, empty_like = Tensor.new_empty, torch.empty_like

    def filled(t: Tensor) -> Tensor:
        return t.fill_(torch.nan) if t.is_floating_point() else t

    monkeypatch.setattr(Tensor, "new_empty", lambda *args, **options: filled(new_empty(*args, **options)))
    monkeypatch.setattr(torch, "empty_like", lambda *args, **options: filled(empty_like(*args, **options)))


def compare(config: dict[str, Any], L: int, B: int, dtype: torch.dtype, device: str, autocast: bool = False) -> None:
    model, plain = models(**config)
    C = model.config.inputs
    exact = together(gradients(plain.to(device), ragged(L, C, torch.float64, B).to(device)))
    kept = torch.float32 if autocast else dtype  # of weights and values
    batch = ragged(L, C, kept, B).to(device)
    model.to(device, kept)
    plain.to(device, kept)
    with torch.autocast(device, dtype=dtype) if autocast else nullcontext():
        assert model.explain(batch).name == "fused model"
        ours, theirs = together(gradients(model, batch)), together(gradients(plain, batch))
    for name, grad in exact.items():
        assert ours[name].dtype == kept
        if autocast:  # its last digit is that of the rows
            ours[name], theirs[name] = ours[name].to(dtype), theirs[name].to(dtype)
        require_close(ours[name], theirs[name], grad, largest(*exact.values()))


# --- every gradient ---


@pytest.mark.parametrize(
    ("config", "L", "B", "kernels"),
    [
        ({"inputs": 12, "outputs": 7}, 70, 3, ["embed", "answers"]),
        ({"inputs": 17, "outputs": 70, "depth": 1}, 5, 5, ["embed", "answers"]),
        ({"inputs": 1, "outputs": 1, "causal": True, "gate_norm": "prefix", "depth": 1}, 70, 1, ["embed", "answers"]),
        ({"inputs": 64, "answer": "step", "causal": True, "depth": 1}, 20, 3, ["embed"]),
        ({"head_layers": 1, "mu": "shared", "depth": 1}, 5, 3, ["embed"]),
    ],
)
@pytest.mark.usefixtures("short_segments", "poisoned")
def test_gradients_are_as_exact_as_on_the_plain_path(
    config: dict[str, Any], L: int, B: int, kernels: list[str], dtype: torch.dtype, device: str, launched: list[str]
) -> None:
    compare(config, L, B, dtype, device)
    assert launched == kernels


@pytest.mark.usefixtures("short_segments", "poisoned")
def test_few_programs_take_many_rows(dtype: torch.dtype, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of one program over several tiles of rows and blocks of outputs."""
    monkeypatch.setattr(ends, "EMBED_PROGRAMS", 1)
    monkeypatch.setattr(ends, "HEAD_BLOCK", 16)
    compare({"inputs": 12, "outputs": 40, "depth": 1}, 70, 1, dtype, device)


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("C", [1, 12, 37, 64])
@pytest.mark.parametrize(("D", "H", "F"), [(32, 2, 88), (64, 2, 176), (64, 4, 176)])
def test_every_width_and_the_plan_of_long_series(
    D: int, H: int, F: int, C: int, causal: bool, dtype: torch.dtype, device: str
) -> None:
    config = {"inputs": C, "outputs": 70, "width": D, "heads": H, "hidden": F, "causal": causal}
    compare(config, 20_000, 3, dtype, device)  # several chunks in every segment


@pytest.mark.gpu
@pytest.mark.parametrize(("L", "B", "outputs"), [(131_072, 4, 10), (20, 4096, 1024)])
def test_many_rows_and_many_series(L: int, B: int, outputs: int, dtype: torch.dtype, device: str) -> None:
    compare({"inputs": 12, "outputs": outputs, "depth": 1}, L, B, dtype, device)


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [False, True])
def test_autocast_keeps_the_dtype_of_the_weights(causal: bool, launched: list[str]) -> None:
    compare({"inputs": 12, "outputs": 7, "causal": causal}, 300, 3, torch.bfloat16, "cuda", autocast=True)
    assert launched == ["embed", "answers"]


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [False, True])
def test_same_gradients_every_time(causal: bool, dtype: torch.dtype, device: str) -> None:
    model, _ = models(inputs=12, outputs=70, width=64, heads=4, hidden=176, causal=causal)
    batch = ragged(5000, 12, dtype, 40).to(device)
    model.to(device, dtype)
    first, second = gradients(model, batch), gradients(model, batch)
    assert all(torch.equal(first[name], second[name]) for name in first)


# --- the kernel of the head ---


@pytest.mark.parametrize(("B", "O"), [(1, 1), (70, 7), (5, 70)])
@pytest.mark.usefixtures("poisoned")
def test_the_head_passes_on_what_a_linear_map_would(B: int, O: int, dtype: torch.dtype, device: str) -> None:  # noqa: E741
    mean, weight, grad = (torch.randn(shape, dtype=torch.float64) for shape in ((B, 32), (O, 32), (B, O)))
    exact = (grad @ weight, torch.cat([(grad.T @ mean).flatten(), grad.sum(0)]))
    mean, weight, grad = (t.to(device, dtype) for t in (mean, weight, grad))
    precision = {torch.bfloat16: "bf16", torch.float32: "tf32" if device == "cuda" else "ieee"}[dtype]
    plan = Plan(B, 300, 2, 16, 16, 64, 1, 5, precision, F=40)
    dmean, parts = ends.answers_backward(grad, mean, weight, plan)
    assert len(parts) == -(-B // ends.HEAD_SERIES)
    require_close(dmean, grad @ weight, exact[0])
    require_close(parts.sum(0).to(dtype), torch.cat([(grad.T @ mean).flatten(), grad.sum(0)]), exact[1])


# --- as a part of PyTorch ---


def small(device: str) -> tuple[LFormer, IrregularBatch]:
    """As little as there is to learn, where it is a matter of the graph alone."""
    torch.set_float32_matmul_precision("high" if device == "cuda" else "highest")
    model, _ = models(depth=1)
    return model.float().to(device), ragged(3, 3, torch.float32, B=1).to(device)


@cache
def expected(device: str) -> Gradients:
    return gradients(*small(device))


def test_the_graph_has_one_node_between_the_answers_and_the_parameters(device: str) -> None:
    model, batch = small(device)
    node = model(batch).grad_fn
    assert node is not None
    leaves = [function for function, _ in node.next_functions if function is not None]
    assert [type(leaf).__name__ for leaf in leaves] == ["AccumulateGrad"] * len(leaves)
    assert {id(leaf.variable) for leaf in leaves} == {id(p) for p in model.parameters()}


def test_no_node_is_made_without_gradients(device: str, launched: list[str]) -> None:
    model, batch = small(device)
    with torch.no_grad():
        assert model(batch).grad_fn is None
    model.requires_grad_(False)
    assert model(batch).grad_fn is None
    assert launched == ["embed", "answers"] * 2


@pytest.mark.parametrize("frozen", [("embedder", "head.0.bias"), ("embedder.value.weight", "mixers", "head.0.weight")])
def test_what_is_frozen_gets_no_gradient_and_the_rest_its_own(frozen: tuple[str, ...], device: str) -> None:
    model, batch = small(device)
    for name, p in model.named_parameters():
        p.requires_grad_(not name.startswith(frozen))
    loss(model, batch).backward()
    for name, p in model.named_parameters():
        assert p.grad is None if name.startswith(frozen) else torch.equal(p.grad, expected(device)[name])


def test_a_head_that_learns_alone_keeps_nothing_of_the_mixers(device: str, launched: list[str]) -> None:
    model, batch = small(device)
    for part in (model.embedder, model.mixers):
        part.requires_grad_(False)
    y = loss(model, batch)
    assert launched == ["embed"]
    y.backward()
    for name, p in model.head.named_parameters():
        grad = expected(device)[f"head.{name}"]
        assert float((p.grad - grad).abs().max()) <= (1e-6 if device == "cpu" else 1e-2) * float(grad.abs().max())


def test_passes_through_hooks_and_checkpoints_add_up(device: str) -> None:
    model, batch = small(device)
    packed: list[torch.Size] = []

    def pack(t: Tensor) -> Tensor:
        packed.append(t.shape)
        return t.clone()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = loss(model, batch)
    y.backward()
    assert batch.values.shape in packed
    checkpoint(loss, model, batch, use_reentrant=False).backward()
    assert all(torch.equal(p.grad, 2 * expected(device)[name]) for name, p in model.named_parameters())


def test_gradients_of_gradients_are_refused(device: str) -> None:
    model, batch = small(device)
    (grad,) = torch.autograd.grad(loss(model, batch).square(), [model.head[0].weight], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


def test_values_and_weights_need_not_be_contiguous(device: str) -> None:
    model, batch = small(device)
    for p in (model.embedder.value.weight, model.head[0].weight):
        p.data = p.data.T.contiguous().T
    turned = replace(batch, values=batch.values.mT.contiguous().mT)
    assert not turned.values.is_contiguous()
    assert all(torch.equal(grad, expected(device)[name]) for name, grad in gradients(model, turned).items())


def test_pieces_of_scratch_are_apart_and_aligned() -> None:
    """Odd sizes, of which no piece may begin at an odd address or reach into the next one."""
    plan = Plan(3, 7, 1, 32, 32, 64, 1, 1, "ieee", 40, True, "prefix")
    scratch = make_scratch(torch.zeros(3, 7, 32), plan)
    pieces = [piece for piece in scratch if isinstance(piece, Tensor)]
    assert len(pieces) == len(Scratch._fields) - 1
    assert all(piece.data_ptr() % 16 == 0 for piece in pieces)
    places = sorted((piece.data_ptr(), piece.data_ptr() + piece.nbytes) for piece in pieces)
    assert all(end <= start for (_, end), (start, _) in pairwise(places))
    assert min(piece.numel() for piece in (scratch.fade, scratch.slope)) >= 3 * 7
