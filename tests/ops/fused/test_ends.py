"""A whole model as fused kernels: the embedder and the head against nn.Linear, all of it against the plain path.

In Triton's interpreter products are exact float32 ("ieee"); on a GPU the same cases run in TF32 and bfloat16.
"""

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from helpers import irregular_batch, require_close
from ops.fused.blocks import path, ragged
from ops.fused.blocks import whole_models as models
from torch import Tensor, nn

from lformer.batch import IrregularBatch
from lformer.nn import LFormer, fusion
from lformer.nn.fusion import kernel_weights
from lformer.ops.fused import ends, gate, node
from lformer.ops.fused.plan import Affine, Plan, make_plan


@torch.no_grad()
def compare(models: tuple[LFormer, LFormer], L: int, dtype: torch.dtype, device: str) -> None:
    model, plain = models
    C = model.config.inputs
    exact = plain(ragged(L, C, torch.float64))
    batch = ragged(L, C, dtype).to(device)
    model.to(device, dtype)
    plain.to(device, dtype)
    assert model.explain(batch) == fusion.Path("fused model")
    require_close(model(batch), plain(batch), exact)


# --- the two kernels ---


def plan_of(x: Tensor, model: LFormer) -> Plan:
    return make_plan(x, kernel_weights(model.blocks[0]), False, "sequence", node.FORCED_CHUNKS)


@torch.no_grad()
@pytest.mark.parametrize(
    ("C", "L", "chunks"), [(1, 70, 1), (12, 130, 1), (12, 500, 5), (16, 64, 1), (37, 1, 1), (37, 150, 3), (64, 70, 1)]
)
def test_rows_are_those_of_the_linear_map_and_gates_those_of_the_rows(
    C: int, L: int, chunks: int, dtype: torch.dtype, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "FORCED_CHUNKS", chunks)
    model, _ = models(inputs=C)
    values, linear = ragged(L, C, torch.float64).values, copy.deepcopy(model.embedder.value)
    exact = linear(values)
    values, linear = values.to(device, dtype), linear.to(device, dtype)
    model.to(device, dtype)
    deltas = torch.rand(3, L, device=device)
    x = values.new_empty(3, L, 32)
    plan, w = plan_of(x, model), kernel_weights(model.blocks[0])
    rows = ends.embed_rows(values, deltas, Affine(linear.weight, linear.bias), w, x, plan)
    assert rows.x is x
    require_close(x, linear(values), exact)
    gates, sums = gate.make_gates(x, deltas, w, plan)
    # A last digit of a row may turn the rounding of one operand, but not of all: rows before their rounding would.
    assert float((rows.gates - gates).abs().mean()) < 2e-6
    assert torch.allclose(rows.sums, sums, rtol=1e-3)


@torch.no_grad()
@pytest.mark.parametrize("O", [1, 7, 70])
def test_answers_are_the_linear_map_of_the_mean(O: int, dtype: torch.dtype, device: str) -> None:  # noqa: E741
    model, _ = models(outputs=O)
    pooled, lengths = torch.randn(3, 5, 32, dtype=torch.float64), torch.tensor([300, 0, 1])
    pooled[1] = 0.0
    linear = model.head[0]
    exact = linear(pooled.sum(1) / torch.tensor([[300.0], [1.0], [1.0]]))
    bias = linear.bias.clone()
    linear.to(device, dtype)
    pooled, lengths = pooled.to(device, torch.float32), lengths.to(device)
    plan = Plan(3, 300, 2, 16, 16, 64, 1, 5, "ieee", F=40)
    like = pooled.to(dtype)
    y, _ = ends.make_answers(pooled, lengths, Affine(linear.weight, linear.bias), like, plan)
    require_close(y, linear((pooled.sum(1) / lengths.clamp(min=1)[:, None]).to(dtype)), exact)
    assert torch.equal(y[1].cpu(), bias.to(dtype))


# --- the whole model ---


