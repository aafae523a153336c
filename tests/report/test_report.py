"""The page of each estimator: well formed, escaped, alone, and with the numbers of the model."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from estimators.every_estimator import POINTS, SERIES, SIX, fitted, records, targets

import lformer
from lformer import LFormerClassifier, LFormerForecaster, LFormerPointClassifier, LFormerRegressor, Panel
from lformer.doctor.words import number
from lformer.report import gather, report

EVIL = '<script>alert("1")</script>&\'"'


def parsed(page: Path) -> ET.Element:
    """The page as a tree: it is well-formed XML, so nothing was left unescaped."""
    return ET.fromstring(page.read_text().removeprefix("<!DOCTYPE html>\n"))


def words(page: Path) -> str:
    return " ".join("".join(parsed(page).itertext()).split())


def written(kind: Any, X: Panel, folder: Path, y: Any = None, **change: Any) -> Path:
    return report(
        fitted(kind, X, **change), X, targets(kind, X) if y is None else y, folder / "report.html", trained_on=X
    )


@pytest.mark.parametrize("kind", SIX)
@pytest.mark.parametrize("dated", [False, True])
def test_each_estimator_has_a_whole_page(kind: Any, dated: bool, tmp_path: Path) -> None:
    X = records(16, dated=dated)
    page = written(kind, X, tmp_path)
    tree = parsed(page)
    assert [s.get("id") for s in tree.iter("section")] == [
        "scores", "training", "answers", "channels", "memory", "examples", "settings",
    ]  # fmt: skip
    pictures = list(tree.iter("{http://www.w3.org/2000/svg}svg"))
    assert len(pictures) >= 8
    assert all(picture.get("role") == "img" and picture.get("aria-label") for picture in pictures)
    assert len(list(tree.iter("article"))) == 3
    assert all(list(figure.iter("table")) for figure in tree.iter("figure"))
    text = words(page)
    drawn = [t.text for t in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert drawn.count("query") == (0 if kind in SERIES else 3)
    assert "16 series" in text
    assert "nan" not in text.lower().split()
    assert set(re.findall(r"https?://[^\s\"']+", page.read_text())) == {"http://www.w3.org/2000/svg"}


def test_names_cannot_become_markup(tmp_path: Path) -> None:
    base = records(16)
    X = Panel.build(
        base.times, base.values, base.lengths, observed=base.observed, channels=[EVIL, "na"],
        ids=[f"{EVIL}{i}" for i in range(16)], unit="</svg>",
    )  # fmt: skip
    y = np.array([EVIL, "well"] * 8)
    model = LFormerClassifier(width=8, heads=2, depth=1, max_epochs=1, random_state=0).fit(X, y)
    page = report(model, X, y, tmp_path / "report.html", title=EVIL, note=EVIL)
    tree = parsed(page)
    assert len(list(tree.iter("script"))) == 1
    assert "alert" not in (next(tree.iter("script")).text or "")
    assert tree.findtext(".//h1") == EVIL
    text = page.read_text()
    assert "<script>alert" not in text
    assert "</svg></svg>" not in text


@pytest.mark.parametrize("kind", [LFormerClassifier, LFormerPointClassifier, LFormerRegressor])
def test_scores_are_those_of_the_model(kind: Any, tmp_path: Path) -> None:
    X = records(16)
    model, y = fitted(kind, X), targets(kind, X)
    text = words(report(model, X, y, tmp_path / "report.html"))
    name = "R²" if kind is LFormerRegressor else "accuracy"
    rival = "the class shares" if kind in POINTS else "boosting"
    assert f"{name} (higher is better){number(model.score(X, y))}" in text
    assert rival in text


def test_a_forecaster_is_compared_with_simple_rules(tmp_path: Path) -> None:
    X = records(16)
    model = fitted(LFormerForecaster, X)
    text = words(report(model, X, path=tmp_path / "report.html"))
    for score in model.compare(X).values():
        assert number(-score) in text


def test_the_same_page_twice(tmp_path: Path) -> None:
    X = records(16)
    model, y = fitted(LFormerClassifier, X), targets(LFormerClassifier, X)
    pages = [report(model, X, y, tmp_path / f"{n}.html").read_text() for n in range(2)]
    assert pages[0] == pages[1]


def test_a_model_that_was_loaded_has_no_curve(tmp_path: Path) -> None:
    X = records(16)
    model, y = fitted(LFormerClassifier, X), targets(LFormerClassifier, X)
    model.save(tmp_path / "model")
    text = words(report(lformer.load(tmp_path / "model"), X, y, tmp_path / "report.html"))
    assert "keeps no history of its training" in text
    assert "boosting" not in text
    assert "always the class shares" in text


def test_members_streams_and_own_scales(tmp_path: Path) -> None:
    X = records(16)
    assert "member 2, layer 1, head 2" in words(written(LFormerClassifier, X, tmp_path, members=2))
    assert "causal (streaming)" in words(written(LFormerClassifier, X, tmp_path, streaming=True))
    assert "they do not add up" in words(written(LFormerForecaster, X, tmp_path, series_scale=True))


def test_dates_of_a_zone(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    begin = pd.Timestamp("2024-03-30 20:00", tz="Europe/Berlin")
    rows = [
        {"who": i, "when": begin + pd.Timedelta(minutes=int(m)), "x": float(rng.normal())}
        for i in range(8)
        for m in np.sort(rng.choice(5000, int(rng.integers(6, 12)), replace=False))
    ]
    X = Panel.from_long(pd.DataFrame(rows), id="who", time="when", value="x")
    assert X.zone == "Europe/Berlin"
    model = fitted(LFormerForecaster, X, n_copies=1)
    assert "time stamps are dates" in words(report(model, X, path=tmp_path / "report.html"))


def test_what_is_drawn_at_random_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X = records(60)
    model, y = fitted(LFormerClassifier, X), targets(LFormerClassifier, X)
    for name, value in (("SCORED", 40), ("ROWS", 100), ("MEASURED", 100)):
        monkeypatch.setattr(gather, name, value)
    text = words(report(model, X, y, tmp_path / "report.html"))
    assert "Scored on 40 of 60 series, drawn at random." in text
    assert text.count("30 of 40 series, drawn at random") == 2


def test_few_series_and_one_class(tmp_path: Path) -> None:
    X = records(16)
    model, y = fitted(LFormerClassifier, X), targets(LFormerClassifier, X)
    same = np.flatnonzero(y == "well")[:2]
    text = words(report(model, X[same], y[same], tmp_path / "report.html"))
    assert "2 series" in text
    assert "AUC" not in text
    assert "accuracy" in words(report(model, X[same[:1]], y[same[:1]], tmp_path / "report.html"))


def test_what_cannot_be_reported_is_refused(tmp_path: Path) -> None:
    X = records(16)
    model = fitted(LFormerClassifier, X)
    y = targets(LFormerClassifier, X)
    with pytest.raises(ValueError, match=r"must end with \.html"):
        report(model, X, y, tmp_path / "report.txt")
    with pytest.raises(ValueError, match="y to be passed"):
        report(model, X, path=tmp_path / "report.html")
    with pytest.raises(ValueError, match=r"y has the class .*'dead'\)?, which is not a class of training"):
        report(model, X, np.where(y == "ill", "dead", y), tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []
