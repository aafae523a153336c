"""Parts of a prepared set: every series once, little padding, and targets where they belong."""

import pickle
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lformer import IrregularBatch, LFormer, LFormerConfig
from lformer.data.dataset import Array
from lformer.hiding import HidingPart
from lformer.panel import Panel
from lformer.parts import POOL, PanelPart, Prepared, Targets, batches_in_turn, splits_of, training_shares

PLACES = ["series", "rows", "queries"]


def skewed(n: int, seed: int = 0) -> Array:
    """Lengths as in practice: most series short, a few very long."""
    return np.clip(np.random.default_rng(seed).lognormal(3.0, 1.0, n), 1, 1000).astype(np.int64)


def prepared(at: Any, seed: int = 0, n: int = 23, C: int = 2, lengths: Array | None = None) -> Prepared:
    """Ragged series with holes, and targets that say whose they are: observed and given only sometimes."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 9, n) if lengths is None else lengths
    N = int(lengths.sum())
    owner = np.repeat(np.arange(n), lengths)
    times = rng.exponential(1.0, N).cumsum()
    values = rng.normal(size=(N, C)).astype(np.float32)
    values[rng.random((N, C)) < 0.3] = np.nan
    panel = Panel.build(times, values, lengths, ids=[f"s{i}" for i in range(n)])
    order = rng.permutation(n)
    parts = {"train": order[: n // 2], "validation": order[n // 2 : n // 2 + 3], "test": order[n // 2 + 3 :]}
    if at == "series":
        targets = Targets(values=np.arange(n) * 10, at=at)
    elif at == "rows":
        seen = rng.random((N, 2)) < 0.6
        targets = Targets(
            values=np.column_stack([owner, np.arange(N)]).astype(np.float32), at=at, observed=seen, given=seen[::-1]
        )
    else:
        asked = rng.integers(0, 6, n)
        M = int(asked.sum())
        first = np.cumsum(asked) - asked
        begin = np.array([times[f] if k else 0.0 for f, k in zip(panel.first, lengths, strict=True)])
        clock = np.repeat(begin, asked) + rng.random(M)
        targets = Targets(
            values=np.arange(M, dtype=np.float32)[:, None], at=at, times=clock, first=first, lengths=asked
        )
    return Prepared(panel=panel, targets=targets, **parts)


def run_of(at: str, whole: Prepared, series: int) -> slice:
    """Which of the flat targets belong to a series."""
    holder: Any = whole.panel if at == "rows" else whole.targets
    return slice(int(holder.first[series]), int(holder.first[series] + holder.lengths[series]))


def same(a: IrregularBatch, b: IrregularBatch) -> bool:
    """Field by field."""
    return all(
        (x is None and y is None) or (x is not None and y is not None and x.dtype == y.dtype and torch.equal(x, y))
        for x, y in ((getattr(a, f.name), getattr(b, f.name)) for f in fields(IrregularBatch))
    )


def padding(batches: list[IrregularBatch]) -> float:
    """The share of rows that hold nothing."""
    cells = sum(batch.values.shape[0] * batch.values.shape[1] for batch in batches)
    return 1 - sum(int(batch.lengths.sum()) for batch in batches) / cells


def order_of(batches: Any) -> list[int]:
    """The series in the order in which they come."""
    return [i for batch in batches for i in batch.index.tolist()]


@pytest.mark.parametrize("at", PLACES)
@pytest.mark.parametrize("seed", range(3))
def test_every_batch_equals_a_slow_loop(at: str, seed: int) -> None:
    whole = prepared(at, seed)
    splits = splits_of(whole, "toy", "classify", seed=1, partial="half of it")
    assert (splits.name, splits.task, splits.partial) == ("toy", "classify", "half of it")
    seen = []
    for name in ("train", "validation", "test"):
        part = getattr(splits, name)
        members = getattr(whole, name)
        assert len(part) == len(members)
        assert part.partial == "half of it"
        for batch in part.batches(4):
            series = members[batch.index.numpy()]
            seen.extend(series.tolist())
            plain = IrregularBatch.from_series([whole.panel[int(i)] for i in series])
            for field in ("values", "times", "deltas", "observed", "lengths", "start"):
                assert torch.equal(getattr(batch, field), getattr(plain, field)), field
            check_targets(at, whole, series, batch)
    assert sorted(seen) == list(range(23))


def check_targets(at: str, whole: Prepared, series: Array, batch: IrregularBatch) -> None:
    """Each target of each series in its place, nothing on padding."""
    targets = whole.targets
    assert batch.targets is not None
    if at == "series":
        assert batch.targets.tolist() == [10 * i for i in series]
        assert batch.targets_observed is None
        return
    for row, i in enumerate(series):
        run = run_of(at, whole, i)
        count = run.stop - run.start
        np.testing.assert_array_equal(batch.targets[row, :count].numpy(), targets.values[run])
        assert not batch.targets[row, count:].any()
        if batch.targets_observed is not None:
            assert batch.targets_observed.shape == batch.targets.shape
            assert batch.targets_observed.dtype == torch.bool
            assert not batch.targets_observed[row, count:].any()
            expected = np.ones_like(targets.values[run], bool) if targets.observed is None else targets.observed[run]
            np.testing.assert_array_equal(batch.targets_observed[row, :count].numpy(), expected)
        else:
            assert count == batch.targets.shape[1]
        if targets.given is not None:
            assert batch.targets_given is not None
            np.testing.assert_array_equal(batch.targets_given[row, :count].numpy(), targets.given[run])
            assert not batch.targets_given[row, count:].any()
        if at == "queries":
            assert targets.times is not None
            assert batch.query_times is not None
            since = targets.times[run] - whole.panel.first_times()[i] if whole.panel.lengths[i] else np.zeros(count)
            np.testing.assert_array_equal(batch.query_times[row, :count].numpy(), since)
            rest = batch.query_times[row, count:]
            assert (rest == (batch.query_times[row, count - 1] if count else 0.0)).all()
    assert (batch.query_times is None) == (at != "queries")


@pytest.mark.parametrize("at", PLACES)
def test_neither_padding_nor_the_batch_changes_a_series(at: str) -> None:
    part = splits_of(prepared(at, n=40), "toy", "regress", seed=0).train
    alone = {batch.index.item(): batch for batch in part.batches(1) if batch.index is not None}
    assert sorted(alone) == list(range(20))
    for size in (3, 7, 64):
        for batch in part.batches(size):
            assert batch.index is not None
            for row, i in enumerate(batch.index.tolist()):
                for field in fields(IrregularBatch):
                    mine, own = getattr(batch, field.name), getattr(alone[i], field.name)
                    if mine is not None and own is not None:
                        shape = own.shape[1:]
                        assert torch.equal(mine[row][tuple(slice(0, k) for k in shape)], own[0]), field.name


@given(st.integers(0, 60), st.integers(1, 20), st.integers(0, 5), st.integers(0, 10**6))
@settings(max_examples=50, deadline=None)
def test_an_epoch_holds_every_series_once(n: int, size: int, epoch: int, seed: int) -> None:
    lengths = np.random.default_rng(seed).integers(0, 5, n)
    part = PanelPart(*_parts_of(lengths), seed=seed)
    batches = list(part.training_batches(size, epoch))
    assert len(batches) == part.training_steps(size)
    assert sorted(order_of(batches)) == list(range(n))
    assert all(0 < len(batch) <= size for batch in batches)
    evaluation = list(part.batches(size))
    assert sorted(order_of(evaluation)) == list(range(n))
    in_order = lengths[order_of(evaluation)].tolist()
    assert in_order == sorted(in_order)


def _parts_of(lengths: Array) -> tuple[Panel, Targets, Array]:
    rows = int(lengths.sum())
    panel = Panel.build(np.arange(rows, dtype=float), np.ones((rows, 1), np.float32), lengths)
    return panel, Targets(values=np.arange(len(lengths)), at="series"), np.arange(len(lengths))


def test_an_epoch_is_a_function_of_seed_and_epoch_alone() -> None:
    parts = _parts_of(skewed(200))
    part = PanelPart(*parts, seed=3)
    first = order_of(part.training_batches(8, 1))
    np.random.seed(99)  # noqa: NPY002 - the global stream must not matter
    torch.manual_seed(99)
    list(part.training_batches(8, 0))
    assert order_of(part.training_batches(8, 1)) == first
    assert order_of(PanelPart(*parts, seed=3).training_batches(8, 1)) == first
    assert order_of(part.training_batches(8, 2)) != first
    assert order_of(PanelPart(*parts, seed=4).training_batches(8, 1)) != first
    assert order_of(part.batches(8)) == order_of(PanelPart(*parts, seed=4).batches(8))


def test_the_order_of_an_epoch_is_frozen() -> None:
    part = PanelPart(*_parts_of(np.array([3, 1, 2, 3, 1, 5, 2, 2, 4, 1])), seed=42)
    assert [batch.index.tolist() for batch in part.training_batches(4, 0) if batch.index is not None] == [
        [4, 1, 9, 6],
        [8, 5],
        [2, 7, 0, 3],
    ]


def test_series_of_similar_length_share_a_batch() -> None:
    lengths = skewed(4000)
    part = PanelPart(*_parts_of(lengths), seed=0)
    shuffled = np.random.default_rng(0).permutation(4000)
    random = [part.batch(shuffled[a : a + 32]) for a in range(0, 4000, 32)]
    assert padding(random) > 0.75
    assert padding(list(part.batches(32))) < 0.09  # the few longest differ much
    training = list(part.training_batches(32, 0))
    assert padding(training) < 0.22
    longest = [int(batch.lengths.max()) for batch in training]
    assert longest != sorted(longest)  # and yet the batches come in random order
    assert len(lengths) > POOL * 32  # there are several pools, so even the longest one meets others in every epoch
    companions = [
        next(set(batch.index.tolist()) for batch in part.training_batches(32, epoch) if lengths.argmax() in batch.index)
        for epoch in (0, 1)
    ]
    assert len(companions[0] & companions[1]) < 24


def test_equal_lengths_are_shuffled_too() -> None:
    part = PanelPart(*_parts_of(np.full(50, 4)), seed=0)
    assert order_of(part.training_batches(10, 0)) != list(range(50))
    assert order_of(part.training_batches(10, 0)) != order_of(part.training_batches(10, 1))


@pytest.mark.parametrize("at", PLACES)
def test_a_part_of_a_cut_panel_is_padded_to_its_length(at: str) -> None:
    whole = prepared(at, lengths=np.array([5, 2, 6, 1, 3, 4, 2]), n=7)
    part = PanelPart(replace(whole.panel, pad_to=9), whole.targets, np.arange(7), 0)
    for batch in part.batches(3):
        assert batch.values.shape[1] == 9
        assert batch.targets is not None
        if at == "rows":
            assert batch.targets.shape[1] == 9
        assert batch.index is not None
        check_targets(at, whole, batch.index.numpy(), batch)


@pytest.mark.parametrize("at", PLACES)
@pytest.mark.parametrize("name", ["train", "validation", "test"])
def test_a_pickled_part_gives_the_same_batches_and_is_small(at: str, name: str) -> None:
    whole = prepared(at, n=60, C=5)
    part = getattr(splits_of(whole, "toy", "regress", seed=0), name)
    back = pickle.loads(pickle.dumps(part))
    assert all(same(a, b) for a, b in zip(part.batches(4), back.batches(4), strict=True))
    assert all(same(a, b) for a, b in zip(part.training_batches(4, 2), back.training_batches(4, 2), strict=True))
    assert all(same(a, b) for a, b in zip(part.batches(4), part.compact().batches(4), strict=True))
    assert (back.seed, back.partial) == (part.seed, part.partial)
    if name == "validation":
        assert len(back.panel.times) == int(part.panel.lengths.sum())
        assert len(back.targets.values) < len(whole.targets.values) / 5


# --- dealt out among several processes ---


def series_of(batch: IrregularBatch) -> list[int]:
    assert batch.index is not None
    return batch.index.tolist()


@pytest.mark.parametrize("of", [2, 3, 5])
@pytest.mark.parametrize("drop_fraction", [0.0, 0.3])
@pytest.mark.parametrize("large", [False, True])
def test_every_batch_is_dealt_out_series_by_series(
    of: int, drop_fraction: float, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lformer.parts.is_large", lambda panel: large)
    whole = prepared("series", n=50, C=3)
    part = splits_of(whole, "toy", "regress", seed=0).train
    size = 4  # fewer series than processes, if there are five
    batches = list(part.training_batches(size, 2, drop_fraction))
    everyone = [list(part.training_shares(size, 2, drop_fraction, (n, of))) for n in range(of)]
    assert {len(shares) for shares in everyone} == {part.training_steps(size)}
    short = 0
    for batch, *shares in zip(batches, *everyone, strict=True):
        for n, share in enumerate(shares):
            mine = batch[n::of]
            assert share.counts == (len(mine) > 0)
            short += not share.counts
            expected = mine if share.counts else batch[:1]
            assert series_of(share.batch) == series_of(expected)
            assert torch.equal(share.batch.lengths, expected.lengths)
            longest = share.batch.values.shape[1]
            assert torch.equal(share.batch.values, expected.values[:, :longest])
            assert share.batch.targets is not None
            assert torch.equal(share.batch.targets, expected.targets)
    assert (short > 0) == (of == 5 or len(part) % size < of)


@pytest.mark.parametrize("of", [1, 2, 3])
def test_batches_are_taken_in_turn(of: int) -> None:
    part = splits_of(prepared("rows", n=50), "toy", "regress-points", seed=0).train
    hiding = HidingPart.of(part, 0.5, 0.2)
    for one in (part, hiding):
        dealt = [list(one.batches(4, (n, of))) for n in range(of)]
        for k, batch in enumerate(one.batches(4)):
            assert same(batch, dealt[k % of][k // of])
        assert sum(map(len, dealt)) == k + 1


def test_a_part_that_deals_nothing_out_is_dealt_out() -> None:
    class Plain:
        def __init__(self, part: PanelPart) -> None:
            self.batches, self.training_batches = part.batches, part.training_batches

    part = splits_of(prepared("series", n=50, C=3), "toy", "regress", seed=0).train
    plain: Any = Plain(part)
    for turn in ((0, 3), (2, 3), (4, 5)):
        shares = list(training_shares(plain, 4, 1, 0.0, turn))
        for share, expected in zip(shares, part.training_shares(4, 1, 0.0, turn), strict=True):
            assert share.counts == expected.counts
            assert series_of(share.batch) == series_of(expected.batch)
        in_turn = zip(batches_in_turn(plain, 4, turn), part.batches(4, turn), strict=True)
        assert all(same(a, b) for a, b in in_turn)


def test_rows_without_padding_need_no_mask() -> None:
    panel, _, members = _parts_of(np.full(6, 3))
    targets = Targets(values=np.arange(18), at="rows")
    batch = next(iter(PanelPart(panel, targets, members, 0).batches(2)))
    assert batch.targets_observed is None
    assert batch.targets is not None
    assert batch.targets.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_no_queries_at_all() -> None:
    panel, _, members = _parts_of(np.array([2, 3]))
    none = np.zeros(2, np.int64)
    targets = Targets(values=np.zeros((0, 2), np.float32), at="queries", times=np.zeros(0), first=none, lengths=none)
    batch = next(iter(PanelPart(panel, targets, members, 0).batches(2)))
    assert batch.targets is not None
    assert batch.targets.shape == (2, 0, 2)
    assert batch.query_times is not None
    assert batch.query_times.shape == (2, 0)


def test_queries_of_whole_number_stamps_count_from_the_first_row() -> None:
    panel = Panel.from_list([([100, 103], [1.0, 2.0]), ([7, 9], [1.0, 2.0])])
    targets = Targets(
        values=np.zeros((3, 1)), at="queries", times=np.array([1.0, 4.0, 0.5]), first=np.array([0, 2]),
        lengths=np.array([2, 1]),
    )  # fmt: skip
    batch = PanelPart(panel, targets, np.arange(2), 0).batch(np.arange(2))
    assert batch.query_times is not None
    assert batch.query_times.tolist() == [[1.0, 4.0], [0.5, 0.5]]  # `times` are in the frame of the panel's


def asked_part(origin: float, far: float = 0.0) -> PanelPart:
    """Series of 3, 0 and 2 rows, each asked at three times."""
    panel = Panel.build(
        origin + np.array([0.0, 0.5, 2.0, 7.0, 9.0]),
        np.random.default_rng(0).normal(size=(5, 2)),
        [3, 0, 2],
        ids=list("abc"),
    )
    times = origin + np.array([0.25, 3.0, 1.0, 4.0, 0.5, 2.0, 8.0, 10.0, 6.0 + far])
    targets = Targets(
        values=np.zeros((9, 2)), at="queries", times=times, first=np.array([0, 3, 6]), lengths=np.array([3, 3, 3])
    )
    return PanelPart(panel, targets, np.arange(3), 0, precise=True)


@pytest.mark.parametrize("embedding", ["sinusoidal", "relative"])
def test_answers_to_queries_do_not_depend_on_the_origin_even_without_rows(embedding: str) -> None:
    config = LFormerConfig(inputs=2, outputs=2, width=16, heads=2, answer="query", time_embedding=embedding)
    model = LFormer(config).double()
    told = []
    for origin in (0.0, 1024.0):
        batch = asked_part(origin).batch(np.arange(3))
        assert batch.query_times is not None
        assert batch.query_times.tolist() == [[0.25, 3.0, 1.0], [0.0, 0.0, 0.0], [1.0, 3.0, -1.0]]
        told.append(model(replace(batch, deltas=batch.deltas.double())))
    assert torch.equal(told[0], told[1])


def test_a_query_too_far_away_is_refused() -> None:
    part = asked_part(0.0, far=1e39)
    with pytest.raises(
        ValueError, match=r"within 1.7e\+38 of the first row; series 'c' has a query at 1e\+39. Use a larger"
    ):
        part.batch(np.array([0, 2]))
    part.batch(np.array([0, 1]))


def test_a_part_that_is_not_precise_refuses_what_float32_cannot_hold() -> None:
    panel = Panel.build(np.array([0.0, 1.0]), np.array([[1.0], [1e39]]), [1, 1], ids=["a", "b"], channels=["k"])
    part = PanelPart(panel, Targets(values=np.zeros(2), at="series"), np.arange(2), 0)
    assert part.batch(np.array([0])).values.dtype == torch.float32
    with pytest.raises(ValueError, match=r"float32 cannot hold an observed value: series 'b', time 1.0, channel 'k'"):
        part.batch(np.array([0, 1]))
    wide = replace(part, precise=True).batch(np.array([0, 1]))
    assert wide.values.flatten().tolist() == [1.0, 1e39]
