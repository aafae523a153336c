"""A kernel that was started before is started with the same arguments, and asked about again where Triton would."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton.language as tl
from torch import Tensor
from triton import JITFunction
from triton._C.libtriton import native_specialize_impl
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler import CompiledKernel

from lformer.ops.fused import launch as launching


def example(x, y, count, scale, WIDTH: tl.constexpr, NAME: tl.constexpr) -> None:  # type: ignore[no-untyped-def]
    """Parameters in the order that `start` wants."""


class Compiled(CompiledKernel):  # type: ignore[misc]
    """Writes down how it is launched."""

    def __init__(self) -> None:
        self.launches: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda *args: self.launches.append((grid, args))


class Asked(JITFunction):  # type: ignore[misc]
    """A kernel on which Triton would decide; writes down that it was asked."""

    def __init__(self) -> None:
        super().__init__(example)
        self.asked: list[tuple[Any, ...]] = []
        self.compiled = Compiled()

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Compiled:
        self.asked.append((grid, args, kwargs))
        return self.compiled


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Asked:
    monkeypatch.setattr(launching, "current_device", lambda: -1)
    monkeypatch.setattr(launching, "_known", {})
    return Asked()


X, Y = torch.zeros(8), torch.zeros(4, dtype=torch.int64)
CONSTANTS = {"NAME": "a", "WIDTH": 8, "num_warps": 4}  # not in the order of the parameters


def test_the_second_start_goes_to_what_the_first_one_compiled(kernel: Asked) -> None:
    launching.start_kernel(kernel, (5,), (X, Y), (3, 0.5), **CONSTANTS)
    assert kernel.asked == [((5,), (X, Y, 3, 0.5), CONSTANTS)]
    assert kernel.compiled.launches == []
    other = torch.ones(8)
    launching.start_kernel(kernel, (6, 7), (other, Y), (9, 0.25), **CONSTANTS)
    assert len(kernel.asked) == 1
    assert kernel.compiled.launches == [((6, 7, 1), (other.data_ptr(), Y.data_ptr(), 9, 0.25, 8, "a"))]


@pytest.mark.parametrize(
    "change",
    [
        {"tensors": (X.double(), Y)},
        {"tensors": (X, Y.int())},
        {"tensors": (X[1:], Y)},
        {"tensors": (X, Y[1:])},
        {"numbers": (1, 0.5)},
        {"numbers": (16, 0.5)},
        {"numbers": (2**31 + 1, 0.5)},
        {"numbers": (3.0, 0.5)},
        {"numbers": (3, 5)},
        {"numbers": (True, 0.5)},
        {"WIDTH": 16},
        {"NAME": "b"},
        {"num_warps": 8},
        {"num_stages": 2},
    ],
    ids=str,
)
def test_triton_is_asked_about_everything_it_compiles_for(kernel: Asked, change: dict[str, Any]) -> None:
    usual: dict[str, Any] = {"tensors": (X, Y), "numbers": (3, 0.5), **CONSTANTS}
    launching.start_kernel(kernel, (1,), **usual)
    launching.start_kernel(kernel, (1,), **usual | change)
    assert len(kernel.asked) == 2
    launching.start_kernel(kernel, (1,), **usual)
    assert len(kernel.asked) == 2


def test_another_device_and_another_kernel_are_asked_about(kernel: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    def key(device: int, kernel: Asked = kernel) -> tuple[Any, ...]:
        monkeypatch.setattr(launching, "Tensor", SimpleNamespace(get_device=lambda t: device if t is Y else 0))
        return launching.call_key(kernel, (X, Y), (3, 0.5), CONSTANTS)

    assert key(0) == key(0)
    assert key(0) != key(1)
    assert key(0) != key(0, Asked())


def test_what_is_not_aligned_is_never_remembered(kernel: Asked) -> None:
    for _ in range(2):
        launching.start_kernel(kernel, (1,), (X[1:], Y), (3, 0.5), **CONSTANTS)
    assert len(kernel.asked) == 2
    launching.start_kernel(kernel, (1,), (X, Y), (3, 0.5), **CONSTANTS)
    assert len(kernel.asked) == 3


def test_hooks_of_a_kernel_are_heard(kernel: Asked) -> None:
    for _ in range(2):
        launching.start_kernel(kernel, (1,), (X, Y), (3, 0.5), **CONSTANTS)
        kernel.pre_run_hooks.append(print)
    assert len(kernel.asked) == 2


def test_the_kernel_runs_on_the_device_of_its_tensors(kernel: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[int] = []

    class Device:
        def __init__(self, index: int) -> None:
            self.index = index

        def __enter__(self) -> None:
            entered.append(self.index)

        def __exit__(self, *_: object) -> None:
            entered.append(-2)

    monkeypatch.setattr(torch.cuda, "device", Device)
    launching.start_kernel(kernel, (1,), (X, Y), (3, 0.5), **CONSTANTS)
    assert entered == []
    monkeypatch.setattr(launching, "current_device", lambda: 1)
    launching.start_kernel(kernel, (1,), (X, Y), (3, 0.5), **CONSTANTS)
    assert entered == [-1, -2]


def test_numbers_of_one_kind_are_one_to_triton() -> None:
    backend = CUDABackend(GPUTarget("cuda", 90, 32))
    numbers = [0, 1, 2, 3, 15, 16, 17, 32, 2**31 - 1, 2**31, 2**31 + 1, 2**40, -1, -16, -(2**31), 1.0, 0.25, True]
    for a in numbers:
        for b in numbers:
            if launching.number_kind(a) == launching.number_kind(b):
                triton_a, triton_b = (native_specialize_impl(backend, n, False, True, True) for n in (a, b))
                assert triton_a == triton_b, (a, b)


def test_the_interpreter_is_left_alone() -> None:
    calls: list[tuple[Any, ...]] = []

    class Interpreted:
        def __getitem__(self, grid: Any) -> Any:
            return lambda *args, **kwargs: calls.append((grid, args, kwargs))

    launching.start_kernel(Interpreted(), (2, 3), (X, Y), (3, 0.5), **CONSTANTS)
    assert calls == [((2, 3), (X, Y, 3, 0.5), CONSTANTS)]


def test_addresses_are_those_of_the_tensors_of_this_call(kernel: Asked) -> None:
    tensors: list[Tensor] = [torch.zeros(8) for _ in range(3)]
    for x in tensors:
        launching.start_kernel(kernel, (1,), (x, Y), (3, 0.5), **CONSTANTS)
    assert [args[0] for _, args in kernel.compiled.launches] == [x.data_ptr() for x in tensors[1:]]


def test_long_compiling_is_told_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(launching, "_compiling", 0.0)
    launching.count_compiling(1.9)
    assert capsys.readouterr().err == ""
    launching.count_compiling(0.2)
    assert "compiling kernels" in capsys.readouterr().err
    launching.count_compiling(30.0)
    assert capsys.readouterr().err == ""


def test_the_first_start_of_a_kernel_is_timed(kernel: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    monkeypatch.setattr(launching, "count_compiling", seen.append)
    for _ in range(2):
        launching.start_kernel(kernel, (1,), (X, Y), (3, 0.5), **CONSTANTS)
    assert len(seen) == 1