@pytest.mark.parametrize(
    ("config", "L", "kernels"),
    [
        ({"inputs": 12, "outputs": 7}, 1, ["embed", "answers"]),
        ({"inputs": 12, "outputs": 7}, 70, ["embed", "answers"]),
        ({"causal": True, "gate_norm": "prefix"}, 70, ["embed", "answers"]),
        ({"answer": "step", "causal": True}, 70, ["embed"]),
        ({"pooling": "mean_last_max", "outputs": 70}, 70, ["embed"]),
        ({"head_layers": 1, "mu": "shared", "depth": 1}, 1, ["embed"]),
    ],
)
@pytest.mark.usefixtures("short_segments")
def test_a_model_answers_as_the_plain_one(
    config: dict, L: int, kernels: list[str], dtype: torch.dtype, device: str, launched: list[str]
) -> None:
    compare(models(**config), L, dtype, device)
    assert launched == kernels


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("C", [1, 12, 37, 64])
@pytest.mark.parametrize(("D", "H", "F"), [(32, 2, 88), (64, 4, 176)])
def test_every_width_and_the_plan_of_long_series(
    D: int, H: int, F: int, C: int, causal: bool, dtype: torch.dtype, device: str
) -> None:
    answer = "step" if causal else "series"
    config = {"inputs": C, "outputs": 70, "width": D, "heads": H, "hidden": F, "causal": causal, "answer": answer}
    compare(models(**config), 5000, dtype, device)


@pytest.mark.gpu
@torch.no_grad()
def test_autocast_embeds_and_answers_in_bfloat16(launched: list[str]) -> None:
    model, plain = models(inputs=12, outputs=70)
    exact = plain(ragged(300, 12, torch.float64))
    batch = ragged(300, 12, torch.float32).to("cuda")
    model.float().cuda()
    plain.float().cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        require_close(model(batch), plain(batch), exact)
    assert launched == ["embed", "answers"]


@torch.no_grad()
@pytest.mark.skipif(torch.cuda.is_available(), reason="a matter of the modules; seen where the interpreter runs")
def test_hooks_on_the_embedder_and_the_head_still_run(launched: list[str]) -> None:
    batch = ragged(5, 3, torch.float32)
    for module, kernels in (("embedder", []), ("embedder.value", []), ("head", ["embed"]), ("head.0", ["embed"])):
        model, plain = models()
        seen: list[str] = []
        model.float().get_submodule(module).register_forward_hook(lambda *_, name=module, seen=seen: seen.append(name))
        assert torch.allclose(model(batch), plain.float()(batch), atol=1e-5)
        assert seen == [module]
        assert launched == kernels
        launched.clear()


# --- what runs as modules ---


def test_values_that_want_a_gradient_take_the_path_that_has_it(device: str, launched: list[str]) -> None:
    torch.set_float32_matmul_precision("high" if device == "cuda" else "highest")
    model, plain = models()

    def gradient(model: LFormer, batch: IrregularBatch) -> Tensor:
        return torch.autograd.grad(model(batch).sum(), batch.values)[0]

    exact, batch = (ragged(20, 3, dtype) for dtype in (torch.float64, torch.float32))
    exact, batch = (replace(b, values=b.values.clone().requires_grad_()) for b in (exact, batch.to(device)))
    known = gradient(plain, exact)
    model.float().to(device)
    assert path(model, batch) == ("fused mixers", "values require a gradient", "")
    grad = gradient(model, batch)
    assert launched == []
    require_close(grad, gradient(plain.float().to(device), batch), known)
    with torch.no_grad():
        assert path(model, batch).name == "fused model"


class Shifted(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 1


def without_bias(model: LFormer) -> None:
    model.embedder.value = nn.Linear(3, 32, bias=False)


def subclass(model: LFormer) -> None:
    model.embedder.value = Shifted(3, 32)


def of_other_width(model: LFormer) -> None:
    model.embedder.value = nn.Linear(3, 64)


def in_half(model: LFormer) -> None:
    model.embedder.value.half()


def in_bfloat16(model: LFormer) -> None:
    model.embedder.value.bfloat16()


def other_dropout(model: LFormer) -> None:
    model.dropout = nn.Dropout(0.5)


def hooked_mixer(model: LFormer) -> None:
    model.mixers[1].register_forward_hook(lambda *_: None)


@torch.no_grad()
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (without_bias, "not a bare linear map"),
        (subclass, "not a bare linear map"),
        (of_other_width, "with a weight of (32, 3)"),
        (in_half, "weights of torch.float16"),
        (in_bfloat16, "weights of torch.bfloat16 on"),
        (other_dropout, "dropout"),
        (hooked_mixer, "a mixer has hooks"),
    ],
)
def test_a_model_that_was_changed_runs_its_embedder(
    change: Callable[[LFormer], None], reason: str, device: str
) -> None:
    torch.set_float32_matmul_precision("high")
    model, _ = models()
    change(model.float().to(device))
    assert reason in path(model, ragged(5, 3, torch.float32).to(device)).reason


