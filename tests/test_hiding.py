"""Hiding rows: what stays in the panel, what is asked, and which of it was given."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from lformer.hiding import HidingPart, hide, random_rows, reconstruct, runs_and_channels
from lformer.panel import Panel
from lformer.parts import PanelPart, Targets

NAN = float("nan")


def ragged() -> Panel:
    """Three series of 3, 0 and 2 rows with two channels; row 4 holds no observation at all."""
    values = np.array([[1, NAN], [2, 12], [NAN, 13], [4, 14], [NAN, NAN]], np.float32)
    return Panel.build(np.array([0.0, 1.5, 4.0, 7.0, 9.0]), values, np.array([3, 0, 2]), ids=["a", "b", "c"])


HIDDEN = np.array([False, False, True, False, True])


def test_hidden_rows_stay_without_values() -> None:
    panel = ragged()
    shown, targets = hide(panel, HIDDEN, "rows")
    assert shown.lengths.tolist() == [3, 0, 2]
    assert shown.times.tolist() == panel.times.tolist()
    assert shown.observed is not None
    assert shown.observed.tolist() == [[True, False], [True, True], [False, False], [True, True], [False, False]]
    assert shown.values.tolist() == [[1, 0], [2, 12], [0, 0], [4, 14], [0, 0]]
    assert targets.at == "rows"
    assert targets.observed is not None
    assert targets.given is not None
    assert targets.values[2].tolist() == [0, 13]
    assert targets.observed[2].tolist() == [False, True]
    assert not targets.given[2].any()
    assert targets.given.tolist() == shown.observed.tolist()
    assert panel.values[2, 1] == 13  # the panel itself is left alone


def test_hidden_rows_are_dropped_and_asked_for_by_time() -> None:
    panel = ragged()
    shown, targets = hide(panel, HIDDEN, "query")
    assert shown.lengths.tolist() == [2, 0, 1]
    assert shown.first.tolist() == [0, 2, 2]
    assert shown.times.tolist() == [0.0, 1.5, 7.0]
    assert shown.values.tolist() == [[1, 0], [2, 12], [4, 14]]
    assert shown.ids.tolist() == ["a", "b", "c"]
    assert targets.at == "queries"
    assert targets.times is not None
    assert targets.first is not None
    assert targets.lengths is not None
    assert targets.given is not None
    assert targets.times.tolist() == panel.times.tolist()
    assert targets.first.tolist() == [0, 3, 3]
    assert targets.lengths.tolist() == [3, 0, 2]
    assert targets.given[:, 1].tolist() == [False, True, False, True, False]


@pytest.mark.parametrize("unobserved", ["rows", "query"])
def test_everything_observed(unobserved: str) -> None:
    panel = Panel.from_list([([0.0, 1.0], [[3.0], [4.0]])])
    shown, targets = hide(panel, np.array([False, True]), unobserved)  # type: ignore[arg-type]
    assert targets.observed is None
    assert targets.given is not None
    assert targets.given[:, 0].tolist() == [True, False]
    assert shown.lengths.tolist() == ([2] if unobserved == "rows" else [1])
    assert (shown.observed is None) == (unobserved == "query")


def test_batches_carry_what_was_hidden() -> None:
    shown, targets = hide(ragged(), HIDDEN, "query")
    batch = PanelPart(shown[[2, 0]], targets, np.array([2, 0]), seed=0).batch(np.array([0, 1]))
    assert batch.query_times is not None
    assert batch.targets is not None
    assert batch.targets_given is not None
    assert batch.query_times[1].tolist() == [0.0, 1.5, 4.0]
    assert batch.query_times[0, :2].tolist() == [0.0, 2.0]  # since the first row of that series
    assert batch.targets[0, 0].tolist() == [4, 14]
    assert batch.targets_given[1, :, 1].tolist() == [False, True, False]


def test_series_that_do_not_lie_one_after_the_other() -> None:
    panel = ragged()[[2, 0]]
    shown, targets = hide(panel, HIDDEN, "rows")
    assert shown.lengths.tolist() == [2, 3]
    assert shown.first.tolist() == [0, 2]
    assert shown.values.tolist() == [[4, 14], [0, 0], [1, 0], [2, 12], [0, 0]]
    assert targets.values[:, 1].tolist() == [14, 0, 0, 12, 13]
    with pytest.raises(ValueError, match="compact"):
        random_rows(panel, 0.5, seed=0)


def test_reconstruction_gives_all_that_it_asks() -> None:
    panel = ragged()
    targets = reconstruct(panel)
    assert targets.at == "rows"
    assert targets.values.tolist() == panel.values.tolist()
    assert targets.given is targets.observed
    full: Targets = reconstruct(Panel.from_list([([0.0, 1.0], [[3.0], [4.0]])]))
    assert full.observed is None
    assert full.given is not None
    assert full.given.all()


def test_random_rows_are_a_share_of_each_series_and_a_function_of_the_seed() -> None:
    lengths = np.array([10, 1, 0, 7, 2, 400])
    panel = Panel.build(np.arange(420.0), np.zeros((420, 1), np.float32), lengths)
    hidden = random_rows(panel, 0.5, seed=3)
    owner = np.repeat(np.arange(6), lengths)
    assert np.bincount(owner, hidden, 6).tolist() == [5, 0, 0, 3, 1, 200]
    assert np.array_equal(hidden, random_rows(panel, 0.5, seed=3))
    assert not np.array_equal(hidden, random_rows(panel, 0.5, seed=4))
    assert np.bincount(owner, random_rows(panel, 1.0, seed=3), 6).tolist() == [9, 0, 0, 6, 1, 399]
    assert not random_rows(panel, 0.0, seed=3).any()
    assert np.flatnonzero(hidden[:20]).tolist() == [2, 6, 7, 8, 9, 11, 13, 16, 18]  # for ever


def test_random_rows_lie_everywhere() -> None:
    panel = Panel.build(np.tile(np.arange(4.0), 5000), np.zeros((20000, 1), np.float32), np.full(5000, 4))
    share = random_rows(panel, 0.5, seed=0).reshape(5000, 4).mean(axis=0)
    assert bool((np.abs(share - 0.5) < 0.03).all())


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="one for each of the 5 rows"):
        hide(ragged(), np.zeros(4, bool), "rows")
    with pytest.raises(ValueError, match="must be one of"):
        hide(ragged(), HIDDEN, "zeros")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="between 0 and 1"):
        random_rows(ragged(), 1.5, seed=0)


# --- different in every epoch


def many(n: int = 30, seed: int = 0) -> Panel:
    """Ragged series of three channels, half of the entries missing; one of them is empty, one has a single row."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 60, n)
    lengths[3], lengths[4] = 0, 1
    values = rng.normal(3, 1, (int(lengths.sum()), 3)).astype(np.float32)
    values[rng.random(values.shape) < 0.5] = NAN
    times = np.concatenate([np.sort(rng.random(length)) * 9 for length in lengths])
    return Panel.build(times, values, lengths)


