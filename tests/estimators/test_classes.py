"""What both classifiers share: label smoothing, and the metric that chooses the epoch."""

from typing import Any

import numpy as np
import pytest

from lformer import LFormerClassifier, LFormerPointClassifier
from lformer.estimators.classes import FEW_SERIES, SMOOTHING

SMALL: dict[str, Any] = {"width": 8, "heads": 2, "depth": 1, "random_state": 0, "device": "cpu"}


def smoothing_of(task: Any) -> float:
    return task.error.args[1]


@pytest.mark.parametrize(("series", "expected"), [(FEW_SERIES - 1, SMOOTHING), (FEW_SERIES, 0.0)])
def test_few_series_are_smoothed_and_many_are_not(series: int, expected: float) -> None:
    classes, labels = np.array([0, 1]), np.array([0, 1])
    made = LFormerClassifier()
    for task in (made._classification(classes, labels, series), made._point_classification(classes, labels, series)):
        assert smoothing_of(task) == expected
    assert smoothing_of(LFormerClassifier(label_smoothing=0.3)._classification(classes, labels, series)) == 0.3


def test_smoothed_labels_make_a_model_less_sure() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    X = [
        (np.sort(rng.random(n)), rng.normal(2 * label, 1, (n, 2)))
        for n, label in zip(rng.integers(2, 9, 40), y, strict=True)
    ]
    X[3][1][0] = np.nan
    sure, unsure = (
        LFormerClassifier(**SMALL, max_epochs=30, patience=None, label_smoothing=share).fit(X, y).predict_proba(X)
        for share in (0.0, 0.4)
    )
    assert unsure.max(axis=1).mean() < sure.max(axis=1).mean() - 0.05


@pytest.mark.parametrize("given", ["some", -0.1, 1.0, np.nan])
@pytest.mark.parametrize("kind", [LFormerClassifier, LFormerPointClassifier])
def test_a_smoothing_that_is_none_is_refused(kind: Any, given: Any) -> None:
    X = np.random.default_rng(0).normal(size=(6, 5))
    y = np.arange(6) % 2 if kind is LFormerClassifier else np.arange(30).reshape(6, 5) % 2
    with pytest.raises(ValueError, match='label_smoothing must be "auto", or at least 0 and below 1; got'):
        kind(**SMALL, label_smoothing=given).fit(X, y)


def test_series_choose_their_epoch_by_cross_entropy_and_rows_by_accuracy() -> None:
    X = np.random.default_rng(0).normal(size=(12, 5))
    series = LFormerClassifier(**SMALL, max_epochs=1).fit(X, np.arange(12) % 2)
    rows = LFormerPointClassifier(**SMALL, max_epochs=1).fit(X, (X > 0).astype(int))
    assert (series.task_.monitor, rows.task_.monitor) == ("cross_entropy", "accuracy")
    assert LFormerPointClassifier()._training(1500).epochs == 2 * LFormerClassifier()._training(1500).epochs
