"""The scripts in examples/ run from top to bottom, with their own assertions, and write only where they are told."""

import ast
import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
PICTURES = {"station.py": "station.png", "ward.py": "ward.png"}


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.name)
def test_it_runs(script: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here, out = tmp_path / "here", tmp_path / "out"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("LFORMER_OUT", str(out))
    runpy.run_path(str(script), run_name="__main__")
    assert list(here.iterdir()) == []
    if script.name in PICTURES:
        assert (out / PICTURES[script.name]).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.name)
def test_it_checks_what_it_claims_and_tells_a_story(script: Path) -> None:
    text = script.read_text()
    tree = ast.parse(text)
    assert [node for node in ast.walk(tree) if isinstance(node, ast.Assert)] or "assert_allclose" in text
    assert ast.get_docstring(tree)
    assert len(re.findall(r"^# %% \[markdown\]$", text, flags=re.MULTILINE)) >= 4


def test_the_start_page_names_every_script() -> None:
    page = (Path(__file__).parents[1] / "docs" / "index.md").read_text()
    assert [script.name for script in EXAMPLES if f"`{script.name}`" not in page] == []
