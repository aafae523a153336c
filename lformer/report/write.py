"""report: the page of a fitted estimator, written whole."""

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
    """Write one self-contained page on a fitted estimator: scores, training, answers, importance, memory and examples.

    It needs no network and no other file, works with the keyboard, and follows the reader's choice of light or dark.
    Importance and half-lives are measured on series drawn at random where all of them would take long; the page says
    on how many.

    Args:
        estimator: fitted. One that was loaded has no history of its training, and simple models to compare with only
            where they need no fit.
        X, y: series and targets as in `score`, better not those of training; no y to interpolate or forecast.
        path: of the page; one that is there is replaced.
        title: above the page; the class of the estimator if None.
        trained_on: the training series, which the page then describes.
        note: a sentence for the top of the page, such as where the series come from.
        random_state: of the draws.

    Returns:
        The path.
    """
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"path must end with .html; got {path}.")
    write_text(path, page(gather(estimator, X, y, title, trained_on, note, random_state)))
    return path
