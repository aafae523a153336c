"""mu held near the trapezoidal rule: the gradient by hand, however a step is made, and nothing at all without it."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from helpers import irregular_arrays
from torch import Tensor

from lformer import IrregularBatch, LFormer, LFormerConfig, baselines, data, tasks
from lformer.bench.recipes import recipe
from lformer.cuda_graphs import capture_step
from lformer.parts import Share
from lformer.train import TrainConfig, fit, seeded
from lformer.train.distributed import World
from lformer.train.gradients import Gradients, loss_of

LAMBDA, TASK = 0.7, tasks.regress_points(2)
ALONE = World(torch.device("cpu"), 0, 1)


def build(dtype: torch.dtype = torch.float64, **choices: Any) -> LFormer:
    """Causal, so that it may be trained on pieces; every mu somewhere else."""
    torch.manual_seed(0)
    sizes = {"inputs": 3, "outputs": 2, "answer": "step", "width": 8, "heads": 2, "depth": 3}
    model = LFormer(LFormerConfig(**sizes | {"causal": True, "gate_norm": "prefix"} | choices)).to(dtype)
    for mixer in model.blocks:
        if mixer.liquid.mu is not None and isinstance(mixer.liquid.mu.theta, torch.nn.Parameter):
            torch.nn.init.normal_(mixer.liquid.mu.theta, std=2)
    return model


def uneven(dtype: torch.dtype = torch.float64) -> IrregularBatch:
    values, times, lengths = irregular_arrays(5, 23, 3, seed=1, dtype=dtype)
    targets = torch.randn(5, 23, 2, dtype=dtype, generator=torch.Generator().manual_seed(2))
    return IrregularBatch.build(values, times, lengths=lengths, targets=targets, dtype=dtype)


def gradients(
    model: LFormer, weight: float, replayed: bool = False, **options: Any
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of a batch and what it gave to each parameter."""
    settings: dict[str, Any] = {"precision": "float64", "mu_penalty": weight} | options
    made, batch = Gradients(model, TASK, ALONE, **settings), uneven(next(model.parameters()).dtype)
    if replayed:  # without CUDA, a step of the recorder's own
        loss = capture_step(model, partial(loss_of, TASK, penalty=made.penalty))(batch)
    else:
        loss = made(Share(batch, True))
    return loss, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def by_hand(model: LFormer) -> tuple[Tensor, dict[str, Tensor]]:
    """λ mean (mu - 1/2)², and its slope 2 λ / n · (mu - 1/2) mu (1 - mu)."""
    mus = {n: torch.sigmoid(p.detach()) for n, p in model.named_parameters() if n.endswith("theta")}
    count = sum(len(mu) for mu in mus.values())
    value = sum((mu - 0.5).square().sum() for mu in mus.values()) * LAMBDA / count
    return torch.as_tensor(value), {n: 2 * LAMBDA / count * (mu - 0.5) * mu * (1 - mu) for n, mu in mus.items()}


@pytest.mark.parametrize("mu", ["per_head", "shared"])
@pytest.mark.parametrize("way", [{}, {"replayed": True}, {"piece_rows": 5}], ids=["ordinary", "recorded", "pieces"])
def test_the_gradient_is_that_of_the_formula_however_a_step_is_made(way: dict[str, Any], mu: str) -> None:
    model = build(mu=mu)
    value, slopes = by_hand(model)
    plain, without = gradients(model, 0.0, **way)
    loss, found = gradients(model, LAMBDA, **way)
    torch.testing.assert_close(loss - plain, value, rtol=1e-12, atol=1e-12)
    for name, gradient in found.items():
        if name in slopes:
            torch.testing.assert_close(gradient - without[name], slopes[name], rtol=1e-12, atol=1e-14)
        else:
            assert torch.equal(gradient, without[name]), name
    assert len(slopes) == 3


def test_mixed_precision_does_not_round_it() -> None:
    model = build(torch.float32)
    _, slopes = by_hand(model)
    without, found = (gradients(model, weight, precision="bf16")[1] for weight in (0.0, LAMBDA))
    for name, slope in slopes.items():
        torch.testing.assert_close(found[name] - without[name], slope, rtol=1e-5, atol=1e-7)


def trained(**changes: Any) -> LFormer:
    plan = recipe("spiral-0.02")
    splits = data.load("spiral-0.02", steps=10)
    with seeded(0):
        model = LFormer(plan.config(splits.spec))
    for mixer in model.blocks:
        assert mixer.liquid.mu is not None
        torch.nn.init.constant_(mixer.liquid.mu.theta, 1.0)
    config = replace(plan.train, epochs=10, earliest=9, lr=0.05, device="cpu", clip=None, **changes)
    fit(model, tasks.trajectory(), splits, config, progress=False)
    return model


@torch.no_grad()
def distance(model: LFormer) -> float:
    return max(float((mixer.liquid.mu() - 0.5).abs().max()) for mixer in model.blocks if mixer.liquid.mu)


def test_a_large_penalty_takes_mu_to_the_trapezoidal_rule_and_none_changes_no_digit() -> None:
    free, same, held = trained(), trained(mu_penalty=0.0), trained(mu_penalty=1e4)
    assert distance(held) < 0.02 < 0.1 < distance(free)
    for one, other in zip(free.state_dict().values(), same.state_dict().values(), strict=True):
        assert torch.equal(one, other)
    assert Gradients(free, TASK, ALONE, precision="tf32").penalty is None


def test_it_is_refused_where_no_mu_is_learned() -> None:
    gru = baselines.BASELINES["gru"]
    for model in (build(mu="fixed"), build(rate="time"), gru.model(gru.config(inputs=3, outputs=2, answer="step"))):
        with pytest.raises(ValueError, match=r"mu_penalty=0\.7 is for models that learn a mu; this \w+ has none"):
            Gradients(model, TASK, ALONE, precision="tf32", mu_penalty=LAMBDA)
    with pytest.raises(ValueError, match=r"mu_penalty must be at least 0; got -1"):
        Gradients(build(), TASK, ALONE, precision="tf32", mu_penalty=-1)
    assert TrainConfig().mu_penalty == 0
