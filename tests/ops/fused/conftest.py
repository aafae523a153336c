"""The fused kernels run on a GPU where there is one, and else in Triton's interpreter on the CPU.

The interpreter is chosen by TRITON_INTERPRET=1 when triton is first imported. This file sets it if it is in time. If
something else imported triton before (PyTorch's optimisers do), the test files of this folder become a few tests that
run several files each, in a process of their own. Tests take the fixture `device`; those marked `gpu` are skipped
without a GPU.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from ops.fused.interpreter import sparing_work

if not torch.cuda.is_available() and "triton" not in sys.modules:
    os.environ["TRITON_INTERPRET"] = "1"
PROCESSES = 3  # that the files are divided among
collect_ignore_glob = [] if find_spec("triton") else ["*"]  # the kernels are written in triton


def in_time() -> bool:
    """True if kernels can run in this process: on a GPU, or because triton was imported as an interpreter."""
    import triton.language as tl

    return torch.cuda.is_available() or type(tl.sum).__name__ == "InterpretedFunction"


@pytest.fixture(scope="session")
def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(
    params=["ieee", pytest.param("tf32", marks=pytest.mark.gpu), pytest.param("bf16", marks=pytest.mark.gpu)]
)
def precision(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "ieee" and torch.cuda.is_available():
        pytest.skip("float32 products are exact in the interpreter alone, which runs where there is no GPU")
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if request.param == "tf32" else "highest")
    yield request.param
    torch.set_float32_matmul_precision(before)


@pytest.fixture
def dtype(precision: str) -> torch.dtype:
    """Of the rows."""
    return torch.bfloat16 if precision == "bf16" else torch.float32


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the kernels at the two ends of a model, as they run."""
    from lformer.ops.fused import ends  # imports triton

    names: list[str] = []

    def noting(name: str, launch: str) -> None:
        kernel = getattr(ends, launch)

        def run(*args: object, **options: object) -> object:
            names.append(name)
            return kernel(*args, **options)

        monkeypatch.setattr(ends, launch, run)

    noting("embed", "embed_rows")
    noting("answers", "make_answers")
    return names


@pytest.fixture
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    from lformer.ops.fused import node  # imports triton

    monkeypatch.setattr(node, "FORCED_CHUNKS", 1)


@pytest.fixture(autouse=True)
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter runs one program after the other, and most of them are those that add up small sums."""
    from lformer.ops.fused import weights  # imports triton

    if not torch.cuda.is_available():
        monkeypatch.setattr(weights, "SUM_BLOCK", 512)


@pytest.fixture(autouse=True, scope="module")
def fast_interpreter() -> Iterator[None]:
    with sparing_work():
        yield


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    return None if in_time() else InterpretedFile.from_parent(parent, path=module_path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files share processes: to start one takes as long as the tests of a file."""
    runs = [item for item in items if isinstance(item, InterpretedRun)]
    for n, run in enumerate(runs[PROCESSES:]):
        runs[n % PROCESSES].paths += run.paths
    items[:] = [item for item in items if item not in runs[PROCESSES:]]


class InterpretedFile(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        yield InterpretedRun.from_parent(self, name="in_the_interpreter")


class InterpretedRun(pytest.Item):
    """Runs its own file and those that share its process."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.paths = [self.path]

    def runtest(self) -> None:
        command = [sys.executable, "-m", "pytest", *map(str, self.paths)]
        environment = os.environ | {"TRITON_INTERPRET": "1"}
        run = subprocess.run(
            command, cwd=self.config.rootpath, env=environment, capture_output=True, text=True, check=False
        )
        if run.returncode:
            raise AssertionError(run.stdout + run.stderr)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> str:
        return str(excinfo.value)
