"""What a report says of coverage: the shares of intervals and sets that hold the truth, counted again by hand."""

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from estimators.every_estimator import POINTS, RECORDS, SIX, fitted, records, targets
from sklearn.metrics import brier_score_loss

from lformer import LFormerClassifier, LFormerRegressor
from lformer.report import gather, report, scores
from lformer.report.coverage import CALIBRATED, LEVELS, THOUGHT, coverage_chart


@pytest.mark.filterwarnings("ignore:.* further ahead than any in training")
@pytest.mark.parametrize("kind", SIX)
def test_a_calibrated_model_has_a_picture_of_its_coverage(kind: Any, tmp_path: Path) -> None:
    X = records(30)
    classes = "Classifier" in kind.__name__
    more = {} if classes else {"uncertainty": "quantiles"}
    model = fitted(kind, X, calibration_fraction=0.6, **more)
    page = report(model, X, targets(kind, X), tmp_path / "report.html")
    tree = ET.fromstring(page.read_text().removeprefix("<!DOCTYPE html>\n"))
    titles = [caption.text for caption in tree.iter("figcaption")]
    assert titles.count("Observed against nominal coverage") == 1
    facts = gather.gather(model, X, targets(kind, X), None, None, "", 0)
    assert [one.name for one in facts.coverage] == ([CALIBRATED] if classes else [CALIBRATED, THOUGHT])
    found = dict(zip(LEVELS, facts.coverage[0].observed, strict=True))
    assert found[0.9] == pytest.approx(by_hand(model, X, 0.9))
    plain = gather.gather(fitted(kind, X), X, targets(kind, X), None, None, "", 0)
    assert plain.coverage == []


def by_hand(model: Any, X: Any, coverage: float) -> float:
    kind = type(model)
    y = targets(kind, X)
    if "Classifier" in kind.__name__:
        sets = model.predict_set(X, coverage)
        pairs = zip(sets, y, strict=True) if kind in POINTS else zip(sets[:, None], y[:, None], strict=True)
        return float(np.mean([np.mean(s[np.arange(len(c)), np.searchsorted(model.classes_, c)]) for s, c in pairs]))
    if kind in RECORDS:
        part, truth, _ = model._with_unseen_values(X)
        asked = part.targets
        stamps = [
            asked.times[a : a + n] + o for a, n, o in zip(asked.first, asked.lengths, part.panel.origin, strict=True)
        ]
        ends = model.predict_interval(part.panel, stamps, coverage)
        y = np.split(truth, np.cumsum(asked.lengths)[:-1])
    else:
        ends = model.predict_interval(X, coverage)
    shares = []
    for one, true in zip(ends, y, strict=True):
        inside = np.where(np.isnan(true), np.nan, (one[..., 0] <= true) & (true <= one[..., 1]))
        if not np.isnan(inside).all():
            shares.append(np.nanmean(inside))
    return float(np.mean(shares))


def test_brier_scores_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    truth, p = rng.integers(0, 2, 50), rng.random(50)
    assert scores.brier(np.column_stack([1 - p, p]), truth) == pytest.approx(brier_score_loss(truth, p))
    three = rng.dirichlet(np.ones(3), 40)
    code = rng.integers(0, 3, 40)
    assert scores.brier(three, code) == pytest.approx(np.square(three - np.eye(3)[code]).sum(axis=1).mean())
    X = records(16)
    facts = gather.gather(fitted(LFormerClassifier, X), X, targets(LFormerClassifier, X), None, None, "", 0)
    assert [score.metric for score in facts.scores] == ["accuracy", "AUC, mean over classes", "log loss", "Brier score"]


def test_the_picture_says_what_its_table_says() -> None:
    X = records(30)
    model = fitted(LFormerRegressor, X, uncertainty="gaussian", calibration_fraction=0.6)
    facts = gather.gather(model, X, targets(LFormerRegressor, X), None, None, "", 0)
    chart = coverage_chart(facts.coverage)
    width = "mean width, in standard deviations"
    assert chart.header == ["interval", "nominal", "observed", "two standard errors", width]
    assert [row[1] for row in chart.rows if row[0] == CALIBRATED] == ["50 %", "60 %", "70 %", "80 %", "90 %", "95 %"]
    assert "infinite" in chart.rows[5][4]  # 18 series are too few for 95 %
    assert len(chart.rows) == 12
    widths = facts.coverage[1].size
    assert all(np.diff(widths) > 0)
