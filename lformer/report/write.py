"""`report`: write the HTML page of a fitted estimator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lformer.estimators.base import LFormerEstimator
from lformer.panel import Panel
from lformer.report.gather import gather
from lformer.report.page import page
from lformer.sealed import write_text


def report(
    estimator: LFormerEstimator,
    X: Any,
    y: Any = None,
    path: str | Path = "report.html",
    *,
    title: str | None = None,
    trained_on: Panel | None = None,
    note: str = "",
    random_state: int = 0,
) -> Path:
    """Write a self-contained HTML page about a fitted estimator: scores, predictions, importance and examples.

    The page needs no network and no other file, works with the keyboard, and follows the reader's choice of light or
    dark mode. If there are many series, importance and half-lives are measured on a random sample; the page states its
    size.

    Args:
        estimator: the fitted estimator. One that was loaded has no training history, and of the baselines to compare
            with only those that need no fit.
        X, y: series and targets as in `score`, preferably held out; no y to interpolate or forecast.
        path: HTML file to write; an existing file is replaced.
        title: heading of the page. By default, the class name of the estimator.
        trained_on: the training series, if the page should describe them.
        note: a sentence for the top of the page, such as the source of the series.
        random_state: seed for random samples of the series.

    Returns:
        The path of the page.
    """
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"path must end with .html; got {path}.")
    write_text(path, page(gather(estimator, X, y, title, trained_on, note, random_state)))
    return path