def hiding(panel: Panel, seed: int = 7, **change: Any) -> HidingPart:
    nothing = Targets(values=np.zeros((len(panel), 1), np.float32), at="series")
    part = PanelPart(panel, nothing, np.arange(len(panel)), seed)
    return HidingPart.of(part, **{"rows": 0.5, "channels": 0.2, **change})


def test_rows_are_hidden_alone_and_in_runs_and_something_stays() -> None:
    panel = many(400)
    rng = np.random.default_rng(0)
    hidden = runs_and_channels(panel, 0.5, 0.2, rng)
    assert 0.45 < hidden.rows.mean() < 0.55
    assert 0.15 < hidden.channels.mean() < 0.22
    assert not hidden.channels.all(axis=1).any()
    ends = np.cumsum(panel.lengths)[:-1]
    shown = [not part.all() for part in np.split(hidden.rows, ends) if len(part)]
    assert all(shown)
    longest = [longest_run(part) for part in np.split(hidden.rows, ends) if len(part) > 30]
    assert min(longest) <= 4
    assert max(longest) >= 15


def longest_run(hidden: Any) -> int:
    return max(map(len, "".join("x" if one else " " for one in hidden).split()), default=0)


def test_a_single_channel_is_never_hidden_whole() -> None:
    panel = Panel.from_list([(range(9), np.ones((9, 1)))] * 5)
    assert not runs_and_channels(panel, 0.5, 0.9, np.random.default_rng(0)).channels.any()


