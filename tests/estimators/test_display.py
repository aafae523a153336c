"""What a notebook shows of an estimator: scikit-learn's diagram and, once it is fitted, what `fit` found."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from estimators.every_estimator import SIX, SMALL, fitted, records
from sklearn import config_context
from sklearn.base import clone

from lformer import LFormerClassifier, LFormerForecaster
from lformer.estimators import load
from lformer.estimators.display import found


def words(html: str) -> str:
    """What a reader sees of the table below the diagram."""
    return " ".join(re.sub(r"<[^>]*>", " ", html[html.rindex("<table") :]).split())


@pytest.mark.parametrize("kind", SIX)
def test_a_fitted_one_says_what_it_reads_and_how_good_it_was(kind: Any) -> None:
    model = fitted(kind)
    html = model._repr_html_()
    assert model._repr_mimebundle_()["text/html"].count("<table") == html.count("<table")
    text = words(html)
    assert "channels 2: k, na" in text
    assert "static covariates age, site" in text
    assert f"validation {model.task_.monitor} {model.validation_score_:.4g}" in text
    verdict = "which is better" if model.loses_ else "which is worse"
    assert f"{model.naive_}, same series {model.naive_score_:.4g}, {verdict}" in text
    assert "sk-estimator" in html


def test_one_that_is_not_fitted_is_the_diagram_alone() -> None:
    plain = clone(fitted(LFormerClassifier))._repr_html_()
    assert "validation cross_entropy" not in plain
    assert "sk-estimator" in plain
    with config_context(display="text"):
        assert not hasattr(LFormerClassifier(), "_repr_html_")


def test_names_are_text_and_not_markup(tmp_path: Path) -> None:
    X = records(dated=True)
    model = LFormerForecaster(**SMALL, members=2).fit(replace(X, channels=("<b>k</b>", "na")))
    assert "2: &lt;b&gt;k&lt;/b&gt;, na" in model._repr_html_()
    assert found(model)["times"] == "dates or durations in h"
    assert found(model)["model"].endswith("weights, 2 members")
    model.save(tmp_path / "m")
    assert "training" in found(load(tmp_path / "m"))  # its scores are not saved
