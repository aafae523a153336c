"""What the data doctor shows: a page with pictures, and the same as text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from doctor.faults import FINDINGS
from doctor.tables import LONG, NAN, WIDE, again, calendar, changed, long_table, more, put, to, wide_table
from rich.console import Console

from lformer.doctor import draw, examine


class Reader(HTMLParser):
    """Collects words and checks that tags are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        self.seen.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def read_page(path: Path) -> tuple[Reader, ElementTree.Element]:
    text = path.read_text(encoding="utf-8")
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader, ElementTree.fromstring(text)


SVG = "{http://www.w3.org/2000/svg}"


def test_page_shows_the_figures(tmp_path: Path) -> None:
    table = changed(
        long_table(), to("t", calendar), more(who=["q"], t=[pd.Timestamp("2021-05-01")], what=["k"], x=[1.0])
    )
    report = examine(table, **LONG)
    reader, root = read_page(report.html(tmp_path / "report.html"))
    words = " ".join(reader.words)
    for _, what in report.summary():
        assert what in words
    for finding in report.findings:
        assert finding.title in words
        assert finding.detail in words
        assert finding.advice in words
    for row in report.channel_rows()[1]:
        assert all(cell in words for cell in row)
    assert reader.seen.count("svg") == 5
    assert report.verdict in words

    timeline, _, gaps, lengths, _ = root.iter(f"{SVG}svg")
    assert report.sketch is not None
    drawn = [t.text for t in timeline.iter(f"{SVG}text")]
    assert {lane.name for lane in report.sketch.lanes} <= set(drawn)
    assert {"k", "na", "ph"} <= set(drawn)
    for picture, total, word in ((gaps, report.figures["stamps"] - 13, "gap"), (lengths, 13, "series")):
        tips = [t.text or "" for t in picture.iter(f"{SVG}title")]
        assert sum(int(re.search(rf": ([\d,]+) {word}", tip)[1].replace(",", "")) for tip in tips) == total  # type: ignore[index]
    assert (tmp_path / "report.html").stat().st_size < 100_000


def test_page_stays_within_its_pictures(tmp_path: Path) -> None:
    table = changed(long_table(), more(who=["p04"], t=[5000.0], what=["na"], x=[1.0]))
    _, root = read_page(examine(table, **LONG).html(tmp_path / "report.html"))
    for picture in root.iter(f"{SVG}svg"):
        width, height = map(float, picture.attrib["viewBox"].split()[2:])
        for bar in picture.iter(f"{SVG}rect"):
            x, y, w, h = (float(bar.attrib[k]) for k in ("x", "y", "width", "height"))
            assert min(x, y, w, h) >= 0
            assert x + w <= width
            assert y + h <= height
        for words in picture.iter(f"{SVG}text"):
            assert 0 <= float(words.attrib["x"]) <= width
            assert 0 <= float(words.attrib["y"]) <= height
        for path in picture.iter(f"{SVG}path"):
            for x, y in re.findall(r"[ML]([-\d.]+) ([-\d.]+)", path.attrib["d"]):
                assert 0 <= float(x) <= width
                assert 0 <= float(y) <= height


def test_dots_are_the_observations() -> None:
    """Each channel of each series has a dot wherever it was seen, and nowhere else."""
    table = long_table()
    report = examine(table, **LONG)
    assert report.sketch is not None
    assert len(report.sketch.lanes) == 12
    for lane in report.sketch.lanes:
        mine = table[(table["who"] == lane.name)]
        for name, cells in zip(report.sketch.legend, lane.cells, strict=True):
            seen = mine[(mine["what"] == name)].dropna()["t"]
            places = np.rint((seen - mine["t"].min()) / report.sketch.horizon * 320).astype(int)
            assert set(places[places <= 320]) == set(cells)


def test_neighbouring_dots_are_one_stroke() -> None:
    assert draw._dots(np.asarray([2, 3, 4, 7]), left=10.0, step=2.0, y=5.0) == "M14.0 5.0h4M24.0 5.0h0.01"


@pytest.mark.parametrize(("stretch", "words"), [(1 / 3600, "per s"), (1 / 60, "per min"), (1, "per h"), (24, "per d")])
def test_rates_of_a_calendar_are_readable(stretch: float, words: str) -> None:
    table = changed(long_table(), to("t", lambda t: pd.to_timedelta(t * stretch, unit="h")))
    report = examine(table, **LONG)
    factor, unit = report.rate_unit()
    assert unit == words
    assert 0.2 < factor * report.channels["rate"].median() < 2


@pytest.mark.parametrize(
    "title", ["Empty table", "Missing time stamps", "Nothing was observed", "Stamps too far apart"]
)
def test_page_of_a_bad_table(title: str, tmp_path: Path) -> None:
    table, columns = next((t, c) for name, _, t, c, _ in FINDINGS if name == title)
    reader, _ = read_page(examine(table, **columns).html(tmp_path / "report.html"))
    assert title in " ".join(reader.words)


def test_page_of_one_row_and_of_many_channels(tmp_path: Path) -> None:
    read_page(examine(wide_table().iloc[:1], **WIDE).html(tmp_path / "one.html"))
    rng = np.random.default_rng(1)
    many = pd.DataFrame(rng.normal(size=(40, 60)), columns=[f"c{i}" for i in range(60)])
    many.insert(0, "t", np.tile(np.cumsum(rng.uniform(0.1, 2, 10)), 4))
    many.insert(0, "who", np.repeat(["a", "b", "c", "d"], 10))
    many.loc[3, "c5"] = NAN
    reader, _ = read_page(examine(many, **WIDE).html(tmp_path / "many.html"))
    assert "53 others" in reader.words
    assert "and 30 more channels" in examine(many, **WIDE).text()


def test_names_cannot_break_the_page(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>&\x00"
    table = changed(long_table(), to("who", lambda w: w + evil), to("what", lambda w: w + evil), put([3], "x", np.inf))
    reader, _ = read_page(examine(table, **LONG).html(tmp_path / "report.html"))
    assert "script" not in reader.seen
    assert any("<script>" in words for words in reader.words)


def test_text_fits_a_terminal_and_rich_prints_the_same() -> None:
    report = examine(changed(long_table(), to("who", lambda w: "[b]" + w), again([0]), put([9], "x", 1e5)), **LONG)
    assert max(len(line) for line in report.text(90).splitlines()) <= 90
    console = Console(width=200)
    with console.capture() as capture:
        console.print(report)
    assert [line.rstrip() for line in capture.get().rstrip().splitlines()] == [
        line.rstrip() for line in report.text().rstrip().splitlines()
    ]
    assert "[b]p00" in capture.get()
