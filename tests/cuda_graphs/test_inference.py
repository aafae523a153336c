"""Inference by replay: which graph, how many, what is copied; on a GPU, the same answers as the model's own."""

from dataclasses import replace

import pytest
import torch
from helpers import irregular_batch, relative_error
from torch import nn

from lformer import IrregularBatch
from lformer.cuda_graphs import RecordingError, capture
from lformer.nn import LFormer, LFormerConfig
from lformer.ops import checks


def model(dtype: torch.dtype = torch.float64, **config: object) -> LFormer:
    torch.manual_seed(1)
    return LFormer(LFormerConfig(**{"inputs": 3, "outputs": 2, "width": 16, "heads": 2} | config)).to(dtype).eval()


def test_without_cuda_the_model_is_run_without_gradients_and_without_a_look_at_the_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net, batch = model(), irregular_batch()
    fast, looks = capture(net), []
    expected = net(batch).detach()
    monkeypatch.setattr(checks, "first_bad", lambda bad: looks.append(bad))
    answer = fast(batch)
    assert torch.equal(answer, expected)
    assert not answer.requires_grad
    assert not looks
    assert not fast.captured(batch)
    assert fast.inputs(batch) is batch


@pytest.mark.parametrize("answer", ["series", "step", "query"])
def test_a_replay_answers_for_the_batch_it_is_given(recorded: list[tuple[int, ...]], answer: str) -> None:
    net = model(answer=answer)
    fast = capture(net)
    for seed in range(3):  # other values, times, holes and lengths in the same padded shape
        batch = irregular_batch(seed=seed)
        if answer == "query":
            batch = batch.with_queries(torch.rand(4, 5, generator=torch.Generator().manual_seed(seed)) * 300)
        assert torch.equal(fast(batch), net(batch))
        assert fast.captured(batch)
    assert recorded == [(4, 30, 3)]


def test_another_shape_dtype_number_of_queries_or_precision_is_another_graph(recorded: list[tuple[int, ...]]) -> None:
    net = model(answer="query")
    fast, batch = capture(net, graphs=10), irregular_batch()
    asked = batch.with_queries(torch.rand(4, 5))
    fast(asked)
    for other in (
        irregular_batch(B=3).with_queries(torch.rand(3, 5)),
        irregular_batch(L=31).with_queries(torch.rand(4, 5)),
        batch.with_queries(torch.rand(4, 6)),
    ):
        assert not fast.captured(other)
        assert torch.equal(fast(other), net(other))
    assert len(recorded) == 4
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high" if before != "high" else "highest")
        assert not fast.captured(asked)
    finally:
        torch.set_float32_matmul_precision(before)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not fast.captured(asked)
    with torch.autocast("cpu", dtype=torch.float16, enabled=False):
        assert fast.captured(asked)
    net.float()
    assert not fast.captured(irregular_batch(dtype=torch.float32).with_queries(torch.rand(4, 5)))


def test_the_graph_not_used_for_longest_makes_room(recorded: list[tuple[int, ...]]) -> None:
    fast = capture(model(), graphs=2)
    one, two, three = (irregular_batch(L=length) for length in (10, 20, 30))
    for batch in (one, two, one, three):
        fast(batch)
    assert [fast.captured(batch) for batch in (one, two, three)] == [True, False, True]
    assert len(recorded) == 3
    fast.clear()
    assert not fast.captured(one)


def test_weights_written_in_place_are_seen_and_weights_that_moved_are_recorded_anew(
    recorded: list[tuple[int, ...]],
) -> None:
    net, batch = model(), irregular_batch()
    fast = capture(net)
    before = fast(batch)
    with torch.no_grad():
        net.mixers[0].time_mixer.query.weight.mul_(2)
    assert fast.captured(batch)
    assert torch.equal(fast(batch), net(batch))
    assert not torch.equal(fast(batch), before)
    net.load_state_dict({name: 2 * w for name, w in net.state_dict().items()}, assign=True)
    assert not fast.captured(batch)
    assert torch.equal(fast(batch), net(batch))
    assert len(recorded) == 2


def test_an_answer_is_a_copy_unless_asked_otherwise(recorded: list[tuple[int, ...]]) -> None:
    fast, one, two = capture(model()), irregular_batch(seed=0), irregular_batch(seed=1)
    copied, shared = fast(one), fast(one, copy=False)
    kept = copied.clone()
    fast(two)
    assert torch.equal(copied, kept)
    assert torch.equal(shared, fast(two))


