"""Parts on a device: the batches of the part itself, bit for bit, and the run that they give."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from test_parts import PLACES, prepared, same

from lformer import LFormer, LFormerConfig, tasks
from lformer.cuda_graphs import pad_to_bucket
from lformer.panel.calendar import Calendar
from lformer.parts import ALONE, PanelPart, Spec, Splits, Turn
from lformer.resident import CHUNK, ResidentPart, resident_bytes
from lformer.thinned import ThinnedPart
from lformer.train import Result, TrainConfig, fit, placing, seeded

ANSWERS: dict[str, Any] = {"series": "series", "rows": "step", "queries": "query"}


def part_of(at: str, seed: int = 0, n: int = 150, **changes: Any) -> PanelPart:
    """Ragged series with holes, some without a row or a query, in another order than in the panel."""
    whole = prepared(at, seed, n=n)
    members = np.random.default_rng(seed).permutation(n)[: n - 7]
    return replace(PanelPart(whole.panel[members], whole.targets, members, seed), **changes)


def rich(at: str) -> PanelPart:
    """With everything that a batch can hold."""
    part = part_of(at)
    rng = np.random.default_rng(1)
    return replace(
        part,
        static=rng.random((len(part), 3), np.float32),
        targets=replace(part.targets, weights=rng.random(150).astype(np.float32)),
        calendar=Calendar(clock=(1.5, 20.0)),
    )


def whole_numbers(at: str) -> PanelPart:
    """Everything observed, stored as integers, padded to a canonical length."""
    part = part_of(at)
    values = (10 * part.panel.values).astype(np.int16)
    return replace(part, panel=replace(part.panel, values=values, observed=None, scale=0.1, pad_to=11))


PARTS = {"plain": part_of, "rich": rich, "whole numbers": whole_numbers}


@pytest.mark.parametrize("at", PLACES)
@pytest.mark.parametrize("kind", PARTS)
@pytest.mark.parametrize("turn", [ALONE, (1, 3)])
def test_batches_are_those_of_the_part(at: str, kind: str, turn: Turn) -> None:
    part = PARTS[kind](at)
    assert len(part) > 2 * CHUNK
    there = ResidentPart.of(part, "cpu")
    for size in (1, 8, 200):
        for selected, batch in zip(there.batches(size, turn), part.batches(size, turn), strict=True):
            assert selected.extent == batch.extent
            assert len(selected) == len(batch)
            assert same(selected.to("cpu"), batch)
        shares = zip(there.training_shares(size, 3, turn=turn), part.training_shares(size, 3, turn=turn), strict=True)
        for mine, expected in shares:
            assert mine.counts == expected.counts
            assert same(mine.batch.to("cpu"), expected.batch)


@pytest.mark.parametrize("at", PLACES)
@pytest.mark.parametrize("kind", PARTS)
def test_padding_to_a_bucket_is_part_of_gathering(at: str, kind: str) -> None:
    part = PARTS[kind](at)
    for selected, batch in zip(ResidentPart.of(part, "cpu").batches(8), part.batches(8), strict=True):
        assert same(pad_to_bucket(selected, ANSWERS[at]).to("cpu"), pad_to_bucket(batch, ANSWERS[at]))
        rows, queries = batch.extent
        if not rows:  # a batch without a row to repeat knows no marks; no bucket is larger than nothing
            continue
        more = None if queries is None else queries + 3
        assert same(selected.padded(rows + 5, more, ANSWERS[at]).to("cpu"), batch.padded(rows + 5, more, ANSWERS[at]))
    with pytest.raises(ValueError, match="cannot be padded"):
        selected.padded(0)


def test_float64_values_stay_if_the_part_is_precise() -> None:
    part = part_of("series", precise=True)
    part = replace(part, panel=part.panel.with_values(1e6 + part.panel.values.astype(np.float64)))
    for selected, batch in zip(ResidentPart.of(part, "cpu").batches(8), part.batches(8), strict=True):
        assert batch.values.dtype == torch.float64
        assert same(selected.to("cpu"), batch)


@pytest.mark.parametrize("at", PLACES)
def test_a_part_without_rows_or_queries(at: str) -> None:
    whole = prepared(at, lengths=np.zeros(23, np.int64))
    targets = whole.targets
    if at == "queries":
        targets = replace(targets, lengths=np.zeros(23, np.int64))
    part = PanelPart(whole.panel, targets, np.arange(23), 0)
    for selected, batch in zip(ResidentPart.of(part, "cpu").batches(8), part.batches(8), strict=True):
        assert same(selected.to("cpu"), batch)


def test_what_is_dropped_must_be_dropped_before() -> None:
    with pytest.raises(ValueError, match="set drop_fraction to 0"):
        ResidentPart.of(part_of("series"), "cpu").training_shares(8, 0, 0.2)


# --- of which observations are dropped ---


@pytest.mark.parametrize("at", PLACES)
@pytest.mark.parametrize("kind", PARTS)
def test_what_is_dropped_there_is_what_the_part_drops(at: str, kind: str) -> None:
    part = PARTS[kind](at)
    there = ThinnedPart(part, "cpu")
    seen = set()
    for epoch, size, turn in ((0, 8, ALONE), (1, 8, ALONE), (2, 200, ALONE), (7, 8, (1, 3)), (1, 8, ALONE)):
        mine = there.training_shares(size, epoch, 0.3, turn)
        for share, expected in zip(mine, part.training_shares(size, epoch, 0.3, turn), strict=True):
            assert share.counts == expected.counts
            assert share.batch.extent == expected.batch.extent
            assert same(share.batch.to("cpu"), expected.batch)
            seen.add(id(share.batch.part))
        whole = zip(there.training_shares(8, epoch), part.training_shares(8, epoch), strict=True)
        assert all(same(share.batch.to("cpu"), expected.batch) for share, expected in whole)
    assert len(seen) == 1  # a recorded graph is that of one part


def test_epochs_are_shown_in_the_same_memory() -> None:
    there = ThinnedPart(part_of("series"), "cpu")
    places = []
    for epoch in range(3):
        batch = next(iter(there.training_shares(8, epoch, 0.3))).batch
        rows = batch.part.rows
        places.append([t.data_ptr() for t in (rows.place, *rows.flat.values())])
    assert places[0] == places[1] == places[2]


def test_frames_lose_whole_rows() -> None:
    part = part_of("rows")
    values = np.random.default_rng(0).random((len(part.panel.times), 3, 3)).astype(np.float32)
    part = replace(part, panel=replace(part.panel, values=values, observed=None))
    there = ThinnedPart(part, "cpu")
    for share, expected in zip(there.training_shares(8, 4, 0.3), part.training_shares(8, 4, 0.3), strict=True):
        assert same(share.batch.to("cpu"), expected.batch)


# --- in training ---


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the processor were a device with memory of its own."""
    monkeypatch.setattr(placing, "free_memory", lambda device: 2**30)


