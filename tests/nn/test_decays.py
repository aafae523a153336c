"""`LFormer.decays` are the exponents with which the operator is really called."""

from typing import Any

import numpy as np
import pytest
import torch

from lformer import IrregularBatch, LFormer, LFormerConfig, ops


@pytest.mark.parametrize(("causal", "norm"), [(False, "sequence"), (True, "prefix"), (True, "none")])
@pytest.mark.parametrize("answer", ["series", "query"])
def test_decays_are_those_of_forward(
    causal: bool, norm: ops.GateNorm, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    series = []
    for n in (9, 4, 1):
        values = rng.normal(size=(n, 3))
        values[rng.random((n, 3)) < 0.3] = np.nan
        series.append((np.cumsum(rng.exponential(1.0, n)), values))
    torch.manual_seed(0)
    config = LFormerConfig(
        inputs=3, outputs=3, rows="carried", width=8, heads=2, answer=answer, causal=causal, gate_norm=norm
    )
    model = LFormer(config).double().eval()
    batch = IrregularBatch.from_series(series, dtype=torch.float64)
    asked = batch.with_queries([2.5, 0.1]) if answer == "query" else batch
    used: list[torch.Tensor] = []
    real = ops.liquid_gated_attention

    def spy(q: Any, k: Any, v: Any, decay: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        used.append(decay)
        return real(q, k, v, decay, *args, **kwargs)

    monkeypatch.setattr(ops, "liquid_gated_attention", spy)
    with torch.no_grad():
        model(batch if answer == "series" else asked)
        applied, used[:] = list(used), []
        found = model.decays(asked)
    for layer, decay in zip(applied, found, strict=True):
        for i, n in enumerate((9, 4, 1)):
            writes = layer[i][layer[i].sum(dim=1) > 0] if answer == "query" else layer[i, :n]  # queries write nothing
            torch.testing.assert_close(writes, decay[i, :n])
            assert not decay[i, n:].any()