@torch.no_grad()
@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"inputs": 65}, "(65,)"),
        ({"embedder": "relu"}, "not a bare linear map"),
        ({"embedder": "frames"}, "rows have the shape (3,)"),
        ({"time_embedding": "sinusoidal"}, "more than a linear map"),
        ({"backend": "parallel"}, "backend='parallel'"),
    ],
)
def test_settings_without_a_kernel_run_the_embedder(config: dict, reason: str) -> None:
    model, _ = models(**config)
    assert reason in path(model.float(), ragged(5, config.get("inputs", 3), torch.float32)).reason


@torch.no_grad()
@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"answer": "step"}, "more than a mean"),
        ({"pooling": "mean_last_max"}, "more than a mean"),
        ({"head_layers": 1}, "not a single linear map"),
        ({"outputs": fusion.ANSWERED + 1}, "1025 outputs"),
    ],
)
def test_settings_without_a_kernel_run_the_head(config: dict, reason: str) -> None:
    model, _ = models(**config)
    assert reason in fusion.explain_head(model.float(), fusion.call_of(torch.zeros(1, 1, 3), torch.zeros(1, 1)))


@torch.no_grad()
def test_batches_without_a_kernel_run_the_embedder(device: str, launched: list[str]) -> None:
    model, plain = models(answer="query")
    batch = irregular_batch(L=5, dtype=torch.float32).to(device)
    model.float().to(device)
    assert "only read" in path(model, batch.with_queries(batch.times[:, :2])).reason
    assert "float64" in path(model, irregular_batch(L=5).to(device)).reason
    model, plain = models()
    nothing = IrregularBatch.build(torch.zeros(2, 0, 3), torch.zeros(2, 0)).to(device)
    assert "no rows" in path(model.float().to(device), nothing).reason
    assert torch.equal(model(nothing), plain.float().to(device)(nothing))
    with pytest.raises(ValueError, match=r"built for rows of shape \(3,\); got \(4,\)"):
        model(irregular_batch(C=4, dtype=torch.float32).to(device))
    assert launched == []


@torch.no_grad()
def test_compilers_and_transforms_see_the_modules(device: str, launched: list[str]) -> None:
    torch.set_float32_matmul_precision("high" if device == "cuda" else "highest")
    model, _ = models(depth=1)
    batch = ragged(5, 3, torch.float32).to(device)
    eager = model.float().to(device)(batch)
    assert launched == ["embed", "answers"]
    compiled = torch.compile(model, backend="aot_eager")(batch)
    assert torch.allclose(compiled, eager, rtol=0, atol=1e-5 if device == "cpu" else 1e-2)
    assert launched == ["embed", "answers"]
    reasons: list[str] = []

    def ask(number: Tensor) -> Tensor:
        reasons.append(path(model, batch).reason)
        return number

    torch.func.vmap(ask)(torch.zeros(2))
    assert reasons == ["torch.func cannot transform it"]


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # what the interpreter says to inf
def test_bad_intervals_and_bad_values_are_refused_as_on_the_plain_path(device: str) -> None:
    torch.set_float32_matmul_precision("high" if device == "cuda" else "highest")
    model, _ = models(causal=True)
    batch = ragged(5, 3, torch.float32).to(device)
    model.float().to(device)
    negative = batch.deltas.clone()
    negative[2, 2] = -1.0
    with pytest.raises(ValueError, match=r"row 2 has deltas\[2\] = -1.0"):
        model(replace(batch, deltas=negative))
    with pytest.raises(OverflowError, match="the output of the fused mixer is not finite"):
        model(replace(batch, values=torch.full_like(batch.values, torch.inf)))