def test_a_part_is_placed_where_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    part, cpu = part_of("queries"), torch.device("cpu")
    assert placing.placed(part, cpu) is part
    needed = resident_bytes(part)
    there = ResidentPart.of(part, cpu)
    flat = [t for runs in (there.rows, there.queries) if runs is not None for t in runs.flat.values()]
    assert 0.8 * needed < sum(t.nbytes for t in flat) < 1.2 * needed
    monkeypatch.setattr(placing, "free_memory", lambda device: 4 * needed)
    assert isinstance(placing.placed(part, cpu), ResidentPart)
    assert placing.placed(part, cpu, drop_fraction=0.2) is part  # it would lie there twice
    monkeypatch.setattr(placing, "free_memory", lambda device: 8 * needed)
    assert isinstance(placing.placed(part, cpu, drop_fraction=0.2), ThinnedPart)
    monkeypatch.setattr(placing, "free_memory", lambda device: 4 * needed - 4)
    assert placing.placed(part, cpu) is part


def run(at: str, model_changes: dict[str, Any] | None = None, **changes: Any) -> Result:
    parts = [part_of(at, n=60), part_of(at, seed=1, n=30), part_of(at, seed=2, n=30)]
    answer = ANSWERS[at]
    outputs = 2 if at == "rows" else 1
    task = {
        "series": tasks.regress(), "rows": tasks.regress_points(2), "queries": tasks.records("x", 1, "query"),
    }[at]  # fmt: skip
    if at == "series":
        parts = [replace(p, targets=replace(p.targets, values=p.targets.values[:, None] / 100.0)) for p in parts]
    splits = Splits("toy", *parts, spec=Spec(inputs=2, outputs=outputs, answer=answer))
    with seeded(2):
        shape: dict[str, Any] = {"inputs": 2, "outputs": outputs, "width": 16, "heads": 2, "dropout": 0.1}
        model = LFormer(LFormerConfig(answer=answer, **shape, **(model_changes or {})))
    options = {"epochs": 3, "batch_size": 8, "device": "cpu", "clip": 1.0} | changes
    return fit(model, task, splits, TrainConfig(**options), seed=3, progress=False)


@pytest.mark.parametrize("at", PLACES)
@pytest.mark.parametrize("changes", [{}, {"precision": "float64"}, {"average": 0.3}, {"drop_fraction": 0.2}], ids=str)
def test_a_run_is_the_same_wherever_its_series_lie(
    at: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run(at, **changes)
    made: list[ResidentPart] = []
    of = ResidentPart.of

    def watched(part: PanelPart, device: torch.device) -> ResidentPart:
        made.append(of(part, device))
        return made[-1]

    monkeypatch.setattr(placing, "free_memory", lambda device: 2**30)
    monkeypatch.setattr(ResidentPart, "of", watched)
    found = run(at, **changes)
    assert [len(part) for part in made] == [53, 23]  # training and validation
    assert found.history == expected.history
    assert found.metrics == expected.metrics


@pytest.mark.usefixtures("room")
def test_pieces_of_long_series_may_lie_there_too(monkeypatch: pytest.MonkeyPatch) -> None:
    causal = {"causal": True, "gate_norm": "prefix"}
    found = run("rows", causal, piece_rows=3)
    monkeypatch.setattr(placing, "free_memory", lambda device: 0)
    assert found.history == run("rows", causal, piece_rows=3).history
