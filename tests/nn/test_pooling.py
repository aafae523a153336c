"""Pooling that also sees the last row and the greatest values, and dropout."""

from __future__ import annotations

import pytest
import torch

from lformer.batch import IrregularBatch
from lformer.nn import LFormer, LFormerConfig
from lformer.nn.predictor import Pool


def ragged(lengths: tuple[int, ...] = (6, 1, 0, 4)) -> IrregularBatch:
    """Uneven times, missing values, one empty series."""
    torch.manual_seed(0)
    values = torch.randn(len(lengths), max(lengths), 2, dtype=torch.float64)
    values[torch.rand_like(values) < 0.3] = torch.nan
    times = torch.rand(len(lengths), max(lengths), dtype=torch.float64).cumsum(1)
    return IrregularBatch.build(values, times, lengths=lengths, dtype=torch.float64)


def streaming(**choices: object) -> LFormer:
    torch.manual_seed(1)
    config = LFormerConfig(
        inputs=2, outputs=3, width=8, heads=2, causal=True, gate_norm="prefix", pooling="mean_last_max", **choices
    )
    return LFormer(config).double().eval()


def test_mean_last_and_greatest_stand_side_by_side() -> None:
    x = torch.tensor([[[1.0, -5.0], [3.0, -4.0], [9.0, 9.0]], [[2.0, 2.0], [7.0, 7.0], [7.0, 7.0]]])
    pool = Pool(2, "mean_last_max")
    lengths = torch.tensor([2, 0])
    found = pool(pool.add(pool.start(2, x), x, lengths), lengths)
    assert found.tolist() == [[2.0, -4.5, 3.0, -4.0, 3.0, -4.0], [0.0] * 6]


def test_rows_in_pieces_pool_as_at_once() -> None:
    x, pool = torch.randn(3, 7, 4, dtype=torch.float64), Pool(4, "mean_last_max")
    lengths = torch.tensor([7, 3, 2])
    whole = pool.add(pool.start(3, x), x, lengths)
    early, late = lengths.clamp(max=3), (lengths - 3).clamp(min=0)
    pieces = pool.add(pool.add(pool.start(3, x), x[:, :3], early), x[:, 3:], late)
    torch.testing.assert_close(pieces, whole)


def test_a_series_row_by_row_is_answered_as_a_whole() -> None:
    batch, model = ragged((6, 6)), streaming()
    state = model.init_state(2)
    for n in range(6):
        values = torch.where(batch.observed[:, n], batch.values[:, n], torch.nan)
        answer, state = model.step(values, batch.deltas[:, n], state)
    torch.testing.assert_close(answer, model(batch))


def test_padding_and_company_change_nothing() -> None:
    model, batch = streaming(), ragged()
    wide = IrregularBatch.build(
        torch.nn.functional.pad(torch.where(batch.observed, batch.values, torch.nan), (0, 0, 0, 5), value=1e3),
        torch.nn.functional.pad(batch.times, (0, 5), value=9.0),
        lengths=batch.lengths, dtype=torch.float64,
    )  # fmt: skip
    torch.testing.assert_close(model(wide), model(batch))
    torch.testing.assert_close(model(batch)[3:], model(_alone(batch, 3)))


def _alone(batch: IrregularBatch, i: int) -> IrregularBatch:
    n = int(batch.lengths[i])
    values = torch.where(batch.observed, batch.values, torch.nan)[i : i + 1, :n]
    return IrregularBatch.build(values, batch.times[i : i + 1, :n], dtype=torch.float64)


def test_dropout_acts_in_training_only() -> None:
    batch, calm, wild = ragged((6, 3)), streaming(), streaming(dropout=0.5)
    wild.load_state_dict(calm.state_dict())
    assert torch.equal(wild(batch), calm(batch))
    wild.train()
    first, second = wild(batch), wild(batch)
    assert not torch.allclose(first, second)
    with pytest.raises(ValueError, match="dropout must be at least 0 and below 1; got 1"):
        LFormerConfig(inputs=1, outputs=1, dropout=1.0)


@pytest.mark.parametrize("place", ["embedded rows", "time mixer", "channel mixer"])
def test_dropout_reaches_every_place(place: str) -> None:
    """With the other two silenced, the answers still differ from call to call."""
    model, batch = streaming(dropout=0.5).train(), ragged((6, 3))
    if place != "embedded rows":
        model.dropout.p = 0.0
    for mixer in model.blocks:
        if place != "time mixer":
            torch.nn.init.zeros_(mixer.liquid.mix.weight)
        if place != "channel mixer":
            torch.nn.init.zeros_(mixer.channel_mixer.down.weight)  # type: ignore[union-attr]
    assert not torch.allclose(model(batch), model(batch))
