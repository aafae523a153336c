"""The pages under docs/ run: every Python block of a page, in order, and it prints what the page says.

A page says it in a comment after a `print`, or in a `text` block right after. A line with ≈ holds figures of training,
which may differ between machines in the last digits; all others must be the same letter by letter.
"""

import math
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
NAMES = [str(page.relative_to(DOCS)) for page in PAGES]
BLOCK = re.compile(r"^```python\n(.*?)^```$(?:\n+^```text\n(.*?)^```$)?", flags=re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"[-−]?\d+(?:\.\d+)?")


def promised(block: str, shown: str | None) -> list[str]:
    """The lines that a page says a block prints."""
    return re.findall(r"print\(.*\)  # (.+)", block) if shown is None else shown.splitlines()


def agrees(printed: str, promise: str) -> bool:
    """Whether two lines are the same; with ≈, whether their words are and their numbers are close."""
    if "≈" not in promise:
        return printed == promise
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(promise), strict=False)
    close = all(math.isclose(float(a), float(b), rel_tol=0.15, abs_tol=0.05) for a, b in pairs)
    return NUMBER.sub("#", printed) == NUMBER.sub("#", promise) and close


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_python_block_runs_and_prints_what_it_says(
    page: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # models and pictures that a page saves
    monkeypatch.setenv("MPLBACKEND", "Agg")
    scope: dict[str, object] = {}
    for block, shown in ((match[1], match[2]) for match in BLOCK.finditer(page.read_text())):
        exec(compile(block, page.name, "exec"), scope)
        printed, expected = capsys.readouterr().out.splitlines(), promised(block, shown)
        assert len(printed) == len(expected), (printed, expected)
        assert [line for line, promise in zip(printed, expected, strict=True) if not agrees(line, promise)] == []


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_no_python_block_escapes(page: Path) -> None:
    text = page.read_text()
    assert len(BLOCK.findall(text)) == len(re.findall(r"```\s*(?:python|py\b|pycon)", text))


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_every_link_leads_somewhere(page: Path) -> None:
    targets = [t for t in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()) if "://" not in t]
    made = {"explorer.html"}  # by the build of the site, whose own test follows the link
    assert [t for t in targets if t not in made and not (page.parent / t).exists()] == []


def test_the_architecture_is_small_alone_and_has_words_for_those_who_do_not_see_it() -> None:
    text = (DOCS / "architecture.svg").read_text()
    space = "{http://www.w3.org/2000/svg}"
    drawing = ElementTree.fromstring(text)
    assert len(text) < 20_000
    assert "prefers-color-scheme:dark" in text
    assert text.replace("http://www.w3.org/2000/svg", "").count("://") == 0
    assert len(drawing.findtext(f"{space}desc") or "") > 200
    words = {"".join(node.itertext()) for node in drawing.iter(f"{space}text")}
    paper = {"Embedder", "MHLGA", "SwiGLU", "Predictor", "LN", "Liquid Mixer × L", "gₙ = exp(−ûₙ)"}
    assert paper | {"Sₙ = gₙ Sₙ₋₁ + (1 − gₙ) kₙᵀ vₙ", "uₙ = δₙ x̄ₙ", "qₙ Sₙ", "Δ"} <= words


def test_closeness_is_for_figures_of_training_alone() -> None:
    assert agrees("accuracy ≈ 0.84", "accuracy ≈ 0.83")
    assert not agrees("accuracy ≈ 0.70", "accuracy ≈ 0.83")
    assert not agrees("precision ≈ 0.83", "accuracy ≈ 0.83")
    assert not agrees("0.84", "0.83")
