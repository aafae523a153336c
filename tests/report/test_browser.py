"""The page in a real browser: silent, alone, readable by day and by night, and good for a keyboard."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from estimators.every_estimator import fitted, records, targets
from report.browser import CONTRAST, FOCUSABLE, NOW, Browser, chromium

from lformer import LFormerClassifier, LFormerForecaster
from lformer.report import report

pytestmark = pytest.mark.skipif(chromium() is None, reason="no chromium on this machine")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Path]:
    folder = tmp_path_factory.mktemp("pages")
    X = records(30)
    return {
        kind: report(fitted(kind, X, max_epochs=3), X, targets(kind, X), folder / f"{kind.__name__}.html")
        for kind in (LFormerClassifier, LFormerForecaster)
    }


@pytest.mark.parametrize("kind", [LFormerClassifier, LFormerForecaster])
def test_it_asks_nobody_for_anything_and_says_nothing(browser: Browser, pages: dict[Any, Path], kind: Any) -> None:
    browser.open(pages[kind])
    assert browser.run("document.querySelectorAll('svg').length") > 5
    assert browser.requests() == [pages[kind].resolve().as_uri()]
    assert browser.complaints() == []


def test_a_page_that_asked_or_failed_would_be_noticed(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text('<img src="http://127.0.0.1:9/x.png"><script>nothing.there()</script>')
    browser.open(page)
    assert "http://127.0.0.1:9/x.png" in browser.requests()
    assert any("nothing is not defined" in complaint for complaint in browser.complaints())


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("kind", [LFormerClassifier, LFormerForecaster])
def test_all_text_is_readable_by_day_and_by_night(
    browser: Browser, pages: dict[Any, Path], kind: Any, dark: bool
) -> None:
    browser.open(pages[kind], dark=dark)
    found = browser.run(CONTRAST)
    assert len(found) > 100
    assert [pair for pair in found if pair[0] < 4.5] == []  # WCAG 2, level AA
    page = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (max(int(x) for x in page[4:-1].split(",")) < 128) is dark


def test_pale_text_would_be_noticed(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "pale.html"
    page.write_text('<body style="background:#fff"><p style="color:#999">pale</p><p>dark</p>')
    browser.open(page)
    [(pale, _), (dark, _)] = browser.run(CONTRAST)
    assert pale == pytest.approx(2.85, abs=0.01)
    assert dark == pytest.approx(21)


def test_a_keyboard_reaches_every_control_and_sees_where_it_is(browser: Browser, pages: dict[Any, Path]) -> None:
    browser.open(pages[LFormerClassifier])
    controls = browser.run(FOCUSABLE)
    assert len(controls) > 12
    reached = []
    for _ in controls:
        browser.press("Tab")
        n, style, width = browser.run(NOW)
        reached.append(n)
        assert (style, width >= 2) == ("solid", True)
        if n is not None:  # what is closed has nothing to stop at, as what it holds is not shown
            browser.run("document.activeElement.parentElement.open = true")
    assert reached == controls


def test_the_button_turns_the_page_dark_and_light_again(browser: Browser, pages: dict[Any, Path]) -> None:
    browser.open(pages[LFormerClassifier])
    colour = "getComputedStyle(document.body).backgroundColor"
    light = browser.run(colour)
    browser.run("document.getElementById('theme').focus()")
    browser.press("Enter")
    dark, name = browser.run(colour), browser.run("document.getElementById('theme').textContent")
    browser.press(" ")
    assert dark != light
    assert name == "Light page"
    assert browser.run(colour) == light
    browser.open(pages[LFormerClassifier], dark=True)
    assert browser.run(colour) == dark


def test_numbers_open_with_enter(browser: Browser, pages: dict[Any, Path]) -> None:
    browser.open(pages[LFormerForecaster])
    browser.run("document.querySelector('summary').focus()")
    browser.press("Enter")
    assert browser.run("document.querySelector('details').open")


def test_it_fits_a_telephone(browser: Browser, pages: dict[Any, Path]) -> None:
    for page in pages.values():
        browser.open(page, width=390)
        browser.run("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert browser.run("document.documentElement.scrollWidth") <= 390
