"""The parallel form against the definition: output, state and every gradient, at every length, scale and precision."""

import math

import pytest
import torch
from helpers import relative_error
from ops.cases import Operands, errors_above, operands, pad_ragged, results
from torch import Tensor

from lformer.ops import BACKENDS, choose_backend, liquid_gated_attention, parallel

BOTH = pytest.mark.parametrize("causal", [True, False], ids=["causal", "non-causal"])
LENGTHS = pytest.mark.parametrize("L", [0, 1, 2, 3, 63, 64, 65, 1000])
SHAPES = pytest.mark.parametrize(
    ("B", "L", "H", "K", "V"),
    [(1, 150, 1, 128, 128), (1, 150, 1, 128, 8), (2, 150, 16, 4, 4), (2, 150, 3, 2, 7), (1, 150, 2, 64, 96)],
    ids=["one-wide-head", "wide-keys", "many-narrow-heads", "narrow-keys", "two-wide-heads"],
)
TOTALS = pytest.mark.parametrize("total", [1e-6, 1e-3, 1.0, 1e3, 1e6])


def with_gap(x: Operands, usual: float = 0.01, gap: float = 1e6) -> Operands:
    """Ordinary decays with one huge one in the middle."""
    decay = torch.full_like(x.decay, usual)
    decay[:, x.decay.shape[1] // 2] = gap
    return x._replace(decay=decay)


def assert_equals_reference(x: Operands, causal: bool) -> None:
    """Parallel and reference agree in float64 to 1e-10 of the largest entry, in everything they return."""
    assert not errors_above(1e-10, results(x, causal, "parallel"), results(x, causal, "reference"))


def excess_of_float32(x: Operands, causal: bool) -> dict[str, float]:
    """By how many ulp of its largest entry each float32 result errs more than twice as much as the reference does."""
    x = x.to(torch.float32)
    exact = results(x.to(torch.float64), causal, "reference")
    reference, fast = results(x, causal, "reference"), results(x, causal, "parallel")
    excess = {name: relative_error(fast[name], t) - 2 * relative_error(reference[name], t) for name, t in exact.items()}
    return {name: e / torch.finfo(torch.float32).eps for name, e in excess.items()}


def assert_as_accurate_as_reference(x: Operands, causal: bool) -> None:
    """In float32, the parallel form errs at most twice as much as the reference does, plus 4 ulp of the largest."""
    assert not {name: excess for name, excess in excess_of_float32(x, causal).items() if not excess <= 4}


# --- float64: equal ---


@BOTH
@LENGTHS
def test_equals_reference_at_every_length(L: int, causal: bool) -> None:
    assert_equals_reference(operands(L=L), causal)


@BOTH
@SHAPES
def test_equals_reference_in_every_shape(B: int, L: int, H: int, K: int, V: int, causal: bool) -> None:
    assert_equals_reference(operands(B, L, H, K, V, total=2.0), causal)


@BOTH
@pytest.mark.parametrize("L", [1, 40, 130])
def test_equals_reference_on_ragged_batches(L: int, causal: bool) -> None:
    assert_equals_reference(pad_ragged(operands(B=4, L=L)), causal)


@pytest.mark.parametrize(("L", "depth"), [(96, 0), (97, 1), (288, 1), (300, 2), (900, 3)])
def test_equals_reference_at_every_depth_of_grouping(L: int, depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "GROUP", 3)
    assert parallel._depth(-(-L // parallel.chunk_length(4, 3))) == depth
    assert_equals_reference(operands(B=1, L=L, total=5.0), causal=True)


def test_equals_reference_beyond_one_group_of_chunks() -> None:
    L = parallel.GROUP * parallel.chunk_length(2, 2) + 50
    assert_equals_reference(operands(B=1, L=L, H=1, K=2, V=2, total=20.0), causal=True)


@BOTH
@pytest.mark.parametrize("L", [0, 1, 70])
@pytest.mark.parametrize("backend", BACKENDS)
def test_no_state_means_a_state_of_zeros(backend: str, L: int, causal: bool) -> None:
    x = operands(L=L)
    nothing = liquid_gated_attention(*x[:4], causal, return_state=True, backend=backend)
    zeros = liquid_gated_attention(*x[:4], causal, torch.zeros_like(x.state), return_state=True, backend=backend)
    assert all(torch.equal(actual, expected) for actual, expected in zip(nothing, zeros, strict=True))


@BOTH
def test_output_alone_is_the_output_beside_the_state(causal: bool) -> None:
    x = operands(L=70)
    y, _ = liquid_gated_attention(*x[:4], causal, x.state, return_state=True)
    assert torch.equal(liquid_gated_attention(*x[:4], causal, x.state), y)


@BOTH
def test_gradients_are_right(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "chunk_length", lambda K, V: 2)
    monkeypatch.setattr(parallel, "GROUP", 2)
    x = [t.requires_grad_() for t in operands(B=1, L=5, K=2, V=3, total=2.0)]
    assert torch.autograd.gradcheck(lambda *x: parallel.attention(*x, causal), x)


# --- float32 and bfloat16: no less accurate than the definition ---


@BOTH
@LENGTHS
def test_float32_is_as_accurate_as_reference_at_every_length(L: int, causal: bool) -> None:
    assert_as_accurate_as_reference(operands(L=L), causal)


@BOTH
@SHAPES
def test_float32_is_as_accurate_as_reference_in_every_shape(
    B: int, L: int, H: int, K: int, V: int, causal: bool
) -> None:
    assert_as_accurate_as_reference(pad_ragged(operands(B, L, H, K, V, total=2.0)), causal)


@BOTH
def test_bfloat16_is_rounded_only_at_the_end(causal: bool) -> None:
    x = operands(L=1000, total=5.0, dtype=torch.bfloat16)
    actual, exact = results(x, causal, "parallel"), results(x.to(torch.float64), causal, "reference")
    state = actual.pop("final state")
    assert {name: t.dtype for name, t in actual.items()} == dict.fromkeys(actual, torch.bfloat16)
    assert state.dtype == torch.float32
    assert relative_error(state, exact.pop("final state")) <= 32 * torch.finfo(torch.float32).eps
    assert not errors_above(2**-8, actual, exact)


@BOTH
def test_autocast_does_not_narrow_the_sums(causal: bool) -> None:
    x = operands(L=200, total=5.0, dtype=torch.float32)
    expected = liquid_gated_attention(*x[:4], causal, x.state, return_state=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = liquid_gated_attention(*x[:4], causal, x.state, return_state=True)
    for narrow, wide in zip(actual, expected, strict=True):
        assert narrow.dtype == torch.float32
        assert torch.equal(narrow, wide)


# --- causal: any decay ---


@TOTALS
def test_causal_equals_reference_at_every_total_decay(total: float) -> None:
    assert_equals_reference(operands(L=200, total=total), causal=True)


@TOTALS
def test_causal_float32_is_as_accurate_as_reference_at_every_total_decay(total: float) -> None:
    assert_as_accurate_as_reference(operands(L=200, total=total), causal=True)


def test_causal_equals_reference_across_one_huge_gap() -> None:
    assert_equals_reference(with_gap(operands(L=300)), causal=True)


def test_causal_float32_is_as_accurate_as_reference_across_one_huge_gap() -> None:
    assert_as_accurate_as_reference(with_gap(operands(L=300)), causal=True)


def naive_segment_sums(x: Tensor) -> Tensor:
    T = x.shape[-1]
    rows = [
        [x[..., i + 1 : n + 1].sum(dim=-1) if i <= n else torch.full_like(x[..., 0], math.inf) for i in range(T)]
        for n in range(T)
    ]
    return torch.stack([torch.stack(row, dim=-1) for row in rows], dim=-2)


@pytest.mark.parametrize("T", [1, 2, 7])
def test_segment_sums_add_the_rows_between(T: int) -> None:
    x = operands(L=T).decay.mT
    torch.testing.assert_close(parallel.segment_sums(x), naive_segment_sums(x), rtol=1e-14, atol=0)


def test_segment_sums_keep_small_terms_beside_a_huge_one() -> None:
    sums = parallel.segment_sums(torch.tensor([1e-3, 1e-3, 1e20, 1e-3, 1e-3]))
    assert sums[4, 2] == torch.tensor(1e-3) + torch.tensor(1e-3)
    assert sums[1, 0] == torch.tensor(1e-3)
    assert sums[4, 1] == torch.tensor(1e20)


# --- non-causal: up to what the float range holds, and no further ---

LIMITS = [(torch.float64, 600.0), (torch.float32, 79.0)]


@pytest.mark.parametrize("total", [1e-6, 1.0, 30.0, 600.0])
def test_noncausal_equals_reference_up_to_the_limit(total: float) -> None:
    assert_equals_reference(operands(L=200, total=total), causal=False)


@pytest.mark.parametrize("total", [1e-6, 1e-3, 1.0])
def test_noncausal_float32_is_as_accurate_as_reference_within_the_budget_of_a_sequence(total: float) -> None:
    assert_as_accurate_as_reference(operands(L=200, total=total), causal=False)


@pytest.mark.parametrize("length", [2, 3, 65, 200])
@pytest.mark.parametrize("total", [10.0, 30.0, 79.0])
def test_noncausal_float32_is_as_accurate_as_reference_up_to_the_limit(total: float, length: int) -> None:
    assert_as_accurate_as_reference(operands(L=length, total=total), causal=False)


@pytest.mark.parametrize(("dtype", "total"), LIMITS)
def test_largest_span_is_near_the_largest_exponent(dtype: torch.dtype, total: float) -> None:
    assert total < parallel.largest_span(dtype) < math.log(torch.finfo(dtype).max)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_noncausal_refuses_what_overflows_and_names_the_alternatives(dtype: torch.dtype, backend: str) -> None:
    x = operands(dtype=dtype)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    x.decay[1, :, 1] *= 1.02 * parallel.largest_span(wide)
    with pytest.raises(OverflowError, match=r'row 1 .*head 1.*gate_norm="sequence".*causal=True.*unit of time'):
        liquid_gated_attention(*x[:4], causal=False, backend=backend)
    assert liquid_gated_attention(*x[:4], causal=True, backend=backend).isfinite().all()


@pytest.mark.parametrize("value", [1e30, math.inf, math.nan])
def test_noncausal_raises_instead_of_returning_what_is_not_finite(value: float) -> None:
    x = operands(dtype=torch.float32)
    x.q[1, 3], x.k[1, 2] = value, 1e30
    with pytest.raises(OverflowError, match=r"output .* not finite at \[1, 3, 0, 0\].*overflow float32.*causal=True"):
        liquid_gated_attention(*x[:4], causal=False)


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_causal_raises_too_rather_than_spreading_a_nan_within_a_chunk(value: float) -> None:
    x = operands(dtype=torch.float32)
    x.v[1, 7] = value
    with pytest.raises(OverflowError, match="hold inf or NaN"):
        liquid_gated_attention(*x[:4], causal=True)


# --- which backend runs ---


def test_auto_is_the_parallel_form() -> None:
    assert choose_backend() == choose_backend("auto") == "parallel"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_backend_asked_for_by_name_is_the_one_that_runs(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = operands()
    monkeypatch.setitem(BACKENDS, backend, lambda *x: (x[2] * 0 + 42, x[4]))
    assert choose_backend(backend) == backend
    assert (liquid_gated_attention(*x[:4], causal=True, backend=backend) == 42).all()


def test_an_unknown_backend_is_refused_with_the_known_ones() -> None:
    known = "".join(f".*{name!r}" for name in ("auto", *BACKENDS))
    with pytest.raises(ValueError, match=f"backend must be{known}.*got 'cuda'"):
        liquid_gated_attention(*operands()[:4], backend="cuda")


# --- sizes and decays at the edge ---


@BOTH
@pytest.mark.parametrize(("K", "V"), [(0, 4), (4, 0), (0, 0)])
@pytest.mark.parametrize("backend", BACKENDS)
def test_heads_of_size_zero_read_nothing(K: int, V: int, causal: bool, backend: str) -> None:
    q, k, v = torch.ones(2, 40, 3, K), torch.ones(2, 40, 3, K), torch.ones(2, 40, 3, V)
    y, state = liquid_gated_attention(q, k, v, torch.rand(2, 40, 3) / 40, causal, return_state=True, backend=backend)
    assert y.shape == (2, 40, 3, V)
    assert state.shape == (2, 3, K, V)
    assert not y.any()


@BOTH
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_decay_whose_sums_overflow_is_named_as_what_it_is(causal: bool, backend: str) -> None:
    q = torch.ones(1, 40, 2, 4)
    decay = torch.rand(1, 40, 2)
    decay[0, 7, 1] = 2e36
    with pytest.raises(OverflowError, match=r"decay must be at most 1.27e\+30.*decay\[7, 1\] = 1.99.*unit of time"):
        liquid_gated_attention(q, q, q, decay, causal, backend=backend)


def test_the_largest_decay_that_is_taken_fades_everything() -> None:
    q = torch.ones(1, 200, 2, 4)
    y = liquid_gated_attention(q, q, q, torch.full((1, 200, 2), 1e30), causal=True)
    torch.testing.assert_close(y, torch.full_like(y, 4.0))  # each row reads itself alone
