"""The pages under docs/ run: every Python block of a page, in order, and what its comments promise is printed."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_python_block_runs_and_prints_what_it_says(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scope: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL):
        exec(compile(block, page.name, "exec"), scope)
        promised = re.findall(r"print\(.*\)  # (.+)", block)
        assert capsys.readouterr().out.splitlines() == promised


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    targets = [t for t in re.findall(r"\]\(([^)#]+)\)", page.read_text()) if "://" not in t]
    assert [t for t in targets if not (DOCS / t).exists()] == []
