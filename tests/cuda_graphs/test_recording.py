"""How work is recorded: the order of things, random numbers, memory that graphs share."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields

import pytest
import torch
from helpers import irregular_batch
from torch import Tensor

from lformer import IrregularBatch
from lformer.cuda_graphs import RecordingError, recording
from lformer.cuda_graphs.recording import Recordings, buffers, record
from lformer.draws import Draws, drawing_from, generator_on
from lformer.nn import LFormer, LFormerConfig

CPU = torch.device("cpu")


class FakeCuda:
    """Streams and graphs that only note the order of things."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.noted: list[str] = []
        self.registered: list[torch.Generator] = []
        for name in ("device", "stream", "graph"):
            monkeypatch.setattr(torch.cuda, name, lambda *a, name=name, **k: self.inside(name))
        monkeypatch.setattr(recording, "_side_stream", lambda device: self)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: self)
        monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: self)
        monkeypatch.setattr(torch.cuda, "get_rng_state", torch.get_rng_state)
        monkeypatch.setattr(torch.cuda, "set_rng_state", torch.set_rng_state)
        monkeypatch.setattr(torch, "autocast", lambda *a, cache_enabled: self.inside(f"cache {cache_enabled}"))

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        self.noted.append(name)
        yield
        self.noted.append(f"/{name}")

    def wait_stream(self, other: object) -> None:
        self.noted.append("wait")

    def register_generator_state(self, generator: torch.Generator) -> None:
        self.registered.append(generator)

    def replay(self) -> None:
        self.noted.append("replay")


def test_a_recording_follows_a_warm_up_on_a_stream_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, inputs = FakeCuda(monkeypatch), irregular_batch()

    def work(batch: IrregularBatch) -> Tensor:
        cuda.noted.append("run")
        return batch.values.sum()

    found = record(work, inputs, "work", None)
    found.replay()
    order = "device, cache False, wait, stream, run, /stream, wait, graph, run, /graph, /cache False, /device"
    assert cuda.noted == [*order.split(", "), "replay"]
    assert found.inputs is inputs
    assert torch.equal(found.output, inputs.values.sum())


def test_the_warm_up_draws_no_random_numbers_from_the_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCuda(monkeypatch)
    torch.manual_seed(3)
    expected = torch.rand(5)
    torch.manual_seed(3)
    found = record(lambda batch: torch.rand(5), irregular_batch(), "work", None)
    assert torch.equal(found.output, expected)


def test_the_generator_of_a_run_belongs_to_the_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, draws = FakeCuda(monkeypatch), Draws(CPU)
    own = draws.on(CPU)
    draws.seed(3)
    expected = torch.rand(5, generator=own)
    draws.seed(3)
    with drawing_from(draws):
        found = record(lambda batch: torch.rand(5, generator=generator_on(CPU)), irregular_batch(), "work", None)
    assert torch.equal(found.output, expected)  # the warm-up left its numbers where they were
    assert cuda.registered == [own]


def test_work_that_cannot_be_recorded_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda(monkeypatch)

    def work(batch: IrregularBatch) -> None:
        if "graph" in cuda.noted:
            raise RuntimeError("operation not permitted when stream is capturing\nmore")

    ended: list[bool] = []
    monkeypatch.setattr(recording, "_end_random_capture", lambda own: ended.append(own is None))
    with pytest.raises(RecordingError, match=r"Reader cannot be recorded .* \(operation not .* capturing\)"):
        record(work, irregular_batch(), "Reader", None)
    assert ended == [True]


def test_buffers_hold_every_tensor_of_a_batch_in_memory_of_their_own() -> None:
    values = torch.randn(3, 6, 3, dtype=torch.float64)
    batch = IrregularBatch.build(values, [0.0, 1.0, 1.5, 2.0, 4.0, 8.0], t0=0.0, targets=torch.ones(3))
    assert batch.start.stride() == (0,)
    held = buffers(batch, CPU)
    for name in (field.name for field in fields(batch)):
        tensor, buffer = getattr(batch, name), getattr(held, name)
        assert (tensor is None) == (buffer is None)
        if tensor is not None:
            assert torch.equal(tensor, buffer)
            assert buffer.is_contiguous()
            assert buffer.data_ptr() != tensor.data_ptr()


def test_graphs_share_a_pool_until_none_of_them_is_left(
    monkeypatch: pytest.MonkeyPatch, recorded: list[tuple[int, ...]]
) -> None:
    pools: list[int] = []
    used: list[object] = []
    fake = recording.record
    monkeypatch.setattr(recording, "new_pool", lambda: pools.append(len(pools)) or pools[-1])
    monkeypatch.setattr(
        recording, "record", lambda work, batch, name, pool: used.append(pool) or fake(work, batch, name, pool)
    )
    model = LFormer(LFormerConfig(inputs=3, outputs=2, width=16, heads=2)).double()
    several = Recordings(model, lambda batch: batch.values.sum(), 2)
    for length in (10, 20, 30):
        several.recording(irregular_batch(L=length), CPU)
    assert used == [0, 0, 0]
    several.clear()
    several.recording(irregular_batch(L=10), CPU)
    assert used == [0, 0, 0, 1]
    single = Recordings(model, lambda batch: batch.values.sum(), 1)
    for length in (10, 20):
        single.recording(irregular_batch(L=length), CPU)
    assert used[-2:] == [2, 3]