def test_what_no_model_reads_makes_no_other_graph_and_is_not_copied(recorded: list[tuple[int, ...]]) -> None:
    net, batch = model(), irregular_batch()
    fast = capture(net)
    for targets in (None, torch.ones(4), torch.ones(4, 30)):
        asked = replace(batch, targets=targets, index=None if targets is None else torch.arange(4))
        assert torch.equal(fast(asked), net(batch))
        assert fast.captured(asked)
        assert fast.inputs(asked).targets is None
    assert len(recorded) == 1


def test_whoever_writes_into_the_buffers_spares_the_copies(recorded: list[tuple[int, ...]]) -> None:
    net = model()
    fast, batch = capture(net), irregular_batch()
    held = fast.inputs(batch)
    assert held.values.data_ptr() != batch.values.data_ptr()
    assert fast.inputs(irregular_batch(seed=1)) is held
    fast(batch)
    held.values.mul_(2)
    assert torch.equal(fast(held), net(held))
    assert not torch.equal(fast(held), net(batch))
    assert len(recorded) == 1


def test_what_is_expanded_or_needs_gradients_gets_buffers_of_its_own(recorded: list[tuple[int, ...]]) -> None:
    values = torch.randn(3, 6, 3, dtype=torch.float64)
    batch = IrregularBatch.build(values, [0.0, 1.0, 1.5, 2.0, 4.0, 8.0], t0=0.0, dtype=torch.float64)
    batch.values.requires_grad_()
    assert batch.start.stride() == (0,)
    net = model()
    fast = capture(net)
    fast(batch)
    assert not fast.inputs(batch).values.requires_grad
    assert torch.equal(fast(batch), net(batch))


def test_training_mode_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"LFormer is in training mode. Call model.eval\(\)"):
        capture(model().train())(irregular_batch())
    with pytest.raises(RuntimeError, match="training mode"):
        capture(model().train()).inputs(irregular_batch())
    with pytest.raises(ValueError, match="graphs must be at least 1; got 0"):
        capture(model(), graphs=0)


# --- on a GPU ---

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.gpu
@on_gpu
@pytest.mark.usefixtures("ordinary_kernels")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("answer", ["series", "step", "query"])
@pytest.mark.parametrize("backend", ["parallel", "auto"])
def test_a_graph_answers_as_the_model_for_ragged_batches(backend: str, answer: str, causal: bool) -> None:
    net = model(torch.float32, width=64, heads=4, answer=answer, causal=causal, backend=backend).cuda()
    fast = capture(net)
    for seed in range(3):
        batch = irregular_batch(L=100, seed=seed, dtype=torch.float32)
        if answer == "query":
            batch = batch.with_queries(torch.rand(4, 5, generator=torch.Generator().manual_seed(seed)) * 300)
        batch = batch.to("cuda")
        with torch.no_grad():
            expected = net(batch)
        assert relative_error(fast(batch), expected) < 1e-5
        assert fast.captured(batch)


@pytest.mark.gpu
@on_gpu
@pytest.mark.usefixtures("ordinary_kernels")
def test_a_graph_sees_new_weights_also_under_autocast() -> None:
    net, batch = model(torch.float32, width=64, heads=4).cuda(), irregular_batch(dtype=torch.float32).to("cuda")
    fast = capture(net)
    with torch.autocast("cuda", dtype=torch.bfloat16), torch.no_grad():
        before = fast(batch)
        net.head[-1].weight.mul_(2)
        net.head[-1].bias.mul_(2)
        assert fast.captured(batch)
        assert relative_error(fast(batch), 2 * before) < 1e-2


@pytest.mark.gpu
@on_gpu
@pytest.mark.usefixtures("ordinary_kernels")
def test_a_model_that_reads_values_cannot_be_recorded_and_the_device_works_on() -> None:
    class Reads(nn.Module):
        def forward(self, batch: IrregularBatch) -> torch.Tensor:
            return batch.values * float(batch.values.sum())

    batch = irregular_batch(dtype=torch.float32).to("cuda")
    with pytest.raises(RecordingError, match="Reads cannot be recorded as a CUDA graph"):
        capture(Reads().eval())(batch)
    assert bool(torch.isfinite(batch.values.sum()))
    assert bool(torch.isfinite(torch.randn(3, device="cuda")).all())  # random numbers too


@pytest.mark.gpu
@on_gpu
@pytest.mark.usefixtures("ordinary_kernels")
def test_an_empty_batch_is_answered_without_a_graph() -> None:
    net = model(torch.float32).cuda()
    empty = IrregularBatch.build(torch.zeros(2, 0, 3), torch.zeros(2, 0)).to("cuda")
    fast = capture(net)
    assert fast(empty).shape == (2, 2)
    assert not fast.captured(empty)
