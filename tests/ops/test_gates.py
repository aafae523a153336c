"""From intervals to decay: what the three norms promise, what may be cut, scaled or appended, and what is refused."""

import math
import re
from collections.abc import Callable

import pytest
import torch
from helpers import relative_error
from ops.cases import operands
from torch import Tensor

from lformer.ops import GateNorm, liquid_decay, liquid_gated_attention, normalise_decay

NORMS = pytest.mark.parametrize("norm", ["sequence", "prefix", "none"])
RELATIVE_NORMS = pytest.mark.parametrize("norm", ["sequence", "prefix"])
STREAMING_NORMS = pytest.mark.parametrize("norm", ["prefix", "none"])

L = 8


def inputs(B: int = 2, L: int = L, H: int = 3, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Gate values (B, L, H), intervals (B, L) of very different sizes with one tie, interpolation weights (H,)."""
    g = torch.Generator().manual_seed(0)
    gate = torch.rand(B, L, H, generator=g, dtype=torch.float64)
    deltas = torch.exp(2 * torch.randn(B, L, generator=g, dtype=torch.float64))
    deltas[:, 3:4] = 0.0
    mu = torch.rand(H, generator=g, dtype=torch.float64)
    return gate.to(dtype), deltas.to(dtype), mu.to(dtype)


def composed(gate: Tensor, deltas: Tensor, mu: Tensor, norm: GateNorm, is_query: Tensor | None = None) -> Tensor:
    return normalise_decay(liquid_decay(gate, deltas, mu, is_query=is_query), norm, is_query=is_query)


# --- the endpoint rule ---


def test_decay_interpolates_between_the_two_endpoints_of_an_interval() -> None:
    gate, deltas, mu = inputs()
    expected = torch.empty_like(gate)
    for n in range(L):
        before = gate[:, n - 1] if n else torch.zeros_like(gate[:, 0])
        expected[:, n] = deltas[:, n, None] * (mu * before + (1 - mu) * gate[:, n])
    torch.testing.assert_close(liquid_decay(gate, deltas, mu), expected, rtol=1e-14, atol=0)


def test_one_mu_serves_every_head() -> None:
    gate, deltas, _ = inputs()
    one = torch.tensor([0.3], dtype=torch.float64)
    assert torch.equal(liquid_decay(gate, deltas, one), liquid_decay(gate, deltas, one.expand(3)))


@pytest.mark.parametrize(("mu", "endpoint"), [(0.0, 1), (1.0, 0)])
def test_mu_at_its_ends_is_one_endpoint(mu: float, endpoint: int) -> None:
    gate, deltas, _ = inputs()
    u = liquid_decay(gate, deltas, torch.tensor([mu]))
    assert torch.equal(u[:, 1:], deltas[:, 1:, None] * gate[:, endpoint : L - 1 + endpoint])


@NORMS
def test_an_empty_series_has_no_decay(norm: GateNorm) -> None:
    gate, deltas, mu = inputs(L=0)
    decay, total = normalise_decay(liquid_decay(gate, deltas, mu), norm, return_total=True)
    assert decay.shape == gate.shape
    assert torch.equal(total, torch.zeros(2, 3, dtype=torch.float64))


# --- the norms ---


def test_sequence_decays_by_one_in_total() -> None:
    decay = composed(*inputs(), "sequence")
    rounding = L * torch.finfo(decay.dtype).eps  # of the sum that divides and of this one
    torch.testing.assert_close(decay.sum(dim=1), torch.ones(2, 3, dtype=torch.float64), rtol=rounding, atol=0)


def test_prefix_gives_the_first_row_everything_and_no_row_more_than_that() -> None:
    decay = composed(*inputs(), "prefix")
    assert (decay[:, 0] == 1).all()
    assert ((decay >= 0) & (decay <= 1)).all()


def test_prefix_divides_by_the_running_sum() -> None:
    u = liquid_decay(*inputs())
    expected = torch.stack([u[:, n] / u[:, : n + 1].sum(dim=1) for n in range(L)], dim=1)
    torch.testing.assert_close(normalise_decay(u, "prefix"), expected, rtol=1e-14, atol=0)


def test_none_is_the_identity() -> None:
    u = liquid_decay(*inputs())
    assert torch.equal(normalise_decay(u, "none"), u)


@NORMS
def test_the_total_is_the_sum_of_the_decay_before_normalisation(norm: GateNorm) -> None:
    u = liquid_decay(*inputs())
    _, total = normalise_decay(u, norm, return_total=True)
    torch.testing.assert_close(total, u.sum(dim=1), rtol=1e-15, atol=0)


@NORMS
def test_a_series_of_ties_has_no_decay_and_finite_gradients(norm: GateNorm) -> None:
    gate, deltas, mu = inputs()
    deltas[1] = 0.0
    gate, deltas = gate.requires_grad_(), deltas.requires_grad_()
    decay = composed(gate, deltas, mu, norm)
    by_gate, by_deltas = torch.autograd.grad(decay.square().sum() + decay[1].sum(), (gate, deltas))
    assert torch.equal(decay[1], torch.zeros(L, 3, dtype=torch.float64))
    assert torch.equal(by_gate[1], torch.zeros(L, 3, dtype=torch.float64))
    assert by_deltas.isfinite().all()
    if norm != "none":
        assert torch.equal(by_deltas[1], torch.zeros(L, dtype=torch.float64))
    assert by_gate[0].abs().max() > 0


@NORMS
def test_ties_take_no_share(norm: GateNorm) -> None:
    assert (composed(*inputs(), norm)[:, 3] == 0).all()


@NORMS
@pytest.mark.parametrize("extra", [1, 5])
def test_padding_takes_no_share(norm: GateNorm, extra: int) -> None:
    gate, deltas, mu = inputs(L=L + extra)
    deltas[:, L:] = 0.0
    padded = composed(gate, deltas, mu, norm)
    assert (padded[:, L:] == 0).all()
    torch.testing.assert_close(padded[:, :L], composed(gate[:, :L], deltas[:, :L], mu, norm), rtol=1e-14, atol=0)


# --- continuing a series ---


@STREAMING_NORMS
@pytest.mark.parametrize("cut", range(L + 1))
def test_a_series_cut_anywhere_continues_through_previous_and_total(norm: GateNorm, cut: int) -> None:
    gate, deltas, mu = inputs()
    before = torch.full((2, 3), 0.7, dtype=torch.float64)
    earlier = torch.full((2, 3), 2.0, dtype=torch.float64)
    whole, whole_total = normalise_decay(liquid_decay(gate, deltas, mu, before), norm, earlier, return_total=True)

    u = liquid_decay(gate[:, :cut], deltas[:, :cut], mu, before)
    first, total = normalise_decay(u, norm, earlier, return_total=True)
    u = liquid_decay(gate[:, cut:], deltas[:, cut:], mu, gate[:, cut - 1] if cut else before)
    second, total = normalise_decay(u, norm, total, return_total=True)

    torch.testing.assert_close(torch.cat([first, second], dim=1), whole, rtol=1e-14, atol=0)
    torch.testing.assert_close(total, whole_total, rtol=1e-14, atol=0)


def test_previous_is_the_earlier_endpoint_of_the_first_row_only() -> None:
    gate, deltas, mu = inputs()
    previous = torch.rand(2, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    plain, continued = liquid_decay(gate, deltas, mu), liquid_decay(gate, deltas, mu, previous)
    torch.testing.assert_close(continued[:, 0] - plain[:, 0], deltas[:, :1] * mu * previous, rtol=1e-12, atol=1e-15)
    assert torch.equal(continued[:, 1:], plain[:, 1:])


def test_sequence_cannot_be_continued_from_a_total() -> None:
    u = liquid_decay(*inputs())
    with pytest.raises(ValueError, match=r'"sequence".*whole series.*cannot be continued.*norm="prefix"'):
        normalise_decay(u, "sequence", total=torch.ones(2, 3))


# --- the unit of time ---


@RELATIVE_NORMS
@pytest.mark.parametrize("unit", [1e-12, 3600.0, 1e6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_unit_of_time_cancels(norm: GateNorm, unit: float, dtype: torch.dtype) -> None:
    gate, deltas, mu = inputs(dtype=dtype)
    expected = composed(gate, deltas, mu, norm)
    assert relative_error(composed(gate, deltas * unit, mu, norm), expected) <= 4 * torch.finfo(dtype).eps


@pytest.mark.parametrize("unit", [1e-12, 3600.0, 1e6])
def test_without_a_norm_the_decay_grows_with_the_unit_of_time(unit: float) -> None:
    gate, deltas, mu = inputs()
    expected = unit * composed(gate, deltas, mu, "none")
    torch.testing.assert_close(composed(gate, deltas * unit, mu, "none"), expected, rtol=1e-14, atol=0)


# --- rows that only read ---

READS = pytest.mark.parametrize(
    "where",
    [[0], [L - 1], [2, 3, 4], [0, 1, 5, 7], [0, 2, 4, 6], list(range(L))],
    ids=["first", "last", "run", "scattered", "alternating", "all"],
)


def reading_rows(where: list[int]) -> Tensor:
    is_query = torch.zeros(2, L, dtype=torch.bool)
    is_query[:, where] = True
    return is_query


@NORMS
@READS
def test_reading_rows_change_no_other_row(norm: GateNorm, where: list[int]) -> None:
    gate, deltas, mu = inputs()
    is_query = reading_rows(where)
    u, kept = liquid_decay(gate, deltas, mu, is_query=is_query), ~is_query[0]
    decay, total = normalise_decay(u, norm, return_total=True, is_query=is_query)
    expected, expected_total = normalise_decay(
        liquid_decay(gate[:, kept], deltas[:, kept], mu), norm, return_total=True
    )
    torch.testing.assert_close(decay[:, kept], expected, rtol=1e-14, atol=0)
    torch.testing.assert_close(total, expected_total, rtol=1e-14, atol=0)


@NORMS
@READS
def test_a_reading_row_decays_as_a_row_in_its_place_would(norm: GateNorm, where: list[int]) -> None:
    gate, deltas, mu = inputs()
    decay = composed(gate, deltas, mu, norm, reading_rows(where))
    written = [n for n in range(L) if n not in where]
    u = liquid_decay(gate[:, written], deltas[:, written], mu)
    whole = u.sum(dim=1)
    for n in where:
        past = sum(m < n for m in written)
        before = gate[:, written[past - 1]] if past else torch.zeros_like(gate[:, 0])
        own = deltas[:, n, None] * (mu * before + (1 - mu) * gate[:, n])
        share = {"sequence": whole, "prefix": u[:, :past].sum(dim=1) + own, "none": torch.ones_like(own)}[norm]
        expected = torch.where(share > 0, own / share.clamp(min=1e-300), 0.0)
        torch.testing.assert_close(decay[:, n], expected, rtol=1e-13, atol=0)


def test_reads_may_differ_between_series() -> None:
    gate, deltas, mu = inputs()
    is_query = torch.zeros(2, L, dtype=torch.bool)
    is_query[0, 2], is_query[1, 5:7] = True, True
    together = composed(gate, deltas, mu, "prefix", is_query)
    alone = [composed(gate[b : b + 1], deltas[b : b + 1], mu, "prefix", is_query[b : b + 1]) for b in range(2)]
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-15, atol=0)


# --- precision ---


@NORMS
def test_bfloat16_inputs_are_widened_before_anything_is_computed(norm: GateNorm) -> None:
    narrow = inputs(dtype=torch.bfloat16)
    decay = composed(*narrow, norm)
    assert decay.dtype == torch.float32
    assert torch.equal(decay, composed(*(x.float() for x in narrow), norm))


@NORMS
def test_a_bfloat16_decay_is_normalised_in_float32(norm: GateNorm) -> None:
    u = liquid_decay(*inputs()).bfloat16()
    decay, total = normalise_decay(u, norm, return_total=True)
    assert decay.dtype == total.dtype == torch.float32
    assert torch.equal(decay, normalise_decay(u.float(), norm))


@NORMS
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_autocast_does_not_narrow_the_decay(norm: GateNorm, dtype: torch.dtype) -> None:
    x = inputs(dtype=dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        decay = composed(*x, norm)
    assert decay.dtype == torch.float32
    assert torch.equal(decay, composed(*x, norm))


@pytest.mark.parametrize("wide", [0, 1])
def test_one_float64_input_makes_the_decay_float64(wide: int) -> None:
    x = list(inputs(dtype=torch.float32))
    x[wide] = x[wide].double()
    assert liquid_decay(*x).dtype == torch.float64


def test_a_float64_carry_keeps_the_whole_in_float64() -> None:
    gate, deltas, mu = inputs(dtype=torch.float32)
    u = liquid_decay(gate, deltas, mu)
    _, total = normalise_decay(u, "prefix", u.sum(dim=1).double(), return_total=True)
    assert total.dtype == torch.float64
    x = operands(dtype=torch.float32)
    _, state = liquid_gated_attention(*x[:4], causal=True, state=x.state.double(), return_state=True)
    assert state.dtype == torch.float64


# --- what is refused ---


def replaced(x: Tensor, where: tuple[int, ...], value: float) -> Tensor:
    x = x.clone()
    x[where] = value
    return x


@pytest.mark.parametrize("value", [-1e-9, -math.inf, math.inf, math.nan])
def test_impossible_intervals_are_refused_with_row_and_position(value: float) -> None:
    gate, deltas, mu = inputs()
    with pytest.raises(ValueError, match=rf"deltas must be finite and not negative.*row 1 has deltas\[2\] = {value}"):
        liquid_decay(gate, replaced(deltas, (1, 2), value), mu)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("value", [-1e-9, -math.inf, math.inf, math.nan])
def test_impossible_decays_are_refused_with_row_position_and_head(value: float, causal: bool) -> None:
    q, k, v, decay, _ = operands()
    match = rf"decay must be finite and not negative.*row 1 has decay\[2, 0\] = {value}.*liquid_decay"
    with pytest.raises(ValueError, match=match):
        liquid_gated_attention(q, k, v, replaced(decay, (1, 2, 0), value), causal)


def gate_call(**wrong: Tensor) -> Tensor:
    gate, deltas, mu = inputs()
    return liquid_decay(**({"gate": gate, "deltas": deltas, "mu": mu} | wrong))


def norm_call(**wrong: Tensor) -> Tensor:
    return normalise_decay(**({"u": liquid_decay(*inputs()), "norm": "prefix"} | wrong))


def attention_call(**wrong: Tensor) -> Tensor:
    return liquid_gated_attention(**(operands(B=2, L=L, H=3, K=4, V=5)._asdict() | wrong))


@pytest.mark.parametrize(
    ("call", "name", "wrong", "expected"),
    [
        (gate_call, "gate", (2, L), "(B, L, H)"),
        (gate_call, "deltas", (2, L + 1), "(2, 8)"),
        (gate_call, "deltas", (2, L, 3), "(2, 8)"),
        (gate_call, "mu", (2,), "(3,)"),
        (gate_call, "mu", (1, 3), "(3,)"),
        (gate_call, "previous", (2, 1), "(2, 3)"),
        (gate_call, "is_query", (2, L, 1), "(2, 8)"),
        (norm_call, "u", (2, L), "(B, L, H)"),
        (norm_call, "total", (2,), "(2, 3)"),
        (norm_call, "is_query", (1, L), "(2, 8)"),
        (attention_call, "q", (2, L, 12), "(B, L, H, K)"),
        (attention_call, "k", (2, L, 3, 5), "(2, 8, 3, 4)"),
        (attention_call, "v", (2, L, 3), "(B, L, H, V)"),
        (attention_call, "v", (2, L + 1, 3, 5), "(2, 8, 3, 5)"),
        (attention_call, "decay", (2, L, 1), "(2, 8, 3)"),
        (attention_call, "state", (2, 3, 5, 4), "(2, 3, 4, 5)"),
    ],
)
def test_wrong_shapes_are_refused_with_the_right_one(
    call: Callable[..., Tensor], name: str, wrong: tuple[int, ...], expected: str
) -> None:
    with pytest.raises(
        ValueError, match=rf"^{name} must have shape {re.escape(expected)}.*; got {re.escape(str(wrong))}\.$"
    ):
        call(**{name: torch.zeros(wrong)})


@pytest.mark.parametrize("name", ["q", "k", "v", "decay", "state"])
def test_integer_operands_are_refused_by_name(name: str) -> None:
    x = operands()._asdict()
    with pytest.raises(TypeError, match=rf"{name} must be a floating point tensor; got torch\.int64"):
        liquid_gated_attention(**(x | {name: x[name].long()}))


def test_integer_gates_and_sums_are_refused_by_name() -> None:
    gate, deltas, mu = inputs()
    with pytest.raises(TypeError, match="gate must be a floating point tensor"):
        liquid_decay(gate.long(), deltas, mu)
    with pytest.raises(TypeError, match="u must be a floating point tensor"):
        normalise_decay(gate.long(), "none")


def test_an_unknown_norm_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"gate_norm.*'sequence', 'prefix', 'none'; got 'softmax'"):
        normalise_decay(liquid_decay(*inputs()), "softmax")


# --- sums near the ends of the float range ---


@pytest.mark.parametrize("norm", ["sequence", "prefix"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sum_is_shared_down_to_the_smallest_normal_number(norm: GateNorm, dtype: torch.dtype) -> None:
    tiny = torch.finfo(dtype).tiny
    u = torch.tensor([0.25, 0.75], dtype=dtype)[None, :, None]
    ordinary = normalise_decay(u, norm)
    assert torch.equal(normalise_decay(u * (4 * tiny), norm), ordinary)
    # At the threshold itself the sum is shared; just below there is nothing to share, and no gradient.
    assert float(normalise_decay(torch.tensor([tiny], dtype=dtype)[None, :, None], norm)) == 1.0
    below = torch.tensor([tiny / 2], dtype=dtype)[None, :, None].requires_grad_()
    decay = normalise_decay(below, norm)
    assert float(decay.detach()) == 0.0
    assert float(torch.autograd.grad(decay.sum(), below)[0]) == 0.0


@pytest.mark.parametrize("norm", ["sequence", "prefix"])
@pytest.mark.parametrize("size", [1e-37, 1e-30, 1e-20, 1e-10, 1.0])
def test_a_reading_row_far_after_a_short_series_has_finite_gradients(norm: GateNorm, size: float) -> None:
    """A query a day after two rows a nanosecond apart: nothing is left to read, and nothing to learn from it."""
    gate = torch.rand(1, 4, 2, requires_grad=True)
    deltas = torch.tensor([[0.0, size, 1.0, 1e30]])
    is_query = torch.tensor([[False, False, True, True]])
    u = liquid_decay(gate, deltas, torch.full((2,), 0.5), is_query=is_query)
    decay = normalise_decay(u, norm, is_query=is_query)
    assert torch.isfinite(decay).all()
    reading = torch.exp(-decay[:, 2:])
    (found,) = torch.autograd.grad(reading.sum(), gate)
    assert torch.isfinite(found).all()
    if norm == "sequence" and size < 1e-3:
        assert float(reading.detach().max()) == 0.0


def test_a_total_in_float64_goes_on_in_float64_and_the_decay_stays_narrow() -> None:
    u, total = torch.rand(1, 3, 2), torch.full((1, 2), 1e8, dtype=torch.float64)
    decay, after = normalise_decay(u, "prefix", total, return_total=True)
    assert decay.dtype == torch.float32
    assert after.dtype == torch.float64
    torch.testing.assert_close(after, total + u.double().sum(dim=1), rtol=1e-15, atol=1e-6)
    expected = u.double() / (1e8 + u.double().cumsum(dim=1))
    torch.testing.assert_close(decay.double(), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("norm", ["sequence", "prefix"])
@pytest.mark.parametrize(("dtype", "u"), [(torch.float32, 3e38), (torch.float64, 1.5e308)])
def test_a_sum_beyond_all_floats_is_refused(norm: GateNorm, dtype: torch.dtype, u: float) -> None:
    with pytest.raises(OverflowError, match=r"the decays of row 0 \(head 0\) sum to more than .* larger unit of time"):
        normalise_decay(torch.full((1, 2, 1), u, dtype=dtype), norm)
    given = torch.full((1, 2, 1), u, dtype=dtype)
    assert torch.equal(normalise_decay(given, "none"), given)
