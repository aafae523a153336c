"""The kernels of the scans: as exact as plain PyTorch, in however many segments, with odd sizes and strides."""

import pytest
import torch
from helpers import largest, require_close
from torch import Tensor

from lformer.ops.fused import scan as fused_scan
from lformer.ops.scan import choose_scan, linear_scan, selective_scan


def segmented(monkeypatch: pytest.MonkeyPatch, programs: int) -> None:
    """Few rows a chunk, and so many programs wanted: the interpreter is slow, and series must be short."""
    monkeypatch.setattr(fused_scan, "CHUNK", 4)
    monkeypatch.setattr(fused_scan, "PROGRAMS", programs)


def linear_operands(B: int, L: int, P: int, dtype: torch.dtype, device: str) -> list[Tensor]:
    g = torch.Generator().manual_seed(L)
    decay = torch.exp(2 * torch.randn(B, L, P, generator=g) - 2)
    a = torch.polar(torch.exp(-decay), torch.randn(B, L, P, generator=g))
    b, state = torch.randn(B, L, P, 2, generator=g), torch.randn(B, P, 2, generator=g)
    made = [a, torch.view_as_complex(b), torch.view_as_complex(state)]
    return [(x if dtype.is_complex else x.real).to(device, dtype).requires_grad_() for x in made]


def selective_operands(B: int, L: int, E: int, N: int, device: str) -> list[Tensor]:
    g = torch.Generator().manual_seed(L)
    u, b, c = (torch.randn(B, L, n, generator=g) for n in (E, N, N))
    delta = torch.exp(2 * torch.randn(B, L, E, generator=g) - 2)
    rates, skip = -torch.exp(torch.randn(E, N, generator=g)), torch.randn(E, generator=g)
    return [x.to(device).requires_grad_() for x in (u, delta, rates, b, c, skip)]


def with_gradients(y: Tensor, operands: list[Tensor]) -> list[Tensor]:
    """The result and the gradients of a sum with fixed weights, as real numbers."""
    weights = torch.linspace(-1, 1, y.numel(), dtype=torch.float64, device=y.device).view(y.shape)
    real = torch.view_as_real(y).sum(-1) if y.is_complex() else y
    found = [y, *torch.autograd.grad((weights.to(real.dtype) * real).sum(), operands)]
    return [torch.view_as_real(x) if x.is_complex() else x for x in (x.detach() for x in found)]


def require_all_close(run: object, operands: list[Tensor]) -> None:
    """Result and gradients of "fused" by the rule for kernels, against "parallel" in the same dtype and in float64."""
    assert callable(run)
    exactly = [x.detach().to(torch.complex128 if x.is_complex() else torch.float64).requires_grad_() for x in operands]
    actual, plain = (with_gradients(run(*operands, backend=name), operands) for name in ("fused", "parallel"))
    exact = with_gradients(run(*exactly, backend="parallel"), exactly)
    scale = largest(*exact[1:])
    for n, (x, y, z) in enumerate(zip(actual, plain, exact, strict=True)):
        require_close(x, y, z, 0.0 if n == 0 else scale)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
@pytest.mark.parametrize(("L", "P", "programs"), [(1, 3, 8), (5, 1, 1), (17, 40, 8), (23, 33, 100)])
def test_a_linear_scan(
    L: int, P: int, programs: int, dtype: torch.dtype, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    segmented(monkeypatch, programs)
    require_all_close(linear_scan, linear_operands(2, L, P, dtype, device))


@pytest.mark.parametrize(
    ("L", "E", "N", "programs"), [(1, 3, 4, 8), (5, 1, 1, 1), (11, 20, 5, 1), (11, 20, 5, 12), (7, 36, 17, 8)]
)
def test_a_selective_scan(L: int, E: int, N: int, programs: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    segmented(monkeypatch, programs)
    require_all_close(selective_scan, selective_operands(2, L, E, N, device))


def test_operands_may_be_parts_of_others_and_factors_the_same_for_all_rows(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    segmented(monkeypatch, 8)
    u, delta, rates, b, c, skip = (x.detach() for x in selective_operands(2, 9, 6, 3, device))
    known = selective_scan(u, delta, rates, b, c, skip)
    both = torch.cat([u, delta, b, c], dim=-1)
    parts = both.split([6, 6, 3, 3], dim=-1)
    y = selective_scan(parts[0], parts[1], rates, parts[2], parts[3], skip, backend="fused")
    assert torch.allclose(y, known, atol=1e-5)
    turned = selective_scan(u.mT.contiguous().mT, delta, rates.mT.contiguous().mT, b, c, skip, backend="fused")
    assert torch.equal(turned, y)
    a, inputs, _ = linear_operands(2, 9, 5, torch.complex64, device)
    require_all_close(
        lambda a, b, backend: linear_scan(a, b, backend=backend), [a[0, 0].detach().requires_grad_(), inputs]
    )


def test_a_batch_does_not_change_a_series(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where segments are cut depends on how many series there are; the result does not, but for rounding."""
    segmented(monkeypatch, 8)
    operands = [x.detach() for x in selective_operands(3, 13, 5, 3, device)]
    y = selective_scan(*operands, backend="fused")
    alone = [x[1:2] if x.dim() == 3 else x for x in operands]
    assert torch.allclose(selective_scan(*alone, backend="fused"), y[1:2], rtol=1e-5, atol=1e-6)


def test_what_the_kernels_do_not_take(device: str) -> None:
    single = torch.ones(2, 3, 4, device=device)
    assert choose_scan("fused", single) == "fused"
    with pytest.raises(ValueError, match="do not take float64"):
        choose_scan("fused", single.double())
    assert choose_scan("auto", single.double()) == "parallel"
    with pytest.raises(ValueError, match=r"torch\.func cannot transform"):
        torch.func.grad(lambda x: linear_scan(x, single, backend="fused").sum())(single)


@pytest.mark.gpu
@pytest.mark.parametrize(("L", "E", "N"), [(3000, 128, 16), (2049, 40, 64), (700, 33, 200)])
def test_long_series_on_a_gpu(L: int, E: int, N: int, device: str) -> None:
    require_all_close(selective_scan, selective_operands(2, L, E, N, device))
    require_all_close(linear_scan, linear_operands(2, L, E, torch.complex64, device))
