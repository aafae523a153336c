"""Training on less than there is: what is dropped, how much of it, and that it repeats."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lformer.panel import Panel, drop_observations
from lformer.panel.own_numbers import OwnNumbers
from lformer.parts import PanelPart, Targets


@pytest.mark.parametrize("own", [False, True])
def test_dropped_fractions_by_count(own: bool) -> None:
    rng = np.random.default_rng(2)
    panel = Panel.from_list([(np.arange(50.0), rng.standard_normal((50, 4))) for _ in range(400)])
    left = drop_observations(panel, 0.2, OwnNumbers([2], np.arange(400)) if own else rng)
    assert left.observed is not None
    kept = left.observed.sum() / panel.values.size
    assert kept == pytest.approx(0.8**2 * 0.7, abs=0.02)  # neither channel nor observation, nor row
    never = 1 - np.mean([left[[i]].compact().observed.any(axis=0).mean() for i in range(400)])  # type: ignore[union-attr]
    assert never == pytest.approx(0.2, abs=0.03)
    assert (left.values[~left.observed] == 0).all()
    assert (left.lengths >= 1).all()
    assert np.array_equal(left.first_times(), panel.first_times())
    same = drop_observations(panel, 0.0, rng)
    assert np.array_equal(same.values, panel.values)


def test_of_one_channel_alone_only_rows_are_dropped() -> None:
    rng = np.random.default_rng(2)
    panel = Panel.from_list([(np.arange(50.0), rng.standard_normal((50, 1))) for _ in range(400)])
    left = drop_observations(panel, 0.2, rng)
    assert left.observed is not None
    assert left.observed.sum() / panel.values.size == pytest.approx(0.7, abs=0.02)
    assert (left.lengths > 10).all()  # none lost everything


def test_what_is_dropped_differs_from_epoch_to_epoch_and_repeats() -> None:
    rng = np.random.default_rng(1)
    panel = Panel.from_list([(np.sort(rng.random(n)), rng.standard_normal((n, 3))) for n in rng.integers(5, 30, 40)])
    part = PanelPart(panel, Targets(values=np.arange(40.0)[:, None], at="series"), np.arange(40), 7)

    def rows(epoch: int) -> list[list[float]]:
        found = sorted(part.training_batches(8, epoch, 0.3), key=lambda b: float(b.targets.sum()))  # type: ignore[union-attr]
        return [b.values.flatten().tolist() for b in found]

    def left(epoch: int) -> dict[int, int]:
        """How many rows of each series an epoch shows."""
        found = part.training_batches(8, epoch, 0.3)
        pairs = [zip(b.index.tolist(), b.lengths.tolist(), strict=True) for b in found]  # type: ignore[union-attr]
        return {series: length for batch in pairs for series, length in batch}

    assert rows(0) == rows(0)
    assert left(0) != left(1)
    asked = np.concatenate([b.targets.flatten() for b in part.training_batches(8, 0, 0.3)])  # type: ignore[union-attr]
    assert sorted(asked.tolist()) == list(range(40))
    assert next(b.values.shape for b in part.batches(40)) == (40, panel.lengths.max(), 3)


@pytest.mark.parametrize("shape", [(4,), (2, 2)])
def test_rows_that_are_asked_for_stay_beside_their_targets(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(4)
    flat = Panel.from_list([(np.sort(rng.random(n)), rng.standard_normal((n, 4))) for n in rng.integers(5, 30, 40)])
    panel = replace(flat, values=flat.values.reshape(-1, *shape))
    asked = Targets(values=panel.values.reshape(len(panel.times), -1)[:, :1].copy(), at="rows")
    part = PanelPart(panel, asked, np.arange(40), 7).some(np.arange(5, 35))
    shown, whole = [], []
    for batch in part.training_batches(8, 1, 0.2):
        assert batch.targets is not None
        assert batch.index is not None
        same = part.batch(batch.index.numpy())
        assert batch.times.equal(same.times)
        assert batch.targets.equal(same.targets)  # type: ignore[arg-type]
        assert batch.values.equal(same.values * batch.observed)
        shown.append(batch.observed[batch.valid].flatten(1).double())
        whole.append(batch.observed[batch.valid].flatten(1).all(1) | ~batch.observed[batch.valid].flatten(1).any(1))
    kept = 0.7 if len(shape) == 2 else 0.8**2 * 0.7  # of frames whole rows alone
    assert float(torch.cat(shown).mean()) == pytest.approx(kept, abs=0.08)
    assert bool(torch.cat(whole).all()) == (len(shape) == 2)


# --- numbers of a series of its own ---


def test_what_a_series_loses_does_not_depend_on_the_others() -> None:
    rng = np.random.default_rng(3)
    panel = Panel.from_list([(np.sort(rng.random(n)), rng.standard_normal((n, 3))) for n in rng.integers(0, 30, 40)])
    whole = drop_observations(panel, 0.3, OwnNumbers([1, 5], np.arange(40)))
    some = rng.permutation(40)[:15]
    alone = drop_observations(panel[some], 0.3, OwnNumbers([1, 5], some))
    for i, series in enumerate(some.tolist()):
        for expected, found in zip(whole[series], alone[i], strict=True):
            assert np.array_equal(expected, found, equal_nan=True)
    other = drop_observations(panel, 0.3, OwnNumbers([1, 6], np.arange(40)))
    assert not np.array_equal(other.lengths, whole.lengths)


def test_own_numbers_are_even_and_know_nothing_of_each_other() -> None:
    numbers = OwnNumbers([7, 0], np.arange(300))
    lengths = np.full(300, 40)
    tables = [
        numbers.of_rows(lengths, 5),
        numbers.of_rows(lengths, 5),
        OwnNumbers([7, 1], np.arange(300)).of_rows(lengths, 5),
    ]
    for table in tables:
        assert table.min() >= 0
        assert table.max() < 1
        counts = np.histogram(table, 20, (0, 1))[0]
        assert np.abs(counts / table.size * 20 - 1).max() < 0.09  # five standard deviations of a count
        assert len(np.unique(table)) > 0.99 * table.size
        by_series = table.reshape(300, 40, 5)
        for axis in range(3):  # neighbouring series, rows and channels
            one, other = np.moveaxis(by_series, axis, 0)[:-1].ravel(), np.moveaxis(by_series, axis, 0)[1:].ravel()
            assert abs(np.corrcoef(one, other)[0, 1]) < 0.02
    for one, other in ((0, 1), (0, 2)):
        assert abs(np.corrcoef(tables[one].ravel(), tables[other].ravel())[0, 1]) < 0.02
    assert numbers.of_series().shape == (300,)
    assert numbers.of_series(2, 3).shape == (300, 2, 3)
