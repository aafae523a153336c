"""Long series: what sequence normalisation buys, and how its absence is refused."""

import pytest
import torch

from lformer import IrregularBatch, LFormer, LFormerConfig

EIGENWORMS = 17_984


def test_fifty_steps_on_the_longest_benchmark_stay_finite() -> None:
    g = torch.Generator().manual_seed(0)
    times = torch.exp(torch.randn(1, EIGENWORMS, generator=g)).cumsum(1)
    values = torch.randn(1, EIGENWORMS, 6, generator=g)
    values[torch.rand(values.shape, generator=g) < 0.2] = torch.nan
    batch = IrregularBatch.build(values, times)
    torch.manual_seed(0)
    model = LFormer(LFormerConfig(inputs=6, outputs=5, width=32, heads=4, embedder="relu"))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(50):
        loss = torch.nn.functional.cross_entropy(model(batch), torch.tensor([3]))
        optimiser.zero_grad()
        loss.backward()
        assert all(p.grad is not None and bool(torch.isfinite(p.grad).all()) for p in model.parameters())
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("unit", [1.0, 1e3, 1e9])
def test_the_vanilla_non_causal_form_refuses_large_time_units(unit: float) -> None:
    batch = IrregularBatch.build(torch.ones(2, 300, 3), times=unit * torch.arange(300.0))
    model = LFormer(LFormerConfig(inputs=3, outputs=2, gate_norm="none"))
    with pytest.raises(OverflowError, match=r"gate_norm=\"sequence\".*causal=True.*larger unit of time"):
        model(batch)


@pytest.mark.parametrize("unit", [1.0, 1e3, 1e9, 1e30])
def test_the_vanilla_causal_form_takes_any_time_unit(unit: float) -> None:
    batch = IrregularBatch.build(torch.randn(2, 300, 3), times=unit * torch.rand(2, 300).double().cumsum(1))
    torch.manual_seed(0)
    model = LFormer(LFormerConfig(inputs=3, outputs=2, gate_norm="none", causal=True))
    y = model(batch)
    y.sum().backward()
    assert torch.isfinite(y).all()
    assert all(bool(torch.isfinite(p.grad).all()) for p in model.parameters() if p.grad is not None)