def test_what_is_hidden_is_asked_and_nothing_else() -> None:
    part = hiding(many())
    for batch, whole in zip(part.batches(8), PanelPart.batches(untouched(part), 8), strict=True):
        assert batch.targets is not None
        assert batch.targets_observed is not None
        values, presence = batch.targets.chunk(2, dim=-1)
        of_values, of_presence = batch.targets_observed.chunk(2, dim=-1)
        hidden = of_presence
        assert torch.equal(values, whole.values)
        assert torch.equal(presence.bool(), whole.observed)
        assert torch.equal(batch.observed, whole.observed & ~hidden)
        assert torch.equal(batch.values, torch.where(hidden, 0, whole.values))
        assert torch.equal(of_values, whole.observed & hidden)
        assert not bool((of_presence & ~whole.valid[..., None]).any())
        assert torch.equal(batch.times, whole.times)  # hidden rows stay


def untouched(part: HidingPart) -> PanelPart:
    return PanelPart(part.panel, part.targets, part.members, part.seed)


def test_hidden_values_and_their_presence_change_no_input() -> None:
    part = hiding(many())
    drawn = part._drawn(1, 3)
    assert drawn.hidden is not None
    panel = part.panel
    unseen = drawn.hidden.rows[:, None] | drawn.hidden.channels[np.repeat(np.arange(len(panel)), panel.lengths)]
    assert panel.observed is not None
    others = replace(
        panel, values=np.where(unseen, 99.0, panel.values).astype(np.float32), observed=panel.observed | unseen
    )
    changed = replace(part, panel=others)
    for one, two in zip(part.training_batches(8, 3), changed.training_batches(8, 3), strict=True):
        for name in ("values", "observed", "times", "deltas", "lengths"):
            assert torch.equal(getattr(one, name), getattr(two, name)), name
        assert not torch.equal(one.targets, two.targets)  # type: ignore[arg-type]


def test_other_things_are_hidden_in_every_epoch_and_by_every_seed() -> None:
    def shown(part: HidingPart, epoch: int | None) -> Any:
        batches = part.batches(100) if epoch is None else part.training_batches(100, epoch)
        (batch,) = batches
        assert batch.index is not None
        return batch.observed[batch.index.argsort()]

    part, again, other = hiding(many()), hiding(many()), hiding(many(), seed=8)
    for epoch in (0, 1, None):
        assert torch.equal(shown(part, epoch), shown(again, epoch))
        assert not torch.equal(shown(part, epoch), shown(other, epoch))
    assert not torch.equal(shown(part, 0), shown(part, 1))
    assert not torch.equal(shown(part, 0), shown(part, None))
    assert torch.equal(shown(part, None), shown(part, None))


def test_batch_size_does_not_change_what_is_hidden() -> None:
    part = hiding(many())

    def shown(size: int) -> dict[int, Any]:
        found = {}
        for batch in part.batches(size):
            rows = zip(batch.index.tolist(), batch.observed, batch.lengths.tolist(), strict=True)  # type: ignore[union-attr]
            found |= {series: seen[:length].tolist() for series, seen, length in rows}
        return found

    assert shown(1) == shown(7)


def test_nothing_is_dropped_beside_it() -> None:
    with pytest.raises(ValueError, match="nothing else may be dropped; set drop_fraction to 0"):
        hiding(many()).training_batches(8, 0, 0.1)
    with pytest.raises(ValueError, match=r"use panel\.compact\(\) first"):
        runs_and_channels(many()[[2, 1]], 0.5, 0.1, np.random.default_rng(0))
