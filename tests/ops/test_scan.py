"""The linear and the selective scan in plain PyTorch against the loop that defines them, and what they refuse."""

import pytest
import torch
from helpers import relative_error
from torch import Tensor

from lformer.ops import scan_parallel
from lformer.ops.scan import SCANS, choose_scan, linear_scan, selective_scan

LENGTHS = [1, 2, 3, 5, 17, 1000]
KINDS = [torch.float32, torch.float64, torch.complex64, torch.complex128]


def linear_operands(L: int, dtype: torch.dtype = torch.float64, P: int = 3, seed: int = 0) -> list[Tensor]:
    """Factors of magnitude below 1, as uneven times make them: some rows forget all, some nothing."""
    g = torch.Generator().manual_seed(seed)
    decay = torch.exp(2 * torch.randn(2, L, P, generator=g, dtype=torch.float64))
    angle = torch.randn(2, L, P, generator=g, dtype=torch.float64)
    turn = torch.polar(torch.ones_like(angle), angle) if dtype.is_complex else angle.sign().to(torch.complex128)
    a = torch.exp(-decay) * turn
    a[:, ::4] = 1
    shapes = ((2, L, P), (2, P))
    b, state = (torch.randn(*shape, 2, generator=g, dtype=torch.float64) for shape in shapes)
    made = [a, torch.view_as_complex(b), torch.view_as_complex(state)]
    return [(x if dtype.is_complex else x.real).to(dtype).requires_grad_() for x in made]


def selective_operands(
    L: int, dtype: torch.dtype = torch.float64, E: int = 4, N: int = 3, seed: int = 0
) -> list[Tensor]:
    g = torch.Generator().manual_seed(seed)
    u, B, C = (torch.randn(2, L, n, generator=g, dtype=torch.float64) for n in (E, N, N))
    delta = torch.exp(2 * torch.randn(2, L, E, generator=g, dtype=torch.float64) - 1)
    A = -torch.exp(torch.randn(E, N, generator=g, dtype=torch.float64))
    D = torch.randn(E, generator=g, dtype=torch.float64)
    return [x.to(dtype).requires_grad_() for x in (u, delta, A, B, C, D)]


