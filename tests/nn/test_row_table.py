"""The table that trees see of rows, against the same features computed one row at a time."""

from typing import Any

import numpy as np
import pytest
import torch

from lformer import IrregularBatch
from lformer.nn import LFormer, LFormerConfig
from lformer.nn.row_table import PLACES

C = 3


def series(n: int = 5, seed: int = 0) -> list[tuple[Any, Any]]:
    """Uneven times, ragged lengths, missing values, and a channel that one series never saw."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(n):
        length = int(rng.integers(1, 30))
        values = rng.normal(size=(length, C))
        values[rng.random(values.shape) < 0.4] = np.nan
        if i == 0:
            values[:, 1] = np.nan
        found.append((np.cumsum(rng.exponential(size=length)), values))
    return found


def model(**more: Any) -> LFormer:
    return LFormer(LFormerConfig(inputs=C, outputs=2, answer="step", rows="carried", **more)).eval()


def batch_of(rows: list[tuple[Any, Any]], static: Any = None) -> IrregularBatch:
    return IrregularBatch.from_series([(times, values.astype(np.float32)) for times, values in rows], static=static)


def by_hand(times: Any, values: Any) -> Any:
    line, apart = np.full(values.shape, np.nan), np.full(values.shape, np.nan)
    for c in range(C):
        seen = ~np.isnan(values[:, c])
        if seen.any():
            line[:, c] = np.interp(times, times[seen], values[seen, c])
            apart[:, c] = np.abs(times[:, None] - times[seen]).min(axis=1)
    rows = np.clip(np.arange(len(times))[:, None] + np.array(PLACES), 0, len(times) - 1)
    return np.hstack([line[rows].reshape(len(times), -1), apart])


@torch.no_grad()
def test_each_row_has_the_values_around_it() -> None:
    rows = series()
    network = model()
    table = network.tree_table(batch_of(rows))
    assert table.shape[2] == network.config.in_table == (len(PLACES) + 1) * C
    for i, (times, values) in enumerate(rows):
        np.testing.assert_allclose(table[i, : len(times)], by_hand(times - times[0], values), atol=1e-5)


@torch.no_grad()
def test_covariates_stand_behind_in_every_row() -> None:
    rows, static = series(), torch.arange(10.0).reshape(5, 2)
    network = model(statics=2)
    table = network.tree_table(batch_of(rows, static))
    assert table.shape[2] == network.config.in_table
    for i, (times, _) in enumerate(rows):
        assert (table[i, : len(times), -2:] == static[i]).all()


@torch.no_grad()
def test_padding_order_and_time_origin_change_nothing() -> None:
    rows = series()
    network = model()
    whole = network.tree_table(batch_of(rows))
    for i in (4, 1):
        times, values = rows[i]
        alone = network.tree_table(batch_of([(times + 1000.0, values)]))[0]
        torch.testing.assert_close(alone, whole[i, : len(times)], equal_nan=True, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "change",
    [{"causal": True, "gate_norm": "prefix"}, {"persistence": "latest", "outputs": C}, {"distribution": "gaussian"}],
)
def test_models_that_have_no_such_table_are_refused(change: dict[str, Any]) -> None:
    given: dict[str, Any] = {"inputs": C, "outputs": 2, "answer": "step", "rows": "carried"} | change
    assert not LFormerConfig(**given).can_have_trees
    with pytest.raises(ValueError, match="trees must be at least 0, and 0 without features for them"):
        LFormerConfig(**given, trees=3)


def test_waves_are_of_series() -> None:
    with pytest.raises(ValueError, match="waves=True needs trees, summaries and whole series"):
        LFormerConfig(inputs=C, outputs=2, answer="step", rows="carried", trees=3, waves=True)
