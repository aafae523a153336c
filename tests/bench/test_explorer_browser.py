"""The explorer in a real browser: figures of the tables, the chooser, keys, links, a telephone, day and night."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from bench.explorer_records import BAD, WORSE, everything, written
from report.browser import CONTRAST, Browser, chromium

from lformer.bench import explorer, tables
from lformer.bench.layout import Entry

pytestmark = pytest.mark.skipif(chromium() is None, reason="no chromium on this machine")

LANES = """
[...document.querySelectorAll('#ranking .lane')].map(g =>
  ['name', 'figure', 'small', 'failed'].map(kind =>
    [...g.querySelectorAll('text.' + kind)].map(t => t.textContent).join('|')))
"""
LABELS = "[...document.querySelectorAll('#ranking text.naive')].map(t => t.textContent)"
ROWS = """
[...document.querySelectorAll('#ranking tbody tr')].map(tr =>
  [tr.querySelector('button') ? tr.querySelector('button').textContent : tr.cells[0].textContent,
   ...[...tr.cells].slice(1).map(td => td.textContent.trim())])
"""
CHOSEN = "[...document.querySelectorAll('#chooser select')].map(s => [s.name, s.value])"
SEEN = "document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"
EXTRAPOLATE = "#dataset=physionet&task=extrapolate&metric=mse"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explorer")
    return explorer.write(written(folder / "records", everything()), folder / "index.html")


def lines() -> Iterator[tuple[str, dict[str, Entry]]]:
    """The address of every metric of every board, and what the tables say there."""
    for table in tables.main_tables(everything()):
        for line in table.lines:
            m = line.measure
            parts = {"dataset": m.dataset, "task": m.task, "metric": m.metric}
            parts |= {k: v for k, v in (("split", line.split), ("scaling", line.scaling)) if v != "published"}
            yield "#" + urlencode(parts), line.entries


def lanes(browser: Browser) -> dict[str, list[str]]:
    return {name: rest for name, *rest in browser.run(LANES)}


def test_it_asks_nobody_for_anything_and_says_nothing(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert browser.run("document.querySelectorAll('svg').length") > 8
    assert browser.requests() == [page.resolve().as_uri()]
    assert browser.complaints() == []


def test_each_number_drawn_is_that_of_the_tables(browser: Browser, page: Path) -> None:
    browser.open(page)
    seen = 0
    for address, entries in lines():
        browser.run(f"(location.hash = {json.dumps(address)}, new Promise(done => setTimeout(done, 30)))")
        drawn, labels = lanes(browser), browser.run(LABELS)
        rows = {row[0]: row[1:] for row in browser.run(ROWS)}
        for column, entry in entries.items():
            if entry.ours is None and entry.printed is None:
                assert column not in rows
                continue
            text = entry.ours.figure(entry.shown_digits) if entry.ours else "–"
            figure = f"{text} {entry.ours.remark}".strip() if entry.ours else "–"
            printed = entry.printed.text if entry.printed else ""
            assert rows[column][0].strip() == figure
            assert rows[column][6] == (printed or "–")
            if entry.ours and entry.ours.kind == "simple":
                assert [f"{column} {text}"] == [label for label in labels if label.startswith(f"{column} ")]
                continue
            name = next(n for n in drawn if n == column or (n.endswith("…") and column.startswith(n[:-1])))
            assert drawn[name][0] == figure
            assert drawn[name][1] == f"{printed} {entry.verdict if entry.ours else ''}" or not printed
            assert bool(drawn[name][2]) is bool(entry.ours and not entry.ours.values)
            seen += 1
    assert seen > 60
    assert browser.complaints() == []


def test_systems_are_in_the_order_of_their_figures(browser: Browser, page: Path) -> None:
    browser.open(page, fragment=EXTRAPOLATE)
    names = [name for name, *_ in browser.run(LANES)]
    assert names[:5] == ["lformer best", "mtand", "gru", "transformer", "lformer"]
    assert names[5] == "node"  # OOT, before those that the paper alone has
    places = browser.run(
        "[...document.querySelectorAll('#ranking .lane > circle:last-child')].map(c => c.cx.baseVal.value)"
    )
    assert places == sorted(places)
    assert len(places) == 5


def test_the_chooser_changes_the_ranking_by_arrow_keys(browser: Browser, page: Path) -> None:
    browser.open(page, fragment=EXTRAPOLATE)
    before = browser.run(LANES)
    browser.run("document.getElementById('choose-metric').focus()")
    browser.press("ArrowDown")
    assert dict(browser.run(CHOSEN))["metric"] == "mse_unseen"
    assert browser.run(LANES) != before
    assert browser.run("location.hash") == "#dataset=physionet&task=extrapolate&metric=mse_unseen"
    assert browser.run("document.activeElement.id") == "choose-metric"
    assert "MSE, unseen points" in browser.run("document.getElementById('said').textContent")
    browser.run("document.getElementById('choose-dataset').focus()")
    browser.press("ArrowUp")
    chosen = dict(browser.run(CHOSEN))
    assert chosen["dataset"] != "physionet"
    assert browser.complaints() == []


def test_a_link_opens_its_place_and_a_wrong_one_the_nearest(browser: Browser, page: Path) -> None:
    toy = {"dataset": f"toy {BAD}", "task": "regress", "split": "a'b", "metric": "mae", "spread": "ci"}
    for fragment, chosen in (
        ("#dataset=scp1&task=classify&metric=accuracy", {"dataset": "scp1", "task": "classify", "metric": "accuracy"}),
        ("#dataset=physionet&task=extrapolate&metric=none", {"dataset": "physionet", "metric": "mse"}),
        ("#dataset=nothing&metric=mse", {"dataset": "physionet", "task": "extrapolate"}),
        ("#" + urlencode(toy), {"dataset": f"toy {BAD}", "metric": "mae", "spread": "ci"}),
        ("#costs", {"dataset": "physionet"}),
    ):
        browser.open(page, fragment=fragment)
        found = dict(browser.run(CHOSEN))
        assert {name: found[name] for name in chosen} == chosen
        assert browser.complaints() == []


def test_arrow_keys_walk_a_chart_and_enter_shows_the_record(browser: Browser, page: Path) -> None:
    browser.open(page, fragment=EXTRAPOLATE)
    browser.run("document.querySelector('#ranking [role=button][tabindex=\"0\"]').focus()")
    first = browser.run(SEEN)
    browser.press("ArrowDown")
    browser.press("ArrowDown")
    assert browser.run(SEEN) != first
    assert browser.run(SEEN).startswith("lformer best: 0.1")
    assert browser.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert browser.run("document.querySelectorAll('#ranking [role=button][tabindex=\"0\"]').length") == 1
    browser.press("Enter")
    assert browser.run("document.getElementById('record').open")
    words = browser.run("document.getElementById('record').textContent")
    assert "lformer bench run --dataset physionet --task extrapolate --model lformer --variant best --seeds 42" in words
    browser.press("Escape")
    assert not browser.run("document.getElementById('record').open")
    assert browser.run(SEEN).startswith("lformer best: 0.1")


def test_the_tab_key_reaches_every_control_and_shows_where_it_is(browser: Browser, page: Path) -> None:
    browser.open(page, fragment=EXTRAPOLATE)
    count = browser.run(
        "[...document.querySelectorAll('a[href], button, select, input, summary, [tabindex]')]"
        ".filter(e => e.tabIndex >= 0 && e.getClientRects().length)"
        ".filter(e => !e.closest('details:not([open]) > :not(summary)'))"
        ".map((e, n) => e.dataset.n = n).length"
    )
    assert count > 25
    reached = []
    for _ in range(count):
        browser.press("Tab")
        n, style, width = browser.run(
            "(() => { const e = document.activeElement, s = getComputedStyle(e);"
            "return [Number(e.dataset.n), s.outlineStyle, parseFloat(s.outlineWidth)]; })()"
        )
        reached.append(n)
        assert style in ("solid", "auto")
        assert width >= 1
    assert reached == list(range(count))


def test_the_button_copies_the_command(browser: Browser, page: Path) -> None:
    browser.open(page, fragment=EXTRAPOLATE)
    browser.run(
        "Object.defineProperty(navigator, 'clipboard', {value: {writeText: async t => { window.copied = t; }}})"
    )
    browser.run("document.querySelector('#ranking .lane.part').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    browser.run("[...document.querySelectorAll('.seed-choice')][2].click()")
    browser.run("document.querySelector('.copy').click(), new Promise(done => setTimeout(done, 20))")
    assert browser.run("window.copied").endswith("--model lformer --variant best --seeds 44")
    assert browser.run("document.querySelector('.copy').textContent") == "Copied"
    link = browser.run("document.querySelector('#record a').href")
    assert Path(link.removeprefix("file://")).name == "seed44.json"
    assert Path(link.removeprefix("file://")).exists()


def test_curves_can_be_chosen(browser: Browser, page: Path) -> None:
    browser.open(page, fragment=EXTRAPOLATE)
    count = "document.querySelectorAll('#curves .chart path.curve').length"
    drawn = browser.run(count)
    assert drawn == 5 + 1 + 5 + 2 + 5  # seeds of the first four systems, and of LFormer
    browser.run("document.querySelector('input[name=curve][value=gru]').focus()")
    browser.press(" ")
    assert browser.run(count) == drawn - 5
    assert browser.run("document.activeElement.value") == "gru"
    browser.run("document.querySelector('#curves .chart [role=button]').focus()")
    browser.press("ArrowDown")
    assert browser.run(SEEN) == "lformer best, seed 43"
    browser.press("Enter")
    assert browser.run("document.querySelector('.seed-choice[aria-pressed=true]').textContent").startswith("seed 43: ")
    assert "--variant best --seeds 43" in browser.run("document.querySelector('#record code').textContent")


def test_names_that_are_markup_stay_text(browser: Browser, page: Path) -> None:
    toy = {"dataset": f"toy {BAD}", "task": "regress", "split": "a'b", "metric": "mae"}
    browser.open(page, fragment="#" + urlencode(toy))
    assert f"{WORSE} we & they" in [row[0] for row in browser.run(ROWS)]
    browser.run("document.querySelector('#ranking .lane.part').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    assert WORSE in browser.run("document.getElementById('record').textContent")
    assert browser.run("document.querySelectorAll('script').length") == 2
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert browser.run("typeof window.boom") == "undefined"
    browser.open(page, fragment="#dataset=ushcn&task=extrapolate")
    assert f"7 of 9 stations {BAD}" in browser.run("document.getElementById('ranking').textContent")
    assert browser.complaints() == []


def test_a_script_that_got_in_would_not_run(browser: Browser, page: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text(page.read_text().replace("</main>", "<script>window.boom=1</script></main>", 1))
    browser.open(bad)
    assert browser.run("typeof window.boom") == "undefined"
    assert any("Content Security Policy" in complaint for complaint in browser.complaints())


@pytest.mark.parametrize("width", [360, 800])
def test_no_page_is_wider_than_its_screen(browser: Browser, page: Path, width: int) -> None:
    browser.open(page, width=width)
    for address, _ in lines():
        browser.run(f"(location.hash = {json.dumps(address)}, new Promise(done => setTimeout(done, 30)))")
        browser.run("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert browser.run("document.documentElement.scrollWidth") <= width, address
    browser.run("document.querySelector('#ranking .lane.part').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    assert browser.run("document.getElementById('record').getBoundingClientRect().width") <= width


@pytest.mark.parametrize("dark", [False, True])
def test_all_text_is_readable_by_day_and_by_night(browser: Browser, page: Path, dark: bool) -> None:
    browser.open(page, dark=dark, fragment=EXTRAPOLATE)
    found: list[Any] = browser.run(CONTRAST)
    assert len(found) > 200
    assert [pair for pair in found if pair[0] < 4.5] == []  # WCAG 2, level AA
    ground = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (max(int(x) for x in ground[4:-1].split(",")) < 128) is dark


def test_the_button_turns_the_page_dark_and_light_again(browser: Browser, page: Path) -> None:
    browser.open(page)
    colour = "getComputedStyle(document.body).backgroundColor"
    light = browser.run(colour)
    browser.run("document.getElementById('theme').focus()")
    browser.press("Enter")
    dark = browser.run(colour)
    assert dark != light
    assert browser.run("document.getElementById('theme').textContent") == "Light page"
    browser.press(" ")
    assert browser.run(colour) == light


def test_every_chart_has_a_name_and_the_same_as_a_table(browser: Browser, page: Path) -> None:
    browser.open(page, fragment=EXTRAPOLATE)
    shown = "[...document.querySelectorAll('svg')].filter(s => s.getAttribute('aria-hidden') !== 'true')"
    assert browser.run(f"{shown}.filter(s => !s.getAttribute('aria-label')).length") == 0
    sections = "[...document.querySelectorAll('section')].filter(s => s.querySelector('.chart svg'))"
    charts = f"{sections}.map(s => [s.id, s.querySelectorAll('table').length])"
    assert {name: count > 0 for name, count in browser.run(charts)} == dict.fromkeys(
        ("ranking", "paired", "costs", "curves", "ablation"), True
    )
    assert "needs at least 3 cells" in browser.run("document.getElementById('critical').textContent")
