"""Streams of millions of rows: a row changes memory and sums by less than float32 can tell, and none of it is lost."""

from copy import deepcopy

import pytest
import torch
from helpers import relative_error
from torch import Tensor

from lformer import IrregularBatch, LFormer, LFormerConfig, ops
from lformer.nn import State

ROWS = 300
BEFORE = 10**7  # rows so far


def model(answer: str = "series", outputs: int = 2, persistence: str = "none") -> LFormer:
    torch.manual_seed(0)
    config = LFormerConfig(
        inputs=3, outputs=outputs, answer=answer, rows="carried", pooling="mean_last_max", causal=True,
        gate_norm="prefix", width=16, heads=2, persistence=persistence,
    )  # fmt: skip
    return LFormer(config).requires_grad_(False).eval()


def arrays() -> tuple[Tensor, Tensor]:
    """Values (1, L, 3), some missing, and times (1, L) at uneven intervals."""
    values = 1 + torch.randn(1, ROWS, 3, dtype=torch.float64)
    values[torch.rand(values.shape) < 0.3] = torch.nan
    return values, torch.rand(1, ROWS, dtype=torch.float64).cumsum(dim=1)


def late_state(exact: LFormer, values: Tensor, times: Tensor) -> State:
    """Where a stream stands after ten million rows like these, in float64."""
    _, state = exact(IrregularBatch.build(values, times, dtype=torch.float64), return_state=True)
    share = BEFORE / ROWS
    layers = tuple(layer._replace(total=layer.total * share) for layer in state.layers)
    pooled = state.pooled.clone()
    pooled[:, :16] *= share
    assert state.known is not None
    known = state.known._replace(total=state.known.total * share, seen=(state.known.seen * share).round())
    return state._replace(layers=layers, rows=state.rows * 0 + BEFORE, pooled=pooled, known=known)


def like(state: State, model: LFormer) -> State:
    """The same state, as a model in float32 holds it."""
    gates = tuple(layer._replace(gate=layer.gate.float()) for layer in state.layers)
    assert state.known is not None
    return state._replace(layers=gates, known=state.known._replace(latest=state.known.latest.float()))


def changes(after: State, before: State) -> list[Tensor]:
    """What rows did to everything that grows."""
    assert after.known is not None
    assert before.known is not None
    pairs = [(a.memory, b.memory) for a, b in zip(after.layers, before.layers, strict=True)]
    pairs += [(a.total, b.total) for a, b in zip(after.layers, before.layers, strict=True)]
    pairs += [(after.pooled[:, :16], before.pooled[:, :16]), (after.known.total, before.known.total)]
    return [a - b for a, b in pairs]


def stepped(model: LFormer, state: State, values: Tensor, times: Tensor) -> tuple[Tensor, State]:
    gaps = torch.diff(times, dim=1, prepend=times[:, :1] - 0.5)
    for n in range(ROWS):
        answer, state = model.step(values[:, n], gaps[:, n], state)
    return answer, state


@pytest.mark.parametrize("in_pieces", [False, True])
def test_rows_after_millions_of_others_count_as_they_should(in_pieces: bool) -> None:
    values, times = arrays()
    narrow = model()
    exact = deepcopy(narrow).double()
    before = late_state(exact, values, times)
    later = times + float(before.time) + 0.5 - float(times[0, 0])
    expected, truth = stepped(exact, before, values, later)
    start = like(before, narrow)
    if in_pieces:
        state = start
        for n in range(0, ROWS, 3):
            piece = IrregularBatch.build(values[:, n : n + 3], later[:, n : n + 3], t0=torch.zeros(1))
            answer, state = narrow(piece, state, return_state=True)
    else:
        answer, state = stepped(narrow, start, values, later)
    assert relative_error(answer.double(), expected) < 1e-6
    for change, wanted in zip(changes(state, before), changes(truth, before), strict=True):
        assert relative_error(change, wanted) < 1e-5


def test_the_mean_that_answers_start_from_is_exact_too() -> None:
    values, times = arrays()
    narrow = model("step", outputs=3, persistence="latest")
    assert narrow.persistence is not None
    narrow.persistence.share.fill_(1.0)  # from the mean so far alone
    exact = deepcopy(narrow).double()
    before = late_state(exact, values, times)
    later = times + float(before.time) + 0.5
    expected, truth = stepped(exact, before, values, later)
    answer, state = stepped(narrow, like(before, narrow), values, later)
    assert relative_error(answer.double(), expected) < 1e-6
    assert state.known is not None
    assert truth.known is not None
    assert torch.equal(state.known.seen, truth.known.seen)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("backend", ["reference", "parallel"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_memory_wider_than_the_rows_is_continued_in_its_own_dtype(
    causal: bool, backend: str, dtype: torch.dtype
) -> None:
    q, k, v = (torch.randn(2, 40, 3, 4).to(dtype) for _ in range(3))
    decay, state = torch.rand(2, 40, 3) / 20, torch.randn(2, 3, 4, 4, dtype=torch.float64)
    wide = (x.double() for x in (q, k, v))
    expected, after = ops.liquid_gated_attention(*wide, decay.double(), causal, state, return_state=True)
    y, found = ops.liquid_gated_attention(q, k, v, decay, causal, state, return_state=True, backend=backend)
    assert y.dtype == dtype
    assert found.dtype == torch.float64
    assert relative_error(y.double(), expected) < (1e-6 if dtype == torch.float32 else 1e-2)
    assert relative_error(found, after) < 1e-6


def test_gradients_reach_a_memory_that_is_wider_than_the_rows() -> None:
    q, k, v = (torch.randn(1, 5, 2, 3) for _ in range(3))
    decay = torch.rand(1, 5, 2)
    state = torch.randn(1, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    y, after = ops.liquid_gated_attention(q, k, v, decay, True, state, return_state=True)
    (found,) = torch.autograd.grad(y.sum() + after.sum(), state)
    wide = [x.double() for x in (q, k, v, decay)]
    y, after = ops.liquid_gated_attention(*wide, True, state, return_state=True)
    (expected,) = torch.autograd.grad(y.sum() + after.sum(), state)
    assert relative_error(found, expected) < 1e-6