@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("L", LENGTHS)
def test_a_linear_scan_is_the_loop(L: int, dtype: torch.dtype) -> None:
    operands = linear_operands(L, dtype)
    actual, expected = (linear_scan(*operands, backend=name) for name in ("parallel", "reference"))
    tolerance = 1e-5 if dtype in (torch.float32, torch.complex64) else 1e-13
    assert actual.dtype == dtype
    assert relative_error(torch.view_as_real(actual + 0j), torch.view_as_real(expected + 0j)) < tolerance
    weights = torch.randn_like(actual)
    one, other = (torch.autograd.grad((weights * h).abs().sum(), operands) for h in (actual, expected))
    for x, y in zip(one, other, strict=True):
        assert relative_error(torch.view_as_real(x + 0j), torch.view_as_real(y + 0j)) < tolerance


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
@pytest.mark.parametrize("L", [1, 2, 3, 5, 17])
def test_the_gradients_of_a_linear_scan_are_those_of_its_differences(L: int, dtype: torch.dtype) -> None:
    assert torch.autograd.gradcheck(linear_scan, linear_operands(L, dtype, P=2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("L", LENGTHS)
def test_a_selective_scan_is_the_loop(L: int, dtype: torch.dtype) -> None:
    operands = selective_operands(L, dtype)
    actual, expected = (selective_scan(*operands, backend=name) for name in ("parallel", "reference"))
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    assert actual.dtype == dtype
    assert relative_error(actual, expected) < tolerance
    weights = torch.randn_like(actual)
    one, other = (torch.autograd.grad((weights * y).sum(), operands) for y in (actual, expected))
    scale = max(float(g.abs().max()) for g in other)
    for x, y in zip(one, other, strict=True):
        assert relative_error(x, y, scale) < tolerance


@pytest.mark.parametrize("L", [1, 2, 3, 5, 17])
def test_the_gradients_of_a_selective_scan_are_those_of_its_differences(L: int) -> None:
    assert torch.autograd.gradcheck(selective_scan, selective_operands(L, E=2, N=2))


def test_a_factor_may_be_the_same_for_all_rows() -> None:
    _, b, state = linear_operands(17)
    a = torch.tensor([0.9, -0.5, 0.0], dtype=torch.float64, requires_grad=True)
    actual = linear_scan(a, b, state)
    expected = linear_scan(a.expand(2, 17, 3).clone(), b, state, backend="reference")
    assert relative_error(actual, expected) < 1e-14
    one, other = (torch.autograd.grad(h.sin().sum(), [a, b, state]) for h in (actual, expected))
    assert all(relative_error(x, y) < 1e-13 for x, y in zip(one, other, strict=True))


def test_a_series_in_two_pieces_is_the_whole() -> None:
    a, b, state = linear_operands(30, torch.complex128)
    first = linear_scan(a[:, :11], b[:, :11], state)
    both = torch.cat([first, linear_scan(a[:, 11:], b[:, 11:], first[:, -1])], dim=1)
    assert relative_error(torch.view_as_real(both), torch.view_as_real(linear_scan(a, b, state))) < 1e-14


def test_without_steps_a_row_is_its_own_answer() -> None:
    u, delta, A, B, C, D = selective_operands(17)
    assert torch.equal(selective_scan(u, 0 * delta, A, B, C, D), D * u)


def test_with_constant_weights_it_is_a_convolution() -> None:
    u, delta, A, B, C, D = (x.detach() for x in selective_operands(12))
    delta, B, C = (x[:1, :1].expand(2, 12, -1) for x in (delta, B, C))
    kernel = torch.stack(  # C exp(k Δ A) Δ B
        [
            (C[0, 0] * torch.exp(k * delta[0, 0, :, None] * A) * delta[0, 0, :, None] * B[0, 0]).sum(-1)
            for k in range(12)
        ]
    )
    expected = torch.stack([sum(kernel[k] * u[:, n - k] for k in range(n + 1)) for n in range(12)], dim=1) + D * u
    assert relative_error(selective_scan(u, delta, A, B, C, D), expected) < 1e-13


@pytest.mark.parametrize("name", list(SCANS))
def test_no_row_sees_a_later_one(name: str) -> None:
    u, delta, A, B, C, D = (x.detach() for x in selective_operands(17))
    known = selective_scan(u, delta, A, B, C, D, backend=name)
    for x in (u, delta, B, C):
        x[:, 9:] += 1
    changed = selective_scan(u, delta, A, B, C, D, backend=name)
    assert relative_error(changed[:, :9], known[:, :9]) < 1e-14
    assert relative_error(changed[:, 9], known[:, 9]) > 1e-3


def test_states_are_never_all_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside its rows a selective scan of L rows holds tensors of about √L states at most, in both passes."""
    held: list[int] = []
    states = scan_parallel.states

    def noting(a: Tensor, b: Tensor, start: Tensor) -> Tensor:
        held.append(b.shape[1])
        return states(a, b, start)

    monkeypatch.setattr(scan_parallel, "states", noting)
    selective_scan(*selective_operands(1000)).sum().backward()
    assert max(held) == 32  # 32² = 1,024
    assert sum(held) == 3 * 1000  # forward, and again with its gradient


def test_results_are_at_least_float32_and_autocast_does_not_matter() -> None:
    halves = [x.detach().bfloat16() for x in selective_operands(9)]
    wide = [x.float() for x in halves]
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(selective_scan(*halves), selective_scan(*wide))
    a, b, _ = linear_operands(9)
    assert linear_scan(a.float(), b.float().to(torch.complex64)).dtype == torch.complex64
    assert linear_scan(a, b.to(torch.complex64)).dtype == torch.complex128


def test_nothing_in_gives_nothing_out() -> None:
    assert linear_scan(torch.ones(3), torch.ones(2, 0, 3)).shape == (2, 0, 3)
    u, delta, A, B, C, D = selective_operands(1)
    assert selective_scan(u[:, :0], delta[:, :0], A, B[:, :0], C[:, :0], D).shape == (2, 0, 4)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"takes b \(B, L, P\) and a state \(B, P\); got b of \(5, 3\)"):
        linear_scan(torch.ones(3), torch.ones(5, 3))
    with pytest.raises(ValueError, match=r"a state of \(2, 4\)"):
        linear_scan(torch.ones(3), torch.ones(2, 5, 3), torch.ones(2, 4))
    with pytest.raises(ValueError, match=r"a must broadcast to b; got \(4,\) and \(2, 5, 3\)"):
        linear_scan(torch.ones(4), torch.ones(2, 5, 3))
    u, delta, A, B, C, D = selective_operands(5)
    with pytest.raises(ValueError, match=r"with A of \(4, 3\), B must be \(2, 5, 3\); got \(2, 5, 2\)"):
        selective_scan(u, delta, A, B[..., :2], C, D)
    with pytest.raises(OverflowError, match=r"states of linear_scan are not finite at \[0, 3, 1\]"):
        linear_scan(torch.ones(2), torch.tensor([[[0.0, 0.0]] * 3 + [[0.0, torch.inf]]]))
    with pytest.raises(OverflowError, match="outputs of selective_scan are not finite"):
        selective_scan(u, delta, -1e3 * A.abs() * -1, B, C, D)
    with pytest.raises(
        ValueError, match="backend must be 'auto' or one of 'reference', 'parallel', 'fused'; got 'quick'"
    ):
        choose_scan("quick", u)


def test_on_a_cpu_the_plain_path_is_chosen() -> None:
    assert choose_scan("auto", torch.ones(2)) == "parallel"
    assert choose_scan("reference", torch.ones(2)) == "reference"
    with pytest.raises(ValueError, match="backend 'fused' cannot run here"):
        choose_scan("fused", torch.ones(2, dtype=torch.float64))
