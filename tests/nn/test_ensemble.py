"""Several models that answer as one."""

from __future__ import annotations

import pytest
import torch

from lformer.batch import IrregularBatch
from lformer.nn import LFormer, LFormerConfig
from lformer.nn.ensemble import Ensemble


def models(n: int = 3, **choices: object) -> list[LFormer]:
    torch.manual_seed(0)
    config = {"inputs": 2, "outputs": 3, "width": 8, "heads": 2, "causal": True, "gate_norm": "prefix"} | choices
    return [LFormer(LFormerConfig(**config)).double() for _ in range(n)]  # type: ignore[arg-type]


def batch() -> IrregularBatch:
    torch.manual_seed(1)
    values = torch.randn(4, 6, 2, dtype=torch.float64)
    values[torch.rand_like(values) < 0.3] = torch.nan
    times = torch.rand(4, 6, dtype=torch.float64).cumsum(1)
    return IrregularBatch.build(values, times, lengths=[6, 1, 4, 6], dtype=torch.float64)


def test_the_answer_is_the_mean() -> None:
    found, several = batch(), models()
    expected = sum(model(found) for model in several) / 3
    torch.testing.assert_close(Ensemble(several)(found), expected)


def test_it_steps_as_it_answers() -> None:
    found, together = batch(), Ensemble(models())
    state = together.init_state(4)
    for n in range(6):
        values = torch.where(found.observed[:, n], found.values[:, n], torch.nan)
        answer, state = together.step(values, found.deltas[:, n], state)
    torch.testing.assert_close(answer[[0, 3]], together(found)[[0, 3]])


def test_members_must_be_alike() -> None:
    with pytest.raises(ValueError, match="at least one model, and all of the same configuration"):
        Ensemble([*models(1), *models(1, width=16)])
    with pytest.raises(ValueError, match="at least one model"):
        Ensemble([])
