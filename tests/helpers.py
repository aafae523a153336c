"""Irregular data for tests, and one way to compare: uneven times, ragged lengths and missing values everywhere."""

import torch
from torch import Tensor

from lformer import IrregularBatch


def irregular_arrays(
    B: int, L: int, C: int, seed: int, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor]:
    """Values (B, L, C) with NaN holes, times (B, L) with ties and gaps of very different sizes, lengths (B,)."""
    g = torch.Generator().manual_seed(seed)
    gaps = torch.exp(2 * torch.randn(B, L, generator=g, dtype=torch.float64))
    gaps[torch.rand(B, L, generator=g) < 0.1] = 0.0  # ties
    times = 1000 + gaps.cumsum(1)
    values = torch.randn(B, L, C, generator=g, dtype=dtype)
    values[torch.rand(B, L, C, generator=g) < 0.3] = torch.nan
    lengths = torch.randint(1, L + 1, (B,), generator=g)
    lengths[0] = L
    return values, times, lengths


def irregular_batch(
    B: int = 4, L: int = 30, C: int = 3, seed: int = 0, dtype: torch.dtype = torch.float64, **build: object
) -> IrregularBatch:
    """A checked batch of `irregular_arrays`."""
    values, times, lengths = irregular_arrays(B, L, C, seed, dtype)
    return IrregularBatch.build(values, times, lengths=lengths, dtype=dtype, **build)


def largest(*tensors: Tensor) -> float:
    """The largest magnitude among all of them."""
    return max((float(t.detach().abs().max()) for t in tensors if t.numel()), default=0.0)


def relative_error(actual: Tensor, expected: Tensor, scale: float | None = None) -> float:
    """Largest difference over the largest expected magnitude; 0 for empty tensors, inf if anything is not finite.

    What may be 0, as one gradient among several may, has no magnitude of its own: `scale` is then that of the numbers
    it was computed from or beside.
    """
    assert actual.shape == expected.shape, f"{tuple(actual.shape)} against {tuple(expected.shape)}"
    if expected.numel() == 0:
        return 0.0
    if not bool(torch.isfinite(actual).all()):
        return float("inf")
    scale = max(largest(expected) if scale is None else scale, torch.finfo(torch.float64).tiny)
    return float((actual.detach().double() - expected.detach().double()).abs().max()) / scale


def require_close(actual: Tensor, plain: Tensor, exact: Tensor, scale: float = 0.0) -> None:
    """Error at most twice that of plain PyTorch in the same precision, and 4 units of the last digit of the largest.

    On a GPU, products of float32 are TF32, whose last digit is 2^-10. One gradient among several is a sum of terms that
    cancel, rounded by chance: give `scale`, the largest of them all, and the last digit is at least its in float32.
    """
    assert actual.dtype == plain.dtype
    assert torch.isfinite(actual).all()

    def error(x: Tensor) -> float:
        return float((x.double().cpu() - exact.cpu()).abs().max())

    tf32 = plain.is_cuda and plain.dtype == torch.float32 and torch.backends.cuda.matmul.fp32_precision == "tf32"
    digit = 2.0**-10 if tf32 else torch.finfo(plain.dtype).eps
    unit = max(digit * largest(exact), torch.finfo(torch.float32).eps * scale)
    assert error(actual) <= 2 * error(plain) + 4 * unit
