"""Imports point upward: each room uses only those above it, and models and data never meet."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "lformer"

ROOMS: dict[str, set[str]] = {  # room: rooms it may import
    "arrays": set(),
    "distributions": set(),
    "draws": set(),
    "sealed": set(),
    "ops": set(),
    "batch": {"arrays"},
    "allocator": set(),
    "devices": set(),
    "panel": {"arrays", "sealed", "batch"},
    "scaling": {"panel"},
    "covariates": set(),
    "splitting": set(),
    "parts": {"batch", "panel", "covariates"},
    "hiding": {"batch", "panel", "parts"},
    "resident": {"batch", "panel", "parts"},
    "thinned": {"panel", "parts", "resident"},
    "summaries": {"panel"},
    "metrics": {"batch", "distributions"},
    "cuda_graphs": {"ops", "batch", "draws"},
    "nn": {"ops", "batch", "distributions", "draws"},
    "tasks": {"batch", "distributions", "metrics", "parts"},
    "evaluate": {"ops", "batch", "devices", "parts", "tasks"},
    "export": {"arrays", "distributions", "sealed", "batch", "panel", "nn", "tasks"},
    "baselines": {"draws", "ops", "batch", "nn", "panel", "parts", "summaries", "metrics", "tasks"},
    "data": {"sealed", "batch", "panel", "parts", "hiding", "scaling", "splitting", "tasks"},
    "drawing": set(),
    "doctor": {"arrays", "panel", "drawing"},
    "train": {
        "arrays", "draws", "sealed", "ops", "batch", "allocator", "panel", "cuda_graphs", "devices", "nn", "parts",
        "resident", "thinned", "metrics", "tasks", "evaluate",
    },
    "estimators": {
        "allocator", "arrays", "distributions", "sealed", "batch", "panel", "parts", "hiding", "scaling", "splitting",
        "covariates", "summaries", "devices", "nn", "export", "doctor",
        "baselines", "metrics", "tasks", "evaluate", "train",
    },
    "explain": {"batch", "panel", "parts", "nn", "tasks", "evaluate", "doctor", "estimators"},
    "report": {"sealed", "panel", "parts", "evaluate", "drawing", "doctor", "estimators", "explain"},
    "adapters": {"panel", "estimators"},
    "bench": {
        "sealed", "ops", "batch", "parts", "metrics", "allocator", "cuda_graphs", "devices", "nn", "baselines", "data",
        "tasks", "evaluate", "train", "panel", "estimators", "covariates", "splitting", "hiding", "drawing",
    },
    "cli": {"allocator", "arrays", "sealed", "bench", "data", "doctor", "estimators", "panel", "report", "splitting"},
    "__main__": {"cli"},
}  # fmt: skip


def room_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "lformer":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lformer."):
            found.add((node.module or "").split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("lformer.")}
    return found & ROOMS.keys()


FILES = sorted(file for file in PACKAGE.rglob("*.py") if room_of(file) != "__init__")


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_point_upward(file: Path) -> None:
    room = room_of(file)
    assert room in ROOMS, f"{room} is a new room: say in ROOMS what it may import"
    assert imported_rooms(file) <= ROOMS[room] | {room}


def test_the_order_has_no_circles() -> None:
    above: set[str] = set()
    for room, uses in ROOMS.items():
        assert uses <= above, f"{room} imports from below"
        above.add(room)


def test_every_file_says_what_it_is_for() -> None:
    silent = [
        str(f.relative_to(PACKAGE)) for f in PACKAGE.rglob("*.py") if not ast.get_docstring(ast.parse(f.read_text()))
    ]
    assert silent == []


def test_only_one_file_touches_the_network() -> None:
    doors = {"urllib.request", "http.client", "socket", "ssl", "ftplib", "requests", "httpx", "aiohttp", "pooch"}
    found = {}
    for file in FILES:
        names: set[str] = set()
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
        if names & doors:
            found[str(file.relative_to(PACKAGE))] = names & doors
    assert found.keys() == {"data/web.py"}
