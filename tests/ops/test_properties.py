"""What holds for every irregular series: from times to output through liquid_decay, normalise_decay and attention."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import torch
from helpers import largest, relative_error
from hypothesis import given, settings
from hypothesis import strategies as st
from ops.cases import gated_linear_attention
from torch import Tensor

from lformer.ops import GateNorm, liquid_decay, liquid_gated_attention, normalise_decay, parallel

H, K, V = 2, 3, 4
MU = torch.tensor([0.5, 0.2], dtype=torch.float64)
NORMS = pytest.mark.parametrize("norm", ["sequence", "prefix", "none"])
STREAMING_NORMS = pytest.mark.parametrize("norm", ["prefix", "none"])
BOTH = pytest.mark.parametrize("causal", [True, False], ids=["causal", "non-causal"])
for_any_series = settings(deadline=None, max_examples=25, derandomize=True)


@pytest.fixture(autouse=True, scope="module")
def short_chunks() -> Iterator[None]:
    """Short series then cross chunks and groups of chunks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallel, "chunk_length", lambda K, V: 4)
        patch.setattr(parallel, "GROUP", 2)
        yield


class Series(NamedTuple):
    """A batch; times are multiples of 1/64, so that differences are exact whatever the origin."""

    q: Tensor
    k: Tensor
    v: Tensor
    gate: Tensor
    times: Tensor

    def rows(self, start: int, stop: int | None = None) -> "Series":
        return Series(*(x[:, start:stop] for x in self))

    def batch(self, index: Tensor) -> "Series":
        return Series(*(x[index] for x in self))


class Carry(NamedTuple):
    """What joins two pieces of a series: last time, last gate, running total and memory."""

    time: Tensor
    previous: Tensor
    total: Tensor
    state: Tensor


def random_values(B: int, L: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64)

    return normal(B, L, H, K), normal(B, L, H, K), normal(B, L, H, V), torch.sigmoid(normal(B, L, H))


@st.composite
def series(draw: st.DrawFn, min_length: int = 1, max_length: int = 20, max_batch: int = 3) -> Series:
    """Any gaps from none to 16 time units; the first row comes one gap after the origin."""
    B, L = draw(st.integers(1, max_batch)), draw(st.integers(min_length, max_length))
    gap = st.one_of(st.just(0), st.integers(1, 8), st.integers(1, 1024))
    gaps = torch.tensor(draw(st.lists(gap, min_size=B * L, max_size=B * L)), dtype=torch.float64).reshape(B, L)
    return Series(*random_values(B, L, draw(st.integers(0, 1000))), gaps.cumsum(dim=1) / 64)


def intervals(times: Tensor, origin: Tensor) -> Tensor:
    return torch.diff(times, dim=1, prepend=origin[:, None])


def start(x: Series) -> Carry:
    B = x.q.shape[0]
    return Carry(*(torch.zeros(shape, dtype=torch.float64) for shape in ((B,), (B, H), (B, H), (B, H, K, V))))


def attend(x: Series, norm: GateNorm, causal: bool, padding: int = 0) -> tuple[Tensor, Tensor]:
    """Output and final state of whole series, the last `padding` rows of which are padding."""
    deltas = intervals(x.times, torch.zeros_like(x.times[:, 0]))
    valid = torch.arange(x.times.shape[1]) < x.times.shape[1] - padding
    decay = normalise_decay(liquid_decay(x.gate, deltas * valid, MU), norm)
    return liquid_gated_attention(x.q, x.k, x.v, decay, causal, return_state=True)


def attend_on(x: Series, norm: GateNorm, carry: Carry) -> tuple[Tensor, Carry]:
    """Causal output of one piece of a series, and what the next piece needs."""
    u = liquid_decay(x.gate, intervals(x.times, carry.time), MU, carry.previous)
    decay, total = normalise_decay(u, norm, carry.total, return_total=True)
    y, state = liquid_gated_attention(x.q, x.k, x.v, decay, True, carry.state, return_state=True)
    return y, Carry(x.times[:, -1], x.gate[:, -1], total, state)


class Results(NamedTuple):
    """Output at the valid rows, final state, and the gradients at the valid rows."""

    y: Tensor
    state: Tensor
    gradients: list[Tensor]

    def batch(self, index: Tensor) -> "Results":
        return Results(self.y[index], self.state[index], [g[index] for g in self.gradients])


def with_gradients(x: Series, norm: GateNorm, causal: bool, padding: int = 0) -> Results:
    x = Series(*(t.detach().requires_grad_() for t in x))
    valid = x.q.shape[1] - padding
    y, state = attend(x, norm, causal, padding)
    loss = y[:, :valid].square().sum() + state.square().sum()
    gradients = torch.autograd.grad(loss, x[:4])
    return Results(y[:, :valid], state, [g[:, :valid] for g in gradients])


def assert_same(actual: Results, expected: Results) -> None:
    """To 1e-12, of the gradients of the largest among them: that of the gate is 0 where one row takes all the decay."""
    assert relative_error(actual.y, expected.y) <= 1e-12
    assert relative_error(actual.state, expected.state) <= 1e-12
    scale = largest(*expected.gradients)
    for one, other in zip(actual.gradients, expected.gradients, strict=True):
        assert relative_error(one, other, scale) <= 1e-12


