"""The documentation site builds strictly, without the network, and holds every page."""

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import lformer
from lformer.bench import records
from lformer.bench.explorer.gather import gather
from lformer.bench.explorer.page import page as explorer_page

ROOT = Path(__file__).parents[1]
PAGES = sorted(page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md"))
NO_NETWORK = """
import runpy, socket, sys

def refuse(*args, **named):
    raise RuntimeError("the documentation must be built without the network")

socket.socket.connect = refuse
socket.getaddrinfo = refuse
sys.argv = ["mkdocs", *sys.argv[1:]]
runpy.run_module("mkdocs", run_name="__main__")
"""


class Page(HTMLParser):
    """What a page loads by itself, where its links lead, and the places within it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") != "canonical":
            self.loads.append(given.get("href", ""))
        elif "src" in given:
            self.loads.append(given["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-c", NO_NETWORK, "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}


def external(address: str) -> bool:
    return bool(urlsplit(address).scheme or urlsplit(address).netloc) and not address.startswith("data:")


def test_every_page_is_there_and_in_the_menu(site: Path, pages: dict[Path, Page]) -> None:
    assert [str(page) for page in PAGES if site / page not in pages] == []
    menu = pages[site / "index.html"].links
    assert [str(page) for page in PAGES if str(page) not in menu] == []


def test_every_link_and_file_within_the_site_exists(site: Path, pages: dict[Path, Page]) -> None:
    broken = []
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # its addresses begin at the root of a server
        for address in page.links + page.loads:
            if external(address):
                continue
            parts = urlsplit(address)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            lost = parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].places
            if not target.exists() or lost:
                broken.append(f"{path.name}: {address}")
    assert broken == []


def test_the_explorer_is_made_of_the_committed_records_at_every_build(site: Path) -> None:
    found = records.read_all(ROOT / "results" / "bench")
    assert (site / "explorer.html").read_text() == explorer_page(gather(found), back="results.html")
    assert "explorer.html" in Page((site / "results.html").read_text()).links


def test_no_page_or_style_loads_anything_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    loads = {address for page in pages.values() for address in page.loads}
    assert loads  # its own style and script
    assert [address for address in loads if external(address)] == []
    for style in site.rglob("*.css"):
        found = re.findall(r"@import[^;]*|url\([^)]*\)", style.read_text())
        assert [address for address in found if "//" in address.split("data:")[0]] == []


def test_the_reference_has_every_public_name(site: Path, pages: dict[Path, Page]) -> None:
    documented = {place.rsplit(".", 1)[-1] for place in pages[site / "api.html"].places}
    assert sorted(set(lformer.__all__) - {"nn", "ops"} - documented) == []


def test_figures_suit_a_dark_page_and_code_is_never_cut(site: Path) -> None:
    style = (site / "stylesheets" / "site.css").read_text()
    assert '[data-md-color-scheme="slate"] img[src$="#plot"]' in style
    assert "white-space: pre-wrap" in style
    figures = [
        f"{page.name}: {target}"
        for page in (ROOT / "docs").rglob("*.md")
        for target in re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", page.read_text())
    ]
    assert figures
    assert [
        figure for figure in figures if "#" not in figure
    ] == []  # #plot, or #page: the picture of a page is as it is


CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIETLY = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run",
)  # fmt: skip


@pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: chromium or google-chrome")
def test_the_search_finds_pages_opened_from_a_folder(site: Path, tmp_path: Path) -> None:
    assert CHROMIUM is not None
    address = f"{(site / 'guides' / 'forecast.html').as_uri()}?q=streaming"
    done = subprocess.run(
        [CHROMIUM, *QUIETLY, f"--user-data-dir={tmp_path}", "--virtual-time-budget=10000", "--dump-dom", address],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    found = re.search(r"(\d+) matching documents", done.stdout)
    assert found is not None, done.stderr[-2000:]
    assert int(found[1]) > 3
