"""A stranger's machine: the wheel builds, installs into an empty environment, imports with torch and numpy alone."""

import ast
import os
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import distribution, distributions, requires
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
    run(sys.executable, "-m", "hatchling", "build", "-d", folder)  # and the sdist
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
    assert {f"lformer/bench/explorer/{name}" for name in ("explorer.css", "main.js", "ranking.js")} <= set(names)
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


def test_the_wheel_runs_the_demo_in_a_fresh_environment(wheel: Path, tmp_path: Path) -> None:
    """Its own environment, with our packages lent but not our lformer, as a line of a .pth is not read for others."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel)
    (site,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    (site / "lent.pth").write_text(f"{distribution('torch').locate_file('')}\n")
    lformer = tmp_path / "env" / "bin" / "lformer"
    clean = {"PYTHONPATH": "", "COLUMNS": "120"}
    where = run(python, "-c", "import lformer; print(lformer.__file__)", cwd=tmp_path, **clean)
    assert Path(where.strip()).is_relative_to(site)
    printed = run(lformer, "demo", "--quick", "--quiet", "--out", "demo", cwd=tmp_path, **clean)
    assert "interpolation MAE" in printed
    assert (tmp_path / "demo" / "spirals.png").read_bytes().startswith(b"\x89PNG")


def test_the_sdist_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    (source,) = wheel.parent.glob("*.tar.gz")
    how = ("--no-deps", "--no-index", "--no-build-isolation", "--quiet")
    run(sys.executable, "-m", "pip", "wheel", *how, "-w", tmp_path, source)
    (again,) = tmp_path.glob("*.whl")
    one, two = (
        {name: archive.read(name) for name in archive.namelist()} for archive in map(zipfile.ZipFile, (wheel, again))
    )
    assert one == two


def test_importing_adds_less_than_a_second_to_torch() -> None:
    code = "import time, torch, numpy\nbegan = time.perf_counter()\nimport lformer\nprint(time.perf_counter() - began)"
    assert min(float(run(sys.executable, "-c", code)) for _ in range(2)) < 1.0


def test_the_constraints_pin_what_is_installed() -> None:
    assert pins()["torch"] == "2.13.0"
    needed = {Requirement(text).name for text in requires("lformer") or [] if "extra" not in text}
    assert {canonicalize_name(name) for name in needed} <= pins().keys()


def pins() -> dict[str, str]:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}


def test_the_pins_agree_with_each_other() -> None:
    """No package of the tested set asks for another version of one than the one that is pinned."""
    chosen, quarrels = pins(), []
    for held in distributions():
        if chosen.get(canonicalize_name(held.name)) != held.version:
            continue  # not of the tested set
        for text in held.requires or []:
            wanted = Requirement(text)
            name = canonicalize_name(wanted.name)
            counts = wanted.marker is None or wanted.marker.evaluate({"extra": ""})
            if counts and name in chosen and not wanted.specifier.contains(chosen[name], prereleases=True):
                quarrels.append(f"{held.name} wants {wanted}, the pin is {chosen[name]}")
    assert quarrels == []


MODULES = {"tensorboard": "torch.utils.tensorboard"}  # where a module is not called as its package


def imported() -> set[str]:
    """Every module that some file of the package imports, and the packages it lies in."""
    found: set[str] = set()
    for file in (ROOT / "lformer").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "import_module":
                names = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            for name in names:
                parts = name.split(".")
                found |= {".".join(parts[: n + 1]) for n in range(len(parts))}
    return found


def test_an_extra_exists_because_code_imports_it() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    found = imported()
    unused = {
        f"{extra}: {name}"
        for extra, texts in extras.items()
        if extra not in ("dev", "docs")  # tools
        for name in (Requirement(text).name for text in texts)
        if MODULES.get(name, name) not in found
    }
    assert unused == set()
