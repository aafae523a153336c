"""A stranger's machine: the wheel builds, installs into an empty environment, imports with torch and numpy alone."""

import os
import subprocess
import sys
import zipfile
from importlib.metadata import distribution, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


def run(*command: str | Path, cwd: Path = ROOT, **env: str) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=os.environ | env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    (built,) = folder.glob("*.whl")
    return built


def closure(*names: str) -> set[str]:
    """A distribution and everything it needs here."""
    found: set[str] = set()
    todo = list(names)
    while todo:
        name = canonicalize_name(todo.pop())
        if name in found:
            continue
        found.add(name)
        for text in requires(name) or []:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                todo.append(requirement.name)
    return found


@pytest.fixture(scope="module")
def empty(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A fresh environment that holds the wheel, and a folder that holds torch and numpy and what they need."""
    folder = tmp_path_factory.mktemp("empty")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "env")
    python = folder / "env" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel)
    lent = folder / "lent"
    lent.mkdir()
    for name in closure("torch", "numpy"):
        held = distribution(name)
        for top in {file.parts[0] for file in held.files or [] if file.parts[0] not in ("..", "__pycache__")}:
            target = Path(str(held.locate_file(top)))
            if target.exists() and not (lent / top).exists():
                (lent / top).symlink_to(target)
    return python, lent


def test_the_wheel_holds_the_package_and_its_type_marker(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "lformer/py.typed" in names
    assert "lformer/ops/README.md" in names
    assert not [name for name in names if name.startswith("tests")]


def test_core_rooms_import_with_torch_and_numpy_alone(empty: tuple[Path, Path]) -> None:
    python, lent = empty
    code = (
        "import lformer, lformer.ops, lformer.nn, lformer.bench.speed, sys, importlib.util as u\n"
        "assert not any(u.find_spec(n) for n in ('pandas', 'sklearn', 'rich', 'typer', 'matplotlib'))\n"
        "print(lformer.__version__, lformer.__file__)"
    )
    printed = run(python, "-W", "error", "-c", code, cwd=lent, PYTHONPATH=str(lent))
    assert "site-packages" in printed


def test_importing_adds_less_than_a_second_to_torch() -> None:
    code = "import time, torch, numpy\nbegan = time.perf_counter()\nimport lformer\nprint(time.perf_counter() - began)"
    assert min(float(run(sys.executable, "-c", code)) for _ in range(2)) < 1.0


def test_the_constraints_pin_what_is_installed() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pins = dict(line.split("==") for line in lines)
    assert pins["torch"] == "2.13.0"
    needed = {Requirement(text).name for text in requires("lformer") or [] if "extra" not in text}
    assert {canonicalize_name(name) for name in needed} <= {canonicalize_name(name) for name in pins}