@NORMS
@BOTH
@for_any_series
@given(x=series(), padding=st.integers(1, 9), seed=st.integers(0, 1000))
def test_appended_padding_changes_nothing(norm: GateNorm, causal: bool, x: Series, padding: int, seed: int) -> None:
    rows = Series(*random_values(x.q.shape[0], padding, seed), x.times[:, -1:].expand(-1, padding))
    padded = Series(*(torch.cat(pair, dim=1) for pair in zip(x, rows, strict=True)))
    assert_same(with_gradients(padded, norm, causal, padding), with_gradients(x, norm, causal))


@NORMS
@BOTH
@for_any_series
@given(x=series(max_batch=4), data=st.data())
def test_batch_order_and_size_change_nothing(norm: GateNorm, causal: bool, x: Series, data: st.DataObject) -> None:
    B = x.q.shape[0]
    index = torch.tensor(data.draw(st.permutations(range(B)))[: data.draw(st.integers(1, B))])
    assert_same(with_gradients(x.batch(index), norm, causal), with_gradients(x, norm, causal).batch(index))


@NORMS
@BOTH
@for_any_series
@given(x=series(), origin=st.integers(-(2**40), 2**40))
def test_the_origin_of_time_changes_nothing(norm: GateNorm, causal: bool, x: Series, origin: int) -> None:
    def output(x: Series, origin: int) -> Tensor:
        deltas = intervals(x.times + origin, torch.full_like(x.times[:, 0], origin))
        decay = normalise_decay(liquid_decay(x.gate, deltas, MU), norm)
        return liquid_gated_attention(x.q, x.k, x.v, decay, causal)

    assert torch.equal(output(x, origin), output(x, 0))


@STREAMING_NORMS
@for_any_series
@given(x=series(min_length=2), data=st.data())
def test_the_future_does_not_reach_the_past(norm: GateNorm, x: Series, data: st.DataObject) -> None:
    B, L = x.times.shape
    n = data.draw(st.integers(1, L - 1))
    later = x.times[:, n:] + data.draw(st.integers(1, 640)) / 64
    other = Series(*random_values(B, L - n, data.draw(st.integers(0, 1000))), later)
    changed = Series(*(torch.cat([a[:, :n], b], dim=1) for a, b in zip(x, other, strict=True)))
    before, after = attend(x, norm, True)[0], attend(changed, norm, True)[0]
    assert torch.equal(after[:, :n], before[:, :n])
    assert not torch.equal(after[:, n:], before[:, n:])


@for_any_series
@given(x=series(min_length=3))
def test_with_the_sequence_norm_the_future_reaches_the_past_by_design(x: Series) -> None:
    x = x._replace(times=x.times + torch.arange(x.times.shape[1]) + 1.0)
    later = x._replace(times=torch.cat([x.times[:, :-1], x.times[:, -1:] + 100.0], dim=1))
    before, after = attend(x, "sequence", True)[0], attend(later, "sequence", True)[0]
    assert ((after[:, 0] - before[:, 0]).abs().amax(dim=(1, 2)) > 1e-3 * before[:, 0].abs().amax(dim=(1, 2))).all()


@STREAMING_NORMS
@for_any_series
@given(x=series(min_length=2), data=st.data())
def test_a_series_cut_anywhere_and_joined_is_the_whole(norm: GateNorm, x: Series, data: st.DataObject) -> None:
    L = x.times.shape[1]
    cut = data.draw(st.integers(1, L - 1))
    whole, whole_carry = attend_on(x, norm, start(x))
    first, carry = attend_on(x.rows(0, cut), norm, start(x))
    second, carry = attend_on(x.rows(cut), norm, carry)
    assert relative_error(torch.cat([first, second], dim=1), whole) <= 1e-12
    for actual, expected in zip(carry, whole_carry, strict=True):
        assert relative_error(actual, expected) <= 1e-12


@STREAMING_NORMS
@for_any_series
@given(x=series())
def test_row_by_row_is_the_whole(norm: GateNorm, x: Series) -> None:
    carry, rows = start(x), []
    for n in range(x.times.shape[1]):
        y, carry = attend_on(x.rows(n, n + 1), norm, carry)
        rows.append(y)
    whole, state = attend(x, norm, True)
    assert relative_error(torch.cat(rows, dim=1), whole) <= 1e-12
    assert relative_error(carry.state, state) <= 1e-12


@pytest.mark.parametrize("norm", ["sequence", "none"])
@for_any_series
@given(B=st.integers(1, 3), L=st.integers(1, 20), seed=st.integers(0, 1000), rate=st.floats(0.01, 0.99))
def test_even_spacing_and_a_constant_gate_give_ordinary_gated_linear_attention(
    norm: GateNorm, B: int, L: int, seed: int, rate: float
) -> None:
    q, k, v, gate = random_values(B, L, seed)
    gate, step = torch.full_like(gate, rate), 0.25
    u = liquid_decay(gate, torch.full((B, L), step, dtype=torch.float64), MU, previous=gate[:, 0])
    y = liquid_gated_attention(q, k, v, normalise_decay(u, norm), causal=True)
    constant = math.exp(-1 / L) if norm == "sequence" else math.exp(-step * rate)
    assert relative_error(y, gated_linear_attention(q, k, v, constant)) <= 1e-10
